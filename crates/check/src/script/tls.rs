//! `option ssl-hello-chk`: the hello of a client, and whether what comes back is TLS, be it only an alert.
//! Nothing is encrypted, and no certificate looked at.

use super::{Expect, Judgement, Pattern, Script, Service, Step};
use crate::status::{CheckResult, Status};

/// What records begin with: that of an alert, and that of a handshake.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// SSL 3.0, which every server knows enough of to say that it is too old.
const VERSION: [u8; 2] = [3, 0];
const CLIENT_HELLO: u8 = 1;
/// Where the client's random bytes stand. Nothing is encrypted, so they need not be.
const RANDOM: &[u8; 32] = b"Manylane asks whether TLS speaks";
/// Bytes of a record's own header.
const RECORD: usize = 5;

/// The script.
pub fn script() -> Script {
    let expect = Expect { timeout: Some(Status::L6Tout), ..Expect::new(Pattern::Service(Service::Tls), 2) };
    Script::of(vec![Step::send(hello()), Step::expect(expect)])
}

/// RSA, DH and AES with whatever else was usual then.
fn ciphers() -> impl Iterator<Item = u8> {
    (0x01..=0x1b).chain(0x2f..=0x3a).flat_map(|cipher| [0, cipher])
}

fn hello() -> Vec<u8> {
    let long = |bytes: &[u8]| u16::try_from(bytes.len()).expect("a hello is short").to_be_bytes();
    let ciphers: Vec<u8> = ciphers().collect();
    // No session is resumed, and nothing compressed.
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
