//! Random frames to a server's streams beside the protocol alone, or random operations on the streams of both
//! ends of a connection beside a model: what was sent comes, once and in order, and nobody waits in vain.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/mux/tests/play/mod.rs"]
mod play;

fuzz_target!(|bytes: &[u8]| {
    let [choice, bytes @ ..] = bytes else { return };
    if choice & 1 == 0 {
        play::run(bytes);
    } else {
        play::frames(bytes, usize::from(*choice / 2) + 1);
    }
});
