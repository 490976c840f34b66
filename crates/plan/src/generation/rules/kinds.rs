//! Actions of rules, compiled.

use super::super::bandwidth::{Bandwidth, FilterId};
use super::Normalizer;
use super::lookup::Lookup;
use crate::side::Side;
use manylane_expr::{
    EntrySelector, Expression, Format, Reference, Regex, Scratch, SetConditions, TableId, VariableId,
};
use manylane_http::Version;
use manylane_logs::Level;
use manylane_sync::Arc;
use std::time::Duration;

/// How `silent-drop` hides from a client that its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropMode {
    /// Send nothing.
    Full,
    /// `rst-ttl`: send a reset with this TTL, so that firewalls nearer than the client drop the connection,
    /// too.
    ResetWithin(u8),
}

/// Action of a rule of any `tcp-*` or `http-*` list, or of `stats http-request`. The table of keywords says
/// which lists may have it; `config` refuses it in others.
#[derive(Debug)]
#[allow(missing_docs)] // named as in the manual
pub enum Action {
    /// `accept`, `allow`: skip the other rules.
    Accept,
    /// Close the connections without a response.
    Reject,
    /// Close the connection without notifying the client.
    SilentDrop(DropMode),
    /// `expect-proxy`, `expect-netscaler-cip`
    Expect(Preamble),
    /// Close the connection to the server.
    Close,
    /// Speak HTTP from here on: this version, or the one that the client's first bytes say. A connection that
    /// speaks it already skips the other rules.
    SwitchMode(Option<Version>),
    /// `return`, and `deny` or `tarpit` with a reply.
    Reply(End, Box<Reply>),
    /// `deny` without arguments: respond with this status.
    Deny(u16),
    /// `use-service prometheus-exporter`
    Metrics,
    /// `auth`: ask for a password, with this realm.
    Auth(Box<[u8]>),
    Redirect(Box<Redirect>),
    /// Refuses a target that cannot be normalized.
    NormalizeUri(Normalizer),
    Pause(TimeSource),
    /// Timeout, and the number of bytes to wait for; 0 for the whole body.
    WaitForBody(Duration, usize),
    WaitForHandshake,
    EarlyHint(Box<[u8]>, Format),
    DoLog,
    /// `do-resolve`
    Resolve(Box<Lookup>),
    StrictMode(bool),
    ChangeList {
        reference: Arc<Reference>,
        how: ListChange,
        key: Format,
        value: Option<Format>,
    },
    Edit(Edit),
    Set(Setting),
}

/// Header that comes before the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// Of the PROXY protocol.
    Proxy,
    /// NetScaler's.
    NetScaler,
}

/// Edit of the head of a message. Evaluation continues with the next rule, unless the edit fails in strict
/// mode.
#[derive(Debug)]
#[allow(missing_docs)] // named as in the manual
pub enum Edit {
    SetHeader(Box<[u8]>, Format),
    AddHeader(Box<[u8]>, Format),
    DelHeader(Box<[u8]>),
    DelHeaders(NameMatch),
    ReplaceHeader(Box<[u8]>, Regex, Format),
    ReplaceValue(Box<[u8]>, Regex, Format),
    ReplaceTarget(TargetPart, Regex, Format),
    SetMethod(Format),
    SetPath(Format),
    SetPathq(Format),
    SetQuery(Format),
    SetUri(Format),
    SetStatus(u16, Option<Box<[u8]>>),
}

/// Settings that rules of several lists may make. Evaluation continues with the next rule.
#[derive(Debug)]
#[allow(missing_docs)] // named as in the manual
pub enum Setting {
    Var(VariableId, ValueSource, SetConditions),
    UnsetVar(VariableId),
    Address(AddressPart, Expression),
    /// `disable-l7-retry`
    DisableRepetition,
    /// `None` disables the line.
    LogLevel(Option<Level>),
    Timeout(TimeoutOf, TimeSource),
    PriorityClass(Expression),
    PriorityOffset(Expression),
    Retries(Expression),
    Nice(i16),
    /// Mark or TOS of packets.
    Packets(Packets, NumberSource),
    /// Into this slot of the frontend.
    Capture(Expression, usize),
    Bandwidth(Box<SetBandwidth>),
    Track(Box<Track>),
    GeneralCounter(Box<GeneralCounter>),
}

/// `track-sc`: counters of this entry are updated from here on.
#[derive(Debug)]
pub struct Track {
    /// The number of the counter.
    pub counter: u32,
    /// The table of the entry.
    pub table: TableId,
    /// Its key.
    pub key: Expression,
    /// Track until the session ends, else until the stream ends.
    pub of_session: bool,
    /// What is counted at once.
    pub counts: TrackCounts,
}

/// Events that are counted at once when a rule starts to track an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackCounts {
    /// None; the request is counted later.
    Nothing,
    /// The request.
    Request,
    /// The request, and the status of the response.
    Response,
}

/// `sc-inc-gpc`, `sc-add-gpc`, `sc-set-gpt` and their older forms.
#[derive(Debug)]
pub struct GeneralCounter {
    /// The number of the counter that tracks the entry.
    pub counter: u32,
    /// The element of the entry that changes.
    pub index: u32,
    /// True for an element of an array; false for the older forms, which use `gpc0`, `gpc1` or `gpt0` if the
    /// table stores it.
    pub of_array: bool,
    /// True sets a tag, false adds to a counter.
    pub is_tag: bool,
    /// The tag, or what is added.
    pub by: NumberSource,
}

/// `set-bandwidth-limit`: enables a filter.
#[derive(Debug)]
pub struct SetBandwidth {
    /// The filter.
    pub filter: FilterId,
    /// The side whose bytes are limited.
    pub sender: Side,
    /// Used if the rule sets no limit or period, or an expression yields no number above 0.
    pub usual: Bandwidth,
    /// Bytes per period.
    pub limit: Option<NumberSource>,
    /// The period.
    pub period: Option<TimeSource>,
    /// Set if streams with the same key share the limit.
    pub shared: Option<SharedKey>,
}

/// Entry of a stick table by which streams share a limit.
#[derive(Debug)]
pub struct SharedKey {
    /// The table of the entry.
    pub table: TableId,
    /// Its key.
    pub key: Expression,
}

/// Source of a variable's value.
#[derive(Debug)]
pub enum ValueSource {
    /// `set-var`
    Of(Expression),
    /// `set-var-fmt`
    Format(Format),
}

/// Source of a time.
#[derive(Debug)]
pub enum TimeSource {
    /// A constant.
    Fixed(Duration),
    /// An expression in milliseconds.
    Of(Expression),
}

/// Source of a number.
#[derive(Debug)]
pub enum NumberSource {
    /// A constant.
    Fixed(u32),
    /// An expression.
    Of(Expression),
}

/// Which packets to mark, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the manual
pub enum Packets {
    ClientMark,
    ClientTos,
    ServerMark,
    ServerTos,
}

impl Packets {
    /// Returns the largest valid number.
    pub fn most(self) -> u32 {
        match self {
            Self::ClientMark | Self::ServerMark => u32::MAX,
            Self::ClientTos | Self::ServerTos => u8::MAX.into(),
        }
    }
}

/// A timeout that rules may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the manual
pub enum TimeoutOf {
    Client,
    Connect,
    Queue,
    Server,
    Tarpit,
    Tunnel,
}

impl TimeoutOf {
    /// All timeouts, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Client, Self::Connect, Self::Queue, Self::Server, Self::Tarpit, Self::Tunnel];
}

/// Part of an address that rules may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the manual
pub enum AddressPart {
    Source,
    SourcePort,
    Destination,
    DestinationPort,
}

/// Part of the request target that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the manual
pub enum TargetPart {
    Path,
    Pathq,
    Uri,
}

/// Change of a map or of an ACL file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the manual
pub enum ListChange {
    Add,
    Delete,
    Set,
}

impl ListChange {
    /// Applies the change. Takes the lock of the list, allocates memory, and takes time logarithmic in the
    /// length of the list. Later lookups see the change, also those of the same request's next rule.
    ///
    /// # Errors
    /// If the list refuses the entry; the error is a sentence.
    pub fn change(self, reference: &Reference, key: &[u8], value: &[u8]) -> Result<(), String> {
        match self {
            Self::Add => reference.add_new(key, value),
            Self::Delete => {
                reference.remove(EntrySelector::Pattern(key));
                Ok(())
            }
            Self::Set => reference.set(key, value),
        }
    }
}

/// `del-header name -m ...`: how names of fields are compared, without case.
#[derive(Debug)]
pub enum NameMatch {
    /// The name begins with this.
    Begin(Box<[u8]>),
    /// The name ends with this.
    End(Box<[u8]>),
    /// The name contains this.
    Sub(Box<[u8]>),
    /// The name matches this regular expression.
    Regex(Regex),
}

impl NameMatch {
    /// Whether a name is one of those.
    pub fn matches(&self, name: &[u8], scratch: &mut Scratch<'_>) -> bool {
        let same = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
        match self {
            Self::Begin(text) => name.len() >= text.len() && same(&name[..text.len()], text),
            Self::End(text) => name.len() >= text.len() && same(&name[name.len() - text.len()..], text),
            Self::Sub(text) => text.is_empty() || name.windows(text.len()).any(|part| same(part, text)),
            Self::Regex(regex) => regex.is_match(name, scratch),
        }
    }
}

/// Reply of `return`, `http-error`, or `deny` and `tarpit` with arguments.
#[derive(Debug)]
pub struct Reply {
    /// `status`
    pub status: u16,
    /// `content-type`
    pub content_type: Box<[u8]>,
    /// Body of the reply.
    pub body: ReplyBody,
    /// `hdr`
    pub fields: Vec<(Box<[u8]>, Format)>,
}

/// Body of a reply.
#[derive(Debug)]
pub enum ReplyBody {
    /// No body.
    None,
    /// `default-errorfiles`: the proxy's message for the status.
    Usual,
    /// `errorfile`, `errorfiles`: a complete message.
    Whole(Arc<[u8]>),
    /// `string`, `file`
    Bytes(Arc<[u8]>),
    /// `lf-string`, `lf-file`
    Format(Format),
}

/// `redirect`
#[derive(Debug)]
pub struct Redirect {
    /// How the location is made.
    pub kind: RedirectKind,
    /// Format that the location is made from.
    pub target: Format,
    /// `code`
    pub code: u16,
    /// `drop-query`
    pub drop_query: bool,
    /// `keep-query`: append the query of the request to the location.
    pub keep_query: bool,
    /// `append-slash`
    pub append_slash: bool,
    /// `ignore-empty`
    pub ignore_empty: bool,
    /// `set-cookie`, `set-cookie-fmt`, `clear-cookie`
    pub cookie: Option<RedirectCookie>,
}

/// The value of a redirection's `Set-Cookie`.
#[derive(Debug)]
pub enum RedirectCookie {
    /// The whole value.
    Text(Box<[u8]>),
    /// Its beginning: `; path=/;` follows.
    Format(Format),
}

/// How the location of a redirection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectKind {
    /// The format is the location.
    Location,
    /// The format stands before the request's path.
    Prefix,
    /// The format is the scheme; host and path are those of the request.
    Scheme,
}

/// How a request ends when a rule responds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Normally.
    Answered,
    /// The rule refused the request.
    Denied,
    /// The rule refused the request, with a delay.
    Tarpit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_compared_without_their_case() {
        let mut lane = manylane_expr::Lane::new();
        let mut scratch = lane.scratch();
        for (how, name, matches) in [
            (NameMatch::Begin(b"x-"[..].into()), &b"X-Id"[..], true),
            (NameMatch::Begin(b"x-"[..].into()), b"ax-id", false),
            (NameMatch::End(b"-ID"[..].into()), b"x-id", true),
            (NameMatch::Sub(b"OO"[..].into()), b"Cookie", true),
            (NameMatch::Sub(b"xx"[..].into()), b"Cookie", false),
            (NameMatch::Regex(Regex::new(b"^x-.$", true).unwrap()), b"X-A", true),
        ] {
            assert_eq!(how.matches(name, &mut scratch), matches, "{how:?}");
        }
    }
}
