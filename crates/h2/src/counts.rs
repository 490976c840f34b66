//! Counts of frames and errors on a connection, for counters.

/// Number of times that each event happened since the last call of
/// [`Connection::take_counts`](crate::Connection::take_counts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// HEADERS frames received.
    pub headers: u32,
    /// DATA frames received, except for one that ended the connection.
    pub data: u32,
    /// SETTINGS frames received, including acknowledgements.
    pub settings: u32,
    /// RST_STREAM frames received.
    pub rst_stream: u32,
    /// GOAWAY frames received.
    pub goaway: u32,
    /// Errors of the peer that ended the connection.
    pub connection_errors: u32,
    /// Errors of the peer that ended a stream.
    pub stream_errors: u32,
    /// RST_STREAM frames sent for these errors.
    pub rst_stream_sent: u32,
    /// GOAWAY frames sent because the peer broke a rule and the connection cannot go on.
    pub goaway_sent: u32,
    /// Requests that were refused before an event reported them.
    pub refused: u32,
}
