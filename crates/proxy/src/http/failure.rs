//! Decides what happens after a server failed to send a usable head of a response: a retry, or a response of
//! the proxy's own.

use super::exchange::Exchange;
use super::pump::{Broken, Kept};
use super::receive::NoHead;
use super::ruled::EARLY_DATA;
use super::tries::{Failed, no_memory};
use crate::flow::BodyEnd;
use crate::server;
use manylane_buf::Chain;
use manylane_lanes::{Observation, observe};
use manylane_net::TlsStream;
use manylane_plan::invalid::Found;
use manylane_plan::{Cause, Phase, Termination};

/// Status of a server that does not serve early data.
const TOO_EARLY: u16 = 425;

/// Failures before a byte of the response has reached the client.
impl Exchange<'_> {
    /// Returns true if attempts remain, and everything that was sent is still here.
    pub(super) fn is_repeatable(&self) -> bool {
        self.budget.left && (self.bodyless || self.budget.kept.is_some_and(Kept::is_whole))
    }

    /// Retries if `wanted` and possible, else responds with `status`.
    fn or_again(&self, wanted: bool, status: u16, ended: Termination) -> Failed {
        if wanted && self.is_repeatable() {
            Failed::Again { persistent: self.budget.persistent }
        } else {
            Failed::Answer(status, ended)
        }
    }

    /// Returns the retry for a response with this status, if `retry-on` names it and a retry is possible.
    pub(super) fn again_on(&self, status: u16) -> Option<Failed> {
        let persistent = self.budget.persistent;
        // The client has not sent it early, so the answer is none for it (RFC 8470, 5.2).
        if status == TOO_EARLY && self.stream.sends_early && !self.request.head.has(EARLY_DATA) {
            return self.is_repeatable().then_some(Failed::Again { persistent });
        }
        if !self.is_repeatable() || !self.backend.http.retry_on.statuses.contains(&status) {
            return None;
        }
        if status != TOO_EARLY || !self.request.head.has(EARLY_DATA) {
            return Some(Failed::Again { persistent });
        }
        // The client's own field stays, so the server would respond the same again; the client gets the
        // response, and knows when to repeat the request (RFC 8470, 5.2).
        self.stream.tells_early.then_some(Failed::TooEarly { persistent })
    }

    /// Counts the TLS handshake behind early data, and returns whether it was successful.
    pub(super) fn count_handshake(&self) -> bool {
        let BodyEnd::Http1(connection) = self.server else { return true };
        let Some(tls) = &self.permit.server().tls else { return true };
        let outcome = connection.tls().and_then(TlsStream::info).ok_or(None);
        server::shaken_with(self.stream.local, self.permit, tls, outcome);
        self.stream.scopes.memory.server_tls.replace(outcome.ok().cloned());
        outcome.is_ok()
    }

    /// Handles a TLS handshake that failed behind early data. The server may have served that, so only an
    /// idempotent request is repeated, as if the connection had failed.
    fn unshaken(&self, wanted: bool, cause: Cause) -> Failed {
        observe(self.stream.local, self.backend, self.permit.index(), Observation::NotConnected);
        self.parties().connection_error();
        let ended = Termination::new(cause, Phase::Connect);
        if self.method.is_idempotent() {
            self.or_again(self.backend.retries_connect || wanted, 503, ended)
        } else {
            Failed::Answer(502, ended)
        }
    }

    /// Counts a failed response of the server and returns how the stream ended.
    pub(super) fn failed(&self, cause: Cause) -> Termination {
        self.parties().response_error();
        Termination::new(cause, Phase::Headers)
    }

    /// Like [`failed`](Self::failed), for a failure that counts for the health of the server.
    fn fault(&self, cause: Cause, observation: Observation) -> Termination {
        observe(self.stream.local, self.backend, self.permit.index(), observation);
        self.failed(cause)
    }

    /// Handles a server that sent no usable head; `from_server` holds the bytes that it sent.
    pub(super) fn no_head(&self, no_head: NoHead, from_server: &Chain) -> Failed {
        let Self { backend, permit, .. } = *self;
        let on = &backend.http.retry_on;
        if self.stream.sends_early
            && !matches!(no_head, NoHead::Memory | NoHead::Client)
            && !self.count_handshake()
        {
            return self.unshaken(on.empty, Cause::ServerLeft);
        }
        match no_head {
            NoHead::Nothing if self.new => {
                self.or_again(on.empty, 502, self.fault(Cause::ServerLeft, Observation::Closed))
            }
            // The server closed the idle connection just as the request was sent.
            NoHead::Nothing => {
                // It may have closed the connection because of its age, before it processed anything.
                let stale = self.method.is_idempotent() && self.bodyless;
                match self.or_again(on.empty || stale, 502, self.failed(Cause::ServerLeft)) {
                    // The reset of an unanswered stream would tell the client that the server did nothing
                    // (RFC 9113, 8.7), and the client would repeat the request. The proxy does not know that,
                    // so it responds.
                    answer @ Failed::Answer(..) if self.stream.client.end.h2().is_some() => {
                        observe(self.stream.local, backend, permit.index(), Observation::Closed);
                        answer
                    }
                    Failed::Answer(..) => {
                        self.parties().server_aborts();
                        Failed::Unanswered
                    }
                    again => again,
                }
            }
            NoHead::Cut => self.or_again(on.junk, 502, self.fault(Cause::Refused, Observation::Closed)),
            NoHead::Reset => {
                self.or_again(on.junk || on.empty, 502, self.fault(Cause::ServerLeft, Observation::Closed))
            }
            NoHead::Junk(error) => {
                self.keep_response(&Found::new(from_server, error));
                self.or_again(on.junk, error.status, self.fault(Cause::Refused, Observation::BadHead))
            }
            // The server processed nothing, as if the connection had failed.
            NoHead::Refused => {
                match self.or_again(backend.retries_connect, 502, self.failed(Cause::ServerLeft)) {
                    // The client may repeat what the proxy cannot: the reset of its stream says that no
                    // server has processed it. An earlier attempt may have been processed.
                    Failed::Answer(_, ended)
                        if self.stream.client.end.h2().is_some() && !self.budget.again =>
                    {
                        Failed::Refused(ended)
                    }
                    other => other,
                }
            }
            NoHead::Memory => no_memory(),
            NoHead::Client => Failed::Client(Phase::Headers),
        }
    }

    /// Handles a request whose body broke off before the response began.
    pub(super) fn no_request(&self, broken: Broken) -> Failed {
        match broken {
            Broken::Framing(found) => {
                self.stream.keep_request(&found);
                Failed::Answer(found.error.status, Termination::new(Cause::Refused, Phase::Headers))
            }
            Broken::Memory => no_memory(),
            // The client may have closed only its sending side.
            Broken::Receiver => Failed::Answer(400, Termination::new(Cause::ClientLeft, Phase::Headers)),
            Broken::Sender => Failed::Client(Phase::Data), // the client left amid its body
        }
    }

    /// Handles an expired timeout, or a stream that something else ended.
    pub(super) fn no_time(&self, cause: Cause) -> Failed {
        match cause {
            // HAProxy blames the server for the client's silence, since it waits only for the server. A
            // client could then get servers marked as failing. This follows the manual.
            Cause::ClientSilent => Failed::Answer(408, Termination::new(Cause::ClientSilent, Phase::Headers)),
            cause if cause.is_order() => Failed::Answer(502, Termination::new(cause, Phase::Headers)),
            cause if self.stream.sends_early && !self.count_handshake() => {
                self.unshaken(self.backend.http.retry_on.timeout, cause)
            }
            cause => {
                self.or_again(self.backend.http.retry_on.timeout, 504, self.fault(cause, Observation::Silent))
            }
        }
    }
}
