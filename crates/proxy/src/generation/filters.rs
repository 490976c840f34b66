//! Filters of proxies: what rules and streams find of the `filter` lines.

use super::refuse::Refuse;
use super::stick;
use crate::flow::{Bandwidth, FilterId, Side};
use manylane_config::tree::{self, Config, Proxy};

/// The filters of a proxy, in the file's order.
#[derive(Debug, Default)]
pub struct Filters {
    limits: Vec<BandwidthFilter>,
    /// `filter trace`
    pub(crate) traces: Vec<TraceFilter>,
}

/// `filter bwlim-in` and `filter bwlim-out`: it is idle until a rule puts it to work.
#[derive(Debug)]
pub(crate) struct BandwidthFilter {
    name: Box<[u8]>,
    pub(crate) id: FilterId,
    /// Whose bytes it bounds.
    pub(crate) sender: Side,
    pub(crate) usual: Bandwidth,
    /// Streams share the limit, in a period of the table's.
    pub(super) shared: Option<tree::SharedLimit>,
}

/// `filter trace`
#[derive(Debug)]
pub(crate) struct TraceFilter {
    /// What its lines begin with: its name and that of the proxy.
    pub(crate) label: Box<str>,
    /// Bytes go on in pieces of random size.
    pub(crate) random_forwarding: bool,
    /// Tells the bytes themselves.
    pub(crate) hexdump: bool,
    /// Tells nothing.
    pub(crate) quiet: bool,
}

impl Filters {
    /// Those of a proxy with this number. What is wrong with them is reported.
    pub(super) fn of(proxy: &Proxy, number: u32, config: &Config, refuse: &mut Refuse<'_>) -> Self {
        let mut filters = Self::default();
        for (index, filter) in (0..).zip(&proxy.filters) {
            match filter {
                tree::Filter::Bandwidth(tree::BandwidthLimit {
                    name,
                    incoming,
                    limit,
                    period,
                    shared,
                    min_size,
                    pos,
                }) => {
                    let period = match shared {
                        None => Some(*period),
                        Some(shared) => {
                            stick::period(config, proxy, (shared, *incoming), (name, *pos), refuse)
                        }
                    };
                    let Some(period) = period else { continue };
                    filters.limits.push(BandwidthFilter {
                        name: name.bytes().into(),
                        id: FilterId { proxy: number, index },
                        sender: if *incoming { Side::Client } else { Side::Server },
                        usual: Bandwidth { limit: *limit, period, min_size: *min_size },
                        shared: shared.clone(),
                    });
                }
                tree::Filter::Trace(tree::TraceFilter { name, random_forwarding, hexdump, quiet }) => {
                    filters.traces.push(TraceFilter {
                        label: format!("{}/{}", name.shown(), proxy.name.shown()).into(),
                        random_forwarding: *random_forwarding,
                        hexdump: *hexdump,
                        quiet: *quiet,
                    });
                }
            }
        }
        filters
    }

    /// The filter of this name that rules put to work.
    pub(super) fn limit(&self, name: &[u8]) -> Option<&BandwidthFilter> {
        self.limits.iter().find(|filter| *filter.name == *name)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.traces.is_empty() && self.limits.is_empty()
    }

    /// Whether there is one for bytes of this side.
    pub(crate) fn sees(&self, sender: Side) -> bool {
        !self.traces.is_empty() || self.limits.iter().any(|filter| filter.sender == sender)
    }
}
