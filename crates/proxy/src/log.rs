//! Log lines: what is remembered of a stream, and the line at its end.

use crate::generation::{Backend, FrontendLog, Server};
use crate::rules::{Facts, Moment};
use crate::server::{NotReached, Pains};
use crate::session;
use crate::termination::{Cause, Termination};
use manylane_balance::Index;
use manylane_buf::Segment;
use manylane_config::tree::Mode;
use manylane_expr::{LogFacts, RequestLine, StreamFacts, Timestamp};
use manylane_http::{Head, Version};
use manylane_logs::{Level, Line};
use manylane_sched::Time;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a line's text at most; targets cut it to their own length.
const LONGEST: usize = 8192;

/// What a stream's line will say.
#[derive(Debug)]
pub(crate) struct Record {
    /// When it began, by the wall clock and by the lane's.
    date: Timestamp,
    begun: Time,
    /// How long it took until the request's head was there; none if it never was.
    pub(crate) request: Option<Duration>,
    /// Idle before it.
    pub(crate) idle: Duration,
    pub(crate) queued: Option<Duration>,
    pub(crate) connected: Option<Duration>,
    pub(crate) response: Option<Duration>,
    pub(crate) status: Option<u16>,
    pub(crate) ended: Termination,
    /// What the request's cookie and the response's were: `--` without.
    pub(crate) cookies: [u8; 2],
    pub(crate) retries: u32,
    pub(crate) redispatched: bool,
    pub(crate) up: u64,
    pub(crate) down: u64,
    /// The number of the backend, and the server that was reached, or tried last.
    pub(crate) backend: Option<usize>,
    pub(crate) server: Option<Index>,
    /// The request's first line as it came: its bytes, and how long method and target are.
    line: Option<(Segment, usize, usize, Version)>,
}

/// Writes the line of a connection that did not get as far as to have a stream.
pub(crate) fn refused(log: &FrontendLog, facts: &Facts<'_>, why: &str) {
    let place = match &facts.listener.name {
        Some(name) => name.to_string(),
        None => (facts.listener.index + 1).to_string(),
    };
    let mut text = [0; LONGEST];
    let length = facts.with(Moment::default(), |env, scratch| {
        let mut writer = manylane_expr::Writer::new(&mut text);
        log.refused.write(env, scratch, &mut writer);
        let _ = writer.print(format_args!("/{place}: {why}")); // what does not fit is cut
        writer.len()
    });
    send(log, facts, Level::Info, &text[..length]);
}

/// Hands a line to all targets of a frontend.
fn send(log: &FrontendLog, facts: &Facts<'_>, level: Level, text: &[u8]) {
    let line = Line {
        level,
        tag: log.tag.as_bytes(),
        pid: std::process::id(),
        host: facts.local.generation.logs.host.as_bytes(),
        structured: b"",
        time: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        text,
    };
    for &target in &log.targets {
        facts.local.logs.log(target, &line);
    }
}

impl Record {
    /// A stream begins now.
    pub(crate) fn new(now: Time) -> Self {
        Self {
            date: session::now(),
            begun: now,
            request: None,
            idle: Duration::ZERO,
            queued: None,
            connected: None,
            response: None,
            status: None,
            ended: Termination::NORMAL,
            cookies: *b"--",
            retries: 0,
            redispatched: false,
            up: 0,
            down: 0,
            backend: None,
            server: None,
            line: None,
        }
    }

    /// Remembers the first line of a request that was not edited yet.
    pub(crate) fn remember(&mut self, head: &Head) {
        self.line = head
            .original()
            .map(|original| (original.clone(), head.method().len(), head.target().len(), head.version()));
    }

    /// Forgets the first line again.
    pub(crate) fn forget(&mut self) {
        self.line = None;
    }

    /// What it took to get to the server.
    pub(crate) fn pains(&mut self, pains: Pains) {
        let Pains { queued, connected, retries, redispatched } = pains;
        self.queued = Some(queued);
        self.connected = Some(connected);
        self.retries = retries;
        self.redispatched = redispatched;
    }

    /// What it took to try in vain.
    pub(crate) fn not_reached(&mut self, failed: &NotReached) {
        let NotReached { ended: _, server, pains } = failed;
        let Pains { queued, connected: _, retries, redispatched } = *pains;
        self.queued = server.map(|_| queued);
        self.connected = None;
        self.retries = retries;
        self.redispatched = redispatched;
    }

    /// Since it began.
    pub(crate) fn age(&self, now: Time) -> Duration {
        now.since(self.begun)
    }

    /// Writes the line, to all targets of the frontend.
    pub(crate) fn write(
        &self,
        log: &FrontendLog,
        facts: &Facts<'_>,
        backend: Option<&Backend>,
        server: Option<&Server>,
        now: Time,
    ) {
        let fine = self.ended.cause == Cause::Normal && self.status.is_none_or(|status| status < 500);
        if fine && log.only_errors {
            return;
        }
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let or_none = |time: Option<Duration>| time.map_or(-1, millis);
        let [cause, phase] = self.ended.letters();
        let active = now.since(self.begun);
        let began = facts.frontend.counts.read_cheap_one(|counts| &counts.connections);
        let over = facts.frontend.counts.read_cheap_one(|counts| &counts.connections_ended);
        let current = i64::try_from(began.saturating_sub(over)).unwrap_or(i64::MAX);
        let known = self.request.unwrap_or_default() + self.queued.unwrap_or_default() + self.connected.unwrap_or_default();
        let known = known + self.response.unwrap_or_default();
        let log_facts = LogFacts {
            request_date: self.date,
            idle: millis(self.idle),
            request: match (self.request, facts.frontend.mode) {
                (None, Mode::Tcp) => 0, // there is none to wait for
                (request, _) => or_none(request),
            },
            queue: or_none(self.queued),
            connect: or_none(self.connected),
            response: or_none(self.response),
            data: self.response.map_or(-1, |_| millis(active.saturating_sub(known))),
            active: millis(active),
            total: millis(active + self.idle),
            user: millis(active + self.idle),
            bytes_read: self.down,
            bytes_uploaded: self.up,
            status: self.status.map_or(-1, i64::from),
            termination: [cause, phase, self.cookies[0], self.cookies[1]],
            process_connections: current,
            frontend_connections: current,
            backend_connections: backend.map_or(0, |backend| {
                i64::try_from(backend.balancer.total_load()).unwrap_or(i64::MAX)
            }),
            server_connections: backend.zip(server).map_or(0, |(backend, server)| {
                let index = backend.balancer.servers().index(server.index);
                index.map_or(0, |index| i64::try_from(backend.balancer.load(index)).unwrap_or(i64::MAX))
            }),
            retries: self.retries.into(),
            redispatched: self.redispatched,
            process_id: std::process::id(),
            ..LogFacts::default()
        };
        let request_line = self.line.as_ref().and_then(|(bytes, method, target, version)| {
            Some(RequestLine {
                method: bytes.get(..*method)?,
                target: bytes.get(method + 1..method + 1 + target)?,
                version: if *version >= Version::HTTP_11 { b"1.1" } else { b"1.0" },
            })
        });
        // Only the status of the response is shown.
        let response_line = self.status.map(|status| (&b"1.1"[..], status));
        let stream = StreamFacts { request_line, response_line, ..StreamFacts::default() };
        let moment = Moment { backend, server, log: Some((&log_facts, &stream)), ..Moment::default() };
        let mut text = [0; LONGEST];
        let length = facts.with(moment, |env, scratch| {
            let mut writer = manylane_expr::Writer::new(&mut text);
            log.format.write(env, scratch, &mut writer);
            writer.len()
        });
        let level = if !fine && log.separate { Level::Err } else { Level::Info };
        send(log, facts, level, &text[..length]);
    }
}
