//! Pages that the program makes itself ([`crate::pages`]): made part by part on a thread of the blocking pool, sent by the lane.

use super::answer::NoAnswer;
use super::exchange::{After, Asking};
use super::{Session, count_status, edit};
use crate::generation::Backend;
use crate::pages::{PART, Page};
use crate::rules::Moment;
use manylane_buf::Chain;
use manylane_h1::{Body, BodyWriter, Connection as Said, Persist, frame_for, set_body, set_connection};
use manylane_http::{Head, Known, Method, Version};
use manylane_sync::Arc;

impl Session<'_> {
    /// Serves a page, whose head says that it is not to be kept.
    pub(super) async fn serve_page(&mut self, asking: &Asking, backend: Option<&Backend>, page: Page, bodyless: bool) -> After {
        let Page { content_type, mut parts } = page;
        let persist = if asking.keep && bodyless { Persist::KeepAlive } else { Persist::Close };
        let (body, persist) = frame_for(Body::Chunked, asking.version, persist);
        let Ok(mut out) = self.page_head(asking, backend, content_type, body, persist) else { return After::Close };
        self.note(|record| record.status = Some(200));
        let mut counted = false;
        let mut writer = BodyWriter::new(body);
        let mut more = asking.method != Method::Head;
        while more {
            // Made before what there is is sent, since most pages have one part only.
            let Ok(making) = self.local.aside().run(move || {
                let mut text = String::with_capacity(PART + PART / 4);
                let more = parts.next(&mut text);
                (parts, text, more)
            }) else {
                return After::Close; // too many pages at once
            };
            let text;
            (parts, text, more) = making.await;
            if !std::mem::replace(&mut counted, true) {
                self.count_page(backend); // what is told does not count itself
            }
            let mut data = Chain::new();
            let written = data.append(text.as_bytes()).is_ok()
                && writer.write(&mut data, &mut out).is_ok()
                && (more || writer.end(None, &mut out).is_ok());
            if !written || !self.send_part(&mut out).await {
                return After::Close;
            }
        }
        if !counted {
            self.count_page(backend);
        }
        let sent = out.is_empty() || self.send_part(&mut out).await;
        if sent && persist == Persist::KeepAlive {
            return After::KeepAlive;
        }
        if sent {
            self.send_last(&mut Chain::new()).await;
        }
        After::Close
    }

    fn count_page(&self, backend: Option<&Backend>) {
        count_status!(self.frontend.counts.own(), 200);
        if let Some(backend) = backend {
            count_status!(backend.counts.own(), 200);
        }
    }

    fn page_head(
        &self,
        asking: &Asking,
        backend: Option<&Backend>,
        content_type: &str,
        body: Body,
        persist: Persist,
    ) -> Result<Chain, NoAnswer> {
        let mut head = Head::response(Version::HTTP_11, 200, None).map_err(|_| NoAnswer)?;
        head.add_field(Known::CACHE_CONTROL, b"no-cache")
            .and_then(|()| head.add_field(Known::CONTENT_TYPE, content_type.as_bytes()))
            .and_then(|()| set_body(&mut head, Body::None, body))
            .map_err(|_| NoAnswer)?;
        let own = &self.frontend.rules;
        let of_backend = backend.map(|backend| &backend.rules).filter(|rules| !Arc::ptr_eq(rules, own));
        self.scopes.memory.response.set(Some((head.version(), 200)));
        let moment = Moment { backend, ..Moment::default() };
        self.afterwards(moment, of_backend.into_iter().chain([own]), &mut head).map_err(|_| NoAnswer)?;
        let spellings = self.local.generation.spellings.as_ref().filter(|_| self.frontend.http.spells);
        let mut out = Chain::new();
        set_connection(&mut head, Said::default(), persist)
            .and_then(|()| edit::keep_alive(&mut head, asking.version, persist))
            .and_then(|()| head.emit(&mut out, spellings))
            .map_err(|_| NoAnswer)?;
        Ok(out)
    }

    /// Whether the client took it in its time.
    async fn send_part(&mut self, out: &mut Chain) -> bool {
        let bytes = out.len() as u64;
        self.note(|record| record.down += bytes);
        self.frontend.counts.own().bytes_out.add(bytes);
        self.listener.counts.own().bytes_out.add(bytes);
        let sending = self.client.connection.send(out);
        match self.frontend.timeouts.client {
            None => sending.await.is_ok(),
            Some(time) => matches!(self.local.here().timeout(time, sending).await, Ok(Ok(()))),
        }
    }
}
