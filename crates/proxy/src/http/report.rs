//! Reports the events of an exchange to counters, logs and `show errors`.

use super::exchange::Exchange;
use super::pump::Broken;
use super::stream::Stream;
use manylane_h1::Relaxed;
use manylane_lanes::{Observation, Parties, observe};
use manylane_plan::generation::{Backend, Server};
use manylane_plan::invalid::Found;
use manylane_plan::{Cause, Phase, Termination};

impl Stream<'_> {
    /// Keeps an invalid request for `show errors`.
    pub(super) fn keep_request(&self, found: &Found) {
        self.frontend.invalid.keep(found, self.client.source, |invalid| {
            invalid.other = self.backend.map(|backend| (backend.name.clone(), backend.id));
        });
    }

    /// Keeps a request for `show errors`, if its framing is invalid.
    pub(super) fn keep_broken(&self, broken: &Broken) {
        if let Broken::Framing(found) = broken {
            self.keep_request(found);
        }
    }

    /// Counts a request with a violation that passed, and keeps it if it did so because of `option
    /// accept-unsafe-violations-in-http-request`.
    #[cold]
    pub(super) fn accept_relaxed_request(&self, relaxed: &Relaxed) {
        if !self.frontend.http.request_limits.relaxed {
            return self.frontend.invalid.tolerate(relaxed);
        }
        self.frontend.invalid.accept(relaxed, self.client.source, |invalid| {
            invalid.other = self.backend.map(|backend| (backend.name.clone(), backend.id));
        });
    }

    /// Returns the server of this backend that the last request was sent to.
    pub(super) fn last_server<'b>(&self, backend: &'b Backend) -> Option<&'b Server> {
        let (number, index) = (*self.last)?;
        (number == backend.number).then(|| &*backend.servers[index.get()])
    }

    /// Counts a response that rules refused or replaced.
    pub(super) fn response_denied(&self, backend: &Backend) {
        let server = self.last_server(backend);
        Parties { server, ..self.parties() }.response_denied();
    }

    /// Counts a client that left before there was a response.
    pub(super) fn client_left(&self, backend: &Backend, phase: Phase) {
        let reached = matches!(phase, Phase::Headers | Phase::Data);
        let server = reached.then(|| self.last_server(backend)).flatten();
        let parties = Parties { server, ..self.parties() };
        parties.client_aborts();
        parties.request_error();
        self.note(|record| record.ended = Termination::new(Cause::ClientLeft, phase));
    }
}

impl Exchange<'_> {
    /// Keeps an invalid response for `show errors`.
    pub(super) fn keep_response(&self, found: &Found) {
        let (frontend, server) = (self.stream.frontend, self.permit.server());
        self.backend.invalid.keep(found, self.stream.client.source, |invalid| {
            invalid.other = Some((frontend.name.clone(), frontend.id));
            invalid.server = Some((server.name.clone(), server.id));
        });
    }

    /// Counts a response with a violation that passed, and keeps it if it did so because of `option
    /// accept-unsafe-violations-in-http-response`.
    #[cold]
    pub(super) fn accept_relaxed_response(&self, relaxed: &Relaxed) {
        if !self.backend.http.response_limits.relaxed {
            return self.backend.invalid.tolerate(relaxed);
        }
        let (frontend, server) = (self.stream.frontend, self.permit.server());
        self.backend.invalid.accept(relaxed, self.stream.client.source, |invalid| {
            invalid.other = Some((frontend.name.clone(), frontend.id));
            invalid.server = Some((server.name.clone(), server.id));
        });
    }

    /// Counts and logs the end of a response that was forwarded.
    pub(super) fn passed_on(&self, ended: &Passed, termination: Termination) {
        let Self { backend, permit, .. } = *self;
        let own = termination.cause.is_order() || termination.cause == Cause::Resource;
        if termination.cause != Cause::Normal && !own {
            match termination.cause {
                Cause::ClientLeft | Cause::ClientSilent => self.parties().client_aborts(),
                _ => self.parties().server_aborts(),
            }
        }
        self.stream.note(|record| record.ended = termination);
        if let Ok(Ok(Err(Broken::Sender | Broken::Framing(_)))) | Err(Cause::ServerSilent) = ended {
            self.parties().response_error();
            self.count_broken_response();
        }
        if let Ok(Ok(Err(Broken::Framing(_)))) = ended {
            observe(self.stream.local, backend, permit.index(), Observation::BadBody);
        }
    }

    /// Counts a response that broke off amid its body as a failure of the server, unless its status was
    /// counted as one.
    pub(super) fn count_broken_response(&self) {
        let failed = &self.stream.local.generation.process.failure_statuses;
        let status = self.stream.scopes.memory.response.get();
        if !status.is_some_and(|(_, status)| failed.contains(status)) {
            self.parties().server_failed();
        }
    }
}

/// How a response ended. From outside in: a timeout, a client that broke off its request, and the result of
/// the response's body.
pub(super) type Passed = Result<Result<Result<(), Broken>, Broken>, Cause>;

/// Returns how an exchange ended, from the results of its response, of the rest of its request behind that,
/// and of the whole request.
pub(super) fn termination(
    ended: &Passed,
    rest: Result<(), Cause>,
    request: &Option<Result<(), Broken>>,
    server_persists: bool,
) -> Termination {
    let (cause, phase) = match ended {
        Ok(Ok(Ok(()))) => match (rest, request) {
            (Err(cause), _) => (cause, Phase::Data),
            (Ok(()), Some(Err(Broken::Sender))) => (Cause::ClientLeft, Phase::Data),
            (Ok(()), Some(Err(Broken::Framing(_)))) => (Cause::Refused, Phase::Data),
            (Ok(()), Some(Err(Broken::Memory))) => (Cause::Resource, Phase::Data),
            (Ok(()), Some(Err(_))) => (Cause::ServerLeft, Phase::Data),
            (Ok(()), None) if server_persists => (Cause::ServerLeft, Phase::Data),
            (Ok(()), _) => return Termination::NORMAL,
        },
        Ok(Err(Broken::Framing(_))) => (Cause::Refused, Phase::Data),
        Ok(Err(Broken::Memory) | Ok(Err(Broken::Memory))) => (Cause::Resource, Phase::Data),
        Ok(Err(_)) | Ok(Ok(Err(Broken::Receiver))) => (Cause::ClientLeft, Phase::Data),
        Ok(_) => (Cause::ServerLeft, Phase::Data),
        Err(cause) => (*cause, Phase::Data),
    };
    Termination::new(cause, phase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::EndFailed;
    use manylane_mux::h2::StreamError;

    /// Otherwise it would count as an abort of that peer, and servers would be marked as failing.
    #[test]
    fn want_of_memory_amid_a_body_is_no_fault_of_a_peer() {
        let own = |broken| matches!(broken, Broken::Memory);
        assert!(own(Broken::sender(StreamError::Memory)) && own(Broken::receiver(StreamError::Memory)));
        assert!(matches!(Broken::sender(EndFailed::default()), Broken::Sender));
        assert!(matches!(Broken::receiver(EndFailed::default()), Broken::Receiver));
        let cause = |ended, request| termination(&ended, Ok(()), &request, true).cause;
        assert_eq!(cause(Ok(Ok(Err(Broken::Memory))), None), Cause::Resource);
        assert_eq!(cause(Ok(Err(Broken::Memory)), None), Cause::Resource);
        assert_eq!(cause(Ok(Ok(Ok(()))), Some(Err(Broken::Memory))), Cause::Resource);
        assert_eq!(cause(Ok(Ok(Err(Broken::Sender))), None), Cause::ServerLeft);
        assert_eq!(cause(Ok(Err(Broken::Sender)), None), Cause::ClientLeft);
    }
}
