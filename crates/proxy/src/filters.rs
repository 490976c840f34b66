//! Filters of a stream: how many of its bytes are forwarded when, and what is traced.
//!
//! A forwarder asks [`StreamFilters`] how many bytes it may forward before it frames them for the receiver,
//! and waits if none may. A stream without filters has no [`StreamFilters`]. A stream with filters is still
//! spliced in a direction that no enabled filter sees; otherwise its bytes pass through here, one read at a
//! time.
//!
//! While bytes wait, no more than one read of them is buffered, and an HTTP/2 stream gets no more window. The
//! other direction and other streams of the connection continue.

use crate::flow::{Direction, Waits};
use manylane_buf::Chain;
use manylane_http::Head;
use manylane_lanes::{Local, Memory, tell_console};
use manylane_plan::Side;
use manylane_plan::generation::{self, Backend, Frontend, TraceFilter};
use manylane_sched::Time;
use std::cell::Cell;
use std::fmt::Write;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The filters of one stream.
#[derive(Debug)]
pub(crate) struct StreamFilters<'a> {
    local: &'a Rc<Local>,
    memory: &'a Memory,
    /// Filters of frontend and backend. Those of a `listen` are stored as the frontend's.
    proxies: [Option<&'a generation::Filters>; 2],
    /// State of the random sizes.
    seed: Cell<u64>,
    http: bool,
}

/// Name of a direction in traces.
fn channel(sender: Side) -> &'static str {
    match sender {
        Side::Client => "REQUEST",
        Side::Server => "RESPONSE",
    }
}

impl<'a> StreamFilters<'a> {
    /// Returns the filters of a stream from `frontend` to `backend`; `None` if there are none.
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

    /// Returns `self` if a filter sees bytes of this side.
    pub(crate) fn seeing(&self, sender: Side) -> Option<&Self> {
        self.proxies.iter().flatten().any(|filters| filters.sees(sender)).then_some(self)
    }

    fn traces(&self) -> impl Iterator<Item = &'a TraceFilter> + Clone {
        self.proxies.iter().flatten().flat_map(|filters| &filters.traces)
    }

    /// Returns true if bytes of this side must pass through here now, because a limit is enabled or a trace
    /// exists.
    pub(crate) fn works(&self, sender: Side) -> bool {
        self.memory.limits.bound(sender) || self.traces().next().is_some()
    }

    /// Returns how many of `there` bytes may be forwarded now, at least one.
    ///
    /// # Errors
    /// If none may: the time of the next attempt.
    pub(crate) fn take(&self, sender: Side, there: usize) -> Result<usize, Time> {
        let mut most = there;
        if there > 1 && self.traces().any(|trace| trace.random_forwarding) {
            // Marsaglia's xorshift; it need not be unpredictable.
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

    /// Waits until at least one of `there` bytes may be forwarded. Returns how many may.
    pub(crate) async fn pass(&self, direction: &Direction, there: usize) -> usize {
        loop {
            match self.take(direction.sender, there) {
                Ok(bytes) => return bytes,
                Err(then) => self.wait(direction, then).await,
            }
        }
    }

    /// Waits until `then`. No timeout ends the stream meanwhile.
    pub(crate) async fn wait(&self, direction: &Direction, then: Time) {
        let here = self.local.here();
        direction.waits(Waits::Filter, here.now());
        here.sleep_until(then).await;
    }

    /// Dumps bytes that are forwarded.
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
        for index in 0..16 {
            let gap = if index == 8 { "  " } else { "" };
            let _ = match bytes.get(index) {
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

    /// Traces a head that is forwarded.
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

    /// Traces the end of a message or a direction.
    pub(crate) fn end(&self, sender: Side) {
        let what = if self.http { "http" } else { "tcp" };
        self.tell(|out| {
            let _ = write!(out, "trace_{what}_end           : channel={}", channel(sender));
        });
    }

    /// Writes a line of each trace to standard error.
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

impl Drop for StreamFilters<'_> {
    fn drop(&mut self) {
        self.tell(|out| out.push_str("trace_stream_stop"));
    }
}
