//! One line: finds its keyword, checks its context and arguments, and runs its handler.

use super::section::Current;
use super::{Builder, proposal};
use crate::LISTED;
use crate::diag::Severity;
use crate::lex::Word;
use crate::source::Pos;
use crate::table::{Arg, Count, Keyword, KeywordContext, Kind, Repeat, Shape, Status, Table, unbuilt};
use crate::tree::{Set, Statement};
use crate::value::{self, Unit, Value, ValueError};
use std::fmt::Display;
use std::time::Duration;

/// A line whose shape was checked. It can also be one option of a `bind` or `server` line.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) keyword: &'static Keyword,
    pub(crate) prefix: Prefix,
    /// The first word of the keyword.
    pub(crate) head: &'a Word,
    /// The words after the keyword.
    pub(crate) words: &'a [Word],
    /// The arguments of a [`Shape::Args`].
    pub(crate) values: Vec<Value>,
}

/// The prefix of a keyword: `no`, `default`, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    None,
    No,
    Default,
}

/// Keywords other than `timeout` for which HAProxy warns of a time below 100 ms without a unit.
const SHORT_TIMES: [&str; 4] = ["agent-inter", "downinter", "fastinter", "inter"];

/// Keywords that HAProxy refuses if misplaced. It ignores others with a warning.
const REFUSED_IN_FRONTENDS: [&str; 7] = [
    "server",
    "server-template",
    "default-server",
    "retry-on",
    "tcp-response content",
    "tcp-response inspect-delay",
    "use-fcgi-app",
];
const REFUSED_IN_BACKENDS: [&str; 3] = ["declare capture", "tcp-request connection", "tcp-request session"];

impl Builder<'_> {
    /// Handles a line that is not a section header.
    pub(super) fn keyword(&mut self, words: &[Word]) {
        if self.skips() {
            return;
        }
        let context = self.context();
        if context == KeywordContext::Top {
            let head = &words[0];
            let bytes: Vec<&[u8]> = words.iter().map(Word::bytes).collect();
            let known = Table::get().longest(&bytes, context).is_some();
            let rest = if known {
                "; a line with the section that it belongs to, such as 'global', is expected before it".into()
            } else {
                proposal(head, KeywordContext::section_names())
            };
            let message = format!("unknown keyword '{}' out of section{rest}", head.shown_name());
            let meant = if known { None } else { self.misspelt_section(words) };
            self.found.alert(head.pos(), message);
            // Its lines are read as those of the section that was meant.
            if let Some(meant) = meant {
                self.begin_section(meant, words);
            }
            return;
        }
        let (prefix, words) = match words {
            [no, rest @ ..] if *no == "no" && !rest.is_empty() => (Prefix::No, rest),
            [default, rest @ ..] if *default == "default" && !rest.is_empty() => (Prefix::Default, rest),
            _ => (Prefix::None, words),
        };
        let bytes: Vec<&[u8]> = words.iter().map(Word::bytes).collect();
        let Some((keyword, count)) = Table::get().longest(&bytes, context) else {
            let meant = if prefix == Prefix::None { self.misspelt_section(words) } else { None };
            self.unknown(words, &bytes, context);
            if let Some(meant) = meant {
                self.begin_section(meant, words);
            }
            return;
        };
        let head = &words[0];
        if !keyword.contexts.contains(context) {
            return self.misplaced(keyword, words, &bytes, context);
        }
        if context == KeywordContext::Defaults
            && keyword.named_defaults_only
            && self.proxy().name.bytes().is_empty()
        {
            let message = format!(
                "'{}' expects a 'defaults' section with a name, found one without: write 'defaults <name>'",
                keyword.name
            );
            return self.found.alert(head.pos(), message);
        }
        if prefix != Prefix::None
            && !(keyword.negatable && (prefix == Prefix::No || keyword.name.starts_with("option ")))
        {
            let word = if prefix == Prefix::No { "no" } else { "default" };
            let message = format!("'{}' expects no '{word}' before it: remove that word", keyword.name);
            return self.found.alert(head.pos(), message);
        }
        if keyword.repeat == Repeat::Refused && !self.used.insert(keyword.name) {
            return self.found.alert(
                head.pos(),
                format!(
                    "'{}' expects one line in a section, found another: remove one of them",
                    keyword.name
                ),
            );
        }
        self.obey(keyword, prefix, head, &words[count..]);
    }

    fn unknown(&mut self, words: &[Word], bytes: &[&[u8]], context: KeywordContext) {
        let head = &words[0];
        // For `timeout clent`: the first word is known, so the second one is wrong.
        let following = Table::get().following(head.bytes(), context);
        if !following.is_empty() {
            let section = context.name();
            let Some(word) = words.get(1) else {
                let message = format!("'{}' expects a further word, found none", head.shown());
                return self.found.alert_with(head.pos(), message, || listed(head, following));
            };
            let message = format!("unknown {} '{}' in '{section}' section", head.shown(), word.shown_name());
            let mut meant = None;
            self.found.alert_with(word.pos(), message, || {
                meant = crate::nearest(word.bytes(), following.iter().copied());
                match crate::guess(word.bytes(), following.iter().copied()) {
                    none if none.is_empty() => listed(head, following),
                    guess => guess,
                }
            });
            return self.refused_near(meant.map(|rest| format!("{} {rest}", head.shown())), words);
        }
        let sections = Table::get().sections_of(head.bytes());
        if !sections.is_empty() {
            return self.found.alert(head.pos(), misplaced(head.shown(), context, &sections));
        }
        let message = format!("unknown keyword '{}' in '{}' section", head.shown_name(), context.name());
        let mut meant = None;
        self.found.alert_with(head.pos(), message, || {
            meant = crate::nearest(head.bytes(), Table::get().valid_in(context)).map(str::to_owned);
            Table::get().guess(bytes, context)
        });
        self.refused_near(meant, words);
    }

    /// Reports a keyword that is not valid here.
    fn misplaced(
        &mut self,
        keyword: &'static Keyword,
        words: &[Word],
        bytes: &[&[u8]],
        context: KeywordContext,
    ) {
        let (name, head) = (keyword.name, &words[0]);
        let warns = match context {
            KeywordContext::Frontend => {
                keyword.contexts.contains(KeywordContext::Backend) && !REFUSED_IN_FRONTENDS.contains(&name)
            }
            KeywordContext::Backend => {
                keyword.contexts.contains(KeywordContext::Frontend) && !REFUSED_IN_BACKENDS.contains(&name)
            }
            _ => false,
        };
        if warns {
            let (own, missing, hint) = match (context, name) {
                (KeywordContext::Frontend, "fullconn") => {
                    ("frontend", "backend", ". Maybe you want 'maxconn' instead ?")
                }
                (KeywordContext::Frontend, _) => ("frontend", "backend", ""),
                (_, "maxconn") => ("backend", "frontend", ". Maybe you want 'fullconn' instead ?"),
                _ => ("backend", "frontend", ""),
            };
            let proxy = self.proxy().name.shown().to_string();
            let message =
                format!("'{name}' ignored because {own} '{proxy}' has no {missing} capability{hint}");
            return self.found.warning(head.pos(), message);
        }
        let legal: Vec<&str> = keyword
            .contexts
            .iter()
            .filter(|context| *context < KeywordContext::BindOption)
            .map(KeywordContext::name)
            .collect();
        if legal.is_empty() {
            return self.unknown(words, bytes, context);
        }
        self.found.alert(head.pos(), misplaced(name, context, &legal));
    }

    /// Notes that an unknown keyword at the beginning of `words` was probably meant to be `name`.
    fn refused_near(&mut self, name: Option<String>, words: &[Word]) {
        if let Some(row) = name.and_then(|name| Table::get().find(&name, self.context())) {
            self.refused(row.name, words.get(row.name.split(' ').count()..).unwrap_or_default());
        }
    }

    /// Checks the arguments of a keyword and runs its handler.
    pub(super) fn obey(&mut self, keyword: &'static Keyword, prefix: Prefix, head: &Word, words: &[Word]) {
        let errors = self.found.errors();
        self.run(keyword, prefix, head, words);
        if self.found.errors() > errors {
            self.refused(keyword.name, words);
        }
    }

    fn run(&mut self, keyword: &'static Keyword, prefix: Prefix, head: &Word, words: &[Word]) {
        let handler = match keyword.status {
            Status::Built(handler) | Status::Words(handler) => Ok(handler),
            Status::Idle(reason) => Err(reason),
            Status::Refused(reason) => {
                let message =
                    format!("'{}' is a keyword of HAProxy that this program refuses: {reason}", keyword.name);
                return self.found.alert(head.pos(), message);
            }
        };
        let mut line = Line { keyword, prefix, head, words, values: Vec::new() };
        match &keyword.shape {
            Shape::Flag => line.no_more(self, 0),
            Shape::Own(_, min) => {
                // A keyword with `no` or `default` needs no arguments.
                if words.len() < *min && prefix == Prefix::None {
                    return self.found.alert(line.end(), keyword.expects(words.len()));
                }
            }
            Shape::Args(args) => {
                let Some(values) = self.values(&line, args) else { return };
                line.values = values;
            }
        }
        match handler {
            Ok(handler) => (handler.0)(self, &line),
            Err(reason) => {
                // Not a warning: with `zero-warning` it would refuse a file that HAProxy accepts.
                let message = format!("'{}' has no effect here: {reason}", keyword.name);
                self.found.push(Severity::Notice, Some(head.pos()), message);
            }
        }
    }

    /// Reports a word that is not a valid value.
    fn unfit(&mut self, keyword: &'static Keyword, word: &Word, error: ValueError) {
        let message = match unbuilt::choice(keyword.name, word.bytes()) {
            Some(why) => {
                let shown = word.shown();
                format!("'{} {shown}' is a keyword of HAProxy that this program refuses: {why}", keyword.name)
            }
            None => {
                format!(
                    "'{}' expects {}, found '{}'{}",
                    keyword.name,
                    keyword.usage(),
                    word.shown(),
                    unbuilt::hint(keyword.name, word.bytes()).unwrap_or(&error.message)
                )
            }
        };
        self.found.alert(word.pos_at(error.at), message);
    }

    /// Notes that a line with this keyword was refused, so that checks do not treat the setting, or the name
    /// that the line declares, as missing.
    fn refused(&mut self, name: &'static str, words: &[Word]) {
        let section = self.section_word().map(Word::pos);
        if let (Some(section), Some(word)) = (section, words.first()) {
            self.config.refused.entry(section).or_default().insert((name, word.bytes().to_vec()));
        }
        if matches!(self.current, Current::Proxy(_) | Current::Healthcheck(_))
            && !self.settings().refused.contains(&name)
        {
            self.settings().refused.push(name);
        }
    }

    /// Warns of a unit that is written as a word (`15min`), and of times that look like seconds without a
    /// unit.
    pub(crate) fn doubtful_time(&mut self, name: &str, word: &Word, unit: Unit) {
        let shown = word.shown();
        if let Some(letters) = value::long_unit(word.bytes()) {
            let length = word.bytes().len() - letters;
            let read = word.slice(0..length);
            let message =
                format!("'{name}' reads '{shown}' as {}: the units are us, ms, s, m, h and d", read.shown());
            return self.found.warning(word.pos_at(length), message);
        }
        let number = word.bytes().iter().all(u8::is_ascii_digit) && word.text() != Some("0");
        if unit == Unit::Ms
            && number
            && word.bytes().len() <= 2
            && self.context() != KeywordContext::Ring
            && (name.starts_with("timeout ") || name.starts_with("hold ") || SHORT_TIMES.contains(&name))
        {
            let message = format!(
                "'{name} {shown}' is suspiciously small for milliseconds; write {shown}s if these are \
                    seconds, or {shown}ms"
            );
            // HAProxy refuses these of resolvers.
            match self.context() {
                KeywordContext::Resolvers => self.found.alert(word.pos(), message),
                _ => self.found.warning(word.pos(), message),
            }
        }
    }

    fn values(&mut self, line: &Line<'_>, args: &[Arg]) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        let mut complete = true;
        for (index, arg) in args.iter().enumerate() {
            match line.words.get(index) {
                Some(word) => match arg.kind.read(word) {
                    Ok(value) => {
                        if let Kind::Time(unit) | Kind::Interval(unit) = arg.kind {
                            self.doubtful_time(line.keyword.name, word, unit);
                        }
                        values.push(value);
                    }
                    Err(error) => {
                        self.unfit(line.keyword, word, error);
                        complete = false;
                    }
                },
                None if arg.count == Count::Optional => {}
                None => {
                    self.found.alert(line.end(), line.keyword.expects(line.words.len()));
                    return None;
                }
            }
        }
        line.no_more(self, args.len());
        complete.then_some(values)
    }
}

/// The error of a keyword that only the sections `legal` have.
fn misplaced(name: impl Display, context: KeywordContext, legal: &[&str]) -> String {
    format!("'{name}' not allowed in '{}' section; it belongs to {}", context.name(), legal.join(", "))
}

/// The words that can follow `head`, or where to find them if they are many.
fn listed(head: &Word, mut following: Vec<&str>) -> String {
    if following.len() > LISTED {
        return format!("; 'manylane --help {}' lists those that there are", head.shown());
    }
    following.sort_unstable();
    format!(", there are '{}'", following.join("', '"))
}

/// Puts a colon before the message, to follow the word that it is about.
fn because(error: ValueError) -> ValueError {
    ValueError { message: format!(": {}", error.message), ..error }
}

impl Kind {
    /// Parses a word. The message of an error follows the quoted word.
    fn read(&self, word: &Word) -> Result<Value, ValueError> {
        let bytes = word.bytes();
        let one_of = |words: &'static [&'static str]| {
            words
                .iter()
                .copied()
                .find(|known| known.as_bytes() == bytes)
                .ok_or_else(|| ValueError { at: 0, message: proposal(word, words.iter().copied()) })
        };
        Ok(match *self {
            Self::Int(min, max) => Value::Int(value::integer(bytes, min, max).map_err(because)?),
            Self::Time(unit) => Value::Time(value::time(bytes, unit).map_err(because)?),
            Self::Interval(unit) => match value::time(bytes, unit).map_err(because)? {
                Duration::ZERO => return Err(ValueError { at: 0, message: ": it must be above 0".into() }),
                time => Value::Time(time),
            },
            Self::Size(min, max) => Value::Size(value::size(bytes, min, max).map_err(because)?),
            Self::Choice(words) => Value::Choice(one_of(words)?),
            Self::Switch => Value::Switch(one_of(&["on", "off"])? == "on"),
            Self::Text if bytes.is_empty() => {
                return Err(ValueError { at: 0, message: ": it must not be empty".into() });
            }
            Self::Text => Value::Text(word.clone()),
        })
    }
}

/// Message for a handler that asks for an argument that its row does not have.
const SHAPED: &str = "the row's shape has this argument";

impl Line<'_> {
    pub(crate) fn pos(&self) -> Pos {
        self.head.pos()
    }

    /// Position of the next word, after the last one.
    pub(crate) fn end(&self) -> Pos {
        let last = self.words.last().unwrap_or(self.head);
        if self.words.is_empty() { self.head.pos() } else { last.pos_at(usize::MAX) }
    }

    pub(crate) fn set<T>(&self, value: T) -> Set<T> {
        Set { value, pos: self.pos() }
    }

    /// A setting whose findings mark its value, the first argument.
    pub(crate) fn argument<T>(&self, value: T) -> Set<T> {
        Set { value, pos: self.words.first().unwrap_or(self.head).pos() }
    }

    /// Always true: the flag is present.
    pub(crate) fn given(&self) -> bool {
        true
    }

    /// True unless `no` or `default` precedes it.
    pub(crate) fn on(&self) -> bool {
        self.prefix == Prefix::None
    }

    pub(crate) fn int(&self, index: usize) -> i64 {
        let Some(Value::Int(value)) = self.values.get(index) else { panic!("{SHAPED}") };
        *value
    }

    pub(crate) fn time(&self, index: usize) -> Duration {
        let Some(Value::Time(value)) = self.values.get(index) else { panic!("{SHAPED}") };
        *value
    }

    pub(crate) fn size(&self, index: usize) -> u64 {
        let Some(Value::Size(value)) = self.values.get(index) else { panic!("{SHAPED}") };
        *value
    }

    pub(crate) fn choice(&self, index: usize) -> &'static str {
        let Some(Value::Choice(value)) = self.values.get(index) else { panic!("{SHAPED}") };
        value
    }

    pub(crate) fn switch(&self, index: usize) -> bool {
        let Some(Value::Switch(value)) = self.values.get(index) else { panic!("{SHAPED}") };
        *value
    }

    /// The word at `index`. The row guarantees a minimum number of words.
    pub(crate) fn text(&self, index: usize) -> &Word {
        &self.words[index]
    }

    /// A copy of that word for the tree.
    pub(crate) fn word(&self, index: usize) -> Word {
        self.words[index].clone()
    }

    /// The words from `index` on, joined by spaces.
    pub(crate) fn sentence(&self, index: usize) -> Word {
        Word::join(self.words.get(index..).unwrap_or_default(), self.end())
    }

    pub(crate) fn statement(&self) -> Statement {
        Statement { keyword: self.keyword.name, words: self.words.to_vec(), pos: self.pos() }
    }

    /// Reports an error if there are more than `count` words.
    pub(crate) fn no_more(&self, b: &mut Builder<'_>, count: usize) {
        if let Some(extra) = self.words.get(count) {
            b.found.alert(extra.pos(), self.keyword.expects(self.words.len()));
        }
    }

    /// Parses the word at `index` by `read`, or reports an error.
    pub(crate) fn own<T>(
        &self,
        b: &mut Builder<'_>,
        index: usize,
        read: impl FnOnce(&[u8]) -> Result<T, ValueError>,
    ) -> Option<T> {
        let Some(word) = self.words.get(index) else {
            b.found.alert(self.end(), self.keyword.expects(self.words.len()));
            return None;
        };
        match read(word.bytes()) {
            Ok(value) => Some(value),
            Err(error) => {
                b.unfit(self.keyword, word, because(error));
                None
            }
        }
    }

    /// Parses the word at `index` as an integer, or reports an error.
    pub(crate) fn own_int(&self, b: &mut Builder<'_>, index: usize, min: i64, max: i64) -> Option<i64> {
        self.own(b, index, |bytes| value::integer(bytes, min, max))
    }

    /// Parses the word at `index` as a time in milliseconds, or reports an error.
    pub(crate) fn own_time(&self, b: &mut Builder<'_>, index: usize) -> Option<Duration> {
        self.own_time_in(b, index, Unit::Ms)
    }

    /// Parses the word at `index` as a time, or reports an error.
    pub(crate) fn own_time_in(&self, b: &mut Builder<'_>, index: usize, unit: Unit) -> Option<Duration> {
        let time = self.own(b, index, |bytes| value::time(bytes, unit));
        if let (Some(_), Some(word)) = (time, self.words.get(index)) {
            b.doubtful_time(self.keyword.name, word, unit);
        }
        time
    }

    /// Parses the word at `index` as a size, or reports an error.
    pub(crate) fn own_size(&self, b: &mut Builder<'_>, index: usize, min: u64, max: u64) -> Option<u64> {
        self.own(b, index, |bytes| value::size(bytes, min, max))
    }

    /// Parses the word at `index` as one of `words`, or reports an error.
    pub(crate) fn own_choice(
        &self,
        b: &mut Builder<'_>,
        index: usize,
        words: &'static [&'static str],
    ) -> Option<&'static str> {
        let word = self.words.get(index)?;
        match Kind::Choice(words).read(word) {
            Ok(Value::Choice(choice)) => Some(choice),
            Ok(_) => None,
            Err(error) => {
                let name = self.keyword.name;
                match unbuilt::choice(name, word.bytes()) {
                    Some(_) => b.unfit(self.keyword, word, error),
                    None => {
                        let message = format!(
                            "'{name}' expects {}, found '{}'{}",
                            words.join("|"),
                            word.shown(),
                            error.message
                        );
                        b.found.alert(word.pos(), message);
                    }
                }
                None
            }
        }
    }
}
