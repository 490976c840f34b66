//! Times between checks: `inter`, `fastinter`, `downinter`, `spread-checks`.

use crate::health::Health;
use std::time::Duration;

/// Times between two checks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// `inter`
    pub inter: Duration,
    /// `fastinter`, or `inter`.
    pub fast: Duration,
    /// `downinter`, or `inter`.
    pub down: Duration,
    /// `spread-checks`: percentage by which a time varies in both directions, 0 to 50.
    pub spread: u32,
}

impl Intervals {
    /// Default of `inter`.
    pub const USUAL: Duration = Duration::from_secs(2);

    /// Shortest time between two checks, whatever the configuration says.
    pub const SHORTEST: Duration = Duration::from_millis(1);

    /// Returns the time from the end of a check to the start of the next; `noise` is any number.
    pub fn next(&self, health: &Health, noise: u32) -> Duration {
        let time = match health.value() {
            _ if !health.is_settled() => self.fast,
            0 => self.down,
            _ => self.inter,
        };
        // Varies the time by up to `spread` percent in both directions.
        let part = f64::from(noise) / f64::from(u32::MAX) * 2.0 - 1.0;
        time.mul_f64(1.0 + part * f64::from(self.spread.min(50)) / 100.0).max(Self::SHORTEST)
    }

    /// Smallest `inter` that counts for the distance between first checks.
    pub const SPREADS_FROM: Duration = Duration::from_secs(1);

    /// Returns the delay of the first check of the server at `index` of `count`, so that not all are checked
    /// at once. The first checks are spread over `shortest`, the shortest `inter` that is at least
    /// [`SPREADS_FROM`](Self::SPREADS_FROM), or over `most` (`max-spread-checks`) if that is less.
    pub fn first(shortest: Duration, most: Option<Duration>, index: usize, count: usize) -> Duration {
        let room = most.map_or(shortest, |most| shortest.min(most));
        room.mul_f64(index as f64 / count.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Init;
    use crate::status::Status;

    const INTERVALS: Intervals = Intervals {
        inter: Duration::from_secs(2),
        fast: Duration::from_secs(1),
        down: Duration::from_secs(5),
        spread: 0,
    };

    #[test]
    fn the_interval_follows_the_servers_state() {
        let mut health = Health::new(2, 2, Init::Up);
        assert_eq!(INTERVALS.next(&health, 0), INTERVALS.fast, "not checked yet");
        health.report(Status::L4Ok);
        assert_eq!(INTERVALS.next(&health, 0), INTERVALS.inter);
        health.report(Status::L4Con);
        assert_eq!(INTERVALS.next(&health, 0), INTERVALS.fast, "about to go down");
        health.report(Status::L4Con);
        assert_eq!(INTERVALS.next(&health, 0), INTERVALS.down);
        health.report(Status::L4Ok);
        assert_eq!(INTERVALS.next(&health, 0), INTERVALS.fast, "about to come up");
    }

    #[test]
    fn spreading_stays_within_its_per_cents() {
        let health = Health::new(2, 2, Init::FullyUp);
        let intervals = Intervals { spread: 50, ..INTERVALS };
        let times: Vec<_> =
            [0, u32::MAX / 2, u32::MAX].iter().map(|noise| intervals.next(&health, *noise)).collect();
        assert_eq!((times[0], times[2]), (INTERVALS.inter / 2, INTERVALS.inter * 3 / 2));
        assert!(times[1].abs_diff(INTERVALS.inter) < Duration::from_millis(1));
    }

    /// Of 10,000 servers, on one lane or on many, no more than their share are checked in a hundredth of a
    /// second. It stays so, because each check follows the one before it at the same distance.
    #[test]
    fn ten_thousand_servers_are_checked_one_after_the_other() {
        const SERVERS: usize = 10_000;
        let settled = Health::new(2, 3, Init::FullyUp);
        for lanes in [1, 2, 8] {
            let mut times = vec![[0_usize; 200]; lanes];
            for index in 0..SERVERS {
                let first = Intervals::first(INTERVALS.inter, None, index, SERVERS);
                times[index % lanes][(first.as_millis() / 10) as usize] += 1;
                assert_eq!(INTERVALS.next(&settled, index as u32), INTERVALS.inter);
            }
            let share = SERVERS / 200 / lanes;
            assert!(times.iter().flatten().all(|count| count.abs_diff(share) <= 1), "{lanes}: {times:?}");
        }
    }

    #[test]
    fn first_checks_share_the_shortest_interval() {
        let second = Duration::from_secs(1);
        assert_eq!(Intervals::first(2 * second, None, 0, 4), Duration::ZERO);
        assert_eq!(Intervals::first(2 * second, None, 3, 4), second * 3 / 2);
        assert_eq!(Intervals::first(2 * second, Some(second), 2, 4), second / 2);
    }
}
