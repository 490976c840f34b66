//! Stick tables, the rules that use them, and peers. Parts that are not built are refused by name.

use super::section::{FLB, LB, SectionKind, SectionKinds};
use super::{Keyword, flag, own};
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
    rows.extend([
        own("bind", peers, "<address> [<option>...]", 1, "where the peers section listens")
            .adds()
            .built(parse::peers_bind),
        own("default-bind", peers, "<option>...", 0, "options of bind lines")
            .adds()
            .refused("write them on the 'bind' line"),
        own("default-server", peers, "<option>...", 0, "options of the peers below")
            .adds()
            .refused("peers are connected to over plain TCP, without options"),
        flag("disabled", peers, "the section is not used")
            .built(|b, line| b.peers().disabled = Some(line.set(true))),
        flag("enabled", peers, "the section is used")
            .built(|b, line| b.peers().disabled = Some(line.set(false))),
        own("log", peers, "<target> [<option>...]", 0, "where log lines go")
            .adds()
            .idle("connections of peers are told of by 'show peers' only"),
        own("peer", peers, "<name> <address>", 1, "a peer, or the process itself if it has that name")
            .adds()
            .built(parse::peer),
        own("server", peers, "<name> [<address>]", 1, "a peer, or the process itself if it has that name")
            .adds()
            .built(parse::peer),
        own("shards", peers, "<number>", 0, "parts that tables are divided into")
            .adds()
            .refused("each peer is told of all entries"),
        own(
            "table",
            peers,
            "<name> type <type> size <size> [<option>...]",
            5,
            "a table that peers share, for rules '<section>/<name>'",
        )
        .adds()
        .built(parse::peers_table),
    ]);
    rows.push(
        own(
            "stick-table",
            FLB,
            "type <type> size <size> [expire <time>] [nopurge] [srvkey name|addr] [peers <section>] \
             [recv-only] [store <data>[,...]]",
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
