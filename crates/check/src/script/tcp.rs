//! `tcp-check`: bytes to send, and patterns for the bytes that come back.

use super::{CheckInput, Evaluate, Expect, Judgement, Pattern, contains};
use crate::status::{CheckResult, Status};

/// Decodes `hex`, two digits a byte.
///
/// # Errors
/// A sentence about the fault.
pub fn from_hex(hex: &[u8]) -> Result<Box<[u8]>, String> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let digits: Option<Vec<u8>> = hex.iter().map(digit).collect();
    match digits {
        Some(digits) if !digits.is_empty() && digits.len().is_multiple_of(2) => {
            Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        // Without the text, which may be a secret.
        _ => Err("expected an even number of hexadecimal digits".to_owned()),
    }
}

/// Text for a pattern whose format evaluates to nothing.
pub(super) const EMPTY: &str = "log-format string evaluated to an empty string";

/// Returns the judgement of a failed expectation.
pub(super) fn over(expect: &Expect, status: Status, info: String) -> Judgement {
    let status = expect.error.unwrap_or(status);
    let code = status.has_code().then_some(0); // there is no code, and that is reported as 0
    Judgement::Over(CheckResult { code, ..CheckResult::new(status, info) })
}

/// Judges an answer. `last` says that no more of it is examined.
pub(super) fn judge(expect: &Expect, answer: CheckInput<'_>, last: bool, by: &mut dyn Evaluate) -> Judgement {
    let input = answer.bytes;
    let shortest = match &expect.pattern {
        Pattern::Bytes(bytes) | Pattern::Binary(bytes) => bytes.len(),
        _ => 1,
    };
    if !last && input.len() < shortest.max(expect.least.unwrap_or(0)) {
        return Judgement::Wait;
    }
    let comment = expect.comment.as_ref().map_or(String::new(), |comment| format!(" comment: {comment}"));
    let number = expect.number;
    let nothing = || format!("TCPCHK got an empty response at step {number}{comment}");
    if let Pattern::Service(service) = &expect.pattern {
        return match service.empty() {
            Some(status) if input.is_empty() => over(expect, status, nothing()),
            _ => service.judge(input, last),
        };
    }
    let made = match &expect.pattern {
        Pattern::Made(format) | Pattern::MadeHex(format) => by.text(format, answer),
        _ => Vec::new(),
    };
    if made.is_empty() && matches!(expect.pattern, Pattern::Made(_) | Pattern::MadeHex(_)) {
        return over(expect, Status::L7Rsp, EMPTY.into());
    }
    let matches = match &expect.pattern {
        Pattern::Bytes(bytes) | Pattern::Binary(bytes) => contains(input, bytes),
        Pattern::Made(_) => contains(input, &made),
        Pattern::MadeHex(_) => match from_hex(&made) {
            Ok(bytes) => contains(input, &bytes),
            Err(_) => {
                let why = "Failed to parse hexastring resulting of eval of a log-format string";
                return over(expect, Status::L7Rsp, why.into());
            }
        },
        Pattern::Regex(regex) => regex.matches(input),
        Pattern::HexRegex(regex) => regex.matches(&to_hex(input)),
        // Patterns of HTTP never match here.
        Pattern::Status(_) | Pattern::StatusRegex(_) | Pattern::Field { .. } => false,
        Pattern::Service(_) => false, // judged above
    };
    if !matches && !last && expect.least.is_none() {
        return Judgement::Wait;
    }
    if matches != expect.negated {
        return Judgement::Good;
    }
    if let Some(info) = &expect.on_error {
        return over(
            expect,
            Status::L7Rsp,
            format!("{}{comment}", CheckResult::shown(&info.get(answer, by))),
        );
    }
    if input.is_empty() {
        return over(expect, Status::L7Rsp, nothing());
    }
    let what = match &expect.pattern {
        Pattern::Bytes(bytes) => format!("content '{}'", CheckResult::shown(bytes)),
        Pattern::Binary(_) => "content (binary)".into(),
        Pattern::HexRegex(_) => "content (binary regex)".into(),
        Pattern::Made(_) => "content (log-format string)".into(),
        Pattern::MadeHex(_) => "content (log-format binary)".into(),
        _ => "content (regex)".into(),
    };
    let how = if matches { "TCPCHK matched unwanted" } else { "TCPCHK did not match" };
    over(expect, Status::L7Rsp, format!("{how} {what} at step {number}{comment}"))
}

/// Encodes bytes as two digits each.
pub(super) fn to_hex(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}
