//! A conversation on the terminal.

use std::io::{self, BufRead, Write};

use butter::{Model, Session};
use serde_json::{Value, json};

use crate::output::{Failure, Style, Terminal, paint};
use crate::run::{answer, encode_chat, no_template_for, system_message};
use crate::sampling::SamplingArgs;

const HELP: &str = "\
  /help          this list
  /clear         forget the conversation, keep the instructions
  /system TEXT   give new instructions and start anew; without TEXT: none
  /exit          leave (or Ctrl-D)
Ctrl-C ends an answer.";

/// Asks and answers until the user leaves.
pub(crate) fn run(
    model: &Model,
    system: Option<String>,
    sampling: &SamplingArgs,
    with_stats: bool,
    terminal: &Terminal,
) -> Result<(), Failure> {
    if model.chat_template().is_none() {
        return Err(no_template_for("a chat"));
    }
    let mut chat = Chat {
        model,
        session: model.session()?,
        messages: system_message(system.as_deref()),
        system,
        sampling,
        with_stats,
        terminal,
    };
    terminal.note("/help lists what you can type");
    while let Some(line) = read_line()? {
        match parse(&line) {
            Line::Nothing => {}
            Line::Help => writeln!(io::stdout(), "{HELP}")?,
            Line::Clear => chat.restart(),
            Line::System(text) => {
                chat.system = text.map(str::to_owned);
                chat.restart();
            }
            Line::Exit => return Ok(()),
            Line::Unknown(command) => {
                terminal.show(
                    &Failure::usage(format!("there is no command {command}")).with_help(
                        "/help lists the commands; a question cannot start with a slash",
                    ),
                );
            }
            Line::Question(question) => chat.ask(question)?,
        }
    }
    Ok(writeln!(io::stdout())?)
}

/// The conversation so far.
struct Chat<'a> {
    model: &'a Model,
    /// Keeps what the model has already read.
    session: Session,
    messages: Vec<Value>,
    system: Option<String>,
    sampling: &'a SamplingArgs,
    with_stats: bool,
    terminal: &'a Terminal,
}

impl Chat<'_> {
    fn restart(&mut self) {
        self.messages = system_message(self.system.as_deref());
        self.terminal.note("a new conversation");
    }

    /// Answers a question. One that cannot be answered is forgotten, and the chat goes on.
    fn ask(&mut self, question: &str) -> Result<(), Failure> {
        self.messages.push(json!({"role": "user", "content": question}));
        match self.answer() {
            Ok(text) => {
                self.messages.push(json!({"role": "assistant", "content": text}));
                Ok(writeln!(io::stdout())?)
            }
            Err(failure @ (Failure::OutputClosed | Failure::Interrupted)) => Err(failure),
            Err(failure) => {
                self.messages.pop();
                self.terminal.show(&failure);
                self.terminal.note("the question is forgotten; /clear starts a new conversation");
                Ok(())
            }
        }
    }

    fn answer(&self) -> Result<String, Failure> {
        let Some(template) = self.model.chat_template() else {
            return Err(no_template_for("a chat"));
        };
        let prompt = encode_chat(self.model, template, &self.messages)?;
        let start = |options| self.session.generate(prompt, options);
        Ok(answer(self.with_stats, self.sampling, self.terminal, start)?.text)
    }
}

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    Question(&'a str),
    Help,
    Clear,
    System(Option<&'a str>),
    Exit,
    Unknown(&'a str),
}

fn parse(line: &str) -> Line<'_> {
    let line = line.trim();
    if !line.starts_with('/') {
        return if line.is_empty() { Line::Nothing } else { Line::Question(line) };
    }
    let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match (command, rest.is_empty()) {
        ("/help" | "/?", true) => Line::Help,
        ("/clear", true) => Line::Clear,
        ("/exit" | "/quit" | "/bye", true) => Line::Exit,
        ("/system", is_empty) => Line::System((!is_empty).then_some(rest)),
        _ => Line::Unknown(command),
    }
}

/// Asks for a line; `None` at the end of the input.
fn read_line() -> Result<Option<String>, Failure> {
    let mut out = io::stdout().lock();
    write!(out, "{} ", paint(Style::Bold, ">"))?;
    out.flush()?;
    drop(out);
    let mut line = Vec::new();
    let read = io::stdin().lock().read_until(b'\n', &mut line);
    match read.map_err(|error| Failure::error(format!("cannot read the terminal: {error}")))? {
        0 => Ok(None),
        _ => Ok(Some(String::from_utf8_lossy(&line).into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, parse};

    #[test]
    fn lines_are_questions_or_commands() {
        for (line, parsed) in [
            ("\n", Line::Nothing),
            ("  What / why?\n", Line::Question("What / why?")),
            ("/help", Line::Help),
            ("/system  Be brief. \n", Line::System(Some("Be brief."))),
            ("/system", Line::System(None)),
            ("/bye", Line::Exit),
            ("/clear all", Line::Unknown("/clear")),
            ("/nonsense", Line::Unknown("/nonsense")),
        ] {
            assert_eq!(parse(line), parsed, "{line:?}");
        }
    }
}
