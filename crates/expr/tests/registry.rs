//! The tables of names: complete, consistent, and in agreement with the installed haproxy.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use manylane_expr::{EvalPoints, KeywordDoc, MatchKind, converters, criteria, fetches};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

fn check(kind: &str, rows: impl Iterator<Item = KeywordDoc>) -> (usize, usize) {
    let mut names = BTreeSet::new();
    let mut built = 0;
    for row in rows {
        assert!(names.insert(row.name), "{kind} {} is there twice", row.name);
        assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{kind} {}", row.name);
        match row.refused {
            Some(reason) => assert!(reason.len() > 10, "{kind} {}", row.name),
            None => built += 1,
        }
    }
    (names.len(), built)
}

#[test]
fn every_name_is_there_once_with_help_or_a_reason() {
    let (all, built) = check("fetch", fetches());
    assert!(built >= 178 && all > 480, "{built} of {all}");
    let (all, built) = check("converter", converters());
    assert!(built >= 93 && all > 160, "{built} of {all}");
    let names: Vec<String> = criteria().map(|(name, ..)| name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for (kind, name) in MatchKind::ALL {
        assert_eq!(kind.name(), name);
    }
}

/// A list of the keywords that the installed program registers.
fn dump(list: &str) -> Option<String> {
    let program = common::haproxy::program()?;
    let folder = std::env::temp_dir().join(format!("manylane-expr-registry-{}-{list}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = folder.join("cfg");
    std::fs::write(&config, "frontend f\n    mode http\n    bind 127.0.0.1:1\n    timeout client 1s\n")
        .unwrap();
    let out = Command::new(program)
        .args([&format!("-dK{list}"), "-c", "-f"])
        .arg(&config)
        .stdin(Stdio::null())
        .output();
    std::fs::remove_dir_all(&folder).unwrap();
    Some(String::from_utf8_lossy(&out.expect("it just told its version").stdout).into_owned())
}

/// The name in a signature.
fn name(signature: &str) -> &str {
    signature.split(['(', ':']).next().unwrap().trim()
}

#[test]
fn every_fetch_of_the_installed_haproxy_is_known_and_legal_at_the_same_points() {
    let Some(dump) = dump("smp") else { return };
    let ours: BTreeMap<&str, KeywordDoc> = fetches().map(|row| (row.name, row)).collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in dump.lines().filter(|line| line.starts_with("[ ")) {
        let (marks, signature) = line[1..].split_once(']').unwrap();
        count += 1;
        let name = name(signature);
        let Some(row) = ours.get(name) else {
            wrong.push(format!("{name} is unknown"));
            continue;
        };
        if row.refused.is_some() {
            continue;
        }
        for (mark, (place, where_)) in marks.split_whitespace().zip(EvalPoints::ALL) {
            if row.points.unwrap().meets(*place) != (mark == "Y") {
                wrong.push(format!("{name} in {where_}: theirs {mark}"));
            }
        }
    }
    assert!(count > 400, "the list was not found: {count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_converter_and_acl_of_the_installed_haproxy_is_known() {
    let Some(converters_) = dump("cnv") else { return };
    let ours: BTreeSet<&str> = converters().map(|row| row.name).collect();
    let theirs: Vec<&str> = converters_.lines().filter(|line| line.contains(" => ")).map(name).collect();
    assert!(theirs.len() > 100, "the list was not found: {}", theirs.len());
    let missing: Vec<&&str> = theirs.iter().filter(|name| !ours.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");

    let acls = dump("acl").unwrap();
    let ours: BTreeMap<String, (&str, MatchKind)> =
        criteria().map(|(name, fetch, kind)| (name, (fetch, kind))).collect();
    let mut count = 0;
    for line in acls.lines().filter(|line| line.contains(" -m ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, fetch, kind) = (words[0], words[2], words[4]);
        count += 1;
        let expected = ours.get(name).map(|(fetch, kind)| (*fetch, kind.name()));
        // Here a method is a text, and groups are samples of their own fetch.
        let otherwise = match name {
            "method" => expected.is_none(),
            "http_auth_group" => expected == Some(("http_auth_groups", "str")),
            _ => false,
        };
        assert!(expected == Some((fetch, kind)) || otherwise, "{line}");
    }
    assert!(count > 50, "the list was not found: {count}");
}

/// Lanes of a generation share programs and references.
#[test]
fn programs_may_be_shared_by_lanes() {
    fn shared<T: Send + Sync>() {}
    shared::<manylane_expr::Expression>();
    shared::<manylane_expr::Condition>();
    shared::<manylane_expr::Format>();
    shared::<manylane_expr::Reference>();
    shared::<manylane_expr::ProcessVariables>();
    shared::<manylane_expr::Zone>();
}
