//! Connections with several paths: `mptcp@` (RFC 8684).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{endpoint, on_lane};
use manylane_net::{CommonOptions, ConnectOptions, Connector, ListenOptions, listen};
use rustix::net::{AddressFamily, SocketType, ipproto, socket, sockopt};
use std::os::fd::AsFd;
use std::time::Duration;

fn several(multipath: bool) -> CommonOptions {
    CommonOptions { multipath, ..CommonOptions::default() }
}

/// If only one side has the option, the connection falls back to plain TCP.
#[test]
fn connections_may_have_several_paths() {
    if socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP)).is_err() {
        return; // the system was built without it
    }
    for (listens, connects) in [(true, true), (true, false), (false, true)] {
        let options = ListenOptions { common: several(listens), ..ListenOptions::default() };
        let bound = listen(&endpoint("127.0.0.1:1"), &options).unwrap();
        on_lane(move |io| async move {
            let connector =
                Connector::new(ConnectOptions { common: several(connects), ..ConnectOptions::default() });
            let deadline = io.here().now() + Duration::from_secs(60);
            let connection = connector.connect(&io, bound.endpoint(), None, Some(deadline)).await.unwrap();
            let protocol = sockopt::socket_protocol(connection.socket().unwrap().as_fd()).unwrap();
            assert_eq!(protocol == Some(ipproto::MPTCP), connects);
        });
    }
}
