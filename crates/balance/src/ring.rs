//! Consistent hashing: servers stand many times on a ring of 32 bits, a key belongs to the closest.
//!
//! D. Karger et al., *Consistent Hashing and Random Trees* (1997); with a bound on loads: V. Mirrokni, M.
//! Thorup, M. Zadimoghaddam, *Consistent Hashing with Bounded Loads* (2018).
//!
//! A server stands on the ring as often as its weight has sixteenths, at places that depend on its hash key
//! (its id) alone. So only the keys of a server that comes or goes move, and all balancers with the same ids
//! agree, HAProxy among them.
//!
//! # Layout
//! Points and servers in ascending order of place; `starts` tells for each value of a place's upper bits
//! where its run begins, with about one place a run. A look-up reads one start and the few places behind it,
//! however many servers there are.

use manylane_expr::hash::avalanche;

/// Points of one server lie in a range of hashed numbers of this size.
const PLACES_OF_ONE: u32 = 4096;

/// Points of all servers: a thousand of them with the greatest weight. More would have the time and the
/// memory of a rebuild grow with every weight; servers have fewer places instead, in the proportion of their
/// weights, and each one at least.
const MAX_PLACES: u64 = 1000 * 256 * 16;

#[derive(Debug)]
pub(crate) struct Ring {
    places: Box<[u32]>,
    servers: Box<[u16]>,
    starts: Box<[u32]>,
    /// A place's run is its upper bits: `place >> shift`.
    shift: u32,
}

/// Points of a server with this weight in sixteenths, where all weights together are `wanted`.
fn places(weight: u32, wanted: u64) -> u32 {
    match wanted > MAX_PLACES && weight > 0 {
        true => (u64::from(weight) * MAX_PLACES / wanted).max(1) as u32,
        false => weight,
    }
}

impl Ring {
    /// The ring of servers, each with its hash key and its weight in sixteenths.
    ///
    /// Cost: sorts the sum of all weights, or [`MAX_PLACES`] if that is less.
    pub(crate) fn new(members: impl Iterator<Item = (u16, u32, u32)> + Clone) -> Self {
        let wanted: u64 = members.clone().map(|(_, _, weight)| u64::from(weight)).sum();
        let mut all = Vec::new();
        for (server, hash_key, weight) in members {
            let first = hash_key.wrapping_mul(PLACES_OF_ONE);
            all.extend((0..places(weight, wanted)).map(|n| (avalanche(first.wrapping_add(n)), server)));
        }
        all.sort_unstable();
        let runs = all.len().next_power_of_two().clamp(2, 1 << 20);
        let shift = 32 - runs.trailing_zeros();
        let mut starts = Vec::with_capacity(runs + 1);
        let mut at = 0;
        for run in 0..=runs {
            while at < all.len() && ((all[at].0 >> shift) as usize) < run {
                at += 1;
            }
            starts.push(at as u32);
        }
        Self {
            places: all.iter().map(|&(place, _)| place).collect(),
            servers: all.iter().map(|&(_, server)| server).collect(),
            starts: starts.into(),
            shift,
        }
    }

    /// The server that is closest to `hash` and good; when it is not good, the next on the ring that is.
    #[inline]
    pub(crate) fn pick(&self, hash: u32, good: impl Fn(usize) -> bool) -> Option<usize> {
        let len = self.places.len();
        if len == 0 {
            return None;
        }
        let mut after = self.starts[(hash >> self.shift) as usize] as usize;
        while after < len && self.places[after] < hash {
            after += 1;
        }
        let next = if after == len { 0 } else { after };
        let previous = if after == 0 { len - 1 } else { after - 1 };
        let to_next = self.places[next].wrapping_sub(hash);
        let from_previous = hash.wrapping_sub(self.places[previous]);
        let mut at = if from_previous <= to_next { previous } else { next };
        for _ in 0..len {
            let server = usize::from(self.servers[at]);
            if good(server) {
                return Some(server);
            }
            at = if at + 1 == len { 0 } else { at + 1 };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_every_server_has_some() {
        let all =
            |servers: u64, weight: u32| servers * u64::from(places(weight, servers * u64::from(weight)));
        assert_eq!(all(1_000, 4_096), MAX_PLACES);
        assert_eq!(places(4_096, 1_000 * 4_096), 4_096);
        assert!((MAX_PLACES / 2..=MAX_PLACES).contains(&all(65_535, 4_096)));
        assert_eq!(places(1, 65_535 * 4_096), 1);
        assert_eq!(places(0, 65_535 * 4_096), 0);
    }
}
