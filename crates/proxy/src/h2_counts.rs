//! What is counted of connections of HTTP/2: by the frontend of a client, by the backend of a server.

use crate::counts::{BackendCounts, FrontendCounts};
use crate::generation::Generation;
use crate::meter::{Counted, Metered};
use crate::process_stats::ProcessStats;
use manylane_mux::h2::{Conn, Counts};
use manylane_sync::Arc;

/// Who counts them.
pub(crate) trait H2Counters: Metered {
    /// A connection begins, or ends.
    fn connection(&self, ends: bool);

    /// So many streams began and ended, and this came meanwhile.
    fn add(&self, begun: u64, ended: u64, counts: &Counts);
}

macro_rules! h2_counters {
    ($($name:ident)+) => {$(
        impl H2Counters for $name {
            fn connection(&self, ends: bool) {
                if ends { self.h2_connections_ended.add(1) } else { self.h2_connections.add(1) }
            }

            fn add(&self, begun: u64, ended: u64, counts: &Counts) {
                self.h2_streams.add(begun);
                self.h2_streams_ended.add(ended);
                self.h2_headers.add(counts.headers.into());
                self.h2_data.add(counts.data.into());
                self.h2_settings.add(counts.settings.into());
                self.h2_rst_stream.add(counts.rst_stream.into());
                self.h2_goaway.add(counts.goaway.into());
                self.h2_connection_errors.add(counts.connection_errors.into());
                self.h2_stream_errors.add(counts.stream_errors.into());
                self.h2_rst_stream_sent.add(counts.rst_stream_sent.into());
                self.h2_goaway_sent.add(counts.goaway_sent.into());
            }
        }
    )+};
}

h2_counters!(FrontendCounts BackendCounts);

/// A connection that is counted until this is dropped, on its lane.
pub(crate) struct CountedConn<C: H2Counters> {
    counts: Arc<Counted<C>>,
    conn: Conn,
    process_stats: Arc<ProcessStats>,
    /// The processor load, in percent, from which glitches beyond so many end the connection.
    kill: (u64, u32),
    /// Streams that are counted as begun, and of these those that are not counted as ended.
    begun: u64,
    open: u64,
}

impl<C: H2Counters> CountedConn<C> {
    /// It begins. `glitches`: the most that its peer may make.
    pub(crate) fn begin(counts: Arc<Counted<C>>, conn: Conn, generation: &Generation, glitches: u32) -> Self {
        counts.own().connection(false);
        let kill = (generation.process.h2.kill_at_load, glitches);
        conn.set_tolerant(kill.0 > 0);
        Self { counts, conn, process_stats: generation.process_stats.clone(), kill, begun: 0, open: 0 }
    }

    /// Counts what happened since this was called last, and tells it. Call it when the connection was driven.
    pub(crate) fn look(&mut self) -> Counts {
        let (counts, begun) = (self.conn.take_counts(), self.conn.begun());
        let open = self.conn.open_streams() as u64;
        let new = begun - self.begun;
        self.counts.own().add(new, (self.open + new).saturating_sub(open), &counts);
        (self.begun, self.open) = (begun, open);
        let (load, most) = self.kill;
        if load > 0 && most > 0 && self.conn.glitches() >= most {
            self.conn.set_tolerant(100 - self.process_stats.idle_percent().min(100) < load);
        }
        counts
    }
}

impl<C: H2Counters> Drop for CountedConn<C> {
    fn drop(&mut self) {
        self.look();
        let own = self.counts.own();
        own.add(0, self.open, &Counts::default());
        own.connection(true);
    }
}
