//! Stick tables and what uses them, and peers. What is not built is refused by name.

use super::section::{FLB, LB, SectionKind, SectionKinds};
use super::{Keyword, own};
use crate::build::parse;

pub(super) fn rows() -> Vec<Keyword> {
    let (stick, reason) = ("persistence by stick tables is not built yet", "peers are not built yet");
    let peers = SectionKinds::of(&[SectionKind::Peers]);
    let mut rows: Vec<Keyword> = [
        (
            "stick match",
            LB,
            "<pattern> [table <name>] [if|unless <condition>]",
            "finds the server of a pattern",
        ),
        (
            "stick on",
            LB,
            "<pattern> [table <name>] [if|unless <condition>]",
            "finds and stores the server of a pattern",
        ),
        (
            "stick store-request",
            LB,
            "<pattern> [table <name>] [if|unless <condition>]",
            "stores the server of a request's pattern",
        ),
        (
            "stick store-response",
            LB,
            "<pattern> [table <name>] [if|unless <condition>]",
            "stores the server of a response's pattern",
        ),
        ("bind", peers, "<address> [<option>...]", "where the peers section listens"),
        ("default-bind", peers, "<option>...", "options of bind lines"),
        ("default-server", peers, "<option>...", "options of the peers below"),
        ("disabled", peers, "", "the section is not used"),
        ("enabled", peers, "", "the section is used"),
        ("log", peers, "<target> [<option>...]", "where log lines go"),
        ("peer", peers, "<name> <address> [<option>...]", "a peer"),
        ("server", peers, "<name> [<address>] [<option>...]", "a peer"),
        ("shards", peers, "<number>", "parts that tables are divided into"),
        ("table", peers, "<name> type <type> size <size> [<option>...]", "a table that peers share"),
    ]
    .into_iter()
    .map(|(name, places, usage, help)| {
        let why = if name.starts_with("stick ") { stick } else { reason };
        own(name, places, usage, 0, help).adds().refused(why)
    })
    .collect();
    rows.push(
        own(
            "stick-table",
            FLB,
            "type <type> size <size> [expire <time>] [nopurge] [store <data>[,...]]",
            4,
            "a table of keys and what is counted of them",
        )
        .once()
        .built(parse::stick_table),
    );
    rows.push(
        own("mailer", SectionKinds::of(&[SectionKind::Mailers]), "<name> <address>", 2, "a mail server")
            .adds()
            .refused("alerts by mail are not built"),
    );
    rows
}
