//! Reports of checks to the balancer and to the logs.

use super::changes::{self, alert, say};
use super::local::Local;
use manylane_balance::{Availability, Index};
use manylane_check::{Change, CheckResult, HealthState, Report, Status};
use manylane_logs::Level;
use manylane_plan::generation::{Backend, operation};
use std::fmt::Write;
use std::time::Duration;

/// Reports a check's result to the balancer and to the logs.
pub fn tell(local: &Local, backend: &Backend, index: Index, is_new: bool, change: Option<Change>) {
    let server = &backend.servers[index.get()];
    let Some(check) = &server.check else { return };
    let report = check.board.read();
    let log = check.log && is_new;
    if log {
        log_check(local, backend, index, "Health", &report);
    }
    if change.is_none() {
        return;
    }
    let mut why = String::new();
    if !log {
        reason(&mut why, &report.result, report.took); // `log_check` has not logged it
    }
    // The health is read again here, where no other change of the server can run, so that the last change has
    // the latest result.
    changes::change(local, backend, index, &why, |standing| Availability {
        operation: operation(server.found()),
        ..standing
    });
}

/// Logs the line of `option log-health-checks`.
pub fn log_check(local: &Local, backend: &Backend, index: Index, kind: &str, report: &Report) {
    let server = &backend.servers[index.get()];
    let mut line = String::new();
    let backup = if server.backup { "backup " } else { "" };
    let result = if matches!(report.result.status, Status::L7OkC) { "conditionally " } else { "" };
    let outcome = if report.result.status.result() == 2 { "failed" } else { "succeeded" };
    let (progress, of) = report.health.progress();
    let state = match report.health.running() {
        HealthState::Down => "DOWN",
        _ if report.health.value() < report.health.rise() => "DOWN",
        _ if backend.balancer.servers()[index].state().weight() == 0 => "DRAIN",
        _ => "UP",
    };
    let _ =
        write!(line, "{kind} check for {backup}server {}/{} {result}{outcome}", backend.name, server.name);
    reason(&mut line, &report.result, report.took);
    let _ = write!(line, ", status: {progress}/{of} {state}.");
    say(local, backend, Level::Notice, &line);
    alert(local, backend, Level::Info, &line);
}

/// Appends the result of a check in words.
pub fn reason(line: &mut String, result: &CheckResult, took: Duration) {
    let _ = write!(line, ", reason: {}", result.status.description());
    if let Some(code) = result.code {
        let _ = write!(line, ", code: {code}");
    }
    if !result.info.is_empty() {
        // A server must not be able to end the quoted text.
        let _ = write!(line, ", info: \"{}\"", result.info.replace('"', "<22>"));
    }
    if result.status != Status::Hana {
        let _ = write!(line, ", check duration: {}ms", took.as_millis());
    }
}
