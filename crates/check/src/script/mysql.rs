//! `option mysql-check`: the server greets its client; a login then shows whether it admits a user without a
//! password.

use super::{Expect, Judgement, Pattern, Script, Service, Step};
use crate::status::{CheckResult, Status};

/// Form of the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Login {
    /// `post-41`: for servers since version 4.1.
    #[default]
    Post41,
    /// `pre-41`: for older servers.
    Pre41,
}

/// Longest name of a user, in bytes: no server accepts longer ones.
pub const LONGEST_USER: usize = 255;

/// Capability flags of a client: the protocol since version 4.1, and its way to prove a password.
const CLIENT_PROTOCOL_41: u16 = 0x0200;
const CLIENT_SECURE_CONNECTION: u16 = 0x8000;
/// Largest packet that the login announces.
const MAX_PACKET: u32 = (1 << 24) + (1 << 15);
/// The same in the old form, in three bytes.
const OLD_MAX_PACKET: [u8; 3] = [0, 0, 1];
/// UTF-8.
const CHARSET: u8 = 33;
/// The command that ends a session.
const COM_QUIT: u8 = 1;
/// First byte of a packet with an error.
const ERROR: u8 = 0xff;

/// Returns the script: with a login if there is a user.
pub fn script(user: Option<(&[u8], Login)>) -> Script {
    let connect = Step::polite();
    let expect =
        |login, number| Step::expect(Expect::new(Pattern::Service(Service::Mysql { login }), number));
    match user {
        None => Script::of(vec![connect, expect(false, 2)]),
        Some((user, login)) => Script::of(vec![connect, Step::send(hello(user, login)), expect(true, 3)]),
    }
}

/// Returns a login with an empty password, followed by the end of the session.
fn hello(user: &[u8], login: Login) -> Vec<u8> {
    let mut body = Vec::new();
    match login {
        Login::Post41 => {
            body.extend(u32::from(CLIENT_PROTOCOL_41 | CLIENT_SECURE_CONNECTION).to_le_bytes());
            body.extend(MAX_PACKET.to_le_bytes());
            body.push(CHARSET);
            body.extend([0; 23]);
        }
        Login::Pre41 => {
            body.extend(CLIENT_SECURE_CONNECTION.to_le_bytes());
            body.extend(OLD_MAX_PACKET);
        }
    }
    body.extend(user);
    body.extend([0, 0]);
    let mut bytes = packet(1, &body);
    bytes.extend(packet(0, &[COM_QUIT]));
    bytes
}

fn packet(sequence: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a login is short").to_le_bytes();
    [&length[..3], &[sequence], body].concat()
}

/// Returns the body of the first packet, and the bytes behind it.
fn next(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[a, b, c, _sequence], rest) = input.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes([a, b, c, 0]) as usize)
}

/// Judges an answer. With `login`, it waits for a second packet, which answers the login.
pub(super) fn judge(login: bool, input: &[u8], last: bool) -> Judgement {
    let cut = || if last { Judgement::Over(CheckResult::new(Status::L7Rsp, "")) } else { Judgement::Wait };
    let Some((greeting, rest)) = next(input) else { return cut() };
    if greeting.first() != Some(&ERROR) && login {
        return match next(rest) {
            None => cut(),
            Some((answer, _)) => opinion(answer, greeting),
        };
    }
    opinion(greeting, greeting)
}

/// Judges a packet; the greeting has the server's version.
fn opinion(packet: &[u8], greeting: &[u8]) -> Judgement {
    match packet {
        [] => Judgement::Over(CheckResult::new(Status::L7Rsp, "")),
        [ERROR, low, high, said @ ..] => {
            Judgement::Over(CheckResult::said(Status::L7Sts, u16::from_le_bytes([*low, *high]), said))
        }
        [ERROR, ..] => Judgement::Over(CheckResult::new(Status::L7Rsp, "")),
        // The protocol number is followed by the version, up to a zero byte.
        _ => {
            let version = greeting.get(1..).unwrap_or_default().split(|byte| *byte == 0).next();
            Judgement::Well(CheckResult::said(Status::L7Ok, 0, version.unwrap_or_default()))
        }
    }
}
