//! `show events`: lists the rings, or shows one ring's present lines, new lines, or both.

use super::Call;
use crate::reply::{Reply, ReplyError};
use manylane_logs::{RING_PART, RingReader};
use std::fmt::Write;

/// A ring that a client reads.
#[derive(Debug)]
pub(crate) struct Events {
    reader: RingReader,
    /// `-0`: each line ends with NUL.
    ends_with_nul: bool,
}

pub(super) async fn show(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let rings = &call.generation.logs.rings;
    let name = call.word(0);
    if name.is_empty() {
        call.reply.put("Rings, and what they are for; 'show events <ring>' shows what one holds.\n");
        for ring in rings {
            let _ = writeln!(call.reply, "    {:<10} : type=buffer, {}", ring.name(), ring.description());
            call.reply.breathe().await?;
        }
        return Ok(());
    }
    let Some(ring) = rings.iter().find(|ring| ring.name() == name) else {
        call.error("No such event sink");
        return Ok(());
    };
    let (mut waits, mut new, mut ends_with_nul) = (false, false, false);
    for option in call.words.iter().skip(1).filter(|word| !word.is_empty()) {
        match &**option {
            "-w" => waits = true,
            "-n" => new = true,
            "-wn" | "-nw" => (waits, new) = (true, true),
            "-0" => ends_with_nul = true,
            _ => {
                call.error(
                    "unknown option; -w waits for new events, -n begins with these, -0 ends each with NUL.",
                );
                return Ok(());
            }
        }
    }
    let mut events = Events { reader: ring.reader(new), ends_with_nul };
    if !new {
        rest(&mut events, call.reply).await?;
    }
    call.settings.events = waits.then_some(events);
    Ok(())
}

/// Shows the lines that the ring holds now. Lines that arrive later are left out, so the loop ends.
async fn rest(events: &mut Events, reply: &mut Reply<'_>) -> Result<(), ReplyError> {
    let mut bytes = Vec::with_capacity(RING_PART);
    let mut left = None;
    loop {
        let read = events.reader.read(&mut bytes);
        if events.ends_with_nul {
            bytes.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = 0);
        }
        reply.put(&String::from_utf8_lossy(&bytes));
        bytes.clear();
        // Lines that were overwritten meanwhile are no longer due.
        let before: u64 = left.unwrap_or(u64::MAX);
        let more = before.saturating_sub(read.lines + read.missed).min(read.left);
        if read.lines == 0 || more == 0 {
            return Ok(());
        }
        left = Some(more);
        reply.breathe().await?;
    }
}

/// Shows lines as they arrive, until `stop` completes: the client has sent something, or is gone.
pub(crate) async fn follow(
    mut events: Events,
    reply: &mut Reply<'_>,
    stop: impl Future<Output = ()>,
) -> Result<(), ReplyError> {
    let mut stop = std::pin::pin!(stop);
    loop {
        rest(&mut events, reply).await?;
        reply.yield_now().await?; // lines may arrive as fast as the client reads them
        let more = std::future::poll_fn(|context| {
            if stop.as_mut().poll(context).is_ready() {
                return std::task::Poll::Ready(false);
            }
            events.reader.poll_lines(context).map(|()| true)
        });
        if !more.await {
            return Ok(());
        }
    }
}
