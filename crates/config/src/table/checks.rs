//! Health checks: their steps in proxies.

use super::place::{DLB, Place, Places};
use super::{Keyword, flag, own};
use crate::build::{Builder, Line};

const HTTP_EXPECT: &str = "[comment text] [min-recv bytes] [ok-status|error-status|tout-status status] [on-success|on-error text] [!] \
                           status|rstatus|string|rstring pattern | hdr|fhdr name [-m method] name [value [-m method] value]";
const TCP_EXPECT: &str = "[comment text] [min-recv bytes] [ok-status|error-status|tout-status status] [on-success|on-error text] [!] \
                          string|rstring|binary|rbinary pattern";

pub(super) fn rows() -> Vec<Keyword> {
    let reason = "steps of this kind are not built yet";
    let mut rows = Vec::new();
    for (name, usage, min, help) in [
        ("http-check comment", "text", 1, "names the next step in reports"),
        ("http-check expect", HTTP_EXPECT, 2, "what the answer must hold"),
        (
            "http-check send",
            "[meth method] [uri uri] [ver version] [hdr name value]... [body text] [comment text]",
            0,
            "what is asked",
        ),
        ("tcp-check comment", "text", 1, "names the next step in reports"),
        ("tcp-check connect", "[default] [port port] [comment text]", 0, "opens a connection"),
        ("tcp-check expect", TCP_EXPECT, 2, "what the answer must hold"),
        ("tcp-check send", "text [comment text]", 1, "bytes to send"),
        ("tcp-check send-binary", "hex [comment text]", 1, "bytes to send, in hexadecimal"),
    ] {
        rows.push(own(name, DLB, usage, min, help).adds().words(step));
    }
    for (name, usage, help) in [
        ("http-check", "step [argument...]", "a step of an HTTP health check"),
        ("http-check connect", "[option...]", "opens a connection"),
        ("http-check send-state", "", "the server is told its state"),
        ("http-check set-var", "(name) expression", "sets a variable"),
        ("http-check set-var-fmt", "(name) format", "sets a variable from a log format"),
        ("http-check unset-var", "(name)", "removes a variable"),
        ("tcp-check", "step [argument...]", "a step of a TCP health check"),
        ("tcp-check send-lf", "format", "bytes to send, from a log format"),
        ("tcp-check send-binary-lf", "format", "bytes to send, in hexadecimal from a log format"),
        ("tcp-check set-var", "(name) expression", "sets a variable"),
        ("tcp-check set-var-fmt", "(name) format", "sets a variable from a log format"),
        ("tcp-check unset-var", "(name)", "removes a variable"),
    ] {
        rows.push(own(name, DLB, usage, 0, help).adds().refused(reason));
    }
    rows.push(
        flag("http-check disable-on-404", DLB, "a server that answers 404 gets no new clients")
            .built(|b, line| b.settings().disable_on_404 = Some(line.set(true))),
    );
    rows.push(
        own("external-check command", DLB, "program", 1, "the program that checks")
            .refused("external checks are not built"),
    );
    rows.push(
        own("external-check path", DLB, "folders", 1, "where the program is found")
            .refused("external checks are not built"),
    );
    rows.push(
        own("healthcheck", Places::of(&[Place::Backend, Place::Listen]), "name", 1, "a named health check")
            .refused(reason),
    );
    rows
}

/// Keeps a step. The first of a section takes the place of those of its family that it has from its `defaults`.
fn step(b: &mut Builder<'_>, line: &Line<'_>) {
    let statement = line.statement();
    forget_inherited(b, family(statement.keyword));
    b.settings().check_steps.push(statement);
}

/// Drops the steps of a family that a section has from its `defaults`.
pub(super) fn forget_inherited(b: &mut Builder<'_>, of: &str) {
    let begins = b.proxy().pos;
    b.settings().check_steps.retain(|step| step.pos >= begins || family(step.keyword) != of);
}

/// `http-check` or `tcp-check`.
fn family(keyword: &str) -> &str {
    keyword.split(' ').next().unwrap_or_default()
}
