//! Once warm, a stream takes nothing from the global allocator, at either end.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_buf::Chain;
use manylane_http::{Head, Known, Version};
use manylane_mux::h2::{Config, Mux, Received, ResponseHead, Stream};
use manylane_sched::{Config as LaneConfig, Lane, ThreadPoller};
use std::future::poll_fn;
use std::task::{Context, Poll};

/// Aborts the test program if it is called inside of [`assert_no_alloc::assert_no_alloc`].
#[global_allocator]
static ALLOCATOR: assert_no_alloc::AllocDisabler = assert_no_alloc::AllocDisabler;

/// Carries output to the other end, and begins its streams.
fn carry(context: &Context<'_>, from: &Mux, to: &Mux, mut begin: impl FnMut(Stream, bool)) {
    let mut wire = Chain::new();
    if let Poll::Ready(last) = from.poll_output(context, &mut wire) {
        assert!(!last.unwrap());
    }
    from.set_unwritten(0);
    to.input(&mut wire, &mut |stream, incoming| begin(stream, incoming.end)).unwrap();
    assert!(wire.is_empty() && !to.grant());
}

fn ready<T>(poll: Poll<T>) -> T {
    let Poll::Ready(value) = poll else { panic!("it waits") };
    value
}

#[test]
fn a_request_with_its_response_asks_for_nothing() {
    let mut lane = Lane::new(LaneConfig::new()).unwrap();
    let here = lane.here();
    let rounds = async move {
        let client = Mux::client(Config::default(), here).unwrap();
        let server = Mux::server(Config::default(), here).unwrap();
        let mut served = None;
        let mut round = |context: &mut Context<'_>| {
            let mut head = Head::request(b"POST", b"/a/b?c=d", Version::HTTP_11).unwrap();
            head.add_field(Known::HOST, b"a.example").unwrap();
            head.add_field(Known::USER_AGENT, b"a test").unwrap();
            let stream = client.begin(&head, b"http", None, false).unwrap();
            let mut data = Chain::new();
            data.append(&[b'x'; 3_000]).unwrap();
            ready(stream.poll_send(context, &mut data, true)).unwrap();
            carry(context, &client, &server, |stream, _| served = Some(stream));
            let peer = served.take().unwrap();
            let mut got = Chain::new();
            while !matches!(ready(peer.poll_recv(context, &mut got, 1_000)).unwrap(), Received::End) {}
            peer.consume(got.len());
            peer.send_head(&Head::response(Version::HTTP_2, 200, None).unwrap(), false).unwrap();
            assert!(ready(peer.poll_room(context)).unwrap() >= got.len());
            ready(peer.poll_send(context, &mut got, true)).unwrap();
            drop(peer);
            assert!(stream.poll_head(context).is_pending());
            carry(context, &server, &client, |_, _| {});
            let head = ready(stream.poll_head(context)).unwrap();
            assert!(matches!(head, ResponseHead::Final { end: false, .. }));
            while !matches!(ready(stream.poll_recv(context, &mut got, 5_000)).unwrap(), Received::End) {}
            stream.consume(got.len());
            assert_eq!(got.len(), 3_000);
            drop(stream);
            assert_eq!((client.open_streams(), server.open_streams()), (0, 0));
        };
        poll_fn(|context| {
            (0..400).for_each(|_| round(context));
            assert_no_alloc::assert_no_alloc(|| (0..600).for_each(|_| round(context)));
            Poll::Ready(())
        })
        .await;
        let _ = chain(b""); // of the helpers
    };
    lane.block_on(&mut ThreadPoller::new(), rounds).unwrap();
}
