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
use std::fmt;

/// Kind of matching: how a sample is compared with patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// The sample exists.
    Found,
    /// The sample is true.
    Bool,
    /// The number is in one of the ranges.
    Int,
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
    /// All kinds with their words after `-m`.
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

    /// Its word after `-m`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// Type to which samples are cast before the comparison.
    pub fn takes(self) -> Type {
        match self {
            Self::Found => Type::Any,
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
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
}

/// An inclusive range of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) least: i64,
    pub(crate) most: i64,
}

impl Range {
    /// Parses `5`, `1024:65535`, `1024:`, `:1023`.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let bad =
            || format!("expected a whole number or a range such as 1024:65535, found '{}'", Shown(text));
        let range = match memchr::memchr(b':', text) {
            None => {
                let n = parse_whole(text).ok_or_else(bad)?;
                Self { least: n, most: n }
            }
            Some(colon) => {
                let end =
                    |part: &[u8], open: i64| if part.is_empty() { Some(open) } else { parse_whole(part) };
                Self {
                    least: end(&text[..colon], i64::MIN).ok_or_else(bad)?,
                    most: end(&text[colon + 1..], i64::MAX).ok_or_else(bad)?,
                }
            }
        };
        if range.least > range.most {
            return Err(format!("a range expects its lower end first, found '{}'", Shown(text)));
        }
        Ok(range)
    }
}

impl fmt::Display for Range {
    /// The syntax that [`Range::parse`] accepts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (least, most) if least == most => write!(f, "{least}"),
            (i64::MIN, most) => write!(f, ":{most}"),
            (least, i64::MAX) => write!(f, "{least}:"),
            (least, most) => write!(f, "{least}:{most}"),
        }
    }
}
