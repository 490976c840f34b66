//! The table of keywords says which keywords are built. A generation refuses none of these.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_config::cond::Build;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_config::table::{Arg, Keyword, KeywordContext, Kind, Shape, Status, Table};
use manylane_plan::Generation;
use manylane_plan::generation::StartOptions;

/// All messages about a file.
fn said(config: String) -> String {
    let mut sources = Sources::new();
    sources.add("test.cfg", config).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    format!("{:?}", loaded.found.found())
}

/// Values of an argument; the last one demands most.
fn values(arg: &Arg) -> Vec<String> {
    match arg.kind {
        Kind::Int(min, max) => vec![min.to_string(), max.to_string()],
        Kind::Time(_) | Kind::Interval(_) => vec!["1s".into()],
        Kind::Size(min, max) => vec![min.to_string(), max.to_string()],
        Kind::Choice(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        Kind::Switch => vec!["off".into(), "on".into()],
        Kind::Text => vec!["text".into()],
    }
}

/// Lines that a keyword may have, by its shape.
fn lines(row: &Keyword) -> Vec<String> {
    match &row.shape {
        Shape::Flag => vec![row.name.to_owned()],
        Shape::Args(args) => args.iter().fold(vec![row.name.to_owned()], |lines, arg| {
            let more = |line: &String| {
                values(arg).into_iter().map(|value| format!("{line} {value}")).collect::<Vec<_>>()
            };
            lines.iter().flat_map(more).collect()
        }),
        Shape::Own(..) => Vec::new(),
    }
}

/// A file with this line, if some section accepts it.
fn config(row: &Keyword, line: &str) -> Option<String> {
    let times = " timeout client 1s\n timeout server 1s\n timeout connect 1s\n";
    Some(if row.contexts.contains(KeywordContext::Global) {
        format!("global\n {line}\n")
    } else if row.contexts.contains(KeywordContext::BindOption) {
        format!("listen l\n{times} bind 127.0.0.1:1 {line}\n")
    } else if row.contexts.contains(KeywordContext::ServerOption) {
        format!("listen l\n{times} server s 127.0.0.1:1 {line}\n")
    } else if row.contexts.contains(KeywordContext::Listen) {
        format!("listen l\n mode http\n{times} {line}\n")
    } else {
        return None;
    })
}

/// Texts of messages that refuse or ignore a keyword.
const REFUSALS: [&str; 3] = ["that this program refuses", "has no effect here", "not built"];

/// Options that depend on others, on the mode or on the section; tested with checks, TLS and peers.
const ELSEWHERE: [&str; 8] =
    ["error-limit", "observe", "on-error", "on-marked-down", "on-marked-up", "track", "shard", "sni-auto"];

#[test]
fn what_the_table_says_is_read_is_not_refused_later() {
    let (mut tried, mut wrong) = (0, String::new());
    for row in Table::get().rows() {
        let plain = matches!(row.status, Status::Built(_) | Status::Words(_)) && row.limitation.is_empty();
        let option = row.contexts.contains(KeywordContext::ServerOption);
        if !plain || row.family == "Health checks" || option && ELSEWHERE.contains(&row.name) {
            continue;
        }
        for line in lines(row) {
            let Some(config) = config(row, &line) else { continue };
            let said = said(config);
            tried += 1;
            if REFUSALS.iter().any(|words| said.contains(words)) {
                wrong += &format!("{line}: {said}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(tried > 250, "{tried}");
}

#[test]
fn what_the_table_says_is_refused_in_part_is_refused_by_name() {
    for line in ["cpu-affinity per-core", "set-dumpable libs"] {
        let said = said(format!("global\n {line}\n"));
        assert!(said.contains("that this program refuses"), "{line}: {said}");
    }
}

/// As in HAProxy, unused formats and error files are checked, too, and each error is reported once.
#[test]
fn formats_and_error_files_that_nobody_needs_are_examined() {
    let times = " mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n";
    let with =
        |section: &str, line: &str| said(format!("{section}frontend f\n bind 127.0.0.1:1\n{times}{line}"));
    for keyword in ["log-format", "error-log-format", "log-format-sd"] {
        let said = with("", &format!(" {keyword} %[nosuch]\n"));
        assert!(said.contains("nosuch"), "{keyword}: {said}");
        let said = with("", &format!(" {keyword} %[src]\n"));
        assert!(!said.contains("Alert"), "{keyword}: {said}");
    }
    for line in ["", " errorfiles e\n"] {
        let said = with("http-errors e\n errorfile 404 /no/such.file\n", line);
        assert_eq!(said.matches("Alert").count(), 1, "{said}");
        assert!(said.contains("/no/such.file"), "{said}");
    }
}

/// As in HAProxy, an unused log format is reported even if its line is in 'defaults'.
#[test]
fn formats_that_no_line_is_made_by_are_reported() {
    let times = " timeout client 1s\n timeout server 1s\n timeout connect 1s\n";
    let log = " log 127.0.0.1:1 local0\n";
    let listen = |defaults: &str, own: &str| {
        said(format!("defaults\n{times}{defaults}listen l\n bind 127.0.0.1:1\n server s 127.0.0.1:2\n{own}"))
    };
    let (format, fall) = ("log format ignored for listen 'l'", "Falling back to 'option tcplog'");
    for line in [" option httplog\n", " option tcplog\n", " log-format %ci\n", " log-format-sd %ci\n"] {
        for said in [listen(line, " mode http\n"), listen("", &format!(" mode http\n{line}"))] {
            assert!(said.contains(format) && !said.contains(fall), "{line}: {said}");
        }
        for said in [listen(line, &format!(" mode http\n{log}")), listen(log, &format!(" mode http\n{line}"))]
        {
            assert!(!said.contains(format), "{line}: {said}");
        }
    }
    for said in [listen(" option httplog\n", log), listen(log, " option httplog clf\n")] {
        assert!(said.contains(fall) && !said.contains(format), "{said}");
    }
}
