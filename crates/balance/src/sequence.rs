//! Order of the servers' turns: a table of one period, computed when something changes.
//!
//! A lane follows the table without a lock and without a shared write: it keeps a position of its own. Over
//! any whole period, each server has exactly as many turns as its weight says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Largest number of entries in a table. Larger weights are scaled down: a server's share is then off by at
/// most one part in this number, and no server with a weight loses all of its turns.
pub(crate) const MAX_TABLE: u64 = 65_536;

/// Largest number of comparisons that [`static_turns`] spends.
const MAX_STATIC_WORK: u64 = 8_000_000;

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Divides the weights by their common divisor, and scales them so that their sum is not much above
/// [`MAX_TABLE`]. A weight that was not 0 stays at least 1.
fn reduced(weights: &[(u16, u32)]) -> Vec<(u16, u64)> {
    let divisor = weights.iter().fold(0, |d, &(_, weight)| gcd(d, u64::from(weight))).max(1);
    let total: u64 = weights.iter().map(|&(_, weight)| u64::from(weight) / divisor).sum();
    let scale = |weight: u64| match total > MAX_TABLE {
        false => weight,
        true => ((weight * MAX_TABLE + total / 2) / total).max(1),
    };
    let kept = weights.iter().filter(|(_, weight)| *weight > 0);
    kept.map(|&(index, weight)| (index, scale(u64::from(weight) / divisor))).collect()
}

/// Returns the turns of servers with equal weights, which are the same in either order: that of the
/// configuration. Most backends are like this, and a change then costs only one look at each server.
fn equal_turns(servers: &[(u16, u64)]) -> Option<Vec<u16>> {
    let equal = servers.iter().all(|&(_, weight)| weight == 1); // they are reduced
    equal.then(|| servers.iter().map(|&(index, _)| index).collect())
}

/// Computes the order of `roundrobin`: each server's turns are as evenly spaced as its weight allows.
///
/// A server that had a turn is due again `total / weight` turns later, with remainders carried over. The
/// earliest due server is next; of two, the one whose remainder is further below its weight. If no server is
/// due yet, the heaviest server that had no turn gets its first. These are the turns of HAProxy's
/// `roundrobin` with one thread. HAProxy never ends a period; here, the last turns of one go to the servers
/// that still lack turns.
///
/// Cost: total weight times the logarithm of the number of servers.
pub(crate) fn smooth_turns(weights: &[(u16, u32)]) -> Vec<u16> {
    struct Turn {
        weight: u64,
        remainder: u64,
        left: u64,
    }
    let servers = reduced(weights);
    if let Some(turns) = equal_turns(&servers) {
        return turns;
    }
    let total: u64 = servers.iter().map(|&(_, weight)| weight).sum();
    let mut turns: Vec<Turn> =
        servers.iter().map(|&(_, weight)| Turn { weight, remainder: 0, left: weight }).collect();
    let mut waiting: Vec<usize> = (0..servers.len()).collect();
    waiting.sort_by_key(|&n| Reverse(servers[n].1)); // stable: equal ones in the order of the configuration
    let mut waiting = waiting.into_iter().peekable();
    // Position when due, remainder less weight, position when queued, server.
    let mut due: BinaryHeap<Reverse<(u64, i64, u64, usize)>> = BinaryHeap::new();
    let mut table = Vec::with_capacity(total as usize);
    for position in 0..total {
        let next = due.peek().filter(|Reverse((at, ..))| *at <= position || waiting.peek().is_none());
        let (server, at) = match next {
            Some(&Reverse((at, _, _, server))) => {
                due.pop();
                (server, at)
            }
            None => (
                waiting.next().expect("somebody is due or waits: each weight is its number of turns"),
                position,
            ),
        };
        let turn = &mut turns[server];
        turn.remainder += total % turn.weight;
        let mut again = at + total / turn.weight;
        if turn.remainder >= turn.weight {
            turn.remainder -= turn.weight;
            again += 1;
        }
        turn.left -= 1;
        if turn.left > 0 {
            let among_equals = turn.remainder as i64 - turn.weight as i64;
            due.push(Reverse((again, among_equals, position, server)));
        }
        table.push(servers[server].0);
    }
    table
}

/// Computes the order of `static-rr` and of map-based hashing.
///
/// At each turn, the score of every server grows by its weight. The first of the servers whose scores contain
/// the most whole totals is next, and pays one total. Whatever the weights, the first turn belongs to the
/// first server. These are the turns of HAProxy, so a key finds the same server in both. Where this would
/// take millions of steps, the order is that of [`smooth_turns`].
pub(crate) fn static_turns(weights: &[(u16, u32)]) -> Vec<u16> {
    let servers = reduced(weights);
    if let Some(turns) = equal_turns(&servers) {
        return turns;
    }
    let total: u64 = servers.iter().map(|&(_, weight)| weight).sum();
    if total * servers.len() as u64 > MAX_STATIC_WORK {
        return smooth_turns(weights);
    }
    let mut scores = vec![0i64; servers.len()];
    let mut table = Vec::with_capacity(total as usize);
    let total = total as i64;
    for _ in 0..total {
        let mut best = (0, i64::MIN);
        for (n, score) in scores.iter_mut().enumerate() {
            *score += servers[n].1 as i64;
            let whole = (*score + total).div_euclid(total);
            if whole > best.1 {
                best = (n, whole);
            }
        }
        scores[best.0] -= total;
        table.push(servers[best.0].0);
    }
    table
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbered(weights: &[u32]) -> Vec<(u16, u32)> {
        weights.iter().enumerate().map(|(n, &w)| (n as u16, w)).collect()
    }

    fn show(table: &[u16]) -> String {
        table.iter().map(|n| char::from_digit(u32::from(*n), 36).expect("few servers")).collect()
    }

    /// The expected turns are those of HAProxy 3.2.26 with one thread, over two periods.
    #[test]
    fn roundrobin_takes_the_turns_of_haproxy() {
        for (weights, turns) in [
            (&[1, 1, 1][..], "012"),
            (&[1, 2, 3], "212021"),
            (&[3, 2, 1], "010201"),
            (&[5, 1, 1], "0001002"),
            (&[10, 7, 3], "01010201010201010012"),
            (&[100, 50, 25], "0010201"),
            (&[2, 2, 1], "01012"),
            (&[1, 1, 2], "2021"),
            (&[3, 3, 3, 1], "0120120123"),
            (&[7, 5, 3, 2], "01021030120100213"),
            (&[2, 3, 5, 7], "32312303213233120"),
            (&[16, 9, 4, 4, 1], "0102010301021003104012001300120103"),
            (&[1, 1, 1, 1, 4], "40414243"),
            (&[4, 4, 2, 2], "012013"),
        ] {
            let table = show(&smooth_turns(&numbered(weights)));
            assert_eq!(table, turns, "{weights:?}");
        }
    }

    /// The expected turns were recorded in the same way.
    #[test]
    fn static_rr_takes_the_turns_of_haproxy() {
        for (weights, turns) in [
            (&[1, 1, 1][..], "012"),
            (&[1, 2, 3], "021212"),
            (&[3, 2, 1], "001012"),
            (&[5, 1, 1], "0001002"),
            (&[10, 7, 3], "00101020101012001012"),
            (&[100, 50, 25], "0010102"),
        ] {
            let table = show(&static_turns(&numbered(weights)));
            assert_eq!(table, turns, "{weights:?}");
        }
    }

    /// Returns `usual`, or the number of cases in `PROPTEST_CASES`.
    fn cases(usual: u32) -> u32 {
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(64)))]

        /// Over a period, each server has the share of its weight, and its waits are not much longer than
        /// that share says; across the end of a period, at most half as long again.
        #[test]
        fn a_period_holds_every_server_as_often_as_its_weight_says(
            weights in prop::collection::vec(0u32..=100, 1..12),
        ) {
            let divisor = weights.iter().fold(0, |d, &w| gcd(d, u64::from(w))).max(1) as u32;
            for table in [smooth_turns(&numbered(&weights)), static_turns(&numbered(&weights))] {
                for (n, &weight) in weights.iter().enumerate() {
                    let turns = table.iter().filter(|&&t| usize::from(t) == n).count();
                    prop_assert_eq!(turns as u32, weight / divisor);
                }
            }
            let table = smooth_turns(&numbered(&weights));
            for (n, &weight) in weights.iter().enumerate().filter(|(_, w)| **w > 0) {
                let turns: Vec<usize> = (0..table.len()).filter(|&p| usize::from(table[p]) == n).collect();
                let share = table.len() as f64 / f64::from(weight / divisor);
                // Other servers may be due at the same moments: as many as there are servers.
                let others = weights.len() as f64 + 1.0;
                let widest = turns.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
                prop_assert!(widest as f64 <= share + others, "{widest} {share}");
                // The lightest servers begin late, so their last turns come early. In eight million cases,
                // the wait from one period to the next was at most a fifth of a share longer.
                let around = turns.first().zip(turns.last()).map_or(0, |(first,
                    last)| first + table.len() - last);
                prop_assert!(around as f64 <= share * 1.5 + others, "{around} {share}");
            }
        }
    }

    /// One of the two lightest servers has its first turn as the 54th of 269, and its last turn as the last.
    #[test]
    fn who_begins_late_waits_longer_where_one_period_follows_another() {
        let table = smooth_turns(&numbered(&[6, 88, 88, 15, 66, 6]));
        let turns: Vec<usize> = (0..table.len()).filter(|&p| table[p] == 5).collect();
        assert_eq!((turns.len(), turns[0], turns[0] + table.len() - turns[5]), (6, 53, 54), "{turns:?}");
    }

    #[test]
    fn weights_that_need_a_large_table_are_scaled_and_none_gets_nothing() {
        let weights: Vec<(u16, u32)> = (0..4000).map(|n| (n, if n == 7 { 1 } else { 4095 })).collect();
        for table in [smooth_turns(&weights), static_turns(&weights)] {
            assert!(table.len() as u64 <= MAX_TABLE + 4000, "{}", table.len());
            assert!(table.contains(&7));
        }
    }
}
