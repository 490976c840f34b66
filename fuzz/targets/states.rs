//! Server state files: any bytes are read in bounded time, and a valid line is read whatever the other lines
//! contain.

#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_check::states::{MOST_WRONG, States};

const LINE: &[u8] = b"2 b 6 g 127.0.0.1 0 8 3 5 12 8 2 0 2 18 0 0 - 18095 - 0 777 127.0.0.4 127.0.0.5 18096";

fuzz_target!(|bytes: &[u8]| {
    let mut wrong = Vec::new();
    let states = States::read(bytes, &mut wrong);
    assert!(wrong.len() <= MOST_WRONG);
    assert!(states.len() <= bytes.split(|byte| *byte == b'\n').count());
    let ended = [b"1\n", bytes, b"\n", LINE, b"\n"].concat();
    assert!(States::read(&ended, &mut Vec::new()).get("b", "g").is_some());
    // A last line without its end is skipped: it may be truncated.
    let cut = &ended[..ended.len() - 1];
    assert_eq!(
        States::read(cut, &mut Vec::new()).len(),
        States::read(&cut[..cut.len() - LINE.len()], &mut Vec::new()).len()
    );
});
