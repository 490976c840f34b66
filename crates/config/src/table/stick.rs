//! Stick tables and what uses them, and peers. What is not built is refused by name.

use super::section::{FLB, LB, SectionKind, SectionKinds};
use super::{Keyword, own};
use crate::build::parse;

pub(super) fn rows() -> Vec<Keyword> {
    let peers = SectionKinds::of(&[SectionKind::Peers]);
    let mut rows: Vec<Keyword> = [
        ("stick match", "finds the server of a request's pattern"),
        ("stick on", "finds the server of a request's pattern, and stores it there"),
        ("stick store-request", "stores the server of a request by its pattern"),
        ("stick store-response", "stores the server of a response by its pattern"),
    ]
    .into_iter()
    .map(|(name, help)| {
        own(name, LB, "<pattern> [table <name>] [if|unless <condition>]", 1, help)
            .adds()
            .words(parse::stick_rule)
    })
    .collect();
    let of_peers = [
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
    ];
    rows.extend(of_peers.map(|(name, places, usage, help)| {
        own(name, places, usage, 0, help).adds().refused("peers are not built yet")
    }));
    rows.push(
        own(
            "stick-table",
            FLB,
            "type <type> size <size> [expire <time>] [nopurge] [srvkey name|addr] [store <data>[,...]]",
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
