//! `tcp-check`: bytes, and what is looked for in those that come back.

use super::{Expect, Judgement, Pattern, contains};
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
    let shortest = if let Pattern::Bytes(bytes, _) = &expect.pattern { bytes.len() } else { 1 };
    if !last && input.len() < shortest.max(expect.least.unwrap_or(0)) {
        return Judgement::Wait;
    }
    let over = |status: Status, info: String| {
        let status = expect.error.unwrap_or(status);
        let code = status.has_code().then_some(0); // there is none, and it is told
        Judgement::Over(Verdict { code, ..Verdict::new(status, info) })
    };
    let comment = expect.comment.as_ref().map_or(String::new(), |comment| format!(" comment: '{comment}'"));
    let number = expect.number;
    if input.is_empty() {
        let status = match &expect.pattern {
            Pattern::Service(service) => service.empty(),
            _ => Status::L7Rsp,
        };
        return over(status, format!("TCPCHK got an empty response at step {number}{comment}"));
    }
    let matches = match &expect.pattern {
        Pattern::Service(service) => return service.judge(input, last),
        Pattern::Bytes(bytes, _) => contains(input, bytes),
        Pattern::Regex(regex) => regex.matches(input),
        Pattern::HexRegex(regex) => regex.matches(&to_hex(input)),
        // There are none without HTTP.
        Pattern::Status(_) | Pattern::StatusRegex(_) | Pattern::Field { .. } => false,
    };
    if !matches && !last && expect.least.is_none() {
        return Judgement::Wait;
    }
    if matches != expect.negated {
        return Judgement::Good;
    }
    let what = match &expect.pattern {
        Pattern::Bytes(_, shown) => format!("content '{shown}'"),
        Pattern::HexRegex(_) => "content (binary regex)".into(),
        _ => "content (regex)".into(),
    };
    let how = if matches { "TCPCHK matched unwanted" } else { "TCPCHK did not match" };
    if let (Some(told), comment) = (&expect.on_error, &expect.comment) {
        let comment = comment.as_ref().map_or(String::new(), |comment| format!(" comment: {comment}"));
        return over(Status::L7Rsp, format!("{told}{comment}"));
    }
    over(Status::L7Rsp, format!("{how} {what} at step {number}{comment}"))
}

/// These bytes in two digits each.
fn to_hex(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}
