//! Log lines: the record of a stream, and the line at its end.

use super::{EvalContext, EvalPhase};
use manylane_balance::Index;
use manylane_config::tree::LogStep;
use manylane_expr::{Env, Format, LogInfo, Scratch, Timestamp, Writer};
use manylane_lanes::{Local, LogLevel, Room, StreamText};
use manylane_logs::{Level, Line};
use manylane_plan::clock;
use manylane_plan::connect_timings::{ConnectTimings, NotReached};
use manylane_plan::generation::{Frontend, FrontendLog};
use manylane_plan::{Cause, Phase, Termination};
use manylane_sched::Time;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Values of a stream's log line.
#[derive(Debug)]
pub struct Record {
    /// When the stream began, by the wall clock and by the lane's clock.
    pub date: Timestamp,
    begun: Time,
    /// Time until the request's head was complete; `None` if it never was.
    pub request: Option<Duration>,
    /// Time for the PROXY header and TLS handshake before the first request of a connection.
    pub handshake: Duration,
    /// Idle time before the request.
    pub idle: Duration,
    /// Time in queues, with delays by rules and earlier attempts.
    pub queued: Option<Duration>,
    pub(crate) connected: Option<Duration>,
    /// Time from the connection to the server until the head of the response.
    pub response: Option<Duration>,
    /// Status of the response.
    pub status: Option<u16>,
    /// How the stream ended.
    pub ended: Termination,
    /// States of the request's and the response's cookie; `--` without a cookie.
    pub cookies: [u8; 2],
    pub(crate) retries: u32,
    pub(crate) redispatched: bool,
    /// Requests served from the queue while this one waited, itself included: of the server, and of the
    /// backend.
    server_queue: u64,
    backend_queue: u64,
    /// Bytes from the client.
    pub up: u64,
    /// Bytes to the client.
    pub down: u64,
    /// Number of the backend in its generation.
    pub backend: Option<usize>,
    /// Index of the server in that backend that was reached or tried last.
    pub server: Option<Index>,
    /// Name that is logged in place of a server, for the program's own pages.
    pub(crate) page: Option<&'static [u8]>,
}

/// Writes the line of a connection that did not become a stream.
pub fn refused(log: &FrontendLog, eval: &EvalContext<'_>, why: &str) {
    let level = if log.separate { Level::Err } else { Level::Info };
    let known = LogInfo { partial: log.early, origin: "sess_error", ..eval.log_info(None, None) };
    let log_info = match &log.errors {
        Some(_) => LogInfo { termination: *b"PR--", ..known },
        None => known,
    };
    let phase = EvalPhase { log: Some(&log_info), ..EvalPhase::default() };
    let listener = match &eval.listener.name {
        Some(name) => name.to_string(),
        None => eval.listener.id.to_string(),
    };
    write_lines(log, eval, phase, level, LogStep::Error, |env, scratch, writer| match &log.errors {
        Some(format) => format.write(env, scratch, writer),
        None => {
            log.refused.write(env, scratch, writer);
            let _ = writer.print(format_args!("/{listener}: {why}")); // truncated if too long
        }
    });
}

/// Returns true if `log-steps` of a frontend has a step.
#[inline]
pub fn logs_step(frontend: &Frontend, step: LogStep) -> bool {
    frontend.log.as_ref().and_then(|log| log.steps).is_some_and(|steps| steps.has(step))
}

impl EvalContext<'_> {
    /// Changes the log record of the stream, if there is one.
    pub fn note(&self, what: impl FnOnce(&mut Record)) {
        if let Some(course) = self.course
            && let Some(record) = &mut *course.borrow_mut()
        {
            what(record);
        }
    }

    /// Logs a step of the stream, if `log-steps` has it.
    pub fn log_step(&self, step: LogStep) {
        if logs_step(self.frontend, step) {
            self.log_now(step);
        }
    }

    /// Logs the stream in its present state, for `do-log`.
    pub fn log_now(&self, step: LogStep) {
        if let Some(course) = self.course
            && let Some(record) = &*course.borrow()
        {
            record.write(step, self);
        }
    }
}

/// Writes a line to all targets of a frontend. `usual` writes the text for targets whose profile has no
/// format.
fn write_lines(
    log: &FrontendLog,
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    level: Level,
    step: LogStep,
    usual: impl Fn(&Env<'_>, &mut Scratch<'_>, &mut Writer<'_>),
) {
    eval.with(phase, |env, scratch| {
        let Room { text, structured } = &mut *eval.local.room.borrow_mut();
        let mut any = false;
        let mut write = |format: Option<&Format>, sd: Option<&Format>, tag: &str, targets: &[usize]| {
            let mut structured = Writer::new(structured);
            if let Some(format) = sd {
                format.write(env, scratch, &mut structured);
            }
            let mut text = Writer::new(text); // truncated if too long
            match format {
                Some(format) => format.write(env, scratch, &mut text),
                None => usual(env, scratch, &mut text),
            }
            let structured = structured.into_written().unwrap_or_default();
            write_line(targets, tag, eval.local, level, text.written(), structured);
            any = true;
        };
        if !log.targets.is_empty() {
            write(None, log.structured.as_ref(), &log.tag, &log.targets);
        }
        for profile in &log.profiles {
            let line = profile.line(step);
            if line.is_some_and(|line| line.drop) {
                continue;
            }
            let sd = line.and_then(|line| line.structured.as_ref()).or(log.structured.as_ref());
            write(line.and_then(|line| line.format.as_ref()), sd, &profile.tag, &profile.targets);
        }
        if any {
            eval.parties().line_logged();
        }
    });
}

fn write_line(targets: &[usize], tag: &str, local: &Local, level: Level, text: &[u8], structured: &[u8]) {
    let line = Line {
        level,
        tag: tag.as_bytes(),
        pid: local.pid,
        host: local.generation.logs.host.as_bytes(),
        structured,
        time: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        text,
    };
    for &target in targets {
        local.log(target, &line);
    }
}

/// Returns the value of `%OG` for a step.
fn origin(step: LogStep) -> &'static str {
    match step {
        LogStep::Accept => "txn_accept",
        LogStep::Request => "txn_request",
        LogStep::Connect => "txn_connect",
        LogStep::Response => "txn_response",
        LogStep::Close => "txn_close",
        LogStep::Error => "sess_error",
        LogStep::Any => "unspec",
        of_rules => of_rules.name(),
    }
}

impl Record {
    /// Returns the record of a stream that begins `now`.
    pub fn new(now: Time) -> Self {
        Self {
            date: clock::now(),
            begun: now,
            request: None,
            handshake: Duration::ZERO,
            idle: Duration::ZERO,
            queued: None,
            connected: None,
            response: None,
            status: None,
            ended: Termination::NORMAL,
            cookies: *b"--",
            retries: 0,
            redispatched: false,
            server_queue: 0,
            backend_queue: 0,
            up: 0,
            down: 0,
            backend: None,
            server: None,
            page: None,
        }
    }

    /// Returns the record of a client that is refused before it has sent anything. The log counts its time as
    /// slow, not as idle.
    pub fn silent(accepted: Timestamp, handshake: Duration, begun: Time) -> Self {
        Self { date: accepted, handshake, ..Self::new(begun) }
    }

    /// Stores the times of a successful connection to a server.
    pub fn timings(&mut self, timings: ConnectTimings) {
        self.queued = Some(self.waited(&timings));
        self.connected = Some(timings.connected);
        self.tried(timings);
    }

    /// Stores the times of a failed attempt to reach a server.
    pub fn not_reached(&mut self, failed: &NotReached) {
        let NotReached { ended, server, timings } = failed;
        self.queued = (server.is_some() || ended.phase == Phase::Queue).then(|| self.waited(timings));
        self.connected = None;
        self.tried(*timings);
    }

    /// Returns the time in queues. As in HAProxy, it includes delays of rules and earlier attempts of the
    /// request.
    fn waited(&self, timings: &ConnectTimings) -> Duration {
        let before = timings.since.since(self.begun).saturating_sub(self.request.unwrap_or_default());
        before + timings.queued
    }

    /// Records that one of the program's own pages serves the request, and its name.
    pub fn serves(&mut self, page: &'static [u8]) {
        self.page = Some(page);
        self.queued = Some(Duration::ZERO);
        self.connected = Some(Duration::ZERO);
    }

    fn tried(&mut self, timings: ConnectTimings) {
        let ConnectTimings {
            since: _,
            queued: _,
            connected: _,
            retries,
            redispatched,
            server_queue,
            backend_queue,
        } = timings;
        self.retries = retries;
        self.redispatched = redispatched;
        self.server_queue += server_queue;
        self.backend_queue += backend_queue;
    }

    /// Returns the time since the stream began.
    pub fn age(&self, now: Time) -> Duration {
        now.since(self.begun)
    }

    /// Writes the line of a step to all targets of the frontend, if it logs.
    pub fn write(&self, step: LogStep, eval: &EvalContext<'_>) {
        let Some(log) = &eval.frontend.log else { return };
        let now = eval.local.here().now();
        let backend = self.backend.map(|number| &*eval.local.generation.backends[number]);
        let server = backend.zip(self.server).map(|(backend, index)| &*backend.servers[index.get()]);
        let memory = &eval.scopes.memory;
        let set = memory.log_level.get();
        if set == LogLevel::Silent {
            return;
        }
        let failed = self.failed();
        if !failed && log.only_errors {
            return;
        }
        let level = match set {
            LogLevel::Set(level) => level,
            _ if failed && log.separate => Level::Err,
            _ => Level::Info,
        };
        let known = LogInfo { partial: log.early, origin: origin(step), ..eval.log_info(backend, server) };
        self.with(eval, known, now, |log_info| {
            let phase = EvalPhase { backend, server, log: Some(log_info), ..EvalPhase::default() };
            write_lines(log, eval, phase, level, step, |env, scratch, out| {
                log.format.write(env, scratch, out);
            });
        });
    }

    /// Calls `work` with the values of the log line at `now`. `known` has the values that do not depend on
    /// this record.
    pub(crate) fn with<R>(
        &self,
        eval: &EvalContext<'_>,
        known: LogInfo<'static>,
        now: Time,
        work: impl FnOnce(&LogInfo<'_>) -> R,
    ) -> R {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let or_none = |time: Option<Duration>| time.map_or(-1, millis);
        let [cause, phase] = self.ended.letters();
        let active = now.since(self.begun);
        let before = self.request.unwrap_or_default()
            + self.queued.unwrap_or_default()
            + self.connected.unwrap_or_default();
        let before = before + self.response.unwrap_or_default();
        let texts = eval.scopes.memory.texts.borrow();
        let log_info = LogInfo {
            request_date: self.date,
            handshake: millis(self.handshake),
            idle: millis(self.idle),
            request: match (self.request, eval.http) {
                (None, false) => 0, // nothing waits for a request
                (request, _) => or_none(request),
            },
            queue: or_none(self.queued),
            connect: or_none(self.connected),
            response: or_none(self.response),
            data: self.response.map_or(-1, |_| millis(active.saturating_sub(before))),
            active: millis(active),
            total: millis(active + self.idle + self.handshake),
            user: millis(active + self.handshake),
            bytes_read: self.down,
            bytes_uploaded: self.up,
            status: match (self.status, eval.http) {
                (None, false) => 0, // there is none
                (status, _) => status.map_or(-1, i64::from),
            },
            termination: [cause, phase, self.cookies[0], self.cookies[1]],
            retries: self.retries.into(),
            redispatched: self.redispatched,
            server_queue: number(self.server_queue),
            backend_queue: number(self.backend_queue),
            request_cookie: texts.get(StreamText::RequestCookie as usize),
            response_cookie: texts.get(StreamText::ResponseCookie as usize),
            no_server: self.page.unwrap_or(known.no_server),
            ..known
        };
        work(&log_info)
    }

    /// Returns true if the line counts as an error for `option log-separate-errors` and `option
    /// dontlog-normal`: the stream did not end normally, had retries, or has a status of 500 or above. A
    /// response by a rule is normal.
    fn failed(&self) -> bool {
        !matches!(self.ended.cause, Cause::Normal | Cause::Local)
            || self.retries > 0
            || self.status.is_some_and(|status| status >= 500)
    }
}
