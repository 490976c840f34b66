//! Lists of patterns and maps: read once, shared by all that name them, changed while lanes read.
//!
//! Rules:
//! 1. A file is one [`Reference`], whoever names it and however often; a map and a list of patterns of the same name are two. Patterns that
//!    stand in the configuration's lines are a reference without a name.
//! 2. Who uses it asks for a view: a kind of matching and whether case matters. Views that are the same share an index.
//! 3. What lanes see is a [`Snapshot`]: entries and the indexes of all views, immutable, published as a whole. A lane reads it with one
//!    plain load and holds it until its next quiescent moment.
//! 4. A change takes the reference's lock, makes a new snapshot and publishes it. The new one shares with the former what did not change, so that
//!    an entry that is added, removed or replaced costs about the logarithm of the list's length. A change that any view refuses changes nothing.
//! 5. A version that was prepared gathers entries that nobody matches, until it is committed and takes the place of the whole list. With it the
//!    versions before it are gone.

use super::entry::{ByPattern, Entries, Entry};
use super::index::Index;
use super::value::MapValue;
use super::{MatchKind, Regex};
use crate::cast::cast;
use crate::sample::Value;
use crate::scratch::Scratch;
use crate::show::Shown;
use manylane_sync::{LockClass, Mutex, Published, Reader};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc; // what it holds is written once, and only read from then on

/// Bytes of one file, and of a reference's entries, at most.
pub const MAX_REFERENCE_BYTES: usize = 256 << 20;
/// Entries of one reference at most, those of versions that are prepared included: numbers of entries have 32 bits.
pub const MAX_ENTRIES: usize = 16 << 20;

/// Changes of references; nothing but publishing is done below it.
static CHANGES: LockClass = LockClass::new("references", 45);

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
    entries: Entries,
    indexes: Vec<Arc<Index>>,
}

impl Snapshot {
    /// The entry that matches a sample of the kind's type.
    pub(crate) fn find<'s>(
        &'s self,
        view: View,
        value: Value<'s>,
        scratch: &mut Scratch<'_>,
    ) -> Option<&'s Entry> {
        self.indexes[view.0].find(value, &self.entries, scratch).map(|entry| &**entry)
    }

    /// Whether any entry does.
    pub(crate) fn is_match(&self, view: View, value: Value<'_>, scratch: &mut Scratch<'_>) -> bool {
        self.indexes[view.0].is_match(value, &self.entries, scratch)
    }

    /// The expression of an entry, in a view of expressions.
    pub(crate) fn regex(&self, view: View, entry: &Entry) -> Option<&Regex> {
        self.indexes[view.0].regex(entry)
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

/// How a list is looked at.
#[derive(Clone, Debug)]
struct Viewed {
    kind: MatchKind,
    ignore_case: bool,
    index: Arc<Index>,
}

#[derive(Debug)]
struct State {
    entries: Entries,
    views: Vec<Viewed>,
    /// Made when somebody looks for entries so the first time, and kept from then on.
    by_pattern: Option<ByPattern>,
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
    pending: BTreeMap<u64, Entries>,
}

impl State {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            entries: self.entries.clone(),
            indexes: self.views.iter().map(|view| view.index.clone()).collect(),
        }
    }

    /// Entries of all versions.
    fn count(&self) -> usize {
        self.entries.len() + self.pending.values().map(Entries::len).sum::<usize>()
    }

    /// Bytes of all versions.
    fn bytes(&self) -> usize {
        self.entries.bytes() + self.pending.values().map(Entries::bytes).sum::<usize>()
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

    fn by_pattern(&mut self) -> &mut ByPattern {
        self.by_pattern.get_or_insert_with(|| ByPattern::new(&self.entries))
    }

    fn which(&mut self, which: Which<'_>) -> Vec<Arc<Entry>> {
        match which {
            Which::Pattern(pattern) => self.by_pattern().all(pattern).cloned().collect(),
            Which::Id(id) => self.entries.get(id).cloned().into_iter().collect(),
        }
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
            entries: entries.into_iter().collect(),
            views: Vec::new(),
            by_pattern: None,
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
        let known = state.views.iter().position(|view| (view.kind, view.ignore_case) == (kind, ignore_case));
        if let Some(at) = known {
            return Ok(View(at));
        }
        let index = self.index(kind, ignore_case, &state.entries)?;
        state.views.push(Viewed { kind, ignore_case, index: Arc::new(index) });
        self.published.replace(state.snapshot());
        Ok(View(state.views.len() - 1))
    }

    fn index(&self, kind: MatchKind, ignore_case: bool, entries: &Entries) -> Result<Index, (usize, String)> {
        Index::new(kind, ignore_case, entries).map_err(|(number, why)| {
            let line = entries.iter().nth(number).map_or(0, |entry| entry.line);
            match (line, &self.name) {
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
    pub fn entries(&self, version: Option<u64>) -> Entries {
        let state = self.state.lock();
        match version {
            Some(version) if version != state.version => {
                state.pending.get(&version).cloned().unwrap_or_default()
            }
            _ => state.entries.clone(),
        }
    }

    /// Has entries be found by their patterns from the first change on: the first one does not pay for it, then.
    pub fn will_change(&self) {
        self.state.lock().by_pattern();
    }

    /// Whether there is an entry of this pattern, as it is written.
    pub fn contains(&self, pattern: &[u8]) -> bool {
        self.state.lock().by_pattern().all(pattern).next().is_some()
    }

    /// What each view says of a sample, given as a text.
    pub fn look(&self, sample: &[u8], scratch: &mut Scratch<'_>) -> Vec<Looked> {
        let (entries, views) = {
            let state = self.state.lock();
            (state.entries.clone(), state.views.clone())
        };
        let look = |Viewed { kind, ignore_case, index }: Viewed| {
            let mut scratch = scratch.reborrow();
            let value = cast(Value::Str(sample), kind.takes(), &mut scratch);
            let found = value.and_then(|value| index.find(value, &entries, &mut scratch).cloned());
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
        for wanted in &state.values {
            if let Some((_, value)) = pairs.iter().find(|(_, value)| wanted.read(value).is_none()) {
                return Err(NotAdded::Refused(format!("'{}' is not {}", Shown(value), wanted.name())));
            }
        }
        let added = state.entries_of(pairs);
        match version {
            Some(version) => {
                // Every view must take them, sooner or later.
                let alone: Entries = added.iter().cloned().collect();
                for view in &state.views {
                    let index = Index::new(view.kind, view.ignore_case, &alone);
                    index.map_err(|(_, why)| NotAdded::Refused(why))?;
                }
                state.pending.entry(version).or_default().extend(added);
            }
            None => {
                let mut entries = state.entries.clone();
                let mut views = state.views.clone();
                for entry in &added {
                    entries.insert(entry.clone());
                    for view in &mut views {
                        let index = Arc::make_mut(&mut view.index);
                        index.add(entry, &entries).map_err(NotAdded::Refused)?;
                    }
                }
                if let Some(by_pattern) = &mut state.by_pattern {
                    added.iter().for_each(|entry| by_pattern.insert(entry));
                }
                self.publish(&mut state, entries, views);
            }
        }
        Ok(())
    }

    /// Removes entries of the version that is matched: `del-acl`, `del-map`. Tells how many there were.
    pub fn remove(&self, which: Which<'_>) -> usize {
        let mut state = self.state.lock();
        let removed = state.which(which);
        if removed.is_empty() {
            return 0;
        }
        let mut entries = state.entries.clone();
        let mut views = state.views.clone();
        for entry in &removed {
            entries.remove(entry.id);
            views.iter_mut().for_each(|view| Arc::make_mut(&mut view.index).remove(entry, &entries));
        }
        if let Some(by_pattern) = &mut state.by_pattern {
            removed.iter().for_each(|entry| by_pattern.remove(entry));
        }
        self.publish(&mut state, entries, views);
        removed.len()
    }

    /// Gives entries of the version that is matched a new value. Tells how many there were. The error is a sentence; then nothing has changed.
    pub fn replace(&self, which: Which<'_>, value: &[u8]) -> Result<usize, String> {
        let mut state = self.state.lock();
        if let Some(wanted) = state.values.iter().find(|wanted| wanted.read(value).is_none()) {
            return Err(format!("'{}' is not {}", Shown(value), wanted.name()));
        }
        let changed = state.which(which);
        if changed.is_empty() {
            return Ok(0);
        }
        let anew = |entry: &Arc<Entry>| {
            let (id, line, pattern) = (entry.id, entry.line, entry.pattern.clone());
            Arc::new(Entry { id, line, pattern, value: value.into() })
        };
        let changed: Vec<Arc<Entry>> = changed.iter().map(anew).collect();
        let mut entries = state.entries.clone();
        let mut views = state.views.clone();
        for entry in &changed {
            entries.insert(entry.clone());
            for view in &mut views {
                Arc::make_mut(&mut view.index).replace(entry)?;
            }
        }
        if let Some(by_pattern) = &mut state.by_pattern {
            changed.iter().for_each(|entry| by_pattern.insert(entry));
        }
        self.publish(&mut state, entries, views);
        Ok(changed.len())
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
        self.take(&mut state, entries).map_err(NotAdded::Refused)?;
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
            _ => drop(self.take(&mut state, Entries::default())),
        }
    }

    /// Makes all indexes anew and publishes. The error is a sentence; then nothing has changed.
    fn take(&self, state: &mut State, entries: Entries) -> Result<(), String> {
        let mut views = state.views.clone();
        for view in &mut views {
            let index = self.index(view.kind, view.ignore_case, &entries).map_err(|(_, why)| why)?;
            view.index = Arc::new(index);
        }
        if state.by_pattern.is_some() {
            state.by_pattern = Some(ByPattern::new(&entries));
        }
        self.publish(state, entries, views);
        Ok(())
    }

    fn publish(&self, state: &mut State, entries: Entries, views: Vec<Viewed>) {
        state.entries = entries;
        state.views = views;
        self.published.replace(state.snapshot());
    }
}

/// A map's line: the pattern, and the value behind it.
pub fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr2(b' ', b'\t', line).unwrap_or(line.len());
    (&line[..end], line[end..].trim_ascii())
}
