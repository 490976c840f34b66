//! What came on a connection, and what went wrong, for counters.

/// How often each happened since it was asked for last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// HEADERS frames that came.
    pub headers: u32,
    /// DATA frames, but for one that ended the connection.
    pub data: u32,
    /// SETTINGS frames, acknowledgements too.
    pub settings: u32,
    /// RST_STREAM frames.
    pub rst_stream: u32,
    /// GOAWAY frames.
    pub goaway: u32,
    /// Rules of the connection that the peer broke.
    pub connection_errors: u32,
    /// Rules of a stream that it broke.
    pub stream_errors: u32,
    /// RST_STREAM frames that it was sent for that.
    pub rst_stream_sent: u32,
    /// GOAWAY frames that it was sent because the connection cannot go on.
    pub goaway_sent: u32,
    /// Requests that were refused before anybody was told of them.
    pub refused: u32,
}
