//! Connections to servers of streams, within TLS or not.

use crate::target::Delivery;
use crate::tls::{LaneTls, TargetTls};
use manylane_buf::Chain;
use manylane_io::{Io, tcp_socket};
use manylane_net::{Connection, TransferError};
use manylane_sched::Here;
use manylane_sync::atomic::Ordering;
use manylane_tls::Hello;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, socket_with};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Duration;

/// Longest handshake with a server, also without `timeout connect`.
const LONGEST_HANDSHAKE: Duration = Duration::from_secs(10);

/// Time in which a server may refuse a certificate of this side. In TLS 1.3 it does so behind the handshake,
/// when lines that are sent already are lost.
const REFUSAL: Duration = Duration::from_secs(1);

/// Longer than any wait.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(366 * 86_400);

pub(crate) fn socket(family: AddressFamily, kind: SocketType) -> Result<OwnedFd, Errno> {
    socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// A socket for a stream server, and the server's address.
fn server(delivery: &Delivery) -> Option<(OwnedFd, SocketAddrAny)> {
    match delivery {
        Delivery::Tcp(address) => Some((tcp_socket(address).ok()?, (*address).into())),
        Delivery::UnixStream(address) => {
            Some((socket(AddressFamily::UNIX, SocketType::STREAM).ok()?, address.clone().into()))
        }
        _ => None,
    }
}

/// Connects to a stream server within `time`, handshake included; where the server may refuse a certificate
/// later, [`REFUSAL`] comes on top. `None` as well if there is TLS and no `lane`.
pub(crate) async fn connect(
    delivery: &Delivery,
    tls: Option<&TargetTls>,
    lane: Option<&LaneTls>,
    time: Option<Duration>,
    here: Here,
    io: &Io,
) -> Option<Connection> {
    let (fd, address) = server(delivery)?;
    let time = time.unwrap_or(FOR_EVER);
    let begin = here.now();
    let connected = here.timeout(time, io.connect(fd, address)).await.ok()?.ok()?;
    let connection = Connection::Socket(connected);
    match tls {
        None => Some(connection),
        Some(tls) => {
            let left = time.saturating_sub(here.now().since(begin)).min(LONGEST_HANDSHAKE);
            Box::pin(encrypt(delivery, tls, lane?, connection, left, here)).await
        }
    }
}

/// Does the handshake within `time`. Reports the first one that fails.
async fn encrypt(
    delivery: &Delivery,
    tls: &TargetTls,
    lane: &LaneTls,
    connection: Connection,
    time: Duration,
    here: Here,
) -> Option<Connection> {
    let reader = lane.reader.upgrade()?;
    let made =
        manylane_tls::Connection::client(&tls.context, tls.name.clone(), Hello::Usual, &reader.borrow());
    let connection = connection.encrypt(made.ok()?, Chain::new(), None).ok()?;
    let outcome = match here.timeout(time, connection.tls()?.handshake(here, false)).await {
        Ok(Ok(())) if tls.context.has_certificate() && is_tls_1_3(&connection) => {
            match here.timeout(REFUSAL, poll_fn(|context| poll_end(&connection, context))).await {
                Ok(Some(error)) if error.is_memory() => return None,
                Ok(Some(error)) => Err(error.to_string()),
                Ok(None) => Err("the server has ended the connection".to_owned()),
                Err(_) => Ok(()),
            }
        }
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.is_memory() => return None,
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it took too long".to_owned()),
    };
    let was_failing = tls.failing.swap(outcome.is_err(), Ordering::Relaxed);
    if let Err(error) = &outcome
        && !was_failing
    {
        let to = match delivery {
            Delivery::Tcp(address) => address.to_string(),
            _ => "a local socket".to_owned(),
        };
        (lane.report)(&format!("Log lines do not reach {to}: SSL handshake failure ({error})."));
    }
    outcome.ok()?;
    Some(connection)
}

fn is_tls_1_3(connection: &Connection) -> bool {
    connection.tls().and_then(|tls| tls.info()).is_some_and(|info| info.version == "TLSv1.3")
}

/// Throws away what the server has sent. Ready once it has closed the connection, or that has failed.
pub(crate) fn poll_closed(connection: &Connection, context: &mut Context<'_>) -> Poll<()> {
    poll_end(connection, context).map(drop)
}

/// The same, with the failure, if there was one.
fn poll_end(connection: &Connection, context: &mut Context<'_>) -> Poll<Option<TransferError>> {
    match connection.poll_recv(false, context) {
        // More may follow without end: the wake-up yields to other tasks.
        Some(Poll::Ready(Ok(Some(_)))) => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        Some(Poll::Ready(Ok(None))) => Poll::Ready(None),
        Some(Poll::Ready(Err(error))) => Poll::Ready(Some(error)),
        Some(Poll::Pending) | None => Poll::Pending,
    }
}

/// Returns whether the server has closed a connection within TLS. Tickets that lie unread when the connection
/// is closed would make the kernel reset it, and the server lose lines.
pub(crate) async fn has_closed(connection: &Connection) -> bool {
    connection.tls().is_some()
        && poll_fn(|context| Poll::Ready(poll_closed(connection, context).is_ready())).await
}
