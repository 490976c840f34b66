//! Connections of the current stream, for fetches that read them.

use manylane_expr::{LinkError, LinkInfo, LinkStream, TcpInfo};
use manylane_io::SocketId;
use manylane_mux::h2::Conn;
use manylane_plan::Side;
use std::cell::{Cell, RefCell};

/// The client's and the server's connection. Nothing is stored for clients' connections of HTTP/1 or TCP.
#[derive(Debug, Default)]
pub struct Links {
    /// True if a field below is set.
    is_set: Cell<bool>,
    front: RefCell<Option<Conn>>,
    front_error: Cell<Option<LinkError>>,
    front_stream: Cell<LinkStream>,
    front_socket: Cell<Option<SocketId>>,
    back: RefCell<Option<BackLink>>,
    back_error: Cell<Option<LinkError>>,
    back_stream: Cell<LinkStream>,
    back_socket: Cell<Option<SocketId>>,
}

/// A connection to a server.
#[derive(Debug)]
pub enum BackLink {
    /// Used by this stream only.
    Single,
    /// An HTTP/2 connection.
    Http2(Conn),
}

impl Links {
    /// Stores the client's HTTP/2 connection.
    pub fn set_front(&self, conn: Conn) {
        self.is_set.set(true);
        self.front.replace(Some(conn));
    }

    /// Stores the socket of a side.
    pub fn set_socket(&self, side: Side, socket: Option<SocketId>) {
        self.is_set.set(true);
        match side {
            Side::Client => &self.front_socket,
            Side::Server => &self.back_socket,
        }
        .set(socket);
    }

    /// Stores the number of the HTTP/2 stream on the connection of this side.
    pub fn set_id(&self, side: Side, id: u32) {
        self.is_set.set(true);
        let stream = self.stream(side);
        stream.set(LinkStream { id, ..stream.get() });
    }

    /// Stores the error code with which the peer of this side has reset the stream.
    pub fn set_reset(&self, side: Side, code: u32) {
        self.is_set.set(true);
        let stream = self.stream(side);
        stream.set(LinkStream { reset: Some(code), ..stream.get() });
    }

    fn stream(&self, side: Side) -> &Cell<LinkStream> {
        match side {
            Side::Client => &self.front_stream,
            Side::Server => &self.back_stream,
        }
    }

    /// Stores the error of the client's connection.
    pub fn set_front_error(&self, error: LinkError) {
        self.is_set.set(true);
        self.front_error.set(Some(error));
    }

    /// Stores the error of a connection to a server.
    pub fn set_back_error(&self, error: LinkError) {
        self.is_set.set(true);
        self.back_error.set(Some(error));
    }

    /// Stores the connection to a server.
    pub fn set_back(&self, link: BackLink) {
        self.is_set.set(true);
        self.back_error.take();
        self.back_stream.take();
        self.back.replace(Some(link));
    }

    /// Clears everything for the next request. The pattern names each field, so that a new one cannot be
    /// forgotten.
    #[inline]
    pub(super) fn clear(&self) {
        let Self {
            is_set,
            front,
            front_error,
            front_stream,
            front_socket,
            back,
            back_error,
            back_stream,
            back_socket,
        } = self;
        if is_set.take() {
            front.take();
            front_error.take();
            front_stream.take();
            front_socket.take();
            back.take();
            back_error.take();
            back_stream.take();
            back_socket.take();
        }
    }
}

fn info_of(conn: &Conn) -> LinkInfo {
    LinkInfo {
        streams: u32::try_from(conn.open_streams()).unwrap_or(u32::MAX),
        streams_limit: conn.streams_limit(),
        glitches: Some(conn.glitches()),
        error: None,
        stream: LinkStream::default(),
    }
}

/// Returns what the kernel knows about a connection.
fn tcp_info(socket: Option<SocketId>) -> Option<TcpInfo> {
    let info = socket?.tcp_info()?;
    Some(TcpInfo {
        rtt: info.rtt,
        rtt_variance: info.rtt_variance,
        unacknowledged: info.unacknowledged,
        selective: info.selective,
        lost: info.lost,
        retransmitted: info.retransmitted,
        forward: info.forward,
        reordering: info.reordering,
    })
}

impl manylane_expr::Links for Links {
    fn front_tcp(&self) -> Option<TcpInfo> {
        tcp_info(self.front_socket.get())
    }

    fn back_tcp(&self) -> Option<TcpInfo> {
        tcp_info(self.back_socket.get())
    }

    fn front(&self) -> LinkInfo {
        let info = self.front.borrow().as_ref().map(info_of).unwrap_or_default();
        LinkInfo { error: self.front_error.get(), stream: self.front_stream.get(), ..info }
    }

    fn back(&self) -> Option<LinkInfo> {
        let error = self.back_error.get();
        let info = match &*self.back.borrow() {
            Some(BackLink::Http2(conn)) => info_of(conn),
            Some(BackLink::Single) => LinkInfo::default(),
            None if error.is_some() => LinkInfo::default(),
            None => return None,
        };
        Some(LinkInfo { error, stream: self.back_stream.get(), ..info })
    }
}
