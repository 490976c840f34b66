//! What is counted, by whom it concerns. Each lane adds to a slot of its own; whoever reports reads the sums.
//!
//! A number of things that exist now is what began less what ended, so that nothing here ever goes down but
//! peaks, which a lane forgets when an operator says so. Peaks are each lane's own: their sum is the most
//! that there can have been at once.

use crate::meter::{Counted, Metered};
use crate::server::ConnectTimings;
use manylane_stats::{Tally, counters};
use std::time::Duration;

counters! {
    /// Of a frontend.
    pub struct FrontendCounts {
        /// Connections accepted.
        pub connections,
        /// Connections that ended.
        pub connections_ended,
        /// Connections that the lane that serves them began to serve.
        pub sessions,
        /// Of these, those that ended.
        pub sessions_ended,
        /// And those that were let in: what comes before them is there, and no rule refused them.
        pub sessions_admitted,
        /// Most sessions at once.
        pub peak_sessions,
        /// Streams: TCP sessions, or HTTP requests.
        pub streams,
        /// Streams that ended.
        pub streams_ended,
        /// Bytes from clients.
        pub bytes_in,
        /// Bytes to clients.
        pub bytes_out,
        /// Requests that rules refused.
        pub requests_denied,
        /// Responses that rules refused.
        pub responses_denied,
        /// Requests that were no good, or whose client left.
        pub request_errors,
        /// Connections that rules refused before they were sessions.
        pub connections_denied,
        /// Connections that rules refused as sessions.
        pub sessions_denied,
        /// Requests that the proxy answered itself, because a rule or the file says so.
        pub intercepted,
        /// Streams that ended by an error inside.
        pub internal_errors,
        /// HTTP requests.
        pub requests,
        /// Lines that were logged.
        pub lines,
        /// Edits of heads by rules that could not be done.
        pub failed_rewrites,
        /// Bytes that HTTP clients sent, as they came.
        pub received,
        /// Bytes of answers to what is no request.
        pub sent_early,
        /// Of the bytes from HTTP clients, those that were spliced to a server.
        pub spliced_in,
        /// Of the bytes to HTTP clients, those that were spliced from a server.
        pub spliced_out,
        /// Requests of HTTP/2, whose streams are counted among all and here.
        pub h2_requests,
        /// Connections whose clients may speak nothing else.
        pub h2_only,
        /// Connections of HTTP/2.
        pub h2_connections,
        /// Of these, those that ended.
        pub h2_connections_ended,
        /// Streams of HTTP/2.
        pub h2_streams,
        /// Of these, those that ended.
        pub h2_streams_ended,
        /// HEADERS frames that came over HTTP/2.
        pub h2_headers,
        /// DATA frames that came.
        pub h2_data,
        /// SETTINGS frames that came.
        pub h2_settings,
        /// RST_STREAM frames that came.
        pub h2_rst_stream,
        /// GOAWAY frames that came.
        pub h2_goaway,
        /// Rules of a connection that a peer broke.
        pub h2_connection_errors,
        /// Rules of a stream that a peer broke.
        pub h2_stream_errors,
        /// RST_STREAM frames that were sent for that.
        pub h2_rst_stream_sent,
        /// GOAWAY frames that were sent for that.
        pub h2_goaway_sent,
        /// Responses with status 1xx.
        pub responses_1xx,
        /// Responses with status 2xx.
        pub responses_2xx,
        /// Responses with status 3xx.
        pub responses_3xx,
        /// Responses with status 4xx.
        pub responses_4xx,
        /// Responses with status 5xx.
        pub responses_5xx,
        /// Other responses.
        pub responses_other,
    }
}

/// What backends and servers both count, and what is their own.
macro_rules! stream_counts {
    ($(#[$meta:meta])* $name:ident: $($(#[$own_meta:meta])* $own:ident),+ $(,)?) => {
        counters! {
            $(#[$meta])*
            pub struct $name {
                /// Streams.
                pub streams,
                /// Streams that ended.
                pub streams_ended,
                /// Milliseconds in queues, of all that reached a server.
                pub queue_ms,
                /// Milliseconds until connections to servers were there.
                pub connect_ms,
                /// Streams that reached a server.
                pub reached,
                /// Milliseconds from there to the heads of responses.
                pub response_ms,
                /// Heads of responses.
                pub answered,
                /// Milliseconds that streams took.
                pub total_ms,
                /// The longest of each.
                pub peak_queue_ms,
                /// Until a connection was there.
                pub peak_connect_ms,
                /// Until the head of a response was there.
                pub peak_response_ms,
                /// Of a stream.
                pub peak_total_ms,
                /// Most streams at once.
                pub peak_streams,
                /// Most that waited at once.
                pub peak_waiting,
                /// Streams whose client left before they were done.
                pub client_aborts,
                /// Streams whose server left before they were done.
                pub server_aborts,
                /// Responses with status 1xx.
                pub responses_1xx,
                /// Responses with status 2xx.
                pub responses_2xx,
                /// Responses with status 3xx.
                pub responses_3xx,
                /// Responses with status 4xx.
                pub responses_4xx,
                /// Responses with status 5xx.
                pub responses_5xx,
                /// Other responses.
                pub responses_other,
                /// Bytes from clients.
                pub bytes_in,
                /// Bytes to clients.
                pub bytes_out,
                /// Connections that could not be made.
                pub connection_errors,
                /// Responses that were no good, or whose server left.
                pub response_errors,
                /// Connections that were tried again.
                pub retries,
                /// Streams that went to another server than the first.
                pub redispatches,
                /// Responses that rules refused.
                pub responses_denied,
                /// Streams that ended by an error inside.
                pub internal_errors,
                /// Streams that the algorithm chose a server for, or this one.
                pub chosen,
                /// Edits of heads by rules that could not be done.
                pub failed_rewrites,
                /// New connections to servers that were tried to make.
                pub connects,
                /// Requests on connections that were there.
                pub reuses,
                $($(#[$own_meta])* pub $own,)+
            }
        }

        impl $name {
            /// A stream begins on this lane.
            #[inline]
            pub(crate) fn begin(&self) {
                self.streams.add(1);
                self.peak_streams.raise(self.streams.get().wrapping_sub(self.streams_ended.get()));
            }

            /// A stream that began on this lane ends, so long after that.
            #[inline]
            pub(crate) fn end(&self, took: Duration) {
                self.streams_ended.add(1);
                self.total_ms.add(millis(took));
                self.peak_total_ms.raise(millis(took));
            }

            /// A stream has a connection to a server.
            #[inline]
            pub(crate) fn reached(&self, timings: &ConnectTimings) {
                let (queued, connected) = (millis(timings.queued), millis(timings.connected));
                self.reached.add(1);
                self.queue_ms.add(queued);
                self.connect_ms.add(connected);
                self.peak_queue_ms.raise(queued);
                self.peak_connect_ms.raise(connected);
            }

            /// The head of a response is there, so long after the connection.
            #[inline]
            pub(crate) fn answered(&self, took: Duration) {
                self.answered.add(1);
                self.response_ms.add(millis(took));
                self.peak_response_ms.raise(millis(took));
            }

            /// The calling lane's peaks are forgotten: they are what there is now.
            pub fn forget_peaks(&self) {
                let peaks =
                    [&self.peak_queue_ms, &self.peak_connect_ms, &self.peak_response_ms, &self.peak_total_ms,
                        &self.peak_waiting];
                peaks.into_iter().for_each(manylane_stats::Tally::forget);
                self.peak_streams.forget();
                self.peak_streams.raise(self.streams.get().wrapping_sub(self.streams_ended.get()));
            }
        }
    };
}

stream_counts! {
    /// Of a backend.
    BackendCounts:
    /// Requests that rules refused.
    requests_denied,
    /// HTTP requests.
    requests,
    /// Of the streams that reached a server, those that ended.
    left,
    /// Bytes that HTTP servers sent, as they came.
    received,
    /// Bytes that HTTP servers were sent.
    sent,
    /// Of these that they sent, those that were spliced to a client.
    spliced_in,
    /// Of these that they were sent, those that were spliced from a client.
    spliced_out,
    /// Connections of HTTP/2.
    h2_connections,
    /// Of these, those that ended.
    h2_connections_ended,
    /// Streams of HTTP/2.
    h2_streams,
    /// Of these, those that ended.
    h2_streams_ended,
    /// HEADERS frames that came over HTTP/2.
    h2_headers,
    /// DATA frames that came.
    h2_data,
    /// SETTINGS frames that came.
    h2_settings,
    /// RST_STREAM frames that came.
    h2_rst_stream,
    /// GOAWAY frames that came.
    h2_goaway,
    /// Rules of a connection that a peer broke.
    h2_connection_errors,
    /// Rules of a stream that a peer broke.
    h2_stream_errors,
    /// RST_STREAM frames that were sent for that.
    h2_rst_stream_sent,
    /// GOAWAY frames that were sent for that.
    h2_goaway_sent,
}

stream_counts! {
    /// Of a server.
    ServerCounts:
    /// Tries to serve a stream: with new connections, and with those that were there.
    sessions,
    /// Times that live traffic had too many errors in a row (`observe`).
    health_errors,
    /// Connections that were another lane's before.
    takeovers,
}

counters! {
    /// Of a listener.
    pub struct ListenerCounts {
        /// Connections accepted.
        pub connections,
        /// Connections that ended.
        pub connections_ended,
        /// Connections that the lane that serves them began to serve.
        pub sessions,
        /// Of these, those that ended.
        pub sessions_ended,
        /// And those that were let in.
        pub sessions_admitted,
        /// Most sessions at once.
        pub peak_sessions,
        /// Requests that rules refused.
        pub requests_denied,
        /// Responses that rules refused.
        pub responses_denied,
        /// Requests that were no good, or whose client left.
        pub request_errors,
        /// Connections that rules refused before they were sessions.
        pub connections_denied,
        /// Connections that rules refused as sessions.
        pub sessions_denied,
        /// Streams that ended by an error inside.
        pub internal_errors,
        /// Edits of heads by rules that could not be done.
        pub failed_rewrites,
        /// Bytes from clients.
        pub bytes_in,
        /// Bytes to clients.
        pub bytes_out,
    }
}

/// Milliseconds, as they are counted.
fn millis(time: Duration) -> u64 {
    time.as_secs() * 1000 + u64::from(time.subsec_millis())
}

/// Adds one to what a frontend and its listener both count.
macro_rules! count_in_front {
    ($frontend:expr, $listener:expr, $which:ident) => {{
        $frontend.counts.own().$which.add(1);
        $listener.counts.own().$which.add(1);
    }};
}
pub(crate) use count_in_front;

macro_rules! session_counts {
    ($($name:ident)+) => {$(
        impl $name {
            /// A session begins on this lane, which will end it.
            pub(crate) fn begin_session(&self) {
                self.sessions.add(1);
                self.peak_sessions.raise(self.sessions.get().wrapping_sub(self.sessions_ended.get()));
            }

            /// The calling lane's peaks are forgotten: they are what there is now.
            pub fn forget_peaks(&self) {
                self.peak_sessions.forget();
                self.peak_sessions.raise(self.sessions.get().wrapping_sub(self.sessions_ended.get()));
            }
        }
    )+};
}

session_counts!(FrontendCounts ListenerCounts);

impl Metered for FrontendCounts {
    const RATES: [&'static str; 2] = ["connections", "requests"];
    const LEVEL: (&'static str, &'static str) = ("sessions", "sessions_ended");
    const MEANS: &'static [(&'static str, &'static str)] = &[];

    fn rated(&self, which: usize) -> &Tally {
        if which == 0 { &self.connections } else { &self.requests }
    }
}

/// Means of times: sums, and of how many.
const TIMES: &[(&str, &str)] = &[
    ("queue_ms", "reached"),
    ("connect_ms", "reached"),
    ("response_ms", "answered"),
    ("total_ms", "streams_ended"),
];

impl Metered for ListenerCounts {
    const RATES: [&'static str; 2] = ["connections", "connections"];
    const LEVEL: (&'static str, &'static str) = ("connections", "connections_ended");
    const MEANS: &'static [(&'static str, &'static str)] = &[];

    fn rated(&self, _: usize) -> &Tally {
        &self.connections
    }
}

impl Metered for BackendCounts {
    const RATES: [&'static str; 2] = ["streams", "requests"];
    const LEVEL: (&'static str, &'static str) = ("streams", "streams_ended");
    const MEANS: &'static [(&'static str, &'static str)] = TIMES;

    fn rated(&self, which: usize) -> &Tally {
        if which == 0 { &self.streams } else { &self.requests }
    }
}

impl Metered for ServerCounts {
    const RATES: [&'static str; 2] = ["sessions", "sessions"];
    const LEVEL: (&'static str, &'static str) = ("streams", "streams_ended");
    const MEANS: &'static [(&'static str, &'static str)] = TIMES;

    fn rated(&self, _: usize) -> &Tally {
        &self.sessions
    }
}

/// What a frontend counts, with its rate.
pub type FrontendStats = Counted<FrontendCounts>;
/// What a backend counts, with its rate.
pub type BackendStats = Counted<BackendCounts>;
/// What a server counts, with its rate.
pub type ServerStats = Counted<ServerCounts>;
/// Of a listener.
pub type ListenerStats = Counted<ListenerCounts>;
