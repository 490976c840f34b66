//! Grouped bar charts as SVG, legible on light and dark backgrounds.

use super::words;
use std::fmt::Write as _;
use toml_edit::Table;

/// Width in points; a page of a forge shows about 800.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 160.0;
const BAR: f64 = 15.0;
const GROUP_GAP: f64 = 14.0;
const HEAD: f64 = 56.0;

/// Colours of the contestants in turn; the last two, ours, stand out.
const COLOURS: [&str; 4] = ["#8c96a0", "#5f7285", "#2f81f7", "#d9730d"];

const STYLE: &str = "\
<style>text{font:13px system-ui,sans-serif;fill:#57606a}.title{font-weight:600}line{stroke:#8c96a0}\
@media (prefers-color-scheme:dark){text{fill:#c9d1d9}}</style>";

/// Draws a chart. `plot` selects the columns to show as bars (`bars`, labelled `names`) and the rows to show
/// as groups (`rows`, labelled `labels`).
pub(super) fn bars(
    plot: &Table,
    title: &str,
    columns: &[&str],
    rows: &[Vec<&str>],
) -> Result<String, String> {
    let column =
        |name: &str| columns.iter().position(|c| *c == name).ok_or(format!("no column `{name}` to plot"));
    let bars = words(plot, "bars")?.into_iter().map(column).collect::<Result<Vec<usize>, String>>()?;
    let (names, wanted, labels) = (words(plot, "names")?, words(plot, "rows")?, words(plot, "labels")?);
    if bars.len() > COLOURS.len() || names.len() != bars.len() || labels.len() != wanted.len() {
        return Err(format!(
            "expected a name for each bar, at most {}, and a label for each row",
            COLOURS.len()
        ));
    }
    let mut groups: Vec<(&str, Vec<f64>)> = Vec::new();
    for (name, label) in wanted.iter().zip(labels) {
        let row =
            rows.iter().find(|row| row.first() == Some(name)).ok_or(format!("no row `{name}` to plot"))?;
        let cells =
            bars.iter().map(|bar| row[*bar].parse().map_err(|_| format!("`{}` is no number", row[*bar])));
        groups.push((label, cells.collect::<Result<_, String>>()?));
    }
    let most = groups.iter().flat_map(|(_, values)| values).fold(1.0, |a: f64, b| a.max(*b));
    let scale = (WIDTH - LEFT - 60.0) / most;
    let group = BAR * bars.len() as f64 + GROUP_GAP;
    let height = HEAD + group * groups.len() as f64;
    let mut out =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    let _ = write!(
        out,
        "\n<title>{title}</title>\n{STYLE}\n<text class=\"title\" x=\"0\" y=\"16\">{title}</text>\n"
    );
    for (number, name) in names.iter().enumerate() {
        let x = LEFT + 140.0 * number as f64;
        let _ =
            write!(out, "<rect x=\"{x}\" y=\"28\" width=\"12\" height=\"12\" fill=\"{}\"/>", COLOURS[number]);
        let _ = writeln!(out, "<text x=\"{}\" y=\"39\">{name}</text>", x + 18.0);
    }
    for (number, (label, values)) in groups.iter().enumerate() {
        let top = HEAD + group * number as f64;
        let middle = top + BAR * values.len() as f64 / 2.0 + 4.0;
        let _ =
            writeln!(out, "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{label}</text>", LEFT - 10.0);
        for (bar, value) in values.iter().enumerate() {
            let (y, length) = (top + BAR * bar as f64, (value * scale).round());
            let (thick, colour) = (BAR - 2.0, COLOURS[bar]);
            let _ = write!(
                out,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{length}\" height=\"{thick}\" fill=\"{colour}\"/>"
            );
            let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{value}</text>", LEFT + length + 6.0, y + 11.5);
        }
    }
    let _ = writeln!(
        out,
        "<line x1=\"{LEFT}\" y1=\"{}\" x2=\"{LEFT}\" y2=\"{}\"/>\n</svg>",
        HEAD - 4.0,
        height - 8.0
    );
    Ok(out)
}
