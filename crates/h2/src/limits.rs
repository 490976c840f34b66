//! What is allowed, and the bounds on what a peer can make us do.

use crate::frame::settings::MAX_WINDOW;
use crate::frame::{DEFAULT_MAX, HEADER};
use std::time::Duration;

/// The window of the connection and of each stream before anybody changes it (RFC 9113, 6.9.2).
pub const DEFAULT_WINDOW: u32 = 65_535;

/// Most CONTINUATION frames of one header block. A head of 16 KiB needs none with frames of the usual size,
/// and senders that cut heads for smaller ones make a few; a block without end costs only the peer's
/// bandwidth.
pub const MAX_CONTINUATIONS: u32 = 16;

/// How many times `SETTINGS_MAX_HEADER_LIST_SIZE`, as we announce it, one header block may decode to. A head
/// that is somewhat too large is read and answered with 431. Of one that is beyond this two bytes name an
/// entry as large as the table, so a block of 31,000 bytes would keep the lane busy for 50 ms.
pub const DECODED_TIMES: usize = 4;

/// Streams that may be reset in one go, by the peer (*Rapid Reset*) or by us for the peer's faults
/// (*MadeYouReset*): a browser that leaves a page resets what it had open, up to the usual bound of 100
/// streams, and may do so twice in a moment. Where more streams are allowed at a time, twice as many may be
/// reset.
pub const RESET_BURST: u32 = 200;

/// Streams a second that may be reset for long: one page left each second, with all that it had open.
pub const RESETS_PER_SECOND: u32 = 100;

/// Frames in one go that ask for an answer or change nothing: SETTINGS, PING, PRIORITY, WINDOW_UPDATE, DATA
/// without data, interim responses, frames for streams that ended, frames of unknown kinds. Clients send some
/// tens when they begin, and a WINDOW_UPDATE for what they read, for which [`UPDATES_EARNED`] allows.
pub const CHEAP_BURST: u32 = 1_000;

/// Cheap frames a second for long: a PING for each round trip of 2 ms, as senders that measure bandwidth make
/// them.
pub const CHEAP_PER_SECOND: u32 = 500;

/// Data that we send for which the peer may send one WINDOW_UPDATE, in bytes, beside two for each frame:
/// receivers that tell of each read tell of the stream's window and the connection's.
pub const UPDATES_EARNED: u32 = 512;

/// Answers to the peer's frames that wait to be written, in bytes: acknowledgements of PING and SETTINGS,
/// and resets. Who asks for so much and does not read the answers fills memory.
pub const MAX_ANSWERS: usize = 32 * 1024;

/// Output that waits to be written, in bytes, from which on no data is taken from streams: three frames of
/// the usual size, each in a cluster of its own, and small ones in one cluster beside them. Enough to keep a
/// socket busy; each byte more would be one that a slow reader holds.
pub const OUTPUT_ROOM: usize = 3 * (HEADER + DEFAULT_MAX) + 2048;

/// Output that waits to be written, in bytes, from which on input is not looked at: a peer that does not read
/// answers gets no further ones, and TCP holds it back.
pub const MAX_OUTPUT: usize = 256 * 1024;

/// Streams that we reset lately whose frames may still be under way, and are ignored. A peer can have as many
/// open as we allow it; those that it opens after it has seen resets come behind the last frames of these.
pub const MAX_REMEMBERED: usize = 1_024;

/// What either side of a connection allows and announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a head as it is told in the form of HTTP/1, at most [`MAX_HEAD`](manylane_http::MAX_HEAD).
    /// Larger ones are told as [`Event::TooLarge`](crate::Event::TooLarge).
    pub head: usize,
    /// Most bytes of a head with its edits: `tune.bufsize`.
    pub room: usize,
    /// Most fields, plus one for the first line: `tune.http.maxhdr`.
    pub fields: usize,
    /// Bytes of each stream that may be under way or not consumed: `tune.h2.*.initial-window-size`.
    pub stream_window: u32,
    /// The same of the connection. It begins with [`DEFAULT_WINDOW`] and does not go below.
    pub connection_window: u32,
    /// Streams that a client may have at a time: `tune.h2.*.max-concurrent-streams`. Of a client, how many
    /// it begins at a time, where the server allows more.
    pub max_streams: u32,
    /// Most bytes of a frame that comes: `tune.h2.max-frame-size`, from 16,384 on.
    pub max_frame: u32,
    /// What the peer's compression may keep, in bytes: `tune.h2.header-table-size`.
    pub table: u32,
    /// A server offers extended CONNECT (RFC 8441), which carries WebSocket.
    pub connect_protocol: bool,
    /// Oddities of the peer that end the connection: `tune.h2.*.glitches-threshold`. 0: none do.
    pub glitches: u32,
    /// Frames that are handled in one turn: `tune.h2.*.max-frames-at-once`. 0: no bound.
    pub frames_at_once: u32,
    /// RST_STREAM frames that are handled in one turn: `tune.h2.fe.max-rst-at-once`. 0: no bound.
    pub resets_at_once: u32,
}

impl Default for Config {
    /// 100 streams with windows of 65,535 bytes, heads of 15,360 bytes with 100 fields.
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
            glitches: 0,
            frames_at_once: 0,
            resets_at_once: 0,
        }
    }
}

impl Config {
    /// The same with each value where the protocol can have it.
    pub(crate) fn clamped(self) -> Self {
        Self {
            head: self.head.min(manylane_http::MAX_HEAD),
            stream_window: self.stream_window.min(MAX_WINDOW),
            connection_window: self.connection_window.clamp(DEFAULT_WINDOW, MAX_WINDOW),
            max_frame: self.max_frame.clamp(DEFAULT_MAX as u32, crate::frame::LARGEST_MAX as u32),
            ..self
        }
    }

    /// `SETTINGS_MAX_HEADER_LIST_SIZE`, which counts 32 bytes for each field.
    pub(crate) fn header_list(&self) -> u32 {
        (self.head + 32 * self.fields).min(u32::MAX as usize) as u32
    }

    /// Bytes of a header block that are kept until it is complete: those of the largest head, whose strings
    /// may be coded longer than they are by nobody who means well, and a frame more, since a block that is a
    /// little too large is read and answered while one without end is not.
    pub(crate) fn block(&self) -> usize {
        self.head + DEFAULT_MAX
    }
}

/// An allowance that is used up by events and comes back with time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    left: u32,
    burst: u32,
    per_second: u32,
    /// When it last came back.
    since: Duration,
}

impl Allowance {
    /// A full one.
    pub(crate) fn new(burst: u32, per_second: u32, now: Duration) -> Self {
        Self { left: burst, burst, per_second, since: now }
    }

    /// Uses one. None: there was none left; else how many are.
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

    /// Gets some back, up to the burst.
    pub(crate) fn earn(&mut self, n: u32) {
        self.left = self.left.saturating_add(n).min(self.burst);
    }

    /// Whether more than half of it is used.
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
