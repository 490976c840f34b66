//! Segments that are signed: `tcp-md5sig` (item 57 of haproxy-today).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{endpoint, on_lane};
use manylane_io::options::{LONGEST_KEY, SignedPeers, has_signatures, sign};
use manylane_io::{Errno, Io};
use manylane_net::{
    CommonOptions, ConnectOptions, Connection, Connector, Endpoint, ListenOptions, SocketError, Step, listen,
};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::Duration;

fn signed(key: Option<&str>) -> CommonOptions {
    CommonOptions { signature: key.map(|key| key.as_bytes().into()), ..CommonOptions::default() }
}

async fn connect(io: &Io, to: &Endpoint, key: Option<&str>) -> Result<Connection, SocketError> {
    let options = ConnectOptions { common: signed(key), ..ConnectOptions::default() };
    // A client with another key gets no answer at all.
    let deadline = io.here().now() + Duration::from_millis(300);
    Connector::new(options).connect(io, to, None, Some(deadline)).await
}

#[test]
fn only_clients_with_the_key_reach_a_listener_that_signs() {
    if !has_signatures() {
        return; // the system was built without them
    }
    for address in ["127.0.0.1:1", "[::1]:1"] {
        let options = ListenOptions { common: signed(Some("secret")), ..ListenOptions::default() };
        let bound = listen(&endpoint(address), &options).unwrap();
        on_lane(move |io| async move {
            let to = bound.endpoint().clone();
            connect(&io, &to, Some("secret")).await.unwrap();
            for key in [Some("other"), None] {
                assert_eq!(connect(&io, &to, key).await.unwrap_err().step(), Step::Time, "{key:?}");
            }
        });
    }
}

#[test]
fn a_key_has_a_length() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    for key in [&b""[..], &[b'k'; LONGEST_KEY + 1]] {
        assert_eq!(sign(socket.as_fd(), SignedPeers::Any { v6: false }, key), Err(Errno::INVAL));
    }
}
