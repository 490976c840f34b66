//! Sends one request to a server that was reached and forwards its response.

use super::body_peek::{BodyPeek, Incoming};
use super::pipeline::After;
use super::pump::{Broken, Ends, Kept, Passage, Pump, flush, send, send_last};
use super::receive::{Onward, receive, take_whole};
use super::report::termination;
use super::settle::Settled;
use super::stream::Stream;
use super::tries::{Failed, Outcome, RetryBudget, no_memory};
use super::upload::{Leaving, Upload, Watched};
use crate::filters::StreamFilters;
use crate::flow::{BodyEnd, H2End, NotBegun, ServerEnd, Splicing, StreamTimeouts, Timeouts};
use crate::server::{self, Attempt};
use manylane_buf::Chain;
use manylane_config::tree::LogStep;
use manylane_h1::{Body, From, Persist, Request, RequestInfo, Response, ResponseParser, settle_request};
use manylane_http::{Known, Method, Version};
use manylane_lanes::{Observation, Parties, ServerPermit, observe};
use manylane_plan::Side;
use manylane_plan::generation::Backend;
use manylane_plan::{Cause, Phase, Termination};
use manylane_rules::EvalPhase;
use manylane_sched::Boxed;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// A request at one server, from its sending to the end of the response.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'a> {
    pub(super) stream: &'a Stream<'a>,
    pub(super) backend: &'a Backend,
    pub(super) permit: &'a ServerPermit,
    pub(super) server: BodyEnd<'a>,
    /// The request as the server received it.
    pub(super) request: &'a Request,
    /// Method that the server received, on which the framing of its response depends.
    pub(super) method: Method,
    pub(super) bodyless: bool,
    /// The connection was opened for this request.
    pub(super) new: bool,
    pub(super) budget: RetryBudget<'a>,
}

impl Exchange<'_> {
    /// Returns whom events of the exchange concern.
    #[inline]
    pub(super) fn parties(&self) -> Parties<'_> {
        let server = Some(self.permit.server());
        Parties { backend: Some(self.backend), server, ..self.stream.parties() }
    }
}

/// How a response was forwarded.
enum Ended {
    /// The response was a message.
    Message { complete: bool, sent_all: bool, whole: bool, sends_off: bool },
    /// The response begins a tunnel; its head has not been sent.
    Tunnel(Chain),
}

/// Marks the server's connection as authenticated by a message: from here on it serves only this client. An
/// HTTP/2 connection takes no further streams and ends after its current ones.
fn authenticated(end: &ServerEnd, budget: &RetryBudget<'_>) {
    budget.authenticated.set(true);
    if let ServerEnd::Http2(conn, _) = end {
        conn.shutdown();
    }
}

#[allow(clippy::result_large_err)] // in a box, a rule's response would be an allocation
impl Stream<'_> {
    /// Prepares a request for this server. Returns the bytes to send, and the length of the head if a
    /// connection of HTTP/2 has sent that already.
    fn outgoing(
        &self,
        request: &mut Request,
        backend: &Backend,
        (server, permit, new): (&ServerEnd, &ServerPermit, bool),
        received: &mut Chain,
        (up, kept): (&mut Pump, Option<&Kept>),
    ) -> Result<(Chain, u64), Failed> {
        let mut out = Chain::new();
        // The copy of the sent body is in the framing that the earlier server had.
        if up.is_for_stream() != server.is_h2() && kept.is_some_and(|kept| !kept.is_empty()) {
            return Err(Failed::Answer(502, Termination::new(Cause::ServerLeft, Phase::Headers)));
        }
        if server.is_h2() {
            up.goes_to_stream();
        } else {
            up.goes_to_connection();
        }
        if new
            && !server.is_h2()
            && let Some(how) = permit.server().header_within()
        {
            let phase = EvalPhase { server: Some(permit.server()), ..self.phase(&request.head) };
            let header = server::header(how, permit.server(), self.client, &self.eval(), phase)
                .map_err(|_| no_memory())?;
            out.append(&header).map_err(|_| no_memory())?;
        }
        if let Some(name) = backend.http.send_name.as_ref().filter(|_| !permit.server().stands_in) {
            request.head.set_field(&**name, permit.server().name.as_bytes()).map_err(|_| no_memory())?;
        }
        if request.head.is_reframed() {
            let Some(framed) = settle_request(&mut request.head, request.body).map_err(|_| no_memory())?
            else {
                // A client that sent the whole body may continue; an invalid body ends the connection anyway.
                let _ = up.read_ahead(self.client.end.body(), received);
                return Err(Failed::Answer(500, Termination::new(Cause::Internal, Phase::Headers)));
            };
            if !server.is_h2() {
                up.reframe(framed);
            }
        }
        let spellings = self.local.generation.spellings.as_ref().filter(|_| backend.http.spells);
        // A stream of HTTP/2 has no field for this framing.
        let chunked = request.body == Body::Chunked && !server.is_h2();
        if chunked && !request.head.has(Known::TRANSFER_ENCODING) {
            request.head.set_field(Known::TRANSFER_ENCODING, b"chunked").map_err(|_| no_memory())?;
        }
        let upgrades = request.connection.upgrade;
        if upgrades {
            self.set_websocket_key(request, server.is_h2()).map_err(|_| no_memory())?;
        }
        let tunnels = upgrades || request.head.method_kind() == Method::Connect;
        let end = up.is_empty() && kept.is_none_or(Kept::is_empty) && !tunnels;
        let over_tls = self.client.end.connection().tls().is_some();
        let usual = if over_tls { &b"https"[..] } else { b"http" };
        let scheme = self.client.end.h2().map_or(usual, H2End::scheme);
        let sent = server.send_head(&mut request.head, (scheme, upgrades), spellings, end, &mut out);
        if end || tunnels {
            up.ends_with_head(); // the tunnel ends with its stream
        }
        match sent {
            Ok(sent) => Ok((out, sent)),
            Err(NotBegun::Memory) => Err(no_memory()),
            Err(NotBegun::Invalid) => {
                Err(Failed::Answer(400, Termination::new(Cause::Refused, Phase::Headers)))
            }
            Err(NotBegun::Refused) => Err(Failed::Again { persistent: false }),
        }
    }

    /// Sends a request to a server that was reached, and forwards its response.
    #[allow(clippy::too_many_arguments)] // the state of one attempt
    pub(super) async fn served(
        &self,
        request: &mut Request,
        backend: &Backend,
        attempt: &Attempt,
        received: &mut Chain,
        watched: &mut Watched,
        up: &mut Pump,
        budget: RetryBudget<'_>,
    ) -> Result<Outcome, Failed> {
        let local = self.local;
        let &Attempt { end: ref server_end, ref permit, reused, .. } = attempt;
        let index = permit.index();
        let new = reused.is_none();
        let body = (&mut *up, budget.kept);
        let outgoing = self.outgoing(request, backend, (server_end, permit, new), received, body);
        let (mut out, sent_head) = match outgoing {
            Err(Failed::Again { persistent: _ }) if !budget.left => {
                return Err(Failed::Answer(502, Termination::new(Cause::ServerLeft, Phase::Headers)));
            }
            outgoing => outgoing?,
        };
        let request = &*request;
        let server = server_end.body().ok_or_else(no_memory)?; // the stream has begun
        if local.generation.reads_connections {
            let id = server.h2().map_or(reused.unwrap_or(0), H2End::id);
            self.scopes.memory.links.set_id(Side::Server, id);
        }
        self.gone.set(true);
        if request.head.authenticates_connection() {
            authenticated(server_end, &budget);
        }
        self.unsent.set(0);
        // Bytes that a retry sends again are counted once.
        let resent = Cell::new(0);
        if budget.again {
            if let Some(kept) = budget.kept {
                kept.again(&mut out).map_err(|_| no_memory())?;
            }
            resent.set(out.len() as u64);
        }
        // The server frames its response for the method that it received. Only a client that asked for a
        // tunnel gets one.
        let method = match request.head.method_kind() {
            Method::Connect => self.method,
            method => method,
        };
        let bodyless = matches!(request.body, Body::None | Body::Length(0));
        let exchange =
            Exchange { stream: self, backend, permit, server, request, method, bodyless, new, budget };
        let timeouts = StreamTimeouts::new(
            Timeouts::of(self.frontend, backend, &self.scopes.memory),
            local.here().now(),
        );
        let has_begun = !received.is_empty() || !up.may_be_left_out();
        timeouts.up.excuse(request.continue_expected && self.version >= Version::HTTP_11 && !has_begun);
        let splicing = Splicing::of(&local.generation, self.frontend, backend);
        let begun = local.here().now();
        let mut from_server = Chain::new();
        let client = &self.client.end;
        let (f, b) = (self.frontend.counts.own(), backend.counts.own());
        let count = |up: u64, down: u64| {
            b.sent.add(up);
            let before = resent.get().min(up);
            resent.set(resent.get() - before);
            let up = up - before;
            self.note(|record| {
                record.up += up;
                record.down += down;
            });
            exchange.parties().bytes(up, down);
        };
        if sent_head > 0 {
            count(sent_head, 0);
        }
        let filters = StreamFilters::of(local, (self.frontend, backend), &self.scopes.memory, true);
        if let Some(filters) = &filters {
            filters.head(Side::Client, &request.head);
        }
        let seeing = |sender| filters.as_ref().and_then(|filters| filters.seeing(sender));
        let (ended, persist, server_persists) = {
            let up_ends = Ends {
                io: &local.io,
                direction: &timeouts.up,
                from: client.body(),
                to: server,
                splice: splicing.up,
                kept: budget.kept,
                passage: Passage { received: &f.received, spliced: [&f.spliced_in, &b.spliced_out] },
                filters: seeing(Side::Client),
            };
            let mut going_up =
                Upload { work: pin!(up.run(&up_ends, received, &mut out, |n| count(n, 0))), outcome: None };

            let upgrade = request.connection.upgrade || self.method == Method::Connect;
            let info = RequestInfo { method, upgrade };
            let limits = backend.http.response_limits;
            let mut parser = ResponseParser::new(limits);
            let mut response = None; // a large value, built at its final place
            let head = {
                let reading = pin!(async {
                    let count_interim = |n| {
                        count(0, n);
                        exchange.parties().server_responds(100);
                    };
                    let onward = Onward {
                        client,
                        up: &timeouts.up,
                        down: &timeouts.down,
                        here: local.here(),
                        version: self.version,
                        received: &b.received,
                        count: count_interim,
                    };
                    receive(server, &mut from_server, &mut parser, info, onward, &mut response).await
                });
                let leaving = backend.common.abort_on_close.then_some(Leaving::Closed);
                let stays = going_up.while_there(reading, client, watched, leaving);
                timeouts.over(self.timer, permit, pin!(stays)).await
            };
            let response: &mut Response = match head {
                Ok(Ok(Ok(()))) => response.as_mut().ok_or_else(no_memory)?, // the head has arrived
                Ok(Ok(Err(no_head))) => return Err(exchange.no_head(no_head, &from_server)),
                Ok(Err(broken)) => return Err(exchange.no_request(broken)),
                Err(cause) => return Err(exchange.no_time(cause)),
            };
            if response.head.authenticates_connection() {
                authenticated(server_end, &budget);
            }
            // The peers agree on a protocol behind the complete request only.
            if response.body == Body::Tunnel && !bodyless && going_up.outcome.is_none() {
                return Err(Failed::Answer(502, exchange.failed(Cause::Refused)));
            }
            let mut relaxed = parser.take_relaxed();
            if request.connection.upgrade {
                exchange.settle_upgrade(response, &mut relaxed)?;
            }
            if let Some(relaxed) = relaxed {
                exchange.accept_relaxed_response(&relaxed);
            }
            observe(local, backend, index, Observation::Status(response.head.status()));
            if self.sends_early {
                exchange.count_handshake();
            }
            if let Some(again) = exchange.again_on(response.head.status()) {
                return Err(again);
            }
            let closes = !backend.rules.response_content.is_empty()
                && exchange.response_contents(response, &from_server).await?;
            // Content rules do not read it, as in HAProxy.
            self.scopes.memory.server_status.set(response.head.status());
            exchange.answered(response, begun);

            // From here on the response goes to the client.
            exchange.store(response, &from_server);
            let status = response.head.status();
            let answered_with = || exchange.parties().server_responds(status);
            self.scopes.memory.response.set(Some((response.head.version(), status)));
            self.scopes.memory.capture_response(&self.frontend.captures, &response.head);
            for rules in self.lists().filter(|rules| !rules.response.is_empty()) {
                let mut peek = BodyPeek::new(server, response.body, From::Server, limits);
                let incoming =
                    Incoming { server, input: &mut from_server, peek: &mut peek, received: &b.received };
                let ruling = pin!(exchange.response_ruled(rules, &mut response.head, incoming));
                let stays = pin!(going_up.while_there(ruling, client, watched, None));
                let ruled = permit.unless_ended(stays).await;
                match ruled.map_err(|cause| Failed::Answer(502, Termination::new(cause, Phase::Headers)))? {
                    Ok(ruled) => {
                        match ruled {
                            Err(Failed::Ruled(..)) => answered_with(),
                            Err(Failed::Closed) => {
                                answered_with();
                                self.parties().responds(status); // as in HAProxy, though none arrives
                            }
                            _ => {}
                        }
                        ruled?;
                    }
                    Err(Broken::Framing(found)) => {
                        self.keep_request(&found);
                        return Err(Failed::Answer(
                            found.error.status,
                            Termination::new(Cause::Refused, Phase::Data),
                        ));
                    }
                    Err(Broken::Memory) => return Err(no_memory()),
                    Err(Broken::Sender | Broken::Receiver) => return Err(Failed::Client(Phase::Headers)),
                }
            }
            exchange.check_cache(&response.head).inspect_err(|_| answered_with())?;
            // The server did not ask for the body that the client announced. The client may leave it out, and
            // send another request instead: neither connection shows where that would begin.
            let left_out = timeouts.up.is_excused() && going_up.outcome.is_none();
            let settled = exchange.settle(response, closes, left_out)?;
            let Settled { mut back, sent, shown, body, framed, persist, sends_off, .. } = settled;
            let Settled { dropped, server_persists, .. } = settled;
            if let Some(filters) = &filters {
                filters.head(Side::Server, &response.head);
            }
            if sent > 0 {
                count(0, sent);
            }
            // Rules may have changed the status, and until bytes are sent another response may replace this
            // one.
            self.replied.set(true);
            self.note(|record| record.status = Some(shown));
            let counted = Cell::new(false);
            let count_shown = || {
                if !counted.replace(true) {
                    answered_with();
                    self.parties().responds(shown);
                }
            };
            if self.logs_step(LogStep::Response) {
                let there = back.len() as u64 + sent;
                self.note(|record| record.down += there);
                self.log_now(LogStep::Response);
                self.note(|record| record.down -= there);
            }
            if self.frontend.log.as_ref().is_some_and(|log| log.early && log.steps.is_none()) {
                self.note(|record| record.down += back.len() as u64 + sent);
                self.log(LogStep::Response);
            }
            if body == Body::Tunnel {
                count_shown();
                // The peers agree on a protocol only after the complete request.
                if going_up.outcome.is_none() {
                    return Ok(Outcome::CLOSE);
                }
                (Ended::Tunnel(back), persist, server_persists)
            } else {
                let drop_trailers =
                    self.frontend.http.drop_response_trailers || response.connection.names_fields;
                let down_ends = Ends {
                    io: &local.io,
                    direction: &timeouts.down,
                    from: server,
                    to: client.body(),
                    splice: splicing.down,
                    kept: None,
                    passage: Passage { received: &b.received, spliced: [&b.spliced_in, &f.spliced_out] },
                    filters: seeing(Side::Server),
                };
                if let Some(stream) = server.h2() {
                    stream.receive_now(&mut from_server).await;
                }
                let is_empty = matches!(body, Body::None | Body::Length(0));
                let whole = framed == body
                    && (is_empty || down_ends.filters.is_none())
                    && take_whole(body, &mut from_server, &mut back).map_err(|_| no_memory())?;
                // A stream ends without its connection.
                let whole_client = client.whole().filter(|_| persist != Persist::KeepAlive);
                let relayed = Cell::new(sent);
                let relaxed = Cell::new(None);
                let server_is_kept = Cell::new(server_persists);
                let ended = if whole {
                    count_shown();
                    let sending = pin!(async {
                        match whole_client {
                            None => send(&down_ends, &mut back, |n| count(0, n)).await?,
                            Some(client) => send_last(&down_ends, client, &mut back, |n| count(0, n)).await?,
                        }
                        let Some(body) = dropped else { return Ok(()) };
                        let rest = Pump::new(server, body, Body::None, From::Server, limits, true);
                        // In a block of its own: most responses never need it.
                        let dropping = Boxed::new(|| rest.drop_all(&down_ends, &mut from_server));
                        server_is_kept.set(dropping.map_err(|_| Broken::Memory)?.await?);
                        Ok(())
                    });
                    timeouts.over(self.timer, permit, pin!(going_up.beside(sending))).await
                } else {
                    let mut down = Pump::new(server, body, framed, From::Server, limits, drop_trailers);
                    if client.h2().is_some() {
                        down.goes_to_stream();
                    }
                    let sending = pin!(async {
                        let sent = |n| {
                            relayed.set(relayed.get() + n);
                            count_shown();
                            count(0, n);
                        };
                        let ran = down.run(&down_ends, &mut from_server, &mut back, sent).await;
                        relaxed.set(down.take_relaxed());
                        ran?;
                        // The connection closes behind the response.
                        match whole_client {
                            None => Ok(()),
                            // TLS sends the closing alert: the client may see the end of the body only by it.
                            Some(client) if client.tls().is_some() => {
                                send_last(&down_ends, client, &mut Chain::new(), |_| ()).await
                            }
                            Some(client) => flush(&down_ends, client).await,
                        }
                    });
                    let stays = going_up.while_there(sending, client, watched, Some(Leaving::Reset));
                    timeouts.over(self.timer, permit, pin!(stays)).await
                };
                if let Some(relaxed) = relaxed.take() {
                    exchange.accept_relaxed_response(&relaxed);
                }
                match &ended {
                    Ok(Ok(Err(Broken::Framing(found)))) => exchange.keep_response(found),
                    Ok(Err(Broken::Framing(found))) => self.keep_request(found),
                    _ => {}
                }
                // No byte has reached the client, so the proxy can still respond itself.
                if let Ok(Ok(Err(Broken::Framing(_)))) = ended
                    && relayed.get() == 0
                {
                    self.note(|record| record.response = None);
                    return Err(Failed::Answer(502, exchange.failed(Cause::Refused)));
                }
                count_shown();
                let complete = matches!(ended, Ok(Ok(Ok(()))));
                let shows_end = body != Body::UntilClose || server_end.connection().tls().is_some();
                if !complete && framed == Body::UntilClose && shows_end {
                    // The server's framing, or TLS, has shown that the body broke off; a plain close would
                    // hide it.
                    if let Some(client) = client.whole() {
                        client.reset_on_close();
                    }
                }
                // A server that responded early may read on: the proxy sends it the rest of the body, as long
                // as the server is there and has not announced that it closes.
                let unsent = matches!(server, BodyEnd::Http1(connection) if connection.unsent() > 0);
                let owed = going_up.outcome.is_none() || unsent;
                let rest = if owed && complete && server_is_kept.get() {
                    let mut leaving = pin!(server_end.connection().recv());
                    let mut ending = pin!(async {
                        poll_fn(|context| going_up.poll_end(context)).await;
                        if let BodyEnd::Http1(connection) = server {
                            let _ = flush(&up_ends, connection).await; // sending reported a failure already
                        }
                    });
                    let rest = pin!(poll_fn(|context| match (ending.as_mut().poll(context), server) {
                        (Poll::Ready(()), _) => Poll::Ready(()),
                        (Poll::Pending, BodyEnd::Http1(_)) => leaving.as_mut().poll(context).map(drop),
                        (Poll::Pending, BodyEnd::Http2(stream)) => stream.poll_gone(context),
                    }));
                    timeouts.over(self.timer, permit, rest).await
                } else {
                    Ok(())
                };
                let termination = termination(&ended, rest, &going_up.outcome, server_is_kept.get());
                exchange.passed_on(&ended, termination);
                let sent_all = matches!(going_up.outcome, Some(Ok(())));
                let whole = sent_all && (complete || termination.cause == Cause::ServerLeft);
                (Ended::Message { complete, sent_all, whole, sends_off }, persist, server_is_kept.get())
            }
        };
        let (complete, sent_all, whole, sends_off) = match ended {
            Ended::Message { complete, sent_all, whole, sends_off } => (complete, sent_all, whole, sends_off),
            Ended::Tunnel(back) => {
                let mut received = std::mem::take(received);
                if let Some(segment) = watched.received.take() {
                    self.receives(segment.len());
                    received.push_compact(segment).map_err(|_| no_memory())?;
                }
                let chains = [received, from_server, back];
                let filters = filters.as_ref();
                // In a block of its own: most requests never need it.
                let ended = match Boxed::new(|| exchange.tunnel(chains, filters, count)) {
                    Ok(tunnel) => tunnel.await,
                    Err(_) => Termination::new(Cause::Resource, Phase::Data),
                };
                exchange.tunnelled(ended);
                return Ok(Outcome { whole: true, ..Outcome::CLOSE });
            }
        };
        if !complete || !sent_all {
            return Ok(Outcome { linger: complete, whole, ..Outcome::CLOSE });
        }
        let served = reused.unwrap_or(0) + 1;
        let again = server_persists
            && from_server.is_empty()
            && server_end.connection().unsent() == 0
            && permit.server().allows_reuse(served.into());
        let after = if persist == Persist::KeepAlive { After::KeepAlive } else { After::Close };
        // A client that asked for a tunnel may have sent tunnel data already, a client that must leave may
        // have sent another request, and one of early data has yet to complete the handshake. Closing the
        // socket with those bytes unread would discard the response.
        let sends_more = || sends_off || self.method == Method::Connect || self.is_early();
        let linger = after == After::Close && sends_more();
        Ok(Outcome { after, linger, whole, again })
    }
}
