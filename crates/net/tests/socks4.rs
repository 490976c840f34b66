//! Connections through a SOCKS4 proxy (item 56 of haproxy-today).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::on_lane;
use manylane_io::Errno;
use manylane_net::{ConnPurpose, ConnectOptions, Connection, Connector, Endpoint, SocketError, Step};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

/// A proxy that answers its only client with these pieces, and then reads four more bytes.
fn proxy(pieces: &'static [&'static [u8]]) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut heard = vec![0; 16];
        client.read_exact(&mut heard).unwrap();
        client.set_nodelay(true).unwrap();
        for piece in pieces {
            client.write_all(piece).unwrap();
        }
        let mut more = [0; 4];
        if client.read_exact(&mut more).is_ok() {
            heard.extend(more);
        }
        heard
    });
    (address, served)
}

async fn through(io: &manylane_io::Io, via: SocketAddr, to: &str) -> Result<Connection, SocketError> {
    let served = ConnPurpose { via: Some(via), ..ConnPurpose::default() };
    let to = Endpoint::Ip(to.parse().unwrap());
    Connector::new(ConnectOptions::default()).connect_for(io, &to, served, None).await
}

#[test]
fn what_comes_behind_the_answer_of_a_proxy_is_the_servers() {
    const PIECES: [&[&[u8]]; 3] = [
        &[b"\0\x5a\x01\x02\x03\x04\x05\x06220 hello"],
        &[b"\0", b"\x5a\0\0", b"\0\0\0\0", b"220", b" hello"],
        &[b"\x04\x5a\0\0\0\0\0\0", b"220 hello"],
    ];
    for pieces in PIECES {
        let (address, served) = proxy(pieces);
        on_lane(move |io| async move {
            let connection = through(&io, address, "192.0.2.7:258").await.unwrap();
            let mut chain = manylane_buf::Chain::new();
            chain.append(b"EHLO").unwrap();
            connection.send(&mut chain).await.unwrap();
            let mut heard = Vec::new();
            while let Some(segment) = connection.recv().await.unwrap() {
                heard.extend_from_slice(segment.as_slice());
            }
            assert_eq!(heard, b"220 hello");
        });
        assert_eq!(served.join().unwrap(), b"\x04\x01\x01\x02\xc0\0\x02\x07HAProxy\0EHLO");
    }
}

#[test]
fn a_proxy_that_does_not_grant_it_is_a_failed_connection() {
    const WRONG: [(&[&[u8]], Errno); 2] = [
        (&[b"\0\x5b\0\0\0\0\0\0"], Errno::CONNREFUSED),
        (&[b"\x05\xff\0\0\0\0\0\0 and more"], Errno::CONNREFUSED),
    ];
    for (pieces, errno) in WRONG {
        let (address, served) = proxy(pieces);
        on_lane(move |io| async move {
            let error = through(&io, address, "192.0.2.7:258").await.unwrap_err();
            assert_eq!((error.step(), error.errno()), (Step::Socks, errno), "{error}");
        });
        served.join().unwrap();
    }
    on_lane(|io| async move {
        let error = through(&io, "127.0.0.1:1".parse().unwrap(), "[::1]:1").await.unwrap_err();
        let why = "cannot connect to '[::1]:1': 'socks4' expects a server with an IPv4 address";
        assert_eq!(error.to_string(), why);
    });
}

#[test]
fn a_proxy_that_leaves_amid_its_answer_is_a_failed_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.read_exact(&mut [0; 16]).unwrap();
        client.write_all(b"\0\x5a\0").unwrap();
    });
    on_lane(move |io| async move {
        let error = through(&io, address, "192.0.2.7:258").await.unwrap_err();
        assert_eq!((error.step(), error.errno()), (Step::Socks, Errno::CONNRESET), "{error}");
    });
    served.join().unwrap();
}
