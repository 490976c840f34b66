//! What lanes write under locks of all that has a line in `show stat`. It is read apart from the making of
//! lines, which takes longer and is left to threads that may lose their processor for seconds: within a lock
//! they would keep a lane waiting (`manylane_proxy::pages`).

use crate::walk::{Cursor, Step, Walk};
use manylane_balance::{Index, Standing};
use manylane_check::{Report, Since};
use manylane_proxy::Generation;
use manylane_proxy::generation::{Backend, Server, ServerPlace};
use manylane_proxy::meter::Snapshot;
use manylane_proxy::pages::READ_AT_ONCE;
use std::collections::VecDeque;

/// Of so many it is read before lines are made: half a megabyte or so, twice that when counters were cleared.
pub(crate) const AHEAD: usize = 1_024;

/// Of so many before the first line, which somebody waits for.
pub(crate) const AT_FIRST: usize = 256;

/// So many are passed by in a part at most, which takes no lock.
const PASSED_AT_ONCE: usize = 1_024;

/// What was seen of one.
#[derive(Default)]
pub(crate) struct StatSnapshot {
    pub(crate) meter: Snapshot,
    /// Of the server that is looked after: the end of the chain, where it tracks another one.
    pub(crate) check: Option<Report>,
    pub(crate) agent: Option<Report>,
    /// Of servers and backends.
    pub(crate) past: Option<Since>,
    /// Of servers.
    pub(crate) standing: Option<Standing>,
    /// Where a server is.
    pub(crate) place: Option<ServerPlace>,
}

impl StatSnapshot {
    fn of(generation: &Generation, step: &Step<'_>) -> Self {
        match step {
            Step::Begin(_) | Step::End(_) => Self::default(),
            Step::Frontend(front) => Self::paced(front.counts.looked()),
            Step::Listener(_, own) => Self::paced(own.counts.looked()),
            Step::Server(back, index, own) => Self::server(generation, back, *index, own),
            Step::Backend(back) => Self::backend(back),
        }
    }

    pub(crate) fn paced(meter: Snapshot) -> Self {
        Self { meter, ..Self::default() }
    }

    pub(crate) fn backend(backend: &Backend) -> Self {
        Self { past: Some(backend.past.read()), ..Self::paced(backend.counts.looked()) }
    }

    pub(crate) fn server(generation: &Generation, backend: &Backend, index: Index, server: &Server) -> Self {
        let (_, root) = generation.server(generation.root_of(backend.number_of(index)));
        Self {
            check: root.check.as_ref().map(|check| check.board.read()).filter(|report| !report.disabled),
            agent: root.agent.as_ref().map(|agent| agent.board.read()).filter(|report| !report.disabled),
            past: Some(server.past.read()),
            standing: Some(backend.balancer.servers()[index].state().standing()),
            place: Some(server.addr.place()),
            ..Self::paced(server.counts.looked())
        }
    }
}

/// What is read before something is made of it: so many at first, since somebody waits for that, and then by
/// turns, [`AHEAD`] of them in parts of [`READ_AT_ONCE`].
pub(crate) struct Read<T> {
    all: VecDeque<T>,
    begun: bool,
    /// Enough was read: it is to be taken.
    full: bool,
    /// There is no more to read.
    whole: bool,
}

impl<T> Default for Read<T> {
    fn default() -> Self {
        Self { all: VecDeque::new(), begun: false, full: false, whole: false }
    }
}

impl<T> Read<T> {
    /// The next part reads.
    pub(crate) fn reads(&self) -> bool {
        !self.full
    }

    /// All was read and taken.
    pub(crate) fn is_over(&self) -> bool {
        self.whole && self.all.is_empty()
    }

    /// Reads a part: `next` says what comes next, nothing at the end, and nothing of what is passed by.
    /// Whether something is to be made of it in the same part, as of the first, which somebody waits for:
    /// who makes the others is not who reads them.
    pub(crate) fn part(&mut self, mut next: impl FnMut() -> Option<Option<T>>) -> bool {
        let first = !std::mem::replace(&mut self.begun, true);
        let (mut left, mut passed) = (if first { AT_FIRST } else { READ_AT_ONCE }, 0);
        while left > 0 && passed < PASSED_AT_ONCE {
            let Some(one) = next() else {
                self.whole = true;
                break;
            };
            if let Some(one) = one {
                self.all.push_back(one);
                left -= 1;
            } else {
                passed += 1;
            }
        }
        self.full = first || self.whole || self.all.len() >= AHEAD;
        first
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        let one = self.all.pop_front();
        if one.is_none() {
            self.full = self.whole;
            self.all = VecDeque::new(); // a page may go on without it for long
        }
        one
    }
}

/// A walk whose next steps were seen before they are taken.
pub(crate) struct Ahead {
    walk: Walk,
    seen: Read<(Cursor, StatSnapshot)>,
}

impl Ahead {
    pub(crate) fn new(generation: &Generation) -> Self {
        Self { walk: Walk::new(generation), seen: Read::default() }
    }

    /// The next part looks.
    pub(crate) fn reads(&self) -> bool {
        self.seen.reads()
    }

    /// Looks at the next steps that are `wanted`; a proxy whose beginning is not is left out. Whether lines
    /// are to be made in the same part.
    pub(crate) fn look(&mut self, generation: &Generation, wanted: impl Fn(&Step<'_>) -> bool) -> bool {
        let Self { walk, seen } = self;
        seen.part(|| {
            let (place, step) = walk.next(generation)?;
            if wanted(&step) {
                return Some(Some((place, StatSnapshot::of(generation, &step))));
            }
            if matches!(step, Step::Begin(_)) {
                walk.skip();
            }
            Some(None)
        })
    }

    /// The next step of those that were seen.
    pub(crate) fn next<'g>(&mut self, generation: &'g Generation) -> Option<(Step<'g>, StatSnapshot)> {
        let (place, seen) = self.seen.take()?;
        self.walk.at(generation, place).map(|step| (step, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_comes_in_order_and_whole_in_parts_that_are_bounded() {
        let lengths = [0, 1, AT_FIRST - 1, AT_FIRST, AT_FIRST + 1, AT_FIRST + AHEAD, 5_000];
        for (length, every) in
            lengths.into_iter().flat_map(|length| [1, 2, 1_500, 10_000].map(|every| (length, every)))
        {
            let (mut left, mut read, mut taken) = (0..length, Read::default(), Vec::new());
            let (mut parts, mut most) = (0, 0);
            while !read.is_over() {
                if read.reads() {
                    let (before, had) = (left.len(), read.all.len());
                    // Of most nothing is wanted.
                    let at_once =
                        read.part(|| left.next().map(|number| (number % every == 0).then_some(number)));
                    assert_eq!(at_once, parts == 0);
                    assert!(read.all.len() - had <= if parts == 0 { AT_FIRST } else { READ_AT_ONCE });
                    assert!(before - left.len() <= PASSED_AT_ONCE + AT_FIRST);
                    (parts, most) = (parts + 1, most.max(read.all.len()));
                } else {
                    taken.extend(read.take());
                }
            }
            assert!(!read.reads() && most <= AHEAD + READ_AT_ONCE);
            assert_eq!(taken, (0..length).step_by(every).collect::<Vec<_>>());
            assert!(every < 10_000 || parts <= 1 + length / PASSED_AT_ONCE + 1, "{length}: {parts}");
        }
    }
}
