//! Messages about mistakes that only a compiled configuration shows, compared with `messages.txt`.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_config::cond::Build;
use manylane_config::diag::Severity;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_plan::Generation;
use manylane_plan::generation::StartOptions;

/// A file with `lines` in this section; ` / ` separates lines.
fn file(section: &str, lines: &str) -> String {
    let lines = format!(" {}\n", lines.replace(" / ", "\n "));
    let of = |name: &str| if name == section { lines.as_str() } else { "" };
    format!(
        "global\n{}defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n\
            resolvers r\n{} nameserver n 127.0.0.1:53\nfrontend f\n bind 127.0.0.1:1\n default_backend b\n{}\
            backend b\n server s 127.0.0.1:2 check\n{}",
        of("global"),
        of("resolvers"),
        of("frontend"),
        of("backend"),
    )
}

/// Alerts and warnings, each with its column.
fn said(text: String) -> String {
    let mut sources = Sources::new();
    sources.add("test.cfg", text).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    let said = loaded.found.found().iter().filter(|one| one.severity != Severity::Notice);
    let said = said.map(|one| format!("{}: {}", one.pos.map_or(0, |pos| pos.column), one.message));
    said.collect::<Vec<_>>().join(" | ")
}

#[test]
fn each_mistake_is_told_by_what_was_expected_and_what_was_found() {
    let (mut section, mut count, mut wrong) = ("", 0, Vec::new());
    for line in include_str!("messages.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        } else if let Some((lines, expected)) = line.split_once(" => ") {
            let said = said(file(section, lines));
            if said != expected {
                wrong.push(format!("{lines} => {said}"));
            }
            count += 1;
        }
    }
    assert!(count > 0 && wrong.is_empty(), "{count} lines, these are otherwise:\n{}", wrong.join("\n"));
}
