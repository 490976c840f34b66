//! The two ends of an exchange: where messages come from and go to, whatever the version of HTTP.
//!
//! Nothing above asks which version an end speaks, but the source and the sink of a body (`http::pump`) and
//! what is only done with a connection of HTTP/1: splicing, tunnels, waiting at rest.

use super::Direction;
use manylane_buf::Chain;
use manylane_http::{CaseTable, EditError, Head};
use manylane_net::{Connection, TransferError};
use manylane_sched::Here;

/// The client's end.
#[derive(Debug)]
pub(crate) enum ClientEnd {
    /// Its connection, with one request at a time.
    Http1(Connection),
}

/// The server's end, for one request.
#[derive(Debug)]
pub(crate) enum ServerEnd {
    /// A connection that this request has for itself.
    Http1(Connection),
}

/// One end of a body's way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyEnd<'a> {
    /// A connection, whose bytes are framed.
    Http1(&'a Connection),
}

impl ClientEnd {
    /// The connection that carries it, for what is known of that: addresses, options of its socket. What is
    /// received and sent of messages goes by the other methods.
    pub(crate) fn connection(&self) -> &Connection {
        match self {
            Self::Http1(connection) => connection,
        }
    }

    /// The connection where it carries nothing else, and bytes of it may be taken and sent as they are.
    pub(crate) fn whole(&self) -> Option<&Connection> {
        match self {
            Self::Http1(connection) => Some(connection),
        }
    }

    /// Where a body comes from, or goes to.
    pub(crate) fn body(&self) -> BodyEnd<'_> {
        match self {
            Self::Http1(connection) => BodyEnd::Http1(connection),
        }
    }

    /// Sends the head of an interim response: how many bytes it has.
    ///
    /// # Errors
    /// [`NotSent`]
    pub(crate) async fn send_interim(&self, head: &mut Head) -> Result<u64, NotSent> {
        match self {
            Self::Http1(connection) => {
                let mut out = Chain::new();
                head.emit(&mut out, None).map_err(|_| NotSent::Memory)?;
                let length = out.len() as u64;
                connection.send(&mut out).await.map_err(|_| NotSent::Failed)?;
                Ok(length)
            }
        }
    }

    /// Sends the head of the final response, or puts it behind `out`, so that it leaves with the body.
    ///
    /// # Errors
    /// [`EditError`]
    pub(crate) fn send_head(
        &self,
        head: &mut Head,
        spellings: Option<&CaseTable>,
        out: &mut Chain,
    ) -> Result<(), EditError> {
        match self {
            Self::Http1(_) => head.emit(out, spellings),
        }
    }
}

impl BodyEnd<'_> {
    /// Receives what is there of a message behind what `into` has, up to about `most` bytes; false where the
    /// connection has ended.
    ///
    /// # Errors
    /// [`TransferError`]
    pub(crate) async fn receive(self, into: &mut Chain, most: usize) -> Result<bool, TransferError> {
        match self {
            Self::Http1(connection) => connection.recv_chain(into, most).await,
        }
    }

    /// Sends all of `chain`, which `way` is told of.
    ///
    /// # Errors
    /// [`TransferError`]
    pub(crate) async fn send(
        self,
        way: &Direction,
        here: Here,
        chain: &mut Chain,
    ) -> Result<(), TransferError> {
        match self {
            Self::Http1(connection) => way.send(here, connection, chain).await,
        }
    }

    /// The connection, where it carries nothing else and its bytes may be spliced.
    pub(crate) fn whole(&self) -> Option<&Connection> {
        match self {
            Self::Http1(connection) => Some(connection),
        }
    }
}

/// A head could not be sent.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// There is no memory for it.
    Memory,
    /// The connection has failed.
    Failed,
}

impl ServerEnd {
    /// The connection that carries it, for what is known of that.
    pub(crate) fn connection(&self) -> &Connection {
        match self {
            Self::Http1(connection) => connection,
        }
    }

    /// Where a body comes from, or goes to.
    pub(crate) fn body(&self) -> BodyEnd<'_> {
        match self {
            Self::Http1(connection) => BodyEnd::Http1(connection),
        }
    }

    /// Sends the head of a request, or puts it behind `out`, so that it leaves with the body.
    ///
    /// # Errors
    /// [`EditError`]
    pub(crate) fn send_head(
        &self,
        head: &mut Head,
        spellings: Option<&CaseTable>,
        out: &mut Chain,
    ) -> Result<(), EditError> {
        match self {
            Self::Http1(_) => head.emit(out, spellings),
        }
    }
}
