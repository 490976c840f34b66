//! `--help NAME`: looks up a name in all tables. These are keywords, `option` names, actions, fetches,
//! converters, ACL criteria and predicates.

use crate::cond::Predicate;
use crate::guess;
use crate::reference::{plain, sentence};
use crate::table::{Action, Keyword, Ruleset, Table, with_arguments};
use manylane_expr::{converters, criteria, fetches};

/// The output of `--help NAME`: all entries with the name.
///
/// # Errors
/// If nothing has this name. The text says so and suggests the nearest name.
pub fn help(name: &str) -> Result<String, String> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let name = words.join(" ");
    // Accept names as written in lines: `set-var(txn.x)`, `http-request deny`.
    let bare = name.split('(').next().unwrap_or_default();
    let table = Table::get();
    let option = format!("option {name}");
    let exact = table.named(&name).chain(table.named(&option));
    let mut shown: Vec<String> = exact.map(keyword).collect();
    shown.extend(actions(bare));
    if !bare.is_empty() {
        shown.extend(samples(bare));
    }
    if shown.is_empty() && !name.is_empty() {
        let begins = format!("{name} ");
        shown = table.rows().iter().filter(|row| row.name.starts_with(&begins)).map(plain).collect();
    }
    if shown.is_empty() {
        let guess = guess(name.as_bytes(), known());
        return Err(format!("there is no keyword, action, fetch or converter '{name}'{guess}"));
    }
    Ok(shown.join("\n"))
}

/// Describes a keyword; a ruleset also lists its actions.
fn keyword(row: &Keyword) -> String {
    let mut text = plain(row);
    if let Some(list) = Ruleset::LISTS.into_iter().find(|list| list.name() == row.name) {
        let names: Vec<&str> = list.actions().filter(|action| action.refused.is_none()).map(named).collect();
        text += &format!("    Actions: {}\n", names.join(", "));
    }
    text
}

fn named(action: &Action) -> &'static str {
    action.name.trim_end_matches(['(', '.'])
}

/// Describes actions with this name. The name of a ruleset may precede it.
fn actions(name: &str) -> Option<String> {
    let inside = Ruleset::LISTS.into_iter().find_map(|list| {
        let action = name.strip_prefix(list.name())?.strip_prefix(' ')?;
        Some((list, action))
    });
    let name = inside.map_or(name, |(_, action)| action);
    let action = Action::all().find(|action| named(action) == name)?;
    if inside.is_some_and(|(list, _)| action.lists().all(|own| own != list)) {
        return None;
    }
    let lists: Vec<&str> = action.lists().map(Ruleset::name).collect();
    Some(entry(
        &with_arguments(name, action.usage),
        &format!("An action: it {}", action.help),
        &[("Lists", &lists.join(", "))],
        action.refused,
    ))
}

/// Describes fetches, converters, ACL criteria and predicates.
fn samples(name: &str) -> Vec<String> {
    let mut shown = Vec::new();
    for row in fetches().filter(|row| row.name == name) {
        let points = row.points.map(|points| points.names()).unwrap_or_default();
        let details: &[(&str, &str)] = if points.is_empty() { &[] } else { &[("There in", &points)] };
        shown.push(entry(name, &format!("A fetch: {}", row.help), details, row.refused));
    }
    for row in converters().filter(|row| row.name == name) {
        shown.push(entry(name, &format!("A converter: {}", row.help), &[], row.refused));
    }
    for (_, fetch, kind) in criteria().filter(|(own, ..)| own == name) {
        let text = format!("A criterion of conditions: '{fetch}' compared by '-m {}'", kind.name());
        shown.push(entry(name, &text, &[], None));
    }
    for (_, arity, text) in Predicate::table().filter(|(own, ..)| *own == name) {
        let text = format!("A predicate of '.if' with {arity} arguments, true when {text}");
        shown.push(entry(name, &text, &[], None));
    }
    shown
}

fn entry(name: &str, text: &str, details: &[(&str, &str)], refused: Option<&str>) -> String {
    let mut out = format!("{name}\n    {}.\n", sentence(text));
    for (what, fact) in details {
        out += &format!("    {what}: {fact}\n");
    }
    if let Some(why) = refused {
        out += &format!("    Status: refused: {why}\n");
    }
    out
}

/// All names, for suggestions.
fn known() -> impl Iterator<Item = &'static str> {
    let rows = Table::get().rows().iter();
    let keywords = rows.flat_map(|row| [Some(row.name), row.name.strip_prefix("option ")]).flatten();
    let samples = fetches().chain(converters()).map(|row| row.name);
    keywords.chain(Action::all().map(named)).chain(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_a_name_is_shown() {
        let text = help("maxconn").unwrap();
        assert!(text.contains("Sections: global") && text.contains("defaults, frontend, listen"), "{text}");
        assert!(help("timeout client").unwrap().contains("in ms without a unit"));
        assert!(help(" timeout  client ").is_ok());
        assert!(help("timeout").unwrap().contains("timeout tunnel"));
        assert!(help("reuse-key").unwrap().contains("refused: each certificate has a key of its own"));
    }

    #[test]
    fn what_is_no_keyword_is_found_by_its_name_too() {
        for (name, parts) in [
            ("httplog", &["option httplog", "Sections: "][..]),
            ("deny", &["An action: it answers with an error", "Lists: http-request, http-response"]),
            ("http-request deny", &["An action: "]),
            ("http-request", &["Actions: ", "set-header"]),
            (
                "set-var(txn.x)",
                &["set-var(<name>[,<condition>...]) <expression>", "Lists: tcp-request connection, "],
            ),
            ("stick on", &["Finds the server of a request's pattern", "Sections: listen, backend"]),
            (
                "path",
                &["A fetch: the request's path", "A criterion of conditions: 'path' compared by '-m str'"],
            ),
            ("path_beg", &["'path' compared by '-m beg'"]),
            ("lower", &["A converter: the text in lower case"]),
            ("req.hdr(host)", &["A fetch: "]),
            ("ssl_fc_npn", &["refused: "]),
            ("version_atleast", &["A predicate of '.if'"]),
        ] {
            let text = help(name).unwrap();
            assert!(parts.iter().all(|part| text.contains(part)), "{name}: {text}");
        }
        assert!(help("http-response set-path").is_err(), "not in that list");
    }

    #[test]
    fn unknown_names_get_the_nearest() {
        let said = |name| help(name).unwrap_err();
        assert_eq!(
            said("maxcon"),
            "there is no keyword, action, fetch or converter 'maxcon'; did you mean 'maxconn'?"
        );
        assert!(said("set-heder").contains("'set-header'") && said("httplg").contains("'httplog'"));
        assert_eq!(said(""), "there is no keyword, action, fetch or converter ''");
    }
}
