//! Small configuration files with the expected result of `-c` in their heads. `# exit: N` is our exit code.
//! The installed haproxy must return the same, unless `# haproxy: N, reason` documents the difference.

#![allow(clippy::unwrap_used)] // helpers of tests

use manylane_config::cond::Build;
use manylane_config::diag::{Check, Severity};
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Case {
    path: PathBuf,
    ours: u8,
    /// Expected exit code of haproxy, and why it differs.
    theirs: Option<(u8, String)>,
}

fn corpus() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let cases: Vec<Case> = paths.into_iter().map(case).collect();
    assert!(cases.len() > 300, "{}", cases.len());
    cases
}

fn case(path: PathBuf) -> Case {
    let text = std::fs::read(&path).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut ours = None;
    let mut theirs = None;
    for line in text.lines().take_while(|line| line.starts_with('#')) {
        if let Some(code) = line.strip_prefix("# exit: ") {
            ours = code.trim().parse().ok();
        } else if let Some(rest) = line.strip_prefix("# haproxy: ") {
            let (code, reason) =
                rest.split_once(", ").unwrap_or_else(|| panic!("{}: a reason is missing", path.display()));
            theirs = Some((code.parse().unwrap(), reason.trim().to_owned()));
        }
    }
    let ours = ours.unwrap_or_else(|| panic!("{}: # exit: is missing", path.display()));
    Case { path, ours, theirs }
}

fn environment() -> Environment {
    let mut environment = Environment::new();
    environment.set(b"HOME", b"/root").unwrap();
    environment
}

#[test]
fn every_file_is_accepted_or_refused_as_its_head_says() {
    let mut wrong = Vec::new();
    for case in corpus() {
        let mut sources = Sources::new();
        sources.load(&case.path).unwrap();
        let build = Build::bare();
        let loaded = load(&sources, &build, environment(), false);
        let global = &loaded.config.global;
        let has_listener = loaded.config.proxies.iter().any(|proxy| !proxy.binds.is_empty())
            || !global.stats_sockets.is_empty()
            || !loaded.config.peers.is_empty();
        let check = Check { warnings_are_errors: global.zero_warning.is_some(), has_listener, verbose: true };
        let outcome = loaded.found.outcome(&sources, 1, check);
        if outcome.code as u8 != case.ours {
            let text = loaded.found.render(&sources, 1);
            wrong.push(format!(
                "{}: exit {} instead of {}\n{text}",
                case.path.display(),
                outcome.code as u8,
                case.ours
            ));
        }
        // Each error has a position in its line.
        for finding in loaded.found.found().iter().filter(|finding| finding.severity == Severity::Alert) {
            let pos = finding.pos.unwrap_or_else(|| panic!("{}: {}", case.path.display(), finding.message));
            let (line, _) = sources.line(pos.file, pos.line).unwrap();
            assert!(pos.column as usize <= line.len() + 1, "{}: {finding:?}", case.path.display());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_installed_haproxy_agrees_or_differs_for_a_reason() {
    let haproxy = std::env::var_os("MANYLANE_HAPROXY").unwrap_or_default();
    let version = Command::new(&haproxy).arg("-v").stdin(Stdio::null()).output();
    if !version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("version 3.2.")) {
        eprintln!("There is no HAProxy 3.2, for which the reasons were written: only our half was run");
        return;
    }
    let mut wrong = Vec::new();
    for case in corpus() {
        let run = Command::new(&haproxy)
            .args(["-c", "-f"])
            .arg(&case.path)
            .env_clear()
            .env("HOME", "/root")
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let expected = case.theirs.as_ref().map_or(case.ours, |(code, _)| *code);
        // Like a shell, count the end by a signal as 128 plus its number.
        let code = run.status.code().or(run.status.signal().map(|signal| 128 + signal));
        if code != Some(i32::from(expected)) {
            let text = String::from_utf8_lossy(&run.stderr);
            wrong.push(format!("{}: {} instead of {expected}\n{text}", case.path.display(), run.status));
        }
        if let Some((code, reason)) = &case.theirs {
            assert!(
                *code != case.ours && reason.len() > 5,
                "{}: no difference, or no reason",
                case.path.display()
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
