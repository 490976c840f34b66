//! Actions of `http-request`, `http-response` and `http-after-response`.

use super::{
    Action, Addressed, Change, ConnectionAction, Listed, Made, NameMatch, Reader, Replaced, TimeoutOf,
};
use crate::rules::Normalizer;
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::table::Ruleset;
use manylane_config::tree;
use manylane_config::value::{self, Unit};
use manylane_expr::{Expression, Places, Regex, Use, VariableId, When};
use manylane_logs::Level;

/// Words of `set-log-level`, in the order of their numbers.
const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

impl Reader<'_, '_, '_> {
    /// Reports that a rule is wrong at `pos`.
    fn wrong<T>(&mut self, rule: &tree::Rule, pos: Pos, message: &str) -> Option<T> {
        let keyword = format!("{} {}", rule.list.name(), rule.action.trim_end_matches('('));
        self.refuse.found.alert(pos, format!("'{keyword}' {message}"));
        None
    }

    pub(super) fn action(&mut self, rule: &tree::Rule, place: Places) -> Option<Action> {
        let tree::Rule { list, action, words, condition: _, pos } = rule;
        let [name, arguments @ ..] = &words[..] else { return None };
        let request = *list == Ruleset::HttpRequest;
        let header = |word: &Word| -> Box<[u8]> { word.bytes().into() };
        Some(match (*action, arguments) {
            ("allow", []) => Action::Allow,
            ("deny", []) => Action::Deny(if request { 403 } else { 502 }),
            ("deny" | "return" | "tarpit", _) => return self.reply(rule, arguments, place),
            ("auth", []) => Action::Auth(self.proxy_name.into()),
            ("auth", [word, realm]) if *word == *"realm" => Action::Auth(header(realm)),
            ("redirect", _) => {
                // The keyword of its own has no action in front.
                let arguments = if *list == Ruleset::Redirect { &words[..] } else { arguments };
                return self.redirect(rule, arguments, place);
            }
            ("reject", []) => Action::Reject,
            ("silent-drop", []) => Action::SilentDrop,
            ("set-header", [name, value]) => Action::SetHeader(header(name), self.format(value, Use::Header, place)?),
            ("add-header", [name, value]) => Action::AddHeader(header(name), self.format(value, Use::Header, place)?),
            ("early-hint", [name, value]) => Action::EarlyHint(header(name), self.format(value, Use::Header, place)?),
            ("del-header", [name]) => Action::DelHeader(header(name)),
            ("del-header", [name, flag, method]) if *flag == *"-m" => self.del_headers(rule, name, method)?,
            ("replace-header", [name, regex, value]) => {
                Action::ReplaceHeader(header(name), self.regex(regex)?, self.format(value, Use::Header, place)?)
            }
            ("replace-value", [name, regex, value]) => {
                Action::ReplaceValue(header(name), self.regex(regex)?, self.format(value, Use::Header, place)?)
            }
            ("replace-path" | "replace-pathq" | "replace-uri", [regex, value]) => {
                let part = match *action {
                    "replace-path" => Replaced::Path,
                    "replace-pathq" => Replaced::Pathq,
                    _ => Replaced::Uri,
                };
                Action::ReplaceTarget(part, self.regex(regex)?, self.format(value, Use::Header, place)?)
            }
            ("normalize-uri", [name, rest @ ..]) => Action::NormalizeUri(self.normalizer(rule, name, rest)?),
            ("set-method", [value]) => Action::SetMethod(self.format(value, Use::Header, place)?),
            ("set-path", [value]) => Action::SetPath(self.format(value, Use::Header, place)?),
            ("set-pathq", [value]) => Action::SetPathq(self.format(value, Use::Header, place)?),
            ("set-query", [value]) => Action::SetQuery(self.format(value, Use::Header, place)?),
            ("set-uri", [value]) => Action::SetUri(self.format(value, Use::Header, place)?),
            ("set-status", [code, rest @ ..]) => self.set_status(rule, code, rest)?,
            ("set-var(" | "set-var-fmt(", _) => {
                let (id, made, when) = self.set_var(rule, name, arguments, place)?;
                Action::SetVar(id, made, when)
            }
            ("unset-var(", []) => Action::UnsetVar(self.variable(rule, name)?.0),
            ("capture", [sample @ .., how, number]) if !sample.is_empty() => {
                self.capture(rule, sample, how, number, place)?
            }
            ("set-log-level", [level]) => Action::SetLogLevel(self.level(rule, level)?),
            ("set-timeout", [of, time @ ..]) if !time.is_empty() => self.set_timeout(rule, of, time, place)?,
            ("set-priority-class", [_, ..]) => Action::SetPriorityClass(self.expression(arguments, place)?),
            ("set-priority-offset", [_, ..]) => Action::SetPriorityOffset(self.expression(arguments, place)?),
            ("set-retries", [_, ..]) => Action::SetRetries(self.expression(arguments, place)?),
            ("set-src" | "set-src-port" | "set-dst" | "set-dst-port", [_, ..]) => {
                Action::SetAddress(addressed(action), self.expression(arguments, place)?)
            }
            ("set-nice", [number]) => {
                let Ok(number) = value::integer(number.bytes(), -1024, 1024) else {
                    return self.wrong(rule, number.pos(), "expects a number from -1024 to 1024");
                };
                Action::SetNice(number as i16)
            }
            ("disable-l7-retry", []) => Action::DisableRepetition,
            ("strict-mode", [word]) if *word == *"on" || *word == *"off" => Action::StrictMode(*word == *"on"),
            ("wait-for-handshake", []) => return None, // whatever handshakes there are were waited for before
            ("pause", [_, ..]) => Action::Pause(self.time(arguments, place)?),
            ("wait-for-body", _) => self.wait_for_body(rule, arguments)?,
            ("do-log", []) => Action::DoLog,
            ("add-acl(" | "del-acl(" | "del-map(", [key]) => self.change_list(rule, name, key, None, place)?,
            ("set-map(", [key, value]) => self.change_list(rule, name, key, Some(value), place)?,
            (
                "set-header" | "add-header" | "early-hint" | "del-header" | "replace-header" | "replace-value"
                | "replace-path" | "replace-pathq" | "replace-uri" | "set-method" | "set-path" | "set-pathq"
                | "set-query" | "set-uri" | "auth" | "reject" | "silent-drop" | "allow" | "capture" | "set-timeout"
                | "set-priority-class" | "set-priority-offset" | "set-retries" | "set-src" | "set-src-port"
                | "set-dst" | "set-dst-port" | "set-nice" | "set-log-level" | "set-status" | "normalize-uri"
                | "strict-mode" | "pause" | "disable-l7-retry" | "unset-var(" | "add-acl(" | "del-acl(" | "del-map("
                | "set-map(",
                _,
            ) => return self.wrong(rule, *pos, "has not the arguments that it takes"),
            _ => return self.not_built(rule),
        })
    }

    /// Actions of `tcp-request connection` and `tcp-request session`.
    pub(super) fn connection_action(&mut self, rule: &tree::Rule, place: Places) -> Option<ConnectionAction> {
        let [name, arguments @ ..] = &rule.words[..] else { return None };
        Some(match (rule.action, arguments) {
            ("accept", []) => ConnectionAction::Accept,
            ("reject", []) => ConnectionAction::Reject,
            ("silent-drop", []) => ConnectionAction::SilentDrop,
            ("set-var(" | "set-var-fmt(", _) => {
                let (id, made, when) = self.set_var(rule, name, arguments, place)?;
                ConnectionAction::SetVar(id, made, when)
            }
            ("unset-var(", []) => ConnectionAction::UnsetVar(self.variable(rule, name)?.0),
            ("set-src" | "set-src-port" | "set-dst" | "set-dst-port", [_, ..]) => {
                ConnectionAction::SetAddress(addressed(rule.action), self.expression(arguments, place)?)
            }
            _ => return self.not_built(rule),
        })
    }

    /// Words that are one expression: converters may stand apart from the fetch, commas hold them together.
    fn expression(&mut self, words: &[Word], place: Places) -> Option<Expression> {
        let first = words.first()?;
        let whole = Word::join(words, first.pos());
        match Expression::compile(whole.bytes(), place, self.compiler) {
            Ok(expression) => Some(expression),
            Err(error) => {
                self.refuse.found.alert(whole.pos_at(error.at), format!("expression : {error}"));
                None
            }
        }
    }

    fn regex(&mut self, word: &Word) -> Option<Regex> {
        match Regex::new(word.bytes(), false) {
            Ok(regex) => Some(regex),
            Err(why) => {
                self.refuse.found.alert(word.pos(), why);
                None
            }
        }
    }

    /// A time, or an expression that gives milliseconds.
    fn time(&mut self, words: &[Word], place: Places) -> Option<Change> {
        match words {
            [word] if word.bytes().first().is_some_and(u8::is_ascii_digit) => {
                match value::time(word.bytes(), Unit::Ms) {
                    Ok(time) => Some(Change::Fixed(time)),
                    Err(error) => {
                        self.refuse.found.alert(word.pos_at(error.at), format!("'{}' {}", word.shown(), error.message));
                        None
                    }
                }
            }
            words => self.expression(words, place).map(Change::Of),
        }
    }

    fn del_headers(&mut self, rule: &tree::Rule, name: &Word, method: &Word) -> Option<Action> {
        let text = || -> Box<[u8]> { name.bytes().into() };
        Some(match method.bytes() {
            b"str" => Action::DelHeader(text()),
            b"beg" => Action::DelHeaders(NameMatch::Begin(text())),
            b"end" => Action::DelHeaders(NameMatch::End(text())),
            b"sub" => Action::DelHeaders(NameMatch::Sub(text())),
            b"reg" => match Regex::new(name.bytes(), true) {
                Ok(regex) => Action::DelHeaders(NameMatch::Regex(regex)),
                Err(why) => {
                    self.refuse.found.alert(name.pos(), why);
                    return None;
                }
            },
            _ => return self.wrong(rule, method.pos(), "expects str, beg, end, sub or reg behind '-m'"),
        })
    }

    fn set_status(&mut self, rule: &tree::Rule, code: &Word, rest: &[Word]) -> Option<Action> {
        let Ok(number) = value::integer(code.bytes(), 100, 599) else {
            return self.wrong(rule, code.pos(), "expects a status from 100 to 599");
        };
        match rest {
            [] => Some(Action::SetStatus(number as u16, None)),
            [word, reason] if *word == *"reason" => Some(Action::SetStatus(number as u16, Some(reason.bytes().into()))),
            [word, ..] => self.wrong(rule, word.pos(), "expects 'reason' and a text behind the status"),
        }
    }

    fn level(&mut self, rule: &tree::Rule, word: &Word) -> Option<Option<Level>> {
        if *word == *"silent" {
            return Some(None);
        }
        match LEVELS.iter().position(|level| *word == **level) {
            Some(number) => Some(Some(Level::new(number as u8))),
            None => self.wrong(rule, word.pos(), &format!("expects one of {} or silent", LEVELS.join(", "))),
        }
    }

    fn normalizer(&mut self, rule: &tree::Rule, name: &Word, rest: &[Word]) -> Option<Normalizer> {
        let is = |option: &str| matches!(rest, [word] if *word == *option);
        let (full, strict) = (is("full"), is("strict"));
        Some(match (name.bytes(), rest.is_empty()) {
            (b"fragment-encode", true) => Normalizer::FragmentEncode,
            (b"fragment-strip", true) => Normalizer::FragmentStrip,
            (b"path-merge-slashes", true) => Normalizer::PathMergeSlashes,
            (b"path-strip-dot", true) => Normalizer::PathStripDot,
            (b"path-strip-dotdot", none) if none || full => Normalizer::PathStripDotdot { full },
            (b"percent-decode-unreserved", none) if none || strict => Normalizer::PercentDecodeUnreserved { strict },
            (b"percent-to-uppercase", none) if none || strict => Normalizer::PercentToUppercase { strict },
            (b"query-sort-by-name", true) => Normalizer::QuerySortByName,
            _ => {
                return self.wrong(
                    rule,
                    name.pos(),
                    "expects fragment-encode, fragment-strip, path-merge-slashes, path-strip-dot, path-strip-dotdot \
                     [full], percent-decode-unreserved [strict], percent-to-uppercase [strict] or query-sort-by-name",
                );
            }
        })
    }

    fn capture(
        &mut self,
        rule: &tree::Rule,
        sample: &[Word],
        how: &Word,
        number: &Word,
        place: Places,
    ) -> Option<Action> {
        let expression = self.expression(sample, place)?;
        let slot = match (how.bytes(), value::integer(number.bytes(), 0, i64::from(u16::MAX))) {
            (b"id", Ok(slot)) => slot as usize,
            (b"len", Ok(1..)) if rule.list == Ruleset::HttpRequest => match self.slots.of_rules.get(&rule.pos) {
                Some(_) if !self.front => {
                    return self.wrong(rule, how.pos(), "has 'len' in frontends only; elsewhere name a slot by 'id'");
                }
                Some(slot) => *slot,
                None => return self.wrong(rule, how.pos(), "has 'id' where rules are taken over from 'defaults'"),
            },
            (b"len", _) if rule.list == Ruleset::HttpRequest => {
                return self.wrong(rule, number.pos(), "expects a number of bytes, 1 to 65535, behind 'len'");
            }
            _ => return self.wrong(rule, how.pos(), "expects an expression, then 'id' and a slot's number"),
        };
        Some(Action::Capture(expression, slot))
    }

    fn set_timeout(&mut self, rule: &tree::Rule, of: &Word, time: &[Word], place: Places) -> Option<Action> {
        let of = match of.bytes() {
            b"client" => TimeoutOf::Client,
            b"server" => TimeoutOf::Server,
            b"tunnel" => TimeoutOf::Tunnel,
            _ => return self.wrong(rule, of.pos(), "expects client, server or tunnel"),
        };
        if of != TimeoutOf::Client && !self.back {
            return self.wrong(rule, rule.pos, "is for backends: a frontend has no such timeout");
        }
        match self.time(time, place)? {
            Change::Fixed(none) if none.is_zero() => self.wrong(rule, rule.pos, "expects a time above 0"),
            time => Some(Action::SetTimeout(of, time)),
        }
    }

    fn wait_for_body(&mut self, rule: &tree::Rule, arguments: &[Word]) -> Option<Action> {
        let (mut time, mut least) = (None, 0);
        for pair in arguments.chunks(2) {
            match pair {
                [word, number] if *word == *"time" => time = value::time(number.bytes(), Unit::Ms).ok(),
                [word, number] if *word == *"at-least" => {
                    match value::size(number.bytes(), 0, u64::from(u32::MAX)) {
                        Ok(size) => least = size as usize,
                        Err(_) => return self.wrong(rule, number.pos(), "expects a size behind 'at-least'"),
                    }
                }
                _ => return self.wrong(rule, rule.pos, "expects 'time' and a time, and perhaps 'at-least' and a size"),
            }
        }
        match time {
            Some(time) => Some(Action::WaitForBody(time, least)),
            None => self.wrong(rule, rule.pos, "expects 'time' and a time"),
        }
    }

    fn change_list(
        &mut self,
        rule: &tree::Rule,
        name: &Word,
        key: &Word,
        value: Option<&Word>,
        place: Places,
    ) -> Option<Action> {
        let file = name.bytes().get(rule.action.len()..).and_then(|rest| rest.strip_suffix(b")"));
        let Some(file) = file.filter(|file| !file.is_empty()) else {
            return self.wrong(rule, name.pos(), "expects the name of a file in parentheses");
        };
        let (how, is_map) = match rule.action {
            "add-acl(" => (Listed::Add, false),
            "del-acl(" => (Listed::Delete, false),
            "del-map(" => (Listed::Delete, true),
            _ => (Listed::Set, true),
        };
        let key = self.format(key, Use::Text, place)?;
        let value = match value {
            Some(value) => Some(self.format(value, Use::Text, place)?),
            None => None,
        };
        match self.compiler.references.open(file, is_map, self.compiler.names) {
            Ok(reference) => Some(Action::ChangeList { reference, how, key, value }),
            Err(why) => {
                self.refuse.found.alert(name.pos(), why);
                None
            }
        }
    }

    /// The variable and the conditions in the parentheses of `set-var(name,condition...)`.
    pub(super) fn variable(&mut self, rule: &tree::Rule, head: &Word) -> Option<(VariableId, When)> {
        let open = rule.action.len();
        let Some(inside) = head.bytes().get(open..).and_then(|rest| rest.strip_suffix(b")")) else {
            return self.wrong(rule, head.pos(), "expects a variable in parentheses");
        };
        let mut parts = inside.split(|&byte| byte == b',');
        let id = match self.compiler.variables.resolve(parts.next().unwrap_or_default()) {
            Ok(id) => id,
            Err(error) => {
                self.refuse.found.alert(head.pos_at(open + error.at), error.to_string());
                return None;
            }
        };
        let mut when = When::ALWAYS;
        for part in parts {
            when = match when.with(part) {
                Ok(when) => when,
                Err(why) => {
                    self.refuse.found.alert(head.pos(), why);
                    return None;
                }
            };
        }
        Some((id, when))
    }

    /// `set-var(name) expression`, `set-var-fmt(name) format`
    pub(super) fn set_var(
        &mut self,
        rule: &tree::Rule,
        head: &Word,
        arguments: &[Word],
        place: Places,
    ) -> Option<(VariableId, Made, When)> {
        let (id, when) = self.variable(rule, head)?;
        let made = match (rule.action, arguments) {
            ("set-var-fmt(", [format]) => Made::Format(self.format(format, Use::Text, place)?),
            ("set-var(", [_, ..]) => Made::Of(self.expression(arguments, place)?),
            _ => return self.wrong(rule, rule.pos, "sets a variable to one expression or format"),
        };
        Some((id, made, when))
    }
}

fn addressed(action: &str) -> Addressed {
    match action {
        "set-src" => Addressed::Source,
        "set-src-port" => Addressed::SourcePort,
        "set-dst" => Addressed::Destination,
        _ => Addressed::DestinationPort,
    }
}
