//! R-F10: the short path of a wake-up, inlined where a task is woken, or called. The path itself is the one
//! that ships; a function that is never inlined stands between it and its caller.

use super::{Contest, Contestant};
use manylane_sched::{Class, Config, Lane, TaskId, TaskKind, Time};
use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;

static KIND: TaskKind = TaskKind::new("woken");
/// Tasks that are woken in turns.
const TASKS: u64 = 256;

pub(crate) const INLINED: &str = "wake-up inlined";
pub(crate) const CALLED: &str = "wake-up called";

pub(super) const CONTESTS: &[Contest] =
    &[Contest { operation: "task: woken by its id + poll, 256 tasks", target: None, contestants }];

fn contestants() -> Vec<Contestant> {
    let lane = Rc::new(RefCell::new(Lane::new(Config::new()).expect("this thread has one at a time")));
    let here = lane.borrow().here();
    let spawn = |_| here.spawn(&KIND, Class::Normal, pending()).expect("there is memory");
    let ids: Rc<[TaskId]> = (0..TASKS).map(spawn).collect();
    let (same_lane, same_ids) = (lane.clone(), ids.clone());
    vec![
        Contestant::ours(INLINED, move |operations| rounds(operations, &lane, &ids, |id| id.wake())),
        Contestant::peer(CALLED, move |operations| rounds(operations, &same_lane, &same_ids, called)),
    ]
}

#[inline(never)]
fn called(id: TaskId) {
    id.wake();
}

#[inline(always)]
fn rounds(operations: u64, lane: &RefCell<Lane>, ids: &[TaskId], wake: impl Fn(TaskId)) {
    let mut lane = lane.borrow_mut();
    for _ in 0..operations.div_ceil(TASKS) {
        ids.iter().for_each(|&id| wake(id));
        while lane.round(Time::ZERO).more {}
    }
}
