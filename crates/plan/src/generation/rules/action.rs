//! Actions of all lists of rules.

use super::{
    Action, DropMode, Edit, ListChange, NameMatch, Normalizer, Preamble, Reader, TargetPart, TimeSource,
};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::table::{self, Ruleset};
use manylane_config::tree;
use manylane_config::value::{self, Unit};
use manylane_expr::{EvalPoints, Regex, Use};
use manylane_http::Version;

impl Reader<'_, '_, '_> {
    /// Reports an error of a rule at `pos`.
    pub(super) fn wrong<T>(&mut self, rule: &tree::Rule, pos: Pos, message: &str) -> Option<T> {
        let keyword = format!("{} {}", rule.list.name(), rule.action.trim_end_matches('('));
        self.refuse.found.alert(pos, format!("'{keyword}' {message}"));
        None
    }

    /// Reports that `what` was expected in place of `word`.
    pub(super) fn expected<T>(&mut self, rule: &tree::Rule, word: &Word, what: &str) -> Option<T> {
        self.wrong(rule, word.pos(), &format!("expects {what}, found '{}'", word.shown()))
    }

    /// Reports the wrong number of arguments, at `extra` or else at the action.
    pub(super) fn arguments<T>(&mut self, rule: &tree::Rule, extra: Option<&Word>) -> Option<T> {
        let found = rule.words.len().saturating_sub(1);
        let pos = extra.or(rule.words.first()).map_or(rule.pos, Word::pos);
        self.refuse.found.alert(pos, table::Action::expects(rule.list, rule.action, found));
        None
    }

    /// Compiles an action. The table of keywords has checked that the list may have it.
    pub(super) fn action(&mut self, rule: &tree::Rule, points: EvalPoints) -> Option<Action> {
        if let Some(setting) = self.setting(rule, points) {
            return setting.map(Action::Set);
        }
        let tree::Rule { list, action, words, condition: _, pos: _ } = rule;
        let [name, arguments @ ..] = &words[..] else { return None };
        let request = *list == Ruleset::HttpRequest;
        let header = |word: &Word| -> Box<[u8]> { word.bytes().into() };
        Some(match (*action, arguments) {
            ("accept" | "allow", []) => Action::Accept,
            ("reject", []) => Action::Reject,
            ("close", []) => Action::Close,
            ("do-log", []) => Action::DoLog,
            ("accept" | "allow" | "reject" | "close" | "do-log", [word, ..]) => {
                return self.arguments(rule, Some(word));
            }
            ("silent-drop", _) => Action::SilentDrop(self.silence(rule, arguments)?),
            ("expect-proxy", [layer]) if *layer == *"layer4" => Action::Expect(Preamble::Proxy),
            ("expect-netscaler-cip", [layer]) if *layer == *"layer4" => Action::Expect(Preamble::NetScaler),
            ("switch-mode", _) => Action::SwitchMode(self.switch_mode(rule, arguments)?),
            ("deny", []) => Action::Deny(if request { 403 } else { 502 }),
            ("deny" | "return" | "tarpit", _) => return self.reply(rule, arguments, points),
            ("auth", []) => Action::Auth(self.proxy.name.bytes().into()),
            ("auth", [word, realm]) if *word == *"realm" => Action::Auth(header(realm)),
            ("redirect", _) => {
                // The keyword `redirect` stands alone, without `http-request`.
                let arguments = if *list == Ruleset::Redirect { &words[..] } else { arguments };
                return self.redirect(rule, arguments, points);
            }
            ("early-hint", [name, value]) => {
                Action::EarlyHint(header(name), self.format(value, Use::Header, points)?)
            }
            ("do-resolve(", [_, ..]) => {
                Action::Resolve(Box::new(self.lookup(rule, name, arguments, points)?))
            }
            ("normalize-uri", [name, rest @ ..]) => Action::NormalizeUri(self.normalizer(rule, name, rest)?),
            ("strict-mode", [word]) if *word == *"on" || *word == *"off" => {
                Action::StrictMode(*word == *"on")
            }
            ("wait-for-handshake", []) => Action::WaitForHandshake,
            ("pause", [_, ..]) => Action::Pause(self.time(arguments, points)?),
            ("wait-for-body", _) => self.wait_for_body(rule, arguments)?,
            ("use-service", _) if !request => return self.not_built(rule),
            ("use-service", [name]) if *name == *"prometheus-exporter" => Action::Metrics,
            ("use-service", [name]) => {
                return self.expected(rule, name, "prometheus-exporter");
            }
            ("add-acl(" | "del-acl(" | "del-map(", [key]) => {
                self.change_list(rule, name, key, None, points)?
            }
            ("set-map(", [key, value]) => self.change_list(rule, name, key, Some(value), points)?,
            _ => return self.edit(rule, points).map(Action::Edit),
        })
    }

    /// Compiles an edit of a head.
    fn edit(&mut self, rule: &tree::Rule, points: EvalPoints) -> Option<Edit> {
        let header = |word: &Word| -> Box<[u8]> { word.bytes().into() };
        Some(match (rule.action, rule.words.get(1..)?) {
            ("set-header", [name, value]) => {
                Edit::SetHeader(header(name), self.format(value, Use::Header, points)?)
            }
            ("add-header", [name, value]) => {
                Edit::AddHeader(header(name), self.format(value, Use::Header, points)?)
            }
            ("del-header", [name]) => Edit::DelHeader(header(name)),
            ("del-header", [name, flag, method]) if *flag == *"-m" => self.del_headers(rule, name, method)?,
            ("replace-header", [name, regex, value]) => Edit::ReplaceHeader(
                header(name),
                self.regex(regex)?,
                self.format(value, Use::Header, points)?,
            ),
            ("replace-value", [name, regex, value]) => {
                Edit::ReplaceValue(header(name), self.regex(regex)?, self.format(value, Use::Header, points)?)
            }
            ("replace-path" | "replace-pathq" | "replace-uri", [regex, value]) => {
                let part = match rule.action {
                    "replace-path" => TargetPart::Path,
                    "replace-pathq" => TargetPart::Pathq,
                    _ => TargetPart::Uri,
                };
                Edit::ReplaceTarget(part, self.regex(regex)?, self.format(value, Use::Header, points)?)
            }
            ("set-method", [value]) => Edit::SetMethod(self.format(value, Use::Header, points)?),
            ("set-path", [value]) => Edit::SetPath(self.format(value, Use::Header, points)?),
            ("set-pathq", [value]) => Edit::SetPathq(self.format(value, Use::Header, points)?),
            ("set-query", [value]) => Edit::SetQuery(self.format(value, Use::Header, points)?),
            ("set-uri", [value]) => Edit::SetUri(self.format(value, Use::Header, points)?),
            ("set-status", [code, rest @ ..]) => self.set_status(rule, code, rest)?,
            ("del-headers-bin" | "set-headers-bin", _) => return self.not_built(rule),
            // The table has no other action, so the number of arguments is wrong.
            _ => return self.arguments(rule, None),
        })
    }

    fn switch_mode(&mut self, rule: &tree::Rule, arguments: &[Word]) -> Option<Option<Version>> {
        match arguments {
            _ if !self.front => {
                self.wrong(rule, rule.pos, "expects a frontend, found a backend; move the rule to a frontend")
            }
            [mode, ..] if *mode != *"http" => self.expected(rule, mode, "'http'"),
            [_] => Some(None),
            [_, proto, name] if *proto == *"proto" => match name.bytes() {
                b"h1" => Some(Some(Version::HTTP_11)),
                b"h2" => Some(Some(Version::HTTP_2)),
                _ => self.expected(rule, name, "h1 or h2 behind 'proto'"),
            },
            arguments => self.arguments(rule, arguments.get(1).filter(|word| **word != *"proto")),
        }
    }

    /// Reads the arguments of `silent-drop`.
    fn silence(&mut self, rule: &tree::Rule, arguments: &[Word]) -> Option<DropMode> {
        match arguments {
            [] => Some(DropMode::Full),
            [word, hops] if *word == *"rst-ttl" => match value::integer(hops.bytes(), 1, 255) {
                Ok(hops) => Some(DropMode::ResetWithin(hops as u8)),
                Err(_) => self.expected(rule, hops, "a number from 1 to 255 behind 'rst-ttl'"),
            },
            [word, ..] => self.arguments(rule, Some(word)),
        }
    }

    fn regex(&mut self, word: &Word) -> Option<Regex> {
        match Regex::new(word.bytes(), false) {
            Ok(regex) => Some(regex),
            Err(why) => {
                self.refuse.found.alert(word.pos_at(manylane_expr::regex_fault(word.bytes())), why);
                None
            }
        }
    }

    /// Reads a time, or an expression in milliseconds.
    pub(super) fn time(&mut self, words: &[Word], points: EvalPoints) -> Option<TimeSource> {
        match words {
            [word] if word.bytes().first().is_some_and(u8::is_ascii_digit) => {
                match value::time(word.bytes(), Unit::Ms) {
                    Ok(time) => Some(TimeSource::Fixed(time)),
                    Err(error) => {
                        self.refuse.found.alert(
                            word.pos_at(error.at),
                            format!("expected a time, found '{}': {}", word.shown(), error.message),
                        );
                        None
                    }
                }
            }
            words => self.expression(words, points).map(TimeSource::Of),
        }
    }

    fn del_headers(&mut self, rule: &tree::Rule, name: &Word, method: &Word) -> Option<Edit> {
        let text = || -> Box<[u8]> { name.bytes().into() };
        Some(match method.bytes() {
            b"str" => Edit::DelHeader(text()),
            b"beg" => Edit::DelHeaders(NameMatch::Begin(text())),
            b"end" => Edit::DelHeaders(NameMatch::End(text())),
            b"sub" => Edit::DelHeaders(NameMatch::Sub(text())),
            b"reg" => match Regex::new(name.bytes(), true) {
                Ok(regex) => Edit::DelHeaders(NameMatch::Regex(regex)),
                Err(why) => {
                    self.refuse.found.alert(name.pos_at(manylane_expr::regex_fault(name.bytes())), why);
                    return None;
                }
            },
            _ => return self.expected(rule, method, "str, beg, end, sub or reg behind '-m'"),
        })
    }

    fn set_status(&mut self, rule: &tree::Rule, code: &Word, rest: &[Word]) -> Option<Edit> {
        let Ok(number) = value::integer(code.bytes(), 100, 599) else {
            return self.expected(rule, code, "a status from 100 to 599");
        };
        match rest {
            [] => Some(Edit::SetStatus(number as u16, None)),
            [word, reason] if *word == *"reason" => {
                Some(Edit::SetStatus(number as u16, Some(reason.bytes().into())))
            }
            [word, ..] => self.expected(rule, word, "reason <text> behind the status"),
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
            (b"percent-decode-unreserved", none) if none || strict => {
                Normalizer::PercentDecodeUnreserved { strict }
            }
            (b"percent-to-uppercase", none) if none || strict => Normalizer::PercentToUppercase { strict },
            (b"query-sort-by-name", true) => Normalizer::QuerySortByName,
            _ => {
                return self.expected(
                    rule,
                    name,
                    "fragment-encode, fragment-strip, path-merge-slashes, path-strip-dot, \
                        path-strip-dotdot [full], percent-decode-unreserved [strict], \
                        percent-to-uppercase [strict] or query-sort-by-name",
                );
            }
        })
    }

    fn wait_for_body(&mut self, rule: &tree::Rule, arguments: &[Word]) -> Option<Action> {
        let (mut time, mut least) = (None, 0);
        for pair in arguments.chunks(2) {
            match pair {
                [word, number] if *word == *"time" => time = value::time(number.bytes(), Unit::Ms).ok(),
                [word, number] if *word == *"at-least" => {
                    match value::size(number.bytes(), 0, u64::from(u32::MAX)) {
                        Ok(size) => least = size as usize,
                        Err(_) => return self.expected(rule, number, "a size behind 'at-least'"),
                    }
                }
                words => return self.expected(rule, &words[0], "time <time> [at-least <size>]"),
            }
        }
        match time {
            Some(time) => Some(Action::WaitForBody(time, least)),
            None => self.wrong(rule, rule.pos, "expects time <time> [at-least <size>], found no time"),
        }
    }

    fn change_list(
        &mut self,
        rule: &tree::Rule,
        name: &Word,
        key: &Word,
        value: Option<&Word>,
        points: EvalPoints,
    ) -> Option<Action> {
        let file = name.bytes().get(rule.action.len()..).and_then(|rest| rest.strip_suffix(b")"));
        let Some(file) = file.filter(|file| !file.is_empty()) else {
            return self.expected(rule, name, "the name of a file in parentheses");
        };
        let (how, is_map) = match rule.action {
            "add-acl(" => (ListChange::Add, false),
            "del-acl(" => (ListChange::Delete, false),
            "del-map(" => (ListChange::Delete, true),
            _ => (ListChange::Set, true),
        };
        let key = self.format(key, Use::Text, points)?;
        let value = match value {
            Some(value) => Some(self.format(value, Use::Text, points)?),
            None => None,
        };
        match self.compiler.references.open(file, is_map, self.compiler.names) {
            Ok(reference) => {
                reference.will_change();
                Some(Action::ChangeList { reference, how, key, value })
            }
            Err(why) => {
                self.refuse.found.alert(name.pos(), why);
                None
            }
        }
    }
}
