//! `option ldap-check`: an anonymous bind of version 3, and its result.

use super::{Expect, Judgement, Pattern, Script, Service, Step};
use crate::status::{CheckResult, Status};

/// Message 1: an anonymous bind of version 3 with an empty password.
const BIND: &[u8] = &[0x30, 12, 0x02, 1, 1, 0x60, 7, 0x02, 1, 3, 0x04, 0, 0x80, 0];
/// Size of the shortest answer, in bytes.
const SHORTEST: usize = 14;

/// Tags of BER: a sequence, the response to a bind, an enumeration.
const SEQUENCE: u8 = 0x30;
const BIND_RESPONSE: u8 = 0x61;
const ENUMERATED: u8 = 0x0a;
/// Integer with the number of the answered message: 1.
const MESSAGE: [u8; 3] = [0x02, 1, 1];

/// Returns the script.
pub fn script() -> Script {
    Script::of(vec![Step::send(BIND), Step::expect(Expect::new(Pattern::Service(Service::Ldap), 2))])
}

/// Reason why an answer cannot be parsed.
enum No {
    /// There are not enough bytes.
    Short,
    /// The answer is not LDAP.
    Other,
}

/// Parses a length, and returns it with the bytes behind it.
fn length(input: &[u8]) -> Result<(usize, &[u8]), No> {
    let (&first, rest) = input.split_first().ok_or(No::Short)?;
    if first & 0x80 == 0 {
        return Ok((first.into(), rest));
    }
    // Number of length bytes; four are enough.
    let count = usize::from(first & 0x7f);
    if !(1..=4).contains(&count) {
        return Err(No::Other);
    }
    let (digits, rest) = rest.split_at_checked(count).ok_or(No::Short)?;
    Ok((digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest))
}

/// Returns the result code of a bind response.
fn result(input: &[u8]) -> Result<u8, No> {
    let rest = input.strip_prefix(&[SEQUENCE]).ok_or(No::Other)?;
    let (all, rest) = length(rest)?;
    let message = rest.get(..all).ok_or(No::Short)?;
    let rest = message.strip_prefix(&MESSAGE).ok_or(No::Other)?;
    let rest = rest.strip_prefix(&[BIND_RESPONSE]).ok_or(No::Other)?;
    // The message is complete, so missing bytes will not come.
    let (_, rest) = length(rest).map_err(|_| No::Other)?;
    match rest {
        [ENUMERATED, 1, code, ..] => Ok(*code),
        _ => Err(No::Other),
    }
}

pub(super) fn judge(input: &[u8], last: bool) -> Judgement {
    let other = || Judgement::Over(CheckResult::new(Status::L7Rsp, "Not LDAPv3 protocol"));
    if input.len() < SHORTEST && !last {
        return Judgement::Wait;
    }
    match result(input) {
        _ if input.is_empty() => other(),
        Ok(0) => Judgement::Well(CheckResult::said(Status::L7Ok, 0, b"Success")),
        Ok(code) => {
            let info = b"See RFC: http://tools.ietf.org/html/rfc4511#section-4.1.9";
            Judgement::Over(CheckResult::said(Status::L7Sts, code.into(), info))
        }
        Err(No::Other) => other(),
        Err(No::Short) if last => Judgement::Over(CheckResult::new(Status::L7Rsp, "")),
        Err(No::Short) => Judgement::Wait,
    }
}
