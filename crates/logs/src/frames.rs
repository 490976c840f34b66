//! Messages on a stream (RFC 6587). Either each message has its length in front, or it ends with a line feed.
//!
//! The first byte of a message decides: a digit begins a length, `<` a priority. After any other byte,
//! [`Frames::next`] returns [`Frame::Broken`], since the start of the next message is unknown. The sender
//! does not speak syslog.

/// Where messages begin and end on one connection.
#[derive(Debug)]
pub struct Frames {
    /// Longest message, in bytes.
    longest: usize,
    /// Every message ends with a line feed, for any first byte (`option assume-rfc6587-ntf`).
    lines_only: bool,
    /// Number of bytes of the current message that were searched for its end.
    searched: usize,
}

/// The state of the message at the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The beginning of a message: more bytes are needed.
    Part,
    /// A message.
    Whole {
        /// Where it begins and ends.
        message: (usize, usize),
        /// Number of bytes to consume.
        used: usize,
    },
    /// No message, or one that is too long.
    Broken,
}

impl Frames {
    /// Creates the state of a new connection.
    pub fn new(longest: usize, lines_only: bool) -> Self {
        Self { longest, lines_only, searched: 0 }
    }

    /// Finds the message at the front of `bytes`. Each call passes all unconsumed bytes of the connection.
    pub fn next(&mut self, bytes: &[u8]) -> Frame {
        match bytes.first() {
            None => Frame::Part,
            Some(b'<') => self.line(bytes),
            Some(_) if self.lines_only => self.line(bytes),
            Some(b'1'..=b'9') => self.counted(bytes),
            Some(_) => Frame::Broken,
        }
    }

    fn line(&mut self, bytes: &[u8]) -> Frame {
        let Some(end) = bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = bytes.len();
            return if bytes.len() > self.longest { Frame::Broken } else { Frame::Part };
        };
        let end = self.searched + end;
        self.searched = 0;
        if end > self.longest {
            return Frame::Broken;
        }
        let without_return = if bytes[..end].ends_with(b"\r") { end - 1 } else { end };
        Frame::Whole { message: (0, without_return), used: end + 1 }
    }

    fn counted(&self, bytes: &[u8]) -> Frame {
        let mut length = 0;
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'0'..=b'9' => length = length * 10 + usize::from(byte - b'0'),
                b' ' if bytes.len() - (at + 1) < length => return Frame::Part,
                b' ' => return Frame::Whole { message: (at + 1, at + 1 + length), used: at + 1 + length },
                _ => return Frame::Broken,
            }
            if length > self.longest {
                return Frame::Broken;
            }
        }
        Frame::Part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONGEST: usize = 100;

    /// All messages of a stream that comes in parts, and whether it breaks.
    fn read(parts: &[&[u8]], lines_only: bool) -> (Vec<Vec<u8>>, bool) {
        let (mut frames, mut bytes, mut all) = (Frames::new(LONGEST, lines_only), Vec::new(), Vec::new());
        for part in parts {
            bytes.extend_from_slice(part);
            loop {
                match frames.next(&bytes) {
                    Frame::Part => break,
                    Frame::Broken => return (all, true),
                    Frame::Whole { message: (from, to), used } => {
                        all.push(bytes[from..to].to_vec());
                        bytes.drain(..used);
                    }
                }
            }
        }
        (all, false)
    }

    #[test]
    fn both_framings_are_distinguished_message_by_message() {
        for (stream, messages, broken) in [
            ("5 hello6 world!", &["hello", "world!"][..], false),
            ("<13>a\n<14>b\r\n", &["<13>a", "<14>b"], false),
            ("5 hello<13>b\n5 hello", &["hello", "<13>b", "hello"], false),
            ("5 hello\n6 world!\n", &["hello"], true), // HAProxy breaks here, too
            ("5 hel", &[], false),
            ("<13>abc", &[], false),
            ("hello\n", &[], true),
            ("\n<13>a\n", &[], true),
            ("0 x", &[], true),
            ("05 hello", &[], true),
            ("5x hello", &[], true),
            ("-1 a\n", &[], true),
            ("99999999999999999999999 x", &[], true),
            ("101", &[], true),
            ("100 ", &[], false),
        ] {
            assert_eq!(
                read(&[stream.as_bytes()], false),
                (messages.iter().map(|text| text.as_bytes().to_vec()).collect(), broken),
                "{stream:?}"
            );
        }
        let (lines, broken) = read(&[b"5 hello\n\n6 world!\n<1>x\n"], true);
        assert_eq!((lines.concat(), lines.len(), broken), (b"5 hello6 world!<1>x".to_vec(), 4, false));
    }

    #[test]
    fn what_is_too_long_is_not_waited_for() {
        let long = [b"<".to_vec(), vec![b'x'; LONGEST]].concat();
        assert_eq!(read(&[&long], false), (vec![], true));
        assert_eq!(read(&[&long, b"\n"], true), (vec![], true));
        let (all, broken) = read(&[&long[..LONGEST], b"\n"], false);
        assert_eq!((all.concat().len(), broken), (LONGEST, false));
    }

    /// What was seen is changed behind the back of `Frames`: it would find an end if it looked again.
    #[test]
    fn each_byte_of_a_line_is_looked_at_once() {
        let mut frames = Frames::new(5_000, false);
        for length in 2..=5_000 {
            let mut bytes = vec![b'x'; length];
            bytes[0] = b'<';
            bytes[1..length - 1].fill(b'\n');
            assert_eq!(frames.next(&bytes), Frame::Part, "a byte of {length} was looked at again");
        }
        let line = [b"<".to_vec(), vec![b'x'; 4_999], b"\n".to_vec()].concat();
        assert_eq!(frames.next(&line), Frame::Whole { message: (0, 5_000), used: 5_001 });
    }

    /// Of a counted message its length is looked at, and nothing behind it.
    #[test]
    fn a_counted_message_goes_by_its_length() {
        let (mut frames, message) = (Frames::new(100, false), [&b"100 "[..], &[b'\n'; 100]].concat());
        for length in 0..message.len() {
            assert_eq!(frames.next(&message[..length]), Frame::Part, "{length}");
        }
        assert_eq!(frames.next(&message), Frame::Whole { message: (4, 104), used: 104 });
    }

    proptest! {
        /// However a stream is cut, the same messages come out.
        #[test]
        fn cuts_change_nothing(
            stream in prop::collection::vec(prop_oneof![
                "<[a-z]{0,20}\n", "[a-z]{1,20}".prop_map(|text| format!("{} {text}", text.len())), "[ -~]",
            ], 0..6),
            cuts in prop::collection::vec(1..9_usize, 0..40),
            lines_only in any::<bool>(),
        ) {
            let stream = stream.concat().into_bytes();
            let (mut rest, mut parts) = (&stream[..], Vec::new());
            for cut in cuts {
                let (part, more) = rest.split_at(cut.min(rest.len()));
                parts.push(part);
                rest = more;
            }
            parts.push(rest);
            prop_assert_eq!(read(&parts, lines_only), read(&[&stream], lines_only));
        }
    }
}
