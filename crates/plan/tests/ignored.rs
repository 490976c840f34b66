//! No setting of a file is ignored silently. A generation destructures the tree, so each new field must be
//! named. This test examines the fields that are named and dropped (`field: _`): each is read elsewhere, or
//! is listed here, with the table row that tells the user that the keyword does nothing, or with a reason.
//! The same holds for toggles (`option ...`).

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_config::table::{Status, Table};
use std::collections::BTreeSet;
use std::path::Path;

/// Why no code reads a field.
enum Why {
    /// The keyword is refused or ignored with a warning: its family and name in the table.
    Documented(&'static str, &'static str),
    /// The field is no setting, or its effect is always on.
    Is(&'static str),
}

use Why::{Documented, Is};

const POSITION: Why = Is("where the line is: words have their own");

/// Struct, field and reason.
const DROPPED: &[(&str, &str, Why)] = &[
    ("BindOptions", "label", Is("text of the user's, for the user")),
    ("Config", "files", Is("the reader makes positions of them")),
    ("Global", "default_path", Is("the reader makes paths of it")),
    ("Global", "disable_fast_forward", Documented("Process", "tune.disable-fast-forward")),
    ("Global", "disable_zero_copy", Documented("Process", "tune.disable-zero-copy-forwarding")),
    ("Global", "expose_deprecated", Is("no keyword is deprecated here")),
    ("Global", "expose_experimental", Is("no keyword is experimental here")),
    ("Global", "localpeer", Is("the reader has put it into the environment")),
    ("Global", "numa_cpu_mapping", Documented("Process", "numa-cpu-mapping")),
    ("Global", "profiling_memory", Documented("Process", "profiling.memory")),
    ("Proxy", "explicit_defaults", Is("the reader has copied what they say")),
    ("Proxy", "pos", POSITION),
    ("Peers", "default_server", Is("the reader has put it into the peers")),
    ("Server", "template", Is("the reader has made a server of each number")),
    ("Settings", "default_server", Is("the reader has put it into the servers")),
    ("Settings", "timeouts", Is("asked for one by one: `Settings::timeout`")),
    ("Statement", "pos", POSITION),
    ("Settings", "refused", Is("keywords whose values were refused: such a file is not used")),
    ("Settings", "unsure", Is("the 'defaults' section is missing: such a file is not used")),
    ("Tune", "bufsize_large", Documented("Tuning", "tune.bufsize.large")),
    ("Tune", "bufsize_small", Documented("Tuning", "tune.bufsize.small")),
    ("Tune", "events_max_at_once", Documented("Tuning", "tune.events.max-events-at-once")),
    ("Tune", "fail_alloc", Documented("Tuning", "tune.fail-alloc")),
    ("Tune", "h1_be_glitches", Documented("Tuning", "tune.h1.be.glitches-threshold")),
    ("Tune", "h1_fe_glitches", Documented("Tuning", "tune.h1.fe.glitches-threshold")),
    ("Tune", "h1_zero_copy_recv", Documented("Tuning", "tune.h1.zero-copy-fwd-recv")),
    ("Tune", "h1_zero_copy_send", Documented("Tuning", "tune.h1.zero-copy-fwd-send")),
    ("Tune", "h2_zero_copy_send", Documented("Tuning", "tune.h2.zero-copy-fwd-send")),
    ("Tune", "pattern_cache_size", Documented("Tuning", "tune.pattern.cache-size")),
    ("Tune", "rcvbuf_backend", Documented("Tuning", "tune.rcvbuf.backend")),
    ("Tune", "recv_enough", Documented("Tuning", "tune.recv_enough")),
    ("Tune", "sndbuf_backend", Documented("Tuning", "tune.sndbuf.backend")),
    ("Tune", "sndbuf_frontend", Documented("Tuning", "tune.sndbuf.frontend")),
    ("Tune", "takeover_other_tg", Documented("Tuning", "tune.takeover-other-tg-connections")),
    ("Userlist", "name", Is("lists are found by their place")),
];

/// Toggles without code, and why their effect is always on.
const ALWAYS: &[(&str, &str)] = &[
    ("CONTSTATS", "counters always grow while streams last"),
    ("HTTP_KEEP_ALIVE", "it is so unless another of the three modes is set, which the reader sees to"),
    ("HTTP_NO_DELAY", "nothing is ever held back"),
];

/// Sources that build and run generations, without tests: path and code.
fn sources() -> Vec<(String, String)> {
    fn visit(folder: &Path, all: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, all);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                let code: Vec<&str> = code.lines().map(|line| line.split("//").next().unwrap()).collect();
                all.push((path.display().to_string(), code.join("\n")));
            }
        }
    }
    let mut all = Vec::new();
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    all
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Finds patterns `let Name { ... } =` and `let path::Name { ... } =`; returns the name and the text between
/// the braces.
fn taken_apart(code: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    for (at, _) in code.match_indices("let ") {
        let rest = &code[at + 4..];
        let Some((path, inner)) = rest.split_once('{') else { continue };
        let name = path.trim().rsplit("::").next().unwrap();
        let is_struct = path.bytes().all(|byte| is_word(byte) || b" :".contains(&byte));
        if is_struct
            && name.starts_with(|first: char| first.is_ascii_uppercase())
            && let Some((fields, behind)) = inner.split_once('}')
            && behind.trim_start().starts_with('=')
        {
            all.push((name, fields));
        }
    }
    all
}

/// Returns true if code reads `field` of `name`: as `settings.field` for `Settings`, or by another pattern.
fn is_read(all: &[(String, String)], name: &str, field: &str) -> bool {
    let holders: &[&str] = match name {
        "BindOptions" | "ServerOptions" => &["options"],
        "Config" => &["config"],
        "Cookie" => &["value"],
        "Events" => &["events"],
        "Global" => &["global"],
        "LogLine" => &["line"],
        "Peers" => &["section"],
        "Proxy" => &["proxy"],
        "Ring" => &["section", "ring"],
        "StickTable" => &["table"],
        "Rule" => &["rule"],
        "Server" => &["line"],
        "Settings" => &["settings"],
        "Source" => &["source"],
        "Tune" => &["tune"],
        _ => &[],
    };
    all.iter().any(|(_, code)| {
        let by_name = holders.iter().any(|holder| {
            let access = format!("{holder}.{field}");
            let ends = |at: usize| code.as_bytes().get(at).is_none_or(|next| !is_word(*next));
            // rustfmt puts each call of a long chain on its own line.
            code.match_indices(&access).any(|(at, _)| ends(at + access.len()))
                || code.contains(&format!("{holder}\n            .{field}\n"))
        });
        let apart = || {
            taken_apart(code)
                .into_iter()
                .any(|(other, fields)| other == name && fields.split(',').any(|part| part.trim() == field))
        };
        by_name || apart()
    })
}

/// Fields that a generation drops.
fn dropped(all: &[(String, String)]) -> BTreeSet<(&str, &str)> {
    let generation = all.iter().filter(|(path, _)| path.contains("/src/generation/"));
    let patterns = generation.flat_map(|(_, code)| taken_apart(code));
    patterns
        .flat_map(|(name, fields)| {
            let none = fields.split(',').filter_map(|part| part.trim().strip_suffix(": _"));
            none.map(move |field| (name, field))
        })
        .collect()
}

#[test]
fn what_a_generation_drops_is_read_elsewhere_or_said_to_do_nothing() {
    let all = sources();
    let dropped = dropped(&all);
    assert!(dropped.len() > 100, "this test does not find what it is about: {}", dropped.len());
    let mut silent = Vec::new();
    for (name, field) in &dropped {
        let listed = DROPPED.iter().find(|(of, own, _)| (of, own) == (name, field));
        let read = is_read(&all, name, field);
        match listed {
            None if !read => silent.push(format!("{name}.{field}")),
            None => {}
            Some((.., Documented(family, keyword))) => {
                let row = Table::get().named(keyword).find(|row| row.family == *family);
                let row = row.unwrap_or_else(|| panic!("there is no {keyword} among {family}"));
                assert!(
                    matches!(row.status, Status::Idle(_) | Status::Refused(_)),
                    "{keyword} does nothing and does not say so"
                );
            }
            Some((.., Is(why))) => assert!(!why.is_empty()),
        }
    }
    assert!(
        silent.is_empty(),
        "dropped: read them, or let their keywords say that they do nothing: {silent:?}"
    );
    for (name, field, _) in DROPPED {
        assert!(dropped.contains(&(*name, *field)), "{name}.{field} is not dropped any more");
    }
}

#[test]
fn every_switch_that_is_accepted_is_requested_or_always_so() {
    let all = sources();
    let (_, code) = all.iter().find(|(path, _)| path.ends_with("/generation/proxies.rs")).unwrap();
    let list = code.split("const DONE: &[OptionSwitch] = &[").nth(1).unwrap().split("];").next().unwrap();
    let done: Vec<&str> =
        list.split(',').filter_map(|part| part.trim().strip_prefix("OptionSwitch::")).collect();
    assert!(done.len() > 30, "this test does not find what it is about: {done:?}");
    for toggle in &done {
        let name = format!("OptionSwitch::{toggle}");
        let ends =
            |code: &str, at: usize| code.as_bytes().get(at + name.len()).is_none_or(|next| !is_word(*next));
        let uses: usize = all
            .iter()
            .map(|(_, code)| code.match_indices(&name).filter(|(at, _)| ends(code, *at)).count())
            .sum();
        let always = ALWAYS.iter().any(|(own, _)| own == toggle);
        assert_eq!(
            uses > 1,
            !always,
            "{name}: used {uses} times, one of them in the list of those that are done"
        );
    }
    assert!(ALWAYS.iter().all(|(own, why)| done.contains(own) && !why.is_empty()));
}

#[test]
fn the_test_sees_what_it_is_about() {
    let code = "fn f() {\n let Settings {\n  one,\n  two: _,\n three: _ } = settings;\n let x = \
        settings.two;\n let Some(y) = z else { w };\n}";
    let all = [("/src/generation/a.rs".to_owned(), code.to_owned())];
    assert_eq!(dropped(&all).into_iter().collect::<Vec<_>>(), [("Settings", "three"), ("Settings", "two")]);
    assert!(is_read(&all, "Settings", "two") && !is_read(&all, "Settings", "three"));
    assert!(is_read(&all, "Settings", "one") && !is_read(&all, "Settings", "on"));
}
