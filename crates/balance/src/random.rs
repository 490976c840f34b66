//! `random`: the least loaded of several servers drawn by weight.
//!
//! A draw is one random number and one look-up in a table (A. Walker's alias method, in M. Vose's form,
//! 1991), so it costs the same for any number of servers and keeps the weights exactly. The less loaded of
//! two draws is nearly as good as the least loaded of all (M. Mitzenmacher, *The power of two choices in
//! randomized load balancing*, 2001).

use crate::algorithm::{Algorithm, NoPick, Row};
use crate::balancer::Pick;
use crate::lane::{LaneNeeds, LaneState};
use crate::snapshot::{Members, Prepared};
use crate::spec::Index;

pub(crate) const ROW: Row = Row {
    wants: |_| LaneNeeds { view: true, ..LaneNeeds::default() },
    prepare,
    ..Row::without_turns("random", |draws, _| Algorithm::Random { draws })
};

/// Largest number of draws: more cost time and choose no better.
const MAX_DRAWS: u32 = 256;

/// Builds the alias table of `random` and `ewma`.
pub(crate) fn prepare(members: &mut Members<'_>) -> Prepared {
    Prepared::AliasTable(AliasTable::new(members.weights))
}

/// Returns the least loaded of the drawn servers, relative to its weight.
#[inline]
pub(crate) fn pick(pick: &Pick<'_>, draws: u32) -> Result<Index, NoPick> {
    pick.refresh_view();
    let bound = pick.bound();
    let weighted =
        |of: usize, by: usize| u64::from(pick.lane.load(of)) * u64::from(pick.snapshot.weights[by]);
    let good = |server| pick.is_good(server) && bound.allows(server);
    pick.or_any(drawn(pick, draws, good, |a, b| weighted(a, b) < weighted(b, a)))
}

/// Servers and their probabilities.
#[derive(Debug)]
pub(crate) struct AliasTable {
    columns: Box<[Column]>,
}

/// One column of the table: below `limit` a draw gives `server`, else `other`.
#[derive(Debug)]
struct Column {
    /// A fraction of 2^32.
    limit: u64,
    server: u16,
    other: u16,
}

impl AliasTable {
    pub(crate) fn new(weights: &[(u16, u32)]) -> Self {
        let total: u64 = weights.iter().map(|&(_, w)| u64::from(w)).sum();
        let count = weights.len() as u64;
        // Each column holds `total`; a server fills `weight * count` of the sum of all columns.
        let mut small = Vec::new();
        let mut large = Vec::new();
        let mut columns: Vec<Column> =
            weights.iter().map(|&(server, _)| Column { limit: 1 << 32, server, other: server }).collect();
        for (n, &(_, weight)) in weights.iter().enumerate() {
            let share = u64::from(weight) * count;
            if share < total { &mut small } else { &mut large }.push((n, share));
        }
        while let (Some(&(low, share)), Some(&(high, surplus))) = (small.last(), large.last()) {
            small.pop();
            large.pop();
            columns[low].limit = (u128::from(share) << 32).div_euclid(u128::from(total)) as u64;
            columns[low].other = weights[high].0;
            let left = surplus - (total - share);
            if left < total { &mut small } else { &mut large }.push((high, left));
        }
        Self { columns: columns.into() }
    }

    /// Draws a server by weight.
    #[inline]
    pub(crate) fn draw(&self, state: &LaneState) -> Option<usize> {
        if self.columns.is_empty() {
            return None;
        }
        let column = &self.columns[state.below(self.columns.len())];
        let server = if state.random() >> 32 < column.limit { column.server } else { column.other };
        Some(usize::from(server))
    }
}

/// Draws `draws` servers that `good` accepts, and returns the one that comes before the others by `before`.
/// It repeats draws that `good` refuses, up to `draws + 8` draws in all.
#[inline]
pub(crate) fn drawn(
    pick: &Pick<'_>,
    draws: u32,
    good: impl Fn(usize) -> bool,
    before: impl Fn(usize, usize) -> bool,
) -> Option<usize> {
    let Prepared::AliasTable(alias_table) = &pick.snapshot.prepared else { return None };
    let draws = draws.clamp(1, MAX_DRAWS);
    let mut best = None;
    let mut left = draws;
    for _ in 0..draws + 8 {
        let server = alias_table.draw(pick.lane)?;
        if !good(server) {
            continue;
        }
        best = match best {
            Some(held) if !before(server, held) => Some(held),
            _ => Some(server),
        };
        left -= 1;
        if left == 0 {
            break;
        }
    }
    best
}
