//! The filters of a stream at work: how many of its bytes go on when, and what is told of them.
//!
//! Whoever forwards bytes of a stream asks [`Filters`], before they are framed for their receiver, how many
//! may go on, and waits where none may. A stream whose proxies have no filter has no [`Filters`], and is
//! forwarded as if there were none. One that has them, but none at work for a direction, is spliced like
//! others; else its bytes come through here, as many as are read at once.
//!
//! What waits is held by its sender: no more is read of it meanwhile than went into one read, and a stream of
//! HTTP/2 gets no room for more. The other direction, and other streams of a connection, go on.

use crate::flow::{Direction, Side, Waits};
use crate::generation::{self, Backend, Frontend, TraceFilter};
use crate::rules::Memory;
use crate::run::{Local, tell_console};
use manylane_buf::Chain;
use manylane_http::Head;
use manylane_sched::Time;
use std::cell::Cell;
use std::fmt::Write;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The filters of a stream.
#[derive(Debug)]
pub(crate) struct Filters<'a> {
    local: &'a Rc<Local>,
    memory: &'a Memory,
    /// Of its frontend and its backend. Those of a `listen` are the frontend's.
    proxies: [Option<&'a generation::Filters>; 2],
    /// For pieces of random size.
    seed: Cell<u64>,
    http: bool,
}

/// What a message is called in traces.
fn channel(sender: Side) -> &'static str {
    match sender {
        Side::Client => "REQUEST",
        Side::Server => "RESPONSE",
    }
}

impl<'a> Filters<'a> {
    /// Those of a stream that goes from `frontend` to `backend`, if there are any.
    pub(crate) fn of(
        local: &'a Rc<Local>,
        (frontend, backend): (&'a Frontend, &'a Backend),
        memory: &'a Memory,
        http: bool,
    ) -> Option<Self> {
        let own = &*backend.filters;
        let proxies = [
            Some(&*frontend.filters).filter(|filters| !filters.is_empty()),
            Some(own).filter(|own| !own.is_empty() && !std::ptr::eq(*own, &*frontend.filters)),
        ];
        if proxies.iter().all(Option::is_none) {
            return None;
        }
        let seed = Cell::new(local.here().now().as_nanos() | 1);
        let filters = Self { local, memory, proxies, seed, http };
        filters.tell(|out| {
            let _ = write!(
                out,
                "trace_stream_start       : frontend={} - backend={}",
                frontend.name, backend.name
            );
        });
        Some(filters)
    }

    /// These, if one of them sees bytes of this side.
    pub(crate) fn seeing(&self, sender: Side) -> Option<&Self> {
        self.proxies.iter().flatten().any(|filters| filters.sees(sender)).then_some(self)
    }

    fn traces(&self) -> impl Iterator<Item = &'a TraceFilter> + Clone {
        self.proxies.iter().flatten().flat_map(|filters| &filters.traces)
    }

    /// Whether bytes of this side have to come through here now: rules put limits to work.
    pub(crate) fn works(&self, sender: Side) -> bool {
        self.memory.limits.bound(sender) || self.traces().next().is_some()
    }

    /// How many of `there` bytes go on now: at least one.
    ///
    /// # Errors
    /// None may. When it is to be asked again.
    pub(crate) fn take(&self, sender: Side, there: usize) -> Result<usize, Time> {
        let mut most = there;
        if there > 1 && self.traces().any(|trace| trace.random_forwarding) {
            // Marsaglia's xorshift: nobody gains by guessing it.
            let mut seed = self.seed.get();
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            self.seed.set(seed);
            most = 1 + (seed % there as u64) as usize; // below `there`
        }
        let bytes = self.memory.limits.take(sender, most, self.local.here().now())?;
        self.tell(|out| {
            let what = if self.http { "http" } else { "tcp" };
            let _ = write!(
                out,
                "trace_{what}_payload       : channel={:<10} - len={there} - forward={bytes}",
                channel(sender)
            );
        });
        Ok(bytes)
    }

    /// Waits until some of `there` bytes go on, at least one: how many.
    pub(crate) async fn pass(&self, way: &Direction, there: usize) -> usize {
        loop {
            match self.take(way.sender, there) {
                Ok(bytes) => return bytes,
                Err(then) => self.wait(way, then).await,
            }
        }
    }

    /// Waits until then. No timeout ends the stream meanwhile.
    pub(crate) async fn wait(&self, way: &Direction, then: Time) {
        let here = self.local.here();
        way.waits(Waits::Filter, here.now());
        here.sleep_until(then).await;
    }

    /// Bytes go on.
    pub(crate) fn forward(&self, bytes: &Chain) {
        if !self.traces().any(|trace| trace.hexdump && !trace.quiet) {
            return;
        }
        let mut at = 0;
        let mut line = [0; 16];
        let mut filled = 0;
        for byte in bytes.segments().flat_map(|segment| segment.iter()) {
            line[filled] = *byte;
            filled += 1;
            if filled == line.len() {
                self.dump(at, &line);
                (at, filled) = (at + filled, 0);
            }
        }
        if filled > 0 {
            self.dump(at, &line[..filled]);
        }
    }

    fn dump(&self, at: usize, bytes: &[u8]) {
        let mut text = format!("\t{at:#08x}: ");
        for place in 0..16 {
            let gap = if place == 8 { "  " } else { "" };
            let _ = match bytes.get(place) {
                Some(byte) => write!(text, "{gap}{byte:02x} "),
                None => write!(text, "{gap}   "),
            };
        }
        let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' };
        text.push_str("  |");
        text.extend(bytes.iter().map(shown));
        text.push('|');
        tell_console(self.local, &text);
    }

    /// The head of a message goes on.
    pub(crate) fn head(&self, sender: Side, head: &Head) {
        self.tell(|out| {
            let _ = write!(out, "trace_http_headers       : channel={:<10}\t", channel(sender));
            let _ = match sender {
                Side::Client => write!(
                    out,
                    "{} {}",
                    String::from_utf8_lossy(head.method()),
                    String::from_utf8_lossy(head.target())
                ),
                Side::Server => write!(out, "{}", head.status()),
            };
        });
        for field in head.fields() {
            self.tell(|out| {
                let (name, value) =
                    (String::from_utf8_lossy(field.name), String::from_utf8_lossy(field.value));
                let _ = write!(out, "\t{name}: {value}");
            });
        }
    }

    /// All of a message, or of a direction, has gone on.
    pub(crate) fn end(&self, sender: Side) {
        let what = if self.http { "http" } else { "tcp" };
        self.tell(|out| {
            let _ = write!(out, "trace_{what}_end           : channel={}", channel(sender));
        });
    }

    /// A line of each trace on standard error.
    fn tell(&self, what: impl Fn(&mut String)) {
        for trace in self.traces().filter(|trace| !trace.quiet) {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let (number, lane) = (self.memory.number.get(), self.local.here().lane().index());
            let mut line = format!(
                "{}.{:06} [{:<20}] [strm {number}({lane})] ",
                time.as_secs(),
                time.subsec_micros(),
                trace.label
            );
            what(&mut line);
            tell_console(self.local, &line);
        }
    }
}

impl Drop for Filters<'_> {
    fn drop(&mut self) {
        self.tell(|out| out.push_str("trace_stream_stop"));
    }
}
