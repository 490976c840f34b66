//! Pattern lists and maps: loaded once, shared by all users of a name, and changed while lanes read them.
//!
//! Rules:
//! 1. A file is one [`Reference`], no matter how many lines name it. A map and a pattern list with the same
//!    name are separate. Patterns of a configuration line are a reference without a name.
//! 2. A user of a reference requests a view: a kind of matching, and whether to ignore case. Equal views
//!    share an index.
//! 3. Lanes see a [`Snapshot`]: entries and the indexes of all views, immutable and published as a whole. A
//!    lane reads it with one plain load and holds it until its next quiescent state.
//! 4. A change locks the state, builds a new snapshot and publishes it. It shares unchanged nodes with the
//!    old one, so adding, removing or replacing an entry takes time logarithmic in the length of the list. A
//!    change that any view refuses has no effect.
//! 5. A prepared version collects entries that do not match yet. Committing it replaces the whole list, and
//!    discards older prepared versions.
//! 6. Rules change single entries of the active version. They wait at most for the lock of [`AT_ONCE`] such
//!    changes. Operations in the order of the list's length come from operators. These hold the lock
//!    `operators`, one at a time, and build indexes under that lock alone. They take the state's lock only to
//!    read their input and to publish the result. Nothing else changes prepared versions and views, so both
//!    are still valid then.

use super::entry::{ByPattern, Entries, Entry};
use super::index::Index;
use super::value::MapValue;
use super::work::Held;
use super::{MatchKind, Regex};
use crate::cast::cast;
use crate::sample::Value;
use crate::scratch::Scratch;
use crate::show::Shown;
use manylane_sync::{LockClass, Mutex, MutexGuard, Published, Reader};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc; // std: the content is immutable, so models need not see it

/// Maximum size of a file, and of the entries of a reference, in bytes.
pub const MAX_REFERENCE_BYTES: usize = 256 << 20;
/// Maximum number of entries of a reference, those of prepared versions included. Entry numbers have 32 bits.
pub const MAX_ENTRIES: usize = 16 << 20;

/// Number of bytes that an entry takes beside its text: itself, and its places in lists and indexes.
const ENTRY: usize = 256;

/// Number of entries that are added per acquisition of the state's lock.
const AT_ONCE: usize = 64;

/// Lock for long operations on references (rule 6).
static OPERATORS: LockClass = LockClass::new("operators' changes of references", 44);
/// Lock for changes of references. Its holder acquires only the locks of publishing.
static CHANGES: LockClass = LockClass::new("references", 45);

/// A pattern and its value.
pub type Pair = (Box<[u8]>, Box<[u8]>);

/// Selects the entries of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntrySelector<'a> {
    /// All entries with this pattern as written.
    Pattern(&'a [u8]),
    /// The entry with this [`Entry::id`].
    Id(u64),
}

/// Why a version is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVersion {
    /// It has not been prepared.
    Future,
    /// It or a newer one has been committed.
    Past,
}

/// Why nothing was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdded {
    /// The version is not available.
    Version(NoVersion),
    /// The reason, a sentence.
    Refused(String),
}

/// Index of a view in the snapshots of its reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View(usize);

/// Entries and indexes of a reference at a point in time.
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

    /// True if any entry matches.
    pub(crate) fn is_match(&self, view: View, value: Value<'_>, scratch: &mut Scratch<'_>) -> bool {
        self.indexes[view.0].is_match(value, &self.entries, scratch)
    }

    /// The regular expression of an entry, in a view of kind `reg`.
    pub(crate) fn regex(&self, view: View, entry: &Entry) -> Option<&Regex> {
        self.indexes[view.0].regex(entry)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// A view with its current index.
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
    /// Index for changes, built on first use.
    by_pattern: Option<ByPattern>,
    /// Types that all values must have, since a user reads them so.
    values: Vec<MapValue>,
    /// Descriptions of the users, for reports.
    users: Vec<String>,
    /// Number of the newest entry.
    newest: u64,
    /// The active version, and the newest prepared one.
    version: u64,
    prepared: u64,
    /// Entries of prepared versions; versions without entries are absent.
    pending: BTreeMap<u64, Entries>,
    /// Number and size of entries that are being added.
    coming: (usize, usize),
}

impl State {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            entries: self.entries.clone(),
            indexes: self.views.iter().map(|view| view.index.clone()).collect(),
        }
    }

    /// Number of entries in all versions.
    fn count(&self) -> usize {
        self.entries.len() + self.pending.values().map(Entries::len).sum::<usize>()
    }

    /// Checks that this number of entries of this size can be added to any version. An error is a sentence.
    fn has_room(&self, entries: usize, bytes: usize) -> Result<(), String> {
        if manylane_pool::check_growth(entries * ENTRY + bytes).is_err() {
            return Err("there is too little memory for more entries".to_owned());
        }
        if self.count() + self.coming.0 + entries > MAX_ENTRIES {
            return Err(format!("at most {MAX_ENTRIES} entries fit, found more"));
        }
        let pending = self.pending.values().map(Entries::bytes).sum::<usize>();
        if self.entries.bytes() + pending + self.coming.1 + bytes > MAX_REFERENCE_BYTES {
            return Err(format!("at most {MAX_REFERENCE_BYTES} bytes fit, found more"));
        }
        Ok(())
    }

    /// Checks that entries can be added to a version. The result is `None` for the active one.
    fn open(&self, version: Option<u64>) -> Result<Option<u64>, NoVersion> {
        match version {
            Some(version) if version > self.prepared => Err(NoVersion::Future),
            Some(version) if version < self.version => Err(NoVersion::Past),
            version => Ok(version.filter(|version| *version != self.version)),
        }
    }

    /// Reserves `count` consecutive entry numbers and returns the first.
    fn take_ids(&mut self, count: usize) -> u64 {
        let first = self.newest + 1;
        self.newest += count as u64;
        first
    }

    fn by_pattern(&mut self) -> &mut ByPattern {
        self.by_pattern.get_or_insert_with(|| ByPattern::new(&self.entries))
    }

    fn which(&mut self, which: EntrySelector<'_>) -> Vec<Arc<Entry>> {
        match which {
            EntrySelector::Pattern(pattern) => self.by_pattern().all(pattern).cloned().collect(),
            EntrySelector::Id(id) => self.entries.get(id).cloned().into_iter().collect(),
        }
    }
}

/// Summary of a reference for `show acl` and `show map`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Descriptions of its users.
    pub users: Vec<String>,
    /// The active version.
    pub version: u64,
    /// The newest prepared version.
    pub prepared: u64,
    /// Number of entries in all versions.
    pub entries: usize,
}

/// Result of a look-up in one view.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Kind of matching.
    pub kind: MatchKind,
    /// True if case is ignored.
    pub ignore_case: bool,
    /// True if patterns are tried one by one.
    pub is_list: bool,
    /// The entry that matches.
    pub found: Option<Arc<Entry>>,
}

/// A pattern list or a map.
pub struct Reference {
    /// `None` for patterns of a configuration line.
    name: Option<Box<[u8]>>,
    is_map: bool,
    /// Held during long operations; acquired before `state`.
    operators: Mutex<()>,
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
    /// Parses a file. An error is a sentence with the line.
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
                return Err(format!("'{}' expects at most {MAX_ENTRIES} entries, found more", Shown(name)));
            }
        }
        Ok(Self::of(Some(name.into()), is_map, entries))
    }

    /// A reference for patterns of a configuration line.
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
            coming: (0, 0),
        };
        let published = Published::new(state.snapshot());
        let operators = Mutex::new(&OPERATORS, ());
        Self { name, is_map, operators, state: Mutex::new(&CHANGES, state), published }
    }

    fn lock(&self) -> Held<MutexGuard<'_, State>> {
        Held::new(self.state.lock())
    }

    /// Its name as written in the configuration; `None` for patterns of a line.
    pub fn name(&self) -> Option<&[u8]> {
        self.name.as_deref()
    }

    /// True if entries have values.
    pub fn is_map(&self) -> bool {
        self.is_map
    }

    /// A summary for reports.
    pub fn summary(&self) -> Summary {
        let state = self.lock();
        Summary {
            users: state.users.clone(),
            version: state.version,
            prepared: state.prepared,
            entries: state.count(),
        }
    }

    /// Adds the description of a user.
    pub(crate) fn used_by(&self, user: String) {
        let mut state = self.lock();
        if state.users.last() != Some(&user) {
            state.users.push(user);
        }
    }

    /// The current snapshot. It is valid until the reader's next quiescent state, which the borrow of
    /// `reader` prevents.
    pub fn load<'a>(&'a self, reader: &'a Reader) -> &'a Snapshot {
        self.published.load(reader)
    }

    /// The view with this kind of matching, created on first use. An error has the index of the entry and a
    /// sentence with its line.
    pub(crate) fn view(&self, kind: MatchKind, ignore_case: bool) -> Result<View, (usize, String)> {
        let _alone = self.operators.lock();
        let mut state = self.lock();
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

    /// Requires all values to have a type. An error is a sentence with the line of a value that does not.
    pub(crate) fn require(&self, wanted: MapValue) -> Result<(), String> {
        let _alone = self.operators.lock();
        let mut state = self.lock();
        if state.values.contains(&wanted) {
            return Ok(());
        }
        if let Some(entry) = state.entries.iter().find(|entry| wanted.read(&entry.value).is_none()) {
            let name = self.name.as_deref().unwrap_or_default();
            return Err(format!(
                "line {} of '{}' expects {} as its value, found '{}'",
                entry.line,
                Shown(name),
                wanted.name(),
                Shown(&entry.value)
            ));
        }
        state.values.push(wanted);
        Ok(())
    }

    /// The entries of a version; `None` means the active one.
    pub fn entries(&self, version: Option<u64>) -> Entries {
        let state = self.lock();
        match version {
            Some(version) if version != state.version => {
                state.pending.get(&version).cloned().unwrap_or_default()
            }
            _ => state.entries.clone(),
        }
    }

    /// Builds the index for changes now, so that the first change at run time does not have to.
    pub fn will_change(&self) {
        self.lock().by_pattern();
    }

    /// Looks up a text in each view.
    pub fn look_up(&self, sample: &[u8], scratch: &mut Scratch<'_>) -> Vec<Comparison> {
        let (entries, views) = {
            let state = self.lock();
            (state.entries.clone(), state.views.clone())
        };
        let compare = |Viewed { kind, ignore_case, index }: Viewed| {
            let mut scratch = scratch.reborrow();
            let value = cast(Value::Str(sample), kind.takes(), &mut scratch);
            let found = value.and_then(|value| index.find(value, &entries, &mut scratch).cloned());
            Comparison { kind, ignore_case, is_list: index.is_list(), found }
        };
        views.into_iter().map(compare).collect()
    }

    /// `add-acl`: appends an entry, unless one with the same pattern as written exists. On an error, which is
    /// a sentence, nothing changes.
    pub fn add_new(&self, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        let mut state = self.lock();
        let is_there = state.by_pattern().all(pattern).next().is_some();
        if is_there { Ok(()) } else { self.append(&mut state, pattern, value) }
    }

    /// Appends an entry.
    fn append(&self, state: &mut State, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        state.has_room(1, pattern.len() + value.len())?;
        check_values(&state.values, [value])?;
        self.append_all(state, vec![(pattern.into(), value.into())])
    }

    /// Appends some entries.
    fn append_all(&self, state: &mut State, pairs: Vec<Pair>) -> Result<(), String> {
        let added: Vec<Arc<Entry>> = entries_of(state.take_ids(pairs.len()), pairs).collect();
        let mut entries = state.entries.clone();
        let mut views = state.views.clone();
        for entry in &added {
            entries.insert(entry.clone());
            for view in &mut views {
                Arc::make_mut(&mut view.index).add(entry, &entries)?;
            }
        }
        if let Some(by_pattern) = &mut state.by_pattern {
            added.iter().for_each(|entry| by_pattern.insert(entry));
        }
        self.publish(state, entries, views);
        Ok(())
    }

    /// Appends all entries to a version, or none if one is refused. `None` means the active version. Lanes
    /// may see the first entries of the active version before the last.
    ///
    /// # Errors
    /// If the version is not available, or a pattern or value is invalid, or the entries do not fit.
    pub fn add_all(&self, version: Option<u64>, pairs: Vec<Pair>) -> Result<(), NotAdded> {
        let _alone = self.operators.lock();
        let bytes = pairs.iter().map(|(pattern, value)| pattern.len() + value.len()).sum();
        let (version, views, values) = {
            let state = self.lock();
            let version = state.open(version).map_err(NotAdded::Version)?;
            state.has_room(pairs.len(), bytes).map_err(NotAdded::Refused)?;
            (version, state.views.clone(), state.values.clone())
        };
        check_values(&values, pairs.iter().map(|(_, value)| &**value)).map_err(NotAdded::Refused)?;
        for Viewed { kind, ignore_case, .. } in views {
            // Check against all views, for when the version becomes active.
            pairs
                .iter()
                .try_for_each(|(pattern, _)| Index::check(kind, ignore_case, pattern))
                .map_err(NotAdded::Refused)?;
        }
        {
            let mut state = self.lock();
            state.has_room(pairs.len(), bytes).map_err(NotAdded::Refused)?; // rules may have added entries
            state.coming = (pairs.len(), bytes);
        }
        let added = match version {
            Some(version) => self.add_ahead(version, pairs),
            None => self.add_in_turns(pairs),
        };
        self.lock().coming = (0, 0);
        added.map_err(NotAdded::Refused)
    }

    /// Appends to a version that is not active.
    fn add_ahead(&self, version: u64, pairs: Vec<Pair>) -> Result<(), String> {
        let (first, mut entries) = {
            let mut state = self.lock();
            (state.take_ids(pairs.len()), state.pending.get(&version).cloned().unwrap_or_default())
        };
        entries.extend(entries_of(first, pairs));
        let mut state = self.lock();
        state.coming = (0, 0); // they are in `entries`
        let before = state.pending.insert(version, entries);
        drop(state);
        drop(before);
        Ok(())
    }

    /// Appends to the active version. The lock is released in between, so rules can add their entries among
    /// these.
    fn add_in_turns(&self, pairs: Vec<Pair>) -> Result<(), String> {
        let mut pairs = pairs.into_iter();
        while pairs.len() > 0 {
            let some: Vec<Pair> = pairs.by_ref().take(AT_ONCE).collect();
            let mut state = self.lock();
            let bytes: usize = some.iter().map(|(pattern, value)| pattern.len() + value.len()).sum();
            state.coming = (state.coming.0 - some.len(), state.coming.1 - bytes);
            self.append_all(&mut state, some)?;
        }
        Ok(())
    }

    /// `del-acl`, `del-map`: removes entries of the active version and returns their number.
    pub fn remove(&self, which: EntrySelector<'_>) -> usize {
        let mut state = self.lock();
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

    /// Changes the value of entries of the active version and returns their number. On an error, which is a
    /// sentence, nothing changes.
    pub fn replace(&self, which: EntrySelector<'_>, value: &[u8]) -> Result<usize, String> {
        self.give(&mut self.lock(), which, value)
    }

    fn give(&self, state: &mut State, which: EntrySelector<'_>, value: &[u8]) -> Result<usize, String> {
        check_values(&state.values, [value])?;
        let changed = state.which(which);
        if changed.is_empty() {
            return Ok(0);
        }
        let longer = |entry: &Arc<Entry>| value.len().saturating_sub(entry.value.len());
        state.has_room(0, changed.iter().map(longer).sum())?;
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
        self.publish(state, entries, views);
        Ok(changed.len())
    }

    /// `set-map`: changes the value of all entries with a pattern, or adds one. On an error, which is a
    /// sentence, nothing changes.
    pub fn set(&self, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        let mut state = self.lock();
        match self.give(&mut state, EntrySelector::Pattern(pattern), value)? {
            0 => self.append(&mut state, pattern, value),
            _ => Ok(()),
        }
    }

    /// Prepares a new, empty version and returns its number.
    pub fn prepare(&self) -> u64 {
        let mut state = self.lock();
        state.prepared += 1;
        state.prepared
    }

    /// Replaces the active version by a prepared one, and discards older prepared versions.
    ///
    /// # Errors
    /// If the version was not prepared, or it or a newer one was committed, or its entries are too large for
    /// a view. Nothing changes then.
    pub fn commit(&self, version: u64) -> Result<(), NotAdded> {
        let _alone = self.operators.lock();
        let entries = {
            let state = self.lock();
            match version {
                version if version > state.prepared => return Err(NotAdded::Version(NoVersion::Future)),
                version if version <= state.version => return Err(NotAdded::Version(NoVersion::Past)),
                _ => state.pending.get(&version).cloned().unwrap_or_default(),
            }
        };
        self.take(entries, Some(version)).map_err(NotAdded::Refused)
    }

    /// Removes all entries of a version; `None` means the active one.
    pub fn clear(&self, version: Option<u64>) {
        let _alone = self.operators.lock();
        let mut state = self.lock();
        match version {
            Some(version) if version != state.version => {
                let gone = state.pending.remove(&version);
                drop(state);
                drop(gone);
            }
            _ => {
                drop(state);
                // An empty list is valid in all views.
                let _ = self.take(Entries::default(), None);
            }
        }
    }

    /// Replaces all entries, with those of `version` if it is `Some`. The caller holds `operators`. On an
    /// error, which is a sentence, nothing changes.
    fn take(&self, entries: Entries, version: Option<u64>) -> Result<(), String> {
        let (mut views, is_searched) = {
            let state = self.lock();
            (state.views.clone(), state.by_pattern.is_some())
        };
        for view in &mut views {
            let index = self.index(view.kind, view.ignore_case, &entries).map_err(|(_, why)| why)?;
            view.index = Arc::new(index);
        }
        let mut by_pattern = is_searched.then(|| ByPattern::new(&entries));
        let mut gone = BTreeMap::new();
        let mut state = self.lock();
        std::mem::swap(&mut state.by_pattern, &mut by_pattern);
        if let Some(version) = version {
            let newer = state.pending.split_off(&(version + 1));
            gone = std::mem::replace(&mut state.pending, newer);
            state.version = version;
        }
        self.publish(&mut state, entries, views);
        drop(state);
        drop((by_pattern, gone)); // takes time linear in the old list, so not under the lock
        Ok(())
    }

    fn publish(&self, state: &mut State, entries: Entries, views: Vec<Viewed>) {
        state.entries = entries;
        state.views = views;
        self.published.replace(state.snapshot());
    }
}

fn entries_of(first: u64, pairs: Vec<Pair>) -> impl Iterator<Item = Arc<Entry>> {
    let entry = |(id, (pattern, value))| Arc::new(Entry { id, line: 0, pattern, value });
    (first..).zip(pairs).map(entry)
}

/// Checks that all values have the required types. An error is a sentence.
fn check_values<'v>(
    wanted: &[MapValue],
    values: impl IntoIterator<Item = &'v [u8]> + Clone,
) -> Result<(), String> {
    for wanted in wanted {
        if let Some(value) = values.clone().into_iter().find(|value| wanted.read(value).is_none()) {
            return Err(format!("the map expects {}, found '{}'", wanted.name(), Shown(value)));
        }
    }
    Ok(())
}

/// Splits the line of a map into the pattern and the value.
pub fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr2(b' ', b'\t', line).unwrap_or(line.len());
    (&line[..end], line[end..].trim_ascii())
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_at_most_16_million_entries_and_256_mib() {
        let list = Reference::new(b"list", true, b"a b\n").unwrap();
        let mut state = list.state.lock();
        let bytes = state.entries.bytes();
        state.coming = ((16 << 20) - 2, (256 << 20) - bytes - 10);
        assert_eq!(state.has_room(1, 10), Ok(()));
        assert_eq!(state.has_room(2, 10), Err("at most 16777216 entries fit, found more".to_owned()));
        assert_eq!(state.has_room(1, 11), Err("at most 268435456 bytes fit, found more".to_owned()));
    }
}
