//! Prepares a response for the client: rules, cookies, connection fields, and the framing of the body.

use super::body_peek::BodyPeek;
use super::cacheable::gives_cookie_away;
use super::edit;
use super::exchange::Exchange;
use super::pump::MOST_DROPPED;
use super::tries::{Failed, no_memory};
use super::websocket::as_connected;
use crate::flow::NotSent;
use manylane_buf::Chain;
use manylane_config::table::Ruleset;
use manylane_config::tree::LogStep;
use manylane_h1::{
    Body, BodyWriter, From, Persist, Reader, Response, frame_for, has_close_option, set_body, set_connection,
    settle_response,
};
use manylane_http::{Head, Known, Method};
use manylane_lanes::tell;
use manylane_logs::Level;
use manylane_plan::clock::now;
use manylane_plan::generation::{CloseMode, End};
use manylane_plan::{Cause, Phase, Termination};
use manylane_rules::{Answer, EvalPhase, Verdict, Walk, apply};
use manylane_sched::Time;

/// A response in the form in which the client gets it.
pub(super) struct Settled {
    /// Head of the response, unless it was sent already.
    pub(super) back: Chain,
    /// Number of bytes of the head that were sent.
    pub(super) sent: u64,
    /// Status for counters and logs. An upgrade has 101, although a client of HTTP/2 gets another status.
    pub(super) shown: u16,
    /// Framing of the body from the server (`body`) and to the client (`framed`).
    pub(super) body: Body,
    pub(super) framed: Body,
    /// Framing of a body that the client must not get, and that is dropped so that the server's connection
    /// can serve another request.
    pub(super) dropped: Option<Body>,
    /// Whether the client's connection stays open.
    pub(super) persist: Persist,
    /// The client wanted to keep its connection, but the proxy closes it.
    pub(super) sends_off: bool,
    /// The server's connection can serve another request.
    pub(super) server_persists: bool,
}

#[allow(clippy::result_large_err)] // in a box, a rule's response would be an allocation
impl Exchange<'_> {
    pub(super) fn phase(&self) -> EvalPhase<'_> {
        EvalPhase { server: Some(self.permit.server()), ..self.stream.phase(&self.request.head) }
    }

    /// Runs `tcp-response content` rules on a response; `from_server` holds the bytes behind its head.
    /// Returns true if the server's connection has to close behind the response.
    pub(super) async fn response_contents(
        &self,
        response: &mut Response,
        from_server: &Chain,
    ) -> Result<bool, Failed> {
        let mut next_rule = 0;
        loop {
            match self.some_response_contents(response, from_server, &mut next_rule)? {
                Verdict::Turn => self.stream.local.here().yield_now().await,
                outcome => return Ok(matches!(outcome, Verdict::Close)),
            }
        }
    }

    /// Runs rules from `next_rule` on until they decide or have to yield. Only the position stays in the
    /// task's memory meanwhile: these rules neither wait nor look names up.
    fn some_response_contents(
        &self,
        response: &mut Response,
        from_server: &Chain,
        next_rule: &mut usize,
    ) -> Result<Verdict, Failed> {
        let Self { backend, server, .. } = *self;
        let mut peek = BodyPeek::new(server, response.body, From::Server, backend.http.response_limits);
        if backend.rules.reads_data {
            let _ = peek.begin(from_server); // the forwarder finds an invalid body again
        }
        let phase = EvalPhase { response_data: peek.data(), ..self.phase() };
        let rules = &backend.rules.response_content;
        let mut walk = Walk::new(Ruleset::TcpResponseContent, rules).starting_at(*next_rule);
        let outcome = loop {
            match apply(&self.stream.eval(), phase, &mut walk, Some(&mut response.head)) {
                Verdict::Log => self.stream.log_now(LogStep::TcpResCont),
                outcome => break outcome,
            }
        };
        *next_rule = walk.at();
        self.stream.mark();
        if matches!(outcome, Verdict::Reject | Verdict::Drop(_)) {
            self.stream.note(|record| record.status = Some(response.head.status()));
        }
        match outcome {
            Verdict::Reject => {
                self.parties().response_denied();
                Err(Failed::Silent(Termination::new(Cause::Refused, Phase::Data)))
            }
            Verdict::Drop(silence) => {
                self.stream.client.vanish(silence);
                self.parties().silently_dropped();
                // HAProxy's log lines attribute a drop to the request, whatever message the rule saw.
                Err(Failed::Silent(Termination::new(Cause::Refused, Phase::Request)))
            }
            outcome => Ok(outcome),
        }
    }

    /// Runs `stick on`, `stick store-request` and `stick store-response` after the server has responded.
    #[inline(always)]
    pub(super) fn store(&self, response: &Response, from_server: &Chain) {
        let rules = &self.backend.rules;
        if !(rules.stick.is_empty() && rules.store_response.is_empty()) {
            self.store_by_rules(response, from_server);
        }
    }

    #[inline(never)] // most requests have no such rules
    fn store_by_rules(&self, response: &Response, from_server: &Chain) {
        let Self { backend, permit, server, .. } = *self;
        let mut peek = BodyPeek::new(server, response.body, From::Server, backend.http.response_limits);
        if backend.rules.reads_data {
            let _ = peek.begin(from_server); // the forwarder finds an invalid body again
        }
        let phase = EvalPhase { response: Some(&response.head), response_data: peek.data(), ..self.phase() };
        self.stream.eval().store_server(phase, backend, permit.server(), &self.stream.persistence.stores);
    }

    /// Reports a response that is forwarded to counters, logs and the balancer.
    pub(super) fn answered(&self, response: &Response, begun: Time) {
        let Self { backend, permit, .. } = *self;
        let local = self.stream.local;
        let index = permit.index();
        let here = local.here();
        let took = here.now().since(begun);
        backend.balancer.report(index, took, here.now());
        let status = response.head.status();
        self.parties().answered(status, took);
        self.stream.scopes.begin_response();
        self.stream.note(|record| {
            record.response = Some(took);
            record.status = Some(status);
            if backend.http.cookie.is_some() {
                record.cookies[0] = self.stream.cookie_letter(backend, Some(index));
            }
        });
    }

    /// `option checkcache`: refuses a response whose cookie a cache could give to other clients, and logs
    /// that.
    pub(super) fn check_cache(&self, head: &Head) -> Result<(), Failed> {
        let Self { backend, permit, .. } = *self;
        if !backend.http.check_cache || !gives_cookie_away(self.stream.method, head) {
            return Ok(());
        }
        let name = &permit.server().name;
        let line =
            format!("Blocking cacheable cookie in response from instance {}, server {name}.", backend.name);
        tell(self.stream.local, backend, Level::Alert, "ALERT", &line);
        Err(Failed::Ruled(End::Denied, Answer::Usual(502)))
    }

    /// Edits the head for the client and decides about the framing of the body. With `left_out` the request
    /// may remain without its body.
    pub(super) fn settle(
        &self,
        response: &mut Response,
        closes: bool,
        left_out: bool,
    ) -> Result<Settled, Failed> {
        let Self { backend, permit, server, request, method, .. } = *self;
        let Response { head: response_head, body, connection: said } = response;
        let (body, said) = (*body, *said);
        let mut server_persists = said.persists(response_head.version())
            && !matches!(body, Body::UntilClose | Body::Tunnel)
            && self.stream.mode == CloseMode::KeepAlive
            && !closes
            && !left_out
            && !has_close_option(&request.head)
            && request.head.method_kind() != Method::Connect;
        // A client that asked for a tunnel expects no length.
        let tunnels = self.stream.method != Method::Connect || body == Body::Tunnel;
        let keeps = self.stream.keeps();
        let wished = if keeps && tunnels && !left_out { Persist::KeepAlive } else { Persist::Close };
        let (framed, mut persist) = frame_for(body, self.stream.version, wished);
        let edited = set_body(response_head, body, framed).and_then(|()| match &backend.http.cookie {
            Some(cookie) => {
                let set = edit::keep(
                    response_head,
                    cookie,
                    permit.server(),
                    self.stream.persistence.cookie,
                    self.stream.persistence.right,
                    self.stream.method,
                    self.stream.persistence.ignored,
                    now().seconds,
                )?;
                self.stream.note(|record| record.cookies[1] = set);
                Ok(())
            }
            None => Ok(()),
        });
        let edited = edited.and_then(|()| {
            self.stream.afterwards(self.phase(), response_head)?;
            if persist == Persist::KeepAlive && has_close_option(response_head) {
                persist = Persist::Close;
            }
            set_connection(response_head, said, persist)?;
            edit::keep_alive(response_head, self.stream.version, persist)
        });
        let reader = Reader { version: self.stream.version, method: self.stream.method };
        let settled = edited.and_then(|()| {
            let touched = response_head.is_reframed() || self.stream.method != method;
            if touched { settle_response(response_head, framed, reader) } else { Ok(framed) }
        });
        let Ok(mut framed) = settled else { return Err(no_memory()) };
        let (mut body, mut chunks_end, mut dropped) = (body, false, None);
        if framed != body {
            match (body, framed) {
                // A rule has replaced the response that accepts the tunnel.
                (Body::Tunnel, _) => {
                    return Err(Failed::Answer(502, Termination::new(Cause::Refused, Phase::Headers)));
                }
                (Body::None | Body::Length(0), Body::Chunked) => (framed, chunks_end) = (body, true),
                (Body::None | Body::Length(0), _) => framed = body,
                (_, Body::None) => {
                    // The client gets no body. A stream of HTTP/2 ends without its connection.
                    let is_short = !matches!(body, Body::Length(length) if length > MOST_DROPPED);
                    server_persists &= server.h2().is_none() && is_short;
                    dropped = server_persists.then_some(body);
                    body = Body::None;
                }
                _ => {}
            }
        }
        if response_head.status() < 200 && body != Body::Tunnel {
            persist = Persist::Close; // rules have made the response an interim one, and no final one follows
        }
        // A stream of HTTP/2 has no field for this framing.
        if framed == Body::Chunked
            && self.stream.client.end.h2().is_none()
            && !response_head.has(Known::TRANSFER_ENCODING)
        {
            response_head.set_field(Known::TRANSFER_ENCODING, b"chunked").map_err(|_| no_memory())?;
        }
        let mut back = Chain::new();
        let spellings =
            self.stream.local.generation.spellings.as_ref().filter(|_| self.stream.frontend.http.spells);
        let end = matches!(body, Body::None | Body::Length(0));
        let shown = response_head.status();
        if shown == 101 && self.stream.client.end.h2().is_some() {
            as_connected(response_head).map_err(|_| no_memory())?;
        }
        let sent = self.stream.client.end.send_head(response_head, spellings, end, &mut back);
        let sent = sent.map_err(|why| match why {
            NotSent::Memory => no_memory(),
            NotSent::Failed => Failed::Client(Phase::Headers),
        })?;
        if chunks_end && self.stream.client.end.h2().is_none() {
            BodyWriter::new(Body::Chunked).end(None, &mut back).map_err(|_| no_memory())?;
        }
        Ok(Settled {
            back,
            sent,
            shown,
            body,
            framed,
            dropped,
            persist,
            sends_off: self.stream.keep && !keeps,
            server_persists,
        })
    }
}
