//! Messages of distcc: tokens of four letters, each with a number of eight hexadecimal digits, which for most
//! tokens is the length of the bytes that follow it.

use crate::sample::Value;

/// What to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) token: [u8; 4],
    /// Which of the tokens with that name, from 1; 0 for the first.
    pub(crate) occurrence: i64,
    /// The bytes that follow it, instead of its number.
    pub(crate) body: bool,
}

/// Result of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    Value(Value<'a>),
    /// The bytes are no message of distcc; more of them do not help.
    None,
    /// The token, or what follows it, is not here yet.
    Short,
}

/// Tokens whose number is not a length.
const WITHOUT_BODY: [&[u8; 4]; 5] = [b"DIST", b"ARGC", b"DONE", b"NFIL", b"STAT"];

/// Length of a token with its number.
const TOKEN: usize = 12;

impl Part {
    /// Finds the part in a message at the start of `bytes`.
    pub(crate) fn find(self, mut bytes: &[u8]) -> Read<'_> {
        let mut count = 0;
        while let Some((token, rest)) = bytes.split_first_chunk::<TOKEN>() {
            let (name, digits) = token.split_at(4);
            let Some(number) = number(digits) else { return Read::None };
            let len = if WITHOUT_BODY.iter().any(|own| *own == name) { 0 } else { number as usize };
            if name == self.token {
                count += 1;
                if self.occurrence == 0 || self.occurrence == count {
                    return match (self.body, rest.get(..len)) {
                        (false, _) => Read::Value(Value::Int(i64::from(number))),
                        (true, Some(body)) => Read::Value(Value::Bin(body)),
                        (true, None) => Read::Short,
                    };
                }
            }
            match rest.get(len..) {
                Some(rest) => bytes = rest,
                None => return Read::Short,
            }
        }
        Read::Short
    }
}

/// The value of hexadecimal digits; `None` if one is none.
fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"DIST00000001ARGC00000002ARGV00000003gccARGV00000002-cDOTI00000006int a;";

    fn find(bytes: &[u8], token: &[u8; 4], occurrence: i64, body: bool) -> String {
        format!("{:?}", Part { token: *token, occurrence, body }.find(bytes))
    }

    fn body(text: &[u8]) -> String {
        format!("{:?}", Read::Value(Value::Bin(text)))
    }

    #[test]
    fn tokens_are_found_by_their_name_and_number() {
        assert_eq!(find(MESSAGE, b"ARGC", 0, false), "Value(Int(2))");
        assert_eq!(find(MESSAGE, b"ARGV", 2, false), "Value(Int(2))");
        assert_eq!(find(MESSAGE, b"ARGV", 0, true), body(b"gcc"));
        assert_eq!(find(MESSAGE, b"ARGV", 2, true), body(b"-c"));
        assert_eq!(find(MESSAGE, b"DOTI", 1, true), body(b"int a;"));
        assert_eq!(find(MESSAGE, b"ARGC", 1, true), body(b""));
        for (token, occurrence) in [(b"ARGV", 3), (b"ARGV", -1), (b"DOTO", 0)] {
            assert_eq!(find(MESSAGE, token, occurrence, true), "Short");
        }
    }

    #[test]
    fn what_is_cut_is_short_and_what_is_no_number_ends_the_search() {
        for cut in 0..MESSAGE.len() {
            assert_eq!(find(&MESSAGE[..cut], b"DOTI", 0, true), "Short", "{cut}");
        }
        assert_eq!(find(b"DIST0000000xARGV00000001a", b"ARGV", 0, true), "None");
        assert_eq!(find(b"GET / HTTP/1.1\r\n", b"ARGV", 0, true), "None");
        assert_eq!(find(b"FOOOffffffffab", b"ARGV", 0, true), "Short");
    }
}
