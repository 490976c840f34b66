//! Forwards bytes in both directions until both ends are done or a timeout expires.

use crate::filters::Filters;
use crate::flow::{Direction, SPLICED_AT_ONCE, Splicing, StreamTimeouts, Timeouts, Waits};
use crate::lane::{ServerPermit, Timer};
use manylane_buf::Chain;
use manylane_io::Io;
use manylane_net::{Connection, Expected, SplicePolicy};
use manylane_plan::Side;
use manylane_plan::{Cause, Phase, Termination};
use manylane_stats::Tally;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Two connections that are joined.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    io: &'a Io,
    client: &'a Connection,
    server: &'a Connection,
    /// Permit of the server.
    permit: &'a ServerPermit,
    watch: StreamTimeouts,
    /// Counters of spliced bytes, by direction.
    spliced: Option<[[&'a Tally; 2]; 2]>,
    filters: Option<&'a Filters<'a>>,
}

/// Reason why a direction broke off.
enum Broken {
    /// One of its ends failed.
    At(Side),
    /// Rules on its content ended the stream.
    Ended(Termination),
}

impl<'a> Pair<'a> {
    pub(crate) fn new(
        io: &'a Io,
        client: &'a Connection,
        server: &'a Connection,
        permit: &'a ServerPermit,
        timeouts: Timeouts,
    ) -> Self {
        Self {
            io,
            client,
            server,
            permit,
            watch: StreamTimeouts::new(timeouts, io.here().now()),
            spliced: None,
            filters: None,
        }
    }

    /// Counts spliced bytes, up and down, in these counters, too.
    pub(crate) fn counting(self, spliced: [[&'a Tally; 2]; 2]) -> Self {
        Self { spliced: Some(spliced), ..self }
    }

    /// Sets the filters that see the bytes.
    pub(crate) fn filtered(self, filters: Option<&'a Filters<'a>>) -> Self {
        Self { filters, ..self }
    }

    /// Returns the number of bytes from the client and to the client.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.watch.up.bytes(), self.watch.down.bytes())
    }

    /// Forwards until the end. Sends `from_client` to the server first. The other direction begins when
    /// `from_server` is ready: with bytes for the client and whether to end behind them, or with the
    /// termination of the whole stream. Calls `count` with the bytes of each step: up and down.
    pub(crate) async fn forward(
        &self,
        from_client: Chain,
        from_server: impl Future<Output = Result<(Chain, bool), Termination>>,
        splicing: Splicing,
        count: impl Fn(u64, u64),
    ) -> Termination {
        let count = &count;
        let mut up = pin!(self.way(&self.watch.up, (from_client, false), splicing.up, |n| count(n, 0)));
        let mut down = pin!(async {
            let first = from_server.await.map_err(Broken::Ended)?;
            self.way(&self.watch.down, first, splicing.down, |n| count(0, n)).await
        });
        let (mut up_ended, mut down_ended) = (false, false);
        let both = pin!(poll_fn(|context| {
            if !up_ended && let Poll::Ready(outcome) = up.as_mut().poll(context) {
                up_ended = true;
                if let Err(broken) = outcome {
                    return Poll::Ready(self.left(broken));
                }
            }
            if !down_ended && let Poll::Ready(outcome) = down.as_mut().poll(context) {
                down_ended = true;
                if let Err(broken) = outcome {
                    return Poll::Ready(self.left(broken));
                }
            }
            if up_ended && down_ended { Poll::Ready(Termination::NORMAL) } else { Poll::Pending }
        }));
        let ended = self.watch.over(&Timer::new(self.io.here()), self.permit, both).await;
        // HAProxy's log lines show no phase if an operator or a health check ended the stream.
        ended.unwrap_or_else(|cause| {
            Termination::new(cause, if cause.is_order() { Phase::Done } else { Phase::Data })
        })
    }

    async fn way(
        &self,
        way: &Direction,
        (mut chain, only): (Chain, bool),
        policy: Option<SplicePolicy>,
        count: impl Fn(u64),
    ) -> Result<(), Broken> {
        let (from, to) = match way.sender {
            Side::Client => (self.client, self.server),
            Side::Server => (self.server, self.client),
        };
        let here = self.io.here();
        let filters = self.filters.and_then(|filters| filters.seeing(way.sender));
        'way: loop {
            if let Some(filters) = filters {
                while !chain.is_empty() {
                    let n = filters.pass(way, chain.len()).await;
                    let full = Termination::new(Cause::Resource, Phase::Data);
                    let mut part = chain.split_to(n).map_err(|_| Broken::Ended(full))?;
                    filters.forward(&part);
                    way.send(here, to, &mut part).await.map_err(|_| Broken::At(way.receiver()))?;
                    count(n as u64);
                }
            }
            if !chain.is_empty() {
                let n = chain.len() as u64;
                way.send(here, to, &mut chain).await.map_err(|_| Broken::At(way.receiver()))?;
                count(n);
            }
            if only {
                way.flush(here, to).await.map_err(|_| Broken::At(way.receiver()))?;
                return Err(Broken::Ended(Termination::NORMAL));
            }
            let works = || filters.is_some_and(|filters| filters.works(way.sender));
            let spliced = policy
                .filter(|_| !works())
                .and_then(|policy| policy.streams(from, to, Expected::UntilEnd { forwarded: way.bytes() }));
            if let Some((from, to)) = spliced {
                let mut splicer = self.io.splicer();
                while !works() {
                    way.waits(Waits::Both, here.now());
                    match splicer.step(from, to, SPLICED_AT_ONCE).await {
                        Ok(0) => break 'way,
                        Ok(n) => {
                            way.took(n as u64, here.now());
                            count(n as u64);
                            if let Some([up, down]) = self.spliced {
                                let tallies = if way.receiver() == Side::Server { up } else { down };
                                tallies.into_iter().for_each(|tally| tally.add(n as u64));
                            }
                        }
                        // Held bytes came from the sender, so the receiver has failed.
                        Err(_) if splicer.held() > 0 => return Err(Broken::At(way.receiver())),
                        Err(_) => return Err(Broken::At(way.sender)),
                    }
                }
                continue; // a rule has started a filter
            }
            way.waits(Waits::Sender, here.now());
            match from.recv_chain_within_limit(&mut chain, way.room()).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Err(Broken::At(way.sender)),
            }
        }
        // With io_uring a send is done before the receiver has all bytes. If this end is closed already, the
        // other direction reports that.
        let _ = way.flush(here, to).await;
        way.end(here.now());
        if let Some(filters) = filters {
            filters.end(way.sender);
        }
        if way.receiver() == Side::Server && self.permit.backend().common.no_linger {
            // The server gets a reset instead of an end of stream, and its remaining data is lost.
            return Err(Broken::Ended(Termination::NORMAL));
        }
        // The other direction continues.
        let _ = to.finish().await;
        Ok(())
    }

    fn left(&self, broken: Broken) -> Termination {
        let cause = match broken {
            Broken::At(Side::Client) => {
                self.server.reset_on_close(); // the server might take the received part for the whole
                Cause::ClientLeft
            }
            Broken::At(Side::Server) => Cause::ServerLeft,
            Broken::Ended(ended) => return ended,
        };
        Termination::new(cause, Phase::Data)
    }
}
