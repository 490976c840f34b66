//! Handling of completions.

use super::source::{Op, Readiness};
use super::{Completion, Uring};
use crate::core::{Core, Direction};
use io_uring::cqueue;
use rustix::io::Errno;

impl Uring {
    pub(super) fn complete(&self, core: &Core, completion: Completion) {
        let Completion { data, result, flags } = completion;
        let Some((op, key)) = Op::split(data) else { return };
        let last = !cqueue::more(flags);
        let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        match op {
            Op::Ignored => return,
            Op::WakeFd => {
                if last {
                    self.listening.set(false);
                    if result != Err(Errno::CANCELED) {
                        self.watch_wake_fd();
                    }
                }
                return;
            }
            _ => {}
        }
        if op == Op::Send {
            self.sent(core, key, result);
        }
        let mut sources = self.sources.borrow_mut();
        // Rule 2: the source exists as long as it has operations.
        let Some(source) = sources.get(key) else { return };
        let (reads, writes) = match op {
            Op::Receive => (self.received(core, source, key, result, flags), false),
            Op::Accept => (self.accepted(source, key, result, flags), false),
            Op::Readable => {
                source.set_readiness(Direction::Read, Readiness::Ready);
                (true, false)
            }
            Op::Writable => {
                source.room_polled(result);
                (false, true)
            }
            Op::Connect => {
                source.connecting = false;
                source.connected = Some(result.map(drop));
                (false, true)
            }
            Op::Send | Op::WakeFd | Op::Ignored => (false, false),
        };
        let mut detacher = None;
        if last {
            source.ops -= 1;
            detacher = source.detacher.take();
        }
        let reader = if reads { source.reader.take() } else { None };
        let writer = if writes { source.writer.take() } else { None };
        drop(sources);
        for waker in [reader, writer, detacher].into_iter().flatten() {
            waker.wake(); // rule 2 of the core
        }
        if last {
            self.end_if_idle(core, key);
        }
    }
}
