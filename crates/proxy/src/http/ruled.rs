//! Runs the rules of a request and of its response: waits for what they need, and sends the responses that
//! they decide on.

use super::body::{NoBody, data, phase_of};
use super::body_peek::Incoming;
use super::exchange::Exchange;
use super::pipeline::After;
use super::pump::{Broken, Pump};
use super::stream::Stream;
use super::tries::Failed;
use crate::flow::NotSent;
use crate::server::Tried;
use manylane_config::table::Ruleset;
use manylane_config::tree::LogStep;
use manylane_h1::{Body, Request, set_body};
use manylane_http::{EditError, Head, Version};
use manylane_lanes::{StreamStart, StreamText, Streaming};
use manylane_plan::clock::now;
use manylane_plan::generation::{Backend, DropMode, Persist as Obeyed, Rule, Rules, TimeoutOf};
use manylane_plan::{Cause, Phase, Termination};
use manylane_rules::{EvalPhase, Verdict, Walk, after_response, apply, first_persist};
use manylane_sched::Time;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// The field that tells a server of early data (RFC 8470).
pub(super) const EARLY_DATA: &[u8] = b"Early-Data";

impl<'s> Stream<'s> {
    /// Begins a request: registers it with the lane's streams, and stores the parts of its head that rules
    /// and the log need later.
    pub(super) fn begin(&mut self, head: &Head) {
        let memory = &self.scopes.memory;
        let generation = &self.local.generation;
        self.streaming = self.switched.as_mut().and_then(|switched| switched.streaming.take());
        if self.streaming.is_none() {
            memory.begun.set(now());
            let number = self.local.next_number();
            memory.number.set(number);
            let (frontend, listener) = (self.listener.frontend as u32, self.listener.index as u32);
            let at = self.local.here().now();
            let begun = StreamStart { number, frontend, listener, source: self.client.source, at };
            self.streaming = Some(Streaming::begin(self.local, begun));
        }
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
        let texts = self.scopes.memory.texts.borrow();
        head.add_field(&**name, texts.get(StreamText::UniqueId as usize).unwrap_or_default())
    }

    /// Evaluates `force-persist` and `ignore-persist`.
    pub(super) fn persist(&mut self, request: &Request, up: &Pump, backend: &Backend) {
        let phase = phase_of(request, up, backend);
        let first = first_persist(&backend.rules.persist, &self.eval(), phase);
        self.persistence.forced = first == Some(Obeyed::Force);
        self.persistence.ignored = first == Some(Obeyed::Ignore);
    }

    /// Runs rules of `http-request` or `tcp-request content`. Returns `None` if the request continues.
    pub(super) async fn ruled(
        &mut self,
        request: &mut Request,
        up: &mut Pump,
        list: Ruleset,
        rules: &[Rule],
    ) -> Option<After> {
        let mut walk = Walk::new(list, rules);
        loop {
            // What has arrived of the body.
            let unread = self.client.received.len() as u64;
            let unread = if up.is_done() { 0 } else { unread.min(up.left().unwrap_or(unread)) };
            let arrived = up.data().len() + unread as usize;
            request.head.set_room(self.local.generation.process.room_beside(arrived, self.came as usize));
            let outcome = {
                let (backend, request_data) = (self.backend, data(request, up));
                let phase = EvalPhase { backend, request_data, ..EvalPhase::default() };
                apply(&self.eval(), phase, &mut walk, Some(&mut request.head))
            };
            self.mark();
            match outcome {
                Verdict::Accept => break,
                Verdict::Pause(time) => {
                    if let Err(cause) = self.unless_ended(pin!(self.local.here().sleep(time))).await {
                        return Some(self.ended(&request.head, cause).await);
                    }
                }
                Verdict::Body { time, least } => {
                    if let Err(not) = self.await_body(request, up, Some(time), least).await {
                        return Some(self.no_body(&request.head, not).await);
                    }
                }
                Verdict::Handshake => {
                    if let Err(not) = self.await_handshake().await {
                        return Some(self.no_body(&request.head, not).await);
                    }
                    self.untell_early(&mut request.head);
                }
                Verdict::Hint(mut head) => {
                    if self.version >= Version::HTTP_11 {
                        let sent = match set_body(&mut head, Body::None, Body::None) {
                            Ok(()) => self.send_interim(&mut head).await,
                            Err(_) => Ok(Err(NotSent::Memory)),
                        };
                        let head = &request.head;
                        let length = match sent {
                            Ok(Ok(length)) => length,
                            Ok(Err(_)) => return Some(After::Close),
                            Err(cause @ Cause::ClientSilent) => {
                                return Some(self.no_body(head, NoBody::Left(cause)).await);
                            }
                            Err(cause) => return Some(self.ended(head, cause).await),
                        };
                        self.count_own(length);
                    }
                }
                Verdict::Resolve { section, variable, question } => {
                    match self.unless_ended(pin!(self.local.look_up(section, question))).await {
                        Ok(None) => {}
                        Ok(Some(address)) => {
                            self.eval().learn(self.phase(&request.head), variable, address);
                        }
                        Err(cause) if list == Ruleset::TcpRequestContent => {
                            self.note(|record| record.ended = Termination::new(cause, Phase::Request));
                            return Some(After::Close);
                        }
                        Err(cause) => {
                            return Some(self.ended(&request.head, cause).await);
                        }
                    }
                }
                Verdict::Log if list == Ruleset::TcpRequestContent => self.log_now(LogStep::TcpReqCont),
                Verdict::Log => self.log_now(LogStep::HttpReq),
                Verdict::Turn => self.local.here().yield_now().await,
                Verdict::Reject => return Some(self.closed(list, None)),
                Verdict::Drop(silence) => return Some(self.closed(list, Some(silence))),
                // The connection speaks HTTP already.
                Verdict::SwitchMode(_) => break,
                // No action of these lists decides so.
                Verdict::Close | Verdict::Expect(_) | Verdict::Wait => {}
                Verdict::Bad => {
                    self.note(|record| record.request = None);
                    let ended = Termination::new(Cause::Refused, Phase::Request);
                    let bodyless = self.ends_soon(up);
                    return Some(self.fail(&request.head, 400, ended, bodyless).await);
                }
                Verdict::Answer(end, answer) => {
                    let bodyless = self.ends_soon(up);
                    return Some(self.decided(&request.head, end, answer, bodyless).await);
                }
                Verdict::Failed(_) => {
                    let ended = Termination::new(Cause::Refused, Phase::Request);
                    let bodyless = self.ends_soon(up);
                    return Some(self.fail(&request.head, 500, ended, bodyless).await);
                }
            }
        }
        // Rules alone are held to what the body leaves.
        request.head.set_room(self.local.generation.process.bufsize);
        self.readdress();
        None
    }

    /// Ends a request without a response, as rules of `list` decide.
    fn closed(&mut self, list: Ruleset, silence: Option<DropMode>) -> After {
        let of_contents = list == Ruleset::TcpRequestContent;
        self.note(|record| {
            record.ended = Termination::new(Cause::Refused, Phase::Request);
            record.request = None; // HAProxy's log lines show -1 here.
            if of_contents && self.backend.is_none() {
                self.scopes.memory.forget(); // the request was refused before it counted as one
            }
        });
        match silence {
            Some(silence) => {
                self.parties().silently_dropped();
                self.client.vanish(silence);
            }
            None if of_contents => {
                self.parties().contents_rejected();
                // The data of a client of HTTP/1 stays unread, so that closing the socket sends a reset.
                if self.client.end.h2().is_some() {
                    self.client.swallow();
                }
            }
            None => {
                self.parties().request_rejected();
                self.client.swallow();
            }
        }
        self.parties().unanswered();
        After::Close
    }

    /// Waits until the client has completed the TLS handshake behind its early data, within `timeout client`.
    pub(super) async fn await_handshake(&self) -> Result<(), NoBody> {
        let Some(tls) = self.client.end.connection().tls() else { return Ok(()) };
        let time = self.scopes.memory.timeout(TimeoutOf::Client).get().or(self.frontend.timeouts.client);
        let deadline = time.map(|time| self.local.here().now() + time);
        let mut completing = pin!(async {
            match self.client.end.h2() {
                // The task of the connection receives.
                Some(_) => {
                    poll_fn(|context| tls.poll_complete(context)).await;
                    Ok(())
                }
                None => tls.complete().await,
            }
        });
        let waiting = poll_fn(|context| match completing.as_mut().poll(context) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(_)) => Poll::Ready(Err(NoBody::Left(Cause::ClientLeft))),
            Poll::Pending => {
                self.timer.poll(deadline.unwrap_or(Time::MAX), context).map(|()| Err(NoBody::Late))
            }
        });
        self.unless_ended(pin!(waiting)).await.map_err(NoBody::Ended)?
    }

    /// Returns true while the client's TLS handshake is incomplete behind its early data.
    pub(super) fn is_early(&self) -> bool {
        self.client.tls().is_some_and(|tls| tls.early.get())
    }

    /// Tells servers, and rules of a backend, of a request that is only as certain as early data (RFC 8470).
    ///
    /// # Errors
    /// The head has no room.
    pub(super) fn tell_early(&mut self, head: &mut Head) -> Result<(), EditError> {
        if self.is_early() && !head.has(EARLY_DATA) {
            head.add_field(EARLY_DATA, b"1")?;
            self.tells_early = true;
        }
        Ok(())
    }

    /// Takes back what [`tell_early`](Self::tell_early) has announced, if the handshake is complete by now.
    pub(super) fn untell_early(&mut self, head: &mut Head) {
        if self.tells_early && !self.is_early() {
            self.tells_early = false;
            head.remove_fields(EARLY_DATA);
        }
    }

    /// Returns true if the request may be sent to a server as early data, of which somebody may make copies:
    /// the client has sent it so itself, or it changes nothing and `retry-on 0rtt-rejected` allows it.
    pub(super) fn may_send_early(&self, request: &Request, backend: &Backend, tried: &Tried) -> bool {
        // A client that sent nothing early must not get the answer 425 (RFC 8470, 5.2).
        let repeats = tried.most(backend) > 0 && !self.scopes.memory.no_repetition.get();
        let by_rule = backend.http.retry_on.early && request.head.method_kind().is_safe() && repeats;
        tried.retries == 0
            && matches!(request.body, Body::None | Body::Length(0))
            && !request.connection.upgrade
            && (self.is_early() || by_rule)
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

    /// Runs the `http-after-response` rules of the backend, if there is one, and of the frontend.
    pub(super) fn afterwards(&self, phase: EvalPhase<'_>, head: &mut Head) -> Result<(), EditError> {
        let mut lists =
            self.lists().map(|rules| &rules.after_response[..]).filter(|list| !list.is_empty()).peekable();
        if lists.peek().is_none() {
            return Ok(());
        }
        self.scopes.begin_response();
        after_response(&self.eval(), phase, lists, head, &|| self.log_now(LogStep::HttpAfterRes))
    }

    /// Returns the lists of rules for a response: of the backend, if there is one, and of the frontend.
    pub(super) fn lists(&self) -> impl Iterator<Item = &'s Rules> + Clone + use<'s> {
        let own = &*self.frontend.rules;
        let of_backend = self.backend.map(|backend| &*backend.rules);
        of_backend.filter(|rules| !std::ptr::eq(*rules, own)).into_iter().chain([own])
    }
}

#[allow(clippy::result_large_err)] // in a box, a rule's response would be an allocation
impl Exchange<'_> {
    /// Keeps a response for `show errors` whose body rules wanted to read and is invalid.
    fn keep_invalid(&self, broken: &Broken) {
        if let Broken::Framing(found) = broken {
            self.keep_response(found);
        }
    }

    /// Runs a list of `http-response` rules.
    pub(super) async fn response_ruled(
        &self,
        rules: &Rules,
        head: &mut Head,
        mut incoming: Incoming<'_>,
    ) -> Result<(), Failed> {
        let refused = Termination::new(Cause::Refused, Phase::Headers);
        if rules.reads_data
            && let Err(broken) = incoming.peek.begin(incoming.input)
        {
            self.keep_invalid(&broken);
            return Err(Failed::Answer(502, refused));
        }
        let process = &self.stream.local.generation.process;
        let size = head.size();
        let mut walk = Walk::new(Ruleset::HttpResponse, &rules.response);
        loop {
            head.set_room(process.room_beside(incoming.input.len(), size));
            let outcome = {
                let phase = EvalPhase { response_data: incoming.peek.data(), ..self.phase() };
                apply(&self.stream.eval(), phase, &mut walk, Some(head))
            };
            self.stream.mark();
            match outcome {
                Verdict::Accept => {
                    head.set_room(process.bufsize);
                    return Ok(());
                }
                Verdict::Pause(time) => self.stream.local.here().sleep(time).await,
                Verdict::Body { time, least } => {
                    match self.stream.local.here().timeout(time, incoming.gather(least)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(broken)) => {
                            self.keep_invalid(&broken);
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
                Verdict::Log => self.stream.log_now(LogStep::HttpRes),
                Verdict::Turn => self.stream.local.here().yield_now().await,
                Verdict::Drop(silence) => {
                    self.parties().silently_dropped();
                    self.stream.client.vanish(silence);
                    self.stream.note(|record| {
                        // HAProxy's log lines attribute a drop to the request, whatever message the rule saw.
                        record.ended = Termination::new(Cause::Refused, Phase::Request);
                        record.response = None;
                    });
                    return Err(Failed::Closed);
                }
                Verdict::Answer(end, answer) => return Err(Failed::Ruled(end, answer)),
                Verdict::Failed(_) => return Err(Failed::Answer(500, refused)),
                // No action of `http-response` decides so.
                _ => {}
            }
        }
    }
}
