//! The same configuration and the same requests through HAProxy and through Manylane: what clients got, what
//! servers saw, log lines, exit codes. A difference needs its reason in the case's file, and the lines that
//! differ; one that is not found any more is stale.
//!
//! `CASE=cookie` runs the cases whose names have that, `SHOW=1` prints what haproxy did.

#![allow(clippy::unwrap_used)]

use manylane_tests::case::{Case, Part};
use manylane_tests::client::Got;
use manylane_tests::compare::{difference, text};
use manylane_tests::program::Which;
use manylane_tests::run::run;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fewer cases are none: a folder that is not found, or a filter that has stayed.
const FEWEST: usize = 150;

/// Cases at the same time: they wait more than they compute.
const TOGETHER: usize = 12;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("differential");
    let wanted = std::env::var("CASE").unwrap_or_default();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "case"))
        .filter(|path| path.to_string_lossy().contains(&wanted))
        .collect();
    paths.sort();
    paths
}

/// Cases whose configurations Manylane refuses: what they need is not built. A case that it does not refuse
/// any more must go from the list.
fn refused() -> BTreeSet<&'static str> {
    lines(include_str!("../differential/REFUSED")).collect()
}

/// Cases that differ and should not, each with what is wrong. One that is repaired must go from the list.
fn defects() -> BTreeMap<&'static str, &'static str> {
    let list = lines(include_str!("../differential/DEFECTS"));
    list.map(|line| line.split_once(": ").expect("a name and what is wrong")).collect()
}

fn lines(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// What is wrong with a case.
fn check(path: &Path, refused: bool) -> Result<(), String> {
    let case = Case::read(path)?;
    let theirs = run(&case, &Which::Haproxy);
    if theirs.exit != Some(0) {
        return Err(format!("haproxy ended with {:?}:\n{}", theirs.exit, theirs.errors));
    }
    if theirs.answers.iter().flatten().any(|got| *got == Got::Nothing) {
        return Err("haproxy gives no answer within the test's patience; the case asks for too many".into());
    }
    let ours = run(&case, &Which::Manylane);
    if refused {
        let named = ours.exit == Some(1) && ours.errors.contains("[ALERT]");
        return if named {
            Ok(())
        } else {
            Err(format!("it is not refused any more: {:?}\n{}", ours.exit, ours.errors))
        };
    }
    let mut wrong = String::new();
    for part in [Part::Exit, Part::Answers, Part::Origin, Part::Log, Part::Cli] {
        let (theirs_text, ours_text) = (text(&theirs, part), text(&ours, part));
        match (theirs_text == ours_text, case.differs.get(&part)) {
            (true, None) => {}
            (false, Some(stated)) => {
                let found = difference(&theirs_text, &ours_text);
                if found != stated.lines {
                    wrong += &format!(
                        "{part:?}: the lines that differ are not those of the section:\n{}\n",
                        found.join("\n")
                    );
                }
            }
            (true, Some(_)) => wrong += &format!("{part:?}: no difference any more, remove its reason\n"),
            (false, None) => {
                wrong += &format!("{part:?}: haproxy\n{theirs_text}{part:?}: manylane\n{ours_text}");
            }
        }
    }
    if std::env::var_os("SHOW").is_some() {
        for part in [Part::Answers, Part::Origin, Part::Log] {
            eprintln!("{} {part:?}\n{}", path.display(), text(&theirs, part));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{wrong}haproxy wrote:\n{}manylane wrote:\n{}", theirs.errors, ours.errors))
}

#[test]
fn the_two_programs_do_the_same() {
    if Which::Haproxy.path().is_none() {
        eprintln!("NOT SHOWN HERE: there is no HAProxy 3.2");
        return;
    }
    let cases = cases();
    assert!(cases.len() >= FEWEST || std::env::var_os("CASE").is_some(), "{} cases", cases.len());
    let (refused, defects) = (refused(), defects());
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                while let Some(path) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = path.file_stem().unwrap().to_string_lossy();
                    let outcome = std::panic::catch_unwind(|| check(path, refused.contains(&*name)))
                        .unwrap_or_else(|_| Err("it panicked; see above".into()));
                    let outcome = match (outcome, defects.get(&*name)) {
                        (Err(_), Some(_)) => Ok(()),
                        (Ok(()), Some(_)) => Err("it is repaired; take it from DEFECTS".into()),
                        (outcome, None) => outcome,
                    };
                    if let Err(why) = outcome {
                        wrong.lock().unwrap().push(format!("==== {name}\n{why}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    eprintln!("{} cases; refused {}, known to be wrong {}", cases.len(), refused.len(), defects.len());
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// What the comparison leaves out must not be everything: each case sees at least one answer or line of
/// haproxy's own.
#[test]
fn every_case_shows_something() {
    if Which::Haproxy.path().is_none() {
        eprintln!("NOT SHOWN HERE: there is no HAProxy 3.2");
        return;
    }
    for path in cases() {
        let case = Case::read(&path).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
        assert!(!case.steps.is_empty() || case.differs.contains_key(&Part::Exit), "{}", path.display());
    }
}
