//! Counters of each lane's driver: each lane counts in its own slot, and any thread reads them.

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
        /// 1 while the lane's driver is io_uring.
        pub(crate) rings,
    }
}

static TALLIES: PerLane<Tallies> = PerLane::new(|_| Tallies::default());

/// Returns the calling lane's counters.
pub(crate) fn own() -> &'static Tallies {
    let tallies: &'static PerLane<Tallies> = &TALLIES;
    tallies.own()
}

/// Returns the number of descriptors of the calling lane's driver, including those of pipes.
pub fn open_here() -> u64 {
    open_of(own())
}

/// Returns the number of descriptors of all lanes' drivers, including those of pipes. Cost: a line of each
/// lane.
pub fn open() -> u64 {
    TALLIES.iter().map(|(_, tallies)| open_of(tallies)).sum()
}

fn open_of(tallies: &Tallies) -> u64 {
    // Reads ends before beginnings, so that ends never exceed beginnings.
    let (released, closed) = (tallies.released.get(), tallies.pipes_closed.get());
    (tallies.opened.get() - released) + 2 * (tallies.pipes_made.get() - closed)
}

/// Numbers of a lane since the process began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoReport {
    /// The lane.
    pub lane: LaneId,
    /// True if the latest driver of the lane is io_uring, false if it is epoll.
    pub is_io_uring: bool,
    /// Number of checks of the kernel: `epoll_wait`; each `io_uring_enter`, even one that only makes room in
    /// a full submission queue.
    pub waits: u64,
    /// Number of `epoll_ctl` calls.
    pub controls: u64,
    /// Number of system calls, or submitted operations, that read.
    pub reads: u64,
    /// Number of those that write.
    pub writes: u64,
    /// Number of those that accept.
    pub accepts: u64,
    /// Number of those that connect.
    pub connects: u64,
    /// Number of `splice` calls.
    pub splices: u64,
    /// Number of system calls, or submitted operations, that close.
    pub closes: u64,
    /// Number of all other calls: options, names, pipes, shutdown.
    pub others: u64,
    /// Number of the operations above (read, write, accept, connect, close) that went through the ring,
    /// without a call of their own.
    pub in_ring: u64,
    /// Bytes received, splices included.
    pub bytes_in: u64,
    /// Bytes sent, splices included.
    pub bytes_out: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Number of descriptors that the driver took over.
    pub opened: u64,
    /// Number of descriptors that it closed or gave up. With nothing in use it equals `opened`.
    pub released: u64,
    /// Number of times that a listener paused for lack of descriptors.
    pub pauses: u64,
    /// Number of splice steps that copied since the kernel refused to splice.
    pub copied_splices: u64,
    /// Bytes that went to a socket through a pipe, without a copy; a part of [`bytes_out`](Self::bytes_out).
    pub spliced_out: u64,
    /// Number of pipes that splices hold.
    pub pipes_used: u64,
    /// Number of pipes that are kept for later use.
    pub pipes_free: u64,
}

impl IoReport {
    /// Returns the number of descriptors of the driver.
    pub fn open(&self) -> u64 {
        self.opened.saturating_sub(self.released)
    }

    /// Returns the number of system calls of all kinds.
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

/// Returns the numbers of every lane that ever had a driver, read while the lanes go on.
pub fn report() -> Vec<IoReport> {
    TALLIES
        .iter()
        .map(|(lane, t)| {
            let (closed, given) = (t.pipes_closed.get(), t.pipes_given.get());
            let used = t.pipes_taken.get().saturating_sub(given);
            IoReport {
                lane,
                is_io_uring: t.rings.get() > 0,
                // Reads ends before beginnings, so that ends never exceed beginnings.
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
