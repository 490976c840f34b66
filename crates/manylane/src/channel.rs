//! Channel from threads that wait for events to the thread that handles them.

use manylane_sync::{Arc, LockClass, Mutex};
use std::collections::VecDeque;
use std::thread::Thread;
use std::time::Instant;

static CLASS: LockClass = LockClass::new("channel between threads", LockClass::LEAF);

/// The other side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disconnected;

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    senders: usize,
    is_read: bool,
    /// The thread that waits for the next item.
    waiter: Option<Thread>,
}

#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Mutex<Queue<T>>>);

#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Mutex<Queue<T>>>);

/// Returns the two sides of a new queue.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let queue = Queue { items: VecDeque::new(), senders: 1, is_read: true, waiter: None };
    let queue = Arc::new(Mutex::new(&CLASS, queue));
    (Sender(queue.clone()), Receiver(queue))
}

impl<T> Sender<T> {
    pub(crate) fn send(&self, item: T) -> Result<(), Disconnected> {
        let waiter = {
            let mut queue = self.0.lock();
            if !queue.is_read {
                return Err(Disconnected);
            }
            queue.items.push_back(item);
            queue.waiter.take()
        };
        waiter.iter().for_each(Thread::unpark);
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waiter = {
            let mut queue = self.0.lock();
            queue.senders -= 1;
            queue.waiter.take()
        };
        waiter.iter().for_each(Thread::unpark);
    }
}

impl<T> Receiver<T> {
    /// Waits for the next item. Fails if there is none and no sender is left.
    pub(crate) fn recv(&self) -> Result<T, Disconnected> {
        loop {
            if let Some(item) = self.recv_until(None)? {
                return Ok(item);
            }
        }
    }

    /// Waits for the next item, at most until the deadline. Fails if there is none and no sender is left.
    pub(crate) fn recv_until(&self, deadline: Option<Instant>) -> Result<Option<T>, Disconnected> {
        loop {
            {
                let mut queue = self.0.lock();
                if let Some(item) = queue.items.pop_front() {
                    return Ok(Some(item));
                }
                if queue.senders == 0 {
                    return Err(Disconnected);
                }
                queue.waiter = Some(std::thread::current());
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(left) if left.is_zero() => return Ok(None),
                Some(left) => std::thread::park_timeout(left),
            }
        }
    }

    /// Removes all items and returns their number.
    pub(super) fn drain(&self) -> usize {
        std::mem::take(&mut self.0.lock().items).len()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let items = {
            let mut queue = self.0.lock();
            queue.is_read = false;
            std::mem::take(&mut queue.items)
        };
        drop(items); // outside of the lock, since the items may be senders of other channels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let (sender, receiver) = channel();
        assert_eq!(receiver.recv_until(Some(Instant::now() + Duration::from_millis(1))), Ok(None));
        sender.send(1).unwrap();
        assert_eq!(receiver.recv_until(Some(Instant::now())), Ok(Some(1)));
    }

    #[test]
    fn what_is_sent_comes_in_order_and_each_side_knows_of_the_others_end() {
        let (sender, receiver) = channel();
        let others: Vec<_> = (0..4)
            .map(|number| {
                let sender = sender.clone();
                std::thread::spawn(move || (0..100).all(|item| sender.send((number, item)).is_ok()))
            })
            .collect();
        drop(sender);
        let mut next = [0; 4];
        while let Ok((number, item)) = receiver.recv() {
            assert_eq!(item, next[number]);
            next[number] += 1;
        }
        assert_eq!(next, [100; 4]);
        assert!(others.into_iter().all(|other| other.join().unwrap()));
        let (sender, receiver) = channel();
        assert_eq!((sender.send(1), sender.send(2), receiver.drain()), (Ok(()), Ok(()), 2));
        drop(receiver);
        assert_eq!(sender.send(3), Err(Disconnected));
    }
}
