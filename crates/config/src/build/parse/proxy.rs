//! Conditions at the end of lines, and keywords of proxies with several words.

use super::{Builder, Line, address, at, got};
use crate::lex::{Word, arguments};
use crate::tree::{
    Algorithm, AlgorithmKey, Balance, Capture, CaptureKind, Condition, Cookie, CookieMode, RetryOn, Source,
    SwitchingRule,
};
use crate::value;
use manylane_net::Rules;
use std::time::Duration;

/// Splits off the condition. The first `if` or `unless` ends the arguments, as in HAProxy; an argument can
/// only contain these words as a part of a longer quoted text.
pub(crate) fn split_condition(b: &mut Builder<'_>, line: &Line<'_>) -> (Vec<Word>, Option<Condition>) {
    let Some(index) = line.words.iter().position(|word| *word == "if" || *word == "unless") else {
        return (line.words.to_vec(), None);
    };
    let word = &line.words[index];
    let words = line.words[index + 1..].to_vec();
    if words.is_empty() {
        b.found.alert(
            word.pos(),
            format!("'{}' : '{}' expects a condition, found none", line.keyword.name, word.shown()),
        );
        return (line.words[..index].to_vec(), None);
    }
    let condition = Condition { unless: *word == "unless", words, pos: word.pos() };
    (line.words[..index].to_vec(), Some(condition))
}

fn choose(b: &mut Builder<'_>, line: &Line<'_>) -> Option<SwitchingRule> {
    let (words, condition) = split_condition(b, line);
    match &words[..] {
        [target] if !target.bytes().is_empty() => {
            Some(SwitchingRule { target: target.clone(), condition, pos: line.pos() })
        }
        [_, extra, ..] => {
            let message = format!(
                "'{}' expects 'if' or 'unless' behind the name, found '{}'",
                line.keyword.name,
                extra.shown()
            );
            b.found.alert(extra.pos(), message);
            None
        }
        _ => {
            b.found.alert(line.pos(), format!("'{}' expects a name, found none", line.keyword.name));
            None
        }
    }
}

pub(crate) fn use_backend(b: &mut Builder<'_>, line: &Line<'_>) {
    let choice = choose(b, line);
    b.proxy().use_backend.extend(choice);
}

pub(crate) fn use_server(b: &mut Builder<'_>, line: &Line<'_>) {
    let choice = choose(b, line);
    if choice.as_ref().is_some_and(|choice| choice.condition.is_none()) {
        return b.found.alert(line.pos(), "'use-server' expects 'if' or 'unless' and a condition");
    }
    b.proxy().use_server.extend(choice);
}

/// An algorithm of `balance`.
struct AlgorithmRow {
    /// The algorithm with default parameters.
    algorithm: Algorithm,
    /// True if it takes an argument in parentheses.
    takes_argument: bool,
    /// Checks the words after the name.
    options: Options,
}

type Options = fn(&mut Builder<'_>, &Line<'_>) -> bool;

const fn row(name: &'static str, key: AlgorithmKey, options: Options) -> AlgorithmRow {
    AlgorithmRow { algorithm: Algorithm::new(name, key), takes_argument: false, options }
}

const fn with_argument(name: &'static str, key: AlgorithmKey, options: Options) -> AlgorithmRow {
    AlgorithmRow { takes_argument: true, ..row(name, key, options) }
}

impl AlgorithmRow {
    /// Accepts the algorithm in `mode log`, where HAProxy has a name for `roundrobin` only.
    const fn for_logs(mut self) -> Self {
        self.algorithm.log_name = Some("unknown");
        self
    }
}

/// All algorithms by name, with their keys, words and arguments. The crate `balance` has the behaviour of
/// each.
const ALGORITHMS: [AlgorithmRow; 15] = [
    row("ewma", AlgorithmKey::None, no_options),
    row("first", AlgorithmKey::None, no_options),
    row("hash", AlgorithmKey::Expression, |b, line| has_word(b, line, "an expression")),
    with_argument("hdr", AlgorithmKey::Header, header_options),
    row("leastconn", AlgorithmKey::None, no_options),
    row("log-hash", AlgorithmKey::LogLine, |b, line| {
        line.no_more(b, 2);
        has_word(b, line, "a list of converters")
    })
    .for_logs(),
    row("maglev", AlgorithmKey::SourceOrExpression, |_, _| true),
    with_argument("random", AlgorithmKey::None, no_options).for_logs(),
    with_argument("rdp-cookie", AlgorithmKey::RdpCookie, no_options),
    AlgorithmRow { algorithm: Algorithm::ROUNDROBIN, takes_argument: false, options: no_options },
    row("source", AlgorithmKey::Source, no_options),
    row("static-rr", AlgorithmKey::None, no_options),
    row("sticky", AlgorithmKey::None, no_options).for_logs(),
    row("uri", AlgorithmKey::Uri, uri_options),
    row("url_param", AlgorithmKey::Parameter, url_param_options),
];

/// Names of the algorithms of `balance`.
pub fn algorithms() -> impl Iterator<Item = &'static str> {
    ALGORITHMS.iter().map(|row| row.algorithm.name)
}

/// Names of the algorithms that `mode log` accepts, as a message lists them.
pub(crate) fn algorithms_for_logs() -> String {
    let rows = ALGORITHMS.iter().filter(|row| row.algorithm.log_name.is_some());
    let mut names: Vec<_> = rows.map(|row| row.algorithm.name).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

/// Default cookie of `balance rdp-cookie`: the name of the user.
const RDP_COOKIE: &str = "mstshash";

/// Default cookie of `persist rdp-cookie`: the address of the server.
pub(crate) const RDP_TOKEN: &str = "msts";

/// `persist rdp-cookie(<name>)`
pub(crate) fn persist_rdp(b: &mut Builder<'_>, line: &Line<'_>) {
    let word = &line.words[0];
    let name = word.bytes().strip_prefix(b"rdp-cookie(").and_then(|rest| rest.strip_suffix(b")"));
    let Some(name) = name.filter(|name| name.iter().all(u8::is_ascii_graphic) && !name.contains(&b'\''))
    else {
        let message =
            format!("'persist' expects 'rdp-cookie' or 'rdp-cookie(<name>)', found '{}'", word.shown());
        return b.found.alert(word.pos(), message);
    };
    line.no_more(b, 1);
    let name = if name.is_empty() { RDP_TOKEN.as_bytes() } else { name };
    let value = line.set(Word::plain(name, word.pos()));
    b.settings().persist_rdp = Some(value);
}

pub(crate) fn balance(b: &mut Builder<'_>, line: &Line<'_>) {
    let bare = [Word::plain(Algorithm::ROUNDROBIN.name, line.pos())];
    let line =
        &Line { words: if line.words.is_empty() { &bare } else { line.words }, values: Vec::new(), ..*line };
    let word = &line.words[0];
    let open = word.bytes().iter().position(|byte| *byte == b'(');
    let name = &word.bytes()[..open.unwrap_or(word.bytes().len())];
    let argument = match open {
        None => None,
        Some(open) => match arguments(word.bytes(), open) {
            Ok(found) if found.end == word.bytes().len() && found.list.len() <= 1 => {
                // Treat an empty argument as a missing one.
                found.list.into_iter().next().filter(|argument| !argument.bytes.is_empty())
            }
            Ok(found) => {
                let message = format!("'balance' expects <algorithm>(<argument>), found '{}'", word.shown());
                return b.found.alert(word.pos_at(found.end.min(word.bytes().len() - 1)), message);
            }
            Err(error) => return b.found.alert(word.pos_at(error.at()), format!("'balance' : {error}")),
        },
    };
    let row = ALGORITHMS.iter().find(|row| row.algorithm.name.as_bytes() == name);
    if open.is_some() && row.is_none_or(|row| !row.takes_argument) {
        let message = format!(
            "'balance {}' expects no argument in parentheses, found '{}'",
            crate::Shown(name),
            word.shown()
        );
        return b.found.alert(word.pos_at(name.len()), message);
    }
    let Some(row) = row else { return unknown_algorithm(b, word, name) };
    if row.algorithm.key == AlgorithmKey::Header && argument.is_none() {
        return needs(b, line, "the name of a header field in parentheses");
    }
    let (mut algorithm, mut words) = (row.algorithm, line.words[1..].to_vec());
    match (&row.algorithm, &argument) {
        // Without a key, the argument is the number of draws.
        (Algorithm { key: AlgorithmKey::None, name, .. }, Some(argument)) => {
            match value::integer(&argument.bytes, 1, i64::from(i32::MAX)) {
                Ok(number) => algorithm.draws = number as u32,
                Err(error) => {
                    let message = format!(
                        "'balance {name}' expects a number of draws, found '{}': {}",
                        crate::Shown(&argument.bytes),
                        error.message
                    );
                    return b.found.alert(word.pos_at(name.len() + 1), message);
                }
            }
        }
        (_, Some(argument)) => {
            words.insert(0, Word::plain(argument.bytes.clone(), word.pos_at(argument.at)));
        }
        (Algorithm { key: AlgorithmKey::RdpCookie, .. }, None) => {
            words.insert(0, Word::plain(RDP_COOKIE, word.pos()))
        }
        (_, None) => {}
    }
    if (row.options)(b, line) {
        let value = line.set(Balance { algorithm, words });
        b.settings().balance = Some(value);
    }
}

fn unknown_algorithm(b: &mut Builder<'_>, word: &Word, name: &[u8]) {
    let message = manylane_expr::none_of("balance", ALGORITHMS.map(|row| row.algorithm.name), name);
    b.found.alert(word.pos(), message);
}

fn needs(b: &mut Builder<'_>, line: &Line<'_>, what: &str) {
    b.found.alert(line.end(), format!("'balance {}' expects {what}, found none", line.words[0].shown()));
}

/// True if a word follows the name; otherwise reports an error. Other code checks the word.
fn has_word(b: &mut Builder<'_>, line: &Line<'_>, what: &str) -> bool {
    let there = line.words.len() > 1;
    if !there {
        needs(b, line, what);
    }
    there
}

fn no_options(b: &mut Builder<'_>, line: &Line<'_>) -> bool {
    line.no_more(b, 1);
    line.words.len() == 1
}

/// `[whole] [path-only] [len n] [depth n]`
fn uri_options(b: &mut Builder<'_>, line: &Line<'_>) -> bool {
    options_with_numbers(b, line, 1, &["whole", "path-only"], &["len", "depth"])
}

/// `name [check_post [max]]`
fn url_param_options(b: &mut Builder<'_>, line: &Line<'_>) -> bool {
    match line.words.get(2) {
        None => has_word(b, line, "the name of a parameter"),
        Some(word) if *word == "check_post" => {
            let fine = line.words.len() == 3 || line.own_int(b, 3, 0, i64::from(i32::MAX)).is_some();
            line.no_more(b, 4);
            fine && line.words.len() <= 4
        }
        Some(word) => {
            b.found.alert(
                word.pos(),
                format!("'balance url_param' expects check_post, found '{}'", word.shown()),
            );
            false
        }
    }
}

/// `[use_domain_only]`
fn header_options(b: &mut Builder<'_>, line: &Line<'_>) -> bool {
    options_with_numbers(b, line, 1, &["use_domain_only"], &[])
}

fn options_with_numbers(
    b: &mut Builder<'_>,
    line: &Line<'_>,
    from: usize,
    flags: &[&str],
    numbers: &[&str],
) -> bool {
    let mut index = from;
    while let Some(word) = line.words.get(index) {
        if flags.iter().any(|flag| *word == **flag) {
            index += 1;
        } else if numbers.iter().any(|name| *word == **name) {
            let value = line.words.get(index + 1);
            let number = value.map_or(Err(String::new()), |value| {
                value::integer(value.bytes(), 1, i64::from(i32::MAX))
                    .map_err(|error| format!(": {}", error.message))
            });
            if let Err(why) = number {
                let name = line.words[0].shown();
                let message =
                    format!("'balance {name}' : '{}' expects a number{}{why}", word.shown(), got(value));
                b.found.alert(at(value, line), message);
                return false;
            }
            index += 2;
        } else {
            let known = flags.iter().chain(numbers).copied();
            let name = format!("balance {}", line.words[0].shown());
            let message = manylane_expr::none_of(&name, known, word.bytes());
            b.found.alert(word.pos(), message);
            return false;
        }
    }
    true
}

pub(crate) fn retry_on(b: &mut Builder<'_>, line: &Line<'_>) {
    const EVENTS: [&str; 8] = [
        "0rtt-rejected",
        "all-retryable-errors",
        "conn-failure",
        "empty-response",
        "junk-response",
        "none",
        "receive-timeout",
        "response-timeout",
    ];
    const STATUS: [u16; 14] = [401, 403, 404, 408, 421, 425, 429, 500, 501, 502, 503, 504, 405, 410];
    let mut events = Vec::new();
    for word in line.words {
        let status =
            word.text().and_then(|text| text.parse().ok()).filter(|code| STATUS[..12].contains(code));
        match (EVENTS.into_iter().find(|event| *word == **event), status) {
            (Some(event), _) => events.push(RetryOn::Event(event)),
            (None, Some(code)) => events.push(RetryOn::Status(code)),
            (None, None) => {
                let known = EVENTS.into_iter().chain(["<status>"]);
                let message = manylane_expr::none_of("retry-on", known, word.bytes());
                b.found.alert(word.pos(), message);
            }
        }
    }
    if events.contains(&RetryOn::Event("none")) && events.len() > 1 {
        return b.found.alert(
            line.pos(),
            "'retry-on' expects no other event beside 'none', found some: remove 'none' or the others",
        );
    }
    let events = line.set(events);
    b.settings().retry_on = Some(events);
}

pub(crate) fn cookie(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    if name.bytes().is_empty() {
        return b.found.alert(name.pos(), "'cookie' expects a name that is not empty");
    }
    let mut cookie = Cookie {
        name,
        mode: None,
        indirect: false,
        nocache: false,
        postonly: false,
        preserve: false,
        httponly: false,
        secure: false,
        dynamic: false,
        domains: Vec::new(),
        attributes: Vec::new(),
        maxidle: None,
        maxlife: None,
    };
    let mut index = 1;
    while let Some(word) = line.words.get(index) {
        index += 1;
        let mut mode = |b: &mut Builder<'_>, mode: CookieMode| {
            if cookie.mode.is_some_and(|known| known != mode) {
                b.found
                    .alert(word.pos(), "'cookie' expects one of 'rewrite', 'insert' and 'prefix', found two");
            }
            cookie.mode = Some(mode);
        };
        match word.bytes() {
            b"rewrite" => mode(b, CookieMode::Rewrite),
            b"insert" => mode(b, CookieMode::Insert),
            b"prefix" => mode(b, CookieMode::Prefix),
            b"indirect" => cookie.indirect = true,
            b"nocache" => cookie.nocache = true,
            b"postonly" => cookie.postonly = true,
            b"preserve" => cookie.preserve = true,
            b"httponly" => cookie.httponly = true,
            b"secure" => cookie.secure = true,
            b"dynamic" => cookie.dynamic = true,
            b"domain" | b"attr" => {
                let Some(value) = line.words.get(index).filter(|value| !value.bytes().is_empty()) else {
                    return b.found.alert(
                        word.pos(),
                        format!("'cookie' : '{}' expects a value, found none", word.shown()),
                    );
                };
                index += 1;
                if value.bytes().iter().any(|byte| *byte < 0x20 || *byte == b';' || *byte == 0x7f) {
                    let message = format!(
                        "'cookie' expects an attribute without ';' and control characters, found '{}'",
                        value.shown()
                    );
                    return b.found.alert(value.pos(), message);
                }
                if *word == "domain" {
                    cookie.domains.push(value.clone())
                } else {
                    cookie.attributes.push(value.clone())
                }
            }
            b"maxidle" | b"maxlife" => {
                let time: Option<Duration> = line.own_time_in(b, index, value::Unit::S);
                index += 1;
                if *word == "maxidle" { cookie.maxidle = time } else { cookie.maxlife = time }
            }
            _ => {
                const KNOWN: [&str; 14] = [
                    "attr", "domain", "dynamic", "httponly", "indirect", "insert", "maxidle", "maxlife",
                    "nocache", "postonly", "prefix", "preserve", "rewrite", "secure",
                ];
                let message = manylane_expr::none_of("cookie", KNOWN, word.bytes());
                b.found.alert(word.pos(), message);
            }
        }
    }
    if cookie.mode == Some(CookieMode::Rewrite) && (cookie.indirect || cookie.preserve) {
        let found = if cookie.indirect { "indirect" } else { "preserve" };
        let message =
            format!("'cookie' : 'rewrite' expects neither 'indirect' nor 'preserve', found '{found}'");
        b.found.alert(line.pos(), message);
    } else if cookie.preserve && !cookie.indirect && cookie.mode != Some(CookieMode::Insert) {
        b.found.alert(
            line.pos(),
            "'cookie' : 'preserve' expects 'insert' or 'indirect' beside it, found neither",
        );
    }
    let cookie = line.set(cookie);
    b.settings().cookie = Some(cookie);
}

pub(crate) fn source(b: &mut Builder<'_>, line: &Line<'_>) {
    let Some(address) = address(b, "source", &line.words[0], &Rules::SOURCE) else { return };
    let mut source = Source { address, usesrc: None, interface: None };
    let mut index = 1;
    while let Some(word) = line.words.get(index) {
        let value = line.words.get(index + 1);
        match (word.bytes(), value) {
            (b"usesrc", Some(value)) => source.usesrc = Some(value.clone()),
            (b"interface", Some(value)) => source.interface = Some(value.clone()),
            (b"usesrc" | b"interface", None) => {
                return b
                    .found
                    .alert(word.pos(), format!("'source' : '{}' expects a value, found none", word.shown()));
            }
            _ => {
                let message = manylane_expr::none_of("source", ["usesrc", "interface"], word.bytes());
                return b.found.alert(word.pos(), message);
            }
        }
        index += 2;
    }
    let source = line.set(source);
    b.settings().source = Some(source);
}

pub(crate) fn capture(b: &mut Builder<'_>, line: &Line<'_>) {
    let (kind, name, rest) = match line.keyword.name {
        "capture cookie" => (CaptureKind::Cookie, line.word(0), 1),
        "capture request header" => (CaptureKind::RequestHeader, line.word(0), 1),
        "capture response header" => (CaptureKind::ResponseHeader, line.word(0), 1),
        _ => match line.own_choice(b, 0, &["request", "response"]) {
            None => return,
            Some("request") => (CaptureKind::RequestSlot, Word::plain("", line.pos()), 1),
            Some(_) => (CaptureKind::ResponseSlot, Word::plain("", line.pos()), 1),
        },
    };
    let len = line.words.get(rest);
    if !len.is_some_and(|word| *word == "len") {
        return b.found.alert(
            at(len, line),
            format!("'{}' expects 'len' and a number of bytes{}", line.keyword.name, got(len)),
        );
    }
    let Some(length) = line.own_int(b, rest + 1, 1, i64::from(u16::MAX)) else { return };
    line.no_more(b, rest + 2);
    let capture = Capture { kind, name, length: length as u32, pos: line.pos() };
    b.proxy().captures.push(capture);
}
