//! R-E1: a list to which all threads add, and from which they delete.
//!
//! There are two cases. In `list`, each thread works at its own position of the list, between two elements
//! that stay: link locks then touch no shared memory, while one mutex is shared in any case. In `list-head`,
//! all threads work at the head, where no list can scale; it shows the cost of link locking there.

use super::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_list::{MtList, Node};
use manylane_sync::atomic::OwnedU64;
use manylane_sync::{CachePadded, LockClass, Mutex, label};
use std::pin::Pin;

pub(super) static CASE: Case = Case {
    name: "list",
    operation: "add an own element at an own place, delete it",
    requirement: "R-E1",
    contenders: &[
        Contender::of::<UnderMutex<false>>(Role::Before),
        Contender::of::<LinkLocks<false>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

pub(super) static HEAD_CASE: Case = Case {
    name: "list-head",
    operation: "add an own element at the head, delete it",
    requirement: "R-E1",
    contenders: &[
        Contender::of::<UnderMutex<true>>(Role::Before),
        Contender::of::<LinkLocks<true>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: false,
};

static LIST: LockClass = LockClass::new("bench list", LockClass::LEAF);

/// Elements of each thread: two that stay, and one that is added and deleted.
const EACH: usize = 3;

/// A doubly linked list under one mutex; links are indices of elements.
struct UnderMutex<const AT_HEAD: bool> {
    lock: CachePadded<Mutex<()>>,
    /// The head, followed by `EACH` elements for each thread.
    nodes: Box<[CachePadded<Links>]>,
}

/// Written only under the lock.
struct Links {
    prev: OwnedU64,
    next: OwnedU64,
}

const HEAD: u64 = 0;

impl<const AT_HEAD: bool> UnderMutex<AT_HEAD> {
    fn node(&self, index: u64) -> &Links {
        &self.nodes[index as usize]
    }

    #[inline]
    fn add_after(&self, anchor: u64, new: u64) {
        let _held = self.lock.lock();
        let next = self.node(anchor).next.get();
        self.node(new).prev.set(anchor);
        self.node(new).next.set(next);
        self.node(anchor).next.set(new);
        self.node(next).prev.set(new);
    }

    #[inline]
    fn delete(&self, index: u64) {
        let _held = self.lock.lock();
        let (prev, next) = (self.node(index).prev.get(), self.node(index).next.get());
        self.node(prev).next.set(next);
        self.node(next).prev.set(prev);
    }
}

/// The position and the element of a thread.
struct Position {
    after: u64,
    element: u64,
}

impl<const AT_HEAD: bool> Variant for UnderMutex<AT_HEAD> {
    const NAME: &'static str = "mutex list";
    type Own<'a> = Position;

    fn new(threads: usize) -> Self {
        let node = || CachePadded::new(Links { prev: OwnedU64::new(HEAD), next: OwnedU64::new(HEAD) });
        let list = Self {
            lock: CachePadded::new(Mutex::new(&LIST, ())),
            nodes: (0..=threads * EACH).map(|_| node()).collect(),
        };
        for thread in (0..threads as u64).rev() {
            list.add_after(HEAD, thread * EACH as u64 + 2);
            list.add_after(HEAD, thread * EACH as u64 + 1);
        }
        label(&*list.nodes, "list elements");
        list
    }

    fn enter(&self, thread: usize) -> Position {
        label(&self.lock, "list mutex");
        let first = (thread * EACH) as u64 + 1;
        Position { after: if AT_HEAD { HEAD } else { first }, element: first + 2 }
    }

    #[inline]
    fn operate(&self, position: &mut Position) {
        self.add_after(position.after, position.element);
        self.delete(position.element);
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let mut found = Vec::new();
        let mut at = self.node(HEAD).next.get();
        while at != HEAD && found.len() <= self.nodes.len() {
            found.push(at);
            at = self.node(at).next.get();
        }
        let wanted: Vec<u64> =
            (1..self.nodes.len() as u64).filter(|index| index % EACH as u64 != 0).collect();
        if found == wanted {
            return Ok(());
        }
        Err(format!("the list should hold {} elements in order and holds {found:?}", wanted.len()))
    }
}

/// An element on its own lines; its value is its number, as above.
type Element<'a> = Pin<Box<Node<'a, CachePadded<u64>>>>;

/// The list with link locks, `MtList`.
struct LinkLocks<const AT_HEAD: bool> {
    list: MtList<CachePadded<u64>>,
}

/// The thread's two elements that stay, and the one that is added and deleted.
struct Elements<'a> {
    stays: [Element<'a>; 2],
    moves: Element<'a>,
}

impl<const AT_HEAD: bool> Variant for LinkLocks<AT_HEAD> {
    const NAME: &'static str = "MtList";
    type Own<'a> = Elements<'a>;

    fn new(_: usize) -> Self {
        let list = MtList::new();
        list.label("head of the MtList");
        Self { list }
    }

    fn enter(&self, thread: usize) -> Elements<'_> {
        let first = (thread * EACH) as u64 + 1;
        let element = |number| Box::pin(Node::new(&self.list, CachePadded::new(number)));
        let own = Elements { stays: [element(first), element(first + 1)], moves: element(first + 2) };
        // The first one is added at the end and the second right after it: they stay neighbours, whatever
        // other threads add.
        own.stays[0].as_ref().add_tail();
        assert!(own.stays[1].as_ref().insert_after(own.stays[0].as_ref()), "nobody takes it out");
        own
    }

    #[inline]
    fn operate(&self, own: &mut Elements<'_>) {
        let element = own.moves.as_ref();
        if AT_HEAD {
            element.add();
        } else {
            assert!(element.insert_after(own.stays[0].as_ref()), "nobody takes the place out");
        }
        assert!(element.delete(), "nobody else takes it out");
    }

    fn check(&self, _: u64) -> Result<(), String> {
        // The threads have dropped their elements.
        if self.list.is_empty() { Ok(()) } else { Err("elements are left that nobody owns".to_string()) }
    }
}
