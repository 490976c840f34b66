//! `maglev` (our own): a table that the servers fill by their weights, each in an order of its own.
//!
//! D. Eisenbud et al., *Maglev: A Fast and Reliable Software Network Load Balancer* (2016), section 3.4; a
//! weight is the number of slots that a server takes in each round. Compared with a ring, the shares are
//! nearly exact and a look-up is one load; but when a server comes or goes, a few keys of other servers move,
//! too.

use crate::algorithm::{Algorithm, Row};
use crate::snapshot::Prepared;
use manylane_expr::hash::avalanche;

/// Picks as in [`by_key`](crate::by_key).
pub(crate) const ROW: Row = Row {
    by_key: true,
    grows: false,
    prepare: |members| Prepared::Maglev(Maglev::new(&members.hashed().collect::<Vec<_>>())),
    ..Row::new("maglev", |_, kind| Algorithm::Maglev(kind))
};

/// Sizes of the table, all primes. With at least a hundred slots for each server, the shares are even.
const SIZES: [usize; 4] = [1021, 8191, 65_521, 655_357];

#[derive(Debug)]
pub(crate) struct Maglev {
    table: Box<[u16]>,
}

impl Maglev {
    /// Builds the table of servers, each with its hash key and its weight.
    ///
    /// Cost: the size of the table, times the logarithm of the number of servers on average.
    pub(crate) fn new(members: &[(u16, u32, u32)]) -> Self {
        let Some(heaviest) = members.iter().map(|&(_, _, weight)| weight).max() else {
            return Self { table: Box::default() };
        };
        let wanted = members.len() * 100;
        let size = SIZES.into_iter().find(|&size| size >= wanted).unwrap_or(SIZES[SIZES.len() - 1]);
        struct Seeker {
            server: u16,
            weight: u64,
            /// Turns that the server is entitled to, in units of 1 / heaviest weight.
            right: u64,
            slot: usize,
            step: usize,
        }
        let mut seekers: Vec<Seeker> = members
            .iter()
            .map(|&(server, hash_key, weight)| Seeker {
                server,
                weight: u64::from(weight),
                right: 0,
                slot: avalanche(hash_key) as usize % size,
                step: avalanche(hash_key ^ 0x5bd1_e995) as usize % (size - 1) + 1,
            })
            .collect();
        const FREE: u16 = u16::MAX; // no server has this index: see `MAX_SERVERS`
        let mut table = vec![FREE; size];
        let mut left = size;
        'full: loop {
            for seeker in &mut seekers {
                seeker.right += seeker.weight;
                if seeker.right < u64::from(heaviest) {
                    continue;
                }
                seeker.right -= u64::from(heaviest);
                while table[seeker.slot] != FREE {
                    seeker.slot = (seeker.slot + seeker.step) % size;
                }
                table[seeker.slot] = seeker.server;
                left -= 1;
                if left == 0 {
                    break 'full;
                }
            }
        }
        Self { table: table.into() }
    }

    /// Returns the server for `hash`; if `good` refuses it, the next in the table that `good` accepts.
    #[inline]
    pub(crate) fn pick(&self, hash: u32, good: impl Fn(usize) -> bool) -> Option<usize> {
        let size = self.table.len();
        if size == 0 {
            return None;
        }
        let start = hash as usize % size;
        (start..size).chain(0..start).map(|index| usize::from(self.table[index])).find(|&server| good(server))
    }
}
