//! A row of the comparison, and its presentation.

use super::Figures;
use std::fmt::{self, Write as _};

/// The contestant of every one-thread row: the cost of the loop.
pub(super) const EMPTY_LOOP: &str = "empty loop";

/// The cost of a row's transfer between threads without a payload.
pub(super) const RING_ALONE: &str = "ring alone";

/// The cost of a row's handling of buffers without allocating and freeing them.
pub(super) const NO_POOL: &str = "no pool: handle alone";

/// True for contestants that are a lower bound of all figures, not a peer.
fn is_floor(figures: &Figures) -> bool {
    [EMPTY_LOOP, RING_ALONE, NO_POOL].contains(&figures.name.as_str())
}

/// The target for a row, and a peer's figure on the reference machine.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Our limit in nanoseconds, on a machine like the reference.
    pub ns: f64,
    /// A peer of the row: the best one with a figure in the issue.
    pub peer: &'static str,
    /// The peer's figure.
    pub peer_ns: f64,
    /// A contestant of the row, and how many times as fast ours must be in this run.
    pub ahead: Option<(&'static str, f64)>,
}

impl Target {
    pub(super) const fn new(ns: f64, peer: &'static str, peer_ns: f64) -> Self {
        Self { ns, peer, peer_ns, ahead: None }
    }

    /// Also requires that ours is `times` as fast as the contestant called `slow`.
    pub(super) const fn ahead_of(self, slow: &'static str, times: f64) -> Self {
        Self { ahead: Some((slow, times)), ..self }
    }

    /// Our limit where the peer takes 1.
    fn ratio(&self) -> f64 {
        self.ns / self.peer_ns
    }
}

/// An operation with all figures.
#[derive(Clone, Debug)]
pub struct Row {
    /// The operation.
    pub operation: String,
    /// The target for ours.
    pub target: Option<Target>,
    /// The least share of the least served thread, relative to the most served one.
    pub fairness: Option<f64>,
    /// The figures of all contestants.
    pub figures: Vec<Figures>,
}

impl Row {
    pub(super) fn new(operation: impl Into<String>, target: Option<Target>, figures: Vec<Figures>) -> Self {
        Self { operation: operation.into(), target, fairness: None, figures }
    }

    /// The best peer by its median.
    fn best_peer(&self) -> Option<&Figures> {
        let peers = self.figures.iter().filter(|f| !f.ours && !is_floor(f));
        peers.min_by(|a, b| a.summary.median.total_cmp(&b.summary.median))
    }

    /// Our contestant for the verdict: the first.
    fn ours(&self) -> Option<&Figures> {
        self.figures.iter().find(|f| f.ours)
    }

    /// The median of the contestant called `name`.
    fn median_of(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|f| f.name == name).map(|f| f.summary.median)
    }

    fn is_fair(&self) -> bool {
        match (self.fairness, self.ours().and_then(|ours| ours.fairness)) {
            (Some(wanted), Some(got)) => got >= wanted,
            _ => true,
        }
    }

    /// The absolute verdict: true if ours meets the target. `None` without a target.
    pub fn is_met(&self) -> Option<bool> {
        Some(self.ours()?.summary.median <= self.target?.ns && self.is_fair())
    }

    /// Our figure divided by that of the target's peer, both in this run. `None` without a target.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.ours()?.summary.median / self.median_of(self.target?.peer)?)
    }

    /// The verdict by ratio: true if the ratio is no more than that of the target. `None` without a target.
    pub fn is_met_by_ratio(&self) -> Option<bool> {
        Some(self.ratio()? <= self.target?.ratio() && self.is_fair())
    }

    /// How many times as fast as the contestant that [`Target::ahead`] names ours is, and whether that is
    /// enough; `None` without one.
    pub fn ahead(&self) -> Option<(f64, bool)> {
        let (slow, wanted) = self.target?.ahead?;
        let times = self.median_of(slow)? / self.ours()?.summary.median;
        Some((times, times >= wanted))
    }

    /// All verdicts as text.
    fn verdicts(&self) -> String {
        let word = |met| if met { "met" } else { "MISSED" };
        let (Some(target), Some(met)) = (self.target, self.is_met()) else { return "no target".to_string() };
        let mut text = format!("target {} {}", target.ns, word(met));
        let _ = match (self.ratio(), self.is_met_by_ratio()) {
            (Some(ratio), Some(met)) => {
                write!(text, "; by ratio {ratio:.2} of {:.2} x {} {}", target.ratio(), target.peer, word(met))
            }
            _ => write!(text, "; no {} here to be compared with", target.peer),
        };
        if let (Some((slow, wanted)), Some((times, met))) = (target.ahead, self.ahead()) {
            let _ = write!(text, "; {times:.1} of {wanted} times as fast as {slow} {}", word(met));
        }
        text
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.operation)?;
        let ours = self.ours().map(|o| o.summary.median);
        for figures in &self.figures {
            let mark = if figures.ours { '*' } else { ' ' };
            write!(
                f,
                "  {mark} {:<34} median {:>9.2}  least {:>9.2}",
                figures.name, figures.summary.median, figures.summary.min
            )?;
            if let Some(fairness) = figures.fairness {
                write!(f, "  fairness {fairness:.2}")?;
            }
            match ours {
                _ if is_floor(figures) => {}
                Some(ours) if !figures.ours => write!(f, "  {:.2}x ours", figures.summary.median / ours)?,
                _ if figures.ours && self.ours().is_some_and(|o| o.name == figures.name) => {
                    write!(f, "  {}", self.verdicts())?;
                }
                _ => {}
            }
            writeln!(f)?;
        }
        writeln!(f)
    }
}

/// A line for each row: the host's state, ours, the best peer, the verdicts.
pub(super) fn overview(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<70} {:>5} {:>9} {:>9}  {:<34} verdicts\n",
        "operation, median ns", "loop", "ours", "best peer", "which"
    );
    for row in rows {
        let (Some(ours), Some(peer)) = (row.ours(), row.best_peer()) else { continue };
        let _ = writeln!(
            text,
            "{:<70} {:>5.2} {:>9.2} {:>9.2}  {:<34} {}",
            row.operation,
            row.median_of(EMPTY_LOOP).unwrap_or(f64::NAN),
            ours.summary.median,
            peer.summary.median,
            peer.name,
            row.verdicts()
        );
    }
    text + "\nloop: the empty loop beside the row, a cycle a round: it tells how fast the host let the core \
        run meanwhile\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Summary;

    fn figures(name: &str, ours: bool, ns: f64, fairness: Option<f64>) -> Figures {
        let summary = Summary::of(&[ns, ns, ns]).expect("three values");
        Figures { name: name.into(), ours, summary, fairness }
    }

    fn row(target: f64) -> Row {
        let all = vec![
            figures(EMPTY_LOOP, false, 0.3, None),
            figures("Counter", true, 1.5, None),
            figures("slow peer", false, 9.0, None),
            figures("best peer", false, 3.0, None),
        ];
        Row::new("counter: add", Some(Target::new(target, "slow peer", 10.0)), all)
    }

    #[test]
    fn the_target_decides_and_the_loop_is_no_peer() {
        assert_eq!(row(2.0).is_met(), Some(true));
        assert_eq!(row(1.0).is_met(), Some(false));
        let text = overview(&[row(1.0)]);
        assert!(text.contains("best peer") && text.contains("0.17 of 0.10 x slow peer MISSED"), "{text}");
        assert!(row(2.0).to_string().contains("target 2 met"), "{}", row(2.0));
        assert!(row(2.0).to_string().contains("2.00x ours"), "{}", row(2.0));
    }

    #[test]
    fn a_lead_that_is_requested_has_a_verdict_of_its_own() {
        let verdicts = |times| {
            let mut row = row(2.0);
            row.target = row.target.map(|target| target.ahead_of("slow peer", times));
            (row.ahead(), row.to_string())
        };
        let (ahead, text) = verdicts(6.0);
        assert_eq!(ahead, Some((6.0, true)));
        assert!(
            text.contains("target 2 met") && text.contains("; 6.0 of 6 times as fast as slow peer met"),
            "{text}"
        );
        assert!(verdicts(6.5).1.contains("; 6.0 of 6.5 times as fast as slow peer MISSED"));
        assert_eq!(row(2.0).ahead(), None);
    }

    #[test]
    fn an_unfair_list_misses_whatever_its_speed() {
        let all = vec![figures("MtList", true, 20.0, Some(0.02)), figures("mutex", false, 60.0, Some(0.9))];
        let mut row = Row::new("list", Some(Target::new(45.0, "mutex", 61.0)), all);
        row.fairness = Some(0.5);
        assert_eq!((row.is_met(), row.is_met_by_ratio()), (Some(false), Some(false)));
        row.figures[0].fairness = Some(0.7);
        assert_eq!((row.is_met(), row.is_met_by_ratio()), (Some(true), Some(true)));
    }

    #[test]
    fn a_slow_host_changes_the_absolute_verdict_and_not_the_ratio() {
        // 2 ns where the peer took 10; on a host of half the speed, everything takes twice as long.
        let at_speed = |slowness: f64| {
            let mut row = row(2.0);
            for figures in &mut row.figures {
                figures.summary = Summary::of(&[figures.summary.median * slowness]).expect("a value");
            }
            (row.is_met(), row.is_met_by_ratio())
        };
        assert_eq!(at_speed(1.0), (Some(true), Some(true)));
        assert_eq!(at_speed(2.0), (Some(false), Some(true)));
        // 1.5 of 9 is 0.17; a target of 1.5 allows 0.15, however fast the host is.
        assert_eq!((row(1.5).is_met(), row(1.5).is_met_by_ratio()), (Some(true), Some(false)));
    }
}
