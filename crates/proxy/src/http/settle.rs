//! Prepares a response for the client: rules, cookies, connection fields, and the framing of the body.

use super::Session;
use super::body_peek::BodyPeek;
use super::cacheable::gives_cookie_away;
use super::edit;
use super::exchange::Asking;
use super::tries::{Failed, no_memory};
use super::websocket::as_connected;
use crate::flow::{BodyEnd, NotSent};
use crate::lane::{ServerPermit, tell};
use crate::rules::{Answer, Content, EvalPhase, Lookups, content};
use crate::scopes::Countable;
use manylane_buf::Chain;
use manylane_config::tree::LogStep;
use manylane_h1::{
    Body, BodyWriter, From, Persist, Reader, Request, Response, frame_for, set_body, set_connection,
    settle_response,
};
use manylane_http::{Head, Known, Method};
use manylane_logs::Level;
use manylane_plan::clock::now;
use manylane_plan::generation::{Backend, CloseMode, End, Rules};
use manylane_plan::{Cause, Phase, Termination};
use manylane_sched::Time;
use manylane_sync::Arc;

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

/// Inputs for the preparation of a response.
#[derive(Clone, Copy)]
pub(super) struct Answered<'a> {
    pub(super) backend: &'a Backend,
    pub(super) permit: &'a ServerPermit,
    pub(super) asking: &'a Asking,
    /// The request as the server received it.
    pub(super) request: &'a Request,
    pub(super) method: Method,
    /// A rule closes the server's connection.
    pub(super) closes: bool,
}

impl Answered<'_> {
    pub(super) fn phase(&self) -> EvalPhase<'_> {
        EvalPhase {
            request: Some(&self.request.head),
            backend: Some(self.backend),
            server: Some(self.permit.server()),
            ..EvalPhase::default()
        }
    }
}

#[allow(clippy::result_large_err)] // in a box, a rule's response would be an allocation
impl Session<'_> {
    /// Returns the lists of rules for a response of this backend.
    pub(super) fn lists<'a>(&'a self, backend: &'a Backend) -> impl Iterator<Item = &'a Arc<Rules>> + Clone {
        let twice = std::ptr::eq(&*backend.rules, &*self.frontend.rules);
        [&backend.rules, &self.frontend.rules].into_iter().take(if twice { 1 } else { 2 })
    }

    /// Runs `tcp-response content` rules on a response; `from_server` holds the bytes behind its head.
    /// Returns true if the server's connection has to close behind the response.
    pub(super) fn response_contents(
        &self,
        request: &Request,
        response: &Response,
        backend: &Backend,
        (server, permit): (BodyEnd<'_>, &ServerPermit),
        from_server: &Chain,
    ) -> Result<bool, Failed> {
        let mut seen = BodyPeek::new(server, response.body, From::Server, backend.http.response_limits);
        if backend.rules.reads_data {
            let _ = seen.begin(from_server); // the forwarder finds an invalid body again
        }
        let phase = EvalPhase {
            request: Some(&request.head),
            response: Some(&response.head),
            response_data: seen.data(),
            backend: Some(backend),
            server: Some(permit.server()),
            ..EvalPhase::default()
        };
        let decided = content(
            &self.eval(),
            phase,
            &backend.rules.response_content,
            &|| self.log_now(LogStep::TcpResCont),
            &Lookups::default(),
        );
        self.mark();
        if matches!(decided, Content::Reject | Content::Drop(_)) {
            self.note(|record| record.status = Some(response.head.status()));
            if let Content::Drop(silence) = decided {
                self.client.vanish(silence);
                // HAProxy's log lines attribute a drop to the request, whatever message the rule saw.
                return Err(Failed::Refused(Phase::Request));
            }
            return Err(Failed::Refused(Phase::Data));
        }
        Ok(decided == Content::Close)
    }

    /// Runs `stick on`, `stick store-request` and `stick store-response` after the server has responded.
    #[inline(always)]
    pub(super) fn store(
        &self,
        answered: &Answered<'_>,
        response: &Response,
        server: BodyEnd<'_>,
        from_server: &Chain,
    ) {
        let rules = &answered.backend.rules;
        if !(rules.stick.is_empty() && rules.store_response.is_empty()) {
            self.store_by_rules(answered, response, server, from_server);
        }
    }

    #[inline(never)] // most requests have no such rules
    fn store_by_rules(
        &self,
        answered: &Answered<'_>,
        response: &Response,
        server: BodyEnd<'_>,
        from_server: &Chain,
    ) {
        let &Answered { backend, permit, asking, .. } = answered;
        let mut seen = BodyPeek::new(server, response.body, From::Server, backend.http.response_limits);
        if backend.rules.reads_data {
            let _ = seen.begin(from_server); // the forwarder finds an invalid body again
        }
        let phase =
            EvalPhase { response: Some(&response.head), response_data: seen.data(), ..answered.phase() };
        self.eval().store_server(phase, backend, permit.server(), &asking.stores);
    }

    /// Reports a response that is forwarded to counters, logs and the balancer.
    pub(super) fn answered(
        &self,
        response: &Response,
        asking: &Asking,
        backend: &Backend,
        permit: &ServerPermit,
        begun: Time,
    ) {
        let local = self.local;
        let index = permit.index();
        let here = local.here();
        let took = here.now().since(begun);
        backend.balancer.report(index, took, here.now());
        backend.counts.own().answered(took);
        permit.server().counts.own().answered(took);
        self.scopes.begin_response();
        self.count_status_in_tables(response.head.status());
        self.note(|record| {
            record.response = Some(took);
            record.status = Some(response.head.status());
            if backend.http.cookie.is_some() {
                let usual = match (asking.told.there, asking.told.server) {
                    (false, _) => b'N',
                    (true, _) if asking.ignored || asking.ruled.is_some() => b'U',
                    (true, None) => b'I',
                    (true, Some(named))
                        if named == index && backend.balancer.servers()[index].state().serves_its_own() =>
                    {
                        b'V'
                    }
                    (true, Some(_)) => b'D',
                };
                record.cookies[0] = asking.told.late.unwrap_or(usual);
            }
        });
    }

    /// Counts a status in stick tables, if it is an error or a failure.
    fn count_status_in_tables(&self, status: u16) {
        let codes = &self.local.generation.process;
        if codes.error_statuses.contains(status) {
            self.count_in_tables(Countable::Error);
        }
        if codes.failure_statuses.contains(status) {
            self.count_in_tables(Countable::Failure);
        }
    }

    /// Counts a response that broke off amid its body as a failure of the server, unless its status was
    /// counted as one.
    pub(super) fn count_broken_response(&self) {
        let failed = &self.local.generation.process.failure_statuses;
        let status = self.scopes.memory.response.get();
        if !status.is_some_and(|(_, status)| failed.contains(status)) {
            self.count_in_tables(Countable::Failure);
        }
    }

    /// `option checkcache`: refuses a response whose cookie a cache could give to other clients, and logs
    /// that.
    pub(super) fn check_cache(
        &self,
        asking: &Asking,
        backend: &Backend,
        permit: &ServerPermit,
        head: &Head,
    ) -> Result<(), Failed> {
        if !backend.http.check_cache || !gives_cookie_away(asking.method, head) {
            return Ok(());
        }
        let name = &permit.server().name;
        let line =
            format!("Blocking cacheable cookie in response from instance {}, server {name}.", backend.name);
        tell(self.local, backend, Level::Alert, "ALERT", &line);
        Err(Failed::Ruled(End::Denied, Answer::Usual(502)))
    }

    /// Edits the head for the client and decides about the framing of the body.
    pub(super) fn settle(
        &self,
        answered: Answered<'_>,
        response: &mut Response,
        server: BodyEnd<'_>,
    ) -> Result<Settled, Failed> {
        let Answered { backend, permit, asking, request, method, closes } = answered;
        let Response { head: response_head, body, connection: said } = response;
        let (body, said) = (*body, *said);
        let mut server_persists = said.persists(response_head.version())
            && !matches!(body, Body::UntilClose | Body::Tunnel)
            && asking.mode == CloseMode::KeepAlive
            && !closes
            && request.head.method_kind() != Method::Connect;
        // A client that asked for a tunnel expects no length.
        let tunnels = asking.method != Method::Connect || body == Body::Tunnel;
        let keeps = self.keeps(asking);
        let wished = if keeps && tunnels { Persist::KeepAlive } else { Persist::Close };
        let (framed, mut persist) = frame_for(body, asking.version, wished);
        let edited = set_connection(response_head, said, persist)
            .and_then(|()| edit::keep_alive(response_head, asking.version, persist))
            .and_then(|()| set_body(response_head, body, framed))
            .and_then(|()| match &backend.http.cookie {
                Some(cookie) => {
                    let set = edit::keep(
                        response_head,
                        cookie,
                        permit.server(),
                        asking.told,
                        asking.right,
                        asking.method,
                        asking.ignored,
                        now().seconds,
                    )?;
                    self.note(|record| record.cookies[1] = set);
                    Ok(())
                }
                None => Ok(()),
            });
        let edited =
            edited.and_then(|()| self.afterwards(answered.phase(), self.lists(backend), response_head));
        let reader = Reader { version: asking.version, method: asking.method };
        let settled = edited.and_then(|()| {
            let touched = response_head.is_reframed() || asking.method != method;
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
                    server_persists &= server.h2().is_none();
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
            && self.client.end.h2().is_none()
            && !response_head.has(Known::TRANSFER_ENCODING)
        {
            response_head.set_field(Known::TRANSFER_ENCODING, b"chunked").map_err(|_| no_memory())?;
        }
        let mut back = Chain::new();
        let spellings = self.local.generation.spellings.as_ref().filter(|_| self.frontend.http.spells);
        let end = matches!(body, Body::None | Body::Length(0));
        let shown = response_head.status();
        if shown == 101 && self.client.end.h2().is_some() {
            as_connected(response_head).map_err(|_| no_memory())?;
        }
        let sent = self.client.end.send_head(response_head, spellings, end, &mut back);
        let sent = sent.map_err(|why| match why {
            NotSent::Memory => no_memory(),
            NotSent::Failed => Failed::Client(Phase::Headers),
        })?;
        if chunks_end && self.client.end.h2().is_none() {
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
            sends_off: asking.keep && !keeps,
            server_persists,
        })
    }
}
