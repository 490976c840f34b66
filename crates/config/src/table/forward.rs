//! `log-forward` sections. Settings that frontends also have are stored in the same fields.

use super::context::{KeywordContext, KeywordContexts};
use super::{Keyword, args, choice, flag, int, own, time};
use crate::build::{Builder, Prefix, parse};
use crate::table::Timeout;

const FORWARD: KeywordContexts = KeywordContexts::of(&[KeywordContext::LogForward]);
const MANY: i64 = i32::MAX as i64;

/// Connections of a section at once, unless it says otherwise.
const MAXCONN: u32 = 10;

pub(super) fn rows() -> Vec<Keyword> {
    vec![
        own("bind", FORWARD, "<address>[,...] [<option>...]", 1, "where messages come over connections")
            .adds()
            .built(parse::bind),
        own("dgram-bind", FORWARD, "<address>[,...] [<option>...]", 1, "where messages come as datagrams")
            .adds()
            .built(parse::dgram_bind),
        own(
            "log",
            FORWARD,
            "global | <target> [len <length>] [format <format>] [sample <ranges>:<size>] <facility> \
                [<level> [<minimum>]]",
            1,
            "where messages are forwarded; without a format in the one that they came in",
        )
        .adds()
        .negatable()
        .built(parse::log),
        args("maxconn", FORWARD, [int("number", 0, MANY)], "connections of the section at once")
            .default("10")
            .built(|b, line| b.settings().maxconn = Some(line.set(line.int(0) as u32))),
        args("backlog", FORWARD, [int("number", 0, MANY)], "connections that wait to be accepted")
            .default("maxconn")
            .built(|b, line| b.settings().backlog = Some(line.set(line.int(0) as u32))),
        args("timeout client", FORWARD, [time("delay")], "how long a connection may be silent")
            .default("none")
            .built(|b, line| b.settings().timeouts[Timeout::Client as usize] = Some(line.set(line.time(0)))),
        flag("option dont-parse-log", FORWARD, "messages are not taken apart, but forwarded as text")
            .negatable()
            .built(|b, line| b.log_forward().dont_parse = line.prefix == Prefix::None),
        flag(
            "option assume-rfc6587-ntf",
            FORWARD,
            "each message on a connection ends with its line, whatever it begins with",
        )
        .negatable()
        .built(|b, line| b.log_forward().lines_only = line.prefix == Prefix::None),
        args(
            "option host",
            FORWARD,
            [choice("policy", &["replace", "fill", "keep", "append"])],
            "whose name messages have: the sender's address, that if they have none, their own, or both",
        )
        .default("fill")
        .built(|b, line| b.log_forward().host = line.choice(0)),
    ]
}

/// Gives a new section its mode and default settings.
pub(crate) fn begin(b: &mut Builder<'_>, line: crate::source::Pos) {
    let settings = b.settings();
    settings.mode = Some(crate::tree::Set { value: crate::tree::Mode::Log, pos: line });
    settings.maxconn = Some(crate::tree::Set { value: MAXCONN, pos: line });
}
