//! Forwards bytes in both directions until both ends are done or a timeout expires.

use crate::filters::StreamFilters;
use crate::flow::{
    BodyEnd, Direction, EndFailed, SPLICED_AT_ONCE, Splicing, StreamTimeouts, Timeouts, Waits,
};
use manylane_buf::Chain;
use manylane_io::Io;
use manylane_lanes::{ServerPermit, Timer};
use manylane_net::{Expected, SplicePolicy};
use manylane_plan::Side;
use manylane_plan::{Cause, Phase, Termination};
use manylane_stats::Tally;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Two ends that are joined: bytes pass unchanged in both directions. A stream of HTTP/2 carries them as
/// data.
#[derive(Debug)]
pub(crate) struct Tunnel<'a> {
    io: &'a Io,
    client: BodyEnd<'a>,
    server: BodyEnd<'a>,
    /// Permit of the server.
    permit: &'a ServerPermit,
    timeouts: StreamTimeouts,
    /// Counters of spliced bytes, by direction.
    spliced: Option<[[&'a Tally; 2]; 2]>,
    filters: Option<&'a StreamFilters<'a>>,
}

impl<'a> Tunnel<'a> {
    pub(crate) fn new(
        io: &'a Io,
        (client, server): (BodyEnd<'a>, BodyEnd<'a>),
        permit: &'a ServerPermit,
        timeouts: Timeouts,
    ) -> Self {
        Self {
            io,
            client,
            server,
            permit,
            timeouts: StreamTimeouts::new(timeouts, io.here().now()),
            spliced: None,
            filters: None,
        }
    }

    /// Counts spliced bytes, up and down, in these counters, too.
    pub(crate) fn counting(self, spliced: [[&'a Tally; 2]; 2]) -> Self {
        Self { spliced: Some(spliced), ..self }
    }

    /// Sets the filters that see the bytes.
    pub(crate) fn filtered(self, filters: Option<&'a StreamFilters<'a>>) -> Self {
        Self { filters, ..self }
    }

    /// Returns the number of bytes from the client and to the client.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.timeouts.up.bytes(), self.timeouts.down.bytes())
    }

    /// Forwards until the end. Sends `from_client` to the server first. The other direction begins when
    /// `from_server` is ready. It yields bytes for the client, and true if the direction ends behind them; or
    /// a termination, which ends both directions at once even if it is normal. Calls `count` with the bytes
    /// of each step: up and down.
    pub(crate) async fn forward(
        &self,
        from_client: Chain,
        from_server: impl Future<Output = Result<(Chain, bool), Termination>>,
        splicing: Splicing,
        count: impl Fn(u64, u64),
    ) -> Termination {
        let count = &count;
        let mut up = pin!(self.copy(&self.timeouts.up, (from_client, false), splicing.up, |n| count(n, 0)));
        let mut down = pin!(async {
            let first = from_server.await?;
            self.copy(&self.timeouts.down, first, splicing.down, |n| count(0, n)).await
        });
        let up_ended = Cell::new(false);
        let mut down_ended = false;
        let both = pin!(poll_fn(|context| {
            if !up_ended.get()
                && let Poll::Ready(outcome) = up.as_mut().poll(context)
            {
                match outcome {
                    Ok(()) => up_ended.set(true),
                    Err(ended) => return Poll::Ready(ended),
                }
            }
            if !down_ended && let Poll::Ready(outcome) = down.as_mut().poll(context) {
                down_ended = true;
                if let Err(ended) = outcome {
                    return Poll::Ready(ended);
                }
            }
            if up_ended.get() && down_ended { Poll::Ready(Termination::NORMAL) } else { Poll::Pending }
        }));
        let ended = self.timeouts.over(&Timer::new(self.io.here()), self.permit, both).await;
        // HAProxy's log lines show no phase if an operator or a health check ended the stream.
        let ended = ended.unwrap_or_else(|cause| {
            Termination::new(cause, if cause.is_order() { Phase::Done } else { Phase::Data })
        });
        let is_cut = ended.cause == Cause::Resource && !up_ended.get();
        if (ended.cause == Cause::ClientLeft || is_cut)
            && let Some(server) = self.server.whole()
        {
            server.reset_on_close(); // the server might take the received part for the whole
        }
        ended
    }

    async fn copy(
        &self,
        direction: &Direction,
        (mut chain, only): (Chain, bool),
        policy: Option<SplicePolicy>,
        count: impl Fn(u64),
    ) -> Result<(), Termination> {
        let (from, to) = match direction.sender {
            Side::Client => (self.client, self.server),
            Side::Server => (self.server, self.client),
        };
        let here = self.io.here();
        let sender = |error: EndFailed| failed(direction.sender, &error);
        let receiver = |error: EndFailed| failed(direction.receiver(), &error);
        let filters = self.filters.and_then(|filters| filters.seeing(direction.sender));
        'direction: loop {
            let is_stuck = to.is_stuck(direction, here);
            if let Some(filters) = filters {
                while !chain.is_empty() {
                    let n = filters.pass(direction, chain.len()).await;
                    let full = Termination::new(Cause::Resource, Phase::Data);
                    let mut part = chain.split_to(n).map_err(|_| full)?;
                    filters.forward(&part);
                    to.send(direction, here, &mut part, false).await.map_err(receiver)?;
                    count(n as u64);
                }
            }
            if !chain.is_empty() {
                let n = chain.len() as u64;
                to.send(direction, here, &mut chain, false).await.map_err(receiver)?;
                count(n);
            }
            if is_stuck {
                to.flush(direction, here).await.map_err(receiver)?;
            }
            if only {
                to.flush(direction, here).await.map_err(receiver)?;
                return Err(Termination::NORMAL);
            }
            if let Some(stream) = from.h2() {
                stream.gone_on();
                if stream.is_over() {
                    break;
                }
            }
            let works = || filters.is_some_and(|filters| filters.works(direction.sender));
            let spliced = policy.filter(|_| !works()).and_then(|policy| {
                policy.streams(
                    from.whole()?,
                    to.whole()?,
                    Expected::UntilEnd { forwarded: direction.bytes() },
                )
            });
            if let Some((from, to)) = spliced {
                let mut splicer = self.io.splicer();
                while !works() {
                    direction.waits(Waits::Both, here.now());
                    match splicer.step(from, to, SPLICED_AT_ONCE).await {
                        Ok(0) => break 'direction,
                        Ok(n) => {
                            direction.took(n as u64, here.now());
                            count(n as u64);
                            if let Some([up, down]) = self.spliced {
                                let tallies = if direction.receiver() == Side::Server { up } else { down };
                                tallies.into_iter().for_each(|tally| tally.add(n as u64));
                            }
                        }
                        // Held bytes came from the sender, so the receiver has failed.
                        Err(_) if splicer.held() > 0 => return Err(receiver(EndFailed::default())),
                        Err(_) => return Err(sender(EndFailed::default())),
                    }
                }
                continue; // a rule has started a filter
            }
            let room = to.room(direction, here).await.map_err(receiver)?;
            direction.waits(Waits::Sender, here.now());
            if !from.receive_within_limit(&mut chain, room).await.map_err(sender)? {
                break;
            }
        }
        // With io_uring a send is done before the receiver has all bytes. If this end is closed already, the
        // other direction reports that.
        let _ = to.flush(direction, here).await;
        direction.end(here.now());
        if let Some(filters) = filters {
            filters.end(direction.sender);
        }
        if direction.receiver() == Side::Server
            && to.whole().is_some()
            && self.permit.backend().common.no_linger
        {
            // The server gets a reset instead of an end of stream, and its remaining data is lost.
            return Err(Termination::NORMAL);
        }
        // The other direction continues.
        let _ = to.finish().await;
        Ok(())
    }
}

/// Returns how a stream ends whose `side` has failed.
fn failed(side: Side, error: &EndFailed) -> Termination {
    let cause = match side {
        _ if error.is_memory() => Cause::Resource,
        Side::Client => Cause::ClientLeft,
        Side::Server => Cause::ServerLeft,
    };
    Termination::new(cause, Phase::Data)
}
