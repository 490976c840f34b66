//! Received bytes of a client, as lines.

use manylane_buf::MAX_CLUSTER;
use zeroize::Zeroizing;

/// Received bytes, and the lines in them. It takes at most twice the memory of its bytes, and a cluster.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    /// A copy of what was received: segments of one byte each would hold a buffer each.
    received: Zeroizing<Vec<u8>>,
    /// Start of the next line in `received`.
    begin: usize,
    /// There is no line end between `begin` and here, and the bytes behind were not looked at.
    searched: usize,
}

/// What [`LineBuffer::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Line(Zeroizing<Vec<u8>>),
    /// The line is longer than allowed.
    TooLong,
    /// The line is not complete.
    Part,
}

impl LineBuffer {
    /// Takes the next line, without its line end.
    pub(crate) fn take(&mut self, longest: usize) -> Taken {
        let is_whole = self.has_line();
        let length = self.searched - self.begin;
        if length > longest {
            return Taken::TooLong;
        }
        if !is_whole {
            self.received.drain(..self.begin);
            self.searched -= self.begin;
            self.begin = 0;
            if self.received.capacity() > 2 * self.received.len() + MAX_CLUSTER {
                self.wipe(); // long lines were taken
            }
            return Taken::Part;
        }
        let mut line = Zeroizing::new(self.received[self.begin..][..length].to_vec());
        self.begin += length + 1;
        self.searched = self.begin;
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Taken::Line(line)
    }

    /// Appends received bytes.
    pub(crate) fn add(&mut self, more: &[u8]) {
        if self.received.capacity() - self.received.len() < more.len() {
            let length = self.received.len() + more.len();
            // A vector that grows by itself leaves copies.
            let mut larger = Zeroizing::new(Vec::with_capacity(length.next_power_of_two()));
            larger.extend_from_slice(&self.received);
            self.received = larger;
        }
        self.received.extend_from_slice(more);
    }

    /// Overwrites the bytes of the lines that were taken.
    pub(crate) fn wipe(&mut self) {
        self.received = Zeroizing::new(self.received[self.begin..].to_vec());
        self.searched -= self.begin;
        self.begin = 0;
    }

    /// True if a whole line was received: `searched` is then at its end, and else behind all bytes.
    pub(crate) fn has_line(&mut self) -> bool {
        let end = self.received[self.searched..].iter().position(|&byte| byte == b'\n');
        self.searched += end.unwrap_or(self.received.len() - self.searched);
        end.is_some()
    }

    /// True if the client has sent nothing after the lines that were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.begin == self.received.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::LONGEST_LINE;
    use proptest::prelude::*;

    proptest! {
        /// However lines are cut, they come as they were sent. What waits for its end takes at most twice the
        /// memory of its bytes and a cluster, after long lines, too.
        #[test]
        fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(
            lengths in prop::collection::vec(prop_oneof![0..20_usize, 0..=LONGEST_LINE], 1..20),
            cuts in prop::collection::vec(prop_oneof![3 => 1..20_usize, 1 => 1..=MAX_CLUSTER], 1..30),
        ) {
            let sent: String = lengths.iter().map(|length| "x".repeat(*length) + "\n").collect();
            let (mut buffer, mut rest, mut came) = (LineBuffer::default(), sent.as_bytes(), Vec::new());
            let mut taken = 0;
            for &cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let piece;
                (piece, rest) = rest.split_at(cut.min(rest.len()));
                buffer.add(piece);
                loop {
                    match buffer.take(LONGEST_LINE) {
                        Taken::Line(line) => came.push(line.len()),
                        other => {
                            prop_assert_eq!(other, Taken::Part);
                            break;
                        }
                    }
                    taken = came.iter().map(|length| length + 1).sum();
                }
                let waits = sent.len() - rest.len() - taken;
                let memory = buffer.received.capacity();
                prop_assert!(memory <= 2 * waits + MAX_CLUSTER, "{} bytes for {}", memory, waits);
            }
            prop_assert_eq!(came, lengths);
            prop_assert!(buffer.is_empty());
        }
    }

    /// Whoever asks for the next line, or whether there is one, looks at new bytes only.
    #[test]
    fn each_byte_of_a_line_is_examined_once() {
        let mut buffer = LineBuffer::default();
        for line in 0..3 {
            for length in 1..5_000 {
                buffer.add(b"x");
                assert_eq!((buffer.has_line(), buffer.searched - buffer.begin), (false, length));
                assert_eq!((buffer.take(5_000), buffer.searched), (Taken::Part, length), "line {line}");
            }
            buffer.add(b"\nnext\n");
            for _ in 0..2 {
                assert!(buffer.has_line());
                assert_eq!(buffer.searched - buffer.begin, 4_999);
            }
            assert!(matches!(buffer.take(5_000), Taken::Line(line) if line.len() == 4_999));
            assert_eq!(buffer.take(5_000), Taken::Line(Zeroizing::new(b"next".to_vec())));
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_found_before_its_end() {
        let mut buffer = LineBuffer::default();
        buffer.add(b"ab\r\nabcd");
        assert_eq!(buffer.take(3), Taken::Line(Zeroizing::new(b"ab".to_vec())));
        assert_eq!(buffer.take(3), Taken::TooLong);
    }
}
