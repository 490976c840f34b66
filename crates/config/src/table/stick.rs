//! Stick tables, the rules that use them, and peers. Parts that are not built are refused by name.

use super::context::{FLB, KeywordContext, KeywordContexts, LB};
use super::{Keyword, args, flag, int, own};
use crate::build::parse;

pub(super) fn rows() -> Vec<Keyword> {
    let peers = KeywordContexts::of(&[KeywordContext::Peers]);
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
            .built(parse::peers_default_bind),
        own("default-server", peers, "<option>...", 0, "options of the peers below")
            .adds()
            .built(parse::peers_default_server),
        flag("disabled", peers, "the section is not used")
            .built(|b, line| b.peers().disabled = Some(line.set(true))),
        flag("enabled", peers, "the section is used")
            .built(|b, line| b.peers().disabled = Some(line.set(false))),
        own("log", peers, "<target> [<option>...]", 0, "where log lines go")
            .adds()
            .idle("only 'show peers' reports connections of peers"),
        own(
            "peer",
            peers,
            "<name> <address> [<option>...]",
            1,
            "a peer, or the process itself if it has that name",
        )
        .adds()
        .built(parse::peer),
        own(
            "server",
            peers,
            "<name> [<address>] [<option>...]",
            1,
            "a peer, or the process itself if it has that name",
        )
        .adds()
        .built(parse::peer),
        args(
            "shards",
            peers,
            [int("number", 1, i32::MAX as i64)],
            "parts that the keys of tables are divided into",
        )
        .built(|b, line| b.peers().shards = Some(line.argument(line.int(0) as u32))),
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
             [recv-only] [write-to <table>] [brates-factor <number>] [store <data>[,...]]",
            4,
            "a table of keys and what is counted of them",
        )
        .once()
        .built(parse::stick_table),
    );
    rows
}
