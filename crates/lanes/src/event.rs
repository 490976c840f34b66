//! An event on one lane that tasks of the lane wait for.

use std::cell::{Cell, RefCell};
use std::num::NonZero;
use std::task::{Context, Poll, Waker};

/// An event that happens once, or again for waiters that ask again. It stays on one lane.
#[derive(Debug, Default)]
pub struct Event {
    happened: Cell<bool>,
    waiters: RefCell<Waiters>,
}

/// Wakers of the waiters, by number. The numbers of waiters that left are used again.
#[derive(Debug, Default)]
struct Waiters {
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
}

impl Waiters {
    /// Returns the index of a slot, after it takes a number for a slot that has none.
    fn index_of(&mut self, slot: &mut WaiterSlot) -> usize {
        let Self { wakers, free } = self;
        let number = slot.0.map(NonZero::get).unwrap_or_else(|| {
            free.pop().unwrap_or_else(|| {
                wakers.push(None);
                // `free` is empty here; with this capacity, `leave` never allocates.
                free.reserve(wakers.len());
                u32::try_from(wakers.len()).expect("a lane has fewer tasks")
            })
        });
        slot.0 = NonZero::new(number);
        number as usize - 1
    }
}

/// A waiter that borrows the event.
#[derive(Debug)]
pub struct Waiter<'a> {
    event: &'a Event,
    slot: WaiterSlot,
}

/// Slot of a waiter that cannot borrow the event. Its owner must [leave](Event::leave) the event before it
/// drops the slot.
#[derive(Debug, Default)]
pub struct WaiterSlot(Option<NonZero<u32>>);

impl Event {
    /// Lets the event happen and wakes all waiters.
    pub fn happen(&self) {
        self.happened.set(true);
        let wakers: Vec<Waker> =
            self.waiters.borrow_mut().wakers.iter_mut().filter_map(Option::take).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Returns true if the event has happened.
    #[inline]
    pub fn has_happened(&self) -> bool {
        self.happened.get()
    }

    /// Returns a waiter. It takes a slot only when it is polled.
    #[inline]
    pub fn waiter(&self) -> Waiter<'_> {
        Waiter { event: self, slot: WaiterSlot::default() }
    }

    /// Ready when the event has happened. The event wakes the task that first polled with this slot.
    #[inline]
    pub fn poll(&self, slot: &mut WaiterSlot, context: &Context<'_>) -> Poll<()> {
        if self.happened.get() {
            return Poll::Ready(());
        }
        if slot.0.is_none() {
            self.ask_again(slot, context);
        }
        Poll::Pending
    }

    /// Wakes the task when the event happens once more.
    pub(crate) fn ask_again(&self, slot: &mut WaiterSlot, context: &Context<'_>) {
        let mut waiters = self.waiters.borrow_mut();
        let number = waiters.index_of(slot);
        waiters.wakers[number] = Some(context.waker().clone());
    }

    /// Returns the event and the slot to wait with. A waiter that `stays` although the event has happened
    /// gets none, and is woken when the event happens once more.
    #[inline]
    pub fn unless<'e>(
        &'e self,
        stays: bool,
        slot: &'e mut WaiterSlot,
        context: &Context<'_>,
    ) -> Option<(&'e Self, &'e mut WaiterSlot)> {
        if stays {
            self.ask_again(slot, context);
        }
        (!stays).then_some((self, slot))
    }

    /// Gives the slot back; its waiter is no longer woken.
    pub fn leave(&self, slot: &mut WaiterSlot) {
        if let Some(number) = slot.0.take() {
            let mut waiters = self.waiters.borrow_mut();
            waiters.wakers[number.get() as usize - 1] = None;
            waiters.free.push(number.get());
        }
    }
}

impl Waiter<'_> {
    /// Like [`Event::poll`].
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        self.event.poll(&mut self.slot, context)
    }

    /// Returns the event and the slot to wait with.
    pub fn parts(&mut self) -> (&Event, &mut WaiterSlot) {
        (self.event, &mut self.slot)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.event.leave(&mut self.slot);
    }
}
