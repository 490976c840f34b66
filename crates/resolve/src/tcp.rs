//! Answers over TCP, with a length before each message (RFC 1035, 4.2.2).

use crate::LONGEST_MESSAGE;

/// Size of the length before a message, in bytes.
const LENGTH: usize = 2;

/// A message that arrives over TCP in any number of segments. Holds a copy of the received bytes.
#[derive(Debug, Default)]
pub struct TcpMessage {
    came: Vec<u8>,
}

impl TcpMessage {
    /// Appends received bytes. Ignores those behind the longest message.
    pub fn receive(&mut self, bytes: &[u8]) {
        let room = LENGTH + LONGEST_MESSAGE - self.came.len();
        self.came.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns the message if it is complete.
    pub fn message(&self) -> Option<&[u8]> {
        let (length, rest) = self.came.split_first_chunk::<LENGTH>()?;
        rest.get(..usize::from(u16::from_be_bytes(*length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Largest piece that a read brings.
    const CLUSTER: usize = 16_384;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// However a message is cut: it is found when it is complete, and not before, and takes at most twice
        /// the memory of its bytes, and a cluster.
        #[test]
        fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(
            message in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..100),
                (100..=LONGEST_MESSAGE).prop_map(|length| vec![b'x'; length]),
                (60_000..=LONGEST_MESSAGE).prop_map(|length| vec![b'x'; length]),
            ],
            behind in 0..100_usize,
            cuts in prop::collection::vec(prop_oneof![3 => 1..4_usize, 1 => 1..=CLUSTER], 1..30),
        ) {
            let all = [&(message.len() as u16).to_be_bytes()[..], &message, &vec![b'y'; behind]].concat();
            let (mut read, mut rest) = (TcpMessage::default(), &all[..]);
            for &cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let piece;
                (piece, rest) = rest.split_at(cut.min(rest.len()));
                read.receive(piece);
                let came = all.len() - rest.len();
                prop_assert!(read.came.capacity() <= 2 * came + CLUSTER);
                let expected = (came >= LENGTH + message.len()).then_some(&message[..]);
                prop_assert_eq!(read.message(), expected);
            }
            prop_assert!(read.came.len() <= LENGTH + LONGEST_MESSAGE);
        }
    }
}
