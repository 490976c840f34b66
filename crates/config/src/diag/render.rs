//! Findings as text.

use super::{Diagnostic, Diagnostics, Severity};
use crate::Shown;
use crate::limits::MAX_CONTEXT_COLUMNS;
use crate::source::{Pos, Sources};
use manylane_expr::is_harmful;
use std::fmt::Write;

impl Diagnostics {
    /// All kept findings as text, each as HAProxy shapes it, with the process's number `pid` in its head.
    pub fn render(&self, sources: &Sources, pid: u32) -> String {
        let mut out = String::new();
        for finding in &self.found {
            finding.render(sources, pid, &mut out);
        }
        if self.dropped() > 0 {
            let severity = if self.errors() > 0 { Severity::Alert } else { Severity::Notice };
            line(&mut out, severity, pid, &format!("{} more findings are not shown", self.dropped()));
        }
        out
    }
}

impl Diagnostic {
    fn render(&self, sources: &Sources, pid: u32, out: &mut String) {
        let Some(pos) = self.pos else {
            line(out, self.severity, pid, &self.message);
            return;
        };
        // A message of several lines keeps its first line together with the place.
        let (first, rest) = match self.message.split_once('\n') {
            Some((first, rest)) => (first, Some(rest)),
            None => (self.message.as_str(), None),
        };
        let name = Shown(sources.name(pos.file));
        let head = format!("parsing [{name}:{}] : {first} at column {}:", pos.line, pos.column);
        line(out, self.severity, pid, &head);
        context(sources, pos, out);
        if let Some(rest) = rest {
            out.push_str(rest);
            out.push('\n');
        }
    }
}

/// One line in HAProxy's shape.
pub(super) fn line(out: &mut String, severity: Severity, pid: u32, message: &str) {
    out.push_str(severity.tag());
    out.push_str(&format!("({pid}) : config : {message}\n"));
}

/// The source line around `pos`, its indentation left out, and a caret below it. What a terminal would act on
/// is shown escaped, and the caret stands below what is shown.
fn context(sources: &Sources, pos: Pos, out: &mut String) {
    let Some((bytes, _)) = sources.line(pos.file, pos.line) else { return };
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let caret = (pos.column as usize - 1).min(bytes.len());
    let indent = bytes.iter().take_while(|b| b.is_ascii_whitespace()).count().min(caret);
    let mut start = indent;
    if caret - start > MAX_CONTEXT_COLUMNS / 2 {
        start = caret - MAX_CONTEXT_COLUMNS / 2;
        while start < caret && is_continuation(bytes[start]) {
            start += 1;
        }
    }
    let mut end = bytes.len().min(start + MAX_CONTEXT_COLUMNS);
    while end > caret && end < bytes.len() && is_continuation(bytes[end]) {
        end -= 1;
    }
    let head = if start > indent { "..." } else { "" };
    let tail = if end < bytes.len() { "..." } else { "" };
    let before = plain(&bytes[start..caret]);
    let after = plain(&bytes[caret..end]);
    out.push_str(&format!("  {head}{before}{after}{tail}\n"));
    let width = head.len() + before.chars().count();
    out.push_str(&format!("  {:width$}^\n", ""));
}

/// Whether a byte is one of the further bytes of a UTF-8 character.
fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// Text of one column a character: tabs become one space, harmful bytes are escaped.
fn plain(bytes: &[u8]) -> String {
    let mut text = String::new();
    let escape = |byte: u8, text: &mut String| {
        let _ = write!(text, "\\x{byte:02x}"); // writing to a String cannot fail
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\t' {
                text.push(' ');
            } else if is_harmful(c) {
                let mut utf8 = [0; 4];
                c.encode_utf8(&mut utf8).bytes().for_each(|byte| escape(byte, &mut text));
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|&byte| escape(byte, &mut text));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &[u8], column: u32) -> String {
        let mut sources = Sources::new();
        let file = sources.add("t.cfg", text).unwrap();
        let mut all = Diagnostics::new(false);
        all.alert(Pos { file, line: 1, column }, "bad");
        all.render(&sources, 7)
    }

    #[test]
    fn the_shape_is_haproxys_with_a_caret_below_the_column() {
        assert_eq!(
            shown(b"  maxcon 3\n", 3),
            "[ALERT]    (7) : config : parsing [t.cfg:1] : bad at column 3:\n  maxcon 3\n  ^\n"
        );
        assert!(shown(b"\tmode\thttp\n", 7).ends_with("\n  mode http\n       ^\n"));
    }

    #[test]
    fn each_severity_has_its_tag_and_no_place_no_caret() {
        let mut all = Diagnostics::new(true);
        for severity in [Severity::Diag, Severity::Notice, Severity::Warning, Severity::Alert] {
            all.push(severity, None, "m");
        }
        assert_eq!(
            all.render(&Sources::new(), 1),
            "[DIAG]     (1) : config : m\n[NOTICE]   (1) : config : m\n\
             [WARNING]  (1) : config : m\n[ALERT]    (1) : config : m\n"
        );
    }

    #[test]
    fn harmful_bytes_are_escaped_and_the_caret_follows() {
        let text = shown(b"a\x1b\xffb\n", 4);
        assert!(text.ends_with("\n  a\\x1b\\xffb\n           ^\n"), "{text}");
        let text = shown("ü x\n".as_bytes(), 4);
        assert!(text.ends_with("\n  ü x\n    ^\n"), "{text}");
    }

    #[test]
    fn long_lines_show_a_window_around_the_caret() {
        let mut line = vec![b'x'; 3000];
        line[1500] = b'!';
        let text = shown(&line, 1501);
        let mut lines = text.lines().skip(1);
        let (context, caret) = (lines.next().unwrap(), lines.next().unwrap());
        assert!(context.len() < MAX_CONTEXT_COLUMNS + 20);
        assert_eq!(context.find('!'), caret.find('^'));
    }

    #[test]
    fn a_caret_past_the_end_stands_behind_the_last_column() {
        assert!(shown(b"bind\n", 99).ends_with("\n  bind\n      ^\n"));
        assert!(shown(b"\n", 1).ends_with("\n  \n  ^\n"));
    }

    #[test]
    fn further_lines_of_a_message_follow_the_caret() {
        let mut sources = Sources::new();
        let file = sources.add("t.cfg", "x\n").unwrap();
        let mut all = Diagnostics::new(false);
        all.warning(Pos { file, line: 1, column: 1 }, "first\n   | second");
        assert_eq!(
            all.render(&sources, 7),
            "[WARNING]  (7) : config : parsing [t.cfg:1] : first at column 1:\n  x\n  ^\n   | second\n"
        );
    }
}
