//! TCP sockets of this machine, of any process, as the kernel reports them (`sock_diag(7)`).
//!
//! The kernel selects them by port. `/proc/net/tcp` has all sockets: tens of thousands during a test run,
//! most of them closed. Reading it takes tens of milliseconds.

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};

/// Type of the request, and of each answer.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const AF_INET: u8 = 2;
const IPPROTO_TCP: u8 = 6;
/// Length of a message's head.
const HEAD: usize = 16;

/// State of a connection whose two ends are open.
pub const ESTABLISHED: u8 = 1;
/// State of a socket that has sent its end, which the peer's system has not acknowledged yet.
pub const FIN_WAIT1: u8 = 4;

/// A TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Port of the socket.
    pub port: u16,
    /// Port of its peer.
    pub peer: u16,
    /// Number of bytes that the process has not read.
    pub unread: u32,
    /// Number of bytes that the peer's system has not acknowledged.
    pub unsent: u32,
}

/// Sockets of IPv4 in this state with these ports; `None` stands for any.
///
/// # Panics
/// If the kernel refuses the request.
pub fn sockets(state: u8, port: Option<u16>, peer: Option<u16>) -> Vec<Socket> {
    let asking = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(SOCK_DIAG)).unwrap();
    let mut request = Vec::new();
    request.extend(72_u32.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.extend([0; 8]);
    request.extend([AF_INET, IPPROTO_TCP, 0, 0]);
    request.extend((1_u32 << state).to_ne_bytes());
    request.extend(port.unwrap_or(0).to_be_bytes());
    request.extend(peer.unwrap_or(0).to_be_bytes());
    request.resize(72, 0); // any address, any device
    send(&asking, &request, SendFlags::empty()).unwrap();

    let mut found = Vec::new();
    let mut answer = vec![0; 64 << 10];
    loop {
        let (length, _) = recv(&asking, &mut answer[..], RecvFlags::empty()).unwrap();
        let mut rest = &answer[..length];
        while rest.len() >= HEAD {
            let (message, next) = rest.split_at(number(rest, 0) as usize);
            match u16::from_ne_bytes([message[4], message[5]]) {
                NLMSG_DONE => return found,
                NLMSG_ERROR => panic!("the kernel refuses to list sockets: {message:?}"),
                _ => found.push(Socket {
                    port: u16::from_be_bytes([message[HEAD + 4], message[HEAD + 5]]),
                    peer: u16::from_be_bytes([message[HEAD + 6], message[HEAD + 7]]),
                    unread: number(message, HEAD + 56),
                    unsent: number(message, HEAD + 60),
                }),
            }
            rest = next;
        }
    }
}

fn number(of: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([of[at], of[at + 1], of[at + 2], of[at + 3]])
}
