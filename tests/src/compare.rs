//! What counts as the same: everything except what differs between two runs of one program, and the texts of
//! the program's own responses.

use crate::case::Part;
use crate::client::Got;
use crate::message::{Kind, Message};
use crate::origin::RecordedRequest;
use crate::run::Outcome;
use std::time::{SystemTime, UNIX_EPOCH};

/// Formats a part of an outcome for comparison.
pub fn text(outcome: &Outcome, part: Part) -> String {
    match part {
        Part::Answers => {
            let mut text = String::new();
            for (index, answers) in outcome.answers.iter().enumerate() {
                for got in answers {
                    text += &format!("--- {}\n{}", index + 1, got_text(got));
                }
            }
            for rest in &outcome.rest {
                text += &format!("--- rest of the connection: {}\n", rest_text(rest));
            }
            text
        }
        Part::Origin => {
            let observed: String =
                outcome.requests.iter().map(|(name, requests)| requests_text(name, requests)).collect();
            observed + &outcome.heard.iter().map(|(name, heard)| heard_text(name, heard)).collect::<String>()
        }
        Part::Log => {
            outcome.log.iter().filter(|line| !is_farewell(line)).map(|line| log_line(line) + "\n").collect()
        }
        Part::Cli => outcome.cli.iter().map(|(command, answer)| format!("> {command}\n{answer}")).collect(),
        Part::Exit => format!("{:?}\n", outcome.exit),
    }
}

/// Lines that only one of two texts has, in order: with `- ` for the first and `+ ` for the second. Trailing
/// blanks and unprintable bytes are escaped.
pub fn difference(first: &str, second: &str) -> Vec<String> {
    let shown = |line: &str| {
        let (mut text, blanks) = (String::new(), line.len() - line.trim_end_matches(' ').len());
        for letter in line.trim_end_matches(' ').chars() {
            match letter.is_control() {
                true => text += &format!(r"\x{:02x}", u32::from(letter)),
                false => text.push(letter),
            }
        }
        text + &r"\x20".repeat(blanks)
    };
    let lines = |text: &str| text.lines().map(shown).collect::<Vec<_>>();
    let (first, second) = (lines(first), lines(second));
    // Longest common subsequence of the texts behind two positions.
    let mut common = vec![vec![0_usize; second.len() + 1]; first.len() + 1];
    for (a, one) in first.iter().enumerate().rev() {
        for (b, other) in second.iter().enumerate().rev() {
            common[a][b] =
                if one == other { common[a + 1][b + 1] + 1 } else { common[a + 1][b].max(common[a][b + 1]) };
        }
    }
    let (mut a, mut b, mut found) = (0, 0, Vec::new());
    while a < first.len() || b < second.len() {
        if a < first.len() && b < second.len() && first[a] == second[b] {
            (a, b) = (a + 1, b + 1);
        } else if a < first.len() && (b == second.len() || common[a + 1][b] >= common[a][b + 1]) {
            found.push(format!("- {}", first[a]).trim_end().to_owned());
            a += 1;
        } else {
            found.push(format!("+ {}", second[b]).trim_end().to_owned());
            b += 1;
        }
    }
    found
}

/// Messages of a program at its end, which differ in wording.
fn is_farewell(line: &str) -> bool {
    line.contains(" Proxy ") && line.contains(" stopped ")
}

fn got_text(got: &Got) -> String {
    match got {
        Got::Answer(message) => answer_text(message),
        other => format!("{other:?}\n"),
    }
}

/// Input after the client has finished: responses, HTTP/2 frames, or other bytes.
fn rest_text(mut rest: &[u8]) -> String {
    if let Some(text) = frames_text(rest) {
        return text;
    }
    let mut text = String::new();
    while rest.starts_with(b"HTTP/") {
        match Message::read(&mut rest, Kind::Answer { to_head: false }) {
            Ok(Some(message)) => text += &answer_text(&message),
            Ok(None) | Err(_) => break,
        }
    }
    text + &rest.escape_ascii().to_string()
}

/// HTTP/2 frames as text, stream by stream, then those of the connection. SETTINGS, windows and compressed
/// heads differ between programs. `None` if the bytes are no frames.
fn frames_text(mut rest: &[u8]) -> Option<String> {
    let mut frames = Vec::new();
    while let [a, b, c, kind, _, d, e, f, g, behind @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let payload = behind.get(..length)?;
        let code = || payload.last_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let text = match kind {
            _ if frames.is_empty() && *kind != 4 => return None,
            0 => format!("DATA {}", payload.escape_ascii()),
            1 => "HEADERS".to_owned(),
            3 => format!("RST_STREAM {}", code()?),
            4 | 8 => String::new(),
            7 => format!("GOAWAY {} {}", u32::from_be_bytes(*payload.first_chunk()?), code()?),
            other => format!("frame of kind {other}"),
        };
        frames.push((u32::from_be_bytes([*d, *e, *f, *g]), text));
        rest = &behind[length..];
    }
    let reported = !frames.is_empty() && rest.is_empty();
    frames.retain(|(_, text)| !text.is_empty());
    frames.sort_by_key(|(stream, _)| (*stream == 0, *stream));
    let lines = frames.into_iter().map(|(stream, text)| format!("\n{stream}: {text}"));
    reported.then(|| lines.collect())
}

/// A response of the program itself is compared without its body, whose text differs; responses of origins
/// are marked.
fn answer_text(message: &Message) -> String {
    let own = message.values("x-origin").next().is_none();
    let mut message = with_lower_names(message);
    if !own {
        return message.show();
    }
    // Fields with different names may have any order.
    message.fields.sort();
    if message.values("x-compare-body").next().is_some() {
        return message.show();
    }
    message.body.clear();
    message.fields.retain(|field| !field.to_ascii_lowercase().starts_with("content-length:"));
    // The reason phrase, too.
    message.start = message.start.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ");
    message.show()
}

/// Field names are compared without case; HAProxy writes them in lower case, we forward them unchanged.
fn with_lower_names(message: &Message) -> Message {
    let mut message = message.clone();
    for field in &mut message.fields {
        let end = field.find(':').unwrap_or(0);
        field[..end].make_ascii_lowercase();
        if field.starts_with("set-cookie:") {
            *field = without_present_dates(field);
        }
    }
    message
}

/// `SRV=a|awfMo|awfM1; path=/`: dates in steps of 4 seconds, by which two runs may differ. Those of about now
/// become `NOW`.
fn without_present_dates(cookie: &str) -> String {
    /// Ten minutes.
    const ABOUT: u64 = 150;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 4;
    let mut parts = cookie.split('|');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(';').unwrap_or(part.len());
        let is_now = end == 5 && date_of(&part[..end]).is_some_and(|date| date.abs_diff(now) < ABOUT);
        text += &if is_now { format!("|NOW{}", &part[end..]) } else { format!("|{part}") };
    }
    text
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Reads digits of base64 as one number.
fn date_of(digits: &str) -> Option<u64> {
    digits.bytes().try_fold(0, |date, digit| {
        let value = DIGITS.iter().position(|own| *own == digit)?;
        Some(date << 6 | value as u64)
    })
}

fn requests_text(name: &str, requests: &[RecordedRequest]) -> String {
    let mut text = String::new();
    for observed in requests {
        text += &format!("--- {name}, connection {}\n", observed.connection);
        if let Some(greeting) = &observed.greeting {
            text += &format!("{}\n", without_ports(greeting));
        }
        text += &with_lower_names(&observed.request).show();
    }
    text
}

/// Data that a talker received, a line each.
fn heard_text(name: &str, heard: &[Vec<u8>]) -> String {
    let mut text = String::new();
    // The system decides whether a server is told of a connection that ends at once.
    for (index, bytes) in heard.iter().filter(|bytes| !bytes.is_empty()).enumerate() {
        text += &format!("--- {name}, connection {}\n", index + 1);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = line.escape_ascii().to_string();
            let line = if line.starts_with("PROXY ") {
                without_ports(&line.replace(r"\r\n", r" \r\n"))
            } else {
                line
            };
            text += &(without_port_of(&line) + "\n");
        }
    }
    text
}

/// `address=127.0.0.1; port=40000`
fn without_port_of(line: &str) -> String {
    let Some((before, after)) = line.split_once("; port=") else { return line.to_owned() };
    format!("{before}; port=PORT{}", after.trim_start_matches(|letter: char| letter.is_ascii_digit()))
}

/// `PROXY TCP4 127.0.0.1 127.0.0.1 40000 80`: the kernel chooses both ports.
fn without_ports(greeting: &str) -> String {
    greeting
        .split(' ')
        .map(|word| if word.parse::<u16>().is_ok() { "PORT" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Parses the header of a syslog line, without date, program and process; returns the rest, too.
fn syslog_header(rest: &str) -> Option<(String, &str)> {
    let program = |word: &str| {
        if matches!(word, "haproxy" | "manylane") { "PROGRAM".to_owned() } else { word.to_owned() }
    };
    if let Some(modern) = rest.strip_prefix("1 ") {
        // "1 2026-11-21T06:52:56.123456+00:00 - haproxy 123 - [data] message"
        let mut words = modern.splitn(6, ' ');
        let (_, host, tag) = (words.next()?, words.next()?, words.next()?);
        return Some((format!("1 {host} {} ", program(tag)), words.nth(2)?));
    }
    // "Nov 21 06:52:56 host haproxy[123]: message"
    let (header, message) = rest.split_once("]: ")?;
    let (before, pid) = header.rsplit_once('[')?;
    pid.parse::<u32>().ok()?;
    let behind_date = before.get(16..)?;
    let words: Vec<String> = behind_date.split(' ').map(program).collect();
    Some((format!("{} ", words.join(" ")), message))
}

/// Replaces the parts of a log line that differ between runs by their names: time, program, process, ports,
/// durations and bytes. Priority and host stay.
pub fn log_line(line: &str) -> String {
    let (priority, rest) = match line.split_once('>') {
        Some((priority, rest)) if priority.starts_with('<') => (format!("{priority}> "), rest),
        _ => (String::new(), line),
    };
    let (header, message) = syslog_header(rest).unwrap_or((String::new(), rest));
    let priority = priority + &header;
    let http = message.ends_with('"');
    let mut words: Vec<String> = Vec::new();
    // In the combined log format numbers are words; the status after the request stays.
    let combined = message.contains(" \"\" \"\" ");
    for word in message.split(' ') {
        let date = word.starts_with('[') && word.matches(':').count() == 3 && word.matches('/').count() == 2;
        let word = if date && !word.ends_with(']') {
            "[TIME".into() // "[21/Nov/2026:06:52:56 +0000]": the zone is a word of its own
        } else if let Some(address) = word.strip_prefix("127.0.0.1:") {
            let tail: String = address.chars().skip_while(char::is_ascii_digit).collect();
            format!("127.0.0.1:PORT{tail}")
        } else if date {
            "[TIME]".into()
        } else if combined
            && word.parse::<u64>().is_ok()
            && !words.last().is_some_and(|last| last.starts_with("HTTP/") || last == "\"<BADREQ>\"")
        {
            "N".into()
        } else if is_timers(word) {
            word.split('/').map(timer).collect::<Vec<_>>().join("/")
        } else {
            word.to_owned()
        };
        words.push(word);
    }
    // HAProxy counts bytes of its internal form of messages. The order is timers, status, bytes; without a
    // status in TCP mode.
    if let Some(timers) = words.iter().position(|word| is_masked(word)) {
        let status = words.get(timers + 1).is_some_and(|word| word.len() == 3 || word == "-1");
        if let Some(bytes) = words.get_mut(timers + 1 + usize::from(status && http)) {
            *bytes = "BYTES".into();
        }
    }
    priority + &without_duration(&words.join(" "))
}

/// `check duration: 12ms`
fn without_duration(line: &str) -> String {
    let Some((before, after)) = line.split_once("check duration: ") else { return line.to_owned() };
    format!("{before}check duration: N{}", after.trim_start_matches(|letter: char| letter.is_ascii_digit()))
}

/// Durations such as `0/0/0/1/2`, perhaps with `-1` or `+`. Connection counts have the same form and are
/// masked, too, since they vary between runs.
fn is_timers(word: &str) -> bool {
    let parts: Vec<&str> = word.split('/').collect();
    parts.len() >= 3 && parts.iter().all(|part| part.trim_start_matches(['+', '-']).parse::<u64>().is_ok())
}

/// Returns true if [`timer`] has masked it.
fn is_masked(word: &str) -> bool {
    word.split('/').all(|part| part == "T" || part == "-1")
}

fn timer(part: &str) -> &str {
    if part == "-1" { "-1" } else { "T" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_the_lines_that_one_has_alone() {
        assert_eq!(difference("a\nb\nc\nd\n", "a\nc\nd \n\n"), ["- b", "- d", r"+ d\x20", "+"]);
        assert!(difference("a\nb\n", "a\nb\n").is_empty());
        assert_eq!(difference("", "a\0\n"), [r"+ a\x00"]);
    }

    #[test]
    fn log_lines_lose_times_ports_and_durations_and_nothing_else() {
        let line = "<134>Nov 21 06:52:56 haproxy[77]: 127.0.0.1:45678 [21/Nov/2026:06:52:56.123] front \
            back/one 0/0/1/-1/3 503 217 - - SC-- 1/1/0/0/3 0/0 \"GET / HTTP/1.1\"";
        let shown = log_line(line);
        assert_eq!(
            shown,
            "<134> PROGRAM 127.0.0.1:PORT [TIME] front back/one T/T/T/-1/T 503 BYTES - - SC-- T/T/T/T/T 0/0 \
                \"GET / HTTP/1.1\""
        );
        let clf = "127.0.0.1 - - [21/Nov/2026:06:52:56 +0000] \"GET / HTTP/2.0\" 200 12 \"\" \"\" 45678 3 \
            \"f\" \"b\" \"a\" 2";
        let shown = "127.0.0.1 - - [TIME +0000] \"GET / HTTP/2.0\" 200 N \"\" \"\" N N \"f\" \"b\" \"a\" N";
        assert_eq!(log_line(clf), shown);
        let long_ago = "set-cookie: S=b|O5rKA|f43PA; path=/";
        assert_eq!(without_present_dates(long_ago), long_ago);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 4;
        let digits: String =
            (0..5).rev().map(|n| char::from(DIGITS[(now >> (6 * n)) as usize % 64])).collect();
        let cookie = format!("set-cookie: S=b|{digits}|O5rKA; path=/");
        assert_eq!(without_present_dates(&cookie), "set-cookie: S=b|NOW|O5rKA; path=/");
        let line = "<134>1 2026-11-21T06:52:56.123456+00:00 - haproxy 77 - [a@1 b=\"c d\"] said so";
        assert_eq!(log_line(line), "<134> 1 - PROGRAM [a@1 b=\"c d\"] said so");
        assert_eq!(log_line("<134>Nov  1 06:52:56 here tag[7]: said"), "<134> here tag said");
        assert_eq!(log_line("<134>said [1]: so"), "<134> said [1]: so");
        assert_eq!(log_line("<1>said, check duration: 12ms, so"), "<1> said, check duration: Nms, so");
        assert_eq!(
            heard_text("A", &[b"a; port=12; b\r\nc".to_vec()]),
            "--- A, connection 1\na; port=PORT; b\\r\\n\nc\n"
        );
    }
}
