//! Something that happens on a lane, and that its tasks wait for.

use std::cell::{Cell, RefCell};
use std::num::NonZero;
use std::task::{Context, Poll, Waker};

/// Happens once, or once more for those who asked again. Of one lane.
#[derive(Debug, Default)]
pub(crate) struct Event {
    happened: Cell<bool>,
    waiters: RefCell<Waiters>,
}

/// Who waits, by number; the number of a waiter that has left is used again.
#[derive(Debug, Default)]
struct Waiters {
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
}

impl Waiters {
    /// The index of a place, taken if it was none.
    fn place(&mut self, place: &mut WaiterSlot) -> usize {
        let Self { wakers, free } = self;
        let number = place.0.map(NonZero::get).unwrap_or_else(|| {
            free.pop().unwrap_or_else(|| {
                wakers.push(None);
                free.reserve(wakers.len()); // it is empty; so to leave a place never asks for memory
                u32::try_from(wakers.len()).expect("a lane has fewer tasks")
            })
        });
        place.0 = NonZero::new(number);
        number as usize - 1
    }
}

/// One that waits.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    event: &'a Event,
    place: WaiterSlot,
}

/// Where somebody waits who cannot hold on to the event. Whoever has it [leaves](Event::leave) it before it
/// is dropped.
#[derive(Debug, Default)]
pub(crate) struct WaiterSlot(Option<NonZero<u32>>);

impl Event {
    /// It happens now: who waits is woken.
    pub(crate) fn happen(&self) {
        self.happened.set(true);
        let wakers: Vec<Waker> =
            self.waiters.borrow_mut().wakers.iter_mut().filter_map(Option::take).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Whether it has.
    pub(crate) fn has_happened(&self) -> bool {
        self.happened.get()
    }

    /// Somebody who may wait for it. Costs nothing before it is polled.
    pub(crate) fn waiter(&self) -> Waiter<'_> {
        Waiter { event: self, place: WaiterSlot::default() }
    }

    /// Ready when it has happened. The task that asks first with this place is the one that is woken.
    pub(crate) fn poll(&self, place: &mut WaiterSlot, context: &Context<'_>) -> Poll<()> {
        if self.happened.get() {
            return Poll::Ready(());
        }
        if place.0.is_none() {
            self.ask_again(place, context);
        }
        Poll::Pending
    }

    /// The task is woken when it happens once more.
    pub(crate) fn ask_again(&self, place: &mut WaiterSlot, context: &Context<'_>) {
        let mut waiters = self.waiters.borrow_mut();
        let number = waiters.place(place);
        waiters.wakers[number] = Some(context.waker().clone());
    }

    /// What to wait for, and where; nothing for who `stays` although it has happened, and is woken when it
    /// happens once more.
    pub(crate) fn unless<'e>(
        &'e self,
        stays: bool,
        place: &'e mut WaiterSlot,
        context: &Context<'_>,
    ) -> Option<(&'e Self, &'e mut WaiterSlot)> {
        if stays {
            self.ask_again(place, context);
        }
        (!stays).then_some((self, place))
    }

    /// Nobody waits there any more.
    pub(crate) fn leave(&self, place: &mut WaiterSlot) {
        if let Some(number) = place.0.take() {
            let mut waiters = self.waiters.borrow_mut();
            waiters.wakers[number.get() as usize - 1] = None;
            waiters.free.push(number.get());
        }
    }
}

impl Waiter<'_> {
    /// As [`Event::poll`].
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        self.event.poll(&mut self.place, context)
    }

    /// What it waits for, and where.
    pub(crate) fn place(&mut self) -> (&Event, &mut WaiterSlot) {
        (self.event, &mut self.place)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.event.leave(&mut self.place);
    }
}
