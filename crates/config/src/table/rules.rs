//! Rules: lines that say what happens to a connection, a request or a response, and when. Names of actions are checked
//! here; their arguments and conditions are kept as words with positions, and `expr` reads them.

use super::place::{DFL, DFLB, DLB, FLB, Places};
use super::{Keyword, own, time};
use crate::build::{Builder, Line, parse, proposal};
use crate::lex::Word;
use crate::tree::{Acl, Rule};

/// A list of rules, run at one moment of a connection's or a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ruleset {
    /// `tcp-request connection`
    TcpRequestConnection,
    /// `tcp-request session`
    TcpRequestSession,
    /// `tcp-request content`
    TcpRequestContent,
    /// `tcp-response content`
    TcpResponseContent,
    /// `http-request`
    HttpRequest,
    /// `http-response`
    HttpResponse,
    /// `http-after-response`
    HttpAfterResponse,
    /// `redirect`
    Redirect,
}

use Ruleset::*;

/// An action: its name, and in which lists it may stand. A name that ends with `(` takes arguments in parentheses.
#[derive(Clone, Copy, Debug)]
pub struct Action {
    /// The name.
    pub name: &'static str,
    /// A letter for each list: `c` connection, `s` session, `t` content, `r` response content, `q` request, `p` response, `a` after
    /// response.
    lists: &'static str,
    /// Why it is refused, if it is.
    pub refused: Option<&'static str>,
}

const fn act(name: &'static str, lists: &'static str) -> Action {
    Action { name, lists, refused: None }
}

const fn none(name: &'static str, lists: &'static str, reason: &'static str) -> Action {
    Action { name, lists, refused: Some(reason) }
}

const TABLES: &str = "stick tables are not built yet";
const FILTERS: &str = "filters are not built yet";
const CACHE: &str = "the cache is not built yet";
const REVERSE: &str = "connections that servers open (reverse HTTP) are not built";

static ACTIONS: &[Action] = &[
    act("accept", "cstr"),
    act("add-acl(", "qp"),
    act("add-header", "qpa"),
    none("add-map(", "qp", "HAProxy has no such action: set-map adds what is not there"),
    act("allow", "qpa"),
    none("attach-srv", "s", REVERSE),
    act("auth", "q"),
    none("cache-store", "p", CACHE),
    none("cache-use", "q", CACHE),
    act("capture", "tqpa"),
    act("close", "r"),
    act("del-acl(", "qp"),
    act("del-header", "qpa"),
    act("del-headers-bin", "qpa"),
    act("del-map(", "qp"),
    act("deny", "qp"),
    act("disable-l7-retry", "q"),
    act("do-log", "cstrqpa"),
    act("do-resolve(", "tq"),
    act("early-hint", "q"),
    none(
        "expect-netscaler-cip",
        "c",
        "the header of NetScaler is not read: such a balancer sends the PROXY protocol, too",
    ),
    act("expect-proxy", "c"),
    none("lua.", "cstrqpa", "Lua is not built yet"),
    act("normalize-uri", "q"),
    none("ot-group", "trqpa", FILTERS),
    act("pause", "qp"),
    act("redirect", "qp"),
    act("reject", "cstrq"),
    act("replace-header", "qpa"),
    act("replace-path", "q"),
    act("replace-pathq", "q"),
    act("replace-uri", "q"),
    act("replace-value", "qpa"),
    act("return", "qp"),
    none("sc-add-gpc(", "cstrqpa", TABLES),
    none("sc-inc-gpc(", "cstrqpa", TABLES),
    none("sc-inc-gpc0(", "cstrqpa", TABLES),
    none("sc-inc-gpc1(", "cstrqpa", TABLES),
    none("sc-set-gpt(", "cstrqpa", TABLES),
    none("sc-set-gpt0(", "cstrqpa", TABLES),
    none("send-spoe-group", "trqp", FILTERS),
    none("set-bandwidth-limit", "trqp", FILTERS),
    act("set-bc-mark", "trq"),
    act("set-bc-tos", "trq"),
    act("set-dst", "cstq"),
    act("set-dst-port", "cstq"),
    act("set-fc-mark", "cstqp"),
    act("set-fc-tos", "cstqp"),
    act("set-header", "qpa"),
    act("set-headers-bin", "qpa"),
    act("set-log-level", "trqpa"),
    act("set-map(", "qp"),
    act("set-mark", "cstrqp"),
    act("set-method", "q"),
    act("set-nice", "trqp"),
    act("set-path", "q"),
    act("set-pathq", "q"),
    act("set-priority-class", "tq"),
    act("set-priority-offset", "tq"),
    act("set-query", "q"),
    act("set-retries", "tq"),
    act("set-src", "cstq"),
    act("set-src-port", "cstq"),
    act("set-status", "pa"),
    act("set-timeout", "trqp"),
    act("set-tos", "cstrqp"),
    act("set-uri", "q"),
    act("set-var(", "cstrqpa"),
    act("set-var-fmt(", "cstrqpa"),
    act("silent-drop", "cstrqp"),
    act("strict-mode", "qpa"),
    none(
        "switch-mode",
        "t",
        "connections do not change their mode: choose a frontend in mode http by its address, or by another hop through local@",
    ),
    act("tarpit", "q"),
    none("track-sc", "cstqp", TABLES),
    act("unset-var(", "cstrqpa"),
    act("use-service", "tq"),
    act("wait-for-body", "qp"),
    act("wait-for-handshake", "q"),
];

impl Ruleset {
    fn letter(self) -> char {
        match self {
            TcpRequestConnection => 'c',
            TcpRequestSession => 's',
            TcpRequestContent => 't',
            TcpResponseContent => 'r',
            HttpRequest => 'q',
            HttpResponse => 'p',
            HttpAfterResponse => 'a',
            Redirect => '-',
        }
    }

    /// The keyword.
    pub fn name(self) -> &'static str {
        match self {
            TcpRequestConnection => "tcp-request connection",
            TcpRequestSession => "tcp-request session",
            TcpRequestContent => "tcp-request content",
            TcpResponseContent => "tcp-response content",
            HttpRequest => "http-request",
            HttpResponse => "http-response",
            HttpAfterResponse => "http-after-response",
            Redirect => "redirect",
        }
    }

    /// Actions that may stand in the list.
    pub fn actions(self) -> impl Iterator<Item = &'static Action> {
        ACTIONS.iter().filter(move |action| action.lists.contains(self.letter()))
    }

    fn action(self, word: &[u8]) -> Option<&'static Action> {
        self.actions().find(|action| {
            let name = action.name.as_bytes();
            let begins = name.ends_with(b"(") || name.ends_with(b".") || name == b"track-sc";
            word == name || (begins && word.starts_with(name))
        })
    }
}

pub(super) fn rows() -> Vec<Keyword> {
    let mut rows = vec![
        own("acl", DFLB, "name criterion [flag...] [operator] value...", 2, "names a condition")
            .named_only()
            .adds()
            .words(acl),
        super::args(
            "tcp-request inspect-delay",
            DFLB,
            [time("delay")],
            "how long content rules may wait for bytes",
        )
        .named_only()
        .built(|b, line| {
            let value = line.set(line.time(0));
            b.settings().inspect_request = Some(value);
        }),
        super::args(
            "tcp-response inspect-delay",
            DLB,
            [time("delay")],
            "how long content rules may wait for bytes of the server",
        )
        .named_only()
        .built(|b, line| {
            let value = line.set(line.time(0));
            b.settings().inspect_response = Some(value);
        }),
    ];
    let lists: [(Ruleset, Places, &str); 7] = [
        (TcpRequestConnection, DFL, "a rule for a connection that was accepted"),
        (TcpRequestSession, DFL, "a rule for a session, after the handshakes"),
        (TcpRequestContent, DFLB, "a rule for the client's bytes"),
        (TcpResponseContent, DLB, "a rule for the server's bytes"),
        (HttpRequest, DFLB, "a rule for a request"),
        (HttpResponse, DFLB, "a rule for a response"),
        (HttpAfterResponse, DFLB, "a rule for every response, also the proxy's own"),
    ];
    for (list, places, help) in lists {
        rows.push(
            own(list.name(), places, "action [argument...] [if|unless condition]", 1, help)
                .named_only()
                .adds()
                .words(rule),
        );
    }
    rows.push(
        own("tcp-request", FLB, "connection|session|content|inspect-delay ...", 1, "a rule for a connection")
            .refused("it expects connection, session, content or inspect-delay"),
    );
    rows.push(
        own("tcp-response", FLB, "content|inspect-delay ...", 1, "a rule for a server's bytes")
            .refused("it expects content or inspect-delay"),
    );
    rows
}

fn acl(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = &line.words[0];
    if let Some(at) = parse::bad_name_byte(name.bytes()) {
        let message = format!(
            "character '{}' is not permitted in ACL name '{}'",
            crate::Shown(&name.bytes()[at..=at]),
            name.shown()
        );
        return b.found.alert(name.pos_at(at), message);
    }
    if matches!(name.bytes(), b"or" | b"OR" | b"||" | b"if" | b"unless") {
        return b.found.alert(
            name.pos(),
            format!("'{}' means something in conditions and cannot name an ACL", name.shown()),
        );
    }
    let acl = Acl { name: name.clone(), words: line.words[1..].to_vec(), pos: line.pos() };
    b.proxy().acls.push(acl);
}

fn rule(b: &mut Builder<'_>, line: &Line<'_>) {
    let list = [
        TcpRequestConnection,
        TcpRequestSession,
        TcpRequestContent,
        TcpResponseContent,
        HttpRequest,
        HttpResponse,
        HttpAfterResponse,
    ]
    .into_iter()
    .find(|list| list.name() == line.keyword.name);
    let Some(list) = list else { return };
    let name = &line.words[0];
    match list.action(name.bytes()) {
        None => {
            let known: Vec<&str> = list.actions().map(|action| action.name.trim_end_matches('(')).collect();
            let head = name.bytes().split(|byte| *byte == b'(').next().unwrap_or_default();
            let bare = Word::plain(head, name.pos());
            let message = match proposal(&bare, known.iter().copied()).as_str() {
                "" => format!(
                    "'{}' does not know the action '{}', there are {}",
                    list.name(),
                    name.shown(),
                    known.join(", ")
                ),
                guess => format!("'{}' does not know the action '{}'{guess}", list.name(), name.shown()),
            };
            b.found.alert(name.pos(), message);
        }
        Some(Action { refused: Some(reason), .. }) => {
            b.found.alert(
                name.pos(),
                format!(
                    "'{} {}' is an action of HAProxy that this program refuses: {reason}",
                    list.name(),
                    name.shown()
                ),
            );
        }
        Some(action) => {
            let (words, condition) = parse::split_condition(b, line);
            let rule = Rule { list, action: action.name, words, condition, pos: line.pos() };
            b.proxy().rules.push(rule);
        }
    }
}

pub(super) fn redirect(b: &mut Builder<'_>, line: &Line<'_>) {
    let (words, condition) = parse::split_condition(b, line);
    match words.first() {
        Some(kind)
            if ["location", "prefix", "scheme"].iter().any(|known| *kind == **known) && words.len() > 1 =>
        {
            let rule = Rule { list: Redirect, action: "redirect", words, condition, pos: line.pos() };
            b.proxy().rules.push(rule);
        }
        first => {
            let pos = first.map_or(line.pos(), Word::pos);
            b.found.alert(pos, "'redirect' expects 'location', 'prefix' or 'scheme' and its target");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_sorted_and_known_lists_only() {
        for pair in ACTIONS.windows(2) {
            assert!(
                pair[0].name.trim_end_matches('(') < pair[1].name.trim_end_matches('('),
                "{} {}",
                pair[0].name,
                pair[1].name
            );
        }
        for action in ACTIONS {
            assert!(action.lists.chars().all(|letter| "cstrqpa".contains(letter)), "{}", action.name);
        }
        assert_eq!(HttpRequest.action(b"set-var(txn.x)").map(|a| a.name), Some("set-var("));
        assert_eq!(HttpRequest.action(b"set-var").map(|a| a.name), None);
        assert_eq!(HttpRequest.action(b"track-sc0").map(|a| a.name), Some("track-sc"));
        assert!(HttpResponse.action(b"set-path").is_none());
    }
}
