//! Patterns: how samples are compared, and indexes that make many of them as cheap as few.
//!
//! | kind | index | cost of a look-up | cost of a change |
//! |---|---|---|---|
//! | `str`, `bin` | hashed ([`hashed`]) | one hash of the sample | the logarithm of the length |
//! | `beg`, `end` | sorted ([`prefix`]) | one search | the same |
//! | `dir`, `dom` | the same, once for each part of the sample | one search a part | the same |
//! | `sub` | Aho-Corasick, for runs of entries ([`parts`]) | one pass for each run | the same, averaged over many |
//! | `int`, `len` | hashed numbers, ranges in order | one hash, one step a range | the same |
//! | `ip` | hashed networks by mask | one hash for each mask that is in use | the same |
//! | `reg` | a machine for each run of entries | one pass for each run; those that look around are tried one by one beside it ([`looking`]) | the same, averaged over many |
//!
//! Nothing is changed in place that a lane may look at: what is sorted or hashed shares with its former self
//! what did not change ([`tree`]).

mod entry;
mod hashed;
mod index;
mod ip;
pub(crate) mod looking;
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

pub use entry::{Entries, Entry};
pub use looking::{
    LONG_STEPS, LONGEST_LOOKING, MOST_LOOKS, MOST_REPLACED, SHORT_STEPS, SHORT_TEXT, given_up,
};
pub use reference::{
    Comparison, MAX_ENTRIES, MAX_REFERENCE_BYTES, NoVersion, NotAdded, Pair, Reference, Snapshot, Summary,
    View, Which, split,
};
pub use references::References;
pub use regex::{MAX_MACHINE_BYTES, MAX_REGEX_BYTES, Regex, fault as regex_fault};

use crate::cast::parse_whole;
use crate::sample::Type;
use crate::show::Shown;
use std::fmt;

/// How a sample is compared with patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// There is a sample.
    Found,
    /// It is true.
    Bool,
    /// It is a number of a set of ranges.
    Int,
    /// It is an address in a network.
    Ip,
    /// It has these bytes.
    Bin,
    /// Its length is in a set of ranges.
    Len,
    /// It is this text.
    Str,
    /// It has this text in it.
    Sub,
    /// A regular expression matches.
    Reg,
    /// It begins with this text.
    Beg,
    /// It ends with this text.
    End,
    /// It has this text between slashes.
    Dir,
    /// It has this text between dots, slashes, colons or question marks.
    Dom,
}

impl MatchKind {
    /// All of them, by the words behind `-m`.
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

    /// The word behind `-m`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// What the sample is cast to before it is compared.
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

    /// The kind for a type when no other is asked for.
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

/// A range of numbers, both ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) least: i64,
    pub(crate) most: i64,
}

impl Range {
    /// Reads `5`, `1024:65535`, `1024:`, `:1023`.
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
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (least, most) if least == most => write!(f, "{least}"),
            (i64::MIN, most) => write!(f, ":{most}"),
            (least, i64::MAX) => write!(f, "{least}:"),
            (least, most) => write!(f, "{least}:{most}"),
        }
    }
}
