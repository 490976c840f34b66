//! `tcp-check`: bytes, and what is looked for in those that come back.

use super::{Expect, Judgement, Pattern, contains, redis};
use crate::status::{Status, Verdict};

/// The bytes of `hex`: two digits each.
///
/// # Errors
/// A sentence.
pub fn from_hex(hex: &[u8]) -> Result<Box<[u8]>, String> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let digits: Option<Vec<u8>> = hex.iter().map(digit).collect();
    match digits {
        Some(digits) if !digits.is_empty() && digits.len().is_multiple_of(2) => {
            Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err("expects an even number of hexadecimal digits".into()),
    }
}

/// `last`: no more is looked at.
pub(super) fn judge(expect: &Expect, input: &[u8], last: bool) -> Judgement {
    let matches = match &expect.pattern {
        Pattern::Redis(good) => return redis::judge(good, input, last),
        Pattern::Bytes(bytes, _) => contains(input, bytes),
        Pattern::Regex(regex) => regex.matches(input),
        Pattern::Status(_) | Pattern::StatusRegex(_) => false, // there is none without HTTP
    };
    if !matches && !last {
        return Judgement::Wait;
    }
    if matches != expect.negated && !input.is_empty() {
        return Judgement::Good;
    }
    let what = match &expect.pattern {
        Pattern::Bytes(_, shown) => format!("content '{shown}'"),
        _ => "content (regex)".into(),
    };
    let how = if input.is_empty() {
        "TCPCHK got an empty response".to_owned()
    } else if matches {
        format!("TCPCHK matched unwanted {what}")
    } else {
        format!("TCPCHK did not match {what}")
    };
    let comment = expect.comment.as_ref().map_or(String::new(), |comment| format!(" comment: '{comment}'"));
    Judgement::Over(Verdict::new(Status::L7Rsp, format!("{how} at step {}{comment}", expect.number)))
}
