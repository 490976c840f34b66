//! Cells of the statistics page in a form for people: durations in two units, digits in groups of three, the
//! parts of a check's result in one cell.

use crate::commands::columns::Column;
use crate::commands::stat::{Kind, Line};
use crate::commands::values::Value;
use std::fmt::Write;

/// Formats a cell of the page as HTML.
pub(crate) fn cell(line: &Line, column: Column) -> String {
    let text = |column: Column| line.value(column).map(Value::text).unwrap_or_default();
    match (column, line.value(column)) {
        (_, None) => String::new(),
        (Column::Status, _) => status(line, &text(Column::Status)),
        (Column::CheckStatus, _) => check(line, &text),
        (Column::Lastsess, Some(Value::Signed(..0))) => "?".into(),
        (Column::Lastsess | Column::Downtime, Some(value)) => {
            value.text().parse().map_or_else(|_| String::new(), duration)
        }
        (Column::Act | Column::Bck, Some(value)) if line.kind() == Kind::Server => {
            if value.text() == "0" {
                "-".into()
            } else {
                "Y".into()
            }
        }
        (_, Some(value)) => value.unsigned().map_or_else(|| escaped(&value.text()), grouped),
    }
}

/// Formats a status. The time since its last change comes first, unless the server has no check.
fn status(line: &Line, word: &str) -> String {
    let seconds = match line.value(Column::Lastchg) {
        Some(Value::Number32(seconds)) if word != "no check" => u64::from(*seconds),
        _ => return escaped(word),
    };
    format!("{} {}", duration(seconds), escaped(word))
}

/// Formats the result of the last check: status, code and duration; its description is the cell's title.
fn check(line: &Line, text: &dyn Fn(Column) -> String) -> String {
    let mut shown = text(Column::CheckStatus);
    if line.value(Column::CheckCode).is_some() {
        let _ = write!(shown, "/{}", text(Column::CheckCode));
    }
    if line.value(Column::CheckDuration).is_some() {
        let _ = write!(shown, " in {}ms", text(Column::CheckDuration));
    }
    let title = [text(Column::CheckDesc), text(Column::LastChk)].join(": ");
    let title = title.trim_end_matches(": ");
    format!("<span title=\"{}\">{}</span>", escaped(title), escaped(&shown))
}

/// Formats a time in its two largest units: `3m6s`, `2h0m`, `5d4h`.
pub(crate) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match () {
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => format!("{minutes}m{}s", seconds % 60),
        () if days == 0 => format!("{hours}h{}m", minutes % 60),
        () => format!("{days}d{}h", hours % 24),
    }
}

/// Formats a number with its digits in groups of three. Markup separates the groups, so a copy of the text
/// has no separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + 16);
    let mut rest = &*digits;
    while rest.len() > 3 {
        let (group, behind) = rest.split_at((rest.len() - 1) % 3 + 1);
        let _ = write!(shown, "<b>{group}</b>");
        rest = behind;
    }
    shown + rest
}

/// Escapes text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_be_markup() {
        assert_eq!(escaped("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }

    /// Item 69 of haproxy-today.
    #[test]
    fn times_have_two_units_and_digits_stand_in_groups() {
        let cases =
            [(0, "0s"), (59, "59s"), (186, "3m6s"), (7_200, "2h0m"), (86_399, "23h59m"), (446_400, "5d4h")];
        for (seconds, shown) in cases {
            assert_eq!(duration(seconds), shown);
        }
        for (number, shown) in
            [(0, "0"), (999, "999"), (1_000, "<b>1</b>000"), (1_234_567, "<b>1</b><b>234</b>567")]
        {
            assert_eq!(grouped(number), shown);
        }
    }
}
