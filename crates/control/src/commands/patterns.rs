//! ACLs and maps: their entries, and versions that replace all entries in one step.
//!
//! Changing a list or searching it takes time proportional to its length, and may wait for the list's lock.
//! Both run on the blocking pool.

use super::Call;
use crate::aside::Owned;
use crate::reply::ReplyError;
use crate::serve::Control;
use manylane_expr::{Entry, EntrySelector, Lane, NoVersion, NotAdded, Pair, Reference, split};
use manylane_sync::Arc;
use std::borrow::Cow;
use std::fmt::Write;

/// The kind that a command names. Both are lists of patterns; a map has a value for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Acl,
    Map,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Acl => "ACL",
            Self::Map => "map",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Map => "map",
        }
    }
}

/// A list that a command names.
struct Named {
    /// `@4`: a version of the list.
    version: Option<u64>,
    list: Arc<Reference>,
}

/// Parses `[@<version>] <list>` at the front of the words. If it is wrong, replies with an error and returns
/// `None`.
fn named(call: &mut Call<'_, '_>, kind: Kind, versioned: bool) -> Option<Named> {
    let mut version = None;
    if versioned && let Some(digits) = call.word(0).strip_prefix('@') {
        let Ok(number) = digits.parse() else {
            call.error("Invalid version number: expected '@' and the number that 'prepare' returned.");
            return None;
        };
        version = Some(number);
        call.words = &call.words[1..];
    }
    let Some(name) = call.words.first() else {
        call.error(&format!("Missing {} identifier.", kind.name()));
        return None;
    };
    call.words = &call.words[1..];
    let references = &call.generation.expressions.references;
    let is_map = kind == Kind::Map;
    let list = match name.strip_prefix('#').map(str::parse::<u32>) {
        Some(Ok(number)) => {
            let all = references.numbered();
            let index = all.binary_search_by_key(&number, |(number, _)| *number).ok();
            index.map(|position| all[position].1).filter(|list| list.is_map() == is_map).cloned()
        }
        _ => references.get(name.as_bytes(), is_map),
    };
    if list.is_none() {
        call.error(&format!("Unknown {} identifier. Please use #<id> or <file>.", kind.name()));
    }
    Some(Named { version, list: list? })
}

/// Runs `work` on the blocking pool. If the pool is full, replies with an error and returns `None`.
async fn aside<T: Send + 'static>(
    call: &mut Call<'_, '_>,
    list: &Arc<Reference>,
    work: impl FnOnce(&Reference) -> T + Send + 'static,
) -> Option<T> {
    let list = list.clone();
    match Control::aside().run(move || work(&list)) {
        Ok(working) => Some(working.await),
        Err(refused) => {
            call.error(&format!("Nothing was done: {refused}."));
            None
        }
    }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// `show acl`, `show map`
pub(super) async fn show(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), ReplyError> {
    if call.words.is_empty() {
        return overview(call, kind).await;
    }
    let Some(Named { version, list }) = named(call, kind, true) else { return Ok(()) };
    // A commit may replace the list while the client reads this one, which is then the last to hold it.
    let entries = aside(call, &list, move |list| Owned::new(list.entries(version))).await;
    let Some(entries) = entries else { return Ok(()) };
    for entry in entries.iter() {
        let _ = write!(call.reply, "{:#x} {}", entry.id(), text(entry.pattern()));
        if kind == Kind::Map {
            let _ = write!(call.reply, " {}", text(entry.value()));
        }
        call.reply.put("\n");
        call.reply.breathe().await?;
    }
    Ok(())
}

async fn overview(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), ReplyError> {
    call.reply.put("# id (file) description\n");
    let all = call.generation.expressions.references.numbered();
    let lists: Vec<(u32, Arc<Reference>)> =
        all.into_iter().map(|(number, list)| (number, list.clone())).collect();
    for (number, list) in lists {
        if list.is_map() != (kind == Kind::Map) {
            continue;
        }
        let Some(summary) = aside(call, &list, Reference::summary).await else { return Ok(()) };
        let users = summary.users.join(", ");
        let _ = match list.name().map(text) {
            Some(name) => {
                write!(call.reply, "{number} ({name}) pattern loaded from file '{name}' used {users}.")
            }
            None => write!(call.reply, "{number} () {users}."),
        };
        let _ = writeln!(
            call.reply,
            " curr_ver={} next_ver={} entry_cnt={}",
            summary.version, summary.prepared, summary.entries
        );
        call.reply.breathe().await?;
    }
    Ok(())
}

/// `add acl`, `add map`
pub(super) async fn add(call: &mut Call<'_, '_>, kind: Kind) {
    let usage = match kind {
        Kind::Acl => "'add acl' expects two parameters: ACL identifier and pattern.",
        Kind::Map => {
            "'add map' expects three parameters (map identifier, key and value) or one parameter (map \
                identifier) and a payload"
        }
    };
    let least = match (kind, &call.payload) {
        (_, Some(_)) => 1,
        (Kind::Acl, None) => 2,
        (Kind::Map, None) => 3,
    };
    if call.words.len() - usize::from(call.word(0).starts_with('@')) < least {
        return call.error(usage);
    }
    let Some(Named { version, list }) = named(call, kind, true) else { return };
    let payload = call.payload.take();
    let pairs = match (kind, payload, call.words) {
        (kind, Some(payload), []) => match pairs(kind, &payload) {
            Ok(pairs) => pairs,
            Err(sentence) => return call.error(&sentence),
        },
        (Kind::Acl, None, [pattern, ..]) => vec![(pattern.as_bytes().into(), Box::default())],
        (Kind::Map, None, [key, value, ..]) => vec![(key.as_bytes().into(), value.as_bytes().into())],
        _ => return call.error(usage),
    };
    let Some(added) = aside(call, &list, move |list| list.add_all(version, pairs)).await else { return };
    match added {
        Ok(()) => {}
        Err(NotAdded::Refused(sentence)) => call.error(&format!("{sentence}.")),
        Err(NotAdded::Version(NoVersion::Future)) => {
            let word = kind.word();
            call.error(&format!("Version number in the future, please use 'prepare {word}' before."));
        }
        Err(NotAdded::Version(NoVersion::Past)) => {
            call.error("A newer version was committed after this one, which is gone; nothing was added.");
        }
    }
}

/// Parses a payload's lines. With an error, no line is added.
fn pairs(kind: Kind, payload: &str) -> Result<Vec<Pair>, String> {
    let mut pairs = Vec::new();
    for line in payload.lines() {
        let line = line.trim_start_matches([' ', '\t']).as_bytes();
        if line.is_empty() {
            return Err("A line of the payload expects a pattern, found none; nothing was added.".to_owned());
        }
        let (pattern, value) = if kind == Kind::Map { split(line) } else { (line, &b""[..]) };
        if kind == Kind::Map && value.is_empty() {
            return Err(format!("Missing value for key '{}'; nothing was added.", text(pattern)));
        }
        pairs.push((pattern.into(), value.into()));
    }
    Ok(pairs)
}

/// What a word selects: `#0x2a` an entry by its number, any other the entries with this pattern.
struct Selected {
    word: String,
    id: Option<u64>,
}

impl Selected {
    /// Parses a word. If it is a malformed number, replies with an error and returns `None`.
    fn of(call: &mut Call<'_, '_>, word: String) -> Option<Self> {
        let id = match word.strip_prefix("#0x") {
            None => None,
            Some(digits) if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                // No entry has a number of more than 64 bits.
                Some(u64::from_str_radix(digits, 16).unwrap_or(u64::MAX))
            }
            Some(_) => {
                call.error("Malformed identifier. Please use #<id> or <file>.");
                return None;
            }
        };
        Some(Self { word, id })
    }

    fn entries(&self) -> EntrySelector<'_> {
        self.id.map_or(EntrySelector::Pattern(self.word.as_bytes()), EntrySelector::Id)
    }
}

/// `del acl`, `del map`
pub(super) async fn delete(call: &mut Call<'_, '_>, kind: Kind) {
    let [_, key, ..] = call.words else {
        return call
            .error(&format!("This command expects two parameters: {} identifier and key.", kind.name()));
    };
    let key = key.clone();
    let Some(Named { list, .. }) = named(call, kind, false) else { return };
    let Some(own) = Selected::of(call, key) else { return };
    if let Some(0) = aside(call, &list, move |list| list.remove(own.entries())).await {
        call.error("Key not found.");
    }
}

/// `set map`
pub(super) async fn set(call: &mut Call<'_, '_>) {
    let [_, key, value, ..] = call.words else {
        return call.error("'set map' expects three parameters: map identifier, key and value.");
    };
    let Some(Named { list, .. }) = named(call, Kind::Map, false) else { return };
    let Some(own) = Selected::of(call, key.clone()) else { return };
    let missing = if own.id.is_some() { "key or pattern not found." } else { "entry not found." };
    let value = value.clone();
    match aside(call, &list, move |list| list.replace(own.entries(), value.as_bytes())).await {
        Some(Ok(0)) => call.error(missing),
        Some(Err(sentence)) => call.error(&format!("{sentence}.")),
        Some(Ok(_)) | None => {}
    }
}

/// `clear acl`, `clear map`
pub(super) async fn clear(call: &mut Call<'_, '_>, kind: Kind) {
    let Some(Named { version, list }) = named(call, kind, true) else { return };
    let _ = aside(call, &list, move |list| list.clear(version)).await;
}

/// `prepare acl`, `prepare map`
pub(super) async fn prepare(call: &mut Call<'_, '_>, kind: Kind) {
    let Some(Named { list, .. }) = named(call, kind, false) else { return };
    if let Some(version) = aside(call, &list, Reference::prepare).await {
        call.info(&format!("New version created: {version}"));
    }
}

/// `commit acl`, `commit map`
pub(super) async fn commit(call: &mut Call<'_, '_>, kind: Kind) {
    if !call.word(0).starts_with('@') {
        return call.error("Missing version number.");
    }
    let Some(Named { version: Some(version), list }) = named(call, kind, true) else { return };
    match aside(call, &list, move |list| list.commit(version)).await {
        Some(Err(NotAdded::Version(_))) => call.error("Version number out of range."),
        Some(Err(NotAdded::Refused(sentence))) => call.error(&format!("{sentence}; all is as before.")),
        Some(Ok(())) | None => {}
    }
}

/// `get acl`, `get map`
pub(super) async fn get(call: &mut Call<'_, '_>, kind: Kind) {
    if call.words.len() < 2 {
        return call.error(&format!("Missing {} identifier and/or key.", kind.name()));
    }
    let Some(Named { list, .. }) = named(call, kind, false) else { return };
    let sample = call.word(0).to_owned();
    let found = aside(call, &list, move |list| list.look_up(sample.as_bytes(), &mut Lane::new().scratch()));
    for view in found.await.unwrap_or_default() {
        let case = if view.ignore_case { "insensitive" } else { "sensitive" };
        let _ = write!(call.reply, "type={}, case={case}, ", view.kind.name());
        let index = if view.is_list { "list" } else { "tree" };
        let answer = match kind {
            Kind::Acl => "match",
            Kind::Map => "found",
        };
        let _ = match view.found.as_deref() {
            None => write!(call.reply, "{answer}=no"),
            Some(entry) => write!(call.reply, "{answer}=yes, idx={index}, {}", shown(kind, entry)),
        };
        call.reply.put("\n");
    }
}

fn shown(kind: Kind, entry: &Entry) -> String {
    let (pattern, value) = (text(entry.pattern()), text(entry.value()));
    match kind {
        Kind::Acl => format!("pattern=\"{pattern}\""),
        Kind::Map => format!("key=\"{pattern}\", value=\"{value}\", type=\"str\""),
    }
}
