//! How a stream ended: the first two letters of the termination state, as the logging chapter of HAProxy's
//! manual defines them.

use std::fmt;

/// Cause of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Both sides ended normally: `-`.
    Normal,
    /// The client left: `C`.
    ClientLeft,
    /// The server left, or refused: `S`.
    ServerLeft,
    /// The proxy refused: `P`.
    Refused,
    /// The proxy responded itself: `L`.
    Local,
    /// A resource was exhausted: `R`.
    Resource,
    /// An internal error: `I`.
    Internal,
    /// The client was silent for too long: `c`.
    ClientSilent,
    /// The server was silent for too long: `s`.
    ServerSilent,
    /// The server went down, and its streams with it: `D`.
    ServerDown,
    /// An active server came up, and the streams of backup servers ended: `U`.
    ActiveUp,
    /// An operator ended it: `K`.
    Killed,
}

impl Cause {
    /// Returns true if an operator or a change of a server ended the stream; then nothing is retried.
    pub fn is_order(self) -> bool {
        matches!(self, Self::ServerDown | Self::ActiveUp | Self::Killed)
    }
}

/// Phase of a stream when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The stream was complete: `-`.
    Done,
    /// Waiting for a whole request: `R`.
    Request,
    /// Waiting in a queue: `Q`.
    Queue,
    /// Connecting to the server: `C`.
    Connect,
    /// Waiting for the head of the response: `H`.
    Headers,
    /// Forwarding: `D`.
    Data,
    /// Sending the last bytes to the client, with nothing left from the server: `L`.
    Last,
    /// Held back in a tarpit: `T`.
    Tarpit,
}

/// Cause and phase of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termination {
    /// The cause.
    pub cause: Cause,
    /// The phase.
    pub phase: Phase,
}

impl Termination {
    /// A normal end: `--`.
    pub const NORMAL: Self = Self::new(Cause::Normal, Phase::Done);

    /// Returns a termination with this cause and phase.
    pub const fn new(cause: Cause, phase: Phase) -> Self {
        Self { cause, phase }
    }

    /// Returns the two letters.
    pub const fn letters(self) -> [u8; 2] {
        let cause = match self.cause {
            Cause::Normal => b'-',
            Cause::ClientLeft => b'C',
            Cause::ServerLeft => b'S',
            Cause::Refused => b'P',
            Cause::Local => b'L',
            Cause::Resource => b'R',
            Cause::Internal => b'I',
            Cause::ClientSilent => b'c',
            Cause::ServerSilent => b's',
            Cause::ServerDown => b'D',
            Cause::ActiveUp => b'U',
            Cause::Killed => b'K',
        };
        let phase = match self.phase {
            Phase::Done => b'-',
            Phase::Request => b'R',
            Phase::Queue => b'Q',
            Phase::Connect => b'C',
            Phase::Headers => b'H',
            Phase::Data => b'D',
            Phase::Last => b'L',
            Phase::Tarpit => b'T',
        };
        [cause, phase]
    }
}

impl fmt::Display for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [cause, phase] = self.letters();
        write!(f, "{}{}", char::from(cause), char::from(phase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_the_manual() {
        assert_eq!(Termination::NORMAL.to_string(), "--");
        assert_eq!(Termination::new(Cause::ServerSilent, Phase::Connect).to_string(), "sC");
        assert_eq!(Termination::new(Cause::ClientLeft, Phase::Data).to_string(), "CD");
    }
}
