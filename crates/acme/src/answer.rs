//! Answers of an authority. The authority is not trusted: every text of an answer is checked for its length
//! and its characters before it is used.

use manylane_tls::HttpUrl;
use serde_json::Value;

/// Largest body of an answer, in bytes. A chain of certificates has some thousand bytes.
pub const LONGEST_ANSWER: usize = 64 << 10;

/// Longest URL or nonce of an answer, in bytes.
const LONGEST_TEXT: usize = 2048;

/// Number of an answer's characters that logs and commands show.
const LONGEST_SHOWN: usize = 200;

/// Longest wait that an authority can request after a failed order, in seconds.
const LONGEST_RETRY: u64 = 24 * 60 * 60;

/// An answer of an authority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// `replay-nonce`
    pub nonce: Option<String>,
    /// `location`
    pub location: Option<String>,
    /// `retry-after`, in seconds.
    pub retry_after: Option<u64>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why an order failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A clause for logs. It contains no secrets, and at most 200 visible characters of each text of an
    /// answer.
    pub why: String,
    /// Number of seconds that the authority requests before the next order; 0 if it requests none.
    pub retry_after: u64,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, retry_after: 0 }
    }
}

/// Returns the first [`LONGEST_SHOWN`] characters, with `?` for characters that could forge a log line.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|char| if matches!(char, ' '..='~') { char } else { '?' }).take(LONGEST_SHOWN).collect()
}

/// Returns the type of a problem document (RFC 7807), without the prefix of ACME, and its detail.
pub(crate) fn problem(value: &Value) -> String {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(visible).unwrap_or_default();
    let kind = text("type");
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(&kind);
    let said = [kind, &text("detail")].join(": ");
    said.trim_matches([':', ' ']).to_owned()
}

impl Answer {
    /// Returns the JSON object of the answer. `what` names the request in errors.
    ///
    /// # Errors
    /// The status is not 2xx, or the body is not an object.
    pub(crate) fn value(&self, what: &str) -> Result<Value, Failure> {
        let value = serde_json::from_slice(&self.body).ok().filter(Value::is_object);
        if !matches!(self.status, 200..=299) {
            let said = value.as_ref().map(problem).unwrap_or_default();
            let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
            let why = format!("{what} is answered with the status {}{said}", self.status);
            return Err(Failure { why, retry_after: self.retry_after.unwrap_or(0).min(LONGEST_RETRY) });
        }
        value.ok_or_else(|| Failure::from(format!("{what} is not answered with a JSON object")))
    }

    /// True if the authority refused the nonce; a retry with another nonce may succeed (RFC 8555, 6.5).
    pub(crate) fn is_bad_nonce(&self) -> bool {
        let is_bad = |value: Value| value["type"] == "urn:ietf:params:acme:error:badNonce";
        self.status == 400 && serde_json::from_slice::<Value>(&self.body).is_ok_and(is_bad)
    }
}

/// Returns `text`, which later requests contain unchanged, if it is short and has visible characters only.
pub(crate) fn checked(text: &str, what: &str) -> Result<String, Failure> {
    let fits = |text: &&str| text.len() <= LONGEST_TEXT && text.bytes().all(|byte| byte.is_ascii_graphic());
    Some(text).filter(|text| !text.is_empty()).filter(fits).map(str::to_owned).ok_or_else(|| {
        let found = visible(text);
        format!("{what} expects 1 to {LONGEST_TEXT} visible ASCII characters, found '{found}'").into()
    })
}

/// Returns the URL in the member `name`.
pub(crate) fn address(value: &Value, what: &str, name: &str) -> Result<HttpUrl, Failure> {
    let text = value.get(name).and_then(Value::as_str).unwrap_or_default();
    https(text, &format!("'{name}' of {what}"))
}

pub(crate) fn https(text: &str, what: &str) -> Result<HttpUrl, Failure> {
    let text = checked(text, what)?;
    HttpUrl::parse(&text, "https")
        .ok_or_else(|| format!("{what} expects a URL of https://, found '{}'", visible(&text)).into())
}

pub(crate) fn status(value: &Value) -> &str {
    value.get("status").and_then(Value::as_str).unwrap_or_default()
}
