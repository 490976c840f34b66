//! Answers that the program makes of what it knows, such as its counters for a monitoring system: who makes them is above this room.

use crate::generation::{Generation, StatsPage};
use manylane_sync::Arc;
use std::fmt;

/// Bytes of a part of a page, about: for each, a lane asks a thread, is woken and calls the system once.
pub const PART: usize = 65_536;

/// Makes pages.
pub trait Pages: Send + Sync + fmt::Debug {
    /// What counters say of `generation`, for Prometheus: `http-request use-service prometheus-exporter`. `query` is what follows the question mark
    /// of the request.
    ///
    /// # Errors
    /// The status of the answer in its place, for a query that asks for nothing that there is.
    fn metrics(&self, generation: &Arc<Generation>, query: &[u8]) -> Result<Page, u16>;

    /// The page of counters: `stats uri`. `asked` is what follows that in the request's target; `admin` tells whether who asks may change servers.
    fn statistics(&self, generation: &Arc<Generation>, page: &Arc<StatsPage>, asked: &[u8], admin: bool) -> Page;
}

/// A page, which is made in parts.
pub struct Page {
    /// `content-type`
    pub content_type: &'static str,
    /// `refresh`: seconds after which a browser asks again.
    pub refresh: Option<u64>,
    /// What is in it.
    pub parts: Box<dyn Parts>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({})", self.content_type)
    }
}

impl<P: Parts + ?Sized> Parts for Box<P> {
    fn next(&mut self, text: &mut String) -> bool {
        (**self).next(text)
    }
}

/// Makes the parts of a page, one after another, on a thread for what takes long.
pub trait Parts: Send {
    /// Appends the next part, of about [`PART`] bytes. Whether there are more.
    fn next(&mut self, text: &mut String) -> bool;
}

/// Has `parts` make the next one: what makes the others, if there are any, and the text. At the end what made them is freed here, on the thread that
/// this runs on: it may hold a row for each of many thousands of servers, which takes longer than a lane has.
pub fn make<P: Parts>(mut parts: P) -> (Option<P>, Vec<u8>) {
    let mut text = String::with_capacity(PART + PART / 4);
    let more = parts.next(&mut text);
    (more.then_some(parts), text.into_bytes())
}
