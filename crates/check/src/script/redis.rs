//! `option redis-check`: a PING, and its PONG.

use super::{Expect, Judgement, Pattern, Script, Service, Step, contains};
use crate::status::{CheckResult, LONGEST_INFO, Status};

/// Request.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// Expected answer.
const PONG: &[u8] = b"+PONG\r\n";

/// Returns the script.
pub fn script() -> Script {
    Script::of(vec![Step::send(PING), Step::expect(Expect::new(Pattern::Service(Service::Redis), 2))])
}

pub(super) fn judge(input: &[u8], last: bool) -> Judgement {
    if input.starts_with(PONG) {
        return Judgement::Well(CheckResult::said(Status::L7Ok, 0, b"Redis server is ok"));
    }
    if !last && !contains(input, b"\r\n") && input.len() < LONGEST_INFO {
        return Judgement::Wait;
    }
    Judgement::Over(CheckResult::said(Status::L7Sts, 0, input))
}
