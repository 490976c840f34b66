//! Incomplete records and handshake messages take memory in proportion to their bytes, however they are cut.
//! These tests have a process of their own, because the pools' counts are those of the process.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

#[path = "../../h1/tests/common/mod.rs"]
mod common;

use common::{cuts, received};
use manylane_buf::{CLUSTER_SIZES, Chain, MAX_CLUSTER};
use manylane_pool::used_bytes;
use manylane_sync::qsbr::Reader;
use manylane_tls::{
    ClientContext, ClientSettings, CommonSettings, Connection, MOST_RECORDS, Progress, ServerContext,
    ServerName, ServerSettings, ServerVerify, Source, Store,
};
use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The pools' counts are those of the process, so only one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A listener, one that keeps a part of the hello, and the settings of a client.
fn contexts() -> &'static ([ServerContext; 2], ClientContext) {
    static CONTEXTS: OnceLock<([ServerContext; 2], ClientContext)> = OnceLock::new();
    CONTEXTS.get_or_init(|| {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["a.example".to_owned()]).unwrap().self_signed(&key).unwrap();
        let path = std::env::temp_dir().join(format!("manylane-tls-drips-{}.pem", std::process::id()));
        std::fs::write(&path, certificate.pem() + &key.serialize_pem()).unwrap();
        let server = |hello_bytes| {
            let mut settings = ServerSettings::new(vec![Source::Path(path.clone())]);
            settings.common.hello_bytes = hello_bytes;
            Store::default().listener(&settings, &mut Vec::new()).unwrap()
        };
        let settings = ClientSettings {
            common: CommonSettings::default(),
            certificate: None,
            verify: ServerVerify::None,
            sends_name: true,
            reuse: false,
            early_data: false,
        };
        let client = Store::default().server(&settings, &mut Vec::new()).unwrap();
        let all = ([server(0), server(1000)], client);
        std::fs::remove_file(&path).unwrap();
        all
    })
}

/// Returns a hello that never ends, in records with contents of these lengths.
fn hello(lengths: &[usize]) -> Vec<u8> {
    let message = [&[1, 0, 0xf0, 0, 3, 3][..], &vec![0; lengths.iter().sum()]].concat();
    let (mut rest, mut bytes) = (&message[..], Vec::new());
    for length in lengths {
        let content;
        (content, rest) = rest.split_at(*length);
        let [high, low] = (*length as u16).to_be_bytes();
        bytes.extend([22, 3, 1, high, low]);
        bytes.extend(content);
    }
    bytes
}

/// Generates lengths of records: fewer than count as a flood, and less than the longest message.
fn records() -> impl Strategy<Value = Vec<usize>> {
    let small = prop_oneof![4 => 1..4_usize, 2 => 1..100_usize];
    let large = prop_oneof![1 => 1..100_usize, 2 => 1..16_000_usize];
    prop_oneof![prop::collection::vec(small, 1..MOST_RECORDS), prop::collection::vec(large, 1..4)]
}

/// Returns the ends of a connection whose handshake is complete: the client's and the server's.
fn established() -> (Connection, Connection) {
    let ([server, _], client) = contexts();
    let reader = Reader::new();
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = Connection::client(client, name, manylane_tls::Hello::Usual, &reader).unwrap();
    let mut server = Connection::server(server, &reader).unwrap();
    let (mut up, mut down, mut plain) = (Chain::new(), Chain::new(), Chain::new());
    loop {
        client.receive(&mut down, &mut plain, &mut up).unwrap();
        if up.is_empty() {
            return (client, server);
        }
        server.receive(&mut up, &mut plain, &mut down).unwrap();
    }
}

/// Returns the number of bytes of the whole records in `bytes`.
fn whole(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some([_, _, _, high, low, rest @ ..]) = bytes.get(at..)
        && let length = usize::from(u16::from_be_bytes([*high, *low]))
        && rest.len() >= length
    {
        at += 5 + length;
    }
    at
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A listener that keeps a part of the hello looks at it before the library does.
    #[test]
    fn what_waits_of_a_hello_takes_at_most_twice_its_bytes_and_a_cluster(
        records in records(),
        keeps: bool,
        cuts in cuts(),
    ) {
        let _alone = alone();
        let before = used_bytes();
        let mut server = Connection::server(&contexts().0[usize::from(keeps)], &Reader::new()).unwrap();
        let bytes = hello(&records);
        let (mut rest, mut plain, mut out) = (&bytes[..], Chain::new(), Chain::new());
        for &(length, large) in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece;
            (piece, rest) = rest.split_at(length.min(rest.len()));
            let mut came = Chain::new();
            came.push_back(received(piece, large)).unwrap();
            let progress = server.receive(&mut came, &mut plain, &mut out);
            prop_assert!(matches!(progress, Ok(Progress::Handshaking)), "{:?}", progress);
            let (held, used) = (bytes.len() - rest.len(), used_bytes() - before);
            prop_assert!(used <= 2 * held + MAX_CLUSTER + 128, "{} bytes for {}", used, held);
        }
        drop((server, plain, out));
        prop_assert_eq!(used_bytes(), before, "something is left");
    }

    /// Records with data of these lengths, of which the last never ends. Data of the others waits, too, or is
    /// taken at once. The front of what waits is removed then: of a large cluster the rest stays as it is,
    /// and what comes behind is in a small one.
    #[test]
    fn what_waits_of_records_takes_at_most_twice_its_bytes_and_a_cluster(
        lengths in prop::collection::vec(prop_oneof![3 => 1..100_usize, 1 => 1..16_000_usize], 1..20),
        taken: bool,
        cuts in cuts(),
    ) {
        let _alone = alone();
        let before = used_bytes();
        let (mut client, mut server) = established();
        let mut sent = Vec::new();
        for length in lengths {
            let (mut data, mut out) = (Chain::new(), Chain::new());
            data.append(&vec![b'x'; length]).unwrap();
            client.send(&mut data, &mut out).unwrap();
            sent.extend(out.to_vec());
        }
        sent.pop();
        let usual = used_bytes();
        let (mut rest, mut plain, mut out) = (&sent[..], Chain::new(), Chain::new());
        for &(length, large) in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece;
            (piece, rest) = rest.split_at(length.min(rest.len()));
            let mut came = Chain::new();
            came.push_back(received(piece, large)).unwrap();
            prop_assert_eq!(server.receive(&mut came, &mut plain, &mut out).unwrap(), Progress::Open);
            if taken {
                plain.clear();
            }
            let read = &sent[..sent.len() - rest.len()];
            let unread = read.len() - whole(read);
            let places = usize::from(!plain.is_empty()) + 1;
            let bound = 2 * (unread + plain.len()) + places * (MAX_CLUSTER + 128) + CLUSTER_SIZES[0] + 128;
            let used = used_bytes().saturating_sub(usual);
            prop_assert!(used <= bound, "{} bytes for {} and {}", used, unread, plain.len());
        }
        prop_assert!(out.is_empty());
        drop((client, server, plain));
        prop_assert_eq!(used_bytes(), before, "something is left");
    }
}
