//! Rules: actions on a connection, request or response, with conditions. The names of actions are checked
//! here. Their arguments and conditions stay words with positions, which `expr` parses.

use super::context::{DFL, DFLB, DLB, KeywordContexts};
use super::{Keyword, own, time};
use crate::build::{Builder, Line, parse, proposal};
use crate::lex::Word;
use crate::tree::{Acl, Rule};

/// A list of rules that runs at one point of a connection or a stream.
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

/// An action: its name and the rulesets in which it is valid. A name that ends with `(` has its arguments in
/// parentheses.
#[derive(Clone, Copy, Debug)]
pub struct Action {
    /// The name.
    pub name: &'static str,
    /// One letter per ruleset: `c` connection, `s` session, `t` request content, `r` response content, `q`
    /// request, `p` response, `a` after response.
    lists: &'static str,
    /// Its usage.
    pub usage: &'static str,
    /// What it does: one sentence without the full stop.
    pub help: &'static str,
    /// Why it is refused; `None` if it is built.
    pub refused: Option<&'static str>,
}

impl Action {
    /// All actions, sorted by name.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        ACTIONS.iter()
    }

    /// The error for `found` arguments after the action `name` of `list`.
    pub fn expects(list: Ruleset, name: &str, found: usize) -> String {
        let usage = ACTIONS.iter().find(|action| action.name == name).map_or("", |action| action.usage);
        let keyword = match list {
            Ruleset::Redirect => name.to_owned(),
            list => format!("{} {}", list.name(), name.trim_end_matches('(')),
        };
        super::expects(&keyword, usage, found)
    }

    /// The rulesets in which it is valid.
    pub fn lists(&self) -> impl Iterator<Item = Ruleset> {
        Ruleset::LISTS.into_iter().filter(|list| self.lists.contains(list.letter()))
    }
}

const fn act(name: &'static str, lists: &'static str, usage: &'static str, help: &'static str) -> Action {
    Action { name, lists, usage, help, refused: None }
}

const fn none(name: &'static str, lists: &'static str, help: &'static str, reason: &'static str) -> Action {
    Action { name, lists, usage: "", help, refused: Some(reason) }
}

const OPENTRACING: &str = "OpenTracing is not built: HAProxy gives it up, too";
const SPOE: &str = "SPOE is not built yet";
const CACHE: &str = "the cache is not built yet";
const REVERSE: &str = "connections that servers open (reverse HTTP) are not built";

static ACTIONS: &[Action] = &[
    act("accept", "cstr", "", "takes it, and leaves the rest of the list out"),
    act("add-acl(", "qp", "(<file>) <key>", "adds a pattern to a file of patterns"),
    act("add-header", "qpa", "<name> <format>", "adds a header field beside those of its name"),
    none(
        "add-map(",
        "qp",
        "adds an entry to a map",
        "HAProxy has no such action: set-map adds what is not there",
    ),
    act("allow", "qpa", "", "takes it, and leaves the rest of the list out"),
    none("attach-srv", "s", "gives the connection to a server as one that it opened", REVERSE),
    act("auth", "q", "[realm <text>]", "asks the client for user and password, by 401 or 407"),
    none("cache-store", "p", "keeps the response in a cache", CACHE),
    none("cache-use", "q", "answers from a cache", CACHE),
    act("capture", "tqpa", "<sample> id <slot>|len <bytes>", "keeps a sample for log lines and later rules"),
    act("close", "r", "", "closes the connection to the server"),
    act("del-acl(", "qpa", "(<file>) <key>", "takes a pattern out of a file of patterns"),
    act(
        "del-header",
        "qpa",
        "<name> [-m str|beg|end|sub|reg]",
        "deletes header fields by name, or those whose names match",
    ),
    act(
        "del-headers-bin",
        "qpa",
        "<expression> [prefix <text>]",
        "deletes the header fields that a block of names lists",
    ),
    act("del-map(", "qpa", "(<file>) <key>", "takes an entry out of a map"),
    act(
        "deny",
        "qp",
        "[status <code>] [<answer>...]",
        "answers with an error, 403 or 502 unless it says otherwise",
    ),
    act("disable-l7-retry", "q", "", "sends the request once, whatever 'retry-on' says"),
    act("do-log", "cstrqpa", "", "writes a log line"),
    act(
        "do-resolve(",
        "tq",
        "(<variable>,<resolvers>[,ipv4|ipv6]) <expression>",
        "looks a name up, and keeps its address in a variable",
    ),
    act("early-hint", "q", "<name> <format>", "sends 103 with a header field before the response"),
    act("expect-netscaler-cip", "c", "layer4", "expects the header of NetScaler before the first bytes"),
    act("expect-proxy", "c", "layer4", "expects a header of the PROXY protocol before the first bytes"),
    none("lua.", "cstrqpa", "calls a function in Lua", "Lua is not built yet"),
    act(
        "normalize-uri",
        "q",
        "<normalizer> [full|strict]",
        "writes the target in one of several equal forms",
    ),
    none("ot-group", "trqpa", "runs a group of OpenTracing", OPENTRACING),
    act("pause", "qp", "<time>|<expression>", "waits for a time before the next rule"),
    act(
        "redirect",
        "qp",
        "location|prefix|scheme <target> [code <code>] [<option>...]",
        "sends the client to another address",
    ),
    act("reject", "cstrq", "", "closes the connection without an answer"),
    act(
        "replace-header",
        "qpa",
        "<name> <regex> <format>",
        "replaces what a regular expression matches in whole header fields",
    ),
    act("replace-path", "q", "<regex> <format>", "replaces what a regular expression matches in the path"),
    act(
        "replace-pathq",
        "q",
        "<regex> <format>",
        "replaces what a regular expression matches in path and query",
    ),
    act("replace-uri", "q", "<regex> <format>", "replaces what a regular expression matches in the target"),
    act(
        "replace-value",
        "qpa",
        "<name> <regex> <format>",
        "replaces what a regular expression matches in each member of header fields",
    ),
    act("return", "qp", "[status <code>] [<answer>...]", "answers in place of a server"),
    act(
        "sc-add-gpc(",
        "cstrqpa",
        "(<index>,<counter>) <number>|<expression>",
        "adds to a general counter of a tracked entry",
    ),
    act("sc-inc-gpc(", "cstrqpa", "(<index>,<counter>)", "counts in a general counter of a tracked entry"),
    act("sc-inc-gpc0(", "cstrqpa", "(<counter>)", "counts in the first general counter of a tracked entry"),
    act("sc-inc-gpc1(", "cstrqpa", "(<counter>)", "counts in the second general counter of a tracked entry"),
    act(
        "sc-set-gpt(",
        "cstrqpa",
        "(<index>,<counter>) <number>|<expression>",
        "sets a general tag of a tracked entry",
    ),
    act(
        "sc-set-gpt0(",
        "cstrqpa",
        "(<counter>) <number>|<expression>",
        "sets the first general tag of a tracked entry",
    ),
    none("send-spoe-group", "trqp", "sends a group of messages to an agent of SPOE", SPOE),
    act(
        "set-bandwidth-limit",
        "trqp",
        "<filter> [limit <size>|<expression>] [period <time>|<expression>]",
        "has a filter of the proxy bound the bytes of the stream",
    ),
    act("set-bc-mark", "trq", "<number>|<expression>", "sets the mark of the packets to the server"),
    act(
        "set-bc-tos",
        "trq",
        "<number>|<expression>",
        "sets the type of service of the packets to the server",
    ),
    act("set-dst", "cstq", "<expression>", "sets the address that the client connected to"),
    act("set-dst-port", "cstq", "<expression>", "sets the port that the client connected to"),
    act("set-fc-mark", "cstrqp", "<number>|<expression>", "sets the mark of the packets to the client"),
    act(
        "set-fc-tos",
        "cstrqp",
        "<number>|<expression>",
        "sets the type of service of the packets to the client",
    ),
    act("set-header", "qpa", "<name> <format>", "sets a header field in place of those of its name"),
    act(
        "set-headers-bin",
        "qpa",
        "<expression> [prefix <text>]",
        "sets the header fields of a block of names and values",
    ),
    act("set-log-level", "trqpa", "<level>|silent", "sets the level of the log line, or writes none"),
    act("set-map(", "qpa", "(<file>) <key> <value>", "sets an entry of a map"),
    act("set-mark", "cstrqp", "<number>|<expression>", "sets the mark of the packets to the client"),
    act("set-method", "q", "<format>", "sets the method"),
    act("set-nice", "trqp", "<number>", "sets how soon the stream has its turn among others"),
    act("set-path", "q", "<format>", "sets the path, and leaves the query"),
    act("set-pathq", "q", "<format>", "sets path and query"),
    act("set-priority-class", "tq", "<expression>", "sets which class of a queue the request waits in"),
    act(
        "set-priority-offset",
        "tq",
        "<expression>",
        "sets by how many milliseconds the request waits as if it had come earlier or later",
    ),
    act("set-query", "q", "<format>", "sets the query"),
    act("set-retries", "tq", "<number>|<expression>", "sets how often a failed attempt is repeated"),
    act("set-src", "cstq", "<expression>", "sets the client's address"),
    act("set-src-port", "cstq", "<expression>", "sets the client's port"),
    act("set-status", "pa", "<code> [reason <text>]", "sets the status of the response"),
    act(
        "set-timeout",
        "trqp",
        "client|connect|queue|server|tarpit|tunnel <time>|<expression>",
        "sets a timeout of the stream",
    ),
    act(
        "set-tos",
        "cstrqp",
        "<number>|<expression>",
        "sets the type of service of the packets to the client",
    ),
    act("set-uri", "q", "<format>", "sets the whole target"),
    act("set-var(", "cstrqpa", "(<name>[,<condition>...]) <expression>", "keeps a sample in a variable"),
    act(
        "set-var-fmt(",
        "cstrqpa",
        "(<name>[,<condition>...]) <format>",
        "keeps a formatted text in a variable",
    ),
    act("silent-drop", "cstrqp", "[rst-ttl <hops>]", "forgets the connection without a word to the client"),
    act("strict-mode", "qpa", "on|off", "says whether a rule that cannot be carried out ends the stream"),
    act("switch-mode", "t", "http [proto h1|h2]", "turns a TCP connection into one of HTTP"),
    act(
        "tarpit",
        "q",
        "[status <code>] [<answer>...]",
        "keeps the client waiting, then answers with an error",
    ),
    act("track-sc", "cstqp", "<counter> <expression> [table <name>]", "counts in an entry of a stick table"),
    act("unset-var(", "cstrqpa", "(<name>)", "forgets a variable"),
    act("use-service", "tq", "<name>", "has a service of the program answer"),
    act("wait-for-body", "qp", "time <time> [at-least <size>]", "waits for the body before the next rule"),
    act("wait-for-handshake", "q", "", "waits for the end of the TLS handshake"),
];

impl Ruleset {
    /// Rulesets with actions, in the order in which they run.
    pub const LISTS: [Self; 7] = [
        TcpRequestConnection,
        TcpRequestSession,
        TcpRequestContent,
        HttpRequest,
        TcpResponseContent,
        HttpResponse,
        HttpAfterResponse,
    ];

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

    /// Actions that are valid in the ruleset.
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
        own("acl", DFLB, "<name> <criterion> [<flag>...] [<operator>] <value>...", 2, "names a condition")
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
    let lists: [(Ruleset, KeywordContexts, &str); 7] = [
        (TcpRequestConnection, DFL, "a rule for a connection that was accepted"),
        (TcpRequestSession, DFL, "a rule for a session, after the handshakes"),
        (TcpRequestContent, DFLB, "a rule for the client's bytes"),
        (TcpResponseContent, DLB, "a rule for the server's bytes"),
        (HttpRequest, DFLB, "a rule for a request"),
        (HttpResponse, DFLB, "a rule for a response"),
        (HttpAfterResponse, DFLB, "a rule for every response, also the proxy's own"),
    ];
    for (list, contexts, help) in lists {
        rows.push(
            own(list.name(), contexts, "<action> [<argument>...] [if|unless <condition>]", 1, help)
                .named_only()
                .adds()
                .words(rule),
        );
    }
    rows
}

fn acl(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = &line.words[0];
    if let Some(at) = parse::bad_name_byte(name.bytes()) {
        let message = format!(
            "'acl' expects a name of letters, digits and . : _ -, found '{}' in '{}'",
            crate::Shown(&name.bytes()[at..=at]),
            name.shown()
        );
        return b.found.alert(name.pos_at(at), message);
    }
    if matches!(name.bytes(), b"or" | b"OR" | b"||" | b"if" | b"unless") {
        return b.found.alert(
            name.pos(),
            format!("'{}' is a reserved word of conditions and cannot name an ACL", name.shown()),
        );
    }
    let acl = Acl { name: name.clone(), words: line.words[1..].to_vec(), pos: line.pos() };
    b.proxy().acls.push(acl);
}

fn rule(b: &mut Builder<'_>, line: &Line<'_>) {
    let list = Ruleset::LISTS.into_iter().find(|list| list.name() == line.keyword.name);
    let Some(list) = list else { return };
    let name = &line.words[0];
    match list.action(name.bytes()) {
        None => {
            let known: Vec<&str> = list.actions().map(|action| action.name.trim_end_matches('(')).collect();
            let head = name.bytes().split(|byte| *byte == b'(').next().unwrap_or_default();
            let bare = Word::plain(head, name.pos());
            let others: Vec<&str> = Ruleset::LISTS
                .into_iter()
                .filter(|other| other.action(name.bytes()).is_some())
                .map(Ruleset::name)
                .collect();
            let message = match proposal(&bare, known.iter().copied()).as_str() {
                _ if !others.is_empty() => format!(
                    "action '{}' not allowed in '{}'; it is one of {}",
                    name.shown(),
                    list.name(),
                    others.join(", ")
                ),
                "" => format!(
                    "unknown action '{}' of '{}'; 'manylane --help {}' lists all",
                    name.shown(),
                    list.name(),
                    list.name()
                ),
                guess => format!("unknown action '{}' of '{}'{guess}", name.shown(), list.name()),
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
    // Options may precede the kind. The compiler of the rule checks the rest.
    let kind = |word: &Word| ["location", "prefix", "scheme"].iter().any(|known| *word == **known);
    if words.iter().position(kind).is_some_and(|at| at + 1 < words.len()) {
        let rule = Rule { list: Redirect, action: "redirect", words, condition, pos: line.pos() };
        b.proxy().rules.push(rule);
    } else {
        let pos = words.first().map_or(line.pos(), Word::pos);
        b.found.alert(pos, line.keyword.expects(words.len()));
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

    /// All lists have one type of action. This table alone keeps an action out of a list whose caller would
    /// ignore the outcome.
    #[test]
    fn actions_are_in_lists_that_act_on_their_verdicts() {
        let of_messages = "add-header del-header replace-header replace-value set-header";
        let of_requests = "auth early-hint normalize-uri replace-path replace-pathq replace-uri set-method \
            set-path set-pathq set-query set-uri tarpit wait-for-handshake";
        for (names, lists) in [
            ("allow strict-mode", "qpa"),
            (of_messages, "qpa"),
            (of_requests, "q"),
            ("deny pause redirect return wait-for-body", "qp"),
            ("set-status", "pa"),
            ("do-resolve(", "tq"),
            ("accept", "cstr"),
            ("reject", "cstrq"),
            ("silent-drop", "cstrqp"),
            ("close", "r"),
            ("expect-netscaler-cip expect-proxy", "c"),
            ("switch-mode", "t"),
        ] {
            for name in names.split_ascii_whitespace() {
                let action = ACTIONS.iter().find(|action| action.name == name);
                assert_eq!(action.map(|action| action.lists), Some(lists), "{name}");
            }
        }
    }
}
