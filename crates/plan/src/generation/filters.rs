//! `filter` lines of proxies.

use super::bandwidth::{Bandwidth, FilterId};
use super::refuse::Refuse;
use super::stick;
use crate::side::Side;
use manylane_config::tree::{self, Config, Proxy};

/// The filters of a proxy, in the order of the file.
#[derive(Debug, Default)]
pub struct Filters {
    limits: Vec<BandwidthFilter>,
    /// `filter trace`
    pub traces: Vec<TraceFilter>,
}

/// `filter bwlim-in`, `filter bwlim-out`: limits a stream after a rule has enabled it.
#[derive(Debug)]
pub(crate) struct BandwidthFilter {
    name: Box<[u8]>,
    pub(crate) id: FilterId,
    /// The side whose bytes are limited.
    pub(crate) sender: Side,
    pub(crate) usual: Bandwidth,
    /// Set if streams share the limit; the stick table then gives the period.
    pub(super) shared: Option<tree::SharedLimit>,
}

/// `filter trace`
#[derive(Debug)]
pub struct TraceFilter {
    /// Prefix of its lines: names of the filter and the proxy.
    pub label: Box<str>,
    /// Forward data in pieces of random size.
    pub random_forwarding: bool,
    /// Print the data, too.
    pub hexdump: bool,
    /// Print nothing.
    pub quiet: bool,
}

impl Filters {
    /// Returns the filters of proxy `number`. Reports their errors.
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

    /// Returns the bandwidth filter with this name.
    pub(super) fn limit(&self, name: &[u8]) -> Option<&BandwidthFilter> {
        self.limits.iter().find(|filter| *filter.name == *name)
    }

    /// Returns true if there are no filters.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.traces.is_empty() && self.limits.is_empty()
    }

    /// Returns true if a filter sees the bytes of this side.
    #[inline]
    pub fn sees(&self, sender: Side) -> bool {
        !self.traces.is_empty() || self.limits.iter().any(|filter| filter.sender == sender)
    }
}
