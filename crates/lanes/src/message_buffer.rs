//! The beginning of a message of which more is to come, in one piece for parsers that need that.

use manylane_buf::MAX_CLUSTER;

/// Received bytes of an incomplete message. Its memory is at most twice its bytes and a cluster; what a long
/// message leaves over is given back, and does not stay for the life of the connection.
#[derive(Debug, Default)]
pub struct MessageBuffer(Vec<u8>);

impl MessageBuffer {
    /// Passes all bytes, with `more` at their end, to `read`, which returns the number of bytes of the
    /// complete messages at their front. Keeps the rest. Complete messages in `more` alone are not copied.
    ///
    /// # Errors
    /// That of `read`; then the bytes are of no use.
    pub fn read<E>(&mut self, more: &[u8], read: impl FnOnce(&[u8]) -> Result<usize, E>) -> Result<(), E> {
        if self.0.is_empty() {
            let used = read(more)?;
            self.0.extend_from_slice(&more[used..]);
        } else {
            self.0.extend_from_slice(more);
            let used = read(&self.0)?;
            self.0.drain(..used);
        }
        if self.0.capacity() > 2 * self.0.len() + MAX_CLUSTER {
            self.0.shrink_to_fit();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_logs::{Frame, Frames};
    use manylane_peers::Message;
    use proptest::prelude::*;

    /// Longest message for `log-forward`: more than a read brings.
    const LONGEST: usize = 40_000;

    /// Generates lengths of messages, and the cuts of their bytes.
    fn lengths(longest: usize) -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(prop_oneof![3 => 1..40_usize, 1 => 1..longest], 1..8)
    }

    fn cuts() -> impl Strategy<Value = Vec<usize>> {
        let length = prop_oneof![3 => Just(1_usize), 2 => 1..40_usize, 1 => 1..=MAX_CLUSTER];
        prop::collection::vec(length, 1..30)
    }

    /// Reads `sent` in pieces, and checks the memory after each. `read` returns the length of the message at
    /// the front, or `None` if it is incomplete. Returns the lengths of all.
    fn read_all(
        sent: &[u8],
        cuts: &[usize],
        mut read: impl FnMut(&[u8]) -> Option<usize>,
    ) -> Result<Vec<usize>, TestCaseError> {
        let (mut buffer, mut rest, mut came) = (MessageBuffer::default(), sent, Vec::new());
        for &cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece;
            (piece, rest) = rest.split_at(cut.min(rest.len()));
            let all = |bytes: &[u8]| {
                let mut used = 0;
                while let Some(length) = read(&bytes[used..]) {
                    came.push(length);
                    used += length;
                }
                Ok::<_, ()>(used)
            };
            prop_assert_eq!(buffer.read(piece, all), Ok(()));
            let waits = sent.len() - rest.len() - came.iter().sum::<usize>();
            let memory = buffer.0.capacity();
            prop_assert_eq!(buffer.0.len(), waits);
            prop_assert!(memory <= 2 * waits + MAX_CLUSTER, "{} bytes for {}", memory, waits);
        }
        Ok(came)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Messages for `log-forward` of both framings.
        #[test]
        fn what_waits_of_log_lines_takes_at_most_twice_its_bytes_and_a_cluster(
            lengths in lengths(LONGEST - 10),
            counted: bool,
            cuts in cuts(),
        ) {
            let all: Vec<String> = lengths
                .iter()
                .map(|length| match counted {
                    true => format!("{length} {}", "x".repeat(*length)),
                    false => format!("<{}\n", "x".repeat(*length)),
                })
                .collect();
            let mut frames = Frames::new(LONGEST, false);
            let read = |bytes: &[u8]| match frames.next(bytes) {
                Frame::Whole { used, .. } => Some(used),
                other => {
                    assert_eq!(other, Frame::Part);
                    None
                }
            };
            let came = read_all(all.concat().as_bytes(), &cuts, read)?;
            prop_assert_eq!(came, all.iter().map(String::len).collect::<Vec<_>>());
        }

        /// Messages of peers; the number of their kind is unknown, so they are skipped when they are whole.
        #[test]
        fn what_waits_of_peers_takes_at_most_twice_its_bytes_and_a_cluster(
            lengths in lengths(manylane_peers::MAX_BODY),
            cuts in cuts(),
        ) {
            let all: Vec<Vec<u8>> = lengths
                .iter()
                .map(|length| {
                    let mut message = vec![10, 200];
                    manylane_peers::put_number(*length as u64, &mut message);
                    message.resize(message.len() + length, b'x');
                    message
                })
                .collect();
            let read = |bytes: &[u8]| Message::read(bytes).expect("a message").map(|(_, used)| used);
            let came = read_all(&all.concat(), &cuts, read)?;
            prop_assert_eq!(came, all.iter().map(Vec::len).collect::<Vec<_>>());
        }
    }
}
