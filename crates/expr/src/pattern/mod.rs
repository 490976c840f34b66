//! Patterns: kinds of matching, and indexes whose cost depends little on the number of patterns.
//!
//! | kind | index | cost of a look-up | cost of a change |
//! |---|---|---|---|
//! | `str`, `bin` | hash table ([`hashed`]) | one hash of the sample | logarithmic in the length |
//! | `beg`, `end` | sorted tree ([`prefix`]) | one search | logarithmic |
//! | `dir`, `dom` | the same | one search per part of the sample | logarithmic |
//! | `sub` | Aho-Corasick per run of entries ([`parts`]) | one pass per run | logarithmic, amortized |
//! | `int`, `len` | hash table of numbers, list of ranges | one hash, one step per range | logarithmic |
//! | `ip` | hash table per mask | one hash per mask in use | logarithmic |
//! | `reg` | machine per run; look-around apart ([`backtrack`]) | one pass per run | logarithmic, amortized |
//!
//! A change never modifies what a lane may read. Tables are persistent: a changed copy shares all unchanged
//! nodes ([`tree`]).

pub(crate) mod backtrack;
mod entry;
mod hashed;
mod index;
mod ip;
mod parts;
mod prefix;
mod reference;
mod references;
mod regex;
#[cfg(test)]
mod tests;
mod tree;
pub(crate) mod value;
mod work;

pub use backtrack::{
    LONG_STEPS, MAX_BACKTRACK_BYTES, MAX_LOOKAROUNDS, MOST_REPLACED, SHORT_STEPS, SHORT_TEXT, given_up,
};
pub use entry::{Entries, Entry};
pub use reference::{
    Comparison, EntrySelector, MAX_ENTRIES, MAX_REFERENCE_BYTES, NoVersion, NotAdded, Pair, Reference,
    Snapshot, Summary, View, split,
};
pub use references::References;
pub use regex::{MAX_MACHINE_BYTES, MAX_REGEX_BYTES, Regex, fault as regex_fault};

use crate::cast::parse_whole;
use crate::sample::Type;
use crate::show::Shown;

/// Kind of matching: how a sample is compared with patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// The sample exists.
    Found,
    /// The sample is true.
    Bool,
    /// The number is in one of the ranges.
    Int,
    /// As `Int`; patterns are versions of TLS such as `3.1`, each major times 65536 plus minor. No `-m` names
    /// it.
    Version,
    /// The address is in one of the networks.
    Ip,
    /// The bytes are equal.
    Bin,
    /// The length is in one of the ranges.
    Len,
    /// The text is equal.
    Str,
    /// The text contains the pattern.
    Sub,
    /// A regular expression matches.
    Reg,
    /// The text begins with the pattern.
    Beg,
    /// The text ends with the pattern.
    End,
    /// The pattern is a part of the text between slashes or question marks.
    Dir,
    /// The pattern is a part of the text between dots, slashes, colons or question marks.
    Dom,
}

impl MatchKind {
    /// The kinds that `-m` names, with their words.
    pub const ALL: [(Self, &'static str); 13] = [
        (Self::Found, "found"),
        (Self::Bool, "bool"),
        (Self::Int, "int"),
        (Self::Ip, "ip"),
        (Self::Bin, "bin"),
        (Self::Len, "len"),
        (Self::Str, "str"),
        (Self::Sub, "sub"),
        (Self::Reg, "reg"),
        (Self::Beg, "beg"),
        (Self::End, "end"),
        (Self::Dir, "dir"),
        (Self::Dom, "dom"),
    ];

    /// Its word after `-m`, or that of the kind which compares alike.
    pub fn name(self) -> &'static str {
        let named = if self == Self::Version { Self::Int } else { self };
        Self::ALL.iter().find(|(kind, _)| *kind == named).map_or("", |(_, name)| name)
    }

    /// Type to which samples are cast before the comparison.
    pub fn takes(self) -> Type {
        match self {
            Self::Found => Type::Any,
            Self::Bool => Type::Bool,
            Self::Int | Self::Version => Type::Int,
            Self::Ip => Type::Addr,
            Self::Bin => Type::Bin,
            _ => Type::Str,
        }
    }

    /// Default kind for a type; `None` if `-m` is required.
    pub fn default_of(sample: Type) -> Option<Self> {
        match sample {
            Type::Bool => Some(Self::Bool),
            Type::Int => Some(Self::Int),
            Type::Addr | Type::Ipv4 | Type::Ipv6 => Some(Self::Ip),
            Type::Str | Type::Method => Some(Self::Str),
            Type::Bin | Type::Any | Type::Same => None,
        }
    }

    /// Parses a number as patterns of this kind write it.
    pub(crate) fn number(self, text: &[u8]) -> Option<i64> {
        if self != Self::Version {
            return parse_whole(text);
        }
        let text = std::str::from_utf8(text).ok()?;
        let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
        let part = |text: &str| text.parse::<u16>().ok().filter(|_| !text.starts_with('+'));
        Some(i64::from(part(major)?) << 16 | i64::from(part(minor)?))
    }

    /// Names what [`MatchKind::number`] parses, for messages.
    pub(crate) fn expects(self) -> &'static str {
        if self == Self::Version { "a version such as 3.1" } else { "a whole number" }
    }
}

/// An inclusive range of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) least: i64,
    pub(crate) most: i64,
}

impl Range {
    /// Parses `5`, `1024:65535`, `1024:`, `:1023`. Of versions likewise; there `-` may stand in place of `:`.
    pub(crate) fn parse(kind: MatchKind, text: &[u8]) -> Result<Self, String> {
        let bad = || {
            let range = if kind == MatchKind::Version { "3.1:3.3" } else { "1024:65535" };
            format!("expected {} or a range such as {range}, found '{}'", kind.expects(), Shown(text))
        };
        let range = match Self::separator(kind, text) {
            None => {
                let n = kind.number(text).ok_or_else(bad)?;
                Self { least: n, most: n }
            }
            Some(at) => {
                let end =
                    |part: &[u8], open: i64| if part.is_empty() { Some(open) } else { kind.number(part) };
                Self {
                    least: end(&text[..at], i64::MIN).ok_or_else(bad)?,
                    most: end(&text[at + 1..], i64::MAX).ok_or_else(bad)?,
                }
            }
        };
        if range.least > range.most {
            return Err(format!("a range expects its lower end first, found '{}'", Shown(text)));
        }
        Ok(range)
    }

    /// Index of the byte between the two ends of a range.
    pub(crate) fn separator(kind: MatchKind, text: &[u8]) -> Option<usize> {
        text.iter().position(|byte| *byte == b':' || *byte == b'-' && kind == MatchKind::Version)
    }

    /// The pattern that [`Range::parse`] reads as this range; `None` if an end is no version.
    pub(crate) fn pattern(self, kind: MatchKind) -> Option<String> {
        let number = |n: i64| match kind {
            MatchKind::Version => u32::try_from(n).ok().map(|n| format!("{}.{}", n >> 16, n & 0xffff)),
            _ => Some(n.to_string()),
        };
        Some(match (self.least, self.most) {
            (least, most) if least == most => number(least)?,
            (i64::MIN, most) => format!(":{}", number(most)?),
            (least, i64::MAX) => format!("{}:", number(least)?),
            (least, most) => format!("{}:{}", number(least)?, number(most)?),
        })
    }
}
