//! `option smtpchk`: reads the greeting of a mail server, answers it, and quits.

use super::{Expect, Judgement, Pattern, Script, Service, Step};
use crate::status::{CheckResult, Status};

/// Part of the dialogue that an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The connection.
    Greeting,
    /// `HELO` or `EHLO`; the answer may have several lines.
    Hello,
    /// `QUIT`
    Quit,
}

/// Returns the script. `hello` is `HELO` or `EHLO`, and `name` follows it.
pub fn script(hello: &[u8], name: &[u8]) -> Script {
    let expect = |part, number| Step::expect(Expect::new(Pattern::Service(Service::Smtp(part)), number));
    let hello = [hello, b" ", name, b"\r\n"].concat();
    // Step numbers are those of HAProxy, which has two steps for the greeting.
    Script::of(vec![
        Step::polite(),
        expect(Part::Greeting, 2),
        Step::send(hello),
        expect(Part::Hello, 5),
        Step::send(*b"QUIT\r\n"),
        expect(Part::Quit, 7),
    ])
}

pub(super) fn judge(part: Part, mut input: &[u8], last: bool) -> Judgement {
    loop {
        let (line, rest) = match input.iter().position(|byte| *byte == b'\n') {
            Some(end) => (&input[..end], &input[end + 1..]),
            None if last => (input, &b""[..]),
            None => return Judgement::Wait,
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (code, text) = line.split_at(line.len().min(3));
        // Three digits, then `-` if more lines follow.
        let number = (code.len() == 3 && code.iter().all(u8::is_ascii_digit))
            .then(|| code.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')));
        let (more, fits) = (text.first() == Some(&b'-'), matches!(text.first(), None | Some(b' ' | b'-')));
        let said = text.get(1..).unwrap_or_default().trim_ascii_start();
        match number.filter(|_| fits) {
            None if part == Part::Greeting => {
                return Judgement::Over(CheckResult {
                    code: None,
                    ..CheckResult::said(Status::L7Rsp, 0, line)
                });
            }
            None => return Judgement::Over(CheckResult::said(Status::L7Sts, 0, line)),
            // A greeting with several lines is refused, as by HAProxy.
            Some(_) if more && part == Part::Greeting => {
                return Judgement::Over(CheckResult {
                    code: None,
                    ..CheckResult::said(Status::L7Rsp, 0, line)
                });
            }
            Some(number) if number / 100 != 2 => {
                return Judgement::Over(CheckResult::said(Status::L7Sts, number, said));
            }
            Some(_) if more && part == Part::Hello => input = rest,
            Some(number) if part == Part::Quit => {
                return Judgement::Well(CheckResult::said(Status::L7Ok, number, said));
            }
            Some(_) => return Judgement::Good,
        }
        if input.is_empty() {
            // The last line announced another one.
            let cut = CheckResult::said(Status::L7Sts, 0, b"");
            return if last { Judgement::Over(cut) } else { Judgement::Wait };
        }
    }
}
