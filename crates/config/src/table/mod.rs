//! The table of keywords: every keyword of HAProxy's configuration language, once.
//!
//! A row says where a keyword is legal, what arguments it takes and in which unit, its default, whether
//! sections inherit it from `defaults`, what its repetition means, and whether it is built. The reader, the
//! messages, `--help KEYWORD` and `docs/configuration.md` are made from these rows; tests walk them. A
//! keyword that HAProxy knows and this program has not is a row with a reason: using it is an error that says
//! so.

mod bind;
mod checks;
mod global;
mod gone;
mod logs;
mod misc;
mod options;
mod proxy;
mod rules;
mod section;
mod server;
mod ssl;
mod stats;
mod stick;
mod timeouts;
mod tls;
mod tune;
pub(crate) mod unbuilt;

pub use bind::BindOptions;
pub use options::Toggle;
pub use rules::{Action, Ruleset};
pub use section::{SectionKind, SectionKinds};
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

/// What obeys a line whose shape was checked.
#[derive(Clone, Copy, Debug)]
pub struct Handler(pub(crate) fn(&mut Builder<'_>, &Line<'_>));

/// One keyword.
#[derive(Clone, Debug)]
pub struct Keyword {
    /// The word, or words separated by single spaces, as written: `maxconn`, `timeout client`.
    pub name: &'static str,
    /// The family, a chapter of the reference.
    pub family: &'static str,
    /// Where it is legal.
    pub places: SectionKinds,
    /// In `defaults` sections only if they have a name.
    pub named_defaults_only: bool,
    /// What follows it.
    pub shape: Shape,
    /// What holds without it, in words; empty when nothing does.
    pub default: &'static str,
    /// What a second line with it means.
    pub repeat: Repeat,
    /// `no` may stand before it.
    pub negatable: bool,
    /// Whether it is built.
    pub status: Status,
    /// What of it is refused, or has no effect, though the rest is built; empty when nothing is.
    pub but: &'static str,
    /// What it does, in one sentence without its full stop.
    pub help: &'static str,
}

/// What follows a keyword.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Nothing.
    Flag,
    /// These, checked before the keyword's own code runs.
    Args(Vec<Arg>),
    /// A grammar of its own: how it is shown, and how many words there must be at least.
    Own(&'static str, usize),
}

/// One argument.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// What it is called in messages and in the reference.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// How often it stands there.
    pub count: Count,
}

/// What an argument may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An integer in this range.
    Int(i64, i64),
    /// A time; the unit holds where none is written.
    Time(Unit),
    /// The same above zero: how often something is done.
    Interval(Unit),
    /// Bytes in this range.
    Size(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `on` or `off`.
    Switch,
    /// Any word that is not empty.
    Text,
}

/// How often an argument stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Once.
    One,
    /// Once or not at all.
    Optional,
}

/// What a second line with the same keyword means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It replaces the first.
    Replaces,
    /// It is added to the first.
    Adds,
    /// It is an error.
    Refused,
}

/// Whether a keyword is built.
#[derive(Clone, Copy, Debug)]
pub enum Status {
    /// Its meaning is in the checked tree.
    Built(Handler),
    /// It is kept in the tree as words with positions, and `expr` reads them.
    Words(Handler),
    /// It is accepted and does nothing here, with a notice that says why.
    Idle(&'static str),
    /// It is an error, and this is why.
    Refused(&'static str),
}

impl Status {
    /// A word for the reference.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Built(_) => "read",
            Self::Words(_) => "read, expressions kept as words",
            Self::Idle(_) => "accepted without effect",
            Self::Refused(_) => "refused",
        }
    }

    /// Why it does nothing or is refused.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Built(_) | Self::Words(_) => None,
            Self::Idle(reason) | Self::Refused(reason) => Some(reason),
        }
    }
}

/// A row with one argument or none is written in one line: these and the methods below are its words.
fn row(name: &'static str, places: SectionKinds, shape: Shape, help: &'static str) -> Keyword {
    Keyword {
        name,
        family: "",
        places,
        named_defaults_only: false,
        shape,
        default: "",
        repeat: Repeat::Replaces,
        negatable: false,
        status: Status::Refused("it is not built yet"),
        but: "",
        help,
    }
}

fn flag(name: &'static str, places: SectionKinds, help: &'static str) -> Keyword {
    row(name, places, Shape::Flag, help)
}

fn args<const N: usize>(
    name: &'static str,
    places: SectionKinds,
    args: [Arg; N],
    help: &'static str,
) -> Keyword {
    row(name, places, Shape::Args(args.into()), help)
}

/// `min`: how many words there must be.
fn own(
    name: &'static str,
    places: SectionKinds,
    usage: &'static str,
    min: usize,
    help: &'static str,
) -> Keyword {
    row(name, places, Shape::Own(usage, min), help)
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
    /// As it is written: `<number>`, `on|off`.
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

    /// Its arguments as they are written: `<name> [<option>...]`; empty without any.
    pub fn usage(&self) -> String {
        match &self.shape {
            Shape::Flag => String::new(),
            Shape::Own(usage, _) => (*usage).to_owned(),
            Shape::Args(args) => args.iter().map(Arg::usage).collect::<Vec<_>>().join(" "),
        }
    }

    /// For messages: what it expects, and how many arguments it has.
    pub(crate) fn expects(&self, found: usize) -> String {
        expects(self.name, &self.usage(), found)
    }

    /// Whether sections take it over from their `defaults`.
    pub fn inherited(&self) -> bool {
        self.places.contains(SectionKind::Defaults)
    }
}

/// `'maxconn' expects <number>, found no argument`: the one form of what is wrong about a number of
/// arguments.
pub fn expects(name: &str, usage: &str, found: usize) -> String {
    let usage = if usage.is_empty() { "no argument" } else { usage };
    match found {
        0 => format!("'{name}' expects {usage}, found none"),
        1 => format!("'{name}' expects {usage}, found 1 argument"),
        found => format!("'{name}' expects {usage}, found {found} arguments"),
    }
}

/// A name and its arguments, as they are written: parentheses follow without a blank.
pub(crate) fn with_arguments(name: &str, usage: &str) -> String {
    let blank = if usage.is_empty() || usage.starts_with('(') { "" } else { " " };
    format!("{name}{blank}{usage}")
}

/// All keywords, and how they are found.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Keyword>,
    /// Rows of a name, by name.
    names: HashMap<&'static str, Vec<usize>>,
    /// Words of the longest name.
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
        ("Logs", logs::rows()),
        ("Health checks", checks::rows()),
        ("Stickiness", stick::rows()),
        ("Statistics", stats::rows()),
        ("Other sections", misc::rows()),
        ("Bind options", bind::rows()),
        ("Server options", server::rows()),
        ("Removed from HAProxy", gone::rows()),
        ("Sections", section::rows()),
    ];
    let mut table = Table { rows: Vec::new(), names: HashMap::new(), longest: 0 };
    for (family, rows) in families {
        for row in rows {
            table.longest = table.longest.max(row.name.split(' ').count());
            table.names.entry(row.name).or_default().push(table.rows.len());
            table.rows.push(unbuilt::settled(Keyword { family, ..row }));
        }
    }
    table
});

impl Table {
    /// The table.
    pub fn get() -> &'static Self {
        &TABLE
    }

    /// All rows, by family.
    pub fn rows(&self) -> &[Keyword] {
        &self.rows
    }

    /// All rows of a name.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Keyword> {
        self.names.get(name).into_iter().flatten().map(|&index| &self.rows[index])
    }

    /// The row of a name in a place.
    pub fn find(&self, name: &str, place: SectionKind) -> Option<&Keyword> {
        self.named(name).find(|row| row.places.contains(place))
    }

    /// The row with the longest name that the words begin with, legal in `place` or not, and the number of
    /// its words. One that is legal goes before a longer one that is not.
    pub(crate) fn longest(&self, words: &[&[u8]], place: SectionKind) -> Option<(&Keyword, usize)> {
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
            if let Some(row) = self.find(name, place) {
                return Some((row, index + 1));
            }
            if elsewhere.is_none() {
                // Of two rows the one of the nearer relation: for a backend a row of proxies, not of
                // `global`.
                let related = |row: &&Keyword| {
                    place.is_proxy()
                        && SectionKind::PROXIES.iter().any(|related| row.places.contains(*related))
                };
                let row = self.named(name).find(related).or_else(|| self.named(name).next());
                elsewhere = row.map(|row| (row, index + 1));
            }
        }
        elsewhere
    }

    /// `; did you mean 'x'?` with the names legal in `place` that are nearest to the beginning of a line, or
    /// nothing.
    pub(crate) fn guess(&self, words: &[&[u8]], place: SectionKind) -> String {
        let legal = || self.rows.iter().filter(|row| row.places.contains(place)).map(|row| row.name);
        // With as many words as the name has, so that `option httplg` is compared as a whole.
        for count in (1..=words.len().min(self.longest)).rev() {
            let typed = words[..count].join(&b' ');
            let guess = guess(&typed, legal().filter(|name| name.split(' ').count() == count));
            if !guess.is_empty() {
                return guess;
            }
        }
        // The first word alone may be the beginning of several: `timeout`.
        words
            .first()
            .map_or(String::new(), |word| guess(word, legal().filter_map(|name| name.split(' ').next())))
    }
}
