//! What is counted of connections of HTTP/2: by the frontend of a client, by the backend of a server.

use crate::counts::{BackendStats, FrontendStats};
use manylane_mux::h2::{Conn, Counts};
use std::ops::Deref;

/// Who counts them, in the calling lane's counters.
pub(crate) trait H2Counters {
    /// A connection begins, or ends.
    fn connection(&self, ends: bool);

    /// So many streams began and ended, and this came meanwhile.
    fn add(&self, begun: u64, ended: u64, counts: &Counts);
}

macro_rules! h2_counters {
    ($($name:ident)+) => {$(
        impl H2Counters for $name {
            fn connection(&self, ends: bool) {
                let own = self.own();
                if ends { own.h2_connections_ended.add(1) } else { own.h2_connections.add(1) }
            }

            fn add(&self, begun: u64, ended: u64, counts: &Counts) {
                let own = self.own();
                own.h2_streams.add(begun);
                own.h2_streams_ended.add(ended);
                own.h2_headers.add(counts.headers.into());
                own.h2_data.add(counts.data.into());
                own.h2_settings.add(counts.settings.into());
                own.h2_rst_stream.add(counts.rst_stream.into());
                own.h2_goaway.add(counts.goaway.into());
                own.h2_connection_errors.add(counts.connection_errors.into());
                own.h2_stream_errors.add(counts.stream_errors.into());
                own.h2_rst_stream_sent.add(counts.rst_stream_sent.into());
                own.h2_goaway_sent.add(counts.goaway_sent.into());
            }
        }
    )+};
}

h2_counters!(FrontendStats BackendStats);

/// A connection that is counted until this is dropped, on its lane.
pub(crate) struct CountedConn<P: Deref<Target: H2Counters>> {
    counts: P,
    conn: Conn,
    /// Streams that are counted as begun, and of these those that are not counted as ended.
    begun: u64,
    open: u64,
}

impl<P: Deref<Target: H2Counters>> CountedConn<P> {
    /// It begins.
    pub(crate) fn begin(counts: P, conn: Conn) -> Self {
        counts.connection(false);
        Self { counts, conn, begun: 0, open: 0 }
    }

    /// Counts what happened since this was called last, and tells it. Call it when the connection was driven.
    pub(crate) fn look(&mut self) -> Counts {
        let (counts, begun) = (self.conn.take_counts(), self.conn.begun());
        let open = self.conn.open_streams() as u64;
        let new = begun - self.begun;
        self.counts.add(new, (self.open + new).saturating_sub(open), &counts);
        (self.begun, self.open) = (begun, open);
        counts
    }
}

impl<P: Deref<Target: H2Counters>> Drop for CountedConn<P> {
    fn drop(&mut self) {
        self.look();
        self.counts.add(0, self.open, &Counts::default());
        self.counts.connection(true);
    }
}

/// Says before a connection is driven whether its peer's glitches, `most` of which may be, end it now: not
/// where `tune.glitches.kill.cpu-usage` asks for a load that there is not. `idle`: percent of the process.
pub(crate) fn judge_glitches(conn: &Conn, kill_at_load: u64, most: u32, idle: impl FnOnce() -> u64) {
    if kill_at_load > 0 && most > 0 {
        conn.set_tolerant(conn.glitches() < most || 100 - idle().min(100) < kill_at_load);
    }
}
