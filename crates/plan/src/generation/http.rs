//! Settings of frontends and backends in `mode http`.

use super::bind::text;
use super::process::Process;
use super::refuse::Refuse;
use super::rules::RuleReader;
use super::rules::{Forwarded, Reply, mentioned_by};
use super::stats_page::{StatsPage, stats_page};
use manylane_config::lex::Word;
use manylane_config::table::OptionSwitch;
use manylane_config::tree::{
    self, AddressHeader, Config, ErrorFile, ExceptNetwork, Proxy, RetryOn, Set, Settings,
};
use manylane_expr::Format;
use manylane_h1::{Leniency, Limits, NamePolicy};
use manylane_http::{Head, Method};
use manylane_sync::Arc;
use std::net::IpAddr;
use std::time::Duration;

/// Settings of `mode http`.
#[derive(Debug)]
pub struct Http {
    /// Limits of request heads.
    pub request_limits: Limits,
    /// Limits of response heads.
    pub response_limits: Limits,
    /// Which connections stay open after a response.
    pub close: CloseMode,
    /// `option forwardfor`
    pub forwarded_for: Option<AddressField>,
    /// `option forwarded`, of a backend.
    pub forwarded: Option<Forwarded>,
    /// `option originalto`
    pub original_to: Option<AddressField>,
    /// Messages by status, in place of the program's own.
    pub answers: Vec<(u16, Arc<[u8]>)>,
    /// `http-error`: replies that have precedence over `answers`.
    pub replies: Vec<Reply>,
    /// `unique-id-format`
    pub unique_id: Option<Format>,
    /// `unique-id-header`
    pub unique_id_header: Option<Box<[u8]>>,
    /// `option h1-case-adjust-bogus-client`, `-server`: spell field names as `h1-case-adjust` says.
    pub spells: bool,
    /// `monitor-uri`
    pub monitor: Option<Box<[u8]>>,
    /// True if a rule may use the password of a request.
    pub asks_for_passwords: bool,
    /// `stats uri` and related keywords.
    pub stats: Option<Arc<StatsPage>>,
    /// `option http-restrict-req-hdr-names`
    pub names: NamePolicy,
    /// `option http-ignore-probes`
    pub ignore_probes: bool,
    /// `option idle-close-on-response`: idle connections stay open when the process stops, until their next
    /// response or timeout.
    pub outlives_stop: bool,
    /// `option disable-h2-upgrade`: refuse a client that begins with the HTTP/2 preface.
    pub disable_h2_upgrade: bool,
    /// `option checkcache`: refuse a response that a cache would store together with its cookie.
    pub check_cache: bool,
    /// `option http-drop-request-trailers`
    pub drop_request_trailers: bool,
    /// `option http-drop-response-trailers`
    pub drop_response_trailers: bool,
    /// `option http-buffer-request`
    pub buffer_request: bool,
    /// `option http-pretend-keepalive`
    pub pretend_keep_alive: bool,
    /// `http-reuse`
    pub reuse: Reuse,
    /// `http-send-name-header`
    pub send_name: Option<Box<[u8]>>,
    /// `option prefer-last-server`
    pub prefer_last: bool,
    /// `max-keep-alive-queue`: the server of the last request is not preferred if this many requests or more
    /// wait for it; `None` for no limit.
    pub keep_queue: Option<u32>,
    /// `max-session-srv-conns`: number of private server connections that a session may keep.
    pub most_private: usize,
    /// `option persist`
    pub persist: bool,
    /// `cookie`
    pub cookie: Option<Cookie>,
    /// `retry-on`
    pub retry_on: RetryEvents,
}

/// Side of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpSide {
    /// The frontend.
    Front,
    /// The backend.
    Back,
}

/// Returns true if the proxy or its `defaults` section may use passwords.
fn asks_for_passwords(proxy: &Proxy, config: &Config) -> bool {
    let defaults = proxy.defaults.map(|index| &config.proxies[index]);
    defaults.into_iter().chain([proxy]).any(|proxy| mentioned_by(proxy, b"http_auth"))
}

impl Http {
    /// Returns the statistics page if the request asks for it.
    #[inline]
    pub fn stats_at(&self, head: &Head) -> Option<&Arc<StatsPage>> {
        let asks = |page: &&Arc<StatsPage>| {
            page.behind_uri(head).is_some()
                && matches!(head.method_kind(), Method::Get | Method::Head | Method::Post)
        };
        self.stats.as_ref().filter(asks)
    }
}

/// Which connections stay open after a response. `option httpclose` of a frontend is about the client's
/// connection, that of a backend about the server's. Otherwise the stricter of frontend and backend applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CloseMode {
    /// Both stay open.
    KeepAlive,
    /// `option http-server-close`: the client's stays open.
    Server,
    /// `option httpclose`: none stays open.
    Both,
}

/// `http-reuse`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// A session uses only its own connections.
    Never,
    /// The first request of a session uses a new connection.
    Safe,
    /// The first request of a session may use an idle connection that has been reused before.
    Aggressive,
    /// Any request may use any idle connection.
    Always,
}

/// `option forwardfor`, `option originalto`
#[derive(Clone, Debug)]
pub struct AddressField {
    /// Name of the field, in lower case.
    pub name: Box<[u8]>,
    /// Networks whose addresses are not added (R-G7).
    pub except: Vec<ExceptNetwork>,
    /// `if-none`: nothing is added to a message that has the field.
    pub if_none: bool,
}

impl AddressField {
    /// Returns true if the address is to be added.
    #[inline]
    pub fn tells(&self, address: IpAddr) -> bool {
        !self.except.iter().any(|network| within(network, address))
    }
}

fn within(network: &ExceptNetwork, address: IpAddr) -> bool {
    let same = |a: u128, b: u128, width: u32| {
        let free = width - u32::from(network.prefix).min(width);
        free >= width || (a ^ b) >> free == 0
    };
    match (network.address, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), 128),
        _ => false,
    }
}

/// `cookie`
#[derive(Clone, Debug)]
pub struct Cookie {
    /// Name of the cookie.
    pub name: Box<[u8]>,
    /// What the proxy does with the cookie; `None` only reads it.
    pub mode: Option<tree::CookieMode>,
    /// `indirect`: the server does not see the cookie, and a client that has the right one does not get it
    /// again.
    pub indirect: bool,
    /// `nocache`
    pub nocache: bool,
    /// `postonly`
    pub postonly: bool,
    /// `preserve`
    pub preserve: bool,
    /// `maxidle`: seconds after which a cookie that was not renewed is ignored.
    pub most_idle: Option<i64>,
    /// `maxlife`: seconds after which a cookie is ignored.
    pub most_life: Option<i64>,
    /// Attributes in `Set-Cookie`, such as `; path=/`.
    pub attributes: Box<[u8]>,
}

/// `retry-on`
#[derive(Clone, Debug, Default)]
pub struct RetryEvents {
    /// The connection failed.
    pub connect: bool,
    /// The server closed without a response.
    pub empty: bool,
    /// The response timed out.
    pub timeout: bool,
    /// The response was not valid HTTP.
    pub junk: bool,
    /// Requests that change nothing may be sent as early data, also where the client has not sent them so.
    pub early: bool,
    /// Responses with these statuses.
    pub statuses: Vec<u16>,
}

impl RetryEvents {
    /// Returns true if failures after the connection are retried. Then requests are kept for a replay.
    #[inline]
    pub fn replays(&self) -> bool {
        self.empty || self.timeout || self.junk || !self.statuses.is_empty()
    }
}

/// Returns the deviations from the RFCs that are accepted. `relaxed` is true if the option for unsafe
/// violations is set.
pub(super) fn leniency(settings: &Settings, relaxed: bool) -> Leniency {
    match (relaxed, settings.option(OptionSwitch::HTTP_STRICT_FRAMING)) {
        (true, _) => Leniency::ALL,
        (false, false) => Leniency::USUAL,
        (false, true) => Leniency::NONE,
    }
}

pub(super) fn http<'c>(
    proxy: &'c Proxy,
    side: HttpSide,
    reader: &mut RuleReader<'c>,
    process: &Process,
    config: &Config,
    refuse: &mut Refuse<'_>,
) -> Http {
    let settings = &proxy.settings;
    let on = |toggle| settings.option(toggle);
    let limits = |relaxed| Limits {
        head: process.bufsize.saturating_sub(process.maxrewrite).min(manylane_http::MAX_HEAD),
        room: process.bufsize,
        fields: process.maxhdr,
        relaxed,
        lenient: leniency(settings, relaxed),
        old_payload: process.old_payload,
        proxy_header: on(OptionSwitch::HTTP_USE_PROXY_HEADER),
        h2c: false,
    };
    let close = match (on(OptionSwitch::HTTPCLOSE), on(OptionSwitch::HTTP_SERVER_CLOSE)) {
        (true, _) => CloseMode::Both,
        (false, true) => CloseMode::Server,
        (false, false) => CloseMode::KeepAlive,
    };
    Http {
        request_limits: Limits {
            h2c: !on(OptionSwitch::DISABLE_H2_UPGRADE),
            ..limits(on(OptionSwitch::UNSAFE_REQUESTS))
        },
        response_limits: limits(on(OptionSwitch::UNSAFE_RESPONSES)),
        close,
        forwarded_for: settings.forwardfor.as_ref().map(|set| address_field(&set.value, b"x-forwarded-for")),
        forwarded: settings
            .forwarded
            .as_ref()
            .filter(|_| side == HttpSide::Back)
            .map(|set| reader.forwarded(&set.value, proxy, refuse)),
        original_to: settings.originalto.as_ref().map(|set| address_field(&set.value, b"x-original-to")),
        answers: answers(settings, config, refuse),
        replies: reader.http_errors(proxy, refuse),
        unique_id: settings
            .unique_id_format
            .as_ref()
            .filter(|_| side == HttpSide::Front)
            .and_then(|set| reader.unique_id(&set.value, proxy, refuse)),
        unique_id_header: settings.unique_id_header.as_ref().map(|set| set.value.bytes().into()),
        spells: on(match side {
            HttpSide::Front => OptionSwitch::H1_ADJUST_CLIENT,
            HttpSide::Back => OptionSwitch::H1_ADJUST_SERVER,
        }),
        monitor: settings.monitor_uri.as_ref().map(|set| set.value.bytes().into()),
        asks_for_passwords: asks_for_passwords(proxy, config),
        stats: stats_page(proxy).map(Arc::new),
        names: match settings.restrict_header_names.map(|set| set.value) {
            Some("delete") => NamePolicy::Delete,
            Some("reject") => NamePolicy::Reject,
            _ => NamePolicy::Preserve,
        },
        ignore_probes: on(OptionSwitch::HTTP_IGNORE_PROBES),
        outlives_stop: on(OptionSwitch::IDLE_CLOSE_ON_RESPONSE),
        disable_h2_upgrade: on(OptionSwitch::DISABLE_H2_UPGRADE),
        check_cache: on(OptionSwitch::CHECKCACHE),
        drop_request_trailers: on(OptionSwitch::HTTP_DROP_REQUEST_TRAILERS),
        drop_response_trailers: on(OptionSwitch::HTTP_DROP_RESPONSE_TRAILERS),
        buffer_request: on(OptionSwitch::HTTP_BUFFER_REQUEST),
        pretend_keep_alive: on(OptionSwitch::HTTP_PRETEND_KEEPALIVE),
        reuse: match settings.http_reuse.map(|set| set.value) {
            Some("never") => Reuse::Never,
            Some("aggressive") => Reuse::Aggressive,
            Some("always") => Reuse::Always,
            _ => Reuse::Safe,
        },
        send_name: settings.http_send_name_header.as_ref().map(|set| set.value.bytes().into()),
        prefer_last: on(OptionSwitch::PREFER_LAST_SERVER),
        // -1: no limit
        keep_queue: settings.max_keep_alive_queue.and_then(|set| u32::try_from(set.value).ok()),
        most_private: settings.max_session_srv_conns.as_ref().map_or(usize::MAX, |set| set.value as usize),
        persist: on(OptionSwitch::PERSIST),
        cookie: settings.cookie.as_ref().map(cookie),
        retry_on: retry_on(settings, refuse),
    }
}

fn address_field(header: &AddressHeader, usual: &[u8]) -> AddressField {
    let AddressHeader { except, name, if_none } = header;
    AddressField {
        name: name.as_ref().map_or(usual, Word::bytes).to_ascii_lowercase().into(),
        except: except.clone(),
        if_none: *if_none,
    }
}

fn cookie(set: &Set<tree::Cookie>) -> Cookie {
    let tree::Cookie {
        name,
        mode,
        indirect,
        nocache,
        postonly,
        preserve,
        httponly,
        secure,
        dynamic: _, // read with the servers
        domains,
        attributes,
        maxidle,
        maxlife,
    } = &set.value;
    let seconds =
        |time: &Option<Duration>| time.map(|time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    let mut tail = String::from("; path=/");
    for domain in domains {
        tail.push_str(&format!("; domain={}", text(domain)));
    }
    if *httponly {
        tail.push_str("; HttpOnly");
    }
    if *secure {
        tail.push_str("; Secure");
    }
    for attribute in attributes {
        tail.push_str(&format!("; {}", text(attribute)));
    }
    Cookie {
        name: name.bytes().into(),
        mode: *mode,
        indirect: *indirect,
        nocache: *nocache,
        postonly: *postonly,
        preserve: *preserve,
        most_idle: seconds(maxidle).filter(|time| *time > 0),
        most_life: seconds(maxlife).filter(|time| *time > 0),
        attributes: tail.into_bytes().into(),
    }
}

fn retry_on(settings: &Settings, refuse: &mut Refuse<'_>) -> RetryEvents {
    let Some(set) = &settings.retry_on else {
        return RetryEvents { connect: true, ..RetryEvents::default() };
    };
    let mut events = RetryEvents::default();
    for event in &set.value {
        match event {
            RetryOn::Status(status) => events.statuses.push(*status),
            RetryOn::Event("none") => events = RetryEvents::default(),
            RetryOn::Event("conn-failure") => events.connect = true,
            RetryOn::Event("empty-response") => events.empty = true,
            RetryOn::Event("response-timeout") => events.timeout = true,
            RetryOn::Event("junk-response") => events.junk = true,
            RetryOn::Event("0rtt-rejected") => events.early = true,
            RetryOn::Event("all-retryable-errors") => {
                events.connect = true;
                events.empty = true;
                events.timeout = true;
                events.junk = true;
                events.early = true;
                events.statuses.extend([500, 502, 503, 504]);
            }
            RetryOn::Event(other) => {
                refuse.keyword(set.pos, &format!("retry-on {other}"), "it is not built yet")
            }
        }
    }
    events
}

/// Returns the messages of `errorfile`, `errorloc` and `errorfiles`. The last line for a status applies;
/// lines of the `defaults` section come first.
fn answers(settings: &Settings, config: &Config, refuse: &mut Refuse<'_>) -> Vec<(u16, Arc<[u8]>)> {
    let mut all: Vec<(u16, Arc<[u8]>)> = Vec::new();
    let mut add = |file: &ErrorFile, refuse: &mut Refuse<'_>| {
        if let Some(bytes) = answer(file, refuse) {
            all.retain(|(code, _)| *code != file.code);
            all.push((file.code, bytes));
        }
    };
    let mut own = settings.error_files.iter().peekable();
    for statement in &settings.errorfiles {
        while let Some(file) = own.next_if(|file| file.pos < statement.pos) {
            add(file, refuse);
        }
        let [name, codes @ ..] = &statement.words[..] else { continue };
        let section = config.http_errors.iter().find(|section| section.name.bytes() == name.bytes());
        let wanted =
            |code: u16| codes.is_empty() || codes.iter().any(|word| word.text() == Some(&*code.to_string()));
        for file in section.into_iter().flat_map(|section| &section.files).filter(|file| wanted(file.code)) {
            add(file, refuse);
        }
    }
    own.for_each(|file| add(file, refuse));
    all
}

/// Checks the files of sections that no proxy uses: a file that cannot be read is an error anywhere.
pub(super) fn unused(sections: &[tree::HttpErrors], refuse: &mut Refuse<'_>) {
    for file in sections.iter().flat_map(|section| &section.files) {
        answer(file, refuse);
    }
}

/// Returns the message of an error file, or the redirection in its place.
pub(super) fn answer(file: &ErrorFile, refuse: &mut Refuse<'_>) -> Option<Arc<[u8]>> {
    if let Some(redirection) = file.redirect {
        let mut bytes = format!(
            "HTTP/1.1 {} Found\r\ncontent-length: 0\r\ncache-control: no-cache\r\nlocation: ",
            redirection.status
        );
        if redirection.status == 303 {
            bytes = bytes.replace("Found", "See Other");
        }
        return Some([bytes.as_bytes(), file.target.bytes(), b"\r\n\r\n"].concat().into());
    }
    let path = refuse.path(&file.target);
    let message = refuse.files.message(path.clone(), |bytes| match &bytes[..] {
        [] => Ok(bytes), // as `/dev/null`: the connection is closed without a response
        bytes => whole(bytes),
    });
    let is_known =
        |refuse: &Refuse<'_>| refuse.found.found().iter().any(|one| one.pos == Some(file.target.pos()));
    match message {
        Ok(message) => Some(message),
        Err(_) if is_known(refuse) => None, // reported before, by another proxy or the other half
        Err(why) => {
            refuse
                .found
                .alert(file.target.pos(), format!("cannot use error file '{}': {why}", path.display()));
            None
        }
    }
}

/// Returns the message of an error file: lines end with CRLF, and `content-length` is that of the body.
fn whole(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let text = bytes;
    let mut head = Vec::new();
    let mut at = 0;
    loop {
        let Some(end) = text[at..].iter().position(|&byte| byte == b'\n') else {
            return Err("an HTTP response expects an empty line behind its head, found the end of the file");
        };
        let line = text[at..at + end].strip_suffix(b"\r").unwrap_or(&text[at..at + end]);
        at += end + 1;
        if line.is_empty() {
            break;
        }
        let framing = [&b"content-length:"[..], b"transfer-encoding:", b"connection:"];
        let of = |name: &[u8]| line.len() >= name.len() && line[..name.len()].eq_ignore_ascii_case(name);
        if !framing.iter().any(|name| of(name)) {
            head.extend_from_slice(line);
            head.extend_from_slice(b"\r\n");
        }
    }
    if !head.starts_with(b"HTTP/1.") {
        return Err("an HTTP response expects 'HTTP/1.' at its beginning, found another text");
    }
    let body = &text[at..];
    head.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    head.extend_from_slice(body);
    Ok(head)
}
