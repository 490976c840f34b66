//! Maps and files of patterns: read once, shared by all that name them, changed while lanes read.
//!
//! Rules:
//! 1. A file is one [`Reference`], whoever names it and however often; a map and a list of patterns of the same name are two.
//! 2. Who uses it asks for a view: a kind of matching and whether case matters. Views that are the same share an index.
//! 3. What lanes see is a [`Snapshot`]: entries and the indexes of all views, immutable, published as a whole. A lane reads it with one
//!    plain load and holds it until its next quiescent moment.
//! 4. A change takes the reference's lock, makes a new snapshot and publishes it; it costs as much as the list is long. A change that any
//!    view refuses changes nothing.

use super::{Index, MatchKind};
use crate::names::Names;
use crate::show::Shown;
use manylane_sync::{Arc, LockClass, Mutex, Published, Reader};
use std::collections::HashMap;

/// Bytes of one file at most.
pub const MAX_REFERENCE_BYTES: usize = 256 << 20;
/// Entries of one reference at most: numbers of entries have 32 bits.
pub const MAX_ENTRIES: usize = 16 << 20;

/// Changes of references; nothing but publishing is done below it.
static CHANGES: LockClass = LockClass::new("references", 45);

/// A pattern, and what a map has for it.
#[derive(Debug)]
struct Entry {
    /// Of the file; 0 for what was added later.
    line: usize,
    pattern: Box<[u8]>,
    value: Box<[u8]>,
}

/// Which index of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View(usize);

/// A file's entries and indexes at one moment.
#[derive(Debug)]
pub struct Snapshot {
    entries: Arc<Vec<Arc<Entry>>>,
    indexes: Vec<Arc<Index>>,
}

impl Snapshot {
    pub(crate) fn view(&self, view: View) -> &Index {
        &self.indexes[view.0]
    }

    /// What the map has for an entry.
    pub(crate) fn value(&self, number: u32) -> &[u8] {
        self.entries.get(number as usize).map_or(&[], |entry| &entry.value)
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[derive(Debug)]
struct State {
    entries: Arc<Vec<Arc<Entry>>>,
    views: Vec<(MatchKind, bool, Arc<Index>)>,
}

impl State {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            entries: self.entries.clone(),
            indexes: self.views.iter().map(|(_, _, index)| index.clone()).collect(),
        }
    }
}

/// A file of patterns or a map.
#[derive(Debug)]
pub struct Reference {
    name: Box<[u8]>,
    is_map: bool,
    state: Mutex<State>,
    published: Published<Snapshot>,
}

impl Reference {
    /// Of a file's bytes.
    pub fn new(name: &[u8], is_map: bool, bytes: &[u8]) -> Result<Self, String> {
        let mut entries = Vec::new();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.first() == Some(&b'#') {
                continue;
            }
            let start = line.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
            let line = &line[start..];
            if line.is_empty() {
                continue;
            }
            let (pattern, value) = if is_map {
                let end = memchr::memchr2(b' ', b'\t', line).unwrap_or(line.len());
                (&line[..end], line[end..].trim_ascii())
            } else {
                (line, &b""[..])
            };
            entries.push(Arc::new(Entry { line: number + 1, pattern: pattern.into(), value: value.into() }));
            if entries.len() > MAX_ENTRIES {
                return Err(format!("'{}' has more than {MAX_ENTRIES} entries", Shown(name)));
            }
        }
        let state = State { entries: Arc::new(entries), views: Vec::new() };
        let published = Published::new(state.snapshot());
        Ok(Self { name: name.into(), is_map, state: Mutex::new(&CHANGES, state), published })
    }

    /// As it was written in the configuration.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether entries have values.
    pub fn is_map(&self) -> bool {
        self.is_map
    }

    /// What it is now. It stays valid until the reader's next quiescent moment, which the borrow forbids before it is given up.
    pub fn load<'a>(&'a self, reader: &'a Reader) -> &'a Snapshot {
        self.published.load(reader)
    }

    /// The view for that kind of matching, made when it is new. The error is a sentence that names the line.
    pub(crate) fn view(&self, kind: MatchKind, ignore_case: bool) -> Result<View, String> {
        let mut state = self.state.lock();
        let known = state.views.iter().position(|(known, fold, _)| (*known, *fold) == (kind, ignore_case));
        if let Some(at) = known {
            return Ok(View(at));
        }
        let index = self.index(kind, ignore_case, &state.entries)?;
        state.views.push((kind, ignore_case, Arc::new(index)));
        self.published.replace(state.snapshot());
        Ok(View(state.views.len() - 1))
    }

    fn index(&self, kind: MatchKind, ignore_case: bool, entries: &[Arc<Entry>]) -> Result<Index, String> {
        let patterns: Vec<&[u8]> = entries.iter().map(|entry| &entry.pattern[..]).collect();
        Index::new(kind, ignore_case, &patterns).map_err(|(number, why)| match entries[number].line {
            0 => why,
            line => format!("line {line} of '{}': {why}", Shown(&self.name)),
        })
    }

    /// The first entry for which `wanted` holds: line, pattern and value.
    pub(crate) fn find_entry(
        &self,
        wanted: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Option<(usize, Vec<u8>, Vec<u8>)> {
        let state = self.state.lock();
        let entry = state.entries.iter().find(|entry| wanted(&entry.pattern, &entry.value))?;
        Some((entry.line, entry.pattern.to_vec(), entry.value.to_vec()))
    }

    /// Whether there is an entry of this pattern, as it is written. It costs as much as the list is long.
    pub fn contains(&self, pattern: &[u8]) -> bool {
        self.find_entry(|known, _| known == pattern).is_some()
    }

    /// Adds an entry at the end: `add-acl`, `add-map`. The error is a sentence; then nothing has changed.
    pub fn add(&self, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        self.change(|entries| {
            if entries.len() >= MAX_ENTRIES {
                return Err(format!("'{}' has {MAX_ENTRIES} entries, no more fit", Shown(&self.name)));
            }
            entries.push(Arc::new(Entry { line: 0, pattern: pattern.into(), value: value.into() }));
            Ok(1)
        })
        .map(|_| ())
    }

    /// Removes all entries of a pattern: `del-acl`, `del-map`. Tells how many there were.
    pub fn remove(&self, pattern: &[u8]) -> usize {
        let removed = self.change(|entries| {
            let before = entries.len();
            entries.retain(|entry| *entry.pattern != *pattern);
            Ok(before - entries.len())
        });
        // What was there was accepted by all views, and so is a part of it.
        removed.unwrap_or(0)
    }

    /// Gives all entries of a pattern a new value, or adds one: `set-map`. The error is a sentence; then nothing has changed.
    pub fn set(&self, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        let changed = self.change(|entries| {
            let mut changed = 0;
            for entry in entries.iter_mut().filter(|entry| *entry.pattern == *pattern) {
                *entry = Arc::new(Entry { line: entry.line, pattern: pattern.into(), value: value.into() });
                changed += 1;
            }
            Ok(changed)
        })?;
        if changed == 0 { self.add(pattern, value) } else { Ok(()) }
    }

    /// Applies a change to a copy of the entries, makes all indexes anew, publishes.
    fn change(
        &self,
        edit: impl FnOnce(&mut Vec<Arc<Entry>>) -> Result<usize, String>,
    ) -> Result<usize, String> {
        let mut state = self.state.lock();
        let mut entries: Vec<Arc<Entry>> = state.entries.to_vec();
        let changed = edit(&mut entries)?;
        if changed == 0 {
            return Ok(0);
        }
        let mut views = Vec::with_capacity(state.views.len());
        for (kind, ignore_case, _) in &state.views {
            views.push((*kind, *ignore_case, Arc::new(self.index(*kind, *ignore_case, &entries)?)));
        }
        *state = State { entries: Arc::new(entries), views };
        self.published.replace(state.snapshot());
        Ok(changed)
    }
}

/// All references of a generation, by name.
#[derive(Debug, Default)]
pub struct References {
    all: HashMap<(Box<[u8]>, bool), Arc<Reference>>,
}

impl References {
    /// The reference of a file, read at the first use. The error is a sentence.
    pub fn open(&mut self, name: &[u8], is_map: bool, names: &dyn Names) -> Result<Arc<Reference>, String> {
        if let Some(known) = self.all.get(&(name.into(), is_map)) {
            return Ok(known.clone());
        }
        let bytes = names.file(name).map_err(|why| format!("cannot read '{}': {why}", Shown(name)))?;
        if bytes.len() > MAX_REFERENCE_BYTES {
            return Err(format!("'{}' has more than {MAX_REFERENCE_BYTES} bytes", Shown(name)));
        }
        let reference = Arc::new(Reference::new(name, is_map, &bytes)?);
        self.all.insert((name.into(), is_map), reference.clone());
        Ok(reference)
    }

    /// The reference of that name, for what changes it at run time.
    pub fn get(&self, name: &[u8], is_map: bool) -> Option<Arc<Reference>> {
        self.all.get(&(name.into(), is_map)).cloned()
    }

    /// All of them, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Reference>> {
        self.all.values()
    }
}
