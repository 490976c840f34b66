//! `option ssl-hello-chk`: sends the hello of a client, and checks that the answer is TLS, even if it is only
//! an alert. Nothing is encrypted, and no certificate is checked.

use super::{Expect, Judgement, Pattern, Script, Service, Step};
use crate::status::{CheckResult, Status};

/// First bytes of records: an alert, and a handshake.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// SSL 3.0: every server recognises it, at least to refuse it as too old.
const VERSION: [u8; 2] = [3, 0];
const CLIENT_HELLO: u8 = 1;
/// Random bytes of the client. Nothing is encrypted, so they need not be random.
const RANDOM: &[u8; 32] = b"Manylane asks whether TLS speaks";
/// Size of a record's header, in bytes.
const RECORD: usize = 5;

/// Returns the script.
pub fn script() -> Script {
    let expect = Expect { timeout: Some(Status::L6Tout), ..Expect::new(Pattern::Service(Service::Tls), 2) };
    Script::of(vec![Step::send(hello()), Step::expect(expect)])
}

/// Returns the ciphers to offer: RSA, DH and AES, with all others that were common at that time.
fn ciphers() -> impl Iterator<Item = u8> {
    (0x01..=0x1b).chain(0x2f..=0x3a).flat_map(|cipher| [0, cipher])
}

fn hello() -> Vec<u8> {
    let long = |bytes: &[u8]| u16::try_from(bytes.len()).expect("a hello is short").to_be_bytes();
    let ciphers: Vec<u8> = ciphers().collect();
    // No session to resume, and no compression.
    let body = [&VERSION[..], RANDOM, &[0], &long(&ciphers), &ciphers, &[1, 0]].concat();
    let handshake = [&[CLIENT_HELLO, 0][..], &long(&body), &body].concat();
    [&[HANDSHAKE], &VERSION[..], &long(&handshake), &handshake].concat()
}

pub(super) fn judge(input: &[u8], last: bool) -> Judgement {
    if input.len() < RECORD && !last {
        return Judgement::Wait;
    }
    match input.first() {
        Some(&(ALERT | HANDSHAKE)) => Judgement::Well(CheckResult::new(Status::L6Ok, "")),
        _ => Judgement::Over(CheckResult::new(Status::L6Rsp, "")),
    }
}
