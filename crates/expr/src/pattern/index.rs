//! Indexes of patterns by kind, for look-ups and for changes that leave copies intact.

use super::entry::{Entries, Entry};
use super::hashed::Hashed;
use super::ip::{self, Networks};
use super::parts::Parts;
use super::prefix::{Prefixes, Text};
use super::tree::Tree;
use super::{MatchKind, Range, Regex};
use crate::fetch::unhex;
use crate::sample::Value;
use crate::scratch::Scratch;
use crate::show::Shown;
use aho_corasick::AhoCorasick;
use std::hash::BuildHasher;
use std::sync::Arc; // std: entries and machines are immutable, so models need not see it

/// An index of patterns of one kind. Copies are cheap and share their nodes.
#[derive(Clone, Debug)]
pub(super) struct Index {
    table: Table,
    ignore_case: bool,
}

#[derive(Clone, Debug)]
enum Table {
    Nothing,
    Text(Hashed<()>),
    Bytes(Hashed<Arc<[u8]>>),
    Beg(Prefixes),
    End(Prefixes),
    Parts(Prefixes, &'static [u8]),
    Sub(Parts<Substrings>),
    Numbers { exact: Hashed<i64>, ranges: Tree<u64, (Range, Arc<Entry>)>, kind: MatchKind },
    Ip(Networks),
    Reg { each: Tree<u64, Regex>, all: Parts<Together> },
}

/// An automaton for some entries, and their numbers. `None` if it would be too large; the entries are then
/// tried one by one.
type Substrings = Option<Arc<(AhoCorasick, Vec<u64>)>>;

/// Regular expressions of a run of entries.
#[derive(Clone, Debug)]
struct Together {
    /// One machine for all expressions that can share it.
    any: Option<Regex>,
    /// Numbers of the other expressions, which are tried one by one.
    apart: Arc<[u64]>,
}

/// Delimiters of `dir`.
const DIR: &[u8] = b"/?";
/// Delimiters of `dom`.
const DOM: &[u8] = b"/?.:";

impl Index {
    fn empty(kind: MatchKind, ignore_case: bool) -> Self {
        let table = match kind {
            MatchKind::Found | MatchKind::Bool => Table::Nothing,
            MatchKind::Int | MatchKind::Version | MatchKind::Len => {
                Table::Numbers { exact: Hashed::default(), ranges: Tree::default(), kind }
            }
            MatchKind::Ip => Table::Ip(Networks::default()),
            MatchKind::Bin => Table::Bytes(Hashed::default()),
            MatchKind::Str => Table::Text(Hashed::default()),
            MatchKind::Beg => Table::Beg(Prefixes::default()),
            MatchKind::End => Table::End(Prefixes::default()),
            MatchKind::Dir => Table::Parts(Prefixes::default(), DIR),
            MatchKind::Dom => Table::Parts(Prefixes::default(), DOM),
            MatchKind::Sub => Table::Sub(Parts::default()),
            MatchKind::Reg => Table::Reg { each: Tree::default(), all: Parts::default() },
        };
        Self { table, ignore_case }
    }

    /// Builds an index of entries in order. An error has the index of the entry and a sentence.
    pub(super) fn new(
        kind: MatchKind,
        ignore_case: bool,
        entries: &Entries,
    ) -> Result<Self, (usize, String)> {
        let mut index = Self::empty(kind, ignore_case);
        let keyed = |key: &dyn Fn(&[u8]) -> Vec<u8>| {
            Prefixes::of(entries.iter().map(|entry| (key(&entry.pattern), entry.clone())))
        };
        // Build tables without syntax errors as a whole, and the others entry by entry.
        match &mut index.table {
            Table::Nothing | Table::Sub(_) => {}
            Table::Text(table) => {
                let all = entries.iter().map(|entry| ((), entry)).collect();
                *table =
                    Hashed::of(all, |state, (), entry| state.hash_one(&*folded(&entry.pattern, ignore_case)));
            }
            Table::Beg(prefixes) => *prefixes = keyed(&|text| folded(text, ignore_case)),
            Table::End(prefixes) => *prefixes = keyed(&|text| reversed(text, ignore_case)),
            Table::Parts(prefixes, set) => *prefixes = keyed(&|text| trimmed(text, set, ignore_case)),
            Table::Bytes(_) | Table::Numbers { .. } | Table::Ip(_) | Table::Reg { .. } => {
                for (number, entry) in entries.iter().enumerate() {
                    index.insert(entry).map_err(|why| (number, why))?;
                }
            }
        }
        match &mut index.table {
            Table::Sub(parts) => *parts = Parts::all(entries, &substrings(ignore_case)),
            Table::Reg { each, all } => *all = Parts::all(entries, &any_of(ignore_case, each)),
            _ => {}
        }
        Ok(index)
    }

    /// Checks that an index of this kind accepts a pattern. An error is a sentence.
    pub(super) fn check(kind: MatchKind, ignore_case: bool, text: &[u8]) -> Result<(), String> {
        match kind {
            MatchKind::Bin => bytes(text).map(drop),
            MatchKind::Int | MatchKind::Version | MatchKind::Len => Range::parse(kind, text).map(drop),
            MatchKind::Ip => network(text).map(drop),
            MatchKind::Reg => Regex::new(text, ignore_case).map(drop),
            MatchKind::Found
            | MatchKind::Bool
            | MatchKind::Str
            | MatchKind::Beg
            | MatchKind::End
            | MatchKind::Dir
            | MatchKind::Dom
            | MatchKind::Sub => Ok(()),
        }
    }

    /// Adds the last entry of `entries`. An error is a sentence; the index is unusable then.
    pub(super) fn add(&mut self, entry: &Arc<Entry>, entries: &Entries) -> Result<(), String> {
        self.insert(entry)?;
        match &mut self.table {
            Table::Sub(parts) => parts.add(entry.id, entries, &substrings(self.ignore_case)),
            Table::Reg { each, all } => all.add(entry.id, entries, &any_of(self.ignore_case, each)),
            _ => {}
        }
        Ok(())
    }

    /// Replaces an entry by one with another value.
    pub(super) fn replace(&mut self, entry: &Arc<Entry>) -> Result<(), String> {
        match &mut self.table {
            // These store the numbers of entries, which stay.
            Table::Sub(_) | Table::Reg { .. } => Ok(()),
            _ => self.insert(entry),
        }
    }

    /// Inserts an entry into the tables, but not into machines.
    fn insert(&mut self, entry: &Arc<Entry>) -> Result<(), String> {
        let fold = self.ignore_case;
        let text = &*entry.pattern;
        match &mut self.table {
            Table::Nothing | Table::Sub(_) => {}
            Table::Text(table) => table.insert(table.hash(&*folded(text, fold)), (), entry),
            Table::Bytes(table) => {
                let bytes = bytes(text)?;
                table.insert(table.hash(&*bytes), bytes, entry);
            }
            Table::Beg(prefixes) => prefixes.insert(folded(text, fold), entry),
            Table::End(prefixes) => prefixes.insert(reversed(text, fold), entry),
            Table::Parts(prefixes, delimiters) => prefixes.insert(trimmed(text, delimiters, fold), entry),
            Table::Numbers { exact, ranges, kind } => {
                let range = Range::parse(*kind, text)?;
                if range.least == range.most {
                    exact.insert(exact.hash(&range.least), range.least, entry);
                } else {
                    ranges.insert(entry.id, (range, entry.clone()));
                }
            }
            Table::Ip(networks) => networks.insert(network(text)?, entry),
            Table::Reg { each, .. } => each.insert(entry.id, Regex::new(text, fold)?),
        }
        Ok(())
    }

    /// Removes an entry that is no longer in `entries`.
    pub(super) fn remove(&mut self, entry: &Entry, entries: &Entries) {
        let fold = self.ignore_case;
        let (id, text) = (entry.id, &*entry.pattern);
        match &mut self.table {
            Table::Nothing => {}
            Table::Text(table) => table.remove(table.hash(&*folded(text, fold)), id),
            Table::Bytes(table) => {
                if let Ok(bytes) = bytes(text) {
                    table.remove(table.hash(&*bytes), id);
                }
            }
            Table::Beg(prefixes) => prefixes.remove(folded(text, fold), id),
            Table::End(prefixes) => prefixes.remove(reversed(text, fold), id),
            Table::Parts(prefixes, delimiters) => prefixes.remove(trimmed(text, delimiters, fold), id),
            Table::Sub(parts) => parts.remove(id, entries, &substrings(fold)),
            Table::Numbers { exact, ranges, kind } => {
                if let Ok(range) = Range::parse(*kind, text) {
                    exact.remove(exact.hash(&range.least), id);
                }
                ranges.remove(&id);
            }
            Table::Ip(networks) => {
                if let Ok(network) = network(text) {
                    networks.remove(network, id);
                }
            }
            Table::Reg { each, all } => {
                each.remove(&id);
                all.remove(id, entries, &any_of(fold, each));
            }
        }
    }

    /// True if patterns are tried one by one.
    pub(super) fn is_list(&self) -> bool {
        match &self.table {
            Table::Reg { .. } => true,
            Table::Numbers { ranges, .. } => ranges.len() > 0,
            _ => false,
        }
    }

    /// True if any pattern matches a sample of the kind's type.
    pub(super) fn is_match(&self, value: Value<'_>, entries: &Entries, scratch: &mut Scratch<'_>) -> bool {
        match (&self.table, value) {
            (Table::Sub(parts), value) => value.bytes().is_some_and(|text| {
                parts.iter().any(|part| match &part.machine {
                    Some(found) if part.is_whole() => found.0.is_match(text),
                    _ => self.substring(part, text, entries).is_some(),
                })
            }),
            (Table::Reg { all, each }, value) => value.bytes().is_some_and(|text| {
                all.iter().any(|part| {
                    // The machine may also find removed entries, so only a negative result is final.
                    let any = part.machine.any.as_ref().is_some_and(|any| any.is_match(text, scratch));
                    match any {
                        true if part.is_whole() => true,
                        true => expression(each, part, text, scratch).is_some(),
                        false => apart(each, part, text, scratch).is_some(),
                    }
                })
            }),
            _ => self.find(value, entries, scratch).is_some(),
        }
    }

    /// The entry that matches. For exact texts and networks it is the most specific, for prefixes the longest
    /// (the first in the list if case is ignored), otherwise the first in the list. `entries` must be those
    /// of the index.
    pub(super) fn find<'i>(
        &'i self,
        value: Value<'i>,
        entries: &'i Entries,
        scratch: &mut Scratch<'_>,
    ) -> Option<&'i Arc<Entry>> {
        let fold = self.ignore_case;
        match &self.table {
            Table::Nothing => None,
            Table::Numbers { exact, ranges, kind } => {
                let n = match value {
                    Value::Int(n) => n,
                    other if *kind == MatchKind::Len => other.bytes()?.len() as i64,
                    _ => return None,
                };
                let listed = ranges.iter().find(|(_, (range, _))| (range.least..=range.most).contains(&n));
                first(exact.find(exact.hash(&n), |leaf| leaf.key == n), listed.map(|(_, (_, entry))| entry))
            }
            Table::Ip(networks) => networks.find(value.addr()?),
            Table::Bytes(table) => {
                let bytes = value.bytes()?;
                table.find(table.hash(bytes), |leaf| *leaf.key == *bytes)
            }
            Table::Text(table) => {
                let text = value.bytes()?;
                if !fold || !text.iter().any(u8::is_ascii_uppercase) {
                    let same = |entry: &Entry| {
                        *entry.pattern == *text || fold && entry.pattern.eq_ignore_ascii_case(text)
                    };
                    return table.find(table.hash(text), |leaf| same(&leaf.entry));
                }
                let mut scratch = scratch.reborrow();
                let folded = scratch
                    .build(|out| text.iter().try_for_each(|byte| out.push(byte.to_ascii_lowercase())))?;
                table.find(table.hash(folded), |leaf| leaf.entry.pattern.eq_ignore_ascii_case(text))
            }
            Table::Beg(prefixes) => {
                let mut found = prefixes.all(Text { bytes: value.bytes()?, fold, backwards: false });
                match fold {
                    true => found.map(|(_, entry)| entry).min_by_key(|entry| entry.id),
                    false => found.next().map(|(_, entry)| entry),
                }
            }
            Table::End(prefixes) => prefixes
                .all(Text { bytes: value.bytes()?, fold, backwards: true })
                .map(|(_, entry)| entry)
                .min_by_key(|entry| entry.id),
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
                        .map(|(_, entry)| entry)
                        .min_by_key(|entry| entry.id);
                    best = first(best, found);
                }
                best
            }
            Table::Sub(parts) => {
                let text = value.bytes()?;
                parts.iter().find_map(|part| self.substring(part, text, entries))
            }
            Table::Reg { each, all } => {
                let text = value.bytes()?;
                let id = all.iter().find_map(|part| match &part.machine.any {
                    Some(any) if part.first == part.last || any.is_match(text, scratch) => {
                        expression(each, part, text, scratch)
                    }
                    _ => apart(each, part, text, scratch),
                });
                entries.get(id?)
            }
        }
    }

    /// The first entry of a part that still exists and occurs in a text.
    fn substring<'e>(
        &self,
        part: &super::parts::Part<Substrings>,
        text: &[u8],
        entries: &'e Entries,
    ) -> Option<&'e Arc<Entry>> {
        match part.machine.as_deref() {
            Some((machine, ids)) => {
                let found = machine.find_overlapping_iter(text).map(|found| ids[found.pattern().as_usize()]);
                found.filter_map(|id| entries.get(id)).min_by_key(|entry| entry.id)
            }
            None => {
                let is_in = |pattern: &[u8]| {
                    pattern.is_empty()
                        || text.windows(pattern.len()).any(|part| match self.ignore_case {
                            true => part.eq_ignore_ascii_case(pattern),
                            false => part == pattern,
                        })
                };
                let all = entries.iter_from(&part.first).take_while(|(id, _)| **id <= part.last);
                all.map(|(_, entry)| entry).find(|entry| is_in(&entry.pattern))
            }
        }
    }

    /// The regular expression of an entry.
    pub(super) fn regex(&self, entry: &Entry) -> Option<&Regex> {
        match &self.table {
            Table::Reg { each, .. } => each.get(&entry.id),
            _ => None,
        }
    }
}

/// Number of the first matching expression of a part.
fn expression(
    each: &Tree<u64, Regex>,
    part: &super::parts::Part<Together>,
    text: &[u8],
    scratch: &mut Scratch<'_>,
) -> Option<u64> {
    let mut all = each.iter_from(&part.first).take_while(|(id, _)| **id <= part.last);
    all.find(|(_, regex)| regex.is_match(text, scratch)).map(|(id, _)| *id)
}

/// Number of the first matching expression of a part, among those outside of its machine.
fn apart(
    each: &Tree<u64, Regex>,
    part: &super::parts::Part<Together>,
    text: &[u8],
    scratch: &mut Scratch<'_>,
) -> Option<u64> {
    let matches = |id: &u64| each.get(id).is_some_and(|regex| regex.is_match(text, scratch));
    part.machine.apart.iter().copied().find(matches)
}

/// Builds the automaton for the patterns of entries.
fn substrings(ignore_case: bool) -> impl Fn(&[(u64, &[u8])]) -> Substrings {
    move |all| {
        let patterns = all.iter().map(|(_, pattern)| pattern);
        let machine = AhoCorasick::builder().ascii_case_insensitive(ignore_case).build(patterns).ok()?;
        Some(Arc::new((machine, all.iter().map(|(id, _)| *id).collect())))
    }
}

/// Builds a machine for valid expressions. Those that it cannot contain stay apart. If the others are too
/// large together, all are tried one by one.
fn any_of(ignore_case: bool, each: &Tree<u64, Regex>) -> impl Fn(&[(u64, &[u8])]) -> Together {
    move |all| {
        if let [(only, _)] = all {
            return Together { any: each.get(only).cloned(), apart: Arc::new([]) };
        }
        let alone = |id: &u64| each.get(id).is_some_and(Regex::stands_alone);
        let (apart, linear): (Vec<_>, Vec<_>) = all.iter().partition(|(id, _)| alone(id));
        let patterns: Vec<&[u8]> = linear.iter().map(|(_, pattern)| *pattern).collect();
        let any = (!patterns.is_empty()).then(|| Regex::any_of(&patterns, ignore_case).ok()).flatten();
        let apart = if any.is_some() { apart } else { all.to_vec() };
        Together { any, apart: apart.iter().map(|(id, _)| *id).collect() }
    }
}

fn folded(text: &[u8], fold: bool) -> Vec<u8> {
    if fold { text.to_ascii_lowercase() } else { text.to_vec() }
}

fn reversed(text: &[u8], fold: bool) -> Vec<u8> {
    folded(text, fold).into_iter().rev().collect()
}

fn trimmed(text: &[u8], set: &[u8], fold: bool) -> Vec<u8> {
    let start = text.iter().position(|byte| !set.contains(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !set.contains(byte)).map_or(start, |last| last + 1);
    folded(&text[start..end], fold)
}

fn bytes(text: &[u8]) -> Result<Arc<[u8]>, String> {
    let bytes = unhex(text);
    bytes
        .map(Into::into)
        .ok_or_else(|| format!("expected an even number of hexadecimal digits, found '{}'", Shown(text)))
}

fn network(text: &[u8]) -> Result<ip::Network, String> {
    ip::parse(text).ok_or_else(|| {
        format!("expected an address or a network, found '{}'; names are not resolved", Shown(text))
    })
}

/// The first in the list of two entries.
fn first<'e>(a: Option<&'e Arc<Entry>>, b: Option<&'e Arc<Entry>>) -> Option<&'e Arc<Entry>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.id <= b.id { a } else { b }),
        (a, b) => a.or(b),
    }
}
