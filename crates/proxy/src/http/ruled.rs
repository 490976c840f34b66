//! Runs the rules of a request and of its response: waits for what they need, and sends the responses that
//! they decide on.

use super::answer::{self, Made, NoAnswer};
use super::body::{NoBody, data, phase_of};
use super::body_peek::Incoming;
use super::exchange::{About, After, Asking};
use super::pump::{Broken, Pump};
use super::tries::Failed;
use super::{Session, count_status, edit};
use crate::count::count_in_front;
use crate::flow::NotSent;
use crate::lane::{Begun, Streaming};
use crate::rules::{Answer, EvalPhase, Verdict, Walk, after_response, apply, first_persist};
use crate::scopes::Countable;
use manylane_buf::Chain;
use manylane_config::tree::LogStep;
use manylane_h1::{Body, BodyWriter, Persist, Reader, Request, set_body, set_connection, settle_response};
use manylane_http::{EditError, Head, Known, Method, Version};
use manylane_plan::clock::now;
use manylane_plan::generation::{Action, Backend, End, Persist as Obeyed, Rule, Rules, TimeoutOf};
use manylane_plan::{Cause, Phase, Termination};
use manylane_sync::Arc;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// A response in the form in which it is sent, and whether the connection stays open.
struct Fitted {
    head: Head,
    framed: Body,
    body: Chain,
    keep: bool,
}

/// Most bytes that the proxy reads from a client in a tarpit. The rest waits in the client's system.
const HELD: usize = 1 << 16;

impl Session<'_> {
    /// Begins a request: registers it with the lane's streams, and stores the parts of its head that rules
    /// and the log need later.
    pub(super) fn begin(&mut self, head: &Head) {
        let memory = &self.scopes.memory;
        let generation = &self.local.generation;
        memory.begun.set(now());
        let number = self.local.next_number();
        memory.number.set(number);
        let (frontend, listener) = (self.listener.frontend as u32, self.listener.index as u32);
        let at = self.local.here().now();
        let begun = Begun { number, frontend, listener, source: self.client.source, at };
        self.stream = Some(Streaming::begin(self.local, begun));
        match self.client.end.h2() {
            None => memory.remember(head, generation.process.longest_line),
            Some(stream) => memory.remember_whole(head, stream.scheme(), generation.process.longest_line),
        }
        memory.capture_request(&self.frontend.captures, head);
        if generation.makes_ids_early {
            self.make_id(Some(head));
        }
    }

    /// Makes the unique id, if the frontend has a format for it and this request has no id yet.
    pub(super) fn make_id(&self, head: Option<&Head>) {
        if self.frontend.http.unique_id.is_some() {
            self.eval().make_id(head);
        }
    }

    /// Adds the field of `unique-id-header`.
    pub(super) fn identify(&self, head: &mut Head) -> Result<(), EditError> {
        let http = &self.frontend.http;
        let Some(name) = http.unique_id_header.as_ref().filter(|_| http.unique_id.is_some()) else {
            return Ok(());
        };
        self.make_id(Some(head));
        let slot = self.frontend.captures.request.len() + 1;
        let texts = self.scopes.memory.request.borrow();
        head.add_field(&**name, texts.get(slot).unwrap_or_default())
    }

    /// Evaluates `force-persist` and `ignore-persist`.
    pub(super) fn persist(&self, request: &Request, up: &Pump, asking: &mut Asking, backend: &Backend) {
        let phase = phase_of(request, up, backend);
        let first = first_persist(&backend.rules.persist, &self.eval(), phase);
        asking.forced = first == Some(Obeyed::Force);
        asking.ignored = first == Some(Obeyed::Ignore);
    }

    /// Runs a list of `http-request` rules. Returns `None` if the request continues.
    pub(super) async fn ruled(
        &mut self,
        asking: &Asking,
        request: &mut Request,
        up: &mut Pump,
        backend: Option<&Backend>,
        rules: &[Rule<Action>],
    ) -> Option<After> {
        let mut walk = Walk::request(rules);
        loop {
            let verdict = {
                let phase = EvalPhase { backend, request_data: data(request, up), ..EvalPhase::default() };
                apply(&self.eval(), phase, &mut walk, &mut request.head)
            };
            self.mark();
            match verdict {
                Ok(Verdict::Continue) => break,
                Ok(Verdict::Pause(time)) => {
                    if let Err(cause) = self.unless_ended(pin!(self.local.here().sleep(time))).await {
                        return Some(self.ended(asking, About { backend, head: &request.head }, cause).await);
                    }
                }
                Ok(Verdict::Body { time, least }) => {
                    if let Err(not) = self.await_body(request, up, backend, Some(time), least).await {
                        return Some(self.no_body(asking, About { backend, head: &request.head }, not).await);
                    }
                }
                Ok(Verdict::Hint(mut head)) => {
                    if asking.version >= Version::HTTP_11 {
                        let sent = match set_body(&mut head, Body::None, Body::None) {
                            Ok(()) => self.send_interim(&mut head).await,
                            Err(_) => Ok(Err(NotSent::Memory)),
                        };
                        let about = About { backend, head: &request.head };
                        let length = match sent {
                            Ok(Ok(length)) => length,
                            Ok(Err(_)) => return Some(After::Close),
                            Err(cause @ Cause::ClientSilent) => {
                                return Some(self.no_body(asking, about, NoBody::Left(cause)).await);
                            }
                            Err(cause) => return Some(self.ended(asking, about, cause).await),
                        };
                        self.note(|record| record.down += length);
                        self.count_in_tables(Countable::Bytes { up: 0, down: length });
                        self.frontend.counts.own().bytes_out.add(length);
                        self.listener.counts.own().bytes_out.add(length);
                        if let Some(backend) = backend {
                            backend.counts.own().bytes_out.add(length);
                        }
                    }
                }
                Ok(Verdict::Resolve { section, variable, question }) => {
                    match self.unless_ended(pin!(self.local.look_up(section, question))).await {
                        Ok(None) => {}
                        Ok(Some(address)) => {
                            let phase =
                                EvalPhase { backend, request: Some(&request.head), ..EvalPhase::default() };
                            self.eval().learn(phase, variable, address);
                        }
                        Err(cause) => {
                            return Some(
                                self.ended(asking, About { backend, head: &request.head }, cause).await,
                            );
                        }
                    }
                }
                Ok(Verdict::Log) => self.log_now(LogStep::HttpReq),
                Ok(Verdict::Turn) => self.local.here().yield_now().await,
                Ok(verdict @ (Verdict::Reject | Verdict::Drop(_))) => {
                    self.note(|record| {
                        record.ended = Termination::new(Cause::Refused, Phase::Request);
                        record.request = None; // HAProxy's log lines show -1 here.
                    });
                    count_in_front!(self.frontend, self.listener, requests_denied);
                    match verdict {
                        Verdict::Drop(silence) => self.client.vanish(silence),
                        _ => self.client.swallow(),
                    }
                    return Some(After::Close);
                }
                Ok(Verdict::Bad) => {
                    self.note(|record| record.request = None);
                    let ended = Termination::new(Cause::Refused, Phase::Request);
                    let bodyless = self.ends_soon(up);
                    return Some(
                        self.fail(asking, About { backend, head: &request.head }, 400, ended, bodyless).await,
                    );
                }
                Ok(Verdict::Answer(end, answer)) => {
                    let bodyless = self.ends_soon(up);
                    return Some(
                        self.decided(asking, About { backend, head: &request.head }, end, answer, bodyless)
                            .await,
                    );
                }
                Err(_) => {
                    let ended = Termination::new(Cause::Refused, Phase::Request);
                    let bodyless = self.ends_soon(up);
                    return Some(
                        self.fail(asking, About { backend, head: &request.head }, 500, ended, bodyless).await,
                    );
                }
            }
        }
        self.readdress();
        None
    }

    /// Applies the client's source and destination addresses that rules have set.
    pub(super) fn readdress(&mut self) {
        let memory = &self.scopes.memory;
        if memory.source.get().is_some() || memory.destination.get().is_some() {
            self.client.is_said_to_be(memory.source.get(), memory.destination.get());
        }
    }

    /// Applies the packet marks for the client that rules have set.
    pub(super) fn mark(&self) {
        self.client.mark(self.scopes.memory.client_packets.take());
    }

    /// Sends the response that a rule of the request decided on.
    pub(super) async fn decided(
        &mut self,
        asking: &Asking,
        about: About<'_>,
        end: End,
        answer: Answer,
        bodyless: bool,
    ) -> After {
        let (cause, phase) = match end {
            End::Answered => (Cause::Local, Phase::Request),
            End::Denied => (Cause::Refused, Phase::Request),
            End::Tarpit => (Cause::Refused, Phase::Tarpit),
        };
        self.note(|record| record.ended = Termination::new(cause, phase));
        match end {
            // The frontend does not count responses that rules of a backend make, but it counts requests that
            // they refuse.
            End::Answered if about.backend.is_some_and(|backend| backend.id != self.frontend.id) => {}
            End::Answered => self.frontend.counts.own().intercepted.add(1),
            End::Denied | End::Tarpit => {
                self.count_in_tables(Countable::Error);
                count_in_front!(self.frontend, self.listener, requests_denied);
                if let Some(backend) = about.backend.filter(|backend| backend.id != self.frontend.id) {
                    backend.counts.own().requests_denied.add(1);
                }
            }
        }
        if end == End::Tarpit {
            let begun = self.local.here().now();
            let usual =
                about.backend.map_or(self.frontend.timeouts.tarpit, |backend| backend.timeouts.tarpit);
            let time = self.scopes.memory.timeout(TimeoutOf::Tarpit).get().or(usual);
            let (local, entry) = (self.local, self.entry());
            let ended = local.streams.unless_ended(entry, pin!(self.tarpit(time.unwrap_or_default()))).await;
            let held = self.local.here().now().since(begun);
            self.note(|record| {
                record.request = None; // HAProxy's log lines show -1 here.
                record.queued = Some(held);
                if let Err(cause) = ended {
                    record.ended = Termination::new(cause, Phase::Tarpit);
                }
            });
            if ended.is_err() {
                return self.give(asking, about, answer, false).await;
            }
        }
        self.give(asking, about, answer, bodyless).await
    }

    /// Ends a request that something else ended while a rule waited.
    async fn ended(&mut self, asking: &Asking, about: About<'_>, cause: Cause) -> After {
        self.fail(asking, about, 503, Termination::new(cause, Phase::Request), false).await
    }

    /// Holds the client for `time`, unless its connection fails. A client that closes only its sending side
    /// stays held.
    async fn tarpit(&mut self, time: Duration) {
        let mut sleep = self.local.here().sleep(time);
        let mut ended = false;
        loop {
            let more = {
                let mut receiving = pin!(self.client.end.connection().recv());
                let room = !ended && self.client.received.len() < HELD;
                poll_fn(|context| {
                    if Pin::new(&mut sleep).poll(context).is_ready() {
                        return Poll::Ready(None);
                    }
                    if let Some(stream) = self.client.end.h2() {
                        return stream.poll_gone(context).map(|()| None);
                    }
                    if !room {
                        return Poll::Pending;
                    }
                    receiving.as_mut().poll(context).map(Result::ok)
                })
                .await
            };
            match more {
                Some(Some(segment)) => {
                    self.receives(segment.len());
                    if self.client.received.push_compact(segment).is_err() {
                        return;
                    }
                }
                Some(None) => ended = true,
                None => return,
            }
        }
    }

    /// Keeps a response for `show errors` whose body rules wanted to read and is invalid.
    fn keep_looked_at(&self, broken: &Broken, phase: EvalPhase<'_>) {
        if let (Broken::Framing(found), Some(backend), Some(server)) = (broken, phase.backend, phase.server) {
            self.keep_response(found, backend, server);
        }
    }

    /// Runs a list of `http-response` rules.
    pub(super) async fn response_ruled(
        &self,
        phase: EvalPhase<'_>,
        rules: &Rules,
        head: &mut Head,
        mut incoming: Incoming<'_>,
    ) -> Result<(), Failed> {
        let refused = Termination::new(Cause::Refused, Phase::Headers);
        if rules.reads_data
            && let Err(broken) = incoming.seen.begin(incoming.input)
        {
            self.keep_looked_at(&broken, phase);
            return Err(Failed::Answer(502, refused));
        }
        let mut walk = Walk::response(&rules.response);
        loop {
            let verdict = {
                let phase = EvalPhase { response_data: incoming.seen.data(), ..phase };
                apply(&self.eval(), phase, &mut walk, head)
            };
            self.mark();
            match verdict {
                Ok(Verdict::Continue) => return Ok(()),
                Ok(Verdict::Pause(time)) => self.local.here().sleep(time).await,
                Ok(Verdict::Body { time, least }) => {
                    match self.local.here().timeout(time, incoming.gather(least)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(broken)) => {
                            self.keep_looked_at(&broken, phase);
                            return Err(Failed::Answer(
                                502,
                                Termination::new(Cause::ServerLeft, Phase::Data),
                            ));
                        }
                        Err(_) => {
                            return Err(Failed::Answer(
                                504,
                                Termination::new(Cause::ServerSilent, Phase::Data),
                            ));
                        }
                    }
                }
                Ok(Verdict::Hint(_) | Verdict::Bad | Verdict::Resolve { .. }) => {} // of requests only
                Ok(Verdict::Log) => self.log_now(LogStep::HttpRes),
                Ok(Verdict::Turn) => self.local.here().yield_now().await,
                Ok(verdict @ (Verdict::Reject | Verdict::Drop(_))) => {
                    let dropped = matches!(verdict, Verdict::Drop(_));
                    if let Verdict::Drop(silence) = verdict {
                        self.client.vanish(silence);
                    }
                    // HAProxy's log lines attribute a drop to the request, whatever message the rule saw.
                    let phase = if dropped { Phase::Request } else { Phase::Headers };
                    self.note(|record| {
                        record.ended = Termination::new(Cause::Refused, phase);
                        record.response = record.response.filter(|_| !dropped);
                    });
                    return Err(Failed::Closed);
                }
                Ok(Verdict::Answer(end, answer)) => return Err(Failed::Ruled(end, answer)),
                Err(_) => return Err(Failed::Answer(500, refused)),
            }
        }
    }

    /// Runs the `http-after-response` rules.
    pub(super) fn afterwards<'r>(
        &self,
        phase: EvalPhase<'_>,
        rules: impl IntoIterator<Item = &'r Arc<Rules>>,
        head: &mut Head,
    ) -> Result<(), EditError> {
        let mut lists = rules
            .into_iter()
            .map(|rules| &rules.after_response[..])
            .filter(|list| !list.is_empty())
            .peekable();
        if lists.peek().is_none() {
            return Ok(());
        }
        self.scopes.begin_response();
        after_response(&self.eval(), phase, lists, head, &|| self.log_now(LogStep::HttpAfterRes))
    }

    /// Responds in place of a server that failed, or to a request that failed.
    pub(super) async fn fail(
        &mut self,
        asking: &Asking,
        about: About<'_>,
        status: u16,
        ended: Termination,
        bodyless: bool,
    ) -> After {
        self.note(|record| record.ended = ended);
        // In the phase of the headers, a refusal is about the response.
        let was_response = ended.cause == Cause::Refused && ended.phase == Phase::Headers;
        if matches!(ended.cause, Cause::ClientLeft | Cause::ClientSilent | Cause::Refused) && !was_response {
            count_in_front!(self.frontend, self.listener, request_errors);
        }
        if status == 500 {
            count_in_front!(self.frontend, self.listener, internal_errors);
            if let Some(backend) = about.backend {
                backend.counts.own().internal_errors.add(1);
            }
        }
        self.answer(asking, about, status, bodyless).await
    }

    /// `redir`: redirects the client to the server.
    pub(super) async fn redirect(
        &mut self,
        asking: &Asking,
        about: About<'_>,
        answer: Answer,
        ended: Termination,
        bodyless: bool,
    ) -> After {
        self.note(|record| record.ended = ended);
        self.give(asking, about, answer, bodyless).await
    }

    /// Sends a response that the proxy makes.
    pub(super) async fn answer(
        &mut self,
        asking: &Asking,
        about: About<'_>,
        status: u16,
        bodyless: bool,
    ) -> After {
        self.give(asking, about, Answer::Usual(status), bodyless).await
    }

    /// Sends a response that a rule or the proxy decided on.
    pub(super) async fn give(
        &mut self,
        asking: &Asking,
        about: About<'_>,
        mut answer: Answer,
        bodyless: bool,
    ) -> After {
        if let Answer::Metrics(query) = &answer {
            let generation = &self.local.generation;
            let page = match (&generation.pages, self.local.begin_page()) {
                (Some(pages), Some(served)) => pages.metrics(generation, query).map(|page| (served, page)),
                _ => Err(503),
            };
            match page {
                Ok(page) => {
                    self.note(|record| record.serves(b"<PROMEX>"));
                    return self.serve_page(asking, about, page, bodyless).await;
                }
                Err(status) => answer = Answer::Usual(status),
            }
        }
        let mut status = 0;
        let made = self.fitted(asking, about, answer, bodyless, &mut status);
        match made {
            Ok(fitted) => self.send_fitted(about.backend, status, fitted).await,
            Err(NoAnswer) => {
                if status > 0 {
                    self.note(|record| record.status = Some(status));
                }
                After::Close
            }
        }
    }

    /// Makes the response in the form in which it is sent, and decides whether the connection stays open.
    fn fitted(
        &self,
        asking: &Asking,
        about: About<'_>,
        answer: Answer,
        bodyless: bool,
        status: &mut u16,
    ) -> Result<Fitted, NoAnswer> {
        let frontend = self.frontend;
        let eval = self.eval();
        let backend = about.backend;
        let server = backend.zip(asking.server.get()).map(|(backend, index)| &*backend.servers[index.get()]);
        let request = Some(about.head).filter(|_| !asking.gone.get());
        let phase = EvalPhase { request, backend, server, ..EvalPhase::default() };
        let usual = |code: u16| match backend {
            Some(backend) => answer::usual(&[&backend.http, &frontend.http], Some((&eval, phase)), code),
            None => answer::usual(&[&frontend.http], Some((&eval, phase)), code),
        };
        if let Answer::Usual(code) | Answer::Challenge(code, _) | Answer::Whole(code, _) = &answer {
            *status = *code;
        }
        let Made { mut head, said, mut body } = match answer {
            Answer::Usual(code) => usual(code)?,
            Answer::Challenge(code, challenge) => {
                let mut made = usual(code)?;
                let name = if code == 407 { Known::PROXY_AUTHENTICATE } else { Known::WWW_AUTHENTICATE };
                made.head.add_field(name, &challenge).map_err(|_| NoAnswer)?;
                made
            }
            Answer::Whole(_, message) => answer::whole(message)?,
            Answer::Own(head, body) => answer::sized(*head, body)?,
            Answer::Metrics(_) => return Err(NoAnswer), // the page is sent in parts
        };
        let made = head.status();
        let memory = &self.scopes.memory;
        memory.response.set(Some((head.version(), head.status())));
        let own = &self.frontend.rules;
        let of_backend = backend.map(|backend| &backend.rules).filter(|rules| !Arc::ptr_eq(rules, own));
        // Lines of these rules tell the status that it has before them.
        let mut noted = None;
        self.note(|record| noted = record.status.replace(made));
        let edited = self.afterwards(phase, of_backend.into_iter().chain([own]), &mut head);
        self.note(|record| record.status = noted);
        edited.map_err(|_| NoAnswer)?;
        // A redirection in place of an error is logged as that error, unless a rule says otherwise.
        if *status == 0 || head.status() != made {
            *status = head.status();
        }
        // A client that asked for a tunnel takes a success for the start of the tunnel, and may have sent
        // tunnel data already, which is not a request. With 407 the client repeats its request with a
        // password.
        let tunnel = asking.method == Method::Connect && head.status() != 407;
        // No response follows one whose status a rule set to 1xx.
        let keep = self.keeps(asking)
            && bodyless
            && !tunnel
            && !matches!(*status, 400 | 408)
            && head.status() >= 200;
        let persist = if keep { Persist::KeepAlive } else { Persist::Close };
        set_connection(&mut head, said, persist)
            .and_then(|()| edit::keep_alive(&mut head, asking.version, persist))
            .map_err(|_| NoAnswer)?;
        let reader = Reader { version: asking.version, method: asking.method };
        let framed =
            settle_response(&mut head, Body::Length(body.len() as u64), reader).map_err(|_| NoAnswer)?;
        if framed == Body::None {
            body.clear();
        }
        Ok(Fitted { head, framed, body, keep })
    }

    async fn send_fitted(&mut self, backend: Option<&Backend>, status: u16, fitted: Fitted) -> After {
        let Fitted { head, framed, body, keep } = fitted;
        self.note(|record| record.status = Some(status));
        count_status!(self.frontend.counts.own(), status);
        if let Some(backend) = backend {
            count_status!(backend.counts.own(), status);
        }
        self.replied.set(true);
        let count = |session: &Self, bytes| {
            session.note(|record| record.down += bytes);
            session.count_in_tables(Countable::Bytes { up: 0, down: bytes });
            if let Some(backend) = backend {
                backend.counts.own().bytes_out.add(bytes);
            }
            session.frontend.counts.own().bytes_out.add(bytes);
            session.listener.counts.own().bytes_out.add(bytes);
        };
        let sent = self.send_answer(head, framed, body, keep, count).await;
        if sent && keep { After::KeepAlive } else { After::Close }
    }

    /// Sends a complete response that the proxy made; with `keep` false it is the last one. Returns true if
    /// the client took it in time and the connection stays open. Calls `count` with the number of bytes
    /// before they are sent, so that a client that has read the response finds it counted.
    pub(super) async fn send_answer(
        &mut self,
        mut head: Head,
        framed: Body,
        mut body: Chain,
        keep: bool,
        count: impl FnOnce(&Self, u64),
    ) -> bool {
        let spellings = self.local.generation.spellings.as_ref().filter(|_| self.frontend.http.spells);
        let mut out = Chain::new();
        let Ok(apart) = self.client.end.send_head(&mut head, spellings, body.is_empty(), &mut out) else {
            return false;
        };
        if let Some(stream) = self.client.end.h2() {
            count(self, apart + body.len() as u64);
            return body.is_empty() || self.in_time(stream.send(&mut body, true, || ())).await;
        }
        let mut writer = BodyWriter::new(framed);
        if writer.write(&mut body, &mut out).and_then(|()| writer.end(None, &mut out)).is_err() {
            return false;
        }
        count(self, out.len() as u64);
        if !keep {
            self.send_last(&mut out).await;
            return false;
        }
        self.send(&mut out).await
    }

    /// Waits until `sending` is done. Returns true if it succeeded within `timeout client`.
    pub(super) async fn in_time<E>(&self, sending: impl Future<Output = Result<(), E>>) -> bool {
        match self.frontend.timeouts.client {
            None => sending.await.is_ok(),
            Some(time) => matches!(self.local.here().timeout(time, sending).await, Ok(Ok(()))),
        }
    }
}
