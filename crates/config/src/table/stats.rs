//! The statistics page of proxies.

use super::context::{DFLB, FLB};
use super::{Keyword, own};
use crate::build::{Builder, Line, parse};
use crate::lex::Word;

pub(super) fn rows() -> Vec<Keyword> {
    vec![
        own("stats enable", DFLB, "", 0, "the page is there").built(word),
        own("stats hide-version", DFLB, "", 0, "the page does not show the version").built(word),
        own("stats show-legends", DFLB, "", 0, "the page explains more when pointed at").built(word),
        own("stats show-modules", DFLB, "", 0, "the page shows more counters").built(word),
        own("stats show-node", DFLB, "[<name>]", 0, "the page shows the node's name").built(word),
        own("stats show-desc", DFLB, "[<text>...]", 0, "the page shows a description").built(word),
        own("stats show-version", DFLB, "", 0, "the page shows the version").built(word),
        own("stats realm", DFLB, "<text>", 1, "what is shown when a password is asked for")
            .default("HAProxy Statistics")
            .built(word),
        own("stats uri", DFLB, "<prefix>", 1, "where the page is").default("/haproxy?stats").built(word),
        own("stats refresh", DFLB, "<time>", 1, "how often the page is loaded again").built(|b, line| {
            if line.own_time_in(b, 0, crate::value::Unit::S).is_some() {
                word(b, line);
            }
        }),
        own("stats auth", DFLB, "<user>:<password>", 1, "who may see the page").adds().built(word),
        own("stats scope", DFLB, "<name>", 1, "which proxies the page shows").adds().built(word),
        own("stats admin", FLB, "if|unless <condition>", 2, "when changes are allowed on the page")
            .adds()
            .words(word),
        own(
            "stats http-request",
            FLB,
            "<action> [if|unless <condition>]",
            1,
            "a rule for requests of the page",
        )
        .adds()
        .words(|b, line| {
            let actions = ["allow", "auth", "deny"];
            match line.words.first() {
                Some(action) if actions.iter().any(|known| *action == **known) => word(b, line),
                Some(action) => {
                    let message = format!(
                        "'stats http-request' expects allow, auth or deny, found '{}'",
                        action.shown()
                    );
                    b.found.alert(action.pos(), message);
                }
                None => {}
            }
        }),
    ]
}

/// Keeps the page's settings in the order of their lines, since the order of rules matters.
fn word(b: &mut Builder<'_>, line: &Line<'_>) {
    match line.keyword.name {
        "stats enable" | "stats hide-version" | "stats show-legends" | "stats show-modules"
        | "stats show-version" => line.no_more(b, 0),
        "stats show-node" | "stats realm" | "stats uri" | "stats auth" | "stats scope" | "stats refresh" => {
            line.no_more(b, 1)
        }
        _ => {}
    }
    if line.keyword.name == "stats auth"
        && !line.words.first().is_some_and(|word| word.bytes().contains(&b':'))
    {
        let word = line.words.first();
        let found = if word.is_some() { "no colon" } else { "none" }; // the word may be the password
        let message =
            format!("'stats auth' expects a user and a password with a colon between them, found {found}");
        return b.found.alert(word.map_or(line.pos(), Word::pos), message);
    }
    if line.keyword.name == "stats admin" {
        let (words, condition) = parse::split_condition(b, line);
        if !words.is_empty() || condition.is_none() {
            return b.found.alert(line.pos(), "'stats admin' expects 'if' or 'unless' and a condition");
        }
    }
    let statement = line.statement();
    b.settings().stats.push(statement);
}
