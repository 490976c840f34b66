//! One row of the comparison, and how it is shown.

use super::Figures;
use std::fmt::{self, Write as _};

/// The contestant that every one-thread row has: what the loop itself costs.
pub(super) const EMPTY_LOOP: &str = "empty loop";

/// What a row's way from thread to thread costs without anything to carry.
pub(super) const RING_ALONE: &str = "ring alone";

/// What a row's handling of its buffers costs when they come from nowhere and go nowhere.
pub(super) const NO_POOL: &str = "no pool: handle alone";

/// Whether these are a floor under everyone's figures, and no peer's.
fn is_floor(figures: &Figures) -> bool {
    [EMPTY_LOOP, RING_ALONE, NO_POOL].contains(&figures.name.as_str())
}

/// An operation and everyone's figures.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was done.
    pub operation: String,
    /// What ours may cost at most, in nanoseconds.
    pub target: Option<f64>,
    /// What the least served thread must get at least, relative to the most served.
    pub fairness: Option<f64>,
    /// Everyone's.
    pub figures: Vec<Figures>,
}

impl Row {
    pub(super) fn new(operation: impl Into<String>, target: Option<f64>, figures: Vec<Figures>) -> Self {
        Self { operation: operation.into(), target, fairness: None, figures }
    }

    /// The best peer by its median.
    fn best_peer(&self) -> Option<&Figures> {
        let peers = self.figures.iter().filter(|f| !f.ours && !is_floor(f));
        peers.min_by(|a, b| a.summary.median.total_cmp(&b.summary.median))
    }

    /// Ours that is judged: the first.
    fn ours(&self) -> Option<&Figures> {
        self.figures.iter().find(|f| f.ours)
    }

    /// Whether ours is within the target; `None` without one.
    pub fn is_met(&self) -> Option<bool> {
        let ours = self.ours()?;
        let fair = match (self.fairness, ours.fairness) {
            (Some(wanted), Some(got)) => got >= wanted,
            _ => true,
        };
        Some(ours.summary.median <= self.target? && fair)
    }

    fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "-",
        }
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
                    match self.target {
                        Some(target) => write!(f, "  target {target}: {}", self.verdict())?,
                        None => write!(f, "  no target")?,
                    }
                }
                _ => {}
            }
            writeln!(f)?;
        }
        writeln!(f)
    }
}

/// One line for each row: ours, the best peer, the target.
pub(super) fn overview(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<62} {:>9} {:>9}  {:<22} {:>6} {:>8} {}\n",
        "operation, median ns", "ours", "best peer", "which", "ratio", "target", ""
    );
    for row in rows {
        let (Some(ours), Some(peer)) = (row.ours(), row.best_peer()) else { continue };
        let target = row.target.map_or("-".to_string(), |t| t.to_string());
        let _ = writeln!(
            text,
            "{:<62} {:>9.2} {:>9.2}  {:<22} {:>6.2} {:>8} {}",
            row.operation,
            ours.summary.median,
            peer.summary.median,
            peer.name,
            ours.summary.median / peer.summary.median,
            target,
            row.verdict()
        );
    }
    text
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
        Row::new("counter: add", Some(target), all)
    }

    #[test]
    fn the_target_decides_and_the_loop_is_no_peer() {
        assert_eq!(row(2.0).is_met(), Some(true));
        assert_eq!(row(1.0).is_met(), Some(false));
        let text = overview(&[row(1.0)]);
        assert!(text.contains("best peer") && text.contains("0.50") && text.contains("MISSED"), "{text}");
        assert!(row(2.0).to_string().contains("target 2: met"), "{}", row(2.0));
        assert!(row(2.0).to_string().contains("2.00x ours"), "{}", row(2.0));
    }

    #[test]
    fn an_unfair_list_misses_whatever_its_speed() {
        let mut row = Row::new("list", Some(45.0), vec![figures("MtList", true, 20.0, Some(0.02))]);
        row.fairness = Some(0.5);
        assert_eq!(row.is_met(), Some(false));
        row.figures[0].fairness = Some(0.7);
        assert_eq!(row.is_met(), Some(true));
    }
}
