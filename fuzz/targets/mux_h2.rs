//! Random frames to a server's streams against the protocol alone, or random operations on the streams of
//! both ends against a model: data arrives once and in order, and no task waits forever.
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
