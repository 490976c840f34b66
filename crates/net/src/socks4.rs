//! SOCKS4, the client's side: a proxy connects to the server for this program. The protocol carries only IPv4
//! addresses. The user name in the request is the one that HAProxy sends.

use crate::error::{Refused, Step};
use manylane_buf::Chain;
use manylane_io::{Errno, Stream};
use std::net::{SocketAddr, SocketAddrV4};

/// Bytes of an answer: a zero byte, the status, and six bytes without a meaning here.
const ANSWER: usize = 8;
/// Status of an answer if the proxy has connected.
const GRANTED: u8 = 90;

/// Asks the proxy at the other end of `stream` for a connection to `to`. Bytes behind the proxy's answer come
/// from the server, and stay in the stream.
pub(crate) async fn ask(stream: &Stream, to: SocketAddrV4) -> Result<(), Refused> {
    let refused = |errno| (Step::Socks, errno);
    let failed = |error: manylane_io::Error| refused(error.errno().unwrap_or(Errno::NOMEM));
    let mut chain = Chain::new();
    chain.append(&request(to)).map_err(|_| refused(Errno::NOMEM))?;
    stream.send(&mut chain).await.map_err(failed)?;
    let mut answer = Vec::with_capacity(ANSWER);
    while answer.len() < ANSWER {
        match stream.recv_at_most(ANSWER - answer.len()).await.map_err(failed)? {
            Some(segment) => answer.extend_from_slice(segment.as_slice()),
            None => return Err(refused(Errno::CONNRESET)),
        }
    }
    // Like HAProxy, accepts any byte before the status.
    if answer[1] == GRANTED { Ok(()) } else { Err(refused(Errno::CONNREFUSED)) }
}

/// Returns the request: version 4, the command to connect, port, address, and a user name with a zero byte.
fn request(to: SocketAddrV4) -> Vec<u8> {
    let mut bytes = vec![4, 1];
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(to.ip().octets());
    bytes.extend(b"HAProxy\0");
    bytes
}

/// Returns the IPv4 address of `to`, the only kind of address that a request carries.
pub(crate) fn target(to: &crate::Endpoint) -> Result<SocketAddrV4, Refused> {
    match to {
        crate::Endpoint::Ip(SocketAddr::V4(to)) => Ok(*to),
        _ => {
            let why = "'socks4' expects a server with an IPv4 address";
            Err((Step::Unsupported(why), Errno::AFNOSUPPORT))
        }
    }
}
