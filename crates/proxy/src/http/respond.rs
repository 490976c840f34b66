//! Responds in place of a server: makes a response in the form in which its client gets it, and sends it.

use super::answer::{self, Made, NoAnswer};
use super::edit;
use super::pipeline::After;
use super::stream::Stream;
use manylane_buf::Chain;
use manylane_h1::{Body, BodyWriter, Persist, Reader, has_close_option, set_connection, settle_response};
use manylane_http::{Head, Known, Method};
use manylane_plan::generation::{End, TimeoutOf};
use manylane_plan::{Cause, Phase, Termination};
use manylane_rules::{Answer, EvalPhase};
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

impl Stream<'_> {
    /// Sends the response that a rule of the request decided on.
    pub(super) async fn decided(&mut self, head: &Head, end: End, answer: Answer, bodyless: bool) -> After {
        let (cause, phase) = match end {
            End::Answered => (Cause::Local, Phase::Request),
            End::Denied => (Cause::Refused, Phase::Request),
            End::Tarpit => (Cause::Refused, Phase::Tarpit),
        };
        self.note(|record| record.ended = Termination::new(cause, phase));
        match end {
            End::Answered => self.parties().intercepted(),
            End::Denied | End::Tarpit => self.parties().request_denied(),
        }
        if end == End::Tarpit {
            let begun = self.local.here().now();
            let usual = self.backend.map_or(self.frontend.timeouts.tarpit, |backend| backend.timeouts.tarpit);
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
                return self.give(head, answer, false).await;
            }
        }
        self.give(head, answer, bodyless).await
    }

    /// Ends a request that something else ended while a rule waited.
    pub(super) async fn ended(&mut self, head: &Head, cause: Cause) -> After {
        self.fail(head, 503, Termination::new(cause, Phase::Request), false).await
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

    /// Responds in place of a server that failed, or to a request that failed.
    pub(super) async fn fail(
        &mut self,
        head: &Head,
        status: u16,
        ended: Termination,
        bodyless: bool,
    ) -> After {
        self.note(|record| record.ended = ended);
        // In the phase of the headers, a refusal is about the response.
        let was_response = ended.cause == Cause::Refused && ended.phase == Phase::Headers;
        if matches!(ended.cause, Cause::ClientLeft | Cause::ClientSilent | Cause::Refused) && !was_response {
            self.parties().request_error();
        }
        if status == 500 {
            self.parties().internal_error();
        }
        self.answer(head, status, bodyless).await
    }

    /// Sends a response that the proxy makes.
    pub(super) async fn answer(&mut self, head: &Head, status: u16, bodyless: bool) -> After {
        self.give(head, Answer::Usual(status), bodyless).await
    }

    /// Sends a response that a rule or the proxy decided on.
    pub(super) async fn give(&mut self, head: &Head, mut answer: Answer, bodyless: bool) -> After {
        if let Answer::Metrics(query) = &answer {
            let generation = &self.local.generation;
            let page = match (&generation.pages, self.local.begin_page()) {
                (Some(pages), Some(served)) => pages.metrics(generation, query).map(|page| (served, page)),
                _ => Err(503),
            };
            match page {
                Ok(page) => {
                    self.note(|record| record.serves(b"<PROMEX>"));
                    return self.serve_page(page, bodyless).await;
                }
                Err(status) => answer = Answer::Usual(status),
            }
        }
        let mut status = 0;
        let made = self.fitted(head, answer, bodyless, &mut status);
        match made {
            Ok(fitted) => self.send_fitted(status, fitted).await,
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
        head: &Head,
        answer: Answer,
        bodyless: bool,
        status: &mut u16,
    ) -> Result<Fitted, NoAnswer> {
        let frontend = self.frontend;
        let eval = self.eval();
        let backend = self.backend;
        let server = backend.zip(self.server.get()).map(|(backend, index)| &*backend.servers[index.get()]);
        let request = Some(head).filter(|_| !self.gone.get());
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
            Answer::Own(head, body) => answer::sized(head.into_inner(), body)?,
            Answer::Metrics(_) => return Err(NoAnswer), // the page is sent in parts
        };
        let made = head.status();
        let memory = &self.scopes.memory;
        memory.response.set(Some((head.version(), head.status())));
        // Lines that `http-after-response` rules log show the status from before these rules.
        let mut noted = None;
        self.note(|record| noted = record.status.replace(made));
        let edited = self.afterwards(phase, &mut head);
        self.note(|record| record.status = noted);
        edited.map_err(|_| NoAnswer)?;
        // A redirection in place of an error is logged as that error, unless a rule says otherwise.
        if *status == 0 || head.status() != made {
            *status = head.status();
        }
        // A client that asked for a tunnel takes a success for the start of the tunnel, and may have sent
        // tunnel data already, which is not a request. With 407 the client repeats its request with a
        // password.
        let tunnel = self.method == Method::Connect && head.status() != 407;
        // No response follows one whose status a rule set to 1xx.
        let keep = self.keeps()
            && bodyless
            && !tunnel
            && !matches!(*status, 400 | 408)
            && head.status() >= 200
            && !has_close_option(&head);
        let persist = if keep { Persist::KeepAlive } else { Persist::Close };
        set_connection(&mut head, said, persist)
            .and_then(|()| edit::keep_alive(&mut head, self.version, persist))
            .map_err(|_| NoAnswer)?;
        let reader = Reader { version: self.version, method: self.method };
        let framed =
            settle_response(&mut head, Body::Length(body.len() as u64), reader).map_err(|_| NoAnswer)?;
        if framed == Body::None {
            body.clear();
        }
        Ok(Fitted { head, framed, body, keep })
    }

    async fn send_fitted(&mut self, status: u16, fitted: Fitted) -> After {
        let Fitted { head, framed, body, keep } = fitted;
        self.note(|record| record.status = Some(status));
        self.parties().responds(status);
        self.replied.set(true);
        let sent = self.send_answer(head, framed, body, keep, Self::count_own).await;
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
