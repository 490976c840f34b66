//! Runs the same configuration and requests with HAProxy and Manylane, and compares responses, requests at
//! the servers, log lines and exit codes. A case's file states the reason of each difference and its lines; a
//! difference that does not occur any more is an error.
//!
//! Cases also run over TLS and, where their requests can be sent so, over HTTP/2.
//! `differential/NOT_OVER_TLS` and `differential/NOT_OVER_HTTP_2` list exceptions with their reasons.
//!
//! `CASE=cookie` runs the cases with that in their name, `OVER=TLS` those runs alone, `SHOW=1` prints the
//! results of HAProxy.

#![allow(clippy::unwrap_used)]

use manylane_tests::case::{Case, Over, Part};
use manylane_tests::client::Got;
use manylane_tests::compare::{difference, text};
use manylane_tests::http2;
use manylane_tests::program::Which;
use manylane_tests::run::{Outcome, run};
use manylane_tests::tls;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fewer cases mean that the folder was not found, or that a filter is still set.
const FEWEST: usize = 150;

/// Number of times that HAProxy runs a case before a difference counts.
const MOST_RUNS_OF_HAPROXY: usize = 3;

/// Number of concurrent cases: they wait more than they compute.
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

/// Cases whose configurations Manylane refuses because something is not built. A case that it accepts must be
/// removed from the list.
fn refused() -> BTreeSet<&'static str> {
    lines(include_str!("../differential/REFUSED")).collect()
}

/// Cases that differ but should not, each with the defect. Repaired ones must be removed from the list.
fn defects() -> BTreeMap<&'static str, &'static str> {
    let list = lines(include_str!("../differential/DEFECTS"));
    list.map(|line| line.split_once(": ").expect("a name and what is wrong")).collect()
}

fn lines(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// Cases that are not run over something, each with the reason.
fn left_out(list: &'static str) -> BTreeMap<&'static str, &'static str> {
    lines(list).map(|line| line.split_once(": ").expect("a name and a reason")).collect()
}

/// Converts a line of an HTTP/2 run to the form of HTTP/1.1, with paths as targets.
fn as_http1(line: &str) -> String {
    let line = line.replace("HTTP/2.0", "HTTP/1.1").replace("HTTP/2 ", "HTTP/1.1 ");
    let Some((before, url)) = line.split_once(" http://") else { return line };
    let path = url.find('/').map_or("", |slash| &url[slash..]);
    format!("{before} {path}")
}

/// Converts a line of a run over TLS to the form without it: frontends have a mark (`%ft`) there.
fn without_tls(line: &str) -> String {
    line.replace("~ ", " ")
}

/// Runs a case. The error says what is wrong.
fn check(mut case: Case, refused: bool, over: Over) -> Result<(), String> {
    let mut requests = None;
    match over {
        Over::Tcp => {}
        Over::Tls => case.config = tls::config(&case.config)?,
        Over::Http2 => {
            let (config, planned) = http2::plan(&case)?;
            case.config = config;
            requests = Some(planned);
        }
    }
    let run = |which| run(&case, &which, requests.clone(), over == Over::Tls);
    let of_haproxy = || {
        let theirs = run(Which::Haproxy);
        if theirs.exit != Some(0) {
            return Err(format!("haproxy ended with {:?}:\n{}", theirs.exit, theirs.errors));
        }
        if theirs.answers.iter().flatten().any(|got| *got == Got::Nothing) {
            return Err(
                "haproxy gives no answer within the test's timeout; the case asks for too many".to_owned()
            );
        }
        Ok(theirs)
    };
    let mut theirs = of_haproxy();
    let mut of_this = |which| {
        let ours = run(which);
        let compared = |theirs: &Result<Outcome, String>| {
            theirs
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|theirs| compare(&case, refused, over, theirs, &ours))
        };
        let mut outcome = compared(&theirs);
        // HAProxy has races of its own. A difference counts if HAProxy shows it again.
        for _ in 1..MOST_RUNS_OF_HAPROXY {
            if outcome.is_ok() {
                break;
            }
            let again = of_haproxy();
            if compared(&again).is_ok() {
                eprintln!("haproxy does not do the same each time: {} {over:?}", case.path.display());
                (theirs, outcome) = (again, Ok(()));
            }
        }
        outcome
    };
    of_this(Which::Manylane)?;
    match Which::Checked.path() {
        Some(_) => of_this(Which::Checked).map_err(|why| format!("MANYLANE_CHECKED: {why}")),
        None => Ok(()),
    }
}

/// Compares two runs of a case. The error says what is wrong.
fn compare(case: &Case, refused: bool, over: Over, theirs: &Outcome, ours: &Outcome) -> Result<(), String> {
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
        let (theirs_text, ours_text) = (text(theirs, part), text(ours, part));
        match (theirs_text == ours_text, case.differs(over, part)) {
            (true, None) => {}
            (false, Some(stated)) => {
                let found = difference(&theirs_text, &ours_text);
                let form: fn(&str) -> String = match over {
                    Over::Http2 if stated.over == Over::Tcp => as_http1,
                    Over::Tls if stated.over == Over::Tcp => without_tls,
                    _ => str::to_owned,
                };
                let framed = |line: &&String| {
                    over != Over::Http2 || stated.over == over || !line[2..].starts_with("connection:")
                };
                let stated = stated.lines.iter().filter(framed).map(|line| form(line));
                let is_stated = found.iter().map(|line| form(line)).eq(stated);
                if !is_stated {
                    wrong += &format!(
                        "{part:?}: the lines that differ are not those of the section:\n{}\n",
                        found.join("\n")
                    );
                }
            }
            // A reason for TCP need not apply here.
            (true, Some(stated)) if stated.over != over => {}
            (true, Some(_)) => wrong += &format!("{part:?}: no difference any more, remove its reason\n"),
            (false, None) => {
                let found = difference(&theirs_text, &ours_text).join("\n");
                wrong += &format!("{part:?}: haproxy\n{theirs_text}{part:?}: manylane\n{ours_text}");
                wrong += &format!("{part:?}: lines that differ\n{found}\n");
            }
        }
    }
    if std::env::var_os("SHOW").is_some() {
        for part in [Part::Answers, Part::Origin, Part::Log] {
            eprintln!("{} {part:?}\n{}", case.path.display(), text(theirs, part));
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
    let wanted = std::env::var("OVER");
    let all = std::env::var_os("CASE").is_none() && wanted.is_err();
    assert!(cases.len() >= FEWEST || !all, "{} cases", cases.len());
    let (refused, defects) = (refused(), defects());
    let mut not_over = [
        (Over::Tls, "over TLS", left_out(include_str!("../differential/NOT_OVER_TLS"))),
        (Over::Http2, "over HTTP/2", left_out(include_str!("../differential/NOT_OVER_HTTP_2"))),
    ];
    let mut runs = Vec::new();
    let mut skipped: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let count = cases.len();
    for path in cases {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let case = Case::read(&path).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        for (over, title, list) in &mut not_over {
            let able = match over {
                Over::Http2 => http2::plan(&case).map(drop),
                _ => tls::config(&case.config).map(drop),
            };
            let able = able.and_then(|()| list.remove(&*name).map_or(Ok(()), |_| Err("a list says why")));
            match able {
                Ok(()) => runs.push((format!("{name} {title}"), case.clone(), *over)),
                Err(why) => *skipped.entry((*title, why)).or_default() += 1,
            }
        }
        runs.push((name, case, Over::Tcp));
    }
    if let Ok(wanted) = wanted {
        runs.retain(|(name, _, _)| name.ends_with(&format!(" over {wanted}")));
    }
    for (over, title, left) in not_over {
        assert!(left.is_empty() || !all, "these cannot run {title} anyway: {left:?}");
        let count = runs.iter().filter(|(_, _, is_over)| *is_over == over).count();
        eprintln!("{count} cases {title}");
        assert!(count >= FEWEST || !all, "{count} cases {title}");
    }
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                while let Some((name, case, over)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let check = || check(case.clone(), refused.contains(&**name), *over);
                    let outcome = std::panic::catch_unwind(check)
                        .unwrap_or_else(|_| Err("it panicked; see above".into()));
                    let outcome = match (outcome, defects.get(&**name)) {
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
    eprintln!("{count} cases; refused {}, known to be wrong {}", refused.len(), defects.len());
    skipped.iter().for_each(|((title, why), count)| eprintln!("not {title}: {count} cases: {why}"));
    assert!(wrong.is_empty(), "{} of {} runs:\n{}", wrong.len(), runs.len(), wrong.join("\n"));
}

/// The comparison must not leave out everything: each case has at least one response or line of HAProxy.
#[test]
fn every_case_shows_something() {
    if Which::Haproxy.path().is_none() {
        eprintln!("NOT SHOWN HERE: there is no HAProxy 3.2");
        return;
    }
    for path in cases() {
        let case = Case::read(&path).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
        assert!(
            !case.steps.is_empty() || case.differs(Over::Tcp, Part::Exit).is_some(),
            "{}",
            path.display()
        );
    }
}
