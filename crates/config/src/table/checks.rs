//! Health checks: the steps in proxies.

use super::context::{DLB, KeywordContext, KeywordContexts};
use super::{Keyword, Table, flag, own};
use crate::build::{Builder, Line};

/// Where steps stand.
const STEPS: KeywordContexts = KeywordContexts::of(&[
    KeywordContext::Defaults,
    KeywordContext::Listen,
    KeywordContext::Backend,
    KeywordContext::Healthcheck,
]);

const EXPECT_OPTIONS: &str = "[comment <text>] [min-recv <bytes>] [ok-status|error-status|tout-status \
    <status>] \
                              [on-success|on-error <format>] [status-code <expression>] [!]";
const HTTP_EXPECT: &str = "options status|rstatus|string|rstring|string-lf <pattern> | hdr|fhdr name|name-lf \
    [-m <method>] <name> \
                           [value|value-lf [-m <method>] <value>]";
const TCP_EXPECT: &str = "options string|rstring|string-lf|binary|rbinary|binary-lf <pattern>";
const CONNECT: &str = "[default] [port <number>|<expression>] [addr <address>] [send-proxy] [proto <name>] \
    [linger] [comment <text>]";
const SEND: &str = "[meth <method>] [uri <uri>|uri-lf <format>] [ver <version>] [hdr <name> <format>]... \
                    [body <text>|body-lf <format>] [comment <text>]";

/// Steps that set variables, with the variable in parentheses: the keyword, the prefix of its word, the
/// usage, the help.
const SETTERS: &[(&str, &str, &str, &str)] = &[
    ("http-check set-var", "set-var(", "(<name>[,<condition>...]) <expression>", "sets a variable"),
    (
        "http-check set-var-fmt",
        "set-var-fmt(",
        "(<name>[,<condition>...]) <format>",
        "sets a variable from a log format",
    ),
    ("http-check unset-var", "unset-var(", "(<name>)", "removes a variable"),
    ("tcp-check set-var", "set-var(", "(<name>[,<condition>...]) <expression>", "sets a variable"),
    (
        "tcp-check set-var-fmt",
        "set-var-fmt(",
        "(<name>[,<condition>...]) <format>",
        "sets a variable from a log format",
    ),
    ("tcp-check unset-var", "unset-var(", "(<name>)", "removes a variable"),
];

pub(super) fn rows() -> Vec<Keyword> {
    let mut rows = Vec::new();
    let expect = |of: &str| of.replacen("options", EXPECT_OPTIONS, 1).leak() as &'static str;
    for (name, usage, min, help) in [
        ("http-check comment", "<text>", 1, "names the next step in reports"),
        ("http-check connect", CONNECT, 0, "opens a connection"),
        ("http-check expect", expect(HTTP_EXPECT), 2, "what the answer must hold"),
        ("http-check send", SEND, 0, "what is asked"),
        ("tcp-check comment", "<text>", 1, "names the next step in reports"),
        ("tcp-check connect", CONNECT, 0, "opens a connection"),
        ("tcp-check expect", expect(TCP_EXPECT), 2, "what the answer must hold"),
        ("tcp-check send", "<text> [comment <text>]", 1, "bytes to send"),
        ("tcp-check send-lf", "<format> [comment <text>]", 1, "bytes to send, from a log format"),
        ("tcp-check send-binary", "<hex> [comment <text>]", 1, "bytes to send, in hexadecimal"),
        (
            "tcp-check send-binary-lf",
            "<format> [comment <text>]",
            1,
            "bytes to send, in hexadecimal from a log format",
        ),
    ] {
        rows.push(own(name, STEPS, usage, min, help).adds().words(step));
    }
    for (name, _, usage, help) in SETTERS {
        rows.push(own(name, STEPS, usage, 0, help).adds().words(nameless));
    }
    for (name, help) in
        [("http-check", "a step of an HTTP health check"), ("tcp-check", "a step of a TCP health check")]
    {
        rows.push(own(name, STEPS, "<step> [<argument>...]", 1, help).adds().words(setter));
    }
    rows.push(
        flag("http-check disable-on-404", STEPS, "a server that answers 404 gets no new clients")
            .built(|b, line| b.settings().disable_on_404 = Some(line.set(true))),
    );
    rows.push(
        flag("http-check send-state", STEPS, "tells the server its state")
            .built(|b, line| b.settings().send_state = Some(line.set(true))),
    );
    rows.push(own("external-check command", DLB, "<program>", 1, "the program that checks").words(
        |b, line| {
            line.no_more(b, 1);
            b.settings().external_command = line.words.first().map(|word| line.set(word.clone()));
        },
    ));
    rows.push(own("external-check path", DLB, "<folders>", 1, "PATH of the program that checks").words(
        |b, line| {
            line.no_more(b, 1);
            b.settings().external_path = line.words.first().map(|word| line.set(word.clone()));
        },
    ));
    rows.push(
        own(
            "type",
            KeywordContexts::of(&[KeywordContext::Healthcheck]),
            "httpchk|tcp-check|smtpchk|... [<argument>...]",
            1,
            "the kind of the check, with the arguments of the option of that name",
        )
        .words(kind),
    );
    rows
}

/// What `type` may be: options of backends, and how many arguments they take.
const KINDS: &[(&str, &str, usize)] = &[
    ("httpchk", "option httpchk", 4),
    ("ldap-check", "option ldap-check", 0),
    ("mysql-check", "option mysql-check", 3),
    ("pgsql-check", "option pgsql-check", 2),
    ("redis-check", "option redis-check", 0),
    ("smtpchk", "option smtpchk", 2),
    ("spop-check", "option spop-check", 0),
    ("ssl-hello-chk", "option ssl-hello-chk", 0),
    ("tcp-check", "option tcp-check", 0),
];

/// `type`
fn kind(b: &mut Builder<'_>, line: &Line<'_>) {
    let Some(word) = line.words.first() else { return };
    let Some((_, keyword, most)) = KINDS.iter().find(|(name, ..)| *word == **name) else {
        let known: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
        let message = format!("'type' expects one of {}, found '{}'", known.join(", "), word.shown());
        return b.found.alert(word.pos(), message);
    };
    line.no_more(b, most + 1);
    let mut statement = line.statement();
    statement.keyword = keyword;
    statement.words.remove(0);
    b.settings().check_kind = Some(statement);
}

/// Reads a step with a variable in parentheses. The table cannot find these by name.
fn setter(b: &mut Builder<'_>, line: &Line<'_>) {
    let Some(first) = line.words.first() else { return };
    let family = line.keyword.name;
    let known = SETTERS.iter().find(|(keyword, opens, ..)| {
        keyword.starts_with(family) && first.bytes().starts_with(opens.as_bytes())
    });
    let Some((keyword, ..)) = known else {
        let mut known = Table::get().following(family.as_bytes(), b.context());
        known.sort_unstable();
        let name = first.bytes().split(|byte| *byte == b'(').next().unwrap_or_default();
        return b.found.alert(first.pos(), manylane_expr::none_of(family, known, name));
    };
    let mut statement = line.statement();
    statement.keyword = keyword;
    forget_inherited(b, family);
    b.settings().check_steps.push(statement);
}

/// Reports such a step without its variable.
fn nameless(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.keyword.name;
    b.found.alert(line.pos(), format!("'{name}' expects a variable in parentheses: {name}(check.name)"));
}

/// Adds a step. The first own step of a family removes the steps inherited from `defaults`.
fn step(b: &mut Builder<'_>, line: &Line<'_>) {
    let statement = line.statement();
    forget_inherited(b, family(statement.keyword));
    let begins = b.proxy().pos;
    if statement.keyword == "http-check send"
        && let Some(kind) = &mut b.settings().check_kind
        && kind.pos < begins
        && kind.keyword == "option httpchk"
    {
        kind.words.clear(); // the step also replaces the request inherited from `defaults`
    }
    b.settings().check_steps.push(statement);
}

/// Removes the inherited steps of a family.
pub(super) fn forget_inherited(b: &mut Builder<'_>, of: &str) {
    let begins = b.proxy().pos;
    b.settings().check_steps.retain(|step| step.pos >= begins || family(step.keyword) != of);
}

/// The family of a step: `http-check` or `tcp-check`.
fn family(keyword: &str) -> &str {
    keyword.split(' ').next().unwrap_or_default()
}
