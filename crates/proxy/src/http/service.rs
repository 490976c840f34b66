//! Serves pages that the program makes itself ([`crate::pages`]). A thread of the blocking pool makes them
//! part by part, and the lane sends the parts.

use super::administer::{Formed, formed, is_of_another_site};
use super::answer::NoAnswer;
use super::edit;
use super::pipeline::After;
use super::pump::Pump;
use super::stream::Stream;
use manylane_buf::{Chain, External};
use manylane_config::table::Ruleset;
use manylane_expr::basic;
use manylane_h1::{
    Body, Connection as Said, Persist, Reader, Request, frame_for, has_close_option, set_body,
    set_connection, settle_response,
};
use manylane_http::{Head, Known, Method, Version};
use manylane_lanes::PageServed;
use manylane_plan::generation::pages::Page;
use manylane_plan::generation::{End, StatsPage};
use manylane_plan::{Cause, Phase, Termination};
use manylane_rules::{EvalPhase, Verdict, Walk, any_holds, apply, challenge, see_other};
use manylane_sync::Arc;
use std::pin::pin;
use std::time::Duration;

impl Stream<'_> {
    /// Serves the statistics page to a client that may see it.
    pub(super) async fn statistics(
        &mut self,
        request: &mut Request,
        up: &mut Pump,
        page: &Arc<StatsPage>,
    ) -> After {
        let rules = self.backend.map_or(&self.frontend.rules, |backend| &backend.rules);
        let mut walk = Walk::new(Ruleset::HttpRequest, &rules.stats_request);
        let outcome = loop {
            let phase = EvalPhase { backend: self.backend, ..EvalPhase::default() };
            match apply(&self.eval(), phase, &mut walk, Some(&mut request.head)) {
                Verdict::Turn => self.local.here().yield_now().await,
                outcome => break outcome,
            }
        };
        if let Verdict::Answer(end, answer) = outcome {
            let bodyless = self.ends_soon(up);
            if end == End::Denied {
                self.note(|record| record.serves(b"<STATS>"));
                return self.decided(&request.head, end, answer, bodyless).await;
            }
            self.serves_statistics();
            return self.give(&request.head, answer, bodyless).await;
        }
        self.serves_statistics();
        if !page.users.is_empty() && !self.may_see(page, &request.head) {
            let bodyless = self.ends_soon(up);
            return self.give(&request.head, challenge(&page.realm, false), bodyless).await;
        }
        let admin = any_holds(&self.eval(), self.phase(&request.head), &rules.stats_admin);
        if self.method == Method::Post {
            return self.form(request, up, (page, admin)).await;
        }
        let bodyless = self.ends_soon(up);
        let generation = self.local.generation.clone();
        let (Some(pages), Some(served)) = (&generation.pages, self.local.begin_page()) else {
            return self.answer(&request.head, 503, bodyless).await;
        };
        let query = page.behind_uri(&request.head).unwrap_or_default();
        let made = pages.statistics(&generation, page, query, admin);
        self.serve_page((served, made), bodyless).await
    }

    /// Counts and logs that the proxy responds with the page.
    fn serves_statistics(&self) {
        self.parties().intercepted();
        self.note(|record| {
            record.ended = Termination::new(Cause::Local, Phase::Request);
            record.serves(b"<STATS>");
        });
    }

    /// Carries out a form of the page, if its client may, and redirects to the page with the result.
    async fn form(
        &mut self,
        request: &mut Request,
        up: &mut Pump,
        (page, admin): (&StatsPage, bool),
    ) -> After {
        if let Err(not) = self.await_body(request, up, None, 0).await {
            return self.no_body(&request.head, not).await;
        }
        let may = admin && !is_of_another_site(&request.head);
        // A copy of early data must not change a server.
        if may && let Err(not) = self.await_handshake().await {
            return self.no_body(&request.head, not).await;
        }
        let result = match (may, up.is_done()) {
            (false, _) => Formed::Denied,
            (true, false) => Formed::TooLarge,
            (true, true) => {
                let bytes = up.data().to_vec();
                formed(self.local, page, &bytes).await
            }
        };
        self.note(|record| record.response = Some(Duration::ZERO));
        let mut location = page.uri.to_vec();
        location.extend_from_slice(b";st=");
        location.extend_from_slice(result.word().as_bytes());
        let query = page.behind_uri(&request.head).unwrap_or_default();
        for word in [&b";up"[..], b";no-maint", b";norefresh"] {
            if query.windows(word.len()).any(|part| part == word) {
                location.extend_from_slice(word);
            }
        }
        match see_other(&location) {
            Ok(answer) => {
                let bodyless = self.ends_soon(up);
                self.give(&request.head, answer, bodyless).await
            }
            Err(_) => After::Close,
        }
    }

    fn may_see(&self, page: &StatsPage, head: &Head) -> bool {
        let mut memory = self.local.memory.borrow_mut();
        let mut scratch = memory.scratch();
        basic(head, &mut scratch).is_some_and(|(user, password)| {
            page.users.iter().any(|(own, secret)| **own == *user && **secret == *password)
        })
    }

    /// Serves a page; its head forbids caching.
    pub(super) async fn serve_page(&mut self, (_served, page): (PageServed, Page), bodyless: bool) -> After {
        let persist = if self.keeps() && bodyless { Persist::KeepAlive } else { Persist::Close };
        let (body, persist) = frame_for(Body::Chunked, self.version, persist);
        let made = self.page_head((page.content_type, page.refresh), body, persist);
        let Ok((mut out, body, persist)) = made else { return After::Close };
        self.note(|record| record.response = Some(Duration::ZERO));
        let mut counted = false;
        let chunked = body == Body::Chunked && self.client.end.h2().is_none();
        let mut left = (body != Body::None).then(|| page.writer(chunked));
        while let Some(page) = left {
            // The first part is made before the head is sent, so that both leave together: most pages have no
            // other part.
            let Ok(making) = page.turn() else {
                return After::Close; // the system has no thread
            };
            let turn = making.await;
            if !std::mem::replace(&mut counted, true) {
                self.parties().responds(200); // the page itself does not contain its own request
            }
            left = turn.left;
            self.count_sent(turn.sent);
            // The text is sent from the memory in which it was made.
            let written = !turn.gone && push(turn.rest, turn.begin, &mut out).is_ok();
            if !written || !self.send_part(&mut out).await || (left.is_some() && !self.flush_part().await) {
                return After::Close;
            }
            if let Some(page) = &mut left
                && let Some(connection) = self.client.end.whole()
            {
                page.write_to(connection);
            }
        }
        if !counted {
            self.parties().responds(200);
        }
        let sent = out.is_empty() || self.send_part(&mut out).await;
        if let Some(stream) = self.client.end.h2() {
            let sent = sent && (body == Body::None || self.in_time(stream.send(&mut out, true, || ())).await);
            return if sent { After::KeepAlive } else { After::Close };
        }
        if sent && persist == Persist::KeepAlive {
            return After::KeepAlive;
        }
        if sent {
            self.send_last(&mut Chain::new()).await;
        }
        After::Close
    }

    fn page_head(
        &self,
        (content_type, refresh): (&str, Option<u64>),
        body: Body,
        persist: Persist,
    ) -> Result<(Chain, Body, Persist), NoAnswer> {
        let mut head = Head::response(Version::HTTP_11, 200, None).map_err(|_| NoAnswer)?;
        head.add_field(Known::CACHE_CONTROL, b"no-cache")
            .and_then(|()| head.add_field(Known::CONTENT_TYPE, content_type.as_bytes()))
            .and_then(|()| match refresh {
                Some(seconds) => head.add_field(b"refresh", seconds.to_string().as_bytes()),
                None => Ok(()),
            })
            .and_then(|()| set_body(&mut head, Body::None, body))
            .map_err(|_| NoAnswer)?;
        self.scopes.memory.response.set(Some((head.version(), 200)));
        let phase = EvalPhase { backend: self.backend, ..EvalPhase::default() };
        self.afterwards(phase, &mut head).map_err(|_| NoAnswer)?;
        let persist = if has_close_option(&head) { Persist::Close } else { persist };
        let spellings = self.local.generation.spellings.as_ref().filter(|_| self.frontend.http.spells);
        let mut out = Chain::new();
        set_connection(&mut head, Said::default(), persist)
            .and_then(|()| edit::keep_alive(&mut head, self.version, persist))
            .map_err(|_| NoAnswer)?;
        let reader = Reader { version: self.version, method: self.method };
        let body = settle_response(&mut head, body, reader).map_err(|_| NoAnswer)?;
        let apart = self.client.end.send_head(&mut head, spellings, body == Body::None, &mut out);
        self.count_sent(apart.map_err(|_| NoAnswer)?);
        self.note(|record| record.status = Some(head.status()));
        Ok((out, body, persist))
    }

    /// Sends bytes of a page. Returns true if the client took them in time.
    async fn send_part(&mut self, out: &mut Chain) -> bool {
        if out.is_empty() {
            return true;
        }
        self.count_sent(out.len() as u64);
        match self.client.end.h2() {
            Some(stream) => self.in_time(stream.send(out, false, || ())).await,
            None => self.send(out).await,
        }
    }

    /// Sends the bytes that the kernel has not taken yet. Returns true if the client took them in time.
    async fn flush_part(&self) -> bool {
        let Some(connection) = self.client.end.whole() else { return true }; // a stream holds no such bytes
        let timeouts = self.client_timeouts();
        let flushing = pin!(timeouts.down.flush(self.local.here(), connection));
        matches!(timeouts.in_time(self.timer, flushing).await, Ok(Ok(())))
    }

    fn count_sent(&self, bytes: u64) {
        if bytes > 0 {
            self.replied.set(true);
            self.count_own(bytes);
        }
    }
}

/// Appends the text that a thread made to `out`.
fn push(made: Vec<u8>, begin: usize, out: &mut Chain) -> Result<(), NoAnswer> {
    if begin == made.len() {
        return Ok(());
    }
    let all = External::from_vec(made).map_err(|_| NoAnswer)?;
    let segment = all.slice(begin..all.len()).map_err(|_| NoAnswer)?;
    out.push_back(segment).map_err(|_| NoAnswer)
}
