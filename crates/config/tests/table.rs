//! The keyword table: complete, consistent, and in agreement with the generated reference.

#![allow(clippy::unwrap_used)] // helpers of tests

use manylane_config::cond::Build;
use manylane_config::diag::Severity;
use manylane_config::lex::Environment;
use manylane_config::source::Sources;
use manylane_config::table::{Arg, KeywordContext, Kind, Shape, Status, Table};
use manylane_config::{load, reference};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn every_keyword_is_there_once_per_context_with_a_help_of_its_own() {
    let mut observed = BTreeSet::new();
    for row in Table::get().rows() {
        assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{}", row.name);
        assert!(row.name.split(' ').all(|word| !word.is_empty()), "{:?}", row.name);
        assert!(row.contexts.iter().count() > 0, "{}", row.name);
        if let Some(reason) = row.status.reason() {
            assert!(reason.len() > 5, "{}", row.name);
        }
        for context in row.contexts.iter() {
            assert!(
                observed.insert((row.name, context)),
                "{} is there twice in {}",
                row.name,
                context.name()
            );
        }
        if let Shape::Args(args) = &row.shape {
            args.iter().for_each(|arg| check_arg(row.name, arg));
        }
    }
}

fn check_arg(name: &str, arg: &Arg) {
    match arg.kind {
        Kind::Int(min, max) => assert!(min <= max, "{name}"),
        Kind::Size(min, max) => assert!(min <= max, "{name}"),
        Kind::Choice(words) => assert!(!words.is_empty(), "{name}"),
        Kind::Time(_) | Kind::Interval(_) | Kind::Switch | Kind::Text => {}
    }
}

#[test]
fn options_of_lines_take_a_fixed_number_of_words() {
    for row in Table::get().rows() {
        let option = row.contexts.contains(KeywordContext::BindOption)
            || row.contexts.contains(KeywordContext::ServerOption);
        if let (true, Shape::Args(args)) = (option, &row.shape) {
            assert!(args.iter().all(|arg| arg.count == manylane_config::table::Count::One), "{}", row.name);
        }
        assert!(!option || !row.name.contains(' '), "{}", row.name);
    }
}

/// The reference and the page of unbuilt keywords match the table; `MANYLANE_BLESS=1` writes them.
#[test]
fn the_reference_is_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap().join("../../docs");
    for (page, made) in [("configuration.md", reference::markdown()), ("unbuilt.md", reference::unbuilt())] {
        let path = docs.join(page);
        if std::env::var_os("MANYLANE_BLESS").is_some() {
            std::fs::create_dir_all(&docs).unwrap();
            std::fs::write(&path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == made,
            "docs/{page} is stale: MANYLANE_BLESS=1 cargo test -p manylane-config --test table"
        );
    }
}

/// HAProxy 3.2, if installed (`scripts/peers`).
fn haproxy() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("MANYLANE_HAPROXY")?);
    let version = Command::new(&path).arg("-v").stdin(Stdio::null()).output();
    if !version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("version 3.2.")) {
        eprintln!("There is no HAProxy 3.2: its keywords are not compared with the table");
        return None;
    }
    Some(path)
}

/// The manual in its package.
fn manual() -> Option<String> {
    let path = haproxy()?.parent()?.join("../share/doc/haproxy/configuration.txt.gz");
    let out = Command::new("gzip").arg("-dc").arg(path).output().ok()?;
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// True if the table has `name` in a place, as a whole or as the beginning of a longer name.
fn known(name: &str, context: KeywordContext) -> bool {
    let begins = format!("{name} ");
    Table::get()
        .rows()
        .iter()
        .any(|row| row.contexts.contains(context) && (row.name == name || row.name.starts_with(&begins)))
}

#[test]
fn every_keyword_of_the_manuals_matrix_is_known_where_the_matrix_says() {
    let Some(manual) = manual() else { return };
    let columns =
        [KeywordContext::Defaults, KeywordContext::Frontend, KeywordContext::Listen, KeywordContext::Backend];
    let mut rows = 0;
    let mut missing = Vec::new();
    let start = manual.rfind("4.1. Proxy keywords matrix").unwrap();
    for line in manual[start..]
        .lines()
        .skip_while(|line| !line.starts_with("-----------------------------"))
        .take_while(|line| !line.starts_with("4.2."))
    {
        let clean = line.replace("(*)", "").replace("(!)", "").replace("(deprecated)", "");
        let words: Vec<&str> = clean.split_whitespace().collect();
        if words.len() < 5
            || line.starts_with(['-', ' '])
            || !words[words.len() - 4..].iter().all(|word| ["X", "-"].contains(word))
        {
            continue;
        }
        rows += 1;
        let name = words[..words.len() - 4].join(" ");
        for (mark, context) in words[words.len() - 4..].iter().zip(columns) {
            if *mark == "X" && !known(&name, context) {
                missing.push(format!("{name} in {}", context.name()));
            }
        }
    }
    assert!(rows > 150, "the matrix was not found: {rows}");
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_keyword_of_the_manuals_list_of_global_is_known() {
    let Some(manual) = manual() else { return };
    let start = manual.rfind("3. Global section\n").unwrap();
    let mut missing = Vec::new();
    let mut count = 0;
    for line in manual[start..].lines().take_while(|line| !line.starts_with("3.1. Process management")) {
        if let Some(name) = line.strip_prefix("   - ") {
            count += 1;
            let name = name.split_whitespace().next().unwrap();
            if !known(name, KeywordContext::Global) {
                missing.push(name);
            }
        }
    }
    assert!(count > 100, "the list was not found: {count}");
    assert_eq!(missing, Vec::<&str>::new());
}

/// Keywords that the installed program registers. Some are newer than its manual.
#[test]
fn every_keyword_that_the_installed_haproxy_registers_is_known() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/minimal.cfg");
    let Some(haproxy) = haproxy() else { return };
    let dump = Command::new(haproxy).args(["-dKall", "-c", "-f", config]).stdin(Stdio::null()).output();
    let dump = dump.expect("it just told its version");
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    let mut section = "";
    let mut missing = BTreeSet::new();
    let mut count = 0;
    let lines =
        dump.lines().skip_while(|line| !line.starts_with("# List of registered configuration keywords"));
    for line in lines.skip(1).take_while(|line| !line.starts_with('#')) {
        let Some(entry) = line.strip_prefix('\t') else {
            section = line;
            continue;
        };
        let words: Vec<&str> = entry.split_whitespace().collect();
        count += 1;
        match (section, &words[..]) {
            ("global", [name, ..]) if !known(name, KeywordContext::Global) => {
                missing.insert(format!("global: {name}"));
            }
            ("listen", ["bind", "<addr>", rest @ ..]) => {
                let name = rest.iter().find(|word| **word != "ssl" || rest.len() == 1).unwrap();
                if !known(name, KeywordContext::BindOption) {
                    missing.insert(format!("bind: {name}"));
                }
            }
            ("listen", ["server", "<name>", "<addr>", name, ..])
                if !known(name, KeywordContext::ServerOption) =>
            {
                missing.insert(format!("server: {name}"));
            }
            ("listen", ["server", ..]) => {}
            ("listen", [list @ ("http-request" | "http-response" | "http-after-response"), action, ..]) => {
                check_action(list, action, &mut missing);
            }
            ("listen", [list @ ("tcp-request" | "tcp-response"), kind, action, ..]) => {
                check_action(&format!("{list} {kind}"), action, &mut missing);
            }
            ("listen", [name, ..]) if !known(name, KeywordContext::Listen) => {
                missing.insert(format!("listen: {name}"));
            }
            _ => {}
        }
    }
    assert!(count > 300, "the dump was not understood: {count}");
    assert_eq!(missing, BTreeSet::new());
}

fn check_action(list: &str, action: &str, missing: &mut BTreeSet<String>) {
    use manylane_config::table::Ruleset::*;
    let lists = [
        TcpRequestConnection,
        TcpRequestSession,
        TcpRequestContent,
        TcpResponseContent,
        HttpRequest,
        HttpResponse,
        HttpAfterResponse,
    ];
    let Some(list) = lists.into_iter().find(|known| known.name() == list) else {
        missing.insert(format!("list {list}"));
        return;
    };
    let bare = action.trim_end_matches('*');
    if !list.actions().any(|known| known.name.trim_end_matches('(') == bare) {
        missing.insert(format!("{} {bare}", list.name()));
    }
}

#[test]
fn nothing_is_without_a_decision() {
    let table = Table::get();
    assert!(table.rows().len() > 600, "{}", table.rows().len());
    for row in table.rows() {
        if let Status::Refused(reason) | Status::Idle(reason) = row.status {
            assert!(!reason.is_empty(), "{}", row.name);
        }
    }
    for name in ["frontend", "backend", "global"] {
        assert!(table.find(name, KeywordContext::Top).is_some());
    }
}

/// The findings of a file, and whether one is an error.
fn said(config: String) -> (String, bool) {
    let mut sources = Sources::new();
    sources.add("test.cfg", config).unwrap();
    let found = load(&sources, &Build::bare(), Environment::new(), false).found;
    (format!("{:?}", found.found()), found.count(Severity::Alert) > 0)
}

#[test]
fn what_tunes_only_what_is_not_built_is_warned_of_and_its_arguments_are_examined() {
    for (line, why) in [
        ("tune.ssl.default-dh-param 2048", "over elliptic curves only"),
        ("tune.ssl.force-private-cache", "lanes share sessions"),
        ("tune.h2.zero-copy-fwd-send off", "without being copied"),
        ("tune.quic.frontend.max-idle-timeout 30s", "QUIC is not built yet"),
        ("tune.lua.maxmem 100", "Lua is not built yet"),
        ("tune.comp.maxlevel 1", "compression is not built yet"),
        ("tune.zlib.memlevel 8", "compression is not built yet"),
        ("tune.peers.max-updates-at-once 200", "as the driver takes"),
        ("tune.pt.zero-copy-forwarding off", "without being copied"),
        ("tune.epoll.mask-events hup", "no event is masked here"),
    ] {
        let (said, wrong) = said(format!("global\n {line}\n"));
        assert!(said.contains("has no effect here") && said.contains(why), "{line}: {said}");
        assert!(!wrong, "{line}: {said}");
    }
    for row in Table::get().rows().iter().filter(|row| row.name.starts_with("tune.")) {
        assert!(!matches!(row.status, Status::Refused(_)), "{}", row.name);
    }
    for line in ["tune.ssl.default-dh-param", "tune.comp.maxlevel x", "tune.pt.zero-copy-forwarding maybe"] {
        let (said, wrong) = said(format!("global\n {line}\n"));
        assert!(wrong, "{line}: {said}");
    }
}

#[test]
fn what_haproxy_has_removed_or_renamed_is_refused_with_what_replaces_it() {
    let of = |line: &str| said(format!("backend b\n mode http\n {line}\n"));
    for (line, instead) in [
        ("appsession JSESSIONID len 52 timeout 3h", "use 'cookie ... insert'"),
        ("monitor-net 10.0.0.0/8", "use 'http-request return status 200 if { src ... }'"),
        ("option forceclose", "use 'option httpclose'"),
        ("option http-tunnel", "leave it out"),
        ("reqidel ^X-", "use 'http-request del-header'"),
        ("redisp", "use 'option redispatch'"),
        ("balance log-hash", "a list of converters, found none"),
        ("persist cookie", "'persist' expects 'rdp-cookie' or 'rdp-cookie(<name>)'"),
    ] {
        let (said, wrong) = of(line);
        assert!(wrong && said.contains(instead), "{line}: {said}");
    }
    let (said, wrong) = of("bind-process 1");
    assert!(!wrong && said.contains("'bind-process' has no effect here"), "{said}");
    assert_eq!(of("transparent"), ("[]".to_owned(), false));
    let (said, wrong) = self::said("frontend f\n use-fcgi-app x\n".to_owned());
    assert!(wrong && said.contains("'use-fcgi-app' not allowed in 'frontend' section"), "{said}");
}

#[test]
fn balance_tells_its_algorithms_and_which_are_not_haproxys() {
    let help = Table::get().find("balance", KeywordContext::Backend).unwrap().help;
    let (theirs, ours) = help.split_once("that HAProxy does not have").unwrap();
    let all: Vec<&str> = manylane_config::algorithms().collect();
    let (unknown, _) = said("backend b\n balance zzzzzzzzzz\n".into());
    let (_, reported) = unknown.split_once("'balance' expects ").unwrap();
    let reported = reported.split_once(", found").unwrap().0;
    assert_eq!(reported, manylane_config::choice(&all), "{unknown}");
    for name in all {
        match name {
            "ewma" | "maglev" => assert!(ours.contains(name) && !theirs.contains(name), "{name}"),
            _ => assert!(theirs.contains(name), "{name}"),
        }
    }
}

#[test]
fn nothing_is_done_every_zero_milliseconds() {
    for option in ["inter", "fastinter", "downinter", "agent-inter"] {
        for (time, taken) in [("0", false), ("0ms", false), ("1us", true), ("1", true)] {
            let (text, _) = said(format!("backend b\n server s 127.0.0.1:80 check {option} {time}\n"));
            assert_eq!(!text.contains("it must be above 0"), taken, "{option}: {text}");
        }
    }
}
