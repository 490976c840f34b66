//! Every pair of operations, at both ends, in the middle, next to each other and on the same element, in all
//! interleavings (R-E1, R-E3). Afterwards the ring is consistent in both directions, every element that went
//! in is in the list or came out once, and no freed memory was accessed.
//!
//! Usually with at most 4 preemptions by two threads and 3 by three. `MANYLANE_LONG=1` covers more positions,
//! with 6 preemptions by two threads, and all triples, with 2. `LOOM_MAX_PREEMPTIONS` overrides the bound;
//! without any (255) the table of pairs takes hours.
#![cfg(loom)]
#![allow(unsafe_code)] // a list that threads borrow for the whole model, freed at its end

use loom::cell::UnsafeCell;
use loom::thread;
use manylane_list::{Item, MtList, Node, OwningList};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex}; // what is no part of the model

/// A value whose reads and drop loom sees.
struct Payload {
    id: u8,
    alive: UnsafeCell<()>,
}

// SAFETY: only loom's checks touch `alive`, which is its purpose.
unsafe impl Sync for Payload {}

impl Payload {
    fn new(id: u8) -> Self {
        Self { id, alive: UnsafeCell::new(()) }
    }

    fn read(&self) -> u8 {
        self.alive.with(|_| self.id)
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.alive.with_mut(|_| ());
    }
}

fn long() -> bool {
    std::env::var_os("MANYLANE_LONG").is_some_and(|value| value == "1")
}

/// Maximum number of preemptions in an interleaving, unless `LOOM_MAX_PREEMPTIONS` says otherwise.
fn bound(threads: usize) -> Option<usize> {
    match threads {
        2 if long() => Some(6),
        2 => Some(4),
        // 1,247 models instead of three.
        _ if long() => Some(2),
        _ => Some(3),
    }
}

/// Runs all interleavings of `f` and returns the number of executions. With `Some` order, threads act one
/// after the other in that order. Each result of those must occur again among the interleavings: this detects
/// a model checker that skips turns, or a model that leaves it no choice.
fn check<T: Debug + Ord + Send + 'static>(
    name: String,
    threads: usize,
    f: impl Fn(Option<&[usize]>) -> T + Send + Sync + 'static,
) -> usize {
    let f = Arc::new(f);
    let mut executions = 0;
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    for order in orders(threads) {
        let (f, observed, ordered) = (f.clone(), outcomes.clone(), order.clone());
        executions += explore(&format!("{name} in the order {order:?}"), threads, move || {
            let outcome = f(Some(&ordered));
            observed.lock().expect("no panic").insert(outcome);
        });
    }
    let observed = Arc::new(Mutex::new(BTreeSet::new()));
    let all = observed.clone();
    executions += explore(&name, threads, move || {
        let outcome = f(None);
        all.lock().expect("no panic").insert(outcome);
    });
    let (observed, expected) = (observed.lock().expect("no panic"), outcomes.lock().expect("no panic"));
    assert!(
        observed.is_superset(&expected),
        "{name}: one after the other {expected:?}, together only {observed:?}"
    );
    executions
}

/// Returns all orders of this many threads.
fn orders(threads: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![vec![]];
    for thread in 0..threads {
        let longer = |order: &Vec<usize>| {
            let order = order.clone();
            (0..=order.len()).map(move |at| {
                let mut order = order.clone();
                order.insert(at, thread);
                order
            })
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

fn explore(name: &str, threads: usize, f: impl Fn() + Send + Sync + 'static) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(bound(threads));
    builder.max_duration = None; // there are over a thousand; the bound on preemptions is what ends each
    builder.max_branches = 2_000;
    let most = builder.preemption_bound;
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            f();
        });
    }));
    if let Err(panic) = outcome {
        eprintln!("in the model: {name}");
        std::panic::resume_unwind(panic);
    }
    let runs = runs.load(std::sync::atomic::Ordering::Relaxed);
    println!("model {name}: all {runs} executions with at most {} preemptions", most.unwrap_or(usize::MAX));
    runs
}

/// Returns the result of each of `acts`, run in the given order, or all concurrently. In the latter case the
/// first one runs on the main thread, which the checker lets begin.
fn in_turns_or_together<T: 'static, F>(order: Option<&[usize]>, acts: Vec<F>) -> Vec<T>
where
    F: FnOnce() -> T + 'static,
{
    let mut acts: Vec<_> = acts.into_iter().map(Some).collect();
    let mut done: Vec<_> = acts.iter().map(|_| None).collect();
    if let Some(order) = order {
        for &i in order {
            done[i] = acts[i].take().map(|act| act());
        }
    } else {
        let others: Vec<_> = acts.drain(1..).flatten().map(thread::spawn).collect();
        done[0] = acts[0].take().map(|act| act());
        for (done, other) in done[1..].iter_mut().zip(others) {
            *done = Some(other.join().expect("a thread of a model never panics"));
        }
    }
    done.into_iter().map(|done| done.expect("each acts once")).collect()
}

/// Step through a table of models: tests run in parallel, each on its share.
fn share<T>(table: Vec<T>, part: usize, parts: usize) -> impl Iterator<Item = T> {
    table.into_iter().enumerate().filter(move |(i, _)| i % parts == part).map(|(_, model)| model)
}

/// Runs the models, and prints the number of tried executions.
fn run_all(name: &str, executions: impl Iterator<Item = usize>) {
    let (models, executions) = executions.fold((0, 0), |(n, sum), executions| (n + 1, sum + executions));
    println!("table {name}: all {executions} executions of {models} models");
}

mod pinned {
    use super::*;

    type List = &'static MtList<Payload>;
    type Element = Pin<Box<Node<'static, Payload>>>;

    /// An action of one thread on its resident element, its spare one (out), or the list.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Op {
        AddHead,
        AddTail,
        TryAdd,
        InsertAfter,
        InsertBefore,
        Delete,
        DeleteAndAdd,
        Drop,
        Pop,
        Walk,
    }
    use Op::*;
    const OPS: [Op; 10] =
        [AddHead, AddTail, TryAdd, InsertAfter, InsertBefore, Delete, DeleteAndAdd, Drop, Pop, Walk];

    /// A thread's elements and those that it has popped.
    struct Owner {
        resident: Option<Element>,
        spare: Element,
        popped: Option<u8>,
    }

    fn act(list: List, op: Op, mut own: Owner) -> Owner {
        let spare = own.spare.as_ref();
        let resident = own.resident.as_ref().map(|element| element.as_ref());
        match op {
            AddHead => spare.add(),
            AddTail => spare.add_tail(),
            TryAdd => {
                assert!(spare.try_add());
                // The second add is refused, unless another thread has popped the element already.
                if spare.is_in_list() {
                    spare.try_add();
                }
            }
            InsertAfter => drop(resident.map(|place| spare.insert_after(place))),
            InsertBefore => drop(resident.map(|place| spare.insert_before(place))),
            Delete => drop(resident.map(|element| element.delete())),
            DeleteAndAdd => {
                if let Some(element) = resident {
                    element.delete();
                    assert!(!element.is_in_list());
                    element.add();
                }
            }
            Drop => drop(own.resident.take()),
            Pop => own.popped = list.pop_with(Payload::read),
            Walk => list.for_each(|value| assert!(value.read() < 200)),
        }
        own
    }

    /// `arrangement`: the owner of each element from the first to the last, `0` for the main thread.
    fn model(arrangement: &'static str, ops: Vec<Op>) -> usize {
        check(format!("pinned {arrangement:?} {ops:?}"), ops.len(), move |order| {
            let list: List = Box::leak(Box::new(MtList::new()));
            let mut residents: Vec<Option<Element>> = arrangement
                .bytes()
                .enumerate()
                .map(|(i, _)| {
                    let element = Box::pin(Node::new(list, Payload::new(i as u8)));
                    element.as_ref().add_tail();
                    Some(element)
                })
                .collect();
            let threads: Vec<_> = ops
                .iter()
                .enumerate()
                .map(|(i, op)| {
                    let mine = arrangement.bytes().position(|owner| owner == b'1' + i as u8);
                    let own = Owner {
                        resident: mine.and_then(|place| residents[place].take()),
                        spare: Box::pin(Node::new(list, Payload::new(100 + i as u8))),
                        popped: None,
                    };
                    (*op, own)
                })
                .collect();
            let owners = in_turns_or_together(
                order,
                threads.into_iter().map(|(op, own)| move || act(list, op, own)).collect(),
            );
            let taken: Vec<_> = owners.iter().map(|owner| owner.popped).collect();

            // The walk checks the ring in both directions; the elements' own state must agree.
            let mut ring = Vec::new();
            list.for_each(|value| ring.push(value.read()));
            let mut elements: Vec<Element> = residents.into_iter().flatten().collect();
            let mut popped = Vec::new();
            for owner in owners {
                elements.extend(owner.resident);
                elements.push(owner.spare);
                popped.extend(owner.popped);
            }
            for element in &elements {
                let times = ring.iter().filter(|id| **id == element.value().id).count();
                assert_eq!(
                    times,
                    usize::from(element.is_in_list()),
                    "element {} in {ring:?}",
                    element.value().id
                );
            }
            assert_eq!(ring.len(), elements.iter().filter(|element| element.is_in_list()).count());
            // Conservation: an element that is neither in the list nor popped was deleted by its owner.
            for (i, owner) in arrangement.bytes().enumerate() {
                let op = if owner == b'0' { None } else { ops.get((owner - b'1') as usize) };
                let gone = matches!(op, Some(Delete | DeleteAndAdd | Drop));
                let times = ring.iter().chain(&popped).filter(|id| **id == i as u8).count();
                let expected = if op == Some(&DeleteAndAdd) { 1..=2 } else { usize::from(!gone)..=1 };
                assert!(
                    expected.contains(&times),
                    "element {i} found {times} times: {ring:?}, popped {popped:?}"
                );
            }
            popped.sort_unstable();
            popped.dedup_by_key(|id| if ops.contains(&DeleteAndAdd) { u8::MAX - *id } else { *id });
            assert!(popped.len() <= ops.iter().filter(|op| **op == Pop).count());

            drop(elements);
            assert!(list.is_empty());
            // SAFETY: from `Box::leak` above; the threads and the elements are gone.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(list).cast_mut()) });
            (ring, taken)
        })
    }

    /// Both ends, the middle, neighbours, only element of the list.
    const USUAL: [&str; 4] = ["12", "21", "1", "102"];
    const ALL: [&str; 9] = ["12", "21", "1", "102", "201", "012", "120", "01020", ""];

    fn pairs(part: usize) {
        let mut table = Vec::new();
        for arrangement in if long() { &ALL[..] } else { &USUAL[..] } {
            for (i, a) in OPS.iter().enumerate() {
                for b in &OPS[i..] {
                    table.push((*arrangement, vec![*a, *b]));
                }
            }
        }
        run_all("of pinned pairs", share(table, part, 2).map(|(arrangement, ops)| model(arrangement, ops)));
    }

    #[test]
    fn every_pair_keeps_the_ring_and_loses_nothing_even() {
        pairs(0);
    }

    #[test]
    fn every_pair_keeps_the_ring_and_loses_nothing_odd() {
        pairs(1);
    }

    /// Rule 7: the owner of an only element relies on the head's lock, even if other threads used it a moment
    /// ago.
    #[test]
    fn only_element_is_deleted_while_two_others_come_and_go() {
        let mut table = vec![("12", vec![Delete, Delete, Pop]), ("1", vec![Drop, AddHead, Pop])];
        if long() {
            for arrangement in ["12", "21", "123", "321", "213"] {
                for (i, a) in OPS.iter().enumerate() {
                    for (j, b) in OPS.iter().enumerate().skip(i) {
                        for c in &OPS[j..] {
                            table.push((arrangement, vec![*a, *b, *c]));
                        }
                    }
                }
            }
        }
        run_all("of pinned triples", table.into_iter().map(|(arrangement, ops)| model(arrangement, ops)));
    }
}

mod owning {
    use super::*;
    use loom::sync::Arc; // counted by the model

    type Element = Arc<Item<Payload>>;

    /// An action of a thread; numbers are those of the residents from the first on, X and Y are out at the
    /// start.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Op {
        TryAddX,
        TryAddTailX,
        InsertXAfter(usize),
        InsertXBefore(usize),
        InsertXAfterY,
        InsertYAfterX,
        DeleteX,
        Delete(usize),
        Pop,
    }
    use Op::*;
    const OPS: [Op; 11] = [
        TryAddX,
        TryAddTailX,
        InsertXAfter(0),
        InsertXBefore(0),
        InsertXAfterY,
        InsertYAfterX,
        DeleteX,
        Delete(0),
        Delete(1),
        Delete(2),
        Pop,
    ];

    /// Returns whether the element went into the list, and which came out.
    fn act(
        list: &OwningList<Element>,
        op: Op,
        residents: &[Element],
        x: &Element,
        y: &Element,
    ) -> (bool, Option<u8>) {
        let out = |element: Option<Element>| (false, element.map(|element| element.read()));
        match op {
            TryAddX => (list.try_add(x.clone()).is_ok(), None),
            TryAddTailX => (list.try_add_tail(x.clone()).is_ok(), None),
            InsertXAfter(i) => (OwningList::insert_after(x.clone(), &residents[i]).is_ok(), None),
            InsertXBefore(i) => (OwningList::insert_before(x.clone(), &residents[i]).is_ok(), None),
            InsertXAfterY => (OwningList::insert_after(x.clone(), y).is_ok(), None),
            InsertYAfterX => (OwningList::insert_after(y.clone(), x).is_ok(), None),
            DeleteX => out(OwningList::delete(x)),
            Delete(i) => out(OwningList::delete(&residents[i])),
            Pop => out(list.pop()),
        }
    }

    fn model(length: usize, ops: Vec<Op>) -> usize {
        check(format!("owning, {length} residents, {ops:?}"), ops.len(), move |order| {
            let list = Arc::new(OwningList::new());
            let residents: Vec<Element> =
                (0..length).map(|i| Arc::new(Item::new(Payload::new(i as u8)))).collect();
            for element in &residents {
                // SAFETY: a new element, so it is in no list.
                unsafe { list.add_tail_unchecked(element.clone()) };
            }
            let x = Arc::new(Item::new(Payload::new(100)));
            let y = Arc::new(Item::new(Payload::new(101)));
            let acts = ops.iter().map(|op| {
                let (list, op, residents) = (list.clone(), *op, residents.clone());
                let (x, y) = (x.clone(), y.clone());
                move || act(&list, op, &residents, &x, &y)
            });
            let done = in_turns_or_together(order, acts.collect());

            let mut ring = Vec::new();
            list.for_each(|value| ring.push(value.read()));
            let went_in = length + done.iter().filter(|(went_in, _)| *went_in).count();
            let came_out = done.iter().filter(|(_, out)| out.is_some()).count();
            assert_eq!(ring.len() + came_out, went_in, "{ring:?} {done:?}");
            for element in residents.iter().chain([&x, &y]) {
                let times = ring.iter().filter(|id| **id == element.id).count();
                assert_eq!(times, usize::from(element.is_in_list()), "element {} in {ring:?}", element.id);
                // The list owns one reference to each of its elements, and none to those that came out.
                assert_eq!(Arc::strong_count(element), 1 + times, "element {}", element.id);
            }
            (ring, done)
        })
    }

    fn pairs(part: usize) {
        let mut table = Vec::new();
        let lengths: &[usize] = if long() { &[0, 1, 2, 3, 4] } else { &[1, 2, 3] };
        for &length in lengths {
            let fits = |op: &&Op| match op {
                InsertXAfter(i) | InsertXBefore(i) | Delete(i) => *i < length,
                _ => true,
            };
            let ops: Vec<Op> = OPS.iter().filter(fits).copied().collect();
            for (i, a) in ops.iter().enumerate() {
                for b in &ops[i..] {
                    table.push((length, vec![*a, *b]));
                }
            }
        }
        run_all("of owning pairs", share(table, part, 2).map(|(length, ops)| model(length, ops)));
    }

    #[test]
    fn every_pair_keeps_the_ring_and_loses_nothing_even() {
        pairs(0);
    }

    #[test]
    fn every_pair_keeps_the_ring_and_loses_nothing_odd() {
        pairs(1);
    }

    #[test]
    fn three_threads_at_one_element() {
        let mut table = vec![(1, vec![TryAddX, DeleteX, Pop])];
        if long() {
            for length in [0, 1, 2] {
                for a in [TryAddX, TryAddTailX, InsertXAfterY, InsertYAfterX] {
                    for b in [TryAddX, TryAddTailX, DeleteX, Pop] {
                        for c in [DeleteX, Pop, InsertYAfterX] {
                            table.push((length, vec![a, b, c]));
                        }
                    }
                }
            }
        }
        run_all("of owning triples", table.into_iter().map(|(length, ops)| model(length, ops)));
    }

    /// A list may be dropped while another thread deletes its last element by a handle of its own.
    #[test]
    fn dropping_the_list_waits_for_a_delete_under_way() {
        for length in [1, 2] {
            check(format!("drop of a list of {length}"), 2, move |order| {
                let list = OwningList::new();
                let elements: Vec<Element> =
                    (0..length).map(|i| Arc::new(Item::new(Payload::new(i)))).collect();
                for element in &elements {
                    assert!(list.try_add_tail(element.clone()).is_ok());
                }
                let first = elements[0].clone();
                let acts: Vec<Box<dyn FnOnce() -> bool>> = vec![
                    Box::new(move || {
                        drop(list);
                        false
                    }),
                    Box::new(move || OwningList::delete(&first).is_some()),
                ];
                let done = in_turns_or_together(order, acts);
                for element in &elements {
                    assert!(!element.is_in_list());
                    assert_eq!(Arc::strong_count(element), 1);
                }
                done[1]
            });
        }
    }
}
