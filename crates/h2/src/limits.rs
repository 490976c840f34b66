//! The configuration of a connection, and the bounds on the work that a peer can cause.

use crate::frame::settings::MAX_WINDOW;
use crate::frame::{DEFAULT_MAX, HEADER};
use std::time::Duration;

/// Initial window of the connection and of each stream (RFC 9113, 6.9.2).
pub const DEFAULT_WINDOW: u32 = 65_535;

/// Largest number of CONTINUATION frames in one header block. With frames of the usual size a head of 16 KiB
/// needs none, and senders that split heads into smaller frames need a few. A block without end costs only
/// the peer's bandwidth.
pub const MAX_CONTINUATIONS: u32 = 16;

/// Largest decoded size of one header block, as a multiple of the `SETTINGS_MAX_HEADER_LIST_SIZE` that this
/// side announces. A head that is somewhat too large is read and answered with 431. Without this bound, two
/// bytes could name an entry as large as the table, and a block of 31,000 bytes would keep the lane busy for
/// 50 ms.
pub const DECODED_TIMES: usize = 4;

/// Number of streams that may be reset in one burst, by the peer (*Rapid Reset*) or by this side for the
/// peer's faults (*MadeYouReset*). A browser that leaves a page resets its open streams, usually at most 100,
/// and may do so twice in a moment. If more concurrent streams are allowed, twice their number may be reset.
pub const RESET_BURST: u32 = 200;

/// Number of streams a second that may be reset over a long time: one page a second, with all of its streams.
pub const RESETS_PER_SECOND: u32 = 100;

/// Number of frames in one burst that ask for an answer or change nothing: SETTINGS, PING, PRIORITY,
/// WINDOW_UPDATE, DATA without data, interim responses, frames for streams that ended, frames of unknown
/// kinds. Clients send some tens when they begin, and WINDOW_UPDATE frames for what they read, which
/// [`UPDATES_EARNED`] allows.
pub const CHEAP_BURST: u32 = 1_000;

/// Number of cheap frames a second over a long time: a PING for each round trip of 2 ms, as sent by peers
/// that measure bandwidth.
pub const CHEAP_PER_SECOND: u32 = 500;

/// Bytes of sent data that allow the peer one WINDOW_UPDATE. Each sent frame allows two more, since a
/// receiver that announces each of its reads updates the stream's window and the connection's.
pub const UPDATES_EARNED: u32 = 512;

/// Largest number of bytes of answers that wait to be written: acknowledgements of PING and SETTINGS, and
/// resets. A peer that asks for more and does not read the answers would fill memory.
pub const MAX_ANSWERS: usize = 32 * 1024;

/// Number of bytes of waiting output from which on streams send no data: three frames of the usual size, each
/// in a cluster of its own, and small frames in one cluster beside them. It is enough to keep a socket busy;
/// each further byte would be one that a slow reader holds.
pub const OUTPUT_ROOM: usize = 3 * (HEADER + DEFAULT_MAX) + 2048;

/// Number of bytes of waiting output from which on no input is handled: a peer that does not read answers
/// gets no more of them, and TCP holds it back.
pub const MAX_OUTPUT: usize = 256 * 1024;

/// Number of bytes of a DATA frame, or its rest if that is shorter, that a stream gets at once. A peer that
/// sends a frame byte by byte would otherwise cause a write for each byte. A peer that wants its data passed
/// on ends the frame.
pub const DATA_PART: usize = 1_024;

/// Largest number of recently reset streams whose late frames are ignored. The peer has at most as many
/// streams open as this side allows, and a stream that it opens after it has seen the resets comes behind
/// their last frames.
pub const MAX_REMEMBERED: usize = 1_024;

/// Number of frames that a server may have sent for a stream before it sees this client's reset: a head, an
/// end, and a reset of its own. Clients that leave while responses are on their way are no attack of the
/// server, whose connection carries the streams of other clients, too.
pub const LATE_FRAMES: u32 = 3;

/// Largest number of late frames that a client expects.
pub const MAX_LATE_FRAMES: u32 = 65_536;

/// Limits that one side of a connection keeps and announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Largest size of a received head in the form of HTTP/1, at most [`MAX_HEAD`](manylane_http::MAX_HEAD),
    /// in bytes. A larger head becomes [`Event::TooLarge`](crate::Event::TooLarge).
    pub head: usize,
    /// Largest size of a head with its edits, in bytes: `tune.bufsize`.
    pub room: usize,
    /// Largest number of fields, plus one for the first line: `tune.http.maxhdr`.
    pub fields: usize,
    /// Receive window of each stream, in bytes: `tune.h2.*.initial-window-size`.
    pub stream_window: u32,
    /// Receive window of the connection, in bytes. It begins with [`DEFAULT_WINDOW`] and is never smaller.
    pub connection_window: u32,
    /// Largest number of concurrent streams of a client: `tune.h2.*.max-concurrent-streams`. A client never
    /// begins more at a time, even if the server allows more.
    pub max_streams: u32,
    /// Largest payload of a received frame, in bytes: `tune.h2.max-frame-size`, at least 16,384.
    pub max_frame: u32,
    /// Size of the dynamic table that the peer's encoder may use, in bytes: `tune.h2.header-table-size`.
    pub table: u32,
    /// True if a server offers extended CONNECT (RFC 8441), which carries WebSocket.
    pub connect_protocol: bool,
    /// True if a path may have `#`, which is percent-encoded: `option
    /// accept-unsafe-violations-in-http-request`.
    pub fragments: bool,
    /// Number of glitches of the peer that end the connection: `tune.h2.*.glitches-threshold`. 0 for no
    /// limit.
    pub glitches: u32,
    /// Number of frames handled in one turn: `tune.h2.*.max-frames-at-once`. 0 for no limit.
    pub frames_at_once: u32,
    /// Number of RST_STREAM frames and of streams reset for the peer's faults that are handled in one turn:
    /// `tune.h2.fe.max-rst-at-once`. 0 for no limit.
    pub resets_at_once: u32,
}

impl Default for Config {
    /// Returns 100 streams with windows of 65,535 bytes, and heads of 15,360 bytes with 100 fields.
    fn default() -> Self {
        Self {
            head: 15_360,
            room: 16_384,
            fields: 101,
            stream_window: DEFAULT_WINDOW,
            connection_window: DEFAULT_WINDOW,
            max_streams: 100,
            max_frame: DEFAULT_MAX as u32,
            table: 4_096,
            connect_protocol: false,
            fragments: false,
            glitches: 0,
            frames_at_once: 0,
            resets_at_once: 0,
        }
    }
}

impl Config {
    /// Returns the configuration with each value in the range of the protocol.
    pub(crate) fn clamped(self) -> Self {
        Self {
            head: self.head.min(manylane_http::MAX_HEAD),
            stream_window: self.stream_window.min(MAX_WINDOW),
            connection_window: self.connection_window.clamp(DEFAULT_WINDOW, MAX_WINDOW),
            max_frame: self.max_frame.clamp(DEFAULT_MAX as u32, crate::frame::LARGEST_MAX as u32),
            ..self
        }
    }

    /// Returns the value of `SETTINGS_MAX_HEADER_LIST_SIZE`, which counts 32 bytes for each field.
    pub(crate) fn header_list(&self) -> u32 {
        (self.head + 32 * self.fields).min(u32::MAX as usize) as u32
    }

    /// Returns the largest number of bytes kept of an incomplete header block: those of the largest head,
    /// whose strings no honest encoder makes longer, and one frame more. So a block that is a little too
    /// large is read and answered, and one without end is not.
    pub(crate) fn block(&self) -> usize {
        self.head + DEFAULT_MAX
    }
}

/// An allowance that events use up and time restores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    left: u32,
    burst: u32,
    per_second: u32,
    /// Time when the allowance was last restored.
    since: Duration,
}

impl Allowance {
    /// Creates a full allowance.
    pub(crate) fn new(burst: u32, per_second: u32, now: Duration) -> Self {
        Self { left: burst, burst, per_second, since: now }
    }

    /// Uses one unit. Returns the number of units left, or `None` if none was left to use.
    pub(crate) fn take(&mut self, now: Duration) -> Option<u32> {
        if self.left < self.burst {
            let passed = now.saturating_sub(self.since);
            let back =
                (passed.as_micros() * u128::from(self.per_second) / 1_000_000).min(u128::from(self.burst));
            if back > 0 {
                self.earn(back as u32);
                self.since = now;
            }
        } else {
            self.since = now;
        }
        self.left = self.left.checked_sub(1)?;
        Some(self.left)
    }

    /// Restores `n` units, up to the burst.
    pub(crate) fn earn(&mut self, n: u32) {
        self.left = self.left.saturating_add(n).min(self.burst);
    }

    /// Returns whether more than half is used up.
    pub(crate) fn is_low(&self) -> bool {
        self.left < self.burst / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_used_up_and_comes_back_with_time() {
        let mut allowance = Allowance::new(3, 10, Duration::ZERO);
        let at = Duration::from_millis;
        assert_eq!([(); 4].map(|()| allowance.take(at(50)).is_some()), [true, true, true, false]);
        assert_eq!(allowance.take(at(149)), None);
        assert_eq!(allowance.take(at(150)), Some(0));
        assert_eq!(allowance.take(at(10_000)), Some(2));
        allowance.earn(100);
        assert_eq!(allowance.take(at(10_000)), Some(2));
    }
}
