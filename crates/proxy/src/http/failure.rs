//! Decides what happens after a server failed to send a usable head of a response: a retry, or a response of
//! the proxy's own.

use super::Session;
use super::pump::Broken;
use super::receive::NoHead;
use super::tries::{Failed, no_memory};
use crate::lane::{Observation, ServerPermit, observe};
use manylane_buf::Chain;
use manylane_plan::generation::Backend;
use manylane_plan::invalid::Found;
use manylane_plan::{Cause, Phase, Termination};

/// A failed attempt; nothing of it has reached the client.
pub(super) struct Failure<'a> {
    pub(super) backend: &'a Backend,
    pub(super) permit: &'a ServerPermit,
    /// The connection was opened for this request.
    pub(super) new: bool,
    /// The server may have closed the connection because of its age, before it processed anything.
    pub(super) stale: bool,
    /// Attempts remain, and everything that was sent is still here.
    pub(super) repeatable: bool,
    pub(super) persistent: bool,
}

impl Failure<'_> {
    /// Retries if `wanted` and possible, else responds with `status`.
    fn or_again(&self, wanted: bool, status: u16, ended: Termination) -> Failed {
        if wanted && self.repeatable {
            Failed::Again { persistent: self.persistent }
        } else {
            Failed::Answer(status, ended)
        }
    }

    /// Counts a failed response of the server and returns how the stream ended.
    pub(super) fn failed(&self, cause: Cause) -> Termination {
        self.backend.counts.own().response_errors.add(1);
        self.permit.server().counts.own().response_errors.add(1);
        Termination::new(cause, Phase::Headers)
    }
}

impl Session<'_> {
    /// Handles a server that sent no usable head; `from_server` holds the bytes that it sent.
    pub(super) fn no_head(&self, failure: &Failure<'_>, no_head: NoHead, from_server: &Chain) -> Failed {
        let Failure { backend, permit, .. } = *failure;
        let on = &backend.http.retry_on;
        match no_head {
            NoHead::Nothing if failure.new => {
                observe(self.local, backend, permit.index(), Observation::Closed);
                failure.or_again(on.empty, 502, failure.failed(Cause::ServerLeft))
            }
            // The server closed the idle connection just as the request was sent.
            NoHead::Nothing => {
                match failure.or_again(on.empty || failure.stale, 502, failure.failed(Cause::ServerLeft)) {
                    // The reset of an unanswered stream would tell the client that the server did nothing
                    // (RFC 9113, 8.7), and the client would repeat the request. The proxy does not know that,
                    // so it responds.
                    answer @ Failed::Answer(..) if self.client.end.h2().is_some() => {
                        observe(self.local, backend, permit.index(), Observation::Closed);
                        answer
                    }
                    Failed::Answer(..) => {
                        backend.counts.own().server_aborts.add(1);
                        permit.server().counts.own().server_aborts.add(1);
                        Failed::Unanswered
                    }
                    again => again,
                }
            }
            NoHead::Cut => {
                observe(self.local, backend, permit.index(), Observation::Closed);
                // The manual counts this as junk-response, HAProxy as empty-response.
                failure.or_again(on.junk || on.empty, 502, failure.failed(Cause::ServerLeft))
            }
            NoHead::Junk(error) => {
                self.keep_response(&Found::new(from_server, error), backend, permit.server());
                observe(self.local, backend, permit.index(), Observation::BadHead);
                failure.or_again(on.junk, error.status, failure.failed(Cause::Refused))
            }
            // The server processed nothing, as if the connection had failed.
            NoHead::Refused => {
                failure.or_again(backend.retries_connect, 502, failure.failed(Cause::ServerLeft))
            }
            NoHead::Memory => no_memory(),
            NoHead::Client => Failed::Client(Phase::Headers),
        }
    }

    /// Handles a request whose body broke off before the response began.
    pub(super) fn no_request(&self, failure: &Failure<'_>, broken: Broken) -> Failed {
        match broken {
            Broken::Framing(found) => {
                self.keep_request(&found, Some(failure.backend));
                Failed::Answer(found.error.status, Termination::new(Cause::Refused, Phase::Headers))
            }
            Broken::Memory => no_memory(),
            // The client may have closed only its sending side.
            Broken::Receiver => Failed::Answer(400, Termination::new(Cause::ClientLeft, Phase::Headers)),
            Broken::Sender => Failed::Client(Phase::Data), // the client left amid its body
        }
    }

    /// Handles an expired timeout, or a stream that something else ended.
    pub(super) fn no_time(&self, failure: &Failure<'_>, cause: Cause) -> Failed {
        match cause {
            // HAProxy blames the server for the client's silence, since it waits only for the server. A
            // client could then get servers marked as failing. This follows the manual.
            Cause::ClientSilent => Failed::Answer(408, Termination::new(Cause::ClientSilent, Phase::Headers)),
            cause if cause.is_order() => Failed::Answer(502, Termination::new(cause, Phase::Headers)),
            cause => {
                observe(self.local, failure.backend, failure.permit.index(), Observation::Silent);
                failure.or_again(failure.backend.http.retry_on.timeout, 504, failure.failed(cause))
            }
        }
    }
}
