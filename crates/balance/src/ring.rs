//! Consistent hashing: each server has many points on a ring of 32 bits, and a key belongs to the closest
//! point.
//!
//! D. Karger et al., *Consistent Hashing and Random Trees* (1997); with a bound on loads: V. Mirrokni, M.
//! Thorup, M. Zadimoghaddam, *Consistent Hashing with Bounded Loads* (2018).
//!
//! A server has one point for each sixteenth of its weight. The positions of its points depend only on its
//! hash key (its id). So a server that comes or goes moves only its own keys, and all balancers with the same
//! ids agree, HAProxy among them.
//!
//! # Changes
//! The ring has the points of all servers at their full weights, whether they take part or not. A look-up
//! skips the points of servers that do not; a server with half of its weight takes part with the first half
//! of its points. So the ring stays the same when a server's state changes, or its weight up to the full one.
//! A look-up finds the same server as on a ring of only the servers that take part.
//!
//! # Layout
//! Points and owners are in ascending order of position. For each value of a point's upper bits, `starts`
//! holds the start of its run; a run has about one point. A look-up reads one start and the few points behind
//! it, however many servers there are.

use crate::algorithm::{Algorithm, Row};
use crate::lane::LaneNeeds;
use crate::snapshot::{Members, Prepared};
use crate::spec::WEIGHT_SCALE;
use manylane_expr::hash::avalanche;
use manylane_sync::Arc;

/// Row of all algorithms by key with `hash-type consistent`; they pick as in [`by_key`](crate::by_key).
pub(crate) const ROW: Row = Row {
    by_key: true,
    wants: |options| LaneNeeds { view: options.balance_factor != 0, ..LaneNeeds::default() },
    prepare,
    ..Row::new("hash", |_, kind| Algorithm::Hash(kind))
};

/// Returns the ring of all servers, rebuilt if it lacks points; or a small ring of the servers that take
/// part.
fn prepare(members: &mut Members<'_>) -> Prepared {
    let all = members.kept.ring.take().filter(|ring| ring.covers(members.by_server));
    let all = all.unwrap_or_else(|| Arc::new(full(members)));
    members.kept.ring = Some(all.clone());
    Prepared::Ring(if all.is_sparse(members.total) { Arc::new(Ring::new(members.hashed())) } else { all })
}

/// Builds the ring of all servers. Each has its configured weight, or the weight that was set if that is
/// more.
fn full(members: &Members<'_>) -> Ring {
    let there = members.servers.iter().filter(|(_, server)| !server.spec.gone);
    let full: Vec<_> = there
        .map(|(index, server)| {
            let weight = server.spec.weight.max(server.state.weight());
            (index.0, server.spec.hash_key(), u32::from(weight) * WEIGHT_SCALE)
        })
        .collect();
    Ring::new(full.into_iter())
}

/// Size of the range of hashed numbers that holds the points of one server.
const POINT_RANGE: u32 = 4096;

/// Largest number of points of all servers: those of a thousand servers with the greatest weight. Without
/// this bound, time and memory of a rebuild would grow with every weight. Above it, servers have fewer
/// points, in proportion to their weights, but at least one each.
const MAX_POINTS: u64 = 1000 * 256 * 16;

/// Largest number of points of absent servers that a look-up skips on average, about half a microsecond. If a
/// smaller share of the points takes part, the servers that take part get a small ring.
pub(crate) const MAX_SKIPPED: u64 = 256;

#[derive(Debug)]
pub(crate) struct Ring {
    points: Box<[u32]>,
    owners: Box<[Owner]>,
    starts: Box<[u32]>,
    /// A point's run is its upper bits: `point >> shift`.
    shift: u32,
    /// Full weights by server, in sixteenths; servers behind the end have none.
    full: Box<[u32]>,
    /// Sum of `full`.
    wanted: u64,
}

/// Owner of a point.
#[derive(Clone, Copy, Debug)]
struct Owner {
    server: u16,
    /// The point takes part if the server has more points than this now.
    nth: u16,
}

/// Returns the number of points of a server with `weight` sixteenths, if all weights together are `wanted`.
#[inline]
fn points(weight: u32, wanted: u64) -> u32 {
    match wanted > MAX_POINTS && weight > 0 {
        true => (u64::from(weight) * MAX_POINTS / wanted).max(1) as u32,
        false => weight,
    }
}

impl Ring {
    /// Builds the ring of servers, each with its hash key and its full weight in sixteenths.
    ///
    /// Cost: sorts as many points as the sum of all weights, at most about [`MAX_POINTS`].
    pub(crate) fn new(members: impl Iterator<Item = (u16, u32, u32)> + Clone) -> Self {
        #[cfg(all(test, not(any(loom, manylane_sim))))]
        tests::BUILT.set(tests::BUILT.get() + 1);
        let wanted: u64 = members.clone().map(|(_, _, weight)| u64::from(weight)).sum();
        let mut full = Vec::new();
        // From the upper bits to the lower ones: position, server, and number of the point.
        let mut all: Vec<u64> = Vec::new();
        for (server, hash_key, weight) in members {
            let index = usize::from(server);
            full.resize(full.len().max(index + 1), 0);
            full[index] = weight;
            let first = hash_key.wrapping_mul(POINT_RANGE);
            all.extend((0..points(weight, wanted)).map(|n| {
                u64::from(avalanche(first.wrapping_add(n))) << 32 | u64::from(server) << 16 | u64::from(n)
            }));
        }
        all.sort_unstable();
        let runs = all.len().next_power_of_two().clamp(2, 1 << 20);
        let shift = 32 - runs.trailing_zeros();
        let position = |at: usize| (all[at] >> 32) as u32;
        let mut starts = Vec::with_capacity(runs + 1);
        let mut at = 0;
        for run in 0..=runs {
            while at < all.len() && ((position(at) >> shift) as usize) < run {
                at += 1;
            }
            starts.push(at as u32);
        }
        Self {
            points: (0..all.len()).map(position).collect(),
            owners: all.iter().map(|&n| Owner { server: (n >> 16) as u16, nth: n as u16 }).collect(),
            starts: starts.into(),
            shift,
            full: full.into(),
            wanted,
        }
    }

    /// Returns the full weight of a server on this ring.
    pub(crate) fn full(&self, server: usize) -> u32 {
        self.full.get(server).copied().unwrap_or(0)
    }

    /// Returns whether the ring has all points of servers with these weights.
    pub(crate) fn covers(&self, weights: &[u32]) -> bool {
        weights.iter().enumerate().all(|(server, &weight)| weight <= self.full(server))
    }

    /// Returns whether a look-up skips more than [`MAX_SKIPPED`] points on average, if the weights of the
    /// servers that take part have the sum `total`.
    pub(crate) fn is_sparse(&self, total: u64) -> bool {
        self.wanted > total.saturating_mul(MAX_SKIPPED)
    }

    /// Returns the server closest to `hash`; if `good` refuses it, the next on the ring that `good` accepts.
    /// `weights` are the effective ones by server; none is above the full one.
    #[inline]
    pub(crate) fn pick(&self, weights: &[u32], hash: u32, good: impl Fn(usize) -> bool) -> Option<usize> {
        let len = self.points.len();
        if len == 0 {
            return None;
        }
        let takes_part = |at: &usize| {
            let Owner { server, nth } = self.owners[*at];
            u32::from(nth) < points(weights[usize::from(server)], self.wanted)
        };
        let mut after = self.starts[(hash >> self.shift) as usize] as usize;
        while after < len && self.points[after] < hash {
            after += 1;
        }
        let next = (after..len).chain(0..after).find(takes_part)?;
        let previous = (after..len).chain(0..after).rev().find(takes_part)?;
        let to_next = self.points[next].wrapping_sub(hash);
        let from_previous = hash.wrapping_sub(self.points[previous]);
        let at = if from_previous <= to_next { previous } else { next };
        let server = |at: usize| usize::from(self.owners[at].server);
        (at..len).chain(0..at).filter(takes_part).map(server).find(|&server| good(server))
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use crate::{Admin, Algorithm, Balancer, HashType, Input, Key, Options, ServerSpec, Servers};
    use manylane_sched::Time;
    use manylane_sync::Reader;
    use proptest::prelude::*;
    use std::cell::Cell;

    thread_local! {
        /// Number of rings that this thread has built.
        pub(super) static BUILT: Cell<u32> = const { Cell::new(0) };
    }

    /// Returns `usual`, or the number of cases in `PROPTEST_CASES`.
    fn cases(usual: u32) -> u32 {
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(128)))]

        /// Weights in sixteenths, as during slow starts.
        #[test]
        fn a_look_up_finds_what_it_finds_on_a_ring_of_those_who_take_part(
            servers in prop::collection::vec((any::<u32>(), 0u32..200, 0u32..=100), 1..20),
            hashes in prop::collection::vec(any::<u32>(), 64),
            bad in any::<u16>(),
        ) {
            let of = |weight: fn(u32, u32) -> u32| {
                let of = |(n, &(key, full, percent))| (n as u16, key, weight(full, percent));
                servers.iter().enumerate().map(of).collect::<Vec<_>>()
            };
            let part = of(|full, percent| full * percent / 100);
            let weights: Vec<u32> = part.iter().map(|&(_, _, weight)| weight).collect();
            let whole = Ring::new(of(|full, _| full).into_iter());
            let anew = Ring::new(part.into_iter());
            prop_assert!(whole.covers(&weights));
            let good = |server: usize| bad >> (server % 16) & 1 == 0;
            // Also the points themselves and their neighbours.
            let near = whole.points.iter().take(64).flat_map(|&p| [p.wrapping_sub(1), p, p.wrapping_add(1)]);
            for hash in hashes.iter().copied().chain(near).chain([0, u32::MAX]) {
                prop_assert_eq!(whole.pick(&weights, hash, good), anew.pick(&weights, hash, good));
            }
        }
    }

    /// A thousand changes among a thousand servers, with a pick behind each, build no ring: neither the
    /// thread that changes a server pays for one, nor the lane that picks.
    #[test]
    fn changes_of_states_and_weights_build_no_ring() {
        let spec = |id| ServerSpec { weight: 10, ..ServerSpec::new(format!("s{id}"), id) };
        let servers = Servers::new((1..=1000).map(spec)).unwrap();
        let b = Balancer::new(servers, Algorithm::Hash(HashType::CONSISTENT), Options::default());
        let (reader, mut picked) = (Reader::new(), 0);
        let mut pick = |n: usize| {
            let input = Input { key: Key::Bytes(&n.to_le_bytes()), ..Input::new(Time::ZERO) };
            picked += usize::from(b.pick(&reader, &input).is_ok());
        };
        pick(0);
        let before = BUILT.get();
        assert_eq!(before, 1);
        for n in 0..1000 {
            let index = b.servers().index(n * 37 % 500).unwrap();
            match n % 4 {
                0 => b.set_admin(index, Admin::Maintenance, Time::ZERO),
                1 => b.set_weight(index, 5, Time::ZERO).unwrap(),
                2 => b.set_admin(index, Admin::Drain, Time::ZERO),
                _ => b.set_admin(index, Admin::Ready, Time::ZERO),
            }
            pick(n);
        }
        assert_eq!((BUILT.get(), picked), (before, 1001));
    }

    #[test]
    fn points_are_bounded_and_every_server_has_some() {
        let all =
            |servers: u64, weight: u32| servers * u64::from(points(weight, servers * u64::from(weight)));
        assert_eq!(all(1_000, 4_096), MAX_POINTS);
        assert_eq!(points(4_096, 1_000 * 4_096), 4_096);
        assert!((MAX_POINTS / 2..=MAX_POINTS).contains(&all(65_535, 4_096)));
        assert_eq!(points(1, 65_535 * 4_096), 1);
        assert_eq!(points(0, 65_535 * 4_096), 0);
    }
}
