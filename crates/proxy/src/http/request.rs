//! The next request of a client, waited for with the patience that is due.

use super::exchange::After;
use super::idle_session::{Woken, may_begin, place, until};
use super::{Session, answer, count_status};
use crate::counts::count_in_front;
use crate::generation::Frontend;
use crate::invalid::Found;
use crate::log::Record;
use crate::termination::{Cause, Phase, Termination};
use manylane_buf::Chain;
use manylane_h1::{Body, Request, RequestParser};
use manylane_io::READ_AT_ONCE;
use manylane_mux::h2::PREFACE;
use manylane_pool::Pool;
use manylane_sched::Time;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// No request comes any more.
pub(super) enum NoMore {
    /// Something came that is none; it was answered. Whether that is an error of the client is for tables.
    Refused { is_error: bool },
    /// Nothing came: the client left, or was idle for too long, or the generation ends.
    End,
    /// The client begins with the preface of HTTP/2: it speaks that from here on.
    Http2,
    /// A part of its head came, which is in the session's [`PartialHead`]: the session rests until more
    /// comes.
    Partial,
}

/// What a session that rests keeps of a head that is not complete.
#[derive(Debug)]
pub(super) struct PartialHead {
    parser: RequestParser,
    received: Chain,
    /// Bytes that the parser has taken.
    taken: u64,
    /// When all of it has to be there.
    pub(super) deadline: Time,
    record: Option<Record>,
}

manylane_sync::lazy_static! {
    static PARTIAL: Pool<PartialHead> =
        Pool::new("partial head").expect("the size is a constant below the bound");
}

/// What the first bytes of a client are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preface {
    No,
    Part,
    Whole,
}

/// How waiting ended.
pub(super) enum Wait {
    Bytes,
    Left,
    Late,
    Stopping,
}

/// What is read of a client that was refused, so that it gets to read why: bytes, and time.
const LINGERING: (usize, Duration) = (1 << 20, Duration::from_secs(2));

/// How long a session may wait for a request, after so many, and how long for the whole of it.
pub(super) fn timeouts(frontend: &Frontend, requests: u64) -> (Option<Duration>, Option<Duration>) {
    let timeouts = &frontend.timeouts;
    let whole = timeouts.request.or(timeouts.client);
    (if requests == 0 { whole } else { timeouts.keep_alive.or(whole) }, whole)
}

/// Whether a client that goes before its next request, after so many, is told nothing, and nobody of it.
pub(super) fn ends_in_silence(frontend: &Frontend, requests: u64) -> bool {
    requests > 0 || frontend.http.ignore_probes
}

impl Session<'_> {
    /// Waits for the next request. `woken` is how waiting ended, where it did already.
    pub(super) async fn next_request(&mut self, mut woken: Option<Wait>) -> Result<Request, NoMore> {
        let here = self.local.here();
        let mut parser = RequestParser::new(self.frontend.http.request_limits);
        let (idle, whole) = timeouts(self.frontend, self.requests);
        let waited_from = self.since;
        let after = |since: Time, time: Option<Duration>| time.map_or(Time::MAX, |time| since + time);
        let mut came = 0;
        // The record of a part of a head is kept with it.
        let mut begun = woken.is_none() && self.partial.is_none() && !self.client.received.is_empty();
        let mut deadline = after(waited_from, if begun { whole } else { idle });
        if begun {
            self.begin_record(waited_from);
        }
        if let Some(partial) = self.partial.take() {
            begun = true;
            woken = woken.filter(|wait| !matches!(wait, Wait::Bytes)); // they are with the others
            PartialHead { parser, taken: came, deadline, .. } = partial.into_inner();
        }
        loop {
            let preface = if begun { self.preface() } else { Preface::No };
            if preface == Preface::Whole {
                self.record.take(); // its streams have theirs
                return Err(NoMore::Http2);
            }
            if begun && preface == Preface::No {
                let there = self.client.received.len();
                let parsed = parser.parse(&mut self.client.received);
                came += (there - self.client.received.len()) as u64;
                match parsed {
                    Ok(Some(mut request)) => {
                        if let Some(relaxed) = parser.take_relaxed() {
                            self.accept_relaxed_request(&relaxed, None);
                        }
                        if request.connection.h2c {
                            request = match self.take_offer(request) {
                                Some(request) => request,
                                None if self.upgraded.is_some() => {
                                    self.record.take(); // its stream has its own
                                    return Err(NoMore::Http2);
                                }
                                None => return Err(NoMore::End),
                            };
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
                None if begun && self.may_wait_at_rest() => {
                    match self.already(deadline).await {
                        Some(wait) => wait,
                        None if self.keep_partial_head(&parser, came, deadline) => {
                            return Err(NoMore::Partial);
                        }
                        None => {
                            self.refuse(500, Cause::Resource).await; // there is no memory to wait
                            return Err(NoMore::Refused { is_error: false });
                        }
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
                // Who speaks HTTP/2 does not understand an answer of HTTP/1.
                Wait::Left | Wait::Late if self.speaks_h2() => return Err(NoMore::End),
                Wait::Left | Wait::Late if !begun && ends_in_silence(self.frontend, self.requests) => {
                    return Err(NoMore::End);
                }
                // A client that only ended its own side still reads.
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

    /// Whether the client speaks HTTP/2 and nothing else: its listener does, or TLS has agreed on it.
    fn speaks_h2(&self) -> bool {
        self.listener.http2 || self.client.has_agreed_on_h2()
    }

    /// Whether the client's first bytes are the preface of HTTP/2. `option disable-h2-upgrade` lets a client
    /// begin HTTP/1 only.
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
            _ if alone => Preface::Whole, // what is none ends the connection
            _ if self.frontend.http.disable_h2_upgrade => Preface::No,
            _ if common == PREFACE.len() => Preface::Whole,
            _ if common == self.client.received.len() => Preface::Part,
            _ => Preface::No,
        }
    }

    /// What waiting for more of a head brings without waiting.
    async fn already(&mut self, deadline: Time) -> Option<Wait> {
        let connection = self.client.end.whole().filter(|connection| connection.is_pollable())?;
        let woken = poll_fn(|context| {
            let receive =
                |context: &mut Context<'_>| connection.poll_recv(false, context).unwrap_or(Poll::Pending);
            Poll::Ready(match until(receive, None, &self.timer, deadline, context) {
                Poll::Ready(woken) => Some(woken),
                Poll::Pending => None,
            })
        })
        .await?;
        Some(self.woken(woken))
    }

    /// Makes the session ready to idle although a part of a head came. False when there is no memory: so
    /// `into_idle` does not fail behind this, where nobody would be told.
    #[cold]
    fn keep_partial_head(&mut self, parser: &RequestParser, taken: u64, deadline: Time) -> bool {
        let Some(place) = place() else { return false };
        let partial = PARTIAL.alloc_with(|| PartialHead {
            parser: parser.clone(),
            received: std::mem::take(&mut self.client.received),
            taken,
            deadline,
            record: self.record.take(),
        });
        (self.partial, self.place) = (partial.ok(), Some(place));
        self.partial.is_some()
    }

    /// Goes on where [`keep_partial_head`](Self::keep_partial_head) ended, if it was called.
    pub(super) fn regain_partial_head(&mut self) {
        if let Some(partial) = &mut self.partial {
            self.client.received = std::mem::take(&mut partial.received);
            self.record.replace(partial.record.take());
        }
    }

    /// A request begins, after nothing came since `waited_from`.
    pub(super) fn begin_record(&mut self, waited_from: Time) {
        if self.frontend.log.is_some() || self.local.generation.looks_at_course {
            let now = self.local.here().now();
            let mut record = Record::new(now);
            record.idle = now.since(waited_from);
            if self.requests > 0 {
                self.client.is_new_since(record.date, record.idle);
            } else {
                record.handshake = self.handshake();
            }
            self.record.replace(Some(record));
        }
    }

    /// How long another proxy's word was waited for.
    fn handshake(&self) -> Duration {
        self.client.handshake()
    }

    /// Waits for bytes; where it `may_stop`, also for the end of the generation. But where another one goes
    /// on, or idle connections outlive the end, one more request is served.
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
            // Where it may stop, nothing of a request is held.
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
                let stopping = may_stop.then(|| stopping.place()).and_then(|(event, place)| {
                    let stays = event.has_happened()
                        && (stays() || {
                            let end = may_begin(self.local, self.since, self.requests);
                            ends = end.is_some_and(|end| end < deadline);
                            deadline = end.unwrap_or(deadline).min(deadline);
                            end.is_some()
                        });
                    event.unless(stays, place, context)
                });
                until(|context| receiving.as_mut().poll(context), stopping, &self.timer, deadline, context)
                    .map(|woken| if ends && matches!(woken, Woken::Late) { Woken::Stopping } else { woken })
            })
            .await
        };
        self.woken(outcome)
    }

    /// Takes in what was waited for.
    pub(super) fn woken(&mut self, woken: Woken) -> Wait {
        match woken {
            Woken::Bytes(segment) => {
                self.receives(segment.len());
                match self.client.received.push_compact(segment) {
                    Ok(()) => Wait::Bytes,
                    Err(_) => Wait::Left, // no memory: nothing can go on
                }
            }
            Woken::Left => Wait::Left,
            Woken::Late => Wait::Late,
            Woken::Stopping => Wait::Stopping,
        }
    }

    /// Answers something that is no request, and reads on for a moment: a connection that is closed with
    /// bytes unread takes the answer with it.
    pub(super) async fn refuse(&mut self, status: u16, cause: Cause) {
        // Without a byte there is no record yet.
        let null = self.record.borrow().is_none();
        match &self.frontend.log {
            Some(log) if log.plain => self.record.replace(None),
            Some(log) if null && !log.no_null => self.record.replace(Some(Record::silent(
                self.client.peers().accepted,
                self.handshake(),
                self.since,
            ))),
            _ => None,
        };
        self.note(|record| {
            record.status = Some(status);
            record.ended = Termination::new(cause, Phase::Request);
        });
        if let Ok(made) = answer::early(&self.frontend.http, status) {
            let counts = self.frontend.counts.own();
            count_status!(counts, status);
            let framed = Body::Length(made.body.len() as u64);
            let count = |_: &Self, bytes| counts.sent_early.add(bytes);
            pin!(self.send_answer(made.head, framed, made.body, false, count)).await;
        }
    }

    /// A defect has ended the request at work: the client gets 500, unless something was sent to it already.
    #[cold]
    pub(super) async fn after_panic(&mut self) -> After {
        let backend = self.entered.get().map(|(number, _)| &self.local.generation.backends[number]);
        if let Some(backend) = backend {
            backend.counts.own().internal_errors.add(1);
            self.leave(backend);
        }
        count_in_front!(self.frontend, self.listener, internal_errors);
        let phase = match (self.replied.get(), backend) {
            (true, _) => Phase::Data,
            (false, Some(_)) => Phase::Headers,
            (false, None) => Phase::Request,
        };
        self.note(|record| record.ended = Termination::new(Cause::Internal, phase));
        if self.replied.get() {
            self.client.reset_on_close(); // what was sent is no whole response
            return After::Close;
        }
        if let Ok(made) = answer::early(&self.frontend.http, 500) {
            self.note(|record| record.status = Some(500));
            count_status!(self.frontend.counts.own(), 500);
            if let Some(backend) = backend {
                count_status!(backend.counts.own(), 500);
            }
            let framed = Body::Length(made.body.len() as u64);
            self.send_answer(made.head, framed, made.body, false, |_, _| {}).await;
        }
        After::Close
    }

    /// Sends something of the proxy's own. Whether the client took it, each step in `timeout client`.
    pub(super) async fn send(&self, out: &mut Chain) -> bool {
        let timeouts = self.client_timeouts();
        let sending = pin!(timeouts.down.send(self.local.here(), self.client.end.connection(), out));
        matches!(timeouts.in_time(&self.timer, sending).await, Ok(Ok(())))
    }

    /// The same of the last that the client gets. The session [lingers](Self::linger) afterwards.
    pub(super) async fn send_last(&mut self, out: &mut Chain) {
        let Some(connection) = self.client.end.whole() else { return }; // others go on with it
        let timeouts = self.client_timeouts();
        let sending = pin!(timeouts.down.send_last(self.local.here(), connection, out));
        self.lingers = matches!(timeouts.in_time(&self.timer, sending).await, Ok(Ok(())));
    }

    /// Reads on for a moment, if the client is to read something last: a connection that is closed with bytes
    /// unread takes that with it. To the log the request is over before.
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
        let _ = self.local.here().timeout(LINGERING.1, reading).await; // then it had its time
    }
}
