//! Lane memory: every interleaving of lanes that get their arenas, of places that are assigned, and of a
//! place that is released and reused. The source is the library's own; the arenas have two words, and the
//! model makes them.
#![cfg(loom)]
#![allow(unsafe_code)] // accesses words at the returned places

use machine::{AtomicPtr, AtomicUsize};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::{Arc, const_fn, model, thread};
use offsets::{ArenaOffset, Arenas, is_there};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize as Count, Ordering};

// Items that the library's source takes from its parent module.
mod machine {
    pub(super) use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicPtr, AtomicUsize};
}
const NO_ARENA: usize = usize::MAX - (16 << 20) + 2;
#[path = "../src/arena/offsets.rs"]
mod offsets;

const LANES: usize = 3;
const WORD: Layout = Layout::new::<AtomicUsize>();

struct Scene {
    arenas: Arenas<LANES>,
    memory: [Box<[AtomicUsize; 2]>; LANES],
    /// By lane: written when the arena is made. Loom reports a thread that finds the arena without being
    /// ordered after that.
    made: [UnsafeCell<bool>; LANES],
    offset: ArenaOffset,
}

// SAFETY: `made` is written before the arena is published, and only read afterwards: loom checks just that.
unsafe impl Sync for Scene {}
// SAFETY: as above.
unsafe impl Send for Scene {}

impl Scene {
    fn new() -> Self {
        Self {
            arenas: Arenas::new(
                std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
                2 * WORD.size(),
            ),
            memory: std::array::from_fn(|_| Box::new([AtomicUsize::new(0), AtomicUsize::new(0)])),
            made: std::array::from_fn(|_| UnsafeCell::new(false)),
            offset: ArenaOffset::new(),
        }
    }

    fn enter(&self, lane: usize) -> *mut u8 {
        self.arenas.enter(lane, || {
            // SAFETY: no other thread can find the arena yet.
            self.made[lane].with_mut(|made| unsafe { *made = true });
            Some(NonNull::from(&*self.memory[lane]).cast())
        })
    }

    /// Returns the word at `offset` in the arena of `lane`, if both exist.
    fn word_of(&self, offset: &ArenaOffset, lane: usize) -> Option<&AtomicUsize> {
        let word = self.arenas.address_of(offset, lane)?;
        // SAFETY: no thread writes it any more.
        assert!(self.made[lane].with(|made| unsafe { *made }), "lane {lane} has an arena");
        // SAFETY: a place of a word, in an arena of words that lives as long as the scene.
        Some(unsafe { word.cast().as_ref() })
    }

    /// Returns the word of the scene's place in the caller's arena at `base`, as `LaneSlots::own` finds it.
    fn own(&self, base: *mut u8) -> &AtomicUsize {
        let mut word = self.offset.at(base);
        if !is_there(word) {
            self.arenas.assign(&self.offset, WORD);
            word = self.offset.at(base);
        }
        assert!(is_there(word));
        // SAFETY: as above.
        unsafe { &*word.cast() }
    }
}

/// Rule 1. The thread that reads is spawned last (see `loom_per_lane`).
#[test]
fn who_learns_of_a_lane_finds_its_arena_whole() {
    /// Numbers of executions in which the reader saw no lane, the first, and the second.
    static TOLD: [Count; 3] = [const { Count::new(0) }; 3];
    model(|| {
        let scene = Arc::new(Scene::new());
        scene.arenas.assign(&scene.offset, WORD);
        let lanes = [0, 1].map(|lane| {
            let scene = scene.clone();
            thread::spawn(move || scene.own(scene.enter(lane)).store(lane + 1, Ordering::Relaxed))
        });
        let reader = {
            let scene = scene.clone();
            thread::spawn(move || {
                let reported = scene.arenas.lanes();
                if let Some(lane) = reported.checked_sub(1) {
                    let word = scene.word_of(&scene.offset, lane).expect("the arena is there");
                    assert!([0, reported].contains(&word.load(Ordering::Relaxed)));
                }
                TOLD[reported].fetch_add(1, Ordering::Relaxed);
            })
        };
        for thread in lanes.into_iter().chain([reader]) {
            thread.join().expect("no assertion failed");
        }
        let words = [0, 1].map(|lane| scene.word_of(&scene.offset, lane).expect("the arena is there"));
        assert_eq!(words.map(|word| word.load(Ordering::Relaxed)), [1, 2]);
    });
    assert!(TOLD.iter().all(|reported| reported.load(Ordering::Relaxed) > 0), "not all was tried: {TOLD:?}");
}

/// Rules 2 to 4: a place is released while two lanes race to assign one. Both get the same place, whole and
/// with zeroes in it, the released one or another; and none is lost.
#[test]
fn memory_that_is_used_again_holds_nothing_of_its_last_owner() {
    /// Numbers of executions in which the lanes got a place that was never used, and the released one.
    static GOT: [Count; 2] = [const { Count::new(0) }; 2];
    model(|| {
        let scene = Arc::new(Scene::new());
        let bases: [usize; LANES] = std::array::from_fn(|lane| scene.enter(lane).expose_provenance());
        let mut old = ArenaOffset::new();
        scene.arenas.assign(&old, WORD);
        for lane in 0..LANES {
            scene.word_of(&old, lane).expect("assigned").store(7, Ordering::Relaxed);
        }
        let lanes = [1, 2].map(|lane| {
            let scene = scene.clone();
            thread::spawn(move || {
                let word = scene.own(std::ptr::with_exposed_provenance_mut(bases[lane]));
                assert_eq!(word.load(Ordering::Relaxed), 0, "lane {lane}");
                word.store(lane, Ordering::Relaxed);
            })
        });
        scene.arenas.release(&mut old, WORD);
        for lane in lanes {
            lane.join().expect("no assertion failed");
        }
        let words: Vec<_> =
            (0..LANES).map(|lane| scene.word_of(&scene.offset, lane).expect("assigned")).collect();
        assert_eq!(words.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>(), [0, 1, 2]);
        let again = std::ptr::eq(words[0], &raw const scene.memory[0][0]);
        GOT[usize::from(again)].fetch_add(1, Ordering::Relaxed);
        // Of the two places of an arena one is left.
        let (third, fourth) = (ArenaOffset::new(), ArenaOffset::new());
        scene.arenas.assign(&third, WORD);
        scene.arenas.assign(&fourth, WORD);
        let third = scene.word_of(&third, 0).expect("there is room");
        assert_eq!(third.load(Ordering::Relaxed), 0);
        assert!(!std::ptr::eq(third, words[0]));
        assert!(scene.word_of(&fourth, 0).is_none(), "there is no more");
    });
    assert!(GOT.iter().all(|got| got.load(Ordering::Relaxed) > 0), "not all was tried: {GOT:?}");
}
