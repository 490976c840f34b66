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
            generation.backends.iter().enumerate().map(|(index, backend)| (backend.id, index)).collect();
        let mut proxies = Vec::new();
        // As HAProxy, which does not list 'log-forward' sections.
        let listed = generation.frontends.iter().enumerate().filter(|(_, own)| own.forward.is_none());
        for (position, frontend) in listed {
            proxies.push((frontend.position, (Some(position), backends.remove(&frontend.id))));
        }
        let alone = backends.into_values();
        proxies.extend(alone.map(|number| (generation.backends[number].position, (None, Some(number)))));
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
            let cursor = Cursor { proxy: self.proxy, at: self.at };
            let sides = self.sides(generation, cursor)?;
            self.at = match self.at {
                At::Begin => At::Frontend,
                At::Frontend => At::Listener(0),
                At::Listener(index) if sides.front.is_some_and(|front| index < front.listeners.len()) => {
                    At::Listener(index + 1)
                }
                At::Listener(_) => At::Server(0),
                At::Server(position) if sides.back.is_some_and(|back| back.listed_at(position).is_some()) => {
                    At::Server(position + 1)
                }
                At::Server(_) => At::Backend,
                At::Backend => At::End,
                At::End => {
                    self.skip();
                    At::Begin
                }
            };
            if let Some(step) = self.at(generation, cursor) {
                return Some(step);
            }
        }
    }

    fn sides<'g>(&self, generation: &'g Generation, cursor: Cursor) -> Option<Sides<'g>> {
        let (front, back) = *self.proxies.get(cursor.proxy)?;
        Some(Sides {
            front: front.map(|index| &generation.frontends[index]),
            back: back.map(|position| &*generation.backends[position]),
        })
    }

    /// The step at a position, if there is one.
    fn at<'g>(&self, generation: &'g Generation, cursor: Cursor) -> Option<Step<'g>> {
        let sides = self.sides(generation, cursor)?;
        match cursor.at {
            At::Begin => Some(Step::Begin(sides)),
            At::Frontend => sides.front.map(Step::Frontend),
            At::Listener(index) => {
                let front = sides.front?;
                let own = front.listeners.get(index).filter(|own| own.reported)?;
                Some(Step::Listener(front, own))
            }
            At::Server(position) => {
                let back = sides.back?;
                let own = back.listed_at(position)?;
                Some(Step::Server(back, back.balancer.servers().index(own.index)?, own))
            }
            At::Backend => sides.back.map(Step::Backend),
            At::End => Some(Step::End(sides)),
        }
    }
}
