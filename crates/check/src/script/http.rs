//! `option httpchk` and `http-check`: a request, and the judgement of its answer.

use super::{
    CheckInput, Evaluate, Expect, Judgement, MOST_BYTES, Pattern, Script, SendSource, Step, Text, TextSource,
    contains,
};
use crate::status::{CheckResult, Status};
use manylane_buf::Chain;
use manylane_h1::{BodyReader, From, Leniency, Limits, RequestInfo, ResponseParser};
use manylane_http::{EditError, Head, List, Method, Version, names_connection_scheme};
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// Bytes of a part of a request.
type Bytes = Box<[u8]>;

/// The request of a check.
#[derive(Debug)]
pub struct HttpRequest {
    /// Method.
    pub method: Bytes,
    /// Target.
    pub uri: TextSource,
    /// `HTTP/1.0`, `HTTP/1.1`; `HTTP/2` has no effect, because the connection decides on it.
    pub version: Bytes,
    /// Header fields.
    pub fields: Vec<(Bytes, TextSource)>,
    /// Body.
    pub body: TextSource,
    /// `http-check send-state`: tells the server its state.
    pub state: bool,
}

impl Default for HttpRequest {
    fn default() -> Self {
        Self {
            method: (*b"OPTIONS").into(),
            uri: b"/"[..].into(),
            version: (*b"HTTP/1.0").into(),
            fields: Vec::new(),
            body: TextSource::default(),
            state: false,
        }
    }
}

impl HttpRequest {
    /// Sets the version. Header fields behind it are refused, as by HAProxy: they have lines of their own.
    ///
    /// # Errors
    /// A sentence about the fault.
    pub fn set_version(&mut self, version: &[u8]) -> Result<(), String> {
        let text = version.to_ascii_uppercase();
        let is_http1 = text.starts_with(b"HTTP/1.") && text.len() == 8 && text[7].is_ascii_digit();
        if !is_http1 && !matches!(&text[..], b"HTTP/2" | b"HTTP/2.0") {
            // What follows may be a secret.
            let shown = version.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            let remedy = if shown.len() < version.len() {
                " and more; use 'http-check send hdr <name> <value>' for header fields"
            } else {
                ""
            };
            let found = String::from_utf8_lossy(shown);
            return Err(format!(
                "expected a version such as HTTP/1.1, found '{}'{remedy}",
                found.escape_debug()
            ));
        }
        self.version = text.into();
        Ok(())
    }

    /// Adds a header field. Fields that frame the body are ignored: the check has its own.
    ///
    /// # Errors
    /// A sentence about the fault.
    pub fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err("expected a header field's value of one line, found several".into());
        }
        self.add_words(name, value.into())
    }

    /// Adds a header field whose value may be a format.
    ///
    /// # Errors
    /// A sentence about the fault.
    pub fn add_words(&mut self, name: &[u8], value: TextSource) -> Result<(), String> {
        let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        if name.is_empty() || !name.iter().all(token) {
            return Err(format!(
                "expected the name of a header field, found '{}'",
                String::from_utf8_lossy(name)
            ));
        }
        let name = name.to_ascii_lowercase();
        if !matches!(&name[..], b"content-length" | b"transfer-encoding") {
            self.fields.push((name.into(), value));
        }
        Ok(())
    }

    /// Returns whether a part of it is a format.
    pub(super) fn evaluates(&self) -> bool {
        self.uri.is_made() || self.body.is_made() || self.fields.iter().any(|(_, value)| value.is_made())
    }

    /// Returns the request as it is sent. The results of formats are restricted: a target has no blanks, and
    /// a value has one line. If the request authenticates its connection, `keep` is cleared, so that requests
    /// of clients do not use the connection.
    pub(super) fn made(&self, input: CheckInput<'_>, keep: &mut bool, by: &mut dyn Evaluate) -> Vec<u8> {
        let Made { uri, fields, body } = self.parts(input, keep, by);
        let version = if self.version.starts_with(b"HTTP/1.") { &*self.version } else { b"HTTP/1.1" };
        let mut bytes = [&*self.method, b" ", &uri, b" ", version, b"\r\n"].concat();
        for (name, value) in &fields {
            bytes.extend([name, &b": "[..], value, b"\r\n"].concat());
        }
        if !*keep && *version != *b"HTTP/1.0" && !fields.iter().any(|(name, _)| *name == b"connection") {
            bytes.extend(b"connection: close\r\n");
        }
        bytes.extend(b"\r\n");
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Returns head and body of the request for HTTP/2.
    ///
    /// # Errors
    /// A part of it is not allowed in a message.
    pub(super) fn made_h2(
        &self,
        input: CheckInput<'_>,
        by: &mut dyn Evaluate,
    ) -> Result<(Head, Vec<u8>), EditError> {
        let Made { uri, fields, body } = self.parts(input, &mut false, by);
        let mut head = Head::request(&self.method, &uri, Version::HTTP_11)?;
        for (name, value) in &fields {
            head.add_field(*name, value)?;
        }
        Ok((head, body))
    }

    fn parts(&self, input: CheckInput<'_>, keep: &mut bool, by: &mut dyn Evaluate) -> Made<'_> {
        let mut uri = self.uri.get(input, by).into_owned();
        uri.retain(|byte| is_of_target(*byte));
        if uri.is_empty() {
            uri.push(b'/');
        }
        let mut fields: Vec<(&[u8], Vec<u8>)> = Vec::new();
        for (name, value) in &self.fields {
            let mut value = value.get(input, by).into_owned();
            value.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0));
            // An empty field is left out.
            if !value.is_empty() {
                if **name == *b"host" {
                    uri = with_authority(uri, &value);
                }
                if matches!(&**name, b"authorization" | b"proxy-authorization")
                    && names_connection_scheme(&value)
                {
                    *keep = false;
                }
                fields.push((name, value));
            }
        }
        if self.state {
            fields.push((b"x-haproxy-server-state", by.state()));
        }
        let body = self.body.get(input, by).into_owned();
        // A method that usually has a body gets the length 0.
        let plain = matches!(&*self.method, b"OPTIONS" | b"GET" | b"HEAD" | b"DELETE");
        if !body.is_empty() || !plain {
            fields.push((b"content-length", body.len().to_string().into_bytes()));
        }
        Made { uri, fields, body }
    }

    /// Returns a step that sends the request.
    pub fn step(self) -> Step {
        Step::Send(super::Send { what: SendSource::Request(Box::new(self)), comment: None, number: 0 })
    }
}

/// The parts of a request at some moment.
struct Made<'r> {
    uri: Vec<u8>,
    fields: Vec<(&'r [u8], Vec<u8>)>,
    body: Vec<u8>,
}

/// Replaces the authority of a target in absolute form by the value of the field `host`. Blanks in a value,
/// which may come from a server, would end the target, and are removed.
fn with_authority(uri: Vec<u8>, host: &[u8]) -> Vec<u8> {
    let begins = match uri.windows(3).position(|window| window == b"://") {
        Some(at) if at > 0 && !uri.starts_with(b"/") => at + 3,
        _ => return uri,
    };
    let ends = uri[begins..]
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
        .map_or(uri.len(), |end| begins + end);
    let host: Vec<u8> = host.iter().copied().filter(|byte| is_of_target(*byte)).collect();
    [&uri[..begins], &host, &uri[ends..]].concat()
}

/// Returns whether a target may have this byte, which must not end it.
fn is_of_target(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
}

/// A set of statuses: `200,300-399`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRanges(Vec<RangeInclusive<u16>>);

impl StatusRanges {
    /// Returns 2xx and 3xx.
    pub fn usual() -> Self {
        Self(vec![200..=399])
    }

    /// Parses a list of codes and ranges.
    ///
    /// # Errors
    /// A sentence about the fault.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().ok().filter(|code| (100..=999).contains(code));
        let range = |part: &str| match part.split_once('-') {
            None => number(part).map(|code| code..=code),
            Some((low, high)) => Some(number(low)?..=number(high)?).filter(|range| !range.is_empty()),
        };
        let ranges = std::str::from_utf8(text).ok().and_then(|text| text.split(',').map(range).collect());
        ranges.map(Self).ok_or_else(|| {
            let got = String::from_utf8_lossy(text);
            format!("expected statuses or ranges such as 200,301-399, found '{got}'")
        })
    }

    fn has(&self, code: u16) -> bool {
        self.0.iter().any(|range| range.contains(&code))
    }
}

/// Creates the script of HTTP checks: a request without an expectation gets the default one.
pub fn script(mut steps: Vec<Step>, disable_on_404: bool, lenient: Leniency) -> Script {
    let last = steps.iter().rposition(|step| !matches!(step, Step::Set(_)));
    if let Some(last) = last
        && matches!(steps[last], Step::Send(_))
    {
        let pattern = Pattern::Status(StatusRanges::usual());
        steps.insert(last + 1, Step::expect(Expect::new(pattern, last + 2)));
    }
    // HAProxy counts from 0 if the first step is a connection in the file.
    if matches!(steps.first(), Some(Step::Connect(connect)) if connect.number > 0) {
        for step in &mut steps {
            if let Step::Expect(expect) = step {
                expect.number -= 1;
            }
        }
    }
    Script { http: true, disable_on_404, lenient, ..Script::new(steps) }
}

/// An answer that is being received.
#[derive(Debug)]
pub(super) struct Answer {
    head: Option<Head>,
    body: Vec<u8>,
    /// True if no more of it is examined.
    ended: bool,
    /// True if the answer is not HTTP.
    bad: bool,
    /// Reader of HTTP/1; `None` over HTTP/2, where the [session](super::h2::Session) reads it.
    http1: Option<Http1>,
}

/// Reader of an HTTP/1 answer.
#[derive(Debug)]
struct Http1 {
    request: RequestInfo,
    limits: Limits,
    parser: ResponseParser,
    input: Chain,
    /// Behind the head: the reader of the body, and whether the connection persists.
    behind: Option<(BodyReader, bool)>,
}

impl Http1 {
    /// Reads on. Returns the new data of the body, or `None` if the head is not complete.
    fn read(&mut self, head: &mut Option<Head>) -> Result<Option<Chain>, manylane_h1::Error> {
        while head.is_none() {
            match self.parser.parse(&mut self.input, self.request)? {
                None => return Ok(None),
                Some(interim) if interim.is_interim() => self.parser = ResponseParser::new(self.limits),
                Some(response) => {
                    let persists = response.connection.persists(response.head.version());
                    let reader = BodyReader::new(response.body, From::Server, self.limits);
                    self.behind = Some((reader, persists && !response.head.authenticates_connection()));
                    *head = Some(response.head);
                }
            }
        }
        let mut data = Chain::new();
        if let Some((reader, _)) = &mut self.behind {
            reader.read(&mut self.input, &mut data)?;
        }
        Ok(Some(data))
    }

    fn is_done(&self) -> bool {
        self.behind.as_ref().is_some_and(|(reader, _)| reader.is_done())
    }
}

impl Answer {
    /// Creates an answer to a request with this method.
    pub(super) fn new(method: &[u8], lenient: Leniency) -> Self {
        let limits = Limits { relaxed: lenient == Leniency::ALL, lenient, ..Limits::default() };
        let http1 = Http1 {
            limits,
            // As in HAProxy a check takes 101 as an answer, whatever it has sent.
            request: RequestInfo { method: Method::of(method), upgrade: true },
            parser: ResponseParser::new(limits),
            input: Chain::new(),
            behind: None,
        };
        Self { http1: Some(http1), ..Self::of_h2() }
    }

    /// Creates an answer of HTTP/2.
    pub(super) fn of_h2() -> Self {
        Self { head: None, body: Vec::new(), ended: false, bad: false, http1: None }
    }

    pub(super) fn code(&self) -> Option<u16> {
        self.head.as_ref().map(Head::status)
    }

    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns whether the answer was complete and another one may follow on the connection.
    pub(super) fn is_reusable(&self) -> bool {
        let Some(Http1 { behind: Some((reader, persists)), input, .. }) = &self.http1 else { return false };
        reader.is_done() && !self.bad && input.is_empty() && *persists
    }

    /// Returns whether no more of it is examined.
    pub(super) fn is_over(&self) -> bool {
        self.ended || self.bad
    }

    /// Returns how many bytes of plain memory the body takes.
    pub(super) fn plain_memory(&self) -> usize {
        self.body.capacity()
    }

    /// Handles received bytes of HTTP/1.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let Some(http1) = self.http1.as_mut().filter(|_| !(self.ended || self.bad)) else { return };
        // Copied, because a cluster for each byte would take much memory.
        if http1.input.append(bytes).is_err() {
            self.bad = true;
            return;
        }
        let data = http1.read(&mut self.head);
        let done = http1.is_done();
        match data {
            Ok(Some(data)) => self.add(&data),
            Ok(None) => {}
            Err(_) => self.bad = true,
        }
        self.ended |= done;
    }

    /// Sets the head.
    pub(super) fn begin(&mut self, head: Head) {
        self.head = Some(head);
    }

    /// Appends data to the body.
    pub(super) fn add(&mut self, data: &Chain) {
        for segment in data.segments() {
            let room = MOST_BYTES - self.body.len();
            self.body.extend_from_slice(&segment[..segment.len().min(room)]);
        }
        self.ended |= self.body.len() >= MOST_BYTES;
    }

    /// Ends the answer.
    pub(super) fn end(&mut self) {
        // A body that is shorter than announced is examined as it is.
        self.bad |= self.head.is_none();
        self.ended = true;
    }

    /// Judges the answer. `may_stop` says that a 404 stops the server.
    pub(super) fn judge(&self, expect: &Expect, may_stop: bool, by: &mut dyn Evaluate) -> Judgement {
        let Some(head) = &self.head else {
            // HAProxy treats this as a failure of the connection, and ignores the texts of the file.
            let broken = || Judgement::Over(CheckResult::new(Status::SockErr, ""));
            return if self.bad { broken() } else { Judgement::Wait };
        };
        let code = head.status();
        if code == 404 && may_stop {
            return Judgement::Over(CheckResult {
                status: Status::L7OkC,
                code: Some(code.into()),
                info: Box::default(),
            });
        }
        let input = CheckInput { head: Some(head), bytes: &self.body, http: true };
        // HTTP/2 has no reason: the head has the usual one only for HTTP/1.
        let reason = if self.http1.is_some() { head.reason() } else { b"" };
        let in_head = match &expect.pattern {
            Pattern::Status(ranges) => Some(ranges.has(code)),
            Pattern::StatusRegex(regex) => Some(regex.matches(code.to_string().as_bytes())),
            Pattern::Field { name, value, whole } => {
                Some(has_field(head, name, value.as_ref(), *whole, input, by))
            }
            _ => None,
        };
        let over = |by: &mut dyn Evaluate, status: Status, why: &dyn Fn() -> String| {
            let mut info = match &expect.on_error {
                Some(info) => CheckResult::shown(&info.get(input, by)).into_string(),
                None => why(),
            };
            info += &comment(expect);
            let status = expect.error.unwrap_or(status);
            Judgement::Over(CheckResult {
                status,
                code: status.has_code().then_some(code.into()),
                info: info.into(),
            })
        };
        if let Some(matches) = in_head {
            return if matches == expect.negated {
                over(by, Status::L7Sts, &|| {
                    let said = CheckResult::said(Status::L7Sts, code, reason).info;
                    if said.is_empty() { unlike(expect) } else { said.into() }
                })
            } else {
                Judgement::Good
            };
        }
        if self.bad {
            let info =
                expect.on_error.as_ref().map(|info| CheckResult::shown(&info.get(input, by)).into_string());
            return Judgement::Over(CheckResult::new(
                Status::L7Rsp,
                info.unwrap_or_default() + &comment(expect),
            ));
        }
        let last = self.ended;
        if self.body.is_empty() && last {
            // An empty body fails every expectation, even a negated one.
            return over(by, Status::L7Rsp, &|| "HTTP content check could not find a response body".into());
        }
        if !last && self.body.len() < expect.least.unwrap_or(0).max(1) {
            return Judgement::Wait;
        }
        let matches = match &expect.pattern {
            Pattern::Bytes(bytes) => contains(&self.body, bytes),
            Pattern::Made(format) => {
                let made = by.text(format, input);
                if made.is_empty() {
                    return super::tcp::over(expect, Status::L7Rsp, super::tcp::EMPTY.into());
                }
                contains(&self.body, &made)
            }
            Pattern::Regex(regex) => regex.matches(&self.body),
            _ => false, // of other scripts, or judged above
        };
        if !matches && !last && expect.least.is_none() {
            return Judgement::Wait;
        }
        if matches != expect.negated {
            return Judgement::Good;
        }
        over(by, Status::L7Rsp, &|| {
            let why = if matches {
                "HTTP check matched unwanted content"
            } else {
                "HTTP content check did not match"
            };
            why.into()
        })
    }
}

/// Returns the text for an unexpected head without a reason phrase.
fn unlike(expect: &Expect) -> String {
    let what = match &expect.pattern {
        Pattern::Status(_) => "(status codes)",
        Pattern::StatusRegex(_) => " (regex)",
        _ => " (header pattern)",
    };
    format!("TCPCHK did not match content{what} at step {}", expect.number)
}

/// Returns the comment of a failed expectation, as a suffix.
fn comment(expect: &Expect) -> String {
    expect.comment.as_ref().map_or(String::new(), |comment| format!(" comment: {comment}"))
}

/// Returns whether there is a field that matches `name` and, if given, `value`.
fn has_field(
    head: &Head,
    name: &Text,
    value: Option<&Text>,
    whole: bool,
    input: CheckInput<'_>,
    by: &mut dyn Evaluate,
) -> bool {
    let name = name.at(input, by);
    let value = value.map(|value| value.at(input, by));
    head.fields().filter(|field| name.fits(&field.name.to_ascii_lowercase(), true)).any(
        |field| match &value {
            None => true,
            Some(value) if whole => value.fits(field.value, false),
            Some(value) => List::new(field.value).any(|member| value.fits(member, false)),
        },
    )
}

/// A text at some moment: how to compare, and with what.
struct Compared<'t> {
    text: &'t Text,
    with: Cow<'t, [u8]>,
}

impl Text {
    fn at(&self, input: CheckInput<'_>, by: &mut dyn Evaluate) -> Compared<'_> {
        let with = match self {
            Self::Is(words) | Self::Begins(words) | Self::Ends(words) | Self::Has(words) => {
                words.get(input, by)
            }
            Self::Matches(_) => Cow::Borrowed(&b""[..]),
        };
        Compared { text: self, with }
    }
}

impl Compared<'_> {
    /// Returns whether `text` matches. `any_case` ignores case; the caller has put `text` in lower case then.
    fn fits(&self, text: &[u8], any_case: bool) -> bool {
        let lower;
        let with = if any_case {
            lower = self.with.to_ascii_lowercase();
            &lower[..]
        } else {
            &self.with[..]
        };
        match self.text {
            Text::Is(_) => text == with,
            Text::Begins(_) => text.starts_with(with),
            Text::Ends(_) => text.ends_with(with),
            Text::Has(_) => contains(text, with),
            Text::Matches(regex) => regex.matches(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))] // some 10,000 pieces each

        /// A body is in plain memory, which `tests/drips.rs` does not count: it takes at most twice its
        /// bytes, however it is cut, and no more than a buffer.
        #[test]
        fn a_body_takes_at_most_twice_its_bytes(
            cuts in prop::collection::vec(prop_oneof![3 => Just(1_usize), 1 => 1..2000_usize], 1..60),
            chunked: bool,
        ) {
            let mut answer = Answer::new(b"GET", Leniency::NONE);
            let framing = if chunked { "Transfer-Encoding: chunked" } else { "Content-Length: 1000000" };
            answer.feed(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes());
            let mut sent = 0;
            for cut in cuts.into_iter().cycle() {
                let data = "x".repeat(cut);
                if chunked {
                    answer.feed(format!("{cut:x}\r\n{data}\r\n").as_bytes());
                } else {
                    answer.feed(data.as_bytes());
                }
                sent += cut;
                let (length, takes) = (answer.body.len(), answer.body.capacity());
                prop_assert_eq!(length, sent.min(MOST_BYTES));
                // The smallest allocation has eight bytes.
                prop_assert!(takes <= (2 * length).max(8), "{} bytes for {}", takes, length);
                if answer.is_over() {
                    break;
                }
            }
            prop_assert_eq!(answer.body.len(), MOST_BYTES);
        }
    }

    /// A value that comes from a server cannot make another request line.
    #[test]
    fn a_host_brings_no_blanks_into_the_target() {
        let target = |host: &str| with_authority(b"http://x/status".into(), host.as_bytes());
        assert_eq!(target("www.example.com:80"), b"http://www.example.com:80/status");
        assert_eq!(target("a /other HTTP/1.0\tb\x7f"), b"http://a/otherHTTP/1.0b/status");
        assert_eq!(with_authority(b"/status?u=http://x/".into(), b"a"), b"/status?u=http://x/");
    }
}
