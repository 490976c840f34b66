//! Counters of frontends, backends, servers and listeners. Each lane adds to a slot of its own; reports read
//! the sums.
//!
//! The number of things that exist now is the number that began less the number that ended, so no counter
//! here goes down except peaks, which a lane resets when an operator asks for it. Each lane has peaks of its
//! own: their sum is an upper bound of the number at any one time.

use crate::connect_timings::ConnectTimings;
use crate::meter::{Meter, MeteredCounters};
use manylane_stats::{Tally, counters};
use std::time::Duration;

counters! {
    /// Counters of a frontend.
    pub struct FrontendCounts {
        /// Connections accepted.
        pub connections,
        /// Connections that ended.
        pub connections_ended,
        /// Connections that their lane began to serve.
        pub sessions,
        /// Sessions that ended.
        pub sessions_ended,
        /// Sessions that were admitted: PROXY header and TLS handshake are done, and no rule refused them.
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
        /// Requests that were invalid, or whose client left.
        pub request_errors,
        /// Connections that rules refused before they were sessions.
        pub connections_denied,
        /// Connections that rules refused as sessions.
        pub sessions_denied,
        /// Requests that the proxy responded to itself, because of a rule or the configuration.
        pub intercepted,
        /// Streams that ended by an internal error.
        pub internal_errors,
        /// HTTP requests.
        pub requests,
        /// Lines that were logged.
        pub lines,
        /// Failed edits of heads by rules.
        pub failed_rewrites,
        /// Bytes that HTTP clients sent, before decoding.
        pub received,
        /// Bytes of responses to input that is not a request.
        pub sent_early,
        /// Bytes from HTTP clients that were spliced to a server.
        pub spliced_in,
        /// Bytes to HTTP clients that were spliced from a server.
        pub spliced_out,
        /// TLS handshakes that succeeded.
        pub tls_sessions,
        /// Of these, those that resumed a session.
        pub tls_resumed,
        /// TLS handshakes that failed.
        pub tls_failed,
        /// HTTP/2 requests; `requests` and `streams` include them.
        pub h2_requests,
        /// Connections whose clients may speak only HTTP/2.
        pub h2_only,
        /// HTTP/2 connections.
        pub h2_connections,
        /// HTTP/2 connections that ended.
        pub h2_connections_ended,
        /// HTTP/2 streams.
        pub h2_streams,
        /// HTTP/2 streams that ended.
        pub h2_streams_ended,
        /// HEADERS frames received over HTTP/2.
        pub h2_headers,
        /// DATA frames received.
        pub h2_data,
        /// SETTINGS frames received.
        pub h2_settings,
        /// RST_STREAM frames received.
        pub h2_rst_stream,
        /// GOAWAY frames received.
        pub h2_goaway,
        /// Connection errors of peers.
        pub h2_connection_errors,
        /// Stream errors of peers.
        pub h2_stream_errors,
        /// RST_STREAM frames sent for stream errors.
        pub h2_rst_stream_sent,
        /// GOAWAY frames sent for connection errors.
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

/// Defines the counters that backends and servers share, and those that only one of them has.
macro_rules! stream_counts {
    ($(#[$meta:meta])* $name:ident: $($(#[$own_meta:meta])* $own:ident),+ $(,)?) => {
        counters! {
            $(#[$meta])*
            pub struct $name {
                /// Streams.
                pub streams,
                /// Streams that ended.
                pub streams_ended,
                /// Milliseconds in queues, summed over streams that reached a server.
                pub queue_ms,
                /// Milliseconds until connections to servers were established.
                pub connect_ms,
                /// Streams that reached a server.
                pub reached,
                /// Milliseconds from the connection to the head of the response.
                pub response_ms,
                /// Heads of responses.
                pub answered,
                /// Milliseconds that streams took in total.
                pub total_ms,
                /// Longest time in queues, in milliseconds.
                pub peak_queue_ms,
                /// Longest time until a connection was established, in milliseconds.
                pub peak_connect_ms,
                /// Longest time until the head of a response, in milliseconds.
                pub peak_response_ms,
                /// Longest time of a stream, in milliseconds.
                pub peak_total_ms,
                /// Most streams at once.
                pub peak_streams,
                /// Most waiting streams at once.
                pub peak_waiting,
                /// Streams whose client left before their end.
                pub client_aborts,
                /// Streams whose server left before their end.
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
                /// Connections that failed.
                pub connection_errors,
                /// Responses that were invalid, or whose server left.
                pub response_errors,
                /// Connections that were retried.
                pub retries,
                /// Streams that went to another server than their first one.
                pub redispatches,
                /// Responses that rules refused.
                pub responses_denied,
                /// Streams that ended by an internal error.
                pub internal_errors,
                /// Streams whose server the algorithm chose.
                pub chosen,
                /// Failed edits of heads by rules.
                pub failed_rewrites,
                /// Attempts to make new connections to servers.
                pub connects,
                /// Requests on existing connections.
                pub reuses,
                /// TLS handshakes with servers that succeeded.
                pub tls_sessions,
                /// Of these, those that resumed a session.
                pub tls_resumed,
                /// TLS handshakes with servers that failed.
                pub tls_failed,
                $($(#[$own_meta])* pub $own,)+
            }
        }

        impl $name {
            /// Counts a stream that begins on this lane.
            #[inline]
            pub fn begin(&self) {
                self.streams.add(1);
                self.peak_streams.raise(self.streams.get().wrapping_sub(self.streams_ended.get()));
            }

            /// Counts the end of a stream that began on this lane `took` ago.
            #[inline]
            pub fn end(&self, took: Duration) {
                self.streams_ended.add(1);
                self.total_ms.add(millis(took));
                self.peak_total_ms.raise(millis(took));
            }

            /// Counts a stream that has a connection to a server.
            #[inline]
            pub fn reached(&self, timings: &ConnectTimings) {
                let (queued, connected) = (millis(timings.queued), millis(timings.connected));
                self.reached.add(1);
                self.queue_ms.add(queued);
                self.connect_ms.add(connected);
                self.peak_queue_ms.raise(queued);
                self.peak_connect_ms.raise(connected);
            }

            /// Counts the head of a response, `took` after the connection.
            #[inline]
            pub fn answered(&self, took: Duration) {
                self.answered.add(1);
                self.response_ms.add(millis(took));
                self.peak_response_ms.raise(millis(took));
            }

            /// Resets the calling lane's peaks to the current values.
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
    /// Counters of a backend.
    BackendCounts:
    /// Requests that rules refused.
    requests_denied,
    /// HTTP requests.
    requests,
    /// Streams that reached a server and ended.
    left,
    /// Bytes that HTTP servers sent, before decoding.
    received,
    /// Bytes sent to HTTP servers.
    sent,
    /// Bytes from HTTP servers that were spliced to a client.
    spliced_in,
    /// Bytes to HTTP servers that were spliced from a client.
    spliced_out,
    /// HTTP/2 connections.
    h2_connections,
    /// HTTP/2 connections that ended.
    h2_connections_ended,
    /// HTTP/2 streams.
    h2_streams,
    /// HTTP/2 streams that ended.
    h2_streams_ended,
    /// HEADERS frames received over HTTP/2.
    h2_headers,
    /// DATA frames received.
    h2_data,
    /// SETTINGS frames received.
    h2_settings,
    /// RST_STREAM frames received.
    h2_rst_stream,
    /// GOAWAY frames received.
    h2_goaway,
    /// Connection errors of peers.
    h2_connection_errors,
    /// Stream errors of peers.
    h2_stream_errors,
    /// RST_STREAM frames sent for stream errors.
    h2_rst_stream_sent,
    /// GOAWAY frames sent for connection errors.
    h2_goaway_sent,
}

stream_counts! {
    /// Counters of a server.
    ServerCounts:
    /// Attempts to serve a stream, with new and with existing connections.
    sessions,
    /// How often live traffic had too many errors in a row (`observe`).
    health_errors,
    /// Connections taken over from another lane.
    takeovers,
}

counters! {
    /// Counters of a listener.
    pub struct ListenerCounts {
        /// Connections accepted.
        pub connections,
        /// Connections that ended.
        pub connections_ended,
        /// Connections that their lane began to serve.
        pub sessions,
        /// Sessions that ended.
        pub sessions_ended,
        /// Sessions that were admitted.
        pub sessions_admitted,
        /// Most sessions at once.
        pub peak_sessions,
        /// Requests that rules refused.
        pub requests_denied,
        /// Responses that rules refused.
        pub responses_denied,
        /// Requests that were invalid, or whose client left.
        pub request_errors,
        /// Connections that rules refused before they were sessions.
        pub connections_denied,
        /// Connections that rules refused as sessions.
        pub sessions_denied,
        /// Streams that ended by an internal error.
        pub internal_errors,
        /// Failed edits of heads by rules.
        pub failed_rewrites,
        /// Bytes from clients.
        pub bytes_in,
        /// Bytes to clients.
        pub bytes_out,
        /// TLS handshakes that succeeded.
        pub tls_sessions,
        /// Of these, those that resumed a session.
        pub tls_resumed,
        /// TLS handshakes that failed.
        pub tls_failed,
    }
}

counters! {
    /// Counters of TLS connections, with clients or with servers.
    pub struct TlsCounts {
        /// Connections.
        pub connections,
        /// Connections that ended.
        pub connections_ended,
        /// Handshakes that agreed on a new key: they resumed no session.
        pub keys,
    }
}

/// Returns a time in whole milliseconds.
fn millis(time: Duration) -> u64 {
    time.as_secs() * 1000 + u64::from(time.subsec_millis())
}

macro_rules! session_counts {
    ($($name:ident)+) => {$(
        impl $name {
            /// Counts a session that begins and will end on this lane.
            #[inline]
            pub fn begin_session(&self) {
                self.sessions.add(1);
                self.peak_sessions.raise(self.sessions.get().wrapping_sub(self.sessions_ended.get()));
            }

            /// Resets the calling lane's peaks to the current values.
            pub fn forget_peaks(&self) {
                self.peak_sessions.forget();
                self.peak_sessions.raise(self.sessions.get().wrapping_sub(self.sessions_ended.get()));
            }
        }
    )+};
}

session_counts!(FrontendCounts ListenerCounts);

impl MeteredCounters for FrontendCounts {
    const RATES: [&'static str; 2] = ["connections", "requests"];
    const LEVEL: (&'static str, &'static str) = ("sessions", "sessions_ended");
    const MEANS: &'static [(&'static str, &'static str)] = &[];

    fn rated(&self, which: usize) -> &Tally {
        if which == 0 { &self.connections } else { &self.requests }
    }
}

/// Means of times: the counter of the sum, and the counter of the events.
const TIMES: &[(&str, &str)] = &[
    ("queue_ms", "reached"),
    ("connect_ms", "reached"),
    ("response_ms", "answered"),
    ("total_ms", "streams_ended"),
];

impl MeteredCounters for ListenerCounts {
    const RATES: [&'static str; 2] = ["connections", "connections"];
    const LEVEL: (&'static str, &'static str) = ("connections", "connections_ended");
    const MEANS: &'static [(&'static str, &'static str)] = &[];

    fn rated(&self, _: usize) -> &Tally {
        &self.connections
    }
}

impl MeteredCounters for TlsCounts {
    const RATES: [&'static str; 2] = ["connections", "keys"];
    const LEVEL: (&'static str, &'static str) = ("connections", "connections_ended");
    const MEANS: &'static [(&'static str, &'static str)] = &[];

    fn rated(&self, which: usize) -> &Tally {
        if which == 0 { &self.connections } else { &self.keys }
    }
}

impl MeteredCounters for BackendCounts {
    const RATES: [&'static str; 2] = ["streams", "requests"];
    const LEVEL: (&'static str, &'static str) = ("streams", "streams_ended");
    const MEANS: &'static [(&'static str, &'static str)] = TIMES;

    fn rated(&self, which: usize) -> &Tally {
        if which == 0 { &self.streams } else { &self.requests }
    }
}

impl MeteredCounters for ServerCounts {
    const RATES: [&'static str; 2] = ["sessions", "sessions"];
    const LEVEL: (&'static str, &'static str) = ("streams", "streams_ended");
    const MEANS: &'static [(&'static str, &'static str)] = TIMES;

    fn rated(&self, _: usize) -> &Tally {
        &self.sessions
    }
}

/// Counters of a frontend, with rates.
pub type FrontendStats = Meter<FrontendCounts>;
/// Counters of a backend, with rates.
pub type BackendStats = Meter<BackendCounts>;
/// Counters of a server, with rates.
pub type ServerStats = Meter<ServerCounts>;
/// Counters of TLS connections, with rates.
pub type TlsStats = Meter<TlsCounts>;
/// Counters of a listener, with rates.
pub type ListenerStats = Meter<ListenerCounts>;
