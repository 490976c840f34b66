//! The keyword table: one row for each keyword of HAProxy's configuration language.
//!
//! A row says where a keyword is valid, its arguments and their units, its default, whether sections inherit
//! it from `defaults`, what repetition means, and whether it is built. The reader, the messages, `--help
//! KEYWORD` and `docs/configuration.md` all use these rows, and tests walk them. A keyword of HAProxy that is
//! not built has a row with the reason: using it is an error that shows it.

mod bind;
mod checks;
mod context;
pub(crate) mod forward;
mod global;
mod gone;
mod logs;
mod misc;
mod options;
mod proxy;
mod rules;
mod server;
mod ssl;
mod stats;
mod stick;
mod timeouts;
mod tls;
mod tune;
pub(crate) mod unbuilt;

pub use bind::BindOptions;
pub use context::{KeywordContext, KeywordContexts};
pub use options::OptionSwitch;
pub use rules::{Action, Ruleset};
pub use server::ServerOptions;
pub use ssl::TlsProcess;
pub use timeouts::Timeout;
pub use tls::TlsOptions;
pub use tune::Tune;

use crate::build::{Builder, Line};
use crate::guess;
use crate::value::Unit;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Runs a line whose shape was checked.
#[derive(Clone, Copy, Debug)]
pub struct Handler(pub(crate) fn(&mut Builder<'_>, &Line<'_>));

/// One keyword.
#[derive(Clone, Debug)]
pub struct Keyword {
    /// One or more words separated by single spaces: `maxconn`, `timeout client`.
    pub name: &'static str,
    /// Its family: a chapter of the reference.
    pub family: &'static str,
    /// Sections in which it is valid.
    pub contexts: KeywordContexts,
    /// In `defaults`, valid only if the section has a name.
    pub named_defaults_only: bool,
    /// Its arguments.
    pub shape: Shape,
    /// Its default in words; empty if there is none.
    pub default: &'static str,
    /// Effect of a second line with it.
    pub repeat: Repeat,
    /// True if `no` may precede it.
    pub negatable: bool,
    /// Whether it is built.
    pub status: Status,
    /// The part of a built keyword that is refused or has no effect; empty if there is none.
    pub limitation: &'static str,
    /// What it does: one sentence without the full stop.
    pub help: &'static str,
}

/// The arguments of a keyword.
#[derive(Clone, Debug)]
pub enum Shape {
    /// No arguments.
    Flag,
    /// Arguments that are checked before the handler runs.
    Args(Vec<Arg>),
    /// Arguments that the handler checks: the usage, and the minimum number of words.
    Own(&'static str, usize),
}

/// One argument.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name in messages and in the reference.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// How often it occurs.
    pub count: Count,
}

/// Type of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An integer, inclusive bounds.
    Int(i64, i64),
    /// A time; the unit is used if none is written.
    Time(Unit),
    /// A time above zero.
    Interval(Unit),
    /// A size in bytes, inclusive bounds.
    Size(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `on` or `off`.
    Switch,
    /// Any non-empty word.
    Text,
}

/// How often an argument occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exactly once.
    One,
    /// At most once.
    Optional,
}

/// Effect of a second line with the same keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It replaces the first.
    Replaces,
    /// It is added to the first.
    Adds,
    /// It is an error.
    Refused,
}

/// Whether a keyword is built, with its handler or the reason.
#[derive(Clone, Copy, Debug)]
pub enum Status {
    /// Its settings are typed values in the tree.
    Built(Handler),
    /// The tree keeps its expressions as words with positions, for `expr`.
    Words(Handler),
    /// Accepted without effect. A notice shows the reason.
    Idle(&'static str),
    /// An error that shows the reason.
    Refused(&'static str),
}

impl Status {
    /// Description for the reference.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Built(_) => "read",
            Self::Words(_) => "read, expressions kept as words",
            Self::Idle(_) => "accepted without effect",
            Self::Refused(_) => "refused",
        }
    }

    /// Why it has no effect or is refused.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Built(_) | Self::Words(_) => None,
            Self::Idle(reason) | Self::Refused(reason) => Some(reason),
        }
    }
}

/// Makes a row. This function and the methods of [`Keyword`] keep most rows on one line.
fn row(name: &'static str, contexts: KeywordContexts, shape: Shape, help: &'static str) -> Keyword {
    Keyword {
        name,
        family: "",
        contexts,
        named_defaults_only: false,
        shape,
        default: "",
        repeat: Repeat::Replaces,
        negatable: false,
        status: Status::Refused("it is not built yet"),
        limitation: "",
        help,
    }
}

fn flag(name: &'static str, contexts: KeywordContexts, help: &'static str) -> Keyword {
    row(name, contexts, Shape::Flag, help)
}

fn args<const N: usize>(
    name: &'static str,
    contexts: KeywordContexts,
    args: [Arg; N],
    help: &'static str,
) -> Keyword {
    row(name, contexts, Shape::Args(args.into()), help)
}

/// A row whose handler checks the arguments; `min` is the minimum number of words.
fn own(
    name: &'static str,
    contexts: KeywordContexts,
    usage: &'static str,
    min: usize,
    help: &'static str,
) -> Keyword {
    row(name, contexts, Shape::Own(usage, min), help)
}

fn int(name: &'static str, min: i64, max: i64) -> Arg {
    Arg { name, kind: Kind::Int(min, max), count: Count::One }
}

fn time(name: &'static str) -> Arg {
    Arg { name, kind: Kind::Time(Unit::Ms), count: Count::One }
}

fn interval(name: &'static str) -> Arg {
    Arg { name, kind: Kind::Interval(Unit::Ms), count: Count::One }
}

fn seconds(name: &'static str) -> Arg {
    Arg { name, kind: Kind::Time(Unit::S), count: Count::One }
}

fn size(name: &'static str, min: u64, max: u64) -> Arg {
    Arg { name, kind: Kind::Size(min, max), count: Count::One }
}

fn text(name: &'static str) -> Arg {
    Arg { name, kind: Kind::Text, count: Count::One }
}

fn choice(name: &'static str, words: &'static [&'static str]) -> Arg {
    Arg { name, kind: Kind::Choice(words), count: Count::One }
}

fn switch(name: &'static str) -> Arg {
    Arg { name, kind: Kind::Switch, count: Count::One }
}

impl Arg {
    /// The argument in a usage: `<number>`, `on|off`.
    fn usage(&self) -> String {
        let text = match self.kind {
            Kind::Choice(words) => words.join("|"),
            Kind::Switch => "on|off".into(),
            _ => match self.name.strip_suffix("[,...]") {
                Some(name) => format!("<{name}>[,...]"),
                None => format!("<{}>", self.name),
            },
        };
        if self.count == Count::Optional { format!("[{text}]") } else { text }
    }

    fn optional(self) -> Self {
        Self { count: Count::Optional, ..self }
    }
}

impl Keyword {
    fn built(self, handler: fn(&mut Builder<'_>, &Line<'_>)) -> Self {
        Self { status: Status::Built(Handler(handler)), ..self }
    }

    fn words(self, handler: fn(&mut Builder<'_>, &Line<'_>)) -> Self {
        Self { status: Status::Words(Handler(handler)), ..self }
    }

    fn idle(self, reason: &'static str) -> Self {
        Self { status: Status::Idle(reason), ..self }
    }

    fn refused(self, reason: &'static str) -> Self {
        Self { status: Status::Refused(reason), ..self }
    }

    fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    fn adds(self) -> Self {
        Self { repeat: Repeat::Adds, ..self }
    }

    fn once(self) -> Self {
        Self { repeat: Repeat::Refused, ..self }
    }

    fn negatable(self) -> Self {
        Self { negatable: true, ..self }
    }

    fn named_only(self) -> Self {
        Self { named_defaults_only: true, ..self }
    }

    /// The usage: `<name> [<option>...]`. Empty without arguments.
    pub fn usage(&self) -> String {
        match &self.shape {
            Shape::Flag => String::new(),
            Shape::Own(usage, _) => (*usage).to_owned(),
            Shape::Args(args) => args.iter().map(Arg::usage).collect::<Vec<_>>().join(" "),
        }
    }

    /// The error for a wrong number of arguments.
    pub(crate) fn expects(&self, found: usize) -> String {
        expects(self.name, &self.usage(), found)
    }

    /// True if sections inherit it from `defaults`.
    pub fn inherited(&self) -> bool {
        self.contexts.contains(KeywordContext::Defaults)
    }
}

/// The error for a wrong number of arguments: `'maxconn' expects <number>, found none`.
pub fn expects(name: &str, usage: &str, found: usize) -> String {
    let usage = if usage.is_empty() { "no argument" } else { usage };
    match found {
        0 => format!("'{name}' expects {usage}, found none"),
        1 => format!("'{name}' expects {usage}, found 1 argument"),
        found => format!("'{name}' expects {usage}, found {found} arguments"),
    }
}

/// A name and its usage. Parentheses follow the name without a space.
pub(crate) fn with_arguments(name: &str, usage: &str) -> String {
    let blank = if usage.is_empty() || usage.starts_with('(') { "" } else { " " };
    format!("{name}{blank}{usage}")
}

/// All keywords, indexed by name.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Keyword>,
    /// Indexes of the rows with a name.
    names: HashMap<&'static str, Vec<usize>>,
    /// Indexes of the rows of several words with a first word.
    heads: HashMap<&'static str, Vec<usize>>,
    /// Words in the longest name.
    longest: usize,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let families: [(&'static str, Vec<Keyword>); 16] = [
        ("Process", global::rows()),
        ("Tuning", tune::rows()),
        ("TLS", ssl::rows()),
        ("Proxies", proxy::rows()),
        ("Timeouts", timeouts::rows()),
        ("Options", options::rows()),
        ("Rules", rules::rows()),
        ("Logs", [logs::rows(), forward::rows()].concat()),
        ("Health checks", checks::rows()),
        ("Stickiness", stick::rows()),
        ("Statistics", stats::rows()),
        ("Other sections", misc::rows()),
        ("Bind options", bind::rows()),
        ("Server options", server::rows()),
        ("Removed from HAProxy", gone::rows()),
        ("Sections", context::rows()),
    ];
    let mut table = Table { rows: Vec::new(), names: HashMap::new(), heads: HashMap::new(), longest: 0 };
    for (family, rows) in families {
        for row in rows {
            table.longest = table.longest.max(row.name.split(' ').count());
            table.names.entry(row.name).or_default().push(table.rows.len());
            if let Some((head, _)) = row.name.split_once(' ') {
                table.heads.entry(head).or_default().push(table.rows.len());
            }
            table.rows.push(unbuilt::settled(Keyword { family, ..row }));
        }
    }
    table
});

impl Table {
    /// The table, built on first use.
    pub fn get() -> &'static Self {
        &TABLE
    }

    /// All rows, by family.
    pub fn rows(&self) -> &[Keyword] {
        &self.rows
    }

    /// All rows with a name.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Keyword> {
        self.names.get(name).into_iter().flatten().map(|&index| &self.rows[index])
    }

    /// What follows the word `head` in names that are valid in a context.
    pub(crate) fn following(&self, head: &[u8], context: KeywordContext) -> Vec<&'static str> {
        let rows = std::str::from_utf8(head).ok().and_then(|head| self.heads.get(head)).into_iter().flatten();
        let rows = rows.map(|&index| &self.rows[index]).filter(|row| row.contexts.contains(context));
        rows.filter_map(|row| row.name.split_once(' ')).map(|(_, rest)| rest).collect()
    }

    /// Returns the sections with keywords that begin with the word `head`; none if it is a keyword itself.
    pub(crate) fn sections_of(&self, head: &[u8]) -> Vec<&'static str> {
        let rows = std::str::from_utf8(head).ok().and_then(|head| self.heads.get(head)).into_iter().flatten();
        let rows: Vec<&Keyword> = rows.map(|&index| &self.rows[index]).collect();
        let has = |context: &KeywordContext| rows.iter().any(|row| row.contexts.contains(*context));
        if rows.iter().any(|row| row.name.as_bytes() == head) {
            return Vec::new();
        }
        KeywordContext::sections().filter(has).map(KeywordContext::name).collect()
    }

    /// The row with a name that is valid in a place.
    pub fn find(&self, name: &str, context: KeywordContext) -> Option<&Keyword> {
        self.named(name).find(|row| row.contexts.contains(context))
    }

    /// The row with the longest name at the beginning of `words`, and the number of its words. Prefers a row
    /// that is valid in `context`, even to a longer one that is not.
    pub(crate) fn longest(&self, words: &[&[u8]], context: KeywordContext) -> Option<(&Keyword, usize)> {
        let mut elsewhere = None;
        let mut name = Vec::new();
        let mut candidates = Vec::new();
        for (index, word) in words.iter().take(self.longest).enumerate() {
            if index > 0 {
                name.push(b' ');
            }
            name.extend_from_slice(word);
            candidates.push(name.clone());
        }
        for (index, name) in candidates.iter().enumerate().rev() {
            let Ok(name) = std::str::from_utf8(name) else { continue };
            if let Some(row) = self.find(name, context) {
                return Some((row, index + 1));
            }
            if elsewhere.is_none() {
                // In a proxy, prefer the row of another kind of proxy to one of `global`.
                let related = |row: &&Keyword| {
                    context.is_proxy()
                        && KeywordContext::PROXIES.iter().any(|related| row.contexts.contains(*related))
                };
                let row = self.named(name).find(related).or_else(|| self.named(name).next());
                elsewhere = row.map(|row| (row, index + 1));
            }
        }
        elsewhere
    }

    /// All names that are valid in a place.
    pub(crate) fn valid_in(&self, context: KeywordContext) -> impl Iterator<Item = &'static str> {
        self.rows.iter().filter(move |row| row.contexts.contains(context)).map(|row| row.name)
    }

    /// `; did you mean 'x'?` with the nearest name that is valid in `context`, or an empty string.
    pub(crate) fn guess(&self, words: &[&[u8]], context: KeywordContext) -> String {
        // A header may follow anywhere.
        let legal = || self.valid_in(context).chain(KeywordContext::section_names());
        // Compare as many words as the name has: `option httplg` as a whole.
        for count in (1..=words.len().min(self.longest)).rev() {
            let typed = words[..count].join(&b' ');
            let guess = guess(&typed, legal().filter(|name| name.split(' ').count() == count));
            if !guess.is_empty() {
                return guess;
            }
        }
        // Several names may share the first word, such as `timeout`.
        words
            .first()
            .map_or(String::new(), |word| guess(word, legal().filter_map(|name| name.split(' ').next())))
    }
}
