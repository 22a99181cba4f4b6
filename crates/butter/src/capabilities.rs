//! What a model can take in and give out.

use std::fmt;

/// One kind of input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Capability {
    /// Takes text.
    TextIn,
    /// Writes text.
    TextOut,
    /// Takes images.
    ImageIn,
    /// Takes videos.
    VideoIn,
    /// Takes sound.
    AudioIn,
    /// Makes sound.
    AudioOut,
    /// Calls tools.
    ToolCalling,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 7] = [
        Self::TextIn,
        Self::TextOut,
        Self::ImageIn,
        Self::VideoIn,
        Self::AudioIn,
        Self::AudioOut,
        Self::ToolCalling,
    ];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TextIn => "text-in",
            Self::TextOut => "text-out",
            Self::ImageIn => "image-in",
            Self::VideoIn => "video-in",
            Self::AudioIn => "audio-in",
            Self::AudioOut => "audio-out",
            Self::ToolCalling => "tool-calling",
        }
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Capabilities(u8);

impl Capabilities {
    /// The set of these.
    pub const fn of(capabilities: &[Capability]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < capabilities.len() {
            bits |= 1 << capabilities[index] as u8;
            index += 1;
        }
        Self(bits)
    }

    /// Whether one is in the set.
    pub const fn contains(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u8) != 0
    }

    /// Whether all of `other` are in the set.
    pub const fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in `self` but not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The members, in order.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |capability| self.contains(*capability))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Capability::name).collect();
        f.write_str(&names.join(", "))
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capabilities({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::{Capabilities, Capability};

    #[test]
    fn sets_compare_and_print() {
        let text = Capabilities::of(&[Capability::TextOut, Capability::TextIn]);
        let image = Capabilities::of(&[Capability::ImageIn, Capability::TextIn]);
        assert_eq!(text.to_string(), "text-in, text-out");
        assert!(!text.contains_all(image) && text.contains(Capability::TextIn));
        assert_eq!(image.without(text), Capabilities::of(&[Capability::ImageIn]));
    }
}
