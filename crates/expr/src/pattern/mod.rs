//! Patterns: how samples are compared, and indexes that make many of them as cheap as few.
//!
//! | kind | index | cost of a look-up |
//! |---|---|---|
//! | `str`, `bin` | hashed | one hash of the sample |
//! | `beg`, `end` | sorted with links ([`prefix`]) | one binary search |
//! | `dir`, `dom` | the same, once for each part of the sample | one binary search a part |
//! | `sub` | Aho-Corasick | one pass |
//! | `int`, `len` | hashed numbers, listed ranges | one hash, one step a range |
//! | `ip` | hashed networks by mask | one hash for each mask that is in use |
//! | `reg` | one machine for all | one pass |

pub(crate) mod ip;
mod prefix;
mod reference;
mod references;
mod regex;
pub(crate) mod value;

pub use reference::{
    Entry, Looked, MAX_ENTRIES, MAX_REFERENCE_BYTES, NoVersion, NotAdded, Pair, Reference, Snapshot, Summary,
    View, Which, split,
};
pub use references::References;
pub use regex::{MAX_MACHINE_BYTES, MAX_REGEX_BYTES, Regex};

use crate::cast::parse_whole;
use crate::fetch::unhex;
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use crate::show::Shown;
use aho_corasick::AhoCorasick;
use prefix::{Prefixes, Text};
use std::collections::HashMap;
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
        let bad = || format!("'{}' is no whole number and no range of them, as 1024:65535", Shown(text));
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
            return Err(format!("the range '{}' is empty: its ends are the wrong way round", Shown(text)));
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

/// Patterns of one kind, ready for look-ups; each has a number.
#[derive(Debug)]
pub(crate) struct Index {
    table: Table,
    ignore_case: bool,
}

#[derive(Debug)]
enum Table {
    Nothing,
    Exact(HashMap<Box<[u8]>, u32>),
    Beg(Prefixes),
    End(Prefixes),
    Parts(Prefixes, &'static [u8]),
    Sub(Option<Box<AhoCorasick>>),
    Numbers { exact: HashMap<i64, u32>, ranges: Vec<(Range, u32)>, of_length: bool },
    Ip(ip::Networks),
    Reg { all: Option<Regex>, each: Vec<Regex> },
}

/// Delimiters of `dir`.
const DIR: &[u8] = b"/?";
/// Delimiters of `dom`.
const DOM: &[u8] = b"/?.:";

impl Index {
    /// Of patterns in order. The error has the number of the pattern and a sentence.
    pub(crate) fn new(
        kind: MatchKind,
        ignore_case: bool,
        patterns: &[&[u8]],
    ) -> Result<Self, (usize, String)> {
        let each = || patterns.iter().enumerate();
        let folded = |text: &[u8]| if ignore_case { text.to_ascii_lowercase() } else { text.to_vec() };
        let keyed = |key: &dyn Fn(&[u8]) -> Vec<u8>| {
            Prefixes::new(each().map(|(n, text)| (key(text).into_boxed_slice(), n as u32)).collect())
        };
        let trimmed = |text: &[u8], set: &[u8]| {
            let start = text.iter().position(|byte| !set.contains(byte)).unwrap_or(text.len());
            let end = text.iter().rposition(|byte| !set.contains(byte)).map_or(start, |last| last + 1);
            folded(&text[start..end])
        };
        let table = match kind {
            MatchKind::Found | MatchKind::Bool => Table::Nothing,
            MatchKind::Int => Self::numbers(patterns, false)?,
            MatchKind::Len => Self::numbers(patterns, true)?,
            MatchKind::Ip => {
                let networks: Vec<(ip::Network, u32)> = each()
                    .map(|(n, text)| match ip::parse(text) {
                        Some(network) => Ok((network, n as u32)),
                        None => Err((
                            n,
                            format!("'{}' is no address or network; names are not resolved", Shown(text)),
                        )),
                    })
                    .collect::<Result<_, _>>()?;
                Table::Ip(ip::Networks::new(networks.into_iter()))
            }
            MatchKind::Bin => {
                let mut map = HashMap::new();
                for (n, text) in each() {
                    let Some(bytes) = unhex(text) else {
                        return Err((
                            n,
                            format!("'{}' is no even number of hexadecimal digits", Shown(text)),
                        ));
                    };
                    map.entry(bytes.into()).or_insert(n as u32);
                }
                Table::Exact(map)
            }
            MatchKind::Str => {
                let mut map = HashMap::new();
                for (n, text) in each() {
                    map.entry(folded(text).into()).or_insert(n as u32);
                }
                Table::Exact(map)
            }
            MatchKind::Beg => Table::Beg(keyed(&|text| folded(text))),
            MatchKind::End => Table::End(keyed(&|text| folded(text).into_iter().rev().collect())),
            MatchKind::Dir => Table::Parts(keyed(&|text| trimmed(text, DIR)), DIR),
            MatchKind::Dom => Table::Parts(keyed(&|text| trimmed(text, DOM)), DOM),
            MatchKind::Sub if patterns.is_empty() => Table::Sub(None),
            MatchKind::Sub => {
                let machine = AhoCorasick::builder().ascii_case_insensitive(ignore_case).build(patterns);
                let machine =
                    machine.map_err(|why| (0, format!("these patterns are too many or too long: {why}")))?;
                Table::Sub(Some(Box::new(machine)))
            }
            MatchKind::Reg => {
                let each: Vec<Regex> = each()
                    .map(|(n, text)| Regex::new(text, ignore_case).map_err(|why| (n, why)))
                    .collect::<Result<_, _>>()?;
                let all = match &each[..] {
                    [] => None,
                    [only] => Some(only.clone()),
                    // Each of them is fine, so only their sum can be too much: then they are tried one by one.
                    _ => Regex::any_of(patterns, ignore_case).ok(),
                };
                Table::Reg { all, each }
            }
        };
        Ok(Self { table, ignore_case })
    }

    fn numbers(patterns: &[&[u8]], of_length: bool) -> Result<Table, (usize, String)> {
        let ranges: Vec<Range> = patterns
            .iter()
            .enumerate()
            .map(|(n, text)| Range::parse(text).map_err(|why| (n, why)))
            .collect::<Result<_, _>>()?;
        Ok(Self::ranges(ranges, of_length))
    }

    fn ranges(all: Vec<Range>, of_length: bool) -> Table {
        let mut exact = HashMap::new();
        let mut ranges = Vec::new();
        for (n, range) in all.into_iter().enumerate() {
            if range.least == range.most {
                exact.entry(range.least).or_insert(n as u32);
            } else {
                ranges.push((range, n as u32));
            }
        }
        Table::Numbers { exact, ranges, of_length }
    }

    /// Whether patterns are tried one by one.
    pub(crate) fn is_list(&self) -> bool {
        match &self.table {
            Table::Reg { .. } => true,
            Table::Numbers { ranges, .. } => !ranges.is_empty(),
            _ => false,
        }
    }

    /// Whether any pattern matches a sample of the kind's type.
    pub(crate) fn is_match(&self, value: Value<'_>, scratch: &mut Scratch<'_>) -> bool {
        match (&self.table, value) {
            (Table::Sub(Some(machine)), value) => value.bytes().is_some_and(|text| machine.is_match(text)),
            (Table::Reg { all: Some(all), .. }, value) => {
                value.bytes().is_some_and(|text| all.is_match(text, scratch))
            }
            _ => self.find(value, scratch).is_some(),
        }
    }

    /// The number of the pattern that matches: of exact texts and networks the finest, of prefixes the longest (the first in the list
    /// when case does not matter), else the first in the list.
    pub(crate) fn find(&self, value: Value<'_>, scratch: &mut Scratch<'_>) -> Option<u32> {
        let fold = self.ignore_case;
        match &self.table {
            Table::Nothing => None,
            Table::Numbers { exact, ranges, of_length } => {
                let n = match value {
                    Value::Int(n) => n,
                    other if *of_length => other.bytes()?.len() as i64,
                    _ => return None,
                };
                let listed = ranges.iter().find(|(range, _)| (range.least..=range.most).contains(&n));
                first(exact.get(&n).copied(), listed.map(|(_, order)| *order))
            }
            Table::Ip(networks) => networks.find(value.addr()?),
            Table::Exact(map) => {
                let text = value.bytes()?;
                if !fold || !text.iter().any(u8::is_ascii_uppercase) {
                    return map.get(text).copied();
                }
                let mut scratch = scratch.reborrow();
                let folded = scratch
                    .build(|out| text.iter().try_for_each(|byte| out.push(byte.to_ascii_lowercase())))?;
                map.get(folded).copied()
            }
            Table::Beg(prefixes) => {
                let mut found = prefixes.all(Text { bytes: value.bytes()?, fold, backwards: false });
                if fold { found.map(|(_, order)| order).min() } else { found.next().map(|(_, order)| order) }
            }
            Table::End(prefixes) => prefixes
                .all(Text { bytes: value.bytes()?, fold, backwards: true })
                .map(|(_, order)| order)
                .min(),
            Table::Parts(prefixes, delimiters) => {
                let text = value.bytes()?;
                let mut best = None;
                let mut begins = true;
                for (at, byte) in text.iter().enumerate() {
                    if delimiters.contains(byte) {
                        begins = true;
                        continue;
                    }
                    if !std::mem::take(&mut begins) {
                        continue;
                    }
                    let rest = &text[at..];
                    let ends = |len: usize| rest.get(len).is_none_or(|next| delimiters.contains(next));
                    let found = prefixes
                        .all(Text { bytes: rest, fold, backwards: false })
                        .filter(|(len, _)| *len > 0 && ends(*len))
                        .map(|(_, order)| order)
                        .min();
                    best = first(best, found);
                }
                best
            }
            Table::Sub(machine) => {
                let text = value.bytes()?;
                let found = machine.as_ref()?.find_overlapping_iter(text);
                found.map(|found| found.pattern().as_u32()).min()
            }
            Table::Reg { each, .. } => {
                let text = value.bytes()?;
                each.iter().position(|regex| regex.is_match(text, scratch)).map(|at| at as u32)
            }
        }
    }

    /// The expression of that number.
    pub(crate) fn regex(&self, number: u32) -> Option<&Regex> {
        match &self.table {
            Table::Reg { each, .. } => each.get(number as usize),
            _ => None,
        }
    }
}

/// The smaller of those that there are.
fn first(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
