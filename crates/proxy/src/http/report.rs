//! Reports the events of an exchange to counters, logs and `show errors`.

use super::Session;
use super::pump::Broken;
use crate::count::count_in_front;
use crate::lane::{Observation, ServerPermit, observe};
use manylane_h1::Relaxed;
use manylane_plan::generation::{Backend, Server};
use manylane_plan::invalid::Found;
use manylane_plan::{Cause, Phase, Termination};

impl Session<'_> {
    /// Keeps an invalid request for `show errors`.
    pub(super) fn keep_request(&self, found: &Found, backend: Option<&Backend>) {
        self.frontend.invalid.keep(found, self.client.source, |invalid| {
            invalid.other = backend.map(|backend| (backend.name.clone(), backend.id));
        });
    }

    /// Keeps a request for `show errors`, if its framing is invalid.
    pub(super) fn keep_broken(&self, broken: &Broken, backend: Option<&Backend>) {
        if let Broken::Framing(found) = broken {
            self.keep_request(found, backend);
        }
    }

    /// Keeps an invalid response for `show errors`.
    pub(super) fn keep_response(&self, found: &Found, backend: &Backend, server: &Server) {
        let frontend = self.frontend;
        backend.invalid.keep(found, self.client.source, |invalid| {
            invalid.other = Some((frontend.name.clone(), frontend.id));
            invalid.server = Some((server.name.clone(), server.id));
        });
    }

    /// Counts a request with a violation that passed because of `option
    /// accept-unsafe-violations-in-http-request`.
    #[cold]
    pub(super) fn accept_relaxed_request(&self, relaxed: &Relaxed, backend: Option<&Backend>) {
        if !self.frontend.http.request_limits.relaxed {
            return; // a violation that passes without the option is not reported, as in HAProxy
        }
        self.frontend.invalid.accept(relaxed, self.client.source, |invalid| {
            invalid.other = backend.map(|backend| (backend.name.clone(), backend.id));
        });
    }

    /// Counts a response with a violation that passed because of `option
    /// accept-unsafe-violations-in-http-response`.
    #[cold]
    pub(super) fn accept_relaxed_response(&self, relaxed: &Relaxed, backend: &Backend, server: &Server) {
        if !backend.http.response_limits.relaxed {
            return;
        }
        let frontend = self.frontend;
        backend.invalid.accept(relaxed, self.client.source, |invalid| {
            invalid.other = Some((frontend.name.clone(), frontend.id));
            invalid.server = Some((server.name.clone(), server.id));
        });
    }

    /// Returns the server of this backend that the last request was sent to.
    pub(super) fn last_server<'b>(&self, backend: &'b Backend) -> Option<&'b Server> {
        let (number, index) = self.last?;
        (number == backend.number).then(|| &*backend.servers[index.get()])
    }

    /// Ends the count of the request in a backend, with the time that the request spent there.
    pub(super) fn leave(&self, backend: &Backend) {
        let Some((_, begun)) = self.entered.take() else { return };
        let unsent = self.unsent.get();
        if unsent > 0 {
            backend.counts.own().bytes_in.add(unsent);
        }
        backend.counts.own().end(self.local.here().now().since(begun));
    }

    /// Counts and logs the end of a response that was forwarded.
    pub(super) fn passed_on(
        &self,
        backend: &Backend,
        permit: &ServerPermit,
        ended: &Passed,
        termination: Termination,
    ) {
        let server = permit.server().counts.own();
        let own = termination.cause.is_order() || termination.cause == Cause::Resource;
        if termination.cause != Cause::Normal && !own {
            let b = backend.counts.own();
            let by_client = matches!(termination.cause, Cause::ClientLeft | Cause::ClientSilent);
            let aborts = if by_client {
                [&b.client_aborts, &server.client_aborts]
            } else {
                [&b.server_aborts, &server.server_aborts]
            };
            aborts.into_iter().for_each(|aborts| aborts.add(1));
        }
        self.note(|record| record.ended = termination);
        if let Ok(Ok(Err(Broken::Sender | Broken::Framing(_)))) | Err(Cause::ServerSilent) = ended {
            backend.counts.own().response_errors.add(1);
            server.response_errors.add(1);
            self.count_broken_response();
        }
        if let Ok(Ok(Err(Broken::Framing(_)))) = ended {
            observe(self.local, backend, permit.index(), Observation::BadBody);
        }
    }

    /// Counts a response that rules refused or replaced.
    pub(super) fn response_denied(&self, backend: &Backend) {
        count_in_front!(self.frontend, self.listener, responses_denied);
        backend.counts.own().responses_denied.add(1);
        if let Some(server) = self.last_server(backend) {
            server.counts.own().responses_denied.add(1);
        }
    }

    /// Counts a client that left before there was a response.
    pub(super) fn client_left(&self, backend: &Backend, phase: Phase) {
        backend.counts.own().client_aborts.add(1);
        if matches!(phase, Phase::Headers | Phase::Data)
            && let Some(server) = self.last_server(backend)
        {
            server.counts.own().client_aborts.add(1);
        }
        self.note(|record| record.ended = Termination::new(Cause::ClientLeft, phase));
        count_in_front!(self.frontend, self.listener, request_errors);
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
