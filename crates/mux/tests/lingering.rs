//! What a peer sends when its connection is over is read up to a bound, and for a short time.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_mux::h2::{Config, ConnTimeouts, LINGER_BYTES};
use manylane_sched::{Here, Time};
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const ACK: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];

/// A connection ends for lack of a request; its peer does not care, and sends until the connection is closed.
/// Beside the bound, the socket takes its buffer, of 208 KiB, and one read may begin at the bound.
#[test]
fn who_sends_on_is_read_up_to_a_bound() {
    const BESIDE: usize = 512 << 10;
    let sent = on_lane(move |io| async move {
        let (ours, mut theirs) = half_pair(&io);
        let timeouts = ConnTimeouts {
            first: Some(Duration::from_millis(20)),
            idle: None,
            write: None,
            settings: None,
            ping: None,
        };
        let (_, end) = server(ours, Config::default(), timeouts, |_, _| async {});
        let (reported, all) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            theirs.write_all(&[PREFACE, &SETTINGS, &ACK].concat()).unwrap();
            let mut head = [0; 9];
            while head[3] != 7 {
                theirs.read_exact(&mut head).unwrap();
                theirs.read_exact(&mut vec![0; usize::from(head[2])]).unwrap();
            }
            let mut sent = 0;
            while let Ok(n) = theirs.write(&[0; 16_384]) {
                sent += n;
            }
            reported.send(sent).unwrap();
        });
        let mut outcome = None;
        until(|| {
            outcome = outcome.or(all.try_recv().ok());
            outcome.is_some() && end.get().is_some()
        })
        .await;
        outcome.unwrap()
    });
    assert!((LINGER_BYTES..=LINGER_BYTES + BESIDE).contains(&sent), "{sent} bytes");
}

thread_local! {
    /// The time of this thread's lane, which goes on when a test says so.
    static NOW: Cell<Duration> = const { Cell::new(Duration::from_secs(1000)) };
}

/// More rounds than a lane needs to act on what has come and on timers that are due.
async fn rounds() {
    for _ in 0..200 {
        Here::current().unwrap().yield_now().await;
    }
}

/// Who drips is read for a second of the lane's clock, and no longer.
#[test]
fn who_drips_on_is_read_for_a_second() {
    const FIRST: Duration = Duration::from_millis(20);
    const TICK: Duration = Duration::from_millis(5); // the lane's timers have this resolution
    let pass = |time: Duration| NOW.set(NOW.get() + time);
    let config = manylane_sched::Config::new().clock(|| Time::ZERO + NOW.get());
    on_lane_of(config, move |io| async move {
        let (ours, mut theirs) = half_pair(&io);
        theirs.set_nonblocking(true).unwrap();
        let timeouts = ConnTimeouts { first: Some(FIRST), ..ConnTimeouts::default() };
        let (_, end) = server(ours, Config::default(), timeouts, |_, _| async {});
        theirs.write_all(&[PREFACE, &SETTINGS, &ACK].concat()).unwrap();
        rounds().await;
        pass(FIRST + TICK);
        let mut said = Vec::new();
        until(|| match theirs.read_to_end(&mut said) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
            Ok(_) => true,
        })
        .await;
        for time in [Duration::ZERO, Duration::from_millis(500), Duration::from_millis(499)] {
            pass(time);
            theirs.write_all(b"x").unwrap();
            rounds().await;
            assert!(end.get().is_none(), "it ended {time:?} later");
        }
        pass(Duration::from_millis(1) + TICK);
        rounds().await;
        assert!(end.get().is_some(), "it goes on behind its time");
        until(|| theirs.write_all(b"x").is_err()).await;
    });
}
