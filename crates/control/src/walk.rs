//! Iterates over all lines of `show stat`. A walk can pause between steps and continue on another thread.

use manylane_balance::Index;
use manylane_plan::Generation;
use manylane_plan::generation::{Backend, Frontend, Listener, Server};
use std::collections::HashMap;

/// A step of the walk.
pub(crate) enum Step<'g> {
    /// A proxy begins; [`Walk::skip`] leaves it out.
    Begin(Sides<'g>),
    Frontend(&'g Frontend),
    Listener(&'g Frontend, &'g Listener),
    Server(&'g Backend, Index, &'g Server),
    Backend(&'g Backend),
    /// The proxy has no more lines.
    End(Sides<'g>),
}

/// The sides of a proxy; a `listen` section has both.
#[derive(Clone, Copy)]
pub(crate) struct Sides<'g> {
    pub(crate) front: Option<&'g Frontend>,
    pub(crate) back: Option<&'g Backend>,
}

impl<'g> Sides<'g> {
    pub(crate) fn name(self) -> &'g str {
        self.front.map(|front| &*front.name).or(self.back.map(|back| &*back.name)).unwrap_or_default()
    }

    pub(crate) fn id(self) -> u32 {
        self.front.map(|front| front.id).or(self.back.map(|back| back.id)).unwrap_or_default()
    }
}

/// A walk over all proxies of a generation, in the order of the configuration.
pub(crate) struct Walk {
    /// For each proxy, the indices of its sides in the generation's frontends and backends.
    proxies: Box<[(Option<usize>, Option<usize>)]>,
    proxy: usize,
    at: At,
}

/// Position of a step.
#[derive(Clone, Copy)]
struct Cursor {
    proxy: usize,
    at: At,
}

/// Position within a proxy.
#[derive(Clone, Copy)]
enum At {
    Begin,
    Frontend,
    Listener(usize),
    Server(usize),
    Backend,
    End,
}

impl Walk {
    pub(crate) fn new(generation: &Generation) -> Self {
        let mut backends: HashMap<u32, usize> =
            generation.backends.iter().enumerate().map(|(place, backend)| (backend.id, place)).collect();
        let mut proxies = Vec::new();
        // As HAProxy, which does not list 'log-forward' sections.
        let listed = generation.frontends.iter().enumerate().filter(|(_, own)| own.forward.is_none());
        for (place, frontend) in listed {
            proxies.push((frontend.place, (Some(place), backends.remove(&frontend.id))));
        }
        let alone = backends.into_values();
        proxies.extend(alone.map(|place| (generation.backends[place].place, (None, Some(place)))));
        proxies.sort_unstable();
        Self { proxies: proxies.into_iter().map(|(_, sides)| sides).collect(), proxy: 0, at: At::Begin }
    }

    /// Skips the rest of the current proxy.
    pub(crate) fn skip(&mut self) {
        (self.proxy, self.at) = (self.proxy + 1, At::Begin);
    }

    /// The next step. `generation` must be the one that the walk was made for.
    pub(crate) fn next<'g>(&mut self, generation: &'g Generation) -> Option<Step<'g>> {
        loop {
            let place = Cursor { proxy: self.proxy, at: self.at };
            let sides = self.sides(generation, place)?;
            self.at = match self.at {
                At::Begin => At::Frontend,
                At::Frontend => At::Listener(0),
                At::Listener(place) if sides.front.is_some_and(|front| place < front.listeners.len()) => {
                    At::Listener(place + 1)
                }
                At::Listener(_) => At::Server(0),
                At::Server(place) if sides.back.is_some_and(|back| back.listed_at(place).is_some()) => {
                    At::Server(place + 1)
                }
                At::Server(_) => At::Backend,
                At::Backend => At::End,
                At::End => {
                    self.skip();
                    At::Begin
                }
            };
            if let Some(step) = self.at(generation, place) {
                return Some(step);
            }
        }
    }

    fn sides<'g>(&self, generation: &'g Generation, place: Cursor) -> Option<Sides<'g>> {
        let (front, back) = *self.proxies.get(place.proxy)?;
        Some(Sides {
            front: front.map(|place| &generation.frontends[place]),
            back: back.map(|place| &*generation.backends[place]),
        })
    }

    /// The step at a position, if there is one.
    fn at<'g>(&self, generation: &'g Generation, place: Cursor) -> Option<Step<'g>> {
        let sides = self.sides(generation, place)?;
        match place.at {
            At::Begin => Some(Step::Begin(sides)),
            At::Frontend => sides.front.map(Step::Frontend),
            At::Listener(place) => {
                let front = sides.front?;
                let own = front.listeners.get(place).filter(|own| own.reported)?;
                Some(Step::Listener(front, own))
            }
            At::Server(place) => {
                let back = sides.back?;
                let own = back.listed_at(place)?;
                Some(Step::Server(back, back.balancer.servers().index(own.index)?, own))
            }
            At::Backend => sides.back.map(Step::Backend),
            At::End => Some(Step::End(sides)),
        }
    }
}
