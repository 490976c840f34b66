//! Splices, on both drivers (R-B7).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_io::{Io, IoReport, Kind, Shutdown, Stream};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

on_both_drivers! {
    a_long_stream_goes_through_without_the_programs_buffers;
    a_step_that_is_dropped_loses_nothing;
    a_limit_is_kept;
    a_limit_is_kept_for_what_was_received_before;
    a_limit_is_kept_where_the_kernel_refuses_and_bytes_are_copied;
    a_long_stream_is_copied_into_a_socket_that_is_not_spliced_into;
    a_long_stream_is_copied_where_the_kernel_refuses_to_splice;
    a_long_stream_is_copied_without_a_descriptor_for_a_pipe;
    the_end_of_a_stream_gives_the_pipe_back;
    what_was_received_before_goes_first;
    the_lane_keeps_the_pipes;
    a_receiver_that_has_ended_and_does_not_read_is_waited_for_in_quiet;
    pipes_are_as_large_and_as_many_as_configured;
}

/// Makes `source` send `bytes` and its end, and wait for the other's.
fn sends(io: &Io, source: Stream, bytes: &[u8]) {
    let mut sent = chain(bytes);
    spawn(io, async move {
        source.send(&mut sent).await.unwrap();
        source.shutdown(Shutdown::Write).await.unwrap();
        assert!(source.recv().await.unwrap().is_none());
    });
}

/// R-B7
fn a_long_stream_goes_through_without_the_programs_buffers(kind: Kind) {
    run(kind, |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        let bytes = pattern(8 << 20);
        sends(&io, source, &bytes);
        let splicing = io.clone();
        spawn(&io, async move {
            let mut splicer = splicing.splicer();
            while splicer.step(&near, &far, usize::MAX).await.unwrap() > 0 {}
            assert!(!splicer.copies(), "TCP is spliced by every kernel");
        });
        let received = to_end(&sink).await;
        assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
        while io.open() > 1 {
            io.here().yield_now().await;
        }
    });
}

/// Once the receiver has ended its own direction, the kernel completes each request on its socket at once,
/// even without room.
fn a_receiver_that_has_ended_and_does_not_read_is_waited_for_in_quiet(kind: Kind) {
    run(kind, |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        sink.shutdown(Shutdown::Write).await.unwrap();
        assert!(far.recv().await.unwrap().is_none());
        let bytes = pattern(16 << 20); // more than the sockets hold
        sends(&io, source, &bytes);
        let splicing = io.clone();
        spawn(&io, async move {
            let mut splicer = splicing.splicer();
            while splicer.step(&near, &far, usize::MAX).await.unwrap() > 0 {}
        });
        let calls = || {
            let IoReport { splices, reads, writes, .. } = counted(&io);
            [splices, reads, writes]
        };
        let (mut before, mut quiet, mut rounds) = (calls(), 0, 0);
        while quiet < 5_000 {
            io.here().yield_now().await;
            let now = calls();
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            rounds += 1;
            assert!(rounds < 1_000_000, "it is never quiet");
        }
        let received = to_end(&sink).await;
        assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
        while io.open() > 1 {
            io.here().yield_now().await;
        }
    });
}

fn a_step_that_is_dropped_loses_nothing(kind: Kind) {
    run(kind, |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        let bytes = pattern(12 << 20); // more than the sockets hold, so that steps stop with the pipe full
        sends(&io, source, &bytes);
        let mut splicer = io.splicer();
        let (mut received, mut dropped, mut reported) = (Vec::new(), 0, 0);
        loop {
            {
                let mut step = pin!(splicer.step(&near, &far, usize::MAX));
                match poll_fn(|context| Poll::Ready(step.as_mut().poll(context))).await {
                    Poll::Ready(outcome) => match outcome.unwrap() {
                        0 => break,
                        moved => {
                            reported += moved;
                            continue;
                        }
                    },
                    Poll::Pending => dropped += 1,
                }
            }
            while let Ok(Some(segment)) =
                io.here().timeout(Duration::from_millis(1), sink.recv()).await.unwrap_or(Ok(None))
            {
                received.extend_from_slice(&segment);
            }
        }
        far.shutdown(Shutdown::Write).await.unwrap();
        received.extend(to_end(&sink).await);
        assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
        assert_eq!(reported, bytes.len(), "bytes of dropped steps are told by the steps that follow");
        assert!(dropped > 10, "only {dropped} steps were dropped");
    });
}

fn a_limit_is_kept(kind: Kind) {
    run(kind, |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        source.send(&mut chain(b"head and body")).await.unwrap();
        let mut splicer = io.splicer();
        assert_eq!(splicer.step(&near, &far, 0).await.unwrap(), 0);
        let mut moved = 0;
        while moved < 4 {
            moved += splicer.step(&near, &far, 4 - moved).await.unwrap();
        }
        assert_eq!(exactly(&sink, 4).await, b"head");
        assert_eq!(exactly(&near, 9).await, b" and body");
    });
}

fn a_limit_is_kept_for_what_was_received_before(kind: Kind) {
    run(kind, |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        source.send(&mut chain(b"seen;")).await.unwrap();
        assert_eq!(exactly(&near, 5).await, b"seen;");
        // A driver that receives ahead of requests has all of this when the splice begins.
        received_ahead(&io, 13, async || source.send(&mut chain(b"head and body")).await.unwrap()).await;
        let mut splicer = io.splicer();
        assert_eq!(splicer.step(&near, &far, 2).await.unwrap(), 2);
        assert_eq!(splicer.step(&near, &far, 2).await.unwrap(), 2);
        assert_eq!(exactly(&sink, 4).await, b"head");
        assert_eq!(exactly(&near, 9).await, b" and body");
    });
}

fn a_limit_is_kept_where_the_kernel_refuses_and_bytes_are_copied(kind: Kind) {
    run(kind, |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        // The kernel does not splice into a file in append mode.
        rustix::fs::fcntl_setfl(&far, rustix::fs::OFlags::APPEND | rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut splicer = io.splicer();
        source.send(&mut chain(b"one")).await.unwrap();
        assert_eq!(splicer.step(&near, &far, usize::MAX).await.unwrap(), 3);
        assert!(splicer.copies());
        source.send(&mut chain(b"head and body")).await.unwrap();
        assert_eq!(splicer.step(&near, &far, 4).await.unwrap(), 4);
        assert_eq!(exactly(&sink, 7).await, b"onehead");
        assert_eq!(exactly(&near, 9).await, b" and body");
        source.shutdown(Shutdown::Write).await.unwrap();
        assert_eq!(splicer.step(&near, &far, usize::MAX).await.unwrap(), 0);
    });
}

fn a_long_stream_is_copied_into_a_socket_that_is_not_spliced_into(kind: Kind) {
    a_long_stream_is_copied(kind, true);
}

fn a_long_stream_is_copied_where_the_kernel_refuses_to_splice(kind: Kind) {
    where_a_call_ends_with(libc::SYS_splice, libc::EINVAL, move || a_long_stream_is_copied(kind, false));
}

fn a_long_stream_is_copied_without_a_descriptor_for_a_pipe(kind: Kind) {
    where_a_call_ends_with(libc::SYS_pipe2, libc::EMFILE, move || a_long_stream_is_copied(kind, false));
}

/// On a thread of its own, to which the filter applies.
fn where_a_call_ends_with(call: libc::c_long, errno: i32, body: impl FnOnce() + Send + 'static) {
    let filtered = move || match forbid(&[call], errno) {
        true => body(),
        false => println!("skipped: the kernel has no filters"),
    };
    std::thread::spawn(filtered).join().unwrap();
}

fn a_long_stream_is_copied(kind: Kind, append: bool) {
    run(kind, move |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        if append {
            // The kernel does not splice into a file in append mode.
            let flags = rustix::fs::OFlags::APPEND | rustix::fs::OFlags::NONBLOCK;
            rustix::fs::fcntl_setfl(&far, flags).unwrap();
        }
        let before = counted(&io);
        let bytes = pattern(8 << 20); // more than the sockets hold
        sends(&io, source, &bytes);
        let splicing = io.clone();
        spawn(&io, async move {
            let mut splicer = splicing.splicer();
            while splicer.step(&near, &far, usize::MAX).await.unwrap() > 0 {}
            assert!(splicer.copies());
        });
        let received = to_end(&sink).await;
        assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
        let after = counted(&io);
        assert!(after.splices - before.splices <= 4, "it is not tried again and again");
        assert!(after.copied_splices > before.copied_splices);
    });
}

fn the_end_of_a_stream_gives_the_pipe_back(kind: Kind) {
    run(kind, |io| async move {
        let lane = io.here().lane();
        let others = || manylane_io::report().into_iter().find(|report| report.lane == lane).unwrap().others;
        let ((source, near), (other_source, other_near)) = (tcp_pair(&io).await, tcp_pair(&io).await);
        let (far, _sink) = tcp_pair(&io).await;
        let (mut ended, mut goes_on) = (io.splicer(), io.splicer());
        drop(source);
        assert_eq!(ended.step(&near, &far, usize::MAX).await.unwrap(), 0);
        let pipes = others();
        other_source.send(&mut chain(b"bytes")).await.unwrap();
        assert_eq!(goes_on.step(&other_near, &far, usize::MAX).await.unwrap(), 5);
        assert_eq!(others(), pipes, "the pipe of the one that ended is used again");
    });
}

fn what_was_received_before_goes_first(kind: Kind) {
    run(kind, |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        source.send(&mut chain(b"seen;")).await.unwrap();
        assert_eq!(exactly(&near, 5).await, b"seen;");
        // A driver that receives ahead of requests has this when the splice begins.
        received_ahead(&io, 6, async || source.send(&mut chain(b"first;")).await.unwrap()).await;
        source.send(&mut chain(b"second")).await.unwrap();
        drop(source);
        let mut splicer = io.splicer();
        while splicer.step(&near, &far, usize::MAX).await.unwrap() > 0 {}
        drop(far);
        assert_eq!(to_end(&sink).await, b"first;second");
    });
}

fn the_lane_keeps_the_pipes(kind: Kind) {
    run(kind, |io| async move {
        let lane = io.here().lane();
        let others = || manylane_io::report().into_iter().find(|report| report.lane == lane).unwrap().others;
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        let mut splicer = io.splicer();
        let mut first = None;
        for _ in 0..20 {
            source.send(&mut chain(b"bytes")).await.unwrap();
            assert_eq!(splicer.step(&near, &far, usize::MAX).await.unwrap(), 5);
            assert_eq!(exactly(&sink, 5).await, b"bytes");
            assert_eq!(others(), *first.get_or_insert(others()), "one pipe is enough");
        }
    });
}

fn pipes_are_as_large_and_as_many_as_configured(kind: Kind) {
    run(kind, |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        io.set_pipe_size(4096);
        io.set_most_pipes(1);
        let mut splicer = io.splicer();
        source.send(&mut chain(&pattern(5000))).await.unwrap();
        let moved = splicer.step(&near, &far, usize::MAX).await.unwrap();
        assert!((1..=4096).contains(&moved), "{moved}");
        let mut all = moved;
        while all < 5000 {
            all += splicer.step(&near, &far, usize::MAX).await.unwrap();
        }
        assert_eq!((io.pipes(), splicer.copies()), (1, false));
        // The lane has kept it; another is made only if two are allowed.
        io.set_most_pipes(0);
        let kept = io.splicer();
        drop(kept);
        let mut first = io.splicer();
        let mut second = io.splicer();
        source.send(&mut chain(b"a")).await.unwrap();
        assert_eq!(first.step(&near, &far, usize::MAX).await.unwrap(), 1);
        {
            // Waits with the only pipe.
            let mut waiting = pin!(first.step(&near, &far, usize::MAX));
            assert!(poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await);
        }
        assert_eq!(io.pipes(), 1);
        sink.send(&mut chain(b"back")).await.unwrap();
        assert_eq!(second.step(&far, &near, usize::MAX).await.unwrap(), 4);
        assert_eq!(io.pipes(), 1, "it was nobody's at that moment");
    });
}
