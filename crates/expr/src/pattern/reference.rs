//! Lists of patterns and maps: read once, shared by all that name them, changed while lanes read.
//!
//! Rules:
//! 1. A file is one [`Reference`], whoever names it and however often; a map and a list of patterns of the
//!    same name are two. Patterns that stand in the configuration's lines are a reference without a name.
//! 2. Who uses it asks for a view: a kind of matching and whether case matters. Views that are the same share
//!    an index.
//! 3. What lanes see is a [`Snapshot`]: entries and the indexes of all views, immutable, published as a
//!    whole. A lane reads it with one plain load and holds it until its next quiescent moment.
//! 4. A change takes the reference's lock, makes a new snapshot and publishes it. The new one shares with the
//!    former what did not change, so that an entry that is added, removed or replaced costs about the
//!    logarithm of the list's length. A change that any view refuses changes nothing.
//! 5. A version that was prepared gathers entries that nobody matches, until it is committed and takes the
//!    place of the whole list. With it the versions before it are gone.
//! 6. Rules change the version that is matched, an entry at a time, and wait for nobody longer than for
//!    [`AT_ONCE`] such changes. What takes as long as a list is long is for operators: they have a lock of
//!    their own, one at a time, and make indexes below that alone. Under the reference's they take what they
//!    need, and put what came of it. Prepared versions and views are changed by nobody else, so that both are
//!    still as they were.

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
use std::sync::Arc; // what it holds is written once, and only read from then on

/// Bytes of one file, and of a reference's entries, at most.
pub const MAX_REFERENCE_BYTES: usize = 256 << 20;
/// Entries of one reference at most, those of versions that are prepared included: numbers of entries have 32
/// bits.
pub const MAX_ENTRIES: usize = 16 << 20;

/// Entries that are added with the reference's lock held once.
const AT_ONCE: usize = 64;

/// What takes long about references (rule 6).
static OPERATORS: LockClass = LockClass::new("operators' changes of references", 44);
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
    /// Entries that are being added, and their bytes.
    coming: (usize, usize),
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

    /// Whether so many entries with so many bytes can be added, whatever the version. The error is a
    /// sentence.
    fn has_room(&self, entries: usize, bytes: usize) -> Result<(), String> {
        if self.count() + self.coming.0 + entries > MAX_ENTRIES {
            return Err(format!("at most {MAX_ENTRIES} entries fit, found more"));
        }
        let pending = self.pending.values().map(Entries::bytes).sum::<usize>();
        if self.entries.bytes() + pending + self.coming.1 + bytes > MAX_REFERENCE_BYTES {
            return Err(format!("at most {MAX_REFERENCE_BYTES} bytes fit, found more"));
        }
        Ok(())
    }

    /// Whether something can be added to that version; none stands for the one that is matched.
    fn open(&self, version: Option<u64>) -> Result<Option<u64>, NoVersion> {
        match version {
            Some(version) if version > self.prepared => Err(NoVersion::Future),
            Some(version) if version < self.version => Err(NoVersion::Past),
            version => Ok(version.filter(|version| *version != self.version)),
        }
    }

    /// The first of so many new numbers, which are one behind the other.
    fn take_ids(&mut self, count: usize) -> u64 {
        let first = self.newest + 1;
        self.newest += count as u64;
        first
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
pub struct Comparison {
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
    /// Held by who takes long; taken before `state`.
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
                return Err(format!(
                    "'{}' has more than {MAX_ENTRIES} entries, which is the most",
                    Shown(name)
                ));
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
            coming: (0, 0),
        };
        let published = Published::new(state.snapshot());
        let operators = Mutex::new(&OPERATORS, ());
        Self { name, is_map, operators, state: Mutex::new(&CHANGES, state), published }
    }

    fn lock(&self) -> Held<MutexGuard<'_, State>> {
        Held::new(self.state.lock())
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
        let state = self.lock();
        Summary {
            users: state.users.clone(),
            version: state.version,
            prepared: state.prepared,
            entries: state.count(),
        }
    }

    /// Remembers who uses it.
    pub(crate) fn used_by(&self, user: String) {
        let mut state = self.lock();
        if state.users.last() != Some(&user) {
            state.users.push(user);
        }
    }

    /// What it is now. It stays valid until the reader's next quiescent moment, which the borrow forbids
    /// before it is given up.
    pub fn load<'a>(&'a self, reader: &'a Reader) -> &'a Snapshot {
        self.published.load(reader)
    }

    /// The view for that kind of matching, made when it is new. The error has the number of the entry and a
    /// sentence that names its line.
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

    /// Has all values be of that kind. The error is a sentence that names the line of one that is not.
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

    /// The entries of a version; of the one that is matched for none.
    pub fn entries(&self, version: Option<u64>) -> Entries {
        let state = self.lock();
        match version {
            Some(version) if version != state.version => {
                state.pending.get(&version).cloned().unwrap_or_default()
            }
            _ => state.entries.clone(),
        }
    }

    /// Has entries be found by their patterns from the first change on: the first one does not pay for it,
    /// then.
    pub fn will_change(&self) {
        self.lock().by_pattern();
    }

    /// What each view says of a sample, given as a text.
    pub fn look(&self, sample: &[u8], scratch: &mut Scratch<'_>) -> Vec<Comparison> {
        let (entries, views) = {
            let state = self.lock();
            (state.entries.clone(), state.views.clone())
        };
        let look = |Viewed { kind, ignore_case, index }: Viewed| {
            let mut scratch = scratch.reborrow();
            let value = cast(Value::Str(sample), kind.takes(), &mut scratch);
            let found = value.and_then(|value| index.find(value, &entries, &mut scratch).cloned());
            Comparison { kind, ignore_case, is_list: index.is_list(), found }
        };
        views.into_iter().map(look).collect()
    }

    /// Adds an entry at the end, where there is none of this pattern as it is written: `add-acl`. The error
    /// is a sentence; then nothing has changed.
    pub fn add_new(&self, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        let mut state = self.lock();
        let is_there = state.by_pattern().all(pattern).next().is_some();
        if is_there { Ok(()) } else { self.append(&mut state, pattern, value) }
    }

    /// Adds one entry at the end.
    fn append(&self, state: &mut State, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        state.has_room(1, pattern.len() + value.len())?;
        check_values(&state.values, [value])?;
        self.append_all(state, vec![(pattern.into(), value.into())])
    }

    /// Adds a few at the end.
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

    /// Adds entries at the end of a version, all or, when one is refused, none; to the version that is
    /// matched for none. Of that one lanes may see the first of them before the last.
    ///
    /// # Errors
    /// [`NotAdded`]
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
            // Every view must take them, sooner or later.
            pairs
                .iter()
                .try_for_each(|(pattern, _)| Index::check(kind, ignore_case, pattern))
                .map_err(NotAdded::Refused)?;
        }
        {
            let mut state = self.lock();
            state.has_room(pairs.len(), bytes).map_err(NotAdded::Refused)?; // rules add, too
            state.coming = (pairs.len(), bytes);
        }
        let added = match version {
            Some(version) => self.add_ahead(version, pairs),
            None => self.add_in_turns(pairs),
        };
        self.lock().coming = (0, 0);
        added.map_err(NotAdded::Refused)
    }

    /// To a version that nobody matches yet.
    fn add_ahead(&self, version: u64, pairs: Vec<Pair>) -> Result<(), String> {
        let (first, mut entries) = {
            let mut state = self.lock();
            (state.take_ids(pairs.len()), state.pending.get(&version).cloned().unwrap_or_default())
        };
        entries.extend(entries_of(first, pairs));
        let mut state = self.lock();
        state.coming = (0, 0); // they are there
        let before = state.pending.insert(version, entries);
        drop(state);
        drop(before);
        Ok(())
    }

    /// To the one that is matched: rules have their turns in between, and what they add stands between, too.
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

    /// Removes entries of the version that is matched: `del-acl`, `del-map`. Tells how many there were.
    pub fn remove(&self, which: Which<'_>) -> usize {
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

    /// Gives entries of the version that is matched a new value. Tells how many there were. The error is a
    /// sentence; then nothing has changed.
    pub fn replace(&self, which: Which<'_>, value: &[u8]) -> Result<usize, String> {
        self.give(&mut self.lock(), which, value)
    }

    fn give(&self, state: &mut State, which: Which<'_>, value: &[u8]) -> Result<usize, String> {
        check_values(&state.values, [value])?;
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
        self.publish(state, entries, views);
        Ok(changed.len())
    }

    /// Gives all entries of a pattern a new value, or adds one: `set-map`. The error is a sentence; then
    /// nothing has changed.
    pub fn set(&self, pattern: &[u8], value: &[u8]) -> Result<(), String> {
        let mut state = self.lock();
        match self.give(&mut state, Which::Pattern(pattern), value)? {
            0 => self.append(&mut state, pattern, value),
            _ => Ok(()),
        }
    }

    /// Begins a new version, empty. Tells its number.
    pub fn prepare(&self) -> u64 {
        let mut state = self.lock();
        state.prepared += 1;
        state.prepared
    }

    /// Has a version take the place of the one that is matched; those between are gone.
    ///
    /// # Errors
    /// [`NotAdded`]: it was not prepared, another one was committed after that, or its entries are too much
    /// together for one of the users. Nothing has
    /// changed then.
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

    /// Removes all entries of a version; of the one that is matched for none.
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
                // An empty list is nobody too much.
                let _ = self.take(Entries::default(), None);
            }
        }
    }

    /// Has entries take the place of all, those of a version if it is one: for who holds `operators`. The
    /// error is a sentence; then nothing has changed.
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
        drop((by_pattern, gone)); // which takes as long as the list was
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

/// Whether all values are what they have to be. The error is a sentence.
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

/// A map's line: the pattern, and the value behind it.
pub fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr2(b' ', b'\t', line).unwrap_or(line.len());
    (&line[..end], line[end..].trim_ascii())
}
