//! Operations per second by threads, in the terminal and as SVG. Both axes are logarithmic: linear scaling is
//! a straight rising line, and a limit by one shared line is flat.

use crate::cases::Case;
use crate::results::{Machine, Results, Role};
use crate::stats::MARKS;
use plotters::prelude::*;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

/// The curves of a case on a machine.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The title, which names the machine.
    pub title: String,
    /// The curves of all variants, with points in ascending order.
    pub curves: Vec<Curve>,
}

/// A variant's curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The variant's name.
    pub name: String,
    /// The role, which selects the colour.
    pub role: Role,
    /// Threads, and median operations per second.
    pub points: Vec<(usize, f64)>,
}

impl Panel {
    /// The results of `case` on `machine`; `None` if there are none.
    pub fn of(results: &Results, case: &Case, machine: Machine) -> Option<Self> {
        let curves: Vec<Curve> = case
            .contenders
            .iter()
            .map(|contender| Curve {
                name: contender.name.to_string(),
                role: contender.role,
                points: results
                    .of(case.name, contender.name, machine)
                    .map(|series| (series.threads, series.median()))
                    .filter(|(_, rate)| *rate > 0.0)
                    .collect(),
            })
            .filter(|curve| !curve.points.is_empty())
            .collect();
        let unit = if machine == Machine::Simulated { "cores" } else { "threads" };
        (!curves.is_empty())
            .then(|| Self { title: format!("{}, {machine}: operations/s by {unit}", case.name), curves })
    }

    fn range(&self) -> (f64, f64) {
        let rates = self.curves.iter().flat_map(|c| c.points.iter().map(|p| p.1));
        rates.fold((f64::INFINITY, 0.0), |(low, high), rate| (low.min(rate), high.max(rate)))
    }

    fn most_threads(&self) -> usize {
        self.curves.iter().flat_map(|c| c.points.iter().map(|p| p.0)).max().unwrap_or(1)
    }
}

const ROWS: usize = 12;

/// The panel as characters. If two points coincide, the later variant's mark is shown.
pub fn terminal(panel: &Panel) -> String {
    let mut columns: Vec<usize> = panel.curves.iter().flat_map(|c| c.points.iter().map(|p| p.0)).collect();
    columns.sort_unstable();
    columns.dedup();
    let (low, high) = panel.range();
    let span = (high / low).ln().max(f64::MIN_POSITIVE);
    let mut rows = vec![vec![' '; columns.len()]; ROWS];
    for (curve, mark) in panel.curves.iter().zip(MARKS) {
        for &(threads, rate) in &curve.points {
            let row = ((rate / low).ln() / span * (ROWS - 1) as f64).round() as usize;
            let column = columns.binary_search(&threads).expect("collected from these points");
            rows[row.min(ROWS - 1)][column] = mark;
        }
    }
    let mut text = format!("{} (both axes logarithmic)\n", panel.title);
    for (row, marks) in rows.iter().enumerate().rev() {
        let rate = low * (span * row as f64 / (ROWS - 1) as f64).exp();
        let label = if row % 3 == 2 || row == 0 { si(rate) } else { String::new() };
        let cells: String = marks.iter().map(|mark| format!("   {mark} ")).collect();
        let _ = writeln!(text, "{label:>8} |{}", cells.trim_end());
    }
    let ticks: String = columns.iter().map(|threads| format!("{threads:>4} ")).collect();
    let _ = writeln!(text, "{:>8} +{}", "", "-".repeat(columns.len() * 5));
    let _ = writeln!(text, "{:>8}  {}", "", ticks.trim_end());
    let names: Vec<String> =
        panel.curves.iter().zip(MARKS).map(|(curve, mark)| format!("{mark} {}", curve.name)).collect();
    let _ = writeln!(text, "{:>8}  {}", "", names.join("   "));
    text
}

/// A rate with three digits: 1.23G, 45.6M.
pub fn si(rate: f64) -> String {
    let (value, unit) = match rate {
        r if r >= 1e9 => (r / 1e9, "G"),
        r if r >= 1e6 => (r / 1e6, "M"),
        r if r >= 1e3 => (r / 1e3, "k"),
        r => (r, ""),
    };
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}{unit}")
}

/// Writes the panels side by side to `path`.
///
/// # Errors
/// The file cannot be written.
pub fn svg(path: &Path, panels: &[Panel]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (620 * panels.len().max(1) as u32, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, panel) in root.split_evenly((1, panels.len().max(1))).iter().zip(panels) {
        let (low, high) = panel.range();
        let most = panel.most_threads() as f64;
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d((0.9..most * 1.15).log_scale(), (low * 0.7..high * 1.5).log_scale())?;
        chart
            .configure_mesh()
            .x_label_formatter(&|threads| format!("{threads:.0}"))
            .y_label_formatter(&|rate| si(*rate))
            .draw()?;
        for (index, curve) in panel.curves.iter().enumerate() {
            let color = match curve.role {
                Role::Before => RGBColor(200, 60, 50),
                Role::After => RGBColor(30, 110, 200),
                Role::Other if index % 2 == 0 => RGBColor(120, 120, 120),
                Role::Other => RGBColor(220, 150, 30),
            };
            let points: Vec<(f64, f64)> = curve.points.iter().map(|&(n, rate)| (n as f64, rate)).collect();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
            chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel() -> Panel {
        let curve = |name: &str, role, points| Curve { name: name.into(), role, points };
        Panel {
            title: "counter, simulated: operations/s by cores".into(),
            curves: vec![
                curve("shared", Role::Before, vec![(1, 1e8), (2, 2e7), (96, 1e7)]),
                curve("per lane", Role::After, vec![(1, 9e8), (2, 1.8e9), (96, 8.64e10)]),
            ],
        }
    }

    #[test]
    fn the_terminal_plot_has_every_point_where_it_belongs() {
        let text = terminal(&panel());
        assert!(text.starts_with("counter, simulated"), "{text}");
        let plot: Vec<&str> = text.lines().filter(|l| l.contains('|')).collect();
        assert_eq!(plot.len(), ROWS);
        let count = |mark| plot.iter().map(|l| l.matches(mark).count()).sum::<usize>();
        assert_eq!((count('x'), count('+')), (3, 3), "{text}");
        assert!(plot[0].ends_with('+'), "the highest rate is on top, at the right: {text}");
        assert!(plot[ROWS - 1].ends_with('x'), "the lowest is at the bottom: {text}");
        assert!(text.contains("   1    2   96"), "{text}");
    }

    #[test]
    fn one_point_is_no_division_by_zero() {
        let curve = Curve { name: "only".into(), role: Role::After, points: vec![(1, 5.0)] };
        let text = terminal(&Panel { title: "t".into(), curves: vec![curve] });
        let points = text.lines().filter(|l| l.contains('|')).map(|l| l.matches('x').count());
        assert_eq!(points.sum::<usize>(), 1, "{text}");
    }

    #[test]
    fn the_svg_has_the_points_and_says_simulated() {
        let path = std::env::temp_dir().join(format!("manylane-plot-{}.svg", std::process::id()));
        svg(&path, &[panel(), panel()]).expect("the temporary directory is writable");
        let text = std::fs::read_to_string(&path).expect("just written");
        std::fs::remove_file(&path).expect("just written");
        assert_eq!(text.matches("<circle").count(), 12, "two panels of six points");
        assert!(text.contains("simulated") && text.contains("per lane"), "{text}");
    }

    #[test]
    fn rates_have_three_digits() {
        let text: Vec<String> = [1.0, 999.0, 1234.0, 45.6e6, 789e6, 1.23e9].map(si).into();
        assert_eq!(text, ["1.00", "999", "1.23k", "45.6M", "789M", "1.23G"]);
    }
}
