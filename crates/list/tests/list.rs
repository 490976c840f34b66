//! Behaviour of the lists for users: order, conservation under load, and misuse.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_list::{InsertError, Item, MtList, Node, OwningList};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

fn contents(list: &MtList<usize>) -> Vec<usize> {
    let mut observed = Vec::new();
    list.for_each(|value| observed.push(*value));
    observed
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add(usize),
    AddTail(usize),
    TryAdd(usize),
    TryAddTail(usize),
    InsertAfter(usize, usize),
    InsertBefore(usize, usize),
    Delete(usize),
    Pop,
}

const ELEMENTS: usize = 6;

fn ops() -> impl Strategy<Value = Op> {
    let element = || 0..ELEMENTS;
    prop_oneof![
        element().prop_map(Op::Add),
        element().prop_map(Op::AddTail),
        element().prop_map(Op::TryAdd),
        element().prop_map(Op::TryAddTail),
        (element(), element()).prop_map(|(a, b)| Op::InsertAfter(a, b)),
        (element(), element()).prop_map(|(a, b)| Op::InsertBefore(a, b)),
        element().prop_map(Op::Delete),
        Just(Op::Pop),
    ]
}

/// Adds `element` to the model at `place` if it is out of the list.
fn model_add(model: &mut VecDeque<usize>, element: usize, place: usize) -> bool {
    let out = !model.contains(&element);
    if out {
        model.insert(place, element);
    }
    out
}

proptest! {
    /// R-E1
    #[test]
    fn pinned_list_does_what_a_deque_does(ops in proptest::collection::vec(ops(), 1..200)) {
        let list = MtList::new();
        let nodes: Vec<_> = (0..ELEMENTS).map(|i| Box::pin(Node::new(&list, i))).collect();
        let node = |i: usize| nodes[i].as_ref();
        let mut model = VecDeque::new();
        for op in ops {
            match op {
                Op::Add(i) if !model.contains(&i) => {
                    node(i).add();
                    model.push_front(i);
                }
                Op::AddTail(i) if !model.contains(&i) => {
                    node(i).add_tail();
                    model.push_back(i);
                }
                Op::Add(i) | Op::TryAdd(i) => {
                    prop_assert_eq!(node(i).try_add(), model_add(&mut model, i, 0));
                }
                Op::AddTail(i) | Op::TryAddTail(i) => {
                    let end = model.len();
                    prop_assert_eq!(node(i).try_add_tail(), model_add(&mut model, i, end));
                }
                Op::InsertAfter(i, place) if i != place && !model.contains(&i) => {
                    let at = model.iter().position(|x| *x == place);
                    prop_assert_eq!(node(i).insert_after(node(place)), at.is_some());
                    at.into_iter().for_each(|at| model.insert(at + 1, i));
                }
                Op::InsertBefore(i, place) if i != place && !model.contains(&i) => {
                    let at = model.iter().position(|x| *x == place);
                    prop_assert_eq!(node(i).insert_before(node(place)), at.is_some());
                    at.into_iter().for_each(|at| model.insert(at, i));
                }
                Op::InsertAfter(..) | Op::InsertBefore(..) => {}
                Op::Delete(i) => {
                    prop_assert_eq!(node(i).delete(), model.contains(&i));
                    model.retain(|x| *x != i);
                }
                Op::Pop => prop_assert_eq!(list.pop_with(|value| *value), model.pop_front()),
            }
            prop_assert_eq!(contents(&list), Vec::from(model.clone()));
            prop_assert_eq!(list.is_empty(), model.is_empty());
            for i in 0..ELEMENTS {
                prop_assert_eq!(node(i).is_in_list(), model.contains(&i));
            }
        }
    }

    /// R-E1
    #[test]
    fn owning_list_does_what_a_deque_does(ops in proptest::collection::vec(ops(), 1..200)) {
        let list = OwningList::new();
        let items: Vec<_> = (0..ELEMENTS).map(|i| Arc::new(Item::new(i))).collect();
        let mut model = VecDeque::new();
        for op in ops {
            match op {
                Op::Add(i) | Op::TryAdd(i) => {
                    prop_assert_eq!(list.try_add(items[i].clone()).is_ok(), model_add(&mut model, i, 0));
                }
                Op::AddTail(i) | Op::TryAddTail(i) => {
                    let end = model.len();
                    prop_assert_eq!(list.try_add_tail(items[i].clone()).is_ok(), model_add(&mut model, i,
                        end));
                }
                Op::InsertAfter(i, place) => {
                    let at = model.iter().position(|x| *x == place).filter(|_| !model.contains(&i));
                    prop_assert_eq!(OwningList::insert_after(items[i].clone(), &items[place]).is_ok(),
                        at.is_some());
                    at.into_iter().for_each(|at| model.insert(at + 1, i));
                }
                Op::InsertBefore(i, place) => {
                    let at = model.iter().position(|x| *x == place).filter(|_| !model.contains(&i));
                    prop_assert_eq!(OwningList::insert_before(items[i].clone(), &items[place]).is_ok(),
                        at.is_some());
                    at.into_iter().for_each(|at| model.insert(at, i));
                }
                Op::Delete(i) => {
                    prop_assert_eq!(OwningList::delete(&items[i]).is_some(), model.contains(&i));
                    model.retain(|x| *x != i);
                }
                Op::Pop => prop_assert_eq!(list.pop().map(|item| **item), model.pop_front()),
            }
            let mut observed = Vec::new();
            list.for_each(|value| observed.push(*value));
            prop_assert_eq!(observed, Vec::from(model.clone()));
            for (i, item) in items.iter().enumerate() {
                prop_assert_eq!(Arc::strong_count(item), 1 + usize::from(model.contains(&i)));
            }
        }
    }
}

/// Returns the seed of a random run: `MANYLANE_SEED`, or the built-in one.
fn seed() -> u64 {
    let seed = std::env::var("MANYLANE_SEED").ok().and_then(|word| word.parse().ok()).unwrap_or(0x5EED_2026);
    println!("MANYLANE_SEED={seed}");
    seed
}

/// Returns the high bits of a generator with the multiplier and increment of D. Knuth's MMIX.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

const THREADS: usize = 6;
const ROUNDS: usize = 30_000;

/// ThreadSanitizer sees the order of a join, but not that of the end of a scope.
fn join_each(threads: Vec<std::thread::ScopedJoinHandle<'_, ()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("no assertion failed"));
}

/// R-E1: every element that went in came out once, by its owner's delete or by one pop.
#[test]
fn pinned_elements_that_went_in_came_out_once() {
    let seed = seed();
    let list = MtList::new();
    let (added, deleted, popped) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let (list, start, added, deleted, popped) = (&list, &start, &added, &deleted, &popped);
            scope.spawn(move || {
                let mut state = seed ^ (thread as u64) << 32;
                let make = || Box::pin(Node::new(list, AtomicU64::new(0xA11_0ACE)));
                let mut nodes: Vec<Pin<Box<Node<_>>>> = (0..4).map(|_| make()).collect();
                let (mut ins, mut outs, mut pops) = (0, 0, 0);
                start.wait();
                for _ in 0..ROUNDS {
                    let i = next(&mut state) % nodes.len();
                    let place = nodes[(i + 1) % nodes.len()].as_ref();
                    let node = nodes[i].as_ref();
                    match next(&mut state) % 8 {
                        0 => ins += usize::from(node.try_add()),
                        1 => ins += usize::from(node.try_add_tail()),
                        2 if !node.is_in_list() => ins += usize::from(node.insert_after(place)),
                        3 if !node.is_in_list() => ins += usize::from(node.insert_before(place)),
                        4 | 5 => outs += usize::from(node.delete()),
                        6 => {
                            outs += usize::from(node.delete());
                            nodes[i] = make(); // freed for real
                        }
                        _ => {
                            let value = list.pop_with(|value| value.fetch_add(1, Ordering::Relaxed));
                            assert!(value.is_none_or(|value| value >> 20 == 0xA11_0ACE >> 20));
                            pops += usize::from(value.is_some());
                        }
                    }
                }
                outs += nodes.iter().filter(|node| node.as_ref().delete()).count();
                added.fetch_add(ins, Ordering::Relaxed);
                deleted.fetch_add(outs, Ordering::Relaxed);
                popped.fetch_add(pops, Ordering::Relaxed);
            })
        });
        join_each(threads.collect());
    });
    assert!(list.is_empty());
    let (added, out) = (added.into_inner(), deleted.into_inner() + popped.into_inner());
    assert_eq!(added, out, "seed {seed}");
    assert!(added > ROUNDS, "only {added} additions: the run has tested little");
}

/// R-E1, with elements that many threads add and delete at once, in two lists.
#[test]
fn shared_elements_that_went_in_came_out_once() {
    let seed = seed();
    let lists = [OwningList::new(), OwningList::new()];
    let items: Vec<_> = (0..8).map(|i| Arc::new(Item::new(i))).collect();
    // Additions minus removals of each item: never below zero for long, zero at the end.
    let balance: Vec<AtomicU64> = items.iter().map(|_| AtomicU64::new(0)).collect();
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let (lists, items, balance, start) = (&lists, &items, &balance, &start);
            scope.spawn(move || {
                let mut state = seed ^ (thread as u64) << 32;
                start.wait();
                for _ in 0..ROUNDS {
                    let (i, place) = (next(&mut state) % items.len(), next(&mut state) % items.len());
                    let list = &lists[next(&mut state) % 2];
                    let item = items[i].clone();
                    let went_in = match next(&mut state) % 7 {
                        0 => list.try_add(item).is_ok(),
                        1 => list.try_add_tail(item).is_ok(),
                        2 => OwningList::insert_after(item, &items[place]).is_ok(),
                        3 => OwningList::insert_before(item, &items[place]).is_ok(),
                        n => {
                            let out = if n == 4 { list.pop() } else { OwningList::delete(&item) };
                            if let Some(out) = out {
                                balance[**out].fetch_sub(1, Ordering::Relaxed);
                            }
                            false
                        }
                    };
                    if went_in {
                        balance[i].fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        });
        join_each(threads.collect());
    });
    let mut left = vec![0; items.len()];
    for list in &lists {
        list.for_each(|i| left[*i] += 1);
    }
    for (i, item) in items.iter().enumerate() {
        assert_eq!(balance[i].load(Ordering::Relaxed), left[i], "item {i}, seed {seed}");
        assert_eq!(Arc::strong_count(item) as u64, 1 + left[i], "item {i}, seed {seed}");
    }
    drop(lists);
    assert!(items.iter().all(|item| Arc::strong_count(item) == 1 && !item.is_in_list()));
}

fn message(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it is misuse");
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or(panic.downcast_ref::<String>().cloned())
        .expect("panics say a sentence")
}

#[test]
fn adding_an_element_that_is_in_the_list_is_refused() {
    let list = MtList::new();
    let node = Box::pin(Node::new(&list, 1));
    node.as_ref().add();
    for again in [Node::add, Node::add_tail] {
        let said = message(|| again(node.as_ref()));
        assert_eq!(said, "element added that is in the list already: delete it first, or use try_add");
    }
    assert_eq!(contents(&list), [1]);
}

#[test]
fn inserting_next_to_itself_or_into_another_list_is_refused() {
    let (list, other) = (MtList::new(), MtList::new());
    let node = Box::pin(Node::new(&list, 1));
    let stranger = Box::pin(Node::new(&other, 2));
    stranger.as_ref().add();
    let said = message(|| assert!(node.as_ref().insert_after(node.as_ref())));
    assert!(said.contains("next to itself: give another element"), "{said}");
    let said = message(|| assert!(node.as_ref().insert_before(stranger.as_ref())));
    assert!(said.contains("of another list: both must be made for the same list"), "{said}");
    assert!(list.is_empty());
}

#[test]
#[cfg(debug_assertions)]
#[allow(unsafe_code)] // tests the cheap add, which is unsafe
fn cheap_add_of_an_element_that_is_in_a_list_is_refused_in_debug_builds() {
    let list = OwningList::new();
    let item = Arc::new(Item::new(1));
    assert!(list.try_add(item.clone()).is_ok());
    // SAFETY: breaks the contract on purpose; the debug check panics before any access.
    let said = message(|| unsafe { list.add_unchecked(item.clone()) });
    assert_eq!(
        said,
        "element added without a check that is in a list already: delete it first, or use try_add"
    );
}

#[test]
fn inserting_next_to_an_element_that_is_out_gives_the_handle_back() {
    let place = Arc::new(Item::new(1));
    let item = Arc::new(Item::new(2));
    let refused = OwningList::insert_after(item.clone(), &place).expect_err("place is out");
    assert!(refused.to_string().contains("add to an end instead"));
    assert!(matches!(&refused, InsertError::AnchorNotInList(back) if Arc::ptr_eq(back, &item)));
    assert!(matches!(OwningList::insert_before(place.clone(), &place), Err(InsertError::AnchorNotInList(_))));
}

#[test]
fn dropping_an_element_takes_it_out_first() {
    let list = MtList::new();
    let first = Box::pin(Node::new(&list, 1));
    first.as_ref().add();
    let second = Box::pin(Node::new(&list, 2));
    second.as_ref().add_tail();
    drop(first);
    assert_eq!(contents(&list), [2]);
}

#[test]
fn dropping_a_list_takes_forgotten_elements_out() {
    let list = MtList::new();
    let nodes: Vec<_> = (0..3).map(|i| Box::pin(Node::new(&list, i))).collect();
    nodes.iter().for_each(|node| node.as_ref().add());
    // Their memory stays valid for ever, and so must the ring's other end as long as they point to it.
    nodes.into_iter().for_each(std::mem::forget);
    let moved = list;
    assert_eq!(contents(&moved), [2, 1, 0]);
    drop(moved);
}

#[test]
fn dropping_an_owning_list_drops_what_it_owns() {
    let counted = Arc::new(());
    let list = OwningList::new();
    for _ in 0..3 {
        list.add(Box::new(Item::new(counted.clone())));
    }
    drop(list);
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn a_panic_while_popping_leaves_element_and_list_usable() {
    let list = MtList::new();
    let node = Box::pin(Node::new(&list, 1));
    node.as_ref().add();
    assert_eq!(
        message(|| assert!(list.pop_with(|_| -> bool { panic!("out of luck") }).is_none())),
        "out of luck"
    );
    assert!(!node.is_in_list());
    node.as_ref().add();
    assert_eq!(message(|| list.for_each(|_| panic!("out of luck"))), "out of luck");
    assert_eq!(contents(&list), [1]);
}

/// R-E1: the holder of an end does not block work in the middle.
#[test]
fn a_walk_that_holds_the_first_element_does_not_block_the_middle() {
    let list = MtList::new();
    let nodes: Vec<_> = (0..5).map(|i| Box::pin(Node::new(&list, i))).collect();
    nodes.iter().for_each(|node| node.as_ref().add_tail());
    let own = Box::pin(Node::new(&list, 9));
    let mut at = 0;
    list.for_each(|_| {
        // The walk holds element `at`. Operations between two elements away from it still work, even in the
        // same thread.
        if at == 0 {
            assert!(own.as_ref().insert_after(nodes[2].as_ref()));
            assert!(own.as_ref().delete());
        }
        at += 1;
    });
    assert_eq!(at, 5);
}

/// R-E5: both words of an element are naturally aligned and in one line, at any address; the README has the
/// sizes.
#[test]
fn elements_are_small_and_aligned() {
    assert_eq!((size_of::<Item<u64>>(), align_of::<Item<u64>>()), (32, 16));
    assert_eq!((size_of::<Item<[u64; 2]>>(), size_of::<Item<()>>()), (32, 16));
    assert_eq!((size_of::<Node<'_, u64>>(), align_of::<Node<'_, u8>>()), (32, 16));
}
