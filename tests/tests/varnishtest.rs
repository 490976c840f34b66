//! Scripts of `varnishtest`, which starts the program, drives clients and servers, and receives log lines.
//! Each must also pass with HAProxy, so that it tests HAProxy's behaviour and not only ours.
//!
//! `CASE=cookie` runs the scripts with that in their name.

#![allow(clippy::unwrap_used)]

use manylane_tests::program::Which;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of concurrent scripts: they wait more than they compute.
const TOGETHER: usize = 12;

/// Fewer scripts mean that the folder was not found, or that a filter is still set.
const FEWEST: usize = 60;

/// Time limit of a script on a busy machine, in seconds.
const LONGEST: &str = "60";

/// Scripts for features that are not built: they fail, and one that passes must be removed from the list.
fn refused() -> BTreeSet<&'static str> {
    let list = include_str!("../varnishtest/REFUSED");
    list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect()
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("varnishtest");
    let wanted = std::env::var("CASE").unwrap_or_default();
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "vtc"))
        .filter(|path| path.to_string_lossy().contains(&wanted))
        .collect();
    paths.sort();
    paths
}

fn run(script: &Path, program: &Path) -> Output {
    let mut command = Command::new("varnishtest");
    command.args(["-t", LONGEST, "-v"]).arg(script).env("HAPROXY_PROGRAM", program).stdin(Stdio::null());
    command.output().unwrap()
}

/// Extracts the failure: lines of `varnishtest` that begin with dashes, and the program's output.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let says_why = |line: &&str| line.starts_with("---") || line.contains("ALERT") || line.starts_with("#  ");
    text.lines().filter(says_why).take(12).map(|line| format!("    {line}\n")).collect()
}

#[test]
fn every_script_passes_here_and_with_haproxy() {
    if Command::new("varnishtest").arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        eprintln!("NOT SHOWN HERE: varnishtest is not installed");
        return;
    }
    let (scripts, refused) = (scripts(), refused());
    assert!(scripts.len() >= FEWEST || std::env::var_os("CASE").is_some(), "{} scripts", scripts.len());
    let ours = Which::Manylane.path().unwrap();
    let theirs = Which::Haproxy.path();
    if theirs.is_none() {
        eprintln!("NOT SHOWN HERE: there is no HAProxy 3.2, so scripts run with Manylane only");
    }
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = script.file_stem().unwrap().to_string_lossy();
                    let output = run(script, &ours);
                    match (output.status.success(), refused.contains(&*name)) {
                        (true, false) | (false, true) => {}
                        (true, true) => {
                            wrong.lock().unwrap().push(format!("{name}: it passes; take it from REFUSED\n"))
                        }
                        (false, false) => {
                            wrong.lock().unwrap().push(format!("{name}: Manylane\n{}", complaint(&output)))
                        }
                    }
                    if let Some(theirs) = &theirs {
                        let output = run(script, theirs);
                        if !output.status.success() {
                            wrong.lock().unwrap().push(format!("{name}: haproxy\n{}", complaint(&output)));
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    eprintln!("{} scripts, of which {} are of what is not built", scripts.len(), refused.len());
    assert!(wrong.is_empty(), "{} complaints:\n{}", wrong.len(), wrong.join(""));
}
