//! One lane's lines for one target: a batch fills while the previous one is sent.

use crate::clock::Clock;
use crate::line::{Level, Line};
use crate::message::Message;
use crate::target::{Framing, Sample, Target, lose};
use manylane_sync::Arc;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Most bytes that wait on one lane for one target; further lines are lost and counted.
pub const MOST_BYTES: usize = 256 * 1024;
/// Most lines that wait on one lane for one target.
pub const MOST_LINES: usize = 4096;

/// Lines, one after another.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    /// The end of each line.
    pub(crate) ends: Vec<usize>,
}

/// Initial capacity of a batch, in bytes and lines: enough for most rounds, so that nothing is allocated
/// later.
pub(crate) const ROOM: (usize, usize) = (8 * 1024, 64);

impl Batch {
    fn new() -> Self {
        Self { bytes: Vec::with_capacity(ROOM.0), ends: Vec::with_capacity(ROOM.1) }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The lines with their line ends.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// What is logged.
#[derive(Clone, Copy)]
pub(crate) enum Entry<'a> {
    /// A line of this program.
    Own(&'a Line<'a>),
    /// A message of another one.
    Forwarded(&'a Message<'a>),
}

pub(crate) struct Outbox {
    pub(crate) target: Arc<Target>,
    filling: RefCell<Batch>,
    /// The other batch, while it is not being sent.
    spare: RefCell<Batch>,
    waker: Cell<Option<Waker>>,
    /// The same task, to be woken when the outbox is closed while a batch is being sent.
    closing: Cell<Option<Waker>>,
    /// Lines of the batch being sent whose result is unknown.
    under_way: Cell<usize>,
    /// True if a task sends the batches.
    served: Cell<bool>,
    closed: Cell<bool>,
    /// Index within the sample's round of the next line, from 0.
    number: Cell<u32>,
}

impl Outbox {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self {
            target,
            filling: RefCell::new(Batch::new()),
            spare: RefCell::new(Batch::new()),
            waker: Cell::new(None),
            closing: Cell::new(None),
            under_way: Cell::new(0),
            served: Cell::new(false),
            closed: Cell::new(false),
            number: Cell::new(0),
        }
    }

    /// Counts a line, and returns true if the sample includes it.
    fn is_sampled(&self, sample: &Sample) -> bool {
        let number = self.number.get() % sample.size + 1;
        self.number.set(number % sample.size);
        sample.ranges.iter().any(|&(low, high)| (low..=high).contains(&number))
    }

    /// Returns the level to send a line with; `None` if the target leaves it out. Counts the line for the
    /// sample.
    pub(crate) fn admit(&self, level: Level) -> Option<Level> {
        let level = self.target.admits(level)?;
        self.target.sample.as_ref().is_none_or(|sample| self.is_sampled(sample)).then_some(level)
    }

    /// Adds a line to the batch, in the format of the target `form`, with a level from
    /// [`admit`](Self::admit). Returns true if no task sends the batches yet; then start one.
    pub(crate) fn put(
        &self,
        form: &Target,
        level: Level,
        entry: Entry<'_>,
        clock: &mut Clock,
        scratch: &mut Vec<u8>,
    ) -> bool {
        let target = &*self.target;
        let batch = &mut *self.filling.borrow_mut();
        if batch.ends.len() == MOST_LINES {
            self.lose(1);
            return false;
        }
        let counted = target.framing == Some(Framing::OctetCount);
        let begin = batch.bytes.len();
        let into = if counted { &mut *scratch } else { &mut batch.bytes };
        if counted {
            into.clear();
        }
        match entry {
            Entry::Own(line) => line.write(into, clock, form.format, level, form.facility, form.length),
            Entry::Forwarded(message) => message.write(into, clock, form, level),
        }
        if counted {
            batch.bytes.extend_from_slice(scratch.len().to_string().as_bytes());
            batch.bytes.push(b' ');
            batch.bytes.extend_from_slice(scratch);
        } else {
            batch.bytes.push(b'\n');
        }
        if batch.bytes.len() > target.room {
            batch.bytes.truncate(begin);
            self.lose(1);
            return false;
        }
        batch.ends.push(batch.bytes.len());
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        !self.served.replace(true)
    }

    /// Counts lines as lost.
    pub(crate) fn lose(&self, lines: usize) {
        lose(self.target.counts(), lines as u64);
    }

    /// Records that a task sends the batches.
    pub(crate) fn has_task(&self) {
        self.served.set(true);
    }

    /// Records that no task could be started: waiting lines are lost.
    pub(crate) fn unserved(&self) {
        self.served.set(false);
        self.lose(self.filling.borrow().ends.len());
        self.filling.borrow_mut().clear();
    }

    /// Number of waiting lines.
    pub(crate) fn waiting(&self) -> usize {
        self.filling.borrow().ends.len()
    }

    /// Number of waiting lines and of lines whose result is unknown.
    pub(crate) fn unsent(&self) -> usize {
        self.waiting() + self.under_way.get()
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
        for waker in [self.waker.take(), self.closing.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Waits until the outbox is closed.
    pub(crate) async fn closed(&self) {
        poll_fn(|context| {
            if self.is_closed() {
                return Poll::Ready(());
            }
            let waiting = self.closing.take().filter(|waker| waker.will_wake(context.waker()));
            self.closing.set(Some(waiting.unwrap_or_else(|| context.waker().clone())));
            Poll::Pending
        })
        .await
    }

    /// Waits for lines and takes them. `None` if the outbox is closed and empty.
    pub(crate) async fn next(&self) -> Option<Batch> {
        poll_fn(|context| {
            if self.waiting() > 0 {
                let batch = self.filling.replace(self.spare.take());
                self.under_way.set(batch.ends.len());
                return Poll::Ready(Some(batch));
            }
            if self.is_closed() {
                return Poll::Ready(None);
            }
            self.waker.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await
    }

    /// Counts further lines of the current batch as sent.
    pub(crate) fn sent(&self, lines: usize) {
        self.target.counts().own().sent.add(lines as u64);
        self.under_way.set(self.under_way.get().saturating_sub(lines));
    }

    /// Ends a batch. Its lines that were not sent are lost.
    pub(crate) fn done(&self, mut batch: Batch) {
        self.lose(self.under_way.take());
        batch.clear();
        self.spare.replace(batch);
    }

    /// Stops sending: lines of the current batch and waiting lines are lost.
    pub(crate) fn give_up(&self) {
        self.lose(self.under_way.take() + self.waiting());
        self.filling.borrow_mut().clear();
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbox({} lines wait for {:?})", self.waiting(), self.target.delivery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Timeouts;
    use crate::{Facility, Format, Sink, TargetSpec};
    use jiff::tz::TimeZone;
    use std::time::Duration;

    fn outbox(sample: Option<Sample>, level: Level, min_level: Level) -> Outbox {
        let spec = TargetSpec {
            sink: Sink::Udp(([127, 0, 0, 1], 9).into()),
            format: Format::Short,
            keeps_format: false,
            length: 80,
            room: None,
            facility: Facility::new(0).expect("kern"),
            level,
            min_level,
            sample,
            timeouts: Timeouts::default(),
        };
        Outbox::new(Arc::new(Target::new(spec).expect("it is good")))
    }

    fn put(outbox: &Outbox, level: Level, text: &[u8]) -> bool {
        let line = Line { level, tag: b"", pid: 1, host: b"", structured: b"", time: Duration::ZERO, text };
        let Some(level) = outbox.admit(level) else { return false };
        let mut clock = Clock::new(TimeZone::UTC);
        outbox.put(&outbox.target, level, Entry::Own(&line), &mut clock, &mut Vec::new())
    }

    fn lines(outbox: &Outbox) -> Vec<String> {
        outbox
            .filling
            .borrow()
            .lines()
            .map(|line| String::from_utf8_lossy(line).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn a_sample_takes_its_numbers_of_each_round() {
        let outbox =
            outbox(Some(Sample { ranges: vec![(1, 1), (3, 4)], size: 5 }), Level::Debug, Level::Emerg);
        for n in 1..=12 {
            put(&outbox, Level::Info, n.to_string().as_bytes());
        }
        assert_eq!(lines(&outbox), ["<6>1", "<6>3", "<6>4", "<6>6", "<6>8", "<6>9", "<6>11"]);
    }

    #[test]
    fn levels_leave_lines_out_and_make_others_less_important() {
        let outbox = outbox(None, Level::Notice, Level::Err);
        assert!(put(&outbox, Level::Emerg, b"a"), "the first needs a task");
        assert!(!put(&outbox, Level::Warning, b"b"));
        assert!(!put(&outbox, Level::Info, b"c"));
        assert_eq!(lines(&outbox), ["<3>a", "<4>b"]);
    }

    #[test]
    fn what_does_not_fit_is_lost_by_count() {
        let outbox = outbox(None, Level::Debug, Level::Emerg);
        for _ in 0..MOST_LINES + 5 {
            put(&outbox, Level::Info, b"x");
        }
        assert_eq!(outbox.waiting(), MOST_LINES);
        assert_eq!(outbox.target.counts().read_cheap(), [0, 5]);
        outbox.unserved();
        assert_eq!(outbox.target.counts().read_cheap(), [0, MOST_LINES as u64 + 5]);
        assert_eq!(MOST_LINES, 4_096);
    }

    #[test]
    fn lines_of_256_kib_wait_and_no_more() {
        let outbox = outbox(None, Level::Debug, Level::Emerg);
        let put = |length: usize| {
            let around = b"<6>\n".len();
            put(&outbox, Level::Info, &[b'x'; 80][around..length]);
            outbox.filling.borrow().bytes.len()
        };
        (1..=3_276).for_each(|n| assert_eq!(put(80), n * 80));
        let lost = || outbox.target.counts().read_cheap()[1];
        assert_eq!((put(65), lost()), (262_080, 1));
        assert_eq!((put(64), lost()), (262_144, 1));
        assert_eq!((put(4), lost()), (262_144, 2));
    }

    #[test]
    fn bad_targets_are_refused_with_the_reason() {
        let bad = |length, sample, sink| {
            let facility = Facility::new(23).expect("local7");
            let (level, min_level) = (Level::Debug, Level::Emerg);
            let spec = TargetSpec {
                sink,
                format: Format::Raw,
                keeps_format: false,
                length,
                room: None,
                facility,
                level,
                min_level,
                sample,
                timeouts: Timeouts::default(),
            };
            Target::new(spec).expect_err("it is bad").to_string()
        };
        let udp = || Sink::Udp(([127, 0, 0, 1], 9).into());
        assert_eq!(bad(79, None, udp()), "log lines of 79 bytes are out of range: use 80 to 65535");
        let sample = Sample { ranges: vec![(2, 4)], size: 3 };
        assert_eq!(
            bad(80, Some(sample), udp()),
            "the sample's ranges have to lie within 1 to 3, each with its lower end first"
        );
        assert!(bad(80, None, Sink::Unix("x".repeat(200).into())).contains("shorter than 108 bytes"));
    }
}
