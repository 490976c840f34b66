//! Statistics of several runs, in the layout of `ministat`.
//!
//! The difference of two samples is tested with Student's t and a pooled standard deviation, which assumes
//! equal variances. The percentage and its margin are relative to the reference's average, which is taken as
//! exact. Runs on a busy machine are not normally distributed; also look at the median and the plot.

use statrs::distribution::{ContinuousCDF, StudentsT};
use std::fmt;

/// The confidence of every interval shown.
pub const CONFIDENCE: f64 = 0.95;

/// Columns of the terminal plot between its borders.
const PLOT_WIDTH: usize = 72;

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub n: usize,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The middle value; the mean of the middle two if their number is even.
    pub median: f64,
    /// The arithmetic mean.
    pub average: f64,
    /// The standard deviation of the population that the values are drawn from (divided by n - 1); 0 for one
    /// value.
    pub stddev: f64,
}

impl Summary {
    /// Summarizes `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let n = sorted.len();
        let average = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|v| (v - average).powi(2)).sum();
        Some(Self {
            n,
            min,
            max,
            median: f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
            average,
            stddev: if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 },
        })
    }

    fn row(&self, mark: char) -> String {
        format!(
            "{mark} {:>3} {:>13} {:>13} {:>13} {:>13} {:>13}",
            self.n,
            figure(self.min),
            figure(self.max),
            figure(self.median),
            figure(self.average),
            figure(self.stddev)
        )
    }
}

/// The difference of a sample from a reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Average minus the reference's average.
    pub value: f64,
    /// Half the width of the confidence interval of `value`.
    pub margin: f64,
    /// `value` in percent of the reference's average.
    pub percent: f64,
    /// `margin` in percent of the reference's average.
    pub percent_margin: f64,
    /// The standard deviation of both samples together.
    pub pooled_s: f64,
}

impl Difference {
    /// Compares `sample` with `reference`. `None` if they have fewer than three values together, too few to
    /// estimate the spread, or if the reference's average is 0.
    pub fn between(reference: &Summary, sample: &Summary) -> Option<Self> {
        let freedom = (reference.n + sample.n).checked_sub(2).filter(|&f| f > 0)? as f64;
        if reference.average == 0.0 {
            return None;
        }
        let spread = |s: &Summary| (s.n - 1) as f64 * s.stddev.powi(2);
        let pooled_s = ((spread(reference) + spread(sample)) / freedom).sqrt();
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf((1.0 + CONFIDENCE) / 2.0);
        let margin = t * pooled_s * (1.0 / reference.n as f64 + 1.0 / sample.n as f64).sqrt();
        let value = sample.average - reference.average;
        Some(Self {
            value,
            margin,
            percent: value / reference.average * 100.0,
            percent_margin: margin / reference.average.abs() * 100.0,
            pooled_s,
        })
    }

    /// True if the interval excludes 0.
    pub fn is_proven(&self) -> bool {
        self.value.abs() > self.margin
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let confidence = CONFIDENCE * 100.0;
        if !self.is_proven() {
            return write!(f, "No difference proven at {confidence:.1}% confidence");
        }
        writeln!(f, "Difference at {confidence:.1}% confidence")?;
        writeln!(f, "\t{} +/- {}", figure(self.value), figure(self.margin))?;
        writeln!(f, "\t{}% +/- {}%", figure(self.percent), figure(self.percent_margin))?;
        write!(f, "\t(Student's t, pooled s = {})", figure(self.pooled_s))
    }
}

/// The marks of samples, in order; the first one is the reference's.
pub const MARKS: [char; 6] = ['x', '+', '*', '%', '#', '@'];

/// The samples' names, their values on one axis, a row for each, and the difference of each from the first.
///
/// # Panics
/// If there are more samples than [`MARKS`].
pub fn report(samples: &[(&str, &[f64])]) -> String {
    assert!(samples.len() <= MARKS.len(), "at most {} samples fit in one report", MARKS.len());
    let mut lines: Vec<String> =
        samples.iter().zip(MARKS).map(|((name, _), mark)| format!("{mark} {name}")).collect();
    lines.extend(axis(samples));
    lines.push(format!(
        "  {:>3} {:>13} {:>13} {:>13} {:>13} {:>13}",
        "N", "Min", "Max", "Median", "Avg", "Stddev"
    ));
    let mut reference = None;
    for ((_, values), mark) in samples.iter().zip(MARKS) {
        let Some(summary) = Summary::of(values) else {
            lines.push(format!("{mark}   0  (no values)"));
            continue;
        };
        lines.push(summary.row(mark));
        match &reference {
            None => reference = Some(summary),
            Some(reference) => lines.push(match Difference::between(reference, &summary) {
                Some(difference) => difference.to_string(),
                None => "No difference can be told from so few values".to_string(),
            }),
        }
    }
    lines.join("\n") + "\n"
}

/// The values on a common axis: equal ones are stacked. Below it, a bar for each sample from one standard
/// deviation below its average (`A`) to one above, with the median as `M`.
fn axis(samples: &[(&str, &[f64])]) -> Vec<String> {
    let all = samples.iter().flat_map(|(_, values)| values.iter().copied());
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return Vec::new(); // there are no values
    }
    let column = |value: f64| {
        if high == low {
            return PLOT_WIDTH / 2;
        }
        let at = (value - low) / (high - low) * (PLOT_WIDTH - 1) as f64;
        at.round().clamp(0.0, (PLOT_WIDTH - 1) as f64) as usize
    };
    let mut piles: Vec<Vec<char>> = vec![Vec::new(); PLOT_WIDTH];
    for ((_, values), mark) in samples.iter().zip(MARKS) {
        for &value in *values {
            piles[column(value)].push(mark);
        }
    }
    let height = piles.iter().map(Vec::len).max().unwrap_or(0);
    let border = format!("+{}+", "-".repeat(PLOT_WIDTH));
    let mut lines = vec![border.clone()];
    for level in (0..height).rev() {
        let row: String = piles.iter().map(|pile| pile.get(level).copied().unwrap_or(' ')).collect();
        lines.push(format!("|{row}|"));
    }
    for (_, values) in samples {
        let Some(summary) = Summary::of(values) else { continue };
        let mut bar = vec![' '; PLOT_WIDTH];
        let (from, to) = (column(summary.average - summary.stddev), column(summary.average + summary.stddev));
        bar[from..=to].fill('_');
        (bar[from], bar[to]) = ('|', '|');
        bar[column(summary.median)] = 'M';
        bar[column(summary.average)] = 'A';
        lines.push(format!("|{}|", bar.iter().collect::<String>()));
    }
    lines.push(border);
    lines
}

/// A number with eight significant digits, without trailing zeros.
pub fn figure(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    if (-4..13).contains(&magnitude) {
        let decimals = (7 - magnitude).clamp(0, 9) as usize;
        let text = format!("{value:.decimals$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    } else {
        format!("{value:.7e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sleep data of the t test's inventor (Student 1908), as in R: extra hours, drug 1 and drug 2.
    const DRUG_1: [f64; 10] = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    const DRUG_2: [f64; 10] = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];

    fn near(got: f64, wanted: f64) {
        assert!((got - wanted).abs() < 1e-6 * wanted.abs().max(1.0), "{got} instead of {wanted}");
    }

    #[test]
    fn summary_is_that_of_the_textbook() {
        let s = Summary::of(&DRUG_1).expect("ten values");
        assert_eq!((s.n, s.min, s.max), (10, -1.6, 3.7));
        near(s.median, 0.35);
        near(s.average, 0.75);
        near(s.stddev, 1.789_010_1); // R: sd(extra[group == 1])
        near(Summary::of(&DRUG_2).expect("ten values").stddev, 2.002_249_2);
    }

    #[test]
    fn median_of_an_odd_number_is_the_middle_value() {
        near(Summary::of(&[9.0, 1.0, 4.0]).expect("three values").median, 4.0);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn difference_is_that_of_r() {
        // R: t.test(extra ~ group, var.equal = TRUE): interval -3.363874 .. 0.203874, t(18) = 2.100922.
        let (a, b) = (Summary::of(&DRUG_1).expect("ten"), Summary::of(&DRUG_2).expect("ten"));
        let d = Difference::between(&a, &b).expect("eighteen degrees of freedom");
        near(d.value, 1.58);
        near(d.value - d.margin, -0.203_874_0);
        near(d.value + d.margin, 3.363_874_0);
        near(d.percent, 210.666_666_7);
        near(d.pooled_s, ((3.200_555_6 + 4.009_0) / 2.0_f64).sqrt());
        assert!(!d.is_proven());
        assert_eq!(d.to_string(), "No difference proven at 95.0% confidence");
    }

    #[test]
    fn student_quantiles_are_those_of_the_tables() {
        for (freedom, wanted) in [(1.0, 12.706_205), (4.0, 2.776_445), (10.0, 2.228_139), (60.0, 2.000_298)] {
            let t = StudentsT::new(0.0, 1.0, freedom).expect("positive").inverse_cdf(0.975);
            assert!((t - wanted).abs() < 1e-4, "{freedom} degrees: {t} instead of {wanted}");
        }
    }

    #[test]
    fn a_proven_difference_is_shown_in_four_lines() {
        // Averages 11 and 22, both s = 1, t(4) = 2.776445, margin = t * sqrt(2 / 3).
        let text = report(&[("before", &[10.0, 11.0, 12.0]), ("after", &[21.0, 22.0, 23.0])]);
        assert!(text.starts_with("x before\n+ after\n+---"), "{text}");
        assert!(
            text.contains("x   3            10            12            11            11             1\n")
        );
        assert!(
            text.contains("+   3            21            23            22            22             1\n")
        );
        assert!(text.contains("Difference at 95.0% confidence\n\t11 +/- 2.266"), "{text}");
        assert!(text.contains("\t100% +/- 20.6"), "{text}");
        assert!(text.ends_with("(Student's t, pooled s = 1)\n"), "{text}");
    }

    #[test]
    fn the_axis_has_every_value_once_and_in_order() {
        let text = report(&[("before", &[1.0, 1.0, 2.0]), ("after", &[3.0, 4.0])]);
        let plot: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
        let marks = |mark| plot[..plot.len() - 2].iter().map(|l| l.matches(mark).count()).sum::<usize>();
        assert_eq!((marks('x'), marks('+')), (3, 2));
        let bottom = plot[plot.len() - 3];
        assert!(bottom.rfind('x') < bottom.find('+'), "{bottom}");
    }

    #[test]
    fn equal_values_are_no_division_by_zero() {
        let text = report(&[("before", &[5.0, 5.0]), ("after", &[5.0, 5.0])]);
        assert!(text.contains("No difference proven"), "{text}");
    }

    #[test]
    fn one_value_each_says_that_it_is_too_few() {
        assert!(report(&[("before", &[5.0]), ("after", &[6.0])]).contains("from so few values"));
    }

    #[test]
    fn figures_keep_eight_digits() {
        assert_eq!(figure(1_693_578.0), "1693578");
        assert_eq!(figure(70_662_504.25), "70662504");
        assert_eq!(figure(0.5), "0.5");
        assert_eq!(figure(-2.25), "-2.25");
        assert_eq!(figure(0.0), "0");
    }
}
