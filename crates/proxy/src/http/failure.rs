//! A server that was asked in vain: what is made of a head that did not come, and whether the request is
//! tried again.

use super::Session;
use super::pump::Broken;
use super::receive::NoHead;
use super::tries::{Failed, no_memory};
use crate::generation::Backend;
use crate::invalid::Found;
use crate::run::{Observation, observe};
use crate::server::ServerPermit;
use crate::termination::{Cause, Phase, Termination};
use manylane_buf::Chain;

/// A try of which nothing has reached the client yet.
pub(super) struct Failure<'a> {
    pub(super) backend: &'a Backend,
    pub(super) permit: &'a ServerPermit,
    /// Its connection was made for this request.
    pub(super) new: bool,
    /// It may be that its connection was closed for its age, and nothing was done there.
    pub(super) stale: bool,
    /// There may be another try, and all that was sent is here.
    pub(super) repeatable: bool,
    pub(super) persistent: bool,
}

impl Failure<'_> {
    /// Tries once more where that is wanted and can be done.
    fn or_again(&self, wanted: bool, status: u16, ended: Termination) -> Failed {
        if wanted && self.repeatable {
            Failed::Again { persistent: self.persistent }
        } else {
            Failed::Answer(status, ended)
        }
    }

    /// The server has failed, and counters are told so.
    pub(super) fn failed(&self, cause: Cause) -> Termination {
        self.backend.counts.own().response_errors.add(1);
        self.permit.server().counts.own().response_errors.add(1);
        Termination::new(cause, Phase::Headers)
    }
}

impl Session<'_> {
    /// The server sent no head that can be passed on, but these bytes.
    pub(super) fn no_head(&self, failure: &Failure<'_>, no_head: NoHead, from_server: &Chain) -> Failed {
        let Failure { backend, permit, .. } = *failure;
        let on = &backend.http.retry_on;
        match no_head {
            NoHead::Nothing if failure.new => {
                observe(self.local, backend, permit.index(), Observation::Closed);
                failure.or_again(on.empty, 502, failure.failed(Cause::ServerLeft))
            }
            // It was closed for its age, just when the request came.
            NoHead::Nothing => {
                match failure.or_again(on.empty || failure.stale, 502, failure.failed(Cause::ServerLeft)) {
                    // A stream that is reset unanswered says that nothing was done (RFC 9113, 8.7), so that
                    // clients repeat it by themselves. Nobody knows that here.
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
                // The manual has it with junk, HAProxy with empty ones.
                failure.or_again(on.junk || on.empty, 502, failure.failed(Cause::ServerLeft))
            }
            NoHead::Junk(error) => {
                self.keep_response(&Found::new(from_server, error), backend, permit.server());
                observe(self.local, backend, permit.index(), Observation::BadHead);
                failure.or_again(on.junk, error.status, failure.failed(Cause::Refused))
            }
            // Nothing was done with it, so it is as if the server had not been reached.
            NoHead::Refused => {
                failure.or_again(backend.retries_connect, 502, failure.failed(Cause::ServerLeft))
            }
            NoHead::Memory => no_memory(),
            NoHead::Client => Failed::Client(Phase::Headers),
        }
    }

    /// The request did not come to its end before the response began.
    pub(super) fn no_request(&self, failure: &Failure<'_>, broken: Broken) -> Failed {
        match broken {
            Broken::Framing(found) => {
                self.keep_request(&found, Some(failure.backend));
                Failed::Answer(found.error.status, Termination::new(Cause::Refused, Phase::Headers))
            }
            Broken::Memory => no_memory(),
            // It may be that it has closed its side only.
            Broken::Receiver => Failed::Answer(400, Termination::new(Cause::ClientLeft, Phase::Headers)),
            Broken::Sender => Failed::Client(Phase::Data), // amid its body
        }
    }

    /// Time was over, or somebody else has ended the stream.
    pub(super) fn no_time(&self, failure: &Failure<'_>, cause: Cause) -> Failed {
        match cause {
            // HAProxy holds the client's silence against the server, whose time alone it waits for; so a
            // client could get servers marked as failing. The manual has it as here.
            Cause::ClientSilent => Failed::Answer(408, Termination::new(Cause::ClientSilent, Phase::Headers)),
            cause if cause.is_order() => Failed::Answer(502, Termination::new(cause, Phase::Headers)),
            cause => {
                observe(self.local, failure.backend, failure.permit.index(), Observation::Silent);
                failure.or_again(failure.backend.http.retry_on.timeout, 504, failure.failed(cause))
            }
        }
    }
}
