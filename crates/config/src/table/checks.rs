//! Health checks: their steps in proxies. Not built yet; each is refused by name.

use super::place::{DLB, Place, Places};
use super::{Keyword, own};

pub(super) fn rows() -> Vec<Keyword> {
    let reason = "health checks are not built yet";
    let mut rows = Vec::new();
    for (name, usage, help) in [
        ("http-check", "step [argument...]", "a step of an HTTP health check"),
        ("http-check comment", "text", "names the next step in reports"),
        ("http-check connect", "[option...]", "opens a connection"),
        ("http-check disable-on-404", "", "a server that answers 404 gets no new clients"),
        ("http-check expect", "[option...] pattern", "what the answer must hold"),
        ("http-check send", "[option...]", "what is asked"),
        ("http-check send-state", "", "the server is told its state"),
        ("http-check set-var", "(name) expression", "sets a variable"),
        ("http-check set-var-fmt", "(name) format", "sets a variable from a log format"),
        ("http-check unset-var", "(name)", "removes a variable"),
        ("tcp-check", "step [argument...]", "a step of a TCP health check"),
        ("tcp-check comment", "text", "names the next step in reports"),
        ("tcp-check connect", "[option...]", "opens a connection"),
        ("tcp-check expect", "[option...] pattern", "what the answer must hold"),
        ("tcp-check send", "text", "bytes to send"),
        ("tcp-check send-lf", "format", "bytes to send, from a log format"),
        ("tcp-check send-binary", "hex", "bytes to send, in hexadecimal"),
        ("tcp-check send-binary-lf", "format", "bytes to send, in hexadecimal from a log format"),
        ("tcp-check set-var", "(name) expression", "sets a variable"),
        ("tcp-check set-var-fmt", "(name) format", "sets a variable from a log format"),
        ("tcp-check unset-var", "(name)", "removes a variable"),
    ] {
        rows.push(own(name, DLB, usage, 0, help).adds().refused(reason));
    }
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
