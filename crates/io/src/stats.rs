//! What each lane's driver did, counted in its own slot and read by anyone.

use manylane_stats::counters;
use manylane_sync::{LaneId, PerLane};

counters! {
    /// Sums of a lane since the process began. "Calls" are system calls.
    pub(crate) struct Tallies {
        pub(crate) waits,
        pub(crate) controls,
        pub(crate) reads,
        pub(crate) writes,
        pub(crate) accepts,
        pub(crate) connects,
        pub(crate) splices,
        pub(crate) closes,
        pub(crate) others,
        pub(crate) in_ring,
        pub(crate) bytes_in,
        pub(crate) bytes_out,
        pub(crate) accepted,
        pub(crate) opened,
        pub(crate) released,
        pub(crate) pauses,
        pub(crate) copied_splices,
        pub(crate) spliced_out,
        pub(crate) pipes_made,
        pub(crate) pipes_closed,
        pub(crate) pipes_taken,
        pub(crate) pipes_given,
    }
}

static TALLIES: PerLane<Tallies> = PerLane::new(|_| Tallies::default());

/// The calling lane's.
pub(crate) fn own() -> &'static Tallies {
    let tallies: &'static PerLane<Tallies> = &TALLIES;
    tallies.own()
}

/// Descriptors in the hands of the calling lane's driver, those of pipes included.
pub fn open_here() -> u64 {
    open_of(own())
}

/// The same of all lanes. Cost: a line of each lane.
pub fn open() -> u64 {
    TALLIES.iter().map(|(_, tallies)| open_of(tallies)).sum()
}

fn open_of(tallies: &Tallies) -> u64 {
    // What ends is read before what begins: never more ends than beginnings.
    let (released, closed) = (tallies.released.get(), tallies.pipes_closed.get());
    (tallies.opened.get() - released) + 2 * (tallies.pipes_made.get() - closed)
}

/// A lane's numbers since the process began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoReport {
    /// Whose they are.
    pub lane: LaneId,
    /// Looks at the kernel: `epoll_wait`; each `io_uring_enter`, also one that only makes room in a full
    /// submission queue.
    pub waits: u64,
    /// `epoll_ctl`.
    pub controls: u64,
    /// Calls, or operations handed to the ring, that read.
    pub reads: u64,
    /// The same that write.
    pub writes: u64,
    /// The same that accept.
    pub accepts: u64,
    /// The same that connect.
    pub connects: u64,
    /// `splice`.
    pub splices: u64,
    /// The same that close.
    pub closes: u64,
    /// All other calls: options, names, pipes, shutdown.
    pub others: u64,
    /// Of the operations above that read, write, accept, connect or close: those that went into the ring, so
    /// were no calls of their own.
    pub in_ring: u64,
    /// Bytes received, splices included.
    pub bytes_in: u64,
    /// Bytes sent, splices included.
    pub bytes_out: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Descriptors that became the driver's.
    pub opened: u64,
    /// Descriptors that it closed or gave up. With nothing in use it equals `opened`.
    pub released: u64,
    /// Times that a listener paused for want of descriptors.
    pub pauses: u64,
    /// Steps of splices that copied, because the kernel refused to splice.
    pub copied_splices: u64,
    /// Bytes that went to a socket through a pipe, uncopied; a part of [`bytes_out`](Self::bytes_out).
    pub spliced_out: u64,
    /// Pipes that splices hold.
    pub pipes_used: u64,
    /// Pipes that are kept for the next.
    pub pipes_free: u64,
}

impl IoReport {
    /// Descriptors in the driver's hands.
    pub fn open(&self) -> u64 {
        self.opened.saturating_sub(self.released)
    }

    /// System calls of all kinds.
    pub fn calls(&self) -> u64 {
        let all = self.waits
            + self.controls
            + self.reads
            + self.writes
            + self.accepts
            + self.connects
            + self.splices
            + self.closes
            + self.others;
        all.saturating_sub(self.in_ring)
    }
}

/// The numbers of every lane that ever had a driver, read while they go on.
pub fn report() -> Vec<IoReport> {
    TALLIES
        .iter()
        .map(|(lane, t)| {
            let (closed, given) = (t.pipes_closed.get(), t.pipes_given.get());
            let used = t.pipes_taken.get().saturating_sub(given);
            IoReport {
                lane,
                // What ends is read before what begins: never more ends than beginnings.
                released: t.released.get(),
                opened: t.opened.get(),
                in_ring: t.in_ring.get(),
                waits: t.waits.get(),
                controls: t.controls.get(),
                reads: t.reads.get(),
                writes: t.writes.get(),
                accepts: t.accepts.get(),
                connects: t.connects.get(),
                splices: t.splices.get(),
                closes: t.closes.get(),
                others: t.others.get(),
                bytes_in: t.bytes_in.get(),
                bytes_out: t.bytes_out.get(),
                accepted: t.accepted.get(),
                pauses: t.pauses.get(),
                copied_splices: t.copied_splices.get(),
                spliced_out: t.spliced_out.get(),
                pipes_used: used,
                pipes_free: t.pipes_made.get().saturating_sub(closed + used),
            }
        })
        .collect()
}
