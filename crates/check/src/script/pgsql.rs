//! `option pgsql-check`: a startup message for a user. The server must ask for a password or admit the user.

use super::{Expect, Judgement, Pattern, Script, Service, Step};
use crate::status::{CheckResult, LONGEST_INFO, Status};

/// Longest name of a user, in bytes: servers cut longer ones at 63.
pub const LONGEST_USER: usize = 255;

/// Version 3.0.
const PROTOCOL: u32 = 3 << 16;
/// First byte of a message that requests or grants authentication: kind, length, and method.
const AUTHENTICATION: u8 = b'R';
/// Methods: none, Kerberos, clear password, `crypt`, MD5, SCM, GSSAPI, SSPI, SASL.
const METHODS: [u8; 9] = [0, 2, 3, 4, 5, 6, 7, 9, 10];

/// Returns the script.
pub fn script(user: &[u8]) -> Script {
    let mut bytes = [&PROTOCOL.to_be_bytes()[..], b"user\0", user, b"\0\0"].concat();
    let length = u32::try_from(bytes.len() + 4).expect("a user's name is short");
    bytes.splice(0..0, length.to_be_bytes());
    Script::of(vec![
        Step::polite(),
        Step::send(bytes),
        Step::expect(Expect::new(Pattern::Service(Service::Pgsql), 3)),
    ])
}

pub(super) fn judge(input: &[u8], last: bool) -> Judgement {
    // An error is a list of texts, each after a letter; the first one is its severity.
    if input.first() == Some(&b'E') {
        let text = input.get(6..).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0);
        if end.is_none() && text.len() < LONGEST_INFO && !last {
            return Judgement::Wait;
        }
        let text = &text[..end.unwrap_or(text.len())];
        return Judgement::Over(CheckResult { code: None, ..CheckResult::said(Status::L7Rsp, 0, text) });
    }
    match input {
        [AUTHENTICATION, 0, 0, 0, _, 0, 0, 0, method, ..] if METHODS.contains(method) => {
            Judgement::Well(CheckResult::said(Status::L7Ok, 0, b"PostgreSQL server is ok"))
        }
        _ if input.len() < 9 && !last => Judgement::Wait,
        _ => Judgement::Over(CheckResult::said(Status::L7Sts, 0, b"PostgreSQL unknown error")),
    }
}
