//! Stop strings, found across the borders of tokens.

/// Looks for stop strings in text that arrives piece by piece, and holds back what may be the start of one.
#[derive(Debug)]
pub(super) struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Takes a piece of text; returns what is certainly no part of a stop string, and whether one was found. The text
    /// from the first stop string on is dropped.
    pub(super) fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let starts = self.held.char_indices().map(|(at, _)| at);
        let held_from = starts
            .into_iter()
            .find(|&at| self.stops.iter().any(|stop| stop.starts_with(&self.held[at..])))
            .unwrap_or(self.held.len());
        let rest = self.held.split_off(held_from);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The text held back, when no more will come.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::StopMatcher;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut matcher = StopMatcher::new(stops.iter().map(|&stop| stop.to_owned()).collect());
        let mut texts = Vec::new();
        for piece in pieces {
            let (text, stopped) = matcher.push(piece);
            texts.push(text);
            if stopped {
                return (texts, true);
            }
        }
        texts.push(matcher.finish());
        (texts, false)
    }

    #[test]
    fn stop_string_across_pieces_ends_the_text_before_it() {
        let (texts, stopped) = run(&["\nUser:"], &["Hi", " there\n", "Us", "er: me"]);
        assert_eq!((texts.concat().as_str(), stopped), ("Hi there", true));
        assert_eq!(texts[0], "Hi", "what cannot be part of a stop string is not held back");
    }

    #[test]
    fn held_text_that_was_no_stop_string_is_given_out() {
        let (texts, stopped) = run(&["aab"], &["aa", "aa", "c", "a"]);
        assert_eq!((texts.concat().as_str(), stopped), ("aaaaca", false));
        assert_eq!(texts, ["", "aa", "aac", "", "a"]);
    }

    #[test]
    fn first_of_several_stop_strings_wins() {
        assert_eq!(run(&["world", "lo"], &["hello world"]).0, ["hel"]);
    }

    #[test]
    fn characters_of_several_bytes_are_never_cut() {
        assert_eq!(run(&["é"], &["caf", "é!"]), (vec!["caf".to_owned(), String::new()], true));
        assert_eq!(run(&["世界"], &["世", "人"]).0.concat(), "世人");
    }

    #[test]
    fn without_stop_strings_nothing_is_held() {
        assert_eq!(run(&[], &["a", "b"]).0, ["a", "b", ""]);
    }
}
