//! A lane whose arena cannot be reserved still counts. A program of its own, since it limits its address
//! space.
#![cfg(all(target_os = "linux", not(any(loom, manylane_sim))))]
#![allow(unsafe_code)] // a system call sets a limit

use manylane_sync::LaneSlots;
use manylane_sync::atomic::OwnedU64;

fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = statm.split(' ').next().and_then(|n| n.parse().ok()).expect("a number of pages");
    pages * 4096
}

#[test]
fn lanes_without_an_arena_keep_their_slots_beside() {
    static SLOTS: LaneSlots<OwnedU64> = LaneSlots::new();
    SLOTS.own().add(1);
    assert!(LaneSlots::is_own(SLOTS.own()), "this lane has one");
    // Leaves room for the stacks of a few threads, not for another arena.
    let limit = libc::rlimit { rlim_cur: address_space() + (12 << 20), rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is a live value of the type that the call reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    for _ in 0..3 {
        let builder = std::thread::Builder::new().stack_size(256 << 10);
        let thread = builder.spawn(|| {
            SLOTS.own().add(10);
            LaneSlots::is_own(SLOTS.own())
        });
        let in_an_arena = thread.expect("its stack fits").join().expect("no assertion failed");
        assert!(!in_an_arena);
    }
    assert_eq!(SLOTS.iter().map(|(_, slot)| slot.get()).sum::<u64>(), 31);
}
