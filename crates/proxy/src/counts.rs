//! What is counted, by whom it concerns. Each lane adds to a slot of its own; whoever reports reads the sums.
//!
//! A number of things that exist now is what began less what ended, so that nothing here ever goes down.

use manylane_stats::counters;

counters! {
    /// Of a frontend.
    pub struct FrontendCounts {
        /// Connections accepted.
        pub connections,
        /// Connections that ended.
        pub connections_ended,
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
        /// Connections that rules refused.
        pub connections_denied,
        /// HTTP requests.
        pub requests,
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

counters! {
    /// Of a backend.
    pub struct BackendCounts {
        /// Streams.
        pub streams,
        /// Streams that ended.
        pub streams_ended,
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
        /// Requests that rules refused.
        pub requests_denied,
        /// Responses that rules refused.
        pub responses_denied,
        /// HTTP requests.
        pub requests,
        /// New connections to servers.
        pub connects,
        /// Requests on connections that were there.
        pub reuses,
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

counters! {
    /// Of a server.
    pub struct ServerCounts {
        /// Times that live traffic had too many errors in a row (`observe`).
        pub health_errors,
        /// Streams.
        pub streams,
        /// Streams that ended.
        pub streams_ended,
        /// Bytes from clients.
        pub bytes_in,
        /// Bytes to clients.
        pub bytes_out,
        /// Connections that could not be made.
        pub connection_errors,
        /// Responses that were no good, or a server that left.
        pub response_errors,
        /// Connections that were tried again.
        pub retries,
        /// Streams that went to another server.
        pub redispatches,
        /// Streams that the algorithm chose it for.
        pub chosen,
        /// New connections.
        pub connects,
        /// Connections that were another lane's before.
        pub takeovers,
        /// Requests on connections that were there.
        pub reuses,
    }
}

counters! {
    /// Of a listener.
    pub struct ListenerCounts {
        /// Connections accepted.
        pub connections,
        /// Connections that ended.
        pub connections_ended,
        /// Bytes from clients.
        pub bytes_in,
        /// Bytes to clients.
        pub bytes_out,
    }
}
