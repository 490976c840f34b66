//! Lists of patterns and maps: read once, shared by all that name them, changed while lanes read.
//!
//! Rules:
//! 1. A file is one [`Reference`], whoever names it and however often; a map and a list of patterns of the same name are two. Patterns that
//!    stand in the configuration's lines are a reference without a name.
//! 2. Who uses it asks for a view: a kind of matching and whether case matters. Views that are the same share an index.
//! 3. What lanes see is a [`Snapshot`]: entries and the indexes of all views, immutable, published as a whole. A lane reads it with one
//!    plain load and holds it until its next quiescent moment.
//! 4. A change takes the reference's lock, makes a new snapshot and publishes it; it costs as much as the list is long. A change that any
//!    view refuses changes nothing.
//! 5. A version that was prepared gathers entries that nobody matches, until it is committed and takes the place of the whole list. With it the
//!    versions before it are gone.

use super::value::MapValue;
use super::{Index, MatchKind};
use crate::cast::cast;
use crate::sample::Value;
use crate::scratch::Scratch;
use crate::show::Shown;
use manylane_sync::{Arc, LockClass, Mutex, Published, Reader};
use std::collections::BTreeMap;
use std::fmt;

/// Bytes of one file, and of a reference's entries, at most.
pub const MAX_REFERENCE_BYTES: usize = 256 << 20;
/// Entries of one reference at most, those of versions that are prepared included: numbers of entries have 32 bits.
pub const MAX_ENTRIES: usize = 16 << 20;

/// Changes of references; nothing but publishing is done below it.
static CHANGES: LockClass = LockClass::new("references", 45);

/// A pattern, and what a map has for it.
#[derive(Debug)]
pub struct Entry {
    /// Tells it from all others of the reference, also from those that are gone.
    id: u64,
    /// Of the file; 0 for what was added later.
    line: usize,
    pattern: Box<[u8]>,
    value: Box<[u8]>,
}

impl Entry {
    /// Tells it from all others of the reference, also from those that are gone.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// As it was written.
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// What a map has for it; empty in a list of patterns.
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

/// A pattern and its value, before they are entries.
pub type Pair = (Box<[u8]>, Box<[u8]>);

/// Which entries a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which<'a> {
    /// All of this pattern, as it is written.
    Pattern(&'a [u8]),
    /// The one of this number: [`Entry::id`].
    Id(u64),
}

impl Which<'_> {
    fn is(self, entry: &Entry) -> bool {
        match self {
            Self::Pattern(pattern) => *entry.pattern == *pattern,
            Self::Id(id) => entry.id == id,
        }
    }
}

/// Why a version is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVersion {
    /// It was not prepared yet.
    Future,
    /// It, or a newer one, was committed.
    Past,
}

/// Why nothing was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdded {
    /// There is no such version.
    Version(NoVersion),
    /// A sentence.
    Refused(String),
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
    /// What values have to be, since somebody reads them so.
    values: Vec<MapValue>,
    /// What its users say of themselves.
    users: Vec<String>,
    /// The number of the newest entry.
    newest: u64,
    /// The version that is matched, and the newest that was prepared.
    version: u64,
    prepared: u64,
    /// Entries of versions that are prepared, and have any.
    pending: BTreeMap<u64, Vec<Arc<Entry>>>,
}

impl State {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            entries: self.entries.clone(),
            indexes: self.views.iter().map(|(_, _, index)| index.clone()).collect(),
        }
    }

    /// Entries of all versions.
    fn count(&self) -> usize {
        self.entries.len() + self.pending.values().map(Vec::len).sum::<usize>()
    }

    /// Bytes of all versions.
    fn bytes(&self) -> usize {
        let of = |entry: &Arc<Entry>| entry.pattern.len() + entry.value.len();
        self.entries.iter().chain(self.pending.values().flatten()).map(of).sum()
    }

    /// Whether something can be added to that version; none stands for the one that is matched.
    fn open(&self, version: Option<u64>) -> Result<Option<u64>, NoVersion> {
        match version {
            Some(version) if version > self.prepared => Err(NoVersion::Future),
            Some(version) if version < self.version => Err(NoVersion::Past),
            version => Ok(version.filter(|version| *version != self.version)),
        }
    }

    fn entries_of(&mut self, pairs: Vec<Pair>) -> Vec<Arc<Entry>> {
        let first = self.newest + 1;
        self.newest += pairs.len() as u64;
        let entry = |(id, (pattern, value))| Arc::new(Entry { id, line: 0, pattern, value });
        (first..).zip(pairs).map(entry).collect()
    }
}

/// What `show acl` and `show map` tell of a reference as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Who uses it.
    pub users: Vec<String>,
    /// The version that is matched.
    pub version: u64,
    /// The newest that was prepared.
    pub prepared: u64,
    /// Entries of all versions.
    pub entries: usize,
}

/// What one view says of a sample.
#[derive(Clone, Debug)]
pub struct Looked {
    /// How it compares.
    pub kind: MatchKind,
    /// Whether case does not matter.
    pub ignore_case: bool,
    /// Whether patterns are tried one by one.
    pub is_list: bool,
    /// The entry that matches.
    pub found: Option<Arc<Entry>>,
}

/// A list of patterns or a map.
pub struct Reference {
    /// None for patterns of a line.
    name: Option<Box<[u8]>>,
    is_map: bool,
    state: Mutex<State>,
    published: Published<Snapshot>,
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or_default();
        write!(f, "Reference('{}')", Shown(name))
    }
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
            let (pattern, value) = if is_map { split(line) } else { (line, &b""[..]) };
            let id = entries.len() as u64 + 1;
            entries.push(Arc::new(Entry {
                id,
                line: number + 1,
                pattern: pattern.into(),
                value: value.into(),
            }));
            if entries.len() > MAX_ENTRIES {
                return Err(format!("'{}' has more than {MAX_ENTRIES} entries", Shown(name)));
            }
        }
        Ok(Self::of(Some(name.into()), is_map, entries))
    }

    /// Of patterns that stand in a line.
    pub(crate) fn inline(patterns: &[&[u8]]) -> Self {
        let entry = |(id, pattern): (u64, &&[u8])| {
            Arc::new(Entry { id, line: 0, pattern: (*pattern).into(), value: Box::default() })
        };
        Self::of(None, false, (1..).zip(patterns).map(entry).collect())
    }

    fn of(name: Option<Box<[u8]>>, is_map: bool, entries: Vec<Arc<Entry>>) -> Self {
        let state = State {
            newest: entries.len() as u64,
            entries: Arc::new(entries),
            views: Vec::new(),
            values: Vec::new(),
            users: Vec::new(),
            version: 0,
            prepared: 0,
            pending: BTreeMap::new(),
        };
        let published = Published::new(state.snapshot());
        Self { name, is_map, state: Mutex::new(&CHANGES, state), published }
    }

    /// As it was written in the configuration; nothing for patterns that stand in a line.
    pub fn name(&self) -> Option<&[u8]> {
        self.name.as_deref()
    }

    /// Whether entries have values.
    pub fn is_map(&self) -> bool {
        self.is_map
    }

    /// What it is as a whole.
    pub fn summary(&self) -> Summary {
        let state = self.state.lock();
        Summary {
            users: state.users.clone(),
            version: state.version,
            prepared: state.prepared,
            entries: state.count(),
        }
    }

    /// Remembers who uses it.
    pub(crate) fn used_by(&self, user: String) {
        let mut state = self.state.lock();
        if state.users.last() != Some(&user) {
            state.users.push(user);
        }
    }

    /// What it is now. It stays valid until the reader's next quiescent moment, which the borrow forbids before it is given up.
    pub fn load<'a>(&'a self, reader: &'a Reader) -> &'a Snapshot {
        self.published.load(reader)
    }

    /// The view for that kind of matching, made when it is new. The error has the number of the entry and a sentence that names its line.
    pub(crate) fn view(&self, kind: MatchKind, ignore_case: bool) -> Result<View, (usize, String)> {
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

    fn index(
        &self,
        kind: MatchKind,
        ignore_case: bool,
        entries: &[Arc<Entry>],
    ) -> Result<Index, (usize, String)> {
        let patterns: Vec<&[u8]> = entries.iter().map(|entry| &entry.pattern[..]).collect();
        Index::new(kind, ignore_case, &patterns).map_err(|(number, why)| {
            match (entries[number].line, &self.name) {
                (line @ 1.., Some(name)) => (number, format!("line {line} of '{}': {why}", Shown(name))),
                _ => (number, why),
            }
        })
    }

    /// Has all values be of that kind. The error is a sentence that names the line of one that is not.
    pub(crate) fn require(&self, wanted: MapValue) -> Result<(), String> {
        let mut state = self.state.lock();
        if state.values.contains(&wanted) {
            return Ok(());
        }
        if let Some(entry) = state.entries.iter().find(|entry| wanted.read(&entry.value).is_none()) {
            let name = self.name.as_deref().unwrap_or_default();
            return Err(format!(
                "line {} of '{}' has the value '{}', which is not {}",
                entry.line,
                Shown(name),
                Shown(&entry.value),
                wanted.name()
            ));
        }
        state.values.push(wanted);
        Ok(())
    }

    /// The entries of a version; of the one that is matched for none.
    pub fn entries(&self, version: Option<u64>) -> Arc<Vec<Arc<Entry>>> {
        let state = self.state.lock();
        match version {
            Some(version) if version != state.version => {
                Arc::new(state.pending.get(&version).cloned().unwrap_or_default())
            }
            _ => state.entries.clone(),
        }
    }

    /// Whether there is an entry of this pattern, as it is written. It costs as much as the list is long.
    pub fn contains(&self, pattern: &[u8]) -> bool {
        self.entries(None).iter().any(|entry| *entry.pattern == *pattern)
    }

    /// What each view says of a sample, given as a text.
    pub fn look(&self, sample: &[u8], scratch: &mut Scratch<'_>) -> Vec<Looked> {
        let (entries, views) = {
            let state = self.state.lock();
            (state.entries.clone(), state.views.clone())
        };
        let look = |(kind, ignore_case, index): (MatchKind, bool, Arc<Index>)| {
            let mut scratch = scratch.reborrow();
            let value = cast(Value::Str(sample), kind.takes(), &mut scratch);
            let found = value.and_then(|value| index.find(value, &mut scratch));
            let found = found.and_then(|number| entries.get(number as usize).cloned());
            Looked { kind, ignore_case, is_list: index.is_list(), found }
        };
        views.into_iter().map(look).collect()
    }

    /// Adds an entry at the end: `add-acl`, `add-map`. The error is a sentence; then nothing has changed.
    pub fn add(&self, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        self.add_all(None, vec![(pattern.into(), value.into())]).map_err(|not| match not {
            NotAdded::Refused(why) => why,
            NotAdded::Version(_) => "there is no such version".to_owned(), // there always is the one that is matched
        })
    }

    /// Adds entries at the end of a version, all or, when one is refused, none; to the version that is matched for none.
    ///
    /// # Errors
    /// [`NotAdded`]
    pub fn add_all(&self, version: Option<u64>, pairs: Vec<Pair>) -> Result<(), NotAdded> {
        let mut state = self.state.lock();
        let version = state.open(version).map_err(NotAdded::Version)?;
        if state.count() + pairs.len() > MAX_ENTRIES {
            let sentence = format!("it would have more than {MAX_ENTRIES} entries, which is the most");
            return Err(NotAdded::Refused(sentence));
        }
        let new: usize = pairs.iter().map(|(pattern, value)| pattern.len() + value.len()).sum();
        if state.bytes() + new > MAX_REFERENCE_BYTES {
            let sentence = format!("it would have more than {MAX_REFERENCE_BYTES} bytes, which is the most");
            return Err(NotAdded::Refused(sentence));
        }
        self.check(&state, &pairs).map_err(NotAdded::Refused)?;
        let added = state.entries_of(pairs);
        match version {
            Some(version) => state.pending.entry(version).or_default().extend(added),
            None => {
                let mut entries = state.entries.to_vec();
                entries.extend(added);
                self.publish(&mut state, entries).map_err(NotAdded::Refused)?;
            }
        }
        Ok(())
    }

    /// Whether every view would take these patterns, and every user the values.
    fn check(&self, state: &State, pairs: &[Pair]) -> Result<(), String> {
        for wanted in &state.values {
            if let Some((_, value)) = pairs.iter().find(|(_, value)| wanted.read(value).is_none()) {
                return Err(format!("'{}' is not {}", Shown(value), wanted.name()));
            }
        }
        let patterns: Vec<&[u8]> = pairs.iter().map(|(pattern, _)| &pattern[..]).collect();
        for (kind, ignore_case, _) in &state.views {
            Index::new(*kind, *ignore_case, &patterns).map_err(|(_, why)| why)?;
        }
        Ok(())
    }

    /// Removes entries of the version that is matched: `del-acl`, `del-map`. Tells how many there were.
    pub fn remove(&self, which: Which<'_>) -> usize {
        let mut state = self.state.lock();
        let mut entries: Vec<Arc<Entry>> = state.entries.to_vec();
        entries.retain(|entry| !which.is(entry));
        let removed = state.entries.len() - entries.len();
        // What was there was accepted by all views, and so is a part of it.
        if removed > 0 && self.publish(&mut state, entries).is_err() {
            return 0;
        }
        removed
    }

    /// Gives entries of the version that is matched a new value. Tells how many there were. The error is a sentence; then nothing has changed.
    pub fn replace(&self, which: Which<'_>, value: &[u8]) -> Result<usize, String> {
        let mut state = self.state.lock();
        if let Some(wanted) = state.values.iter().find(|wanted| wanted.read(value).is_none()) {
            return Err(format!("'{}' is not {}", Shown(value), wanted.name()));
        }
        let mut entries: Vec<Arc<Entry>> = state.entries.to_vec();
        let mut changed = 0;
        for entry in entries.iter_mut().filter(|entry| which.is(entry)) {
            let (id, line, pattern) = (entry.id, entry.line, entry.pattern.clone());
            *entry = Arc::new(Entry { id, line, pattern, value: value.into() });
            changed += 1;
        }
        if changed > 0 {
            self.publish(&mut state, entries)?;
        }
        Ok(changed)
    }

    /// Gives all entries of a pattern a new value, or adds one: `set-map`. The error is a sentence; then nothing has changed.
    pub fn set(&self, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        match self.replace(Which::Pattern(pattern), value)? {
            0 => self.add(pattern, value),
            _ => Ok(()),
        }
    }

    /// Begins a new version, empty. Tells its number.
    pub fn prepare(&self) -> u64 {
        let mut state = self.state.lock();
        state.prepared += 1;
        state.prepared
    }

    /// Has a version take the place of the one that is matched; those between are gone.
    ///
    /// # Errors
    /// [`NotAdded`]: it was not prepared, another one was committed after that, or its entries are too much together for one of the users. Nothing has
    /// changed then.
    pub fn commit(&self, version: u64) -> Result<(), NotAdded> {
        let mut state = self.state.lock();
        match version {
            version if version > state.prepared => return Err(NotAdded::Version(NoVersion::Future)),
            version if version <= state.version => return Err(NotAdded::Version(NoVersion::Past)),
            _ => {}
        }
        let entries = state.pending.get(&version).cloned().unwrap_or_default();
        self.publish(&mut state, entries).map_err(NotAdded::Refused)?;
        state.pending = state.pending.split_off(&(version + 1));
        state.version = version;
        Ok(())
    }

    /// Removes all entries of a version; of the one that is matched for none.
    pub fn clear(&self, version: Option<u64>) {
        let mut state = self.state.lock();
        match version {
            Some(version) if version != state.version => drop(state.pending.remove(&version)),
            // An empty list is nobody too much.
            _ => drop(self.publish(&mut state, Vec::new())),
        }
    }

    /// Makes all indexes anew and publishes. The error is a sentence; then nothing has changed.
    fn publish(&self, state: &mut State, entries: Vec<Arc<Entry>>) -> Result<(), String> {
        let mut views = Vec::with_capacity(state.views.len());
        for (kind, ignore_case, _) in &state.views {
            let index = self.index(*kind, *ignore_case, &entries).map_err(|(_, why)| why)?;
            views.push((*kind, *ignore_case, Arc::new(index)));
        }
        state.entries = Arc::new(entries);
        state.views = views;
        self.published.replace(state.snapshot());
        Ok(())
    }
}

/// A map's line: the pattern, and the value behind it.
pub fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr2(b' ', b'\t', line).unwrap_or(line.len());
    (&line[..end], line[end..].trim_ascii())
}
