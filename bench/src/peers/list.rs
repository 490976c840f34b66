//! Adding the thread's own element to a shared list, and deleting it again.
//!
//! The original of link locking, the C library `mt_list`, is not linked here. Its figures on the reference
//! machine: 41 ns with one thread, and 51 with two, of which one starved (fairness 0.02).

use super::{Contest, Contestant, Crowd, Effort, Row, Target, measure_crowds};
use crate::cases::Variant;
use crate::run;
use manylane_list::{MtList, Node};
use manylane_sync::CachePadded;
use std::hint::black_box;
use std::pin::Pin;

/// For one thread and for two.
const TARGETS: [Target; 2] =
    [Target::new(20.0, "parking_lot mutex list", 30.0), Target::new(45.0, "parking_lot mutex list", 61.0)];
const FAIRNESS: f64 = 0.5;

/// A conventional list: links by index, one lock for all. Element 0 is the head.
struct Links(Vec<CachePadded<(u32, u32)>>);

impl Links {
    fn new(elements: usize) -> Self {
        Self((0..=elements).map(|_| CachePadded::new((0, 0))).collect())
    }

    #[inline]
    fn add(&mut self, element: u32) {
        let first = self.0[0].1;
        *self.0[element as usize] = (0, first);
        self.0[0].1 = element;
        self.0[first as usize].0 = element;
    }

    #[inline]
    fn delete(&mut self, element: u32) {
        let (prev, next) = *self.0[element as usize];
        self.0[prev as usize].1 = next;
        self.0[next as usize].0 = prev;
    }
}

/// A mutex around a list.
trait Lock: Send + Sync + 'static {
    const NAME: &'static str;
    fn new(list: Links) -> Self;
    fn with(&self, f: impl FnOnce(&mut Links));
}

impl Lock for parking_lot::Mutex<Links> {
    const NAME: &'static str = "parking_lot mutex list";
    fn new(list: Links) -> Self {
        parking_lot::Mutex::new(list)
    }
    #[inline(always)]
    fn with(&self, f: impl FnOnce(&mut Links)) {
        f(&mut self.lock());
    }
}

impl Lock for std::sync::Mutex<Links> {
    const NAME: &'static str = "std mutex list";
    fn new(list: Links) -> Self {
        std::sync::Mutex::new(list)
    }
    #[inline(always)]
    fn with(&self, f: impl FnOnce(&mut Links)) {
        f(&mut self.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

struct Locked<L>(CachePadded<L>);

impl<L: Lock> Variant for Locked<L> {
    const NAME: &'static str = L::NAME;
    type Own<'a> = u32;
    fn new(threads: usize) -> Self {
        Self(CachePadded::new(L::new(Links::new(threads))))
    }
    fn enter(&self, thread: usize) -> u32 {
        thread as u32 + 1
    }
    #[inline]
    fn operate(&self, element: &mut u32) {
        self.0.with(|list| list.add(*element));
        self.0.with(|list| list.delete(*element));
    }
}

struct Ours(MtList<CachePadded<u64>>);

impl Variant for Ours {
    const NAME: &'static str = "manylane MtList";
    type Own<'a> = Pin<Box<Node<'a, CachePadded<u64>>>>;
    fn new(_: usize) -> Self {
        Self(MtList::new())
    }
    fn enter(&self, thread: usize) -> Self::Own<'_> {
        Box::pin(Node::new(&self.0, CachePadded::new(thread as u64)))
    }
    #[inline]
    fn operate(&self, element: &mut Self::Own<'_>) {
        let element = element.as_ref();
        element.add();
        assert!(element.delete(), "only its owner takes it out");
    }
}

pub(super) const CONTESTS: &[Contest] = &[
    Contest {
        operation: "list: add at the head, delete own element, 1 thread",
        target: Some(TARGETS[0]),
        contestants: || alone(0),
    },
    Contest {
        operation: "list: the same, beside two elements of others, 1 thread",
        target: None,
        contestants: || alone(2),
    },
];

pub(super) fn crowds(effort: Effort) -> Vec<Row> {
    let crowds = [
        crowd::<Ours>(true),
        crowd::<Locked<parking_lot::Mutex<Links>>>(false),
        crowd::<Locked<std::sync::Mutex<Links>>>(false),
    ];
    let mut two = Row::new(
        "list: add at the head, delete own element, 2 threads",
        Some(TARGETS[1]),
        measure_crowds(effort, 2, &crowds),
    );
    two.fairness = Some(FAIRNESS);
    vec![two]
}

fn crowd<V: Variant>(ours: bool) -> Crowd {
    Crowd { name: V::NAME, ours, run: run::once::<V> }
}

/// One thread, with `others` further elements in the list.
fn alone(others: u32) -> Vec<Contestant> {
    let ours: &'static Ours = Box::leak(Box::new(Ours::new(1)));
    for number in 0..others {
        let stays = Box::leak(Box::new(ours.enter(number as usize + 1)));
        stays.as_ref().add();
    }
    let parking_lot = locked::<parking_lot::Mutex<Links>>(others);
    let std = locked::<std::sync::Mutex<Links>>(others);
    vec![
        Contestant::ours(Ours::NAME, repeat(ours, ours.enter(0))),
        Contestant::peer(<parking_lot::Mutex<Links> as Lock>::NAME, repeat(parking_lot, 1)),
        Contestant::peer(<std::sync::Mutex<Links> as Lock>::NAME, repeat(std, 1)),
    ]
}

/// A conventional list with elements from number 2 on; 1 is the one that is added and deleted.
fn locked<L: Lock>(others: u32) -> &'static Locked<L> {
    let list = Locked::<L>::new(1 + others as usize);
    (0..others).for_each(|other| list.0.with(|list| list.add(other + 2)));
    Box::leak(Box::new(list))
}

fn repeat<V: Variant>(shared: &'static V, mut own: V::Own<'static>) -> impl FnMut(u64) + 'static {
    move |n| {
        let shared = black_box(shared);
        for _ in 0..n {
            shared.operate(&mut own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_list_is_a_list() {
        let mut list = Links::new(3);
        [3, 2, 1].into_iter().for_each(|element| list.add(element));
        list.delete(2);
        assert_eq!((list.0[0].1, list.0[1].1, list.0[3].1), (1, 3, 0));
        assert_eq!((list.0[0].0, list.0[3].0, list.0[1].0), (3, 1, 0));
    }
}
