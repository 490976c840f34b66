//! Formats findings as text.

use super::{Diagnostic, Diagnostics, Severity};
use crate::Shown;
use crate::limits::{MAX_ALIKE, MAX_CONTEXT_COLUMNS};
use crate::source::{Pos, Sources};
use crate::table::Table;
use manylane_expr::{MAX_EDITS, is_harmful, nearest};
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;

impl Diagnostics {
    /// Formats the kept findings in HAProxy's format, sorted by position, with the process number `pid` in
    /// their heads. Of findings with the same text it shows the first, and the positions of the next ones.
    pub fn render(&self, sources: &Sources, pid: u32) -> String {
        let mut sorted: Vec<&Diagnostic> = self.found.iter().collect();
        sorted.sort_by_key(|finding| (finding.pos.is_none(), finding.pos));
        let mut groups: HashMap<(Severity, &str), Vec<Pos>> = HashMap::new();
        for finding in &sorted {
            let positions = groups.entry((finding.severity, finding.stem())).or_default();
            positions.extend(finding.pos);
        }
        let mut out = String::new();
        for finding in sorted {
            let count = self.alike(finding);
            if count < MAX_ALIKE {
                finding.render(sources, pid, &mut out);
            } else if let Some(positions) = groups.remove(&(finding.severity, finding.stem())) {
                finding.render(sources, pid, &mut out);
                out.push_str(&also(sources, count - 1, positions.get(1..).unwrap_or_default()));
            }
        }
        if self.dropped() > 0 {
            let severity = if self.errors() > 0 { Severity::Alert } else { Severity::Notice };
            line(&mut out, severity, pid, &format!("{} more findings are not shown", self.dropped()));
        }
        out
    }
}

/// One line about `count` more findings with the same text; `positions` are those of the first of them.
fn also(sources: &Sources, count: usize, positions: &[Pos]) -> String {
    if positions.is_empty() {
        return format!("   | {count} more of the same\n");
    }
    let shown = positions.iter().map(|pos| format!("{}:{}", Shown(sources.name(pos.file)), pos.line));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let rest = if count > positions.len() { ", ..." } else { "" };
    format!("   | {count} more of the same: {shown}{rest}\n")
}

impl Diagnostic {
    fn render(&self, sources: &Sources, pid: u32, out: &mut String) {
        let Some(pos) = self.pos else {
            line(out, self.severity, pid, &self.message);
            return;
        };
        // Keep the first line of the message next to the position.
        let (first, rest) = match self.message.split_once('\n') {
            Some((first, rest)) => (first, Some(rest)),
            None => (self.message.as_str(), None),
        };
        let name = Shown(sources.name(pos.file));
        line(out, self.severity, pid, &format!("parsing [{name}:{}] : {first}", pos.line));
        out.push_str(&format!("  --> {name}:{}:{}\n", pos.line, pos.column));
        context(sources, pos, out);
        if let Some(rest) = rest {
            out.push_str(rest);
            out.push('\n');
        }
    }
}

/// Writes one line in HAProxy's format.
pub(super) fn line(out: &mut String, severity: Severity, pid: u32, message: &str) {
    out.push_str(severity.tag());
    out.push_str(&format!("({pid}) : config : {message}\n"));
}

/// Keywords and fields whose values are secret, and converters with keys.
const SECRET: [&str; 15] = [
    "eab-mac-key",
    "password",
    "insecure-password",
    "dynamic-cookie-key",
    "cluster-secret",
    "anonkey",
    "tcp-md5sig",
    "authorization",
    "jwt_verify",
    "jwt_decrypt_secret",
    "hmac",
    "aes_gcm_enc",
    "aes_gcm_dec",
    "aes_cbc_enc",
    "aes_cbc_dec",
];

/// Payloads of `tcp-check`, which often log in.
const SENDS: [&str; 4] = ["send", "send-lf", "send-binary", "send-binary-lf"];

/// Payloads of `http-check send`.
const BODIES: [&str; 2] = ["body", "body-lf"];

/// The words of a line in lower case, without quotes, also split at `(`, `)`, `,` and `=`.
fn parts(line: &[u8]) -> Vec<Vec<u8>> {
    let splits = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'(' | b')' | b',' | b'=');
    let words = line.split(splits).map(|word| {
        let bytes = word.iter().filter(|byte| !matches!(byte, b'"' | b'\'' | b'\\'));
        bytes.map(u8::to_ascii_lowercase).collect::<Vec<_>>()
    });
    words.filter(|word| !word.is_empty()).collect()
}

/// Returns whether a line may have a secret: a word has a name of [`SECRET`] in it or is one misspelt, `auth`
/// is behind `stats`, or the line adds a user, has a payload of `tcp-check` or `http-check`, or quotes or
/// escapes a part of a check's request, whose version may then have header fields in it. Findings are logged,
/// so such a line is not shown.
fn may_have_secret(line: &[u8]) -> bool {
    let words = parts(line);
    let has = |word: &[u8], name: &str| word.windows(name.len()).any(|part| part == name.as_bytes());
    let is = |word: &[u8], name: &str| nearest(word, [name]).is_some();
    // `peer` is near, too, and a keyword.
    let is_keyword =
        |word: &[u8]| std::str::from_utf8(word).is_ok_and(|word| Table::get().named(word).next().is_some());
    let is_user =
        words.len() > 2 && (has(&words[0], "user") || is(&words[0], "user") && !is_keyword(&words[0]));
    let is_escaped = line.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'\\'));
    let stats = words.iter().position(|word| is(word, "stats")).unwrap_or(words.len());
    // Only a keyword at the start may be cut short: `mode tcp` is none.
    let is_near = |n: usize, word: &[u8]| {
        nearest(word, SECRET).is_some_and(|of| n == 0 || of.len().abs_diff(word.len()) <= MAX_EDITS)
    };
    is_user
        || words.iter().any(|word| SECRET.iter().any(|name| has(word, name)))
        || words.iter().enumerate().any(|(n, word)| is_near(n, word))
        || words.iter().skip(stats + 1).any(|word| is(word, "auth"))
        || is_escaped && words.iter().any(|word| is(word, "httpchk"))
        || words.array_windows().any(|[check, step]| match nearest(check, ["tcp-check", "http-check"]) {
            Some("tcp-check") => step.starts_with(b"send") || nearest(step, SENDS).is_some(),
            Some(_) => {
                let has_body = || words.iter().any(|word| nearest(word, BODIES).is_some());
                is(step, "send") && (is_escaped || has_body())
            }
            None => false,
        })
}

/// Writes the source line around `pos` without its indentation, then underlines the word at `pos`, with a
/// caret at `pos`. Control characters are escaped; the caret accounts for that. Writes nothing for a line
/// that may have a secret.
fn context(sources: &Sources, pos: Pos, out: &mut String) {
    let Some((bytes, _)) = sources.line(pos.file, pos.line) else { return };
    if may_have_secret(bytes) {
        return;
    }
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
    let word = word_around(bytes, caret);
    let (from, to) = (word.start.max(start), word.end.min(end));
    let columns = |range: Range<usize>| plain(&bytes[range]).chars().count();
    let width = head.len() + columns(start..from);
    let (left, right) = (columns(from..caret), columns(caret..to).saturating_sub(1));
    out.push_str(&format!("  {:width$}{}^{}\n", "", "~".repeat(left), "~".repeat(right)));
}

/// The word around the byte at `at` as written, with quotes and escapes. Empty if `at` is between words.
fn word_around(line: &[u8], at: usize) -> Range<usize> {
    let (mut begin, mut quote, mut index) = (None, None, 0);
    while let Some(&byte) = line.get(index) {
        if quote.is_none() && (byte == b'#' || byte.is_ascii_whitespace()) {
            if let Some(word) = begin.take().map(|begin| begin..index).filter(|word| word.contains(&at)) {
                return word;
            }
            if byte == b'#' {
                break;
            }
        } else {
            begin.get_or_insert(index);
            match (byte, quote) {
                (b'\\', None | Some(b'"')) => index += 1,
                (b'"' | b'\'', None) => quote = Some(byte),
                (byte, Some(open)) if byte == open => quote = None,
                _ => {}
            }
        }
        index += 1;
    }
    begin.map(|begin| begin..line.len()).filter(|word| word.contains(&at)).unwrap_or(at..at)
}

/// True for a continuation byte of UTF-8.
fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// Text with one column per character: tabs become a space, harmful bytes are escaped.
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
    fn the_shape_is_haproxys_with_the_position_and_the_word_underlined() {
        assert_eq!(
            shown(b"  maxcon 3\n", 3),
            "[ALERT]    (7) : config : parsing [t.cfg:1] : bad\n  --> t.cfg:1:3\n  maxcon 3\n  ^~~~~~\n"
        );
        assert!(shown(b"\tmode\thttp\n", 7).ends_with("\n  mode http\n       ^~~~\n"));
    }

    #[test]
    fn a_line_with_a_secret_is_not_shown() {
        let head = "[ALERT]    (7) : config : parsing [t.cfg:1] : bad\n  --> t.cfg:1:";
        for (line, column) in [
            ("  eab-mac-key c2VjcmV0", 15),
            ("no eab-mac-key c2VjcmV0", 1),
            ("eab-mac-kye c2VjcmV0", 1),
            ("eab-mac c2VjcmV0", 1),
            ("EAB_MAC_KEY\tc2VjcmV0", 1),
            ("\"eab-mac-kay\" c2VjcmV0", 1),
            ("user bob pasword c2VjcmV0", 10),
            ("user bob c2VjcmV0", 10),
            ("usr bob insecure-password c2VjcmV0", 1),
            ("stats auth bob:c2VjcmV0 more", 25),
            ("stats atuh bob:c2VjcmV0", 7),
            ("stat auth bob:c2VjcmV0", 1),
            ("dynamic-cookie-kay c2VjcmV0", 1),
            ("server s 192.0.2.1:1 tcp-md5sgi c2VjcmV0", 22),
            ("http-request set-haeder Authorization c2VjcmV0", 14),
            ("http-request set-header Proxy-Authorization c2VjcmV0 iff x", 52),
            ("http-request deny if { req.hdr(authorization) c2VjcmV0 } fobar", 57),
            ("http-request deny if { req.hdr(\"Authorization\") c2VjcmV0 } fobar", 59),
            ("tcp-check send-lff AUTH\\ c2VjcmV0", 11),
            ("tcp-check send AUTH\\ c2VjcmV0 x", 31),
            ("tcp-chekc snd AUTH\\ c2VjcmV0", 1),
            ("http-check send meth POST body c2VjcmV0 x", 41),
            ("http-chekc send bdoy c2VjcmV0", 17),
            ("http-check send ver \"HTTP/1.1 c2VjcmV0\"", 23),
            ("option httpchk GET / HTTP/1.1\\r\\nX:\\ c2VjcmV0", 23),
            ("option httpchk GET / 'HTTP/1.1 c2VjcmV0'", 22),
            ("http-request deny unless { var(txn.t),jwt_verify(HS256,\"c2VjcmV0\") 1 } iff", 71),
            ("http-request set-var(txn.a) src,hmac(sha256,c2VjcmV0) iff", 55),
            ("http-request set-var(txn.a) src,aes_gcm_dce(128,a,c2VjcmV0,b) iff", 63),
            ("stats admin auth bob:c2VjcmV0", 7),
            ("cluster-secret=c2VjcmV0", 1),
            ("dynamic-cookie-key=c2VjcmV0", 1),
        ] {
            assert_eq!(shown(line.as_bytes(), column), format!("{head}{column}\n"), "{line}");
        }
        for line in [
            "mode tcp x",
            "user haproxy",
            "stats uri /x y",
            "http-request auth x",
            "cookie c dynamic",
            "http-check send meth GET uri /x y",
            "http-check send hdr a b hdrr c d",
            "option httpchk GET /x HTTP/3.0",
            "http-check expect string body x",
        ] {
            assert!(shown(line.as_bytes(), 1).contains(line), "{line}");
        }
    }

    #[test]
    fn a_user_of_a_list_is_not_shown() {
        let text = "userlst l\n\n usr f a\n users f pass b\npeers p\n peer n c x\n\
            userlist l\n # d\n group g users h\n username f pass e\n";
        let mut sources = Sources::new();
        let file = sources.add("t.cfg", text).unwrap();
        let shows = |line| {
            let mut all = Diagnostics::new(false);
            all.alert(Pos { file, line, column: 1 }, "bad");
            all.render(&sources, 7).lines().count() > 2
        };
        let shown: Vec<u32> = (1..=10).filter(|line| shows(*line)).collect();
        assert_eq!(shown, [1, 2, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn the_caret_is_at_the_fault_inside_of_the_underlined_word() {
        for (line, column, under) in [
            ("a ^/(b| c", 5, "  ~~^~~"),
            ("a 'b c' d", 3, "  ^~~~~"),
            ("a \"b \\\" c\" d", 5, "  ~~^~~~~~"),
            ("a b\\ c d", 4, "  ~^~~"),
            ("a bc#d", 3, "  ^~"),
            ("a bc", 5, "    ^"),
            ("a  bc", 3, "  ^"),
            ("a 'open c", 3, "  ^~~~~~~"),
        ] {
            let text = shown(format!("{line}\n").as_bytes(), column);
            assert_eq!(text.lines().last().unwrap(), format!("  {under}"), "{text}");
        }
    }

    #[test]
    fn findings_are_sorted_by_line_and_many_alike_are_one() {
        let mut sources = Sources::new();
        let file = sources.add("t.cfg", "x\n".repeat(1000)).unwrap();
        let at = |line| Pos { file, line, column: 1 };
        let mut all = Diagnostics::new(false);
        for line in 12..1000 {
            all.alert(at(line), "alike");
        }
        all.warning(at(3), "later");
        all.push(Severity::Warning, None, "nowhere");
        for line in [2, 1, 5] {
            all.alert(at(line), "few");
        }
        let text = all.render(&sources, 7);
        let heads: Vec<&str> = text.lines().filter(|line| !line.starts_with("  ")).collect();
        assert_eq!(
            heads,
            [
                "[ALERT]    (7) : config : parsing [t.cfg:1] : few",
                "[ALERT]    (7) : config : parsing [t.cfg:2] : few",
                "[WARNING]  (7) : config : parsing [t.cfg:3] : later",
                "[ALERT]    (7) : config : parsing [t.cfg:5] : few",
                "[ALERT]    (7) : config : parsing [t.cfg:12] : alike",
                "[WARNING]  (7) : config : nowhere",
            ]
        );
        assert!(text.contains("   | 987 more of the same: t.cfg:13, t.cfg:14, t.cfg:15, ...\n"), "{text}");
        assert_eq!(all.tally().as_deref(), Some("991 errors, 2 warnings"));
    }

    #[test]
    fn each_severity_has_its_tag_and_no_position_no_caret() {
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
        assert!(text.ends_with("\n  a\\x1b\\xffb\n  ~~~~~~~~~^\n"), "{text}");
        let text = shown("ü x\n".as_bytes(), 4);
        assert!(text.ends_with("\n  ü x\n    ^\n"), "{text}");
    }

    #[test]
    fn long_lines_show_a_window_around_the_caret() {
        let mut line = vec![b'x'; 3000];
        line[1500] = b'!';
        let text = shown(&line, 1501);
        let mut lines = text.lines().skip(2);
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
            "[WARNING]  (7) : config : parsing [t.cfg:1] : first\n  --> t.cfg:1:1\n  x\n  ^\n   | second\n"
        );
    }
}
