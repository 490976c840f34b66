//! What rules may do.

use super::lookup::Lookup;
use crate::flow::{Bandwidth, FilterId, Side};
use crate::rules::{End, Normalizer};
use manylane_expr::{Expression, Format, Reference, Regex, Scratch, TableId, VariableId, When, Which};
use manylane_logs::Level;
use manylane_sync::Arc;
use std::time::Duration;

/// How `silent-drop` keeps from a client that its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing is sent.
    Full,
    /// `rst-ttl`: a reset goes over so many hops, so that what is nearer than the client forgets the
    /// connection, too.
    ResetWithin(u8),
}

/// What is done with a connection.
#[derive(Debug)]
#[allow(missing_docs)] // the words of the rules
pub enum ConnectionAction {
    /// No further rule is looked at.
    Accept,
    /// It is closed.
    Reject,
    /// It is closed, and the client is not told.
    SilentDrop(Silence),
    /// `expect-proxy layer4`: a header of the PROXY protocol comes first.
    ExpectProxy,
    /// A line of what is known by now.
    DoLog,
    Set(Setting),
}

/// What is done when bytes of a connection, or a message, were looked at.
#[derive(Debug)]
pub enum ContentAction {
    /// `do-resolve`
    Resolve(Box<Lookup>),
    /// No further rule is looked at.
    Accept,
    /// The connection ends.
    Reject,
    /// The connection ends, and the client is not told.
    SilentDrop(Silence),
    /// The server's connection ends.
    Close,
    /// A line of what is known by now.
    DoLog,
    /// The next rule follows.
    Set(Setting),
}

/// What rules of all lists may set, each of them where the manual has it; then the next rule follows.
#[derive(Debug)]
#[allow(missing_docs)] // the words of the rules
pub enum Setting {
    Var(VariableId, Made, When),
    UnsetVar(VariableId),
    Address(Addressed, Expression),
    /// None: there is no line.
    LogLevel(Option<Level>),
    Timeout(TimeoutOf, Change),
    PriorityClass(Expression),
    PriorityOffset(Expression),
    Retries(Expression),
    Nice(i16),
    /// How packets are marked.
    Packets(Packets, Figure),
    /// Into this slot of the frontend's.
    Capture(Expression, usize),
    Bandwidth(Box<SetBandwidth>),
    Track(Box<Track>),
    General(Box<General>),
}

/// `track-sc`: an entry is counted in from here on.
#[derive(Debug)]
pub struct Track {
    pub(crate) counter: u32,
    pub(crate) table: TableId,
    pub(crate) key: Expression,
    /// Until the session's end, else until the stream's.
    pub(crate) of_session: bool,
    pub(crate) counts: TrackCounts,
}

/// What of the message at work is counted when its rules begin to track an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackCounts {
    /// Nothing: the request is counted later.
    Nothing,
    /// The request.
    Request,
    /// The request, and what the response's status says.
    Response,
}

/// `sc-inc-gpc`, `sc-add-gpc`, `sc-set-gpt` and those for the first ones.
#[derive(Debug)]
pub struct General {
    pub(crate) counter: u32,
    pub(crate) index: u32,
    /// That of the arrays alone, else also the one that has a name of its own.
    pub(crate) of_array: bool,
    /// A tag is set, else a counter is added to.
    pub(crate) is_tag: bool,
    pub(crate) by: Figure,
}

/// `set-bandwidth-limit`: puts a filter to work.
#[derive(Debug)]
pub struct SetBandwidth {
    pub(crate) filter: FilterId,
    /// Whose bytes it bounds.
    pub(crate) sender: Side,
    /// What holds where the rule says nothing, or its expressions give no number above 0.
    pub(crate) usual: Bandwidth,
    /// Bytes a period.
    pub(crate) limit: Option<Figure>,
    pub(crate) period: Option<Change>,
    /// Streams with the same key share it.
    pub(crate) shared: Option<SharedKey>,
}

/// By which entry of a stick table streams share something.
#[derive(Debug)]
pub struct SharedKey {
    pub(crate) table: TableId,
    pub(crate) key: Expression,
}

/// What is done with a request or a response.
#[derive(Debug)]
#[allow(missing_docs)] // the words of the rules
pub enum Action {
    Allow,
    /// `return`, and `deny` or `tarpit` with an answer of their own.
    Reply(End, Box<Reply>),
    /// `deny` without more: the answer with this status.
    Deny(u16),
    /// `use-service prometheus-exporter`
    Metrics,
    /// The realm.
    Auth(Box<[u8]>),
    Redirect(Box<Redirect>),
    Reject,
    SilentDrop(Silence),
    SetHeader(Box<[u8]>, Format),
    AddHeader(Box<[u8]>, Format),
    DelHeader(Box<[u8]>),
    DelHeaders(NameMatch),
    ReplaceHeader(Box<[u8]>, Regex, Format),
    ReplaceValue(Box<[u8]>, Regex, Format),
    ReplaceTarget(Replaced, Regex, Format),
    NormalizeUri(Normalizer),
    SetMethod(Format),
    SetPath(Format),
    SetPathq(Format),
    SetQuery(Format),
    SetUri(Format),
    SetStatus(u16, Option<Box<[u8]>>),
    Set(Setting),
    DisableRepetition,
    StrictMode(bool),
    Pause(Change),
    /// How long, and for how many bytes: 0 for all.
    WaitForBody(Duration, usize),
    EarlyHint(Box<[u8]>, Format),
    DoLog,
    /// `do-resolve`
    Resolve(Box<Lookup>),
    ChangeList {
        reference: Arc<Reference>,
        how: Listed,
        key: Format,
        value: Option<Format>,
    },
}

/// A value of a variable.
#[derive(Debug)]
pub enum Made {
    /// `set-var`
    Of(Expression),
    /// `set-var-fmt`
    Format(Format),
}

/// A time.
#[derive(Debug)]
pub enum Change {
    /// This one.
    Fixed(Duration),
    /// So many milliseconds.
    Of(Expression),
}

/// A number.
#[derive(Debug)]
pub enum Figure {
    /// This one.
    Fixed(u32),
    /// The one that an expression gives.
    Of(Expression),
}

/// Whose packets, and what of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the rules
pub enum Packets {
    ClientMark,
    ClientTos,
    ServerMark,
    ServerTos,
}

impl Packets {
    /// The largest number that it takes.
    pub(crate) fn most(self) -> u32 {
        match self {
            Self::ClientMark | Self::ServerMark => u32::MAX,
            Self::ClientTos | Self::ServerTos => u8::MAX.into(),
        }
    }
}

/// Which timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words themselves
pub enum TimeoutOf {
    Client,
    Connect,
    Queue,
    Server,
    Tarpit,
    Tunnel,
}

impl TimeoutOf {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Client, Self::Connect, Self::Queue, Self::Server, Self::Tarpit, Self::Tunnel];
}

/// Which part of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the rules
pub enum Addressed {
    Source,
    SourcePort,
    Destination,
    DestinationPort,
}

/// Which part of a target is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the rules
pub enum Replaced {
    Path,
    Pathq,
    Uri,
}

/// How a list is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the rules
pub enum Listed {
    Add,
    Delete,
    Set,
}

impl Listed {
    /// Changes a list. It takes the list's lock, asks for memory, and costs about the logarithm of the list's
    /// length. Whoever looks at the list after that finds it changed, the next rule of the same request
    /// for one.
    ///
    /// # Errors
    /// A sentence: the list refuses the entry.
    pub(crate) fn change(self, reference: &Reference, key: &[u8], value: &[u8]) -> Result<(), String> {
        match self {
            Self::Add => reference.add_new(key, value),
            Self::Delete => {
                reference.remove(Which::Pattern(key));
                Ok(())
            }
            Self::Set => reference.set(key, value),
        }
    }
}

/// `del-header name -m ...`: how names of fields are compared, without their case.
#[derive(Debug)]
pub enum NameMatch {
    /// They begin so.
    Begin(Box<[u8]>),
    /// They end so.
    End(Box<[u8]>),
    /// They have this in them.
    Sub(Box<[u8]>),
    /// A regular expression matches.
    Regex(Regex),
}

impl NameMatch {
    pub(crate) fn matches(&self, name: &[u8], scratch: &mut Scratch<'_>) -> bool {
        let same = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
        match self {
            Self::Begin(text) => name.len() >= text.len() && same(&name[..text.len()], text),
            Self::End(text) => name.len() >= text.len() && same(&name[name.len() - text.len()..], text),
            Self::Sub(text) => text.is_empty() || name.windows(text.len()).any(|part| same(part, text)),
            Self::Regex(regex) => regex.is_match(name, scratch),
        }
    }
}

/// `return`, `http-error`, or `deny` with an answer of its own.
#[derive(Debug)]
pub struct Reply {
    /// `status`
    pub status: u16,
    /// `content-type`
    pub content_type: Box<[u8]>,
    /// What is sent.
    pub body: ReplyBody,
    /// `hdr`
    pub fields: Vec<(Box<[u8]>, Format)>,
}

/// What a rule's answer consists of.
#[derive(Debug)]
pub enum ReplyBody {
    /// No body.
    None,
    /// `default-errorfiles`: the answer that the proxy has for the status.
    Usual,
    /// `errorfile`, `errorfiles`: a whole message.
    Whole(Arc<[u8]>),
    /// `string`, `file`
    Bytes(Arc<[u8]>),
    /// `lf-string`, `lf-file`
    Format(Format),
}

/// `redirect`
#[derive(Debug)]
pub struct Redirect {
    /// How the target is made.
    pub kind: RedirectKind,
    /// Of what.
    pub target: Format,
    /// `code`
    pub code: u16,
    /// `drop-query`
    pub drop_query: bool,
    /// `keep-query`: a location has the request's query, too.
    pub keep_query: bool,
    /// `append-slash`
    pub append_slash: bool,
    /// `ignore-empty`
    pub ignore_empty: bool,
    /// `set-cookie`, `clear-cookie`: the value of `Set-Cookie`.
    pub cookie: Option<Box<[u8]>>,
}

/// How a redirection's target is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectKind {
    /// As it is.
    Location,
    /// Before the request's path.
    Prefix,
    /// Before the request's host and path.
    Scheme,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_compared_without_their_case() {
        let mut lane = manylane_expr::Lane::new(1);
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
