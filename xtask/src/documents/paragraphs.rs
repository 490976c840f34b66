//! The prose of a Markdown file: paragraphs and list items, without tables, code, headings and HTML.

/// Consecutive lines of prose. A list item is a paragraph.
pub(super) struct Paragraph<'a> {
    /// Number of the first line, from 0.
    pub(super) first: usize,
    pub(super) lines: Vec<&'a str>,
    /// The text before the first line's prose: spaces and the mark of an item or a quotation.
    pub(super) lead: &'a str,
    /// The last line ends with a hard line break, so no line joins it.
    hard_end: bool,
}

impl Paragraph<'_> {
    /// The indentation of further lines.
    pub(super) fn indent(&self) -> String {
        self.lead.chars().map(|c| if c == '>' { '>' } else { ' ' }).collect()
    }
}

pub(super) fn of(text: &str) -> Vec<Paragraph<'_>> {
    let mut found: Vec<Paragraph<'_>> = Vec::new();
    let mut open = false;
    let mut outside: Option<Outside> = None;
    let mut item_indent = 0;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(kind) = outside {
            if kind.ends_with(trimmed) {
                outside = None;
            }
            continue;
        }
        // A tag does not end a paragraph: `<name>` may begin any line of it.
        let outsider = Outside::beginning(trimmed).filter(|kind| !open || !matches!(kind, Outside::Html));
        if let Some(kind) = outsider {
            open = false;
            outside = Some(kind).filter(|kind| kind.goes_on(trimmed));
            continue;
        }
        let mark = mark(trimmed);
        if indent == 0 && mark == 0 && !open {
            item_indent = 0;
        }
        let is_code = !open && mark == 0 && indent >= item_indent + 4;
        if trimmed.is_empty() || is_code || is_no_prose(trimmed) {
            open = false;
            continue;
        }
        let quoted = trimmed.starts_with('>');
        let joins = open && (mark == 0 || quoted && found.last().is_some_and(|last| last.lead.contains('>')));
        match found.last_mut().filter(|last| joins && !last.hard_end) {
            Some(last) => last.lines.push(line),
            None => {
                if mark > 0 && !quoted {
                    item_indent = indent + mark;
                }
                found.push(Paragraph {
                    first: number,
                    lines: vec![line],
                    lead: &line[..indent + mark],
                    hard_end: false,
                });
            }
        }
        if let Some(last) = found.last_mut() {
            last.hard_end = line.ends_with('\\') || line.ends_with("  ");
        }
        open = true;
    }
    found
}

/// A block of several lines that is not prose.
#[derive(Clone, Copy)]
enum Outside {
    Code(&'static str),
    Comment,
    Html,
}

impl Outside {
    fn beginning(line: &str) -> Option<Self> {
        let fence = ["```", "~~~"].into_iter().find(|fence| line.starts_with(fence));
        match fence {
            Some(fence) => Some(Self::Code(fence)),
            None if line.starts_with("<!--") => Some(Self::Comment),
            // An address in angle brackets is prose.
            None if line.starts_with('<') && !line.starts_with("<http") => Some(Self::Html),
            None => None,
        }
    }

    /// True if the block continues after the first line.
    fn goes_on(self, first: &str) -> bool {
        !matches!(self, Self::Comment) || !first.contains("-->")
    }

    fn ends_with(self, line: &str) -> bool {
        match self {
            Self::Code(fence) => line.starts_with(fence),
            Self::Comment => line.contains("-->"),
            Self::Html => line.is_empty(),
        }
    }
}

/// Length of the mark of an item or a quotation in bytes, with the space after it.
fn mark(line: &str) -> usize {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let sign = match line.as_bytes().get(digits) {
        Some(b'-' | b'*' | b'+' | b'>') if digits == 0 => 1,
        Some(b'.' | b')') if (1..=3).contains(&digits) => 1,
        _ => return 0,
    };
    let rest = &line[digits + sign..];
    let spaces = rest.bytes().take_while(|b| *b == b' ').count();
    if spaces == 0 && !rest.is_empty() { 0 } else { digits + sign + spaces }
}

/// True for a table row, a heading, a rule, or a link definition.
fn is_no_prose(line: &str) -> bool {
    let rule = line.len() > 2 && line.bytes().all(|b| matches!(b, b'-' | b'=' | b'*' | b' '));
    line.starts_with('|') || line.starts_with('#') || rule || line.starts_with('[') && line.contains("]: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        of(text).iter().map(|paragraph| paragraph.lines.join("/")).collect()
    }

    #[test]
    fn prose_is_distinguished_from_the_rest() {
        let text = "# Title\none\ntwo\n\n| a | b |\n|---|---|\n\n```sh\ncode\n```\n<!-- not\nthis -->\n- \
            item\n  more\n- next\n\n      code\n\n[x]: y\n";
        assert_eq!(texts(text), ["one/two", "- item/  more", "- next"]);
    }

    #[test]
    fn an_item_has_paragraphs_and_a_break_ends_one() {
        assert_eq!(texts("1. item\n\n   more\n\nnext\n"), ["1. item", "   more", "next"]);
        assert_eq!(texts("**a**\\\nb\nc\n"), ["**a**\\", "b/c"]);
        assert_eq!(texts("> a\n> b\n"), ["> a/> b"]);
        assert_eq!(texts("a - b\n5 of them\n-1 is one\n"), ["a - b/5 of them/-1 is one"]);
    }
}
