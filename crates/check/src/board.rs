//! What others read of a server's checks. Written once a check, by the lane that checks the server; read by
//! reports.

use crate::health::{Change, Counted, Health, Init, Running};
use crate::status::{CheckResult, Status};
use manylane_sync::{LockClass, Mutex};
use std::time::Duration;

static BOARDS: LockClass = LockClass::new("health of a server", LockClass::LEAF);

/// The latest about one server.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the last check came to.
    pub verdict: CheckResult,
    /// How long it took.
    pub took: Duration,
    /// One is under way.
    pub in_progress: bool,
    /// The server is in maintenance, and not checked.
    pub paused: bool,
    /// An operator has ended the checks (`disable health`).
    pub disabled: bool,
    /// How healthy the server is.
    pub health: Health,
    /// Failed checks that moved its health.
    pub failed: u64,
}

/// Where the report of one server lies.
#[derive(Debug)]
pub struct Board(Mutex<Report>);

impl Board {
    /// Before the first check.
    pub fn new(health: Health) -> Self {
        Self(Mutex::new(
            &BOARDS,
            Report {
                verdict: CheckResult::new(Status::Ini, ""),
                took: Duration::ZERO,
                in_progress: false,
                paused: false,
                disabled: false,
                health,
                failed: 0,
            },
        ))
    }

    /// Goes on where another one of the same server ends: with what was found and counted, and its own `rise`
    /// and `fall`.
    pub fn inherit(&self, before: &Self) {
        let before = before.read();
        let mut report = self.0.lock();
        let health = report.health.like(&before.health);
        *report = Report { health, in_progress: false, paused: false, ..before };
    }

    /// What it says now.
    pub fn read(&self) -> Report {
        self.0.lock().clone()
    }

    /// A check begins. How the server is by those before it.
    pub fn begin(&self) -> Running {
        let mut report = self.0.lock();
        report.in_progress = true;
        report.health.running()
    }

    /// Nobody looks after the server now.
    pub fn pause(&self) {
        self.0.lock().paused = true;
    }

    /// Checks are made, or not, from now on.
    pub fn disable(&self, disabled: bool) {
        self.0.lock().disabled = disabled;
    }

    /// Whether checks are made.
    pub fn is_looked_after(&self) -> bool {
        let report = self.0.lock();
        !report.disabled && !report.paused
    }

    /// The check that was begun does not count.
    pub fn cancel(&self) {
        self.0.lock().in_progress = false;
    }

    /// The server comes back from where nobody looked after it: it is up, until one check has failed.
    pub fn come_back(&self) {
        let mut report = self.0.lock();
        report.paused = false;
        report.health = Health::new(report.health.rise(), report.health.fall(), Init::Up);
    }

    /// Somebody else than the checks says how the server is.
    pub fn set(&self, running: Running) {
        let mut report = self.0.lock();
        report.health.set(running);
    }

    /// Before the first check: how the server was when another process had checked it last.
    pub fn restore(&self, running: Running, status: Status) {
        let mut report = self.0.lock();
        report.health.set(running);
        report.verdict = CheckResult::new(status, "");
    }

    /// A check is over. Whether it is worth a line, since it moved the health or came to something else than
    /// the last, and what changed.
    pub fn end(&self, verdict: CheckResult, took: Duration) -> (bool, Option<Change>) {
        let mut report = self.0.lock();
        let (moved, change) = report.health.report(verdict.status);
        report.took = took;
        report.in_progress = false;
        (report.note(verdict, moved), change)
    }

    /// An agent was asked, or could not be: only its own word about health counts. The same.
    pub fn heard(&self, verdict: CheckResult, took: Duration) -> (bool, Option<Change>) {
        if matches!(verdict.status, Status::L7Ok | Status::L7Sts) {
            return self.end(verdict, took);
        }
        let mut report = self.0.lock();
        report.took = took;
        report.in_progress = false;
        let neutral = verdict.status == Status::Checked; // says nothing that is worth a line
        (report.note(verdict, false) && !neutral, None)
    }

    /// From now on only failures that come are told.
    pub fn clear(&self) {
        self.0.lock().failed = 0;
    }

    /// Live traffic failed too often. The same.
    pub fn observe(&self, verdict: CheckResult, counted: Counted) -> (bool, Option<Change>) {
        let mut report = self.0.lock();
        let (moved, change) = report.health.observe(counted);
        (report.note(verdict, moved), change)
    }
}

impl Report {
    /// It came to this, which moved the health or not. Whether that is news.
    fn note(&mut self, verdict: CheckResult, moved: bool) -> bool {
        let news = moved || verdict.status != self.verdict.status;
        if moved && verdict.status.result() == 2 {
            self.failed += 1;
        }
        self.verdict = verdict;
        news
    }
}
