//! Syslog messages on streams and in datagrams: however a stream is cut, the same messages come out, none is
//! too long, and what a message says is a part of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_logs::{Frame, Frames, HostPolicy, Message};
use std::time::Duration;

const LONGEST: usize = 64;

/// The messages of a stream that comes in pieces of `size` bytes, and whether it breaks.
fn read(stream: &[u8], lines_only: bool, size: usize) -> (Vec<&[u8]>, bool) {
    let (mut frames, mut all, mut from) = (Frames::new(LONGEST, lines_only), Vec::new(), 0);
    let mut come = 0;
    while come < stream.len() {
        come = (come + size).min(stream.len());
        loop {
            match frames.next(&stream[from..come]) {
                Frame::Part => {
                    assert!(come - from <= LONGEST + 8, "more is kept than a message may have");
                    break;
                }
                Frame::Broken => return (all, true),
                Frame::Whole { message: (begin, end), used } => {
                    assert!(begin <= end && end <= used && end - begin <= LONGEST);
                    all.push(&stream[from + begin..from + end]);
                    from += used;
                }
            }
        }
    }
    (all, false)
}

fuzz_target!(|data: &[u8]| {
    let [how, stream @ ..] = data else { return };
    let lines_only = how & 1 != 0;
    let (messages, broken) = read(stream, lines_only, 1);
    assert_eq!(read(stream, lines_only, usize::from(how >> 1).max(1)), (messages.clone(), broken));
    for bytes in messages.into_iter().chain([stream]) {
        let message = Message::parse(bytes, Duration::ZERO).from_host(HostPolicy::Append, b"::1");
        let text = message.text();
        assert!(text.is_empty() || bytes.as_ptr_range().contains(&text.as_ptr()));
        assert!(bytes.len() >= text.len() && text.last() != Some(&b'\n'));
        assert!(text.len() <= Message::raw(bytes, Duration::ZERO).text().len());
    }
});
