//! `option redis-check`: a PING, and its PONG.

use super::{Expect, Judgement, Pattern, Script, Step};
use crate::status::{LONGEST_INFO, Status, Verdict};

/// What is asked.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// What is answered.
const PONG: &[u8] = b"+PONG\r\n";

/// The script.
pub fn script() -> Script {
    let expect = Expect { pattern: Pattern::Redis(PONG), negated: false, comment: None, number: 2 };
    Script::new(vec![Step::Send(PING.into()), Step::Expect(expect)])
}

pub(super) fn judge(good: &[u8], input: &[u8], last: bool) -> Judgement {
    if input.starts_with(good) {
        return Judgement::Good;
    }
    let line = contains_line(input);
    if !last && !line && input.len() < LONGEST_INFO {
        return Judgement::Wait;
    }
    if input.first() == Some(&b'-') {
        return Judgement::Over(Verdict::said(Status::L7Sts, 0, input));
    }
    Judgement::Over(Verdict { code: None, ..Verdict::said(Status::L7Rsp, 0, input) })
}

fn contains_line(input: &[u8]) -> bool {
    super::contains(input, b"\r\n")
}
