//! Counters of connections of HTTP/2: those of clients in the frontend, those of servers in the backend.

use manylane_mux::h2::{Conn, Counts};
use manylane_plan::counts::{BackendStats, FrontendStats};
use std::ops::Deref;

/// Counters of a frontend or backend, in the calling lane's slots.
pub trait H2Counters {
    /// Counts the start or the end of a connection.
    fn connection(&self, ends: bool);

    /// Counts streams that began and ended, and received frames.
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

/// Counts a connection on its lane until this is dropped.
pub struct CountedConn<P: Deref<Target: H2Counters>> {
    counts: P,
    conn: Conn,
    /// Streams counted as begun, and those of them not counted as ended.
    begun: u64,
    open: u64,
}

impl<P: Deref<Target: H2Counters>> CountedConn<P> {
    /// Counts the start of the connection.
    pub fn begin(counts: P, conn: Conn) -> Self {
        counts.connection(false);
        Self { counts, conn, begun: 0, open: 0 }
    }

    /// Counts and returns what happened since the last call. To be called whenever the connection was driven.
    pub fn update(&mut self) -> Counts {
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
        self.update();
        self.counts.add(0, self.open, &Counts::default());
        self.counts.connection(true);
    }
}

/// Decides, before a connection is driven, whether glitches of its peer end it now; `most` glitches are
/// allowed. They do not end it while the process's load is below `tune.glitches.kill.cpu-usage`. `idle`
/// returns the process's idle time in percent.
pub fn judge_glitches(conn: &Conn, kill_at_load: u64, most: u32, idle: impl FnOnce() -> u64) {
    if kill_at_load > 0 && most > 0 {
        conn.set_tolerant(is_tolerant(conn.glitches(), kill_at_load, most, idle));
    }
}

fn is_tolerant(glitches: u32, kill_at_load: u64, most: u32, idle: impl FnOnce() -> u64) -> bool {
    glitches < most || 100 - idle().min(100) < kill_at_load
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glitches_beyond_the_threshold_end_a_connection_from_the_load_that_is_set() {
        for (glitches, load, tolerant) in [(2, 100, true), (3, 79, true), (3, 80, false), (9, 100, false)] {
            assert_eq!(is_tolerant(glitches, 80, 3, || 100 - load), tolerant, "{glitches} at {load} %");
        }
    }
}
