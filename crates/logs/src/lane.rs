//! A lane's logs: takes lines and sends batches.

use crate::clock::Clock;
use crate::line::{Level, Line};
use crate::message::Message;
use crate::outbox::{Entry, Outbox, ROOM};
use crate::sender;
use crate::target::{Delivery, Target};
use crate::tls::LaneTls;
use jiff::tz::TimeZone;
use manylane_io::Io;
use manylane_sched::{BlockingPool, Here};
use manylane_sync::Arc;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// The logs of one lane for the targets of one generation. After a drop, waiting lines are sent while the
/// lane runs.
pub struct LaneLogs {
    here: Here,
    io: Io,
    pool: Arc<BlockingPool>,
    clock: RefCell<Clock>,
    scratch: RefCell<Vec<u8>>,
    outboxes: Box<[Rc<Outbox>]>,
    tls: Option<LaneTls>,
}

impl LaneLogs {
    /// Creates the logs for `targets`, which later calls refer to by index. `pool` writes to descriptors that
    /// may block.
    pub fn new(
        here: Here,
        io: Io,
        pool: Arc<BlockingPool>,
        zone: TimeZone,
        targets: impl IntoIterator<Item = Arc<Target>>,
    ) -> Self {
        let logs = Self {
            here,
            io,
            pool,
            clock: RefCell::new(Clock::new(zone)),
            scratch: RefCell::new(Vec::with_capacity(ROOM.0)), /* else each line that is the longest so far
                                                                * would ask for memory */
            outboxes: targets.into_iter().map(|target| Rc::new(Outbox::new(target))).collect(),
            tls: None,
        };
        // The terminal is one of these. A process with little to log needs it only at its end, when there may
        // be no memory for a task or a thread; so both are started here.
        for outbox in
            logs.outboxes.iter().filter(|outbox| matches!(outbox.target.delivery, Delivery::Descriptor(_)))
        {
            if sender::start(outbox, logs.here, &logs.io, &logs.pool, None) {
                outbox.has_task();
                logs.pool.prepare();
            }
        }
        logs
    }

    /// Sets what targets need that speak [TLS](crate::TargetTls). Without it, they get nothing.
    pub fn with_tls(mut self, tls: LaneTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Logs a line to the target with this index. Never waits: if there is no room, the line is lost and
    /// counted. So is a line to a [group](crate::Sink::Group), for which this call chooses no member.
    ///
    /// Cost: the line is written once into the lane's batch; the first line of a batch also wakes the lane's
    /// sender.
    ///
    /// # Panics
    /// If there is no target with this index.
    pub fn log(&self, target: usize, line: &Line<'_>) {
        self.log_among(target, line, |_| None);
    }

    /// Logs a line as [`log`](Self::log). For a group, `choose` returns the index of the member that gets the
    /// line; with `None` the line is lost.
    ///
    /// # Panics
    /// If there is no target with this index.
    pub fn log_among(&self, target: usize, line: &Line<'_>, choose: impl FnOnce(usize) -> Option<usize>) {
        self.put(target, line.level, Entry::Own(line), choose);
    }

    /// Forwards a message of another program, as [`log_among`](Self::log_among).
    ///
    /// # Panics
    /// If there is no target with this index.
    pub fn forward(&self, target: usize, message: &Message<'_>, choose: impl FnOnce(usize) -> Option<usize>) {
        self.put(target, message.level(), Entry::Forwarded(message), choose);
    }

    fn put(&self, index: usize, level: Level, entry: Entry<'_>, choose: impl FnOnce(usize) -> Option<usize>) {
        let own = &self.outboxes[index];
        let Some(level) = own.admit(level) else { return };
        let outbox = match own.target.group() {
            None => own,
            Some(group) => match choose(group) {
                Some(chosen) => &self.outboxes[chosen],
                None => return own.lose(1),
            },
        };
        let (clock, scratch) = (&mut self.clock.borrow_mut(), &mut self.scratch.borrow_mut());
        let begins = outbox.put(&own.target, level, entry, clock, scratch);
        if begins && !sender::start(outbox, self.here, &self.io, &self.pool, self.tls.as_ref()) {
            outbox.unserved();
        }
    }

    /// Number of lines of this lane that are not sent yet, for all targets.
    pub fn unsent(&self) -> usize {
        self.outboxes.iter().map(|outbox| outbox.unsent()).sum()
    }

    /// Number of lines that wait on this lane for a target.
    ///
    /// # Panics
    /// If there is no target with this index.
    pub fn waiting(&self, target: usize) -> usize {
        self.outboxes[target].waiting()
    }
}

impl Drop for LaneLogs {
    fn drop(&mut self) {
        self.outboxes.iter().for_each(|outbox| outbox.close());
    }
}

impl fmt::Debug for LaneLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneLogs").field("outboxes", &self.outboxes).finish_non_exhaustive()
    }
}
