//! Published results of a server's checks. The lane that checks the server writes them once a check; reports
//! read them.

use crate::health::{Change, ErrorWeight, Health, HealthState, Init};
use crate::status::{CheckResult, Status};
use manylane_sync::{LockClass, Mutex, SeqLatch};
use std::time::Duration;

static BOARDS: LockClass = LockClass::new("health of a server", LockClass::LEAF);

/// Current results for one server.
#[derive(Clone, Debug)]
pub struct Report {
    /// Result of the last check.
    pub result: CheckResult,
    /// Duration of the last check.
    pub took: Duration,
    /// True if a check is under way.
    pub in_progress: bool,
    /// True if the server is in maintenance and not checked.
    pub paused: bool,
    /// True if an operator disabled the checks (`disable health`).
    pub disabled: bool,
    /// Health of the server.
    pub health: Health,
    /// Number of failed checks that moved its health.
    pub failed: u64,
}

/// Largest number of bytes of [`CheckResult::info`] in a report: about as many as HAProxy keeps.
const MAX_INFO: usize = 128;

/// Number of words in a report: five for numbers, the others for the text.
const WORDS: usize = 5 + MAX_INFO / 8;

/// Holder of one server's report. Writers take turns under the lock; reports read it without a lock.
#[derive(Debug)]
pub struct ReportCell {
    state: Mutex<Report>,
    published: SeqLatch<WORDS>,
}

impl ReportCell {
    /// Creates the cell of a server before its first check.
    pub fn new(health: Health) -> Self {
        let report = Report {
            result: CheckResult::new(Status::Ini, ""),
            took: Duration::ZERO,
            in_progress: false,
            paused: false,
            disabled: false,
            health,
            failed: 0,
        };
        Self { published: SeqLatch::new(report.words()), state: Mutex::new(&BOARDS, report) }
    }

    fn edit<R>(&self, edit: impl FnOnce(&mut Report) -> R) -> R {
        let mut report = self.state.lock();
        let result = edit(&mut report);
        self.published.write(report.words());
        result
    }

    /// Takes `rise` and `fall` from `like`, and keeps the results.
    pub fn set_steps(&self, like: &Health) {
        self.edit(|report| report.health = like.like(&report.health));
    }

    /// Returns the current report.
    pub fn read(&self) -> Report {
        Report::of_words(&self.published.read())
    }

    /// Begins a check. Returns the state of the server by the earlier checks.
    pub fn begin(&self) -> HealthState {
        self.edit(|report| {
            report.in_progress = true;
            report.health.running()
        })
    }

    /// Pauses the checks: the server is in maintenance.
    pub fn pause(&self) {
        self.edit(|report| report.paused = true);
    }

    /// Disables or enables the checks.
    pub fn disable(&self, disabled: bool) {
        self.edit(|report| report.disabled = disabled);
    }

    /// Returns whether checks are made.
    pub fn is_active(&self) -> bool {
        let report = self.state.lock();
        !report.disabled && !report.paused
    }

    /// Cancels the current check, which does not count.
    pub fn cancel(&self) {
        self.edit(|report| report.in_progress = false);
    }

    /// Resumes the checks after maintenance: the server is up, until one check has failed.
    pub fn come_back(&self) {
        self.edit(|report| {
            report.paused = false;
            report.health = Health::new(report.health.rise(), report.health.fall(), Init::Up);
        });
    }

    /// Sets the state of the server by another cause than its checks.
    pub fn set(&self, running: HealthState) {
        self.edit(|report| report.health.set(running));
    }

    /// Restores, before the first check, the state from the last check of another process.
    pub fn restore(&self, running: HealthState, status: Status) {
        self.edit(|report| {
            report.health.set(running);
            report.result = CheckResult::new(status, "");
        });
    }

    /// Ends a check. Returns whether it is worth a log line, because the health moved or the status differs
    /// from the last one; and the change of state, if there was one.
    pub fn end(&self, result: CheckResult, took: Duration) -> (bool, Option<Change>) {
        self.edit(|report| {
            let (moved, change) = report.health.report(result.status);
            report.took = took;
            report.in_progress = false;
            (report.note(result, moved), change)
        })
    }

    /// Ends a request to an agent, or a failed attempt: only a word about health counts. Returns what
    /// [`end`](Self::end) does.
    pub fn heard(&self, result: CheckResult, took: Duration) -> (bool, Option<Change>) {
        if matches!(result.status, Status::L7Ok | Status::L7Sts) {
            return self.end(result, took);
        }
        self.edit(|report| {
            report.took = took;
            report.in_progress = false;
            let neutral = result.status == Status::Checked; // a status that is not worth a line
            (report.note(result, false) && !neutral, None)
        })
    }

    /// Sets the number of failed checks.
    pub fn set_failed(&self, failed: u64) {
        self.edit(|report| report.failed = failed);
    }

    /// Applies repeated failures of live traffic. Returns what [`end`](Self::end) does.
    pub fn observe(&self, result: CheckResult, counted: ErrorWeight) -> (bool, Option<Change>) {
        self.edit(|report| {
            let (moved, change) = report.health.observe(counted);
            (report.note(result, moved), change)
        })
    }
}

impl Report {
    /// Encodes the report as [`ReportCell`] publishes it, with as much of the text as fits.
    fn words(&self) -> [u64; WORDS] {
        let Self { result, took, in_progress, paused, disabled, health, failed } = self;
        let text = &result.info[..result.info.floor_char_boundary(MAX_INFO)];
        let mut bytes = [0; MAX_INFO];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let flags = [*in_progress, *paused, *disabled, result.code.is_some()]
            .into_iter()
            .fold(0, |flags, flag| flags << 1 | u8::from(flag));
        let (status, running) = (result.status.number(), health.running() as u8);
        let small = u64::from_le_bytes([status, flags, running, text.len() as u8, 0, 0, 0, 0]);
        let steps = u64::from(health.rise()) << 32 | u64::from(health.fall());
        let numbers = [
            small | u64::from(health.value()) << 32,
            steps,
            took.as_nanos() as u64,
            result.code.unwrap_or(0).cast_unsigned(),
            *failed,
        ];
        let (text, _) = bytes.as_chunks();
        std::array::from_fn(|word| match numbers.get(word) {
            Some(number) => *number,
            None => u64::from_le_bytes(text[word - numbers.len()]),
        })
    }

    fn of_words(words: &[u64; WORDS]) -> Self {
        let [small, steps, took, code, failed, text @ ..] = words;
        let [status, flags, running, length, ..] = small.to_le_bytes();
        let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).take(length.into()).collect();
        let flag = |bit: u8| flags >> bit & 1 != 0;
        let result = CheckResult {
            status: Status::by_number(status).unwrap_or(Status::Ini),
            code: flag(0).then_some(code.cast_signed()),
            info: String::from_utf8_lossy(&bytes).into(),
        };
        let running = [HealthState::Up, HealthState::Stopping, HealthState::Down]
            .into_iter()
            .find(|known| *known as u8 == running)
            .unwrap_or(HealthState::Up);
        Self {
            result,
            took: Duration::from_nanos(*took),
            in_progress: flag(3),
            paused: flag(2),
            disabled: flag(1),
            health: Health::of((steps >> 32) as u32, *steps as u32, (small >> 32) as u32, running),
            failed: *failed,
        }
    }

    /// Stores a result, and whether it moved the health. Returns whether it is worth a log line.
    fn note(&mut self, result: CheckResult, moved: bool) -> bool {
        let changed = moved || result.status != self.result.status;
        if moved && result.status.result() == 2 {
            self.failed += 1;
        }
        self.result = result;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_but_for_a_text_that_is_too_long() {
        let board = ReportCell::new(Health::new(2, 3, Init::FullyUp));
        let same = |text: &str, expected: &str| {
            let result = CheckResult { code: Some(-1), ..CheckResult::new(Status::L7Sts, text) };
            assert_eq!(board.end(result, Duration::from_millis(12)), (true, None));
            board.disable(true);
            board.begin();
            let written = board.state.lock(); // reading takes no lock
            let mut read = board.read();
            assert_eq!(&*read.result.info, expected);
            read.result.info = text.into();
            assert_eq!(format!("{read:?}"), format!("{:?}", *written));
            assert!(read.in_progress && read.disabled && !read.paused);
        };
        same("it said é", "it said é");
        let long = format!("{}é", "a".repeat(MAX_INFO - 1));
        same(&long, &long[..MAX_INFO - 1]);
        board.pause();
        board.cancel();
        board.set(HealthState::Stopping);
        let report = board.read();
        assert!(report.paused && !report.in_progress && report.health.running() == HealthState::Stopping);
        board.restore(HealthState::Down, Status::L4Con);
        let report = board.read();
        assert_eq!((report.result, report.failed), (CheckResult::new(Status::L4Con, ""), 2));
        assert_eq!((report.health.value(), report.health.rise(), report.health.fall()), (0, 2, 3));
    }
}
