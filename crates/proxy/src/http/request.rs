//! Waits for the next request of a client, with the timeouts of the frontend.

use super::answer;
use super::idle_session::{More, Woken, allocate, may_begin, until};
use super::multiplexed::Upgraded;
use super::pipeline::After;
use super::stream::Stream;
use manylane_buf::Chain;
use manylane_config::tree::{LogStep, Mode};
use manylane_h1::{Body, Request, RequestParser};
use manylane_http::Version;
use manylane_io::READ_AT_ONCE;
use manylane_mux::h2::PREFACE;
use manylane_net::Connection;
use manylane_plan::generation::Frontend;
use manylane_plan::invalid::Found;
use manylane_plan::{Cause, Phase, Termination};
use manylane_pool::{Pool, Pooled};
use manylane_rules::Record;
use manylane_sched::Time;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Reason why a session has no next request now.
pub(super) enum NoMore {
    /// The input was not a request, and the proxy has responded. `is_error` says whether stick tables count
    /// it as an error of the client.
    Refused { is_error: bool },
    /// No request came: the client left or was idle for too long, or the generation ends.
    End,
    /// The client speaks HTTP/2 from here on: it sent the preface, or a request that upgrades to it.
    Http2(Option<Pooled<Upgraded>>),
    /// A part of a head arrived. The session is idle until more arrives, with this.
    Partial(Pooled<More>),
}

/// The incomplete head that an idle session keeps.
#[derive(Debug)]
pub(super) struct PartialHead {
    parser: RequestParser,
    received: Chain,
    /// Number of bytes that the parser has consumed.
    taken: u64,
    /// Time until which the whole head has to arrive.
    pub(super) deadline: Time,
    record: Option<Record>,
}

manylane_sync::lazy_static! {
    static PARTIAL: Pool<PartialHead> =
        Pool::new("partial head").expect("the size is a constant below the bound");
}

/// How a client's first bytes compare with the preface of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preface {
    No,
    Part,
    Whole,
}

/// How a wait ended.
pub(super) enum Wait {
    Bytes,
    Left,
    Late,
    Stopping,
}

/// Most bytes that the proxy reads from a refused client so that the client can read the response, and the
/// longest time for that.
const LINGERING: (usize, Duration) = (1 << 20, Duration::from_secs(2));

/// Returns how long a session may wait for a request after `requests` others, and how long for the whole of
/// its head.
pub(super) fn timeouts(frontend: &Frontend, requests: u64) -> (Option<Duration>, Option<Duration>) {
    let timeouts = &frontend.timeouts;
    let whole = timeouts.request.or(timeouts.client);
    (if requests == 0 { whole } else { timeouts.keep_alive.or(whole) }, whole)
}

/// Returns true if a client that leaves before its next request gets no response and no log line, after
/// `requests` requests.
pub(super) fn ends_in_silence(frontend: &Frontend, requests: u64) -> bool {
    requests > 0 || frontend.http.ignore_probes
}

impl Stream<'_> {
    /// Waits for the next request. `woken` is the result of a wait that has ended already, for what follows
    /// `partial`.
    pub(super) async fn next_request(
        &mut self,
        woken: Option<Woken>,
        partial: Option<Pooled<PartialHead>>,
    ) -> Result<Request, NoMore> {
        let here = self.local.here();
        let mut parser = RequestParser::new(self.frontend.http.request_limits);
        let (idle, whole) = timeouts(self.frontend, self.requests);
        let waited_from = self.since;
        let after = |since: Time, time: Option<Duration>| time.map_or(Time::MAX, |time| since + time);
        let mut came = 0;
        let mut deadline = after(waited_from, idle);
        let (mut begun, was_partial) = (false, partial.is_some());
        if let Some(partial) = partial {
            // A partial head keeps its log record with it.
            let PartialHead { parser: kept, received, taken, deadline: end, record } = partial.into_inner();
            (parser, self.client.received, came, deadline, begun) = (kept, received, taken, end, true);
            self.record.replace(record);
        } else if woken.is_none() && !self.client.received.is_empty() {
            (deadline, begun) = (after(waited_from, whole), true);
            self.begin_record(waited_from);
        }
        // Bytes that follow a partial head are in `received` then.
        let mut woken =
            woken.map(|woken| self.woken(woken)).filter(|wait| !(was_partial && matches!(wait, Wait::Bytes)));
        loop {
            let preface = if begun { self.preface() } else { Preface::No };
            if preface == Preface::Whole {
                return Err(NoMore::Http2(None));
            }
            if begun && preface == Preface::No {
                let there = self.client.received.len();
                let parsed = parser.parse(&mut self.client.received);
                came += (there - self.client.received.len()) as u64;
                match parsed {
                    Ok(Some(mut request)) => {
                        if let Some(relaxed) = parser.take_relaxed() {
                            self.accept_relaxed_request(&relaxed);
                        }
                        if request.connection.h2c {
                            request = self.take_offer(request).map_err(|upgraded| match upgraded {
                                Some(upgraded) => NoMore::Http2(Some(upgraded)),
                                None => NoMore::End,
                            })?;
                        }
                        self.came = came;
                        self.unsent.set(came);
                        self.note(|record| record.request = Some(record.age(here.now())));
                        return Ok(request);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        self.frontend.invalid.keep(
                            &Found::new(&self.client.received, error),
                            self.client.source,
                            |_| {},
                        );
                        self.refuse(error.status, Cause::Refused).await;
                        return Err(NoMore::Refused { is_error: true });
                    }
                }
            }
            let waited = match woken.take() {
                Some(wait) => wait,
                // An idle session would lose the scopes of a switched stream.
                None if begun
                    && self.switched.is_none()
                    && self.client.end.whole().is_some_and(Connection::is_pollable) =>
                {
                    match self.already(deadline).await {
                        Some(wait) => wait,
                        None => match self.partial_head(&parser, came, deadline) {
                            Some(more) => return Err(NoMore::Partial(more)),
                            None => {
                                // There is no memory for the idle session.
                                self.refuse(500, Cause::Resource).await;
                                return Err(NoMore::Refused { is_error: false });
                            }
                        },
                    }
                }
                None => self.wait(deadline, !begun).await,
            };
            match waited {
                Wait::Bytes => {
                    if !begun {
                        begun = true;
                        self.begin_record(waited_from);
                        if self.requests > 0 {
                            deadline = after(here.now(), whole);
                        }
                    }
                }
                // A client of HTTP/2 does not understand a response of HTTP/1.
                Wait::Left | Wait::Late if self.speaks_h2() => return Err(NoMore::End),
                Wait::Left | Wait::Late if !begun && ends_in_silence(self.frontend, self.requests) => {
                    return Err(NoMore::End);
                }
                // A client that closed only its sending side still reads.
                Wait::Left => {
                    self.refuse(400, Cause::ClientLeft).await;
                    return Err(NoMore::Refused { is_error: true });
                }
                Wait::Late => {
                    self.refuse(408, Cause::ClientSilent).await;
                    return Err(NoMore::Refused { is_error: false });
                }
                Wait::Stopping => return Err(NoMore::End),
            }
        }
    }

    /// Returns true if the client speaks only HTTP/2: the listener or the rule that changed the mode requires
    /// it, or the TLS handshake agreed on it. A connection that has had a request here speaks HTTP/1,
    /// whatever was agreed.
    fn speaks_h2(&self) -> bool {
        self.requests == 0
            && match self.required_version() {
                Some(version) => version == Version::HTTP_2,
                None => self.client.has_agreed_on_h2(),
            }
    }

    /// Returns the version that the rule `switch-mode` of this stream or its listener requires.
    pub(super) fn required_version(&self) -> Option<Version> {
        self.switched.as_ref().and_then(|switched| switched.version).or(self.listener.version)
    }

    /// Compares the client's first bytes with the preface of HTTP/2. `option disable-h2-upgrade` and
    /// `proto h1` allow only HTTP/1.
    #[inline]
    fn preface(&self) -> Preface {
        if self.requests > 0 {
            return Preface::No;
        }
        let (alone, received) = (self.speaks_h2(), &self.client.received);
        if !alone && received.front().is_none_or(|bytes| !bytes.starts_with(b"P")) {
            return Preface::No;
        }
        self.compare_preface(alone)
    }

    #[cold]
    fn compare_preface(&self, alone: bool) -> Preface {
        let bytes = self.client.received.segments().flat_map(|segment| segment.iter());
        let common = bytes.zip(PREFACE).take_while(|(came, expected)| came == expected).count();
        match common {
            _ if alone => Preface::Whole, // anything else ends the connection
            _ if self.frontend.http.disable_h2_upgrade => Preface::No,
            _ if self.required_version().is_some() => Preface::No,
            _ if common == PREFACE.len() => Preface::Whole,
            _ if common == self.client.received.len() => Preface::Part,
            _ => Preface::No,
        }
    }

    /// Returns what a wait for more of the head would return at once, or `None` if it would have to wait.
    async fn already(&mut self, deadline: Time) -> Option<Wait> {
        let connection = self.client.end.whole().filter(|connection| connection.is_pollable())?;
        let woken = poll_fn(|context| {
            let receive =
                |context: &mut Context<'_>| connection.poll_recv(false, context).unwrap_or(Poll::Pending);
            Poll::Ready(match until(receive, None, self.timer, deadline, context) {
                Poll::Ready(woken) => Some(woken),
                Poll::Pending => None,
            })
        })
        .await?;
        Some(self.woken(woken))
    }

    /// Returns what the idle session keeps of a partial head; `None` if there is no memory. The session must
    /// not find that out later, when no response is possible.
    #[cold]
    fn partial_head(&mut self, parser: &RequestParser, taken: u64, deadline: Time) -> Option<Pooled<More>> {
        let mut more = allocate()?;
        let partial = PARTIAL.alloc_with(|| PartialHead {
            parser: parser.clone(),
            received: std::mem::take(&mut self.client.received),
            taken,
            deadline,
            record: self.record.take(),
        });
        more.partial = Some(partial.ok()?);
        Some(more)
    }

    /// Begins the log record of a request that the session waited for since `waited_from`.
    pub(super) fn begin_record(&mut self, waited_from: Time) {
        if let Some(switched) = &mut self.switched {
            self.record.replace(switched.record.take());
        } else if self.frontend.log.is_some() || self.local.generation.reads_stream_record {
            let now = self.local.here().now();
            let mut record = Record::new(now);
            record.idle = now.since(waited_from);
            if self.requests > 0 {
                self.client.is_new_since(record.date, record.idle);
            } else {
                record.handshake = self.client.handshake();
            }
            self.record.replace(Some(record));
        }
    }

    /// Waits for bytes; with `may_stop` also for the end of the generation. The end does not count if a
    /// successor takes the connection, or if idle connections outlive the end: then the session serves one
    /// more request.
    pub(super) async fn wait(&mut self, deadline: Time, may_stop: bool) -> Wait {
        if let Some(stream) = self.client.end.h2() {
            let (had, received) = (self.client.received.len(), &mut self.client.received);
            let outcome = poll_fn(|context| match stream.poll_receive(context, received, READ_AT_ONCE) {
                Poll::Ready(outcome) => Poll::Ready(if outcome.is_ok() { Wait::Bytes } else { Wait::Left }),
                Poll::Pending => self.timer.poll(deadline, context).map(|()| Wait::Late),
            })
            .await;
            self.receives(self.client.received.len() - had);
            return outcome;
        }
        let outcome = {
            let mut stopping = self.local.stopping.waiter();
            let connection = self.client.end.connection();
            // If the wait may stop, it does not hold bytes of a request.
            let mut receiving = pin!(async {
                if may_stop { connection.recv_within_limit().await } else { connection.recv().await }
            });
            poll_fn(|context| {
                let stays = || {
                    self.frontend.http.outlives_stop
                        || self.local.successor_at(self.frontend, self.listener).is_some()
                        || self.local.keeps_idle()
                };
                let (mut deadline, mut ends) = (deadline, false);
                let stopping = may_stop.then(|| stopping.parts()).and_then(|(event, slot)| {
                    let stays = event.has_happened()
                        && (stays() || {
                            let end = may_begin(self.local, self.since, self.requests);
                            ends = end.is_some_and(|end| end < deadline);
                            deadline = end.unwrap_or(deadline).min(deadline);
                            end.is_some()
                        });
                    event.unless(stays, slot, context)
                });
                until(|context| receiving.as_mut().poll(context), stopping, self.timer, deadline, context)
                    .map(|woken| if ends && matches!(woken, Woken::Late) { Woken::Stopping } else { woken })
            })
            .await
        };
        self.woken(outcome)
    }

    /// Takes in the result of a wait.
    pub(super) fn woken(&mut self, woken: Woken) -> Wait {
        match woken {
            Woken::Bytes(segment) => {
                self.receives(segment.len());
                match self.client.received.push_compact(segment) {
                    Ok(()) => Wait::Bytes,
                    Err(_) => Wait::Left, // without memory the session cannot continue
                }
            }
            Woken::Left => Wait::Left,
            Woken::Late => Wait::Late,
            Woken::Stopping => Wait::Stopping,
        }
    }

    /// Responds to input that is not a request. The session [lingers](Self::linger) afterwards, because
    /// closing a socket with unread bytes would discard the response.
    pub(super) async fn refuse(&mut self, status: u16, cause: Cause) {
        // There is no record before the first byte.
        let null = self.record.borrow().is_none();
        match &self.frontend.log {
            Some(log) if log.plain => self.record.replace(None),
            Some(log) if null && !log.no_null => self.record.replace(Some(Record::silent(
                self.client.peers().accepted,
                self.client.handshake(),
                self.since,
            ))),
            _ => None,
        };
        // As in HAProxy, a proxy in TCP mode logs no such answer.
        let (status_logged, cause) =
            if self.frontend.mode == Mode::Http { (status, cause) } else { (0, Cause::Refused) };
        self.note(|record| {
            record.status = Some(status_logged);
            record.ended = Termination::new(cause, Phase::Request);
        });
        if let Ok(made) = answer::early(&self.frontend.http, status) {
            self.parties().responds(status);
            let framed = Body::Length(made.body.len() as u64);
            let count = |stream: &Self, bytes| stream.frontend.counts.own().sent_early.add(bytes);
            pin!(self.send_answer(made.head, framed, made.body, false, count)).await;
        }
    }

    /// Ends the session behind a [refused](Self::refuse) request.
    pub(super) async fn refused(&mut self, is_error: bool) {
        self.parties().no_request();
        if is_error {
            self.parties().client_error();
        }
        self.log(LogStep::Error);
        self.linger().await;
    }

    /// Ends the current request, whose work has [ended](manylane_lanes::caught) for `cause`: the client gets
    /// a 500, unless part of a response may have been sent.
    #[cold]
    pub(super) async fn after_defect(&mut self, cause: Cause) -> After {
        self.parties().internal_error();
        self.leave();
        let phase = match (self.replied.get(), self.backend) {
            (true, _) => Phase::Data,
            (false, Some(_)) => Phase::Headers,
            (false, None) => Phase::Request,
        };
        self.note(|record| record.ended = Termination::new(cause, phase));
        if self.replied.get() {
            self.client.reset_on_close(); // the client received only a part of a response
            return After::Close;
        }
        if let Ok(made) = answer::early(&self.frontend.http, 500) {
            self.note(|record| record.status = Some(500));
            self.parties().responds(500);
            let framed = Body::Length(made.body.len() as u64);
            self.send_answer(made.head, framed, made.body, false, |_, _| {}).await;
        }
        After::Close
    }

    /// Sends bytes that the proxy made. Returns true if the client took them, each step within `timeout
    /// client`.
    pub(super) async fn send(&self, out: &mut Chain) -> bool {
        let timeouts = self.client_timeouts();
        let sending = pin!(timeouts.down.send(self.local.here(), self.client.end.connection(), out));
        matches!(timeouts.in_time(self.timer, sending).await, Ok(Ok(())))
    }

    /// Like [`send`](Self::send), for the last bytes that the client gets. The session
    /// [lingers](Self::linger) afterwards.
    pub(super) async fn send_last(&mut self, out: &mut Chain) {
        // Other streams continue on the connection.
        let Some(connection) = self.client.end.whole() else { return };
        let timeouts = self.client_timeouts();
        let sending = pin!(timeouts.down.send_last(self.local.here(), connection, out));
        self.lingers = matches!(timeouts.in_time(self.timer, sending).await, Ok(Ok(())));
    }

    /// Reads and drops input for a moment after a last response: closing a socket with unread bytes would
    /// discard the response. The log does not count this time.
    pub(super) async fn linger(&mut self) {
        if !std::mem::take(&mut self.lingers) {
            return;
        }
        let Some(connection) = self.client.end.whole() else { return };
        let reading = async {
            let mut read = 0;
            while read <= LINGERING.0
                && let Ok(Some(segment)) = connection.recv().await
            {
                read += segment.len();
                self.receives(segment.len());
            }
        };
        // After that time the connection closes.
        let _ = self.local.here().timeout(LINGERING.1, reading).await;
    }
}
