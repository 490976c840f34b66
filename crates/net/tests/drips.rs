//! A header of the PROXY protocol or of NetScaler that is not complete takes memory in proportion to its
//! bytes, however it is cut. These tests have a process of their own, because the pools' counts are those of
//! the process.
#![cfg(not(any(loom, manylane_sim)))]

#[path = "../../h1/tests/common/mod.rs"]
mod common;

use common::{cuts, received};
use manylane_buf::{Chain, MAX_CLUSTER};
use manylane_net::netscaler;
use manylane_net::proxy_protocol::{LONGEST_V2, Parsed, beginning, parse};
use manylane_pool::used_bytes;
use proptest::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The pools' counts are those of the process, so only one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

proptest! {
    /// What comes behind the header, at once with its last byte, does not change what is read.
    #[test]
    fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(
        padding in 0..=LONGEST_V2 - 16 - 12 - 3,
        line: bool,
        behind in prop_oneof![Just(0_usize), 1..=MAX_CLUSTER],
        cuts in cuts(),
    ) {
        let _alone = alone();
        let before = used_bytes();
        let header = if line {
            [&b"PROXY UNKNOWN "[..], &vec![b'x'; padding % 90], b"\r\n"].concat()
        } else {
            let length = |length: usize| (length as u16).to_be_bytes();
            let (all, tlv) = (length(12 + 3 + padding), length(padding));
            let begin = b"\r\n\r\n\0\r\nQUIT\n\x21\x11";
            [begin, &all[..], &[1; 12], b"\x04", &tlv, &vec![0; padding]].concat()
        };
        let (mut waits, mut rest) = (Chain::new(), &header[..]);
        for &(length, large) in cuts.iter().cycle() {
            let length = length.min(rest.len());
            let piece;
            (piece, rest) = rest.split_at(length);
            waits.push_compact(received(piece, large)).expect("memory");
            if rest.is_empty() && behind > 0 {
                waits.push_compact(received(&vec![b'y'; behind], true)).expect("memory");
            }
            let held = waits.len();
            let parsed = parse(beginning(&mut waits).expect("memory"));
            if rest.is_empty() {
                let whole = header.len();
                let complete = matches!(parsed, Ok(Parsed::Complete { length, .. }) if length == whole);
                prop_assert!(complete, "{:?}", parsed);
            } else {
                prop_assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })), "{:?}", parsed);
            }
            let used = used_bytes() - before;
            prop_assert!(used <= 2 * held + MAX_CLUSTER + 128, "{} bytes for {}", used, held);
            if rest.is_empty() {
                break;
            }
        }
        drop(waits);
        prop_assert_eq!(used_bytes(), before, "something is left");
    }
    /// The same of NetScaler's header, in both forms.
    #[test]
    fn what_waits_of_netscaler_takes_at_most_twice_its_bytes_and_a_cluster(
        options in 0..=netscaler::LONGEST - 60,
        standard: bool,
        behind in prop_oneof![Just(0_usize), 1..=MAX_CLUSTER],
        cuts in cuts(),
    ) {
        const MAGIC: u32 = 12_345;
        let _alone = alone();
        let before = used_bytes();
        // Headers of IPv6 and TCP, and options of the latter.
        let (mut ip, tcp) = ([0x60; 40], vec![1; 20 + options]);
        ip[6] = 6;
        let length = (ip.len() + tcp.len()) as u32;
        let mut header = [MAGIC.to_be_bytes(), length.to_be_bytes()].concat();
        if standard {
            header.extend((1 << 16 | length).to_be_bytes());
        }
        header.extend(ip);
        header.extend(tcp);
        let (mut waits, mut rest) = (Chain::new(), &header[..]);
        for &(length, large) in cuts.iter().cycle() {
            let piece;
            (piece, rest) = rest.split_at(length.min(rest.len()));
            waits.push_compact(received(piece, large)).expect("memory");
            if rest.is_empty() && behind > 0 {
                waits.push_compact(received(&vec![b'y'; behind], true)).expect("memory");
            }
            let held = waits.len();
            let parsed = netscaler::parse(netscaler::beginning(&mut waits).expect("memory"), MAGIC);
            let length = parsed.map(|parsed| parsed.map(|header| header.length));
            prop_assert_eq!(length, Ok(rest.is_empty().then_some(header.len())));
            let used = used_bytes() - before;
            prop_assert!(used <= 2 * held + MAX_CLUSTER + 128, "{} bytes for {}", used, held);
            if rest.is_empty() {
                break;
            }
        }
        drop(waits);
        prop_assert_eq!(used_bytes(), before, "something is left");
    }
}
