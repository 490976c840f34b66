//! The topology of virtual cores, with their distances.

use crate::cost::{self, Costs, Picoseconds};
use std::fmt;

/// Maximum number of cores of a virtual machine.
pub const MAX_CORES: usize = 256;

/// Shape and costs of a machine: sockets of complexes of cores of threads.
///
/// "Core" in this crate means the system's processor: a hardware thread. Cores are numbered in this order:
/// the first threads of all cores of socket 0, of socket 1, ..., then the second threads in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    name: &'static str,
    sockets: usize,
    complexes: usize,
    cores: usize,
    threads: usize,
    costs: Costs,
}

/// Error: a shape out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTopology {
    /// The requested number of cores.
    pub cores: usize,
}

impl fmt::Display for BadTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a virtual machine with {} cores was asked for: choose sockets, complexes, cores and threads \
             whose product is from 1 to {MAX_CORES}",
            self.cores
        )
    }
}

impl std::error::Error for BadTopology {}

/// Distance of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Between the threads of one core, which share its caches.
    SameCore,
    /// Between cores that share a last-level cache.
    SameComplex,
    /// Between complexes of one socket.
    SameSocket,
    /// Between sockets.
    OtherSocket,
}

impl Topology {
    /// Two sockets of 24 cores with two threads each, 96 cores in all: the default.
    pub fn two_sockets_24x2() -> Self {
        Self {
            name: "2 sockets x 24 cores x 2 threads",
            sockets: 2,
            complexes: 1,
            cores: 24,
            threads: 2,
            costs: cost::TWO_SOCKETS,
        }
    }

    /// One socket of 64 cores in eight complexes, one thread each.
    pub fn one_socket_64() -> Self {
        Self {
            name: "1 socket x 8 complexes x 8 cores",
            sockets: 1,
            complexes: 8,
            cores: 8,
            threads: 1,
            costs: cost::ONE_SOCKET_64,
        }
    }

    /// A virtual machine with two cores: the one of `VALIDATION.md`.
    pub fn small_vm() -> Self {
        Self {
            name: "virtual machine of 2 cores",
            sockets: 1,
            complexes: 1,
            cores: 2,
            threads: 1,
            costs: cost::SMALL_VM,
        }
    }

    /// A machine of another shape: `sockets`, complexes in each, cores in each complex, threads in each core.
    ///
    /// # Errors
    /// [`BadTopology`] if the product is not from 1 to [`MAX_CORES`].
    pub fn new(
        sockets: usize,
        complexes: usize,
        cores: usize,
        threads: usize,
        costs: Costs,
    ) -> Result<Self, BadTopology> {
        let total = sockets.saturating_mul(complexes).saturating_mul(cores).saturating_mul(threads);
        if !(1..=MAX_CORES).contains(&total) {
            return Err(BadTopology { cores: total });
        }
        Ok(Self { name: "custom", sockets, complexes, cores, threads, costs })
    }

    /// Returns the machine's costs.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Returns the shape in words.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> usize {
        self.sockets * self.complexes * self.cores * self.threads
    }

    /// Returns the distance from core `a` to core `b`.
    pub fn distance(&self, a: usize, b: usize) -> Distance {
        let physical = self.sockets * self.complexes * self.cores;
        let (a, b) = (a % physical, b % physical);
        let complex = |core: usize| core / self.cores;
        let socket = |core: usize| core / (self.cores * self.complexes);
        if a == b {
            Distance::SameCore
        } else if complex(a) == complex(b) {
            Distance::SameComplex
        } else if socket(a) == socket(b) {
            Distance::SameSocket
        } else {
            Distance::OtherSocket
        }
    }

    /// Returns the cost of a transfer over `distance`, or from memory for `None`.
    pub(crate) fn latency(&self, distance: Option<Distance>) -> Picoseconds {
        match distance {
            Some(Distance::SameCore) => self.costs.same_core,
            Some(Distance::SameComplex) => self.costs.same_complex,
            Some(Distance::SameSocket) => self.costs.same_socket,
            Some(Distance::OtherSocket) => self.costs.other_socket,
            None => self.costs.memory,
        }
    }
}

impl Default for Topology {
    fn default() -> Self {
        Self::two_sockets_24x2()
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_fill_sockets_first_and_siblings_last() {
        let machine = Topology::two_sockets_24x2();
        assert_eq!(machine.cores(), 96);
        assert_eq!(machine.distance(0, 23), Distance::SameComplex);
        assert_eq!(machine.distance(0, 24), Distance::OtherSocket);
        assert_eq!(machine.distance(0, 48), Distance::SameCore);
        assert_eq!(machine.distance(95, 47), Distance::SameCore);
        assert_eq!(Topology::one_socket_64().distance(0, 8), Distance::SameSocket);
    }

    #[test]
    fn shapes_without_cores_or_with_too_many_are_refused_in_a_sentence() {
        for (sockets, total) in [(0, 0), (257, 257)] {
            let error = Topology::new(sockets, 1, 1, 1, cost::TWO_SOCKETS).expect_err("out of range");
            assert_eq!(error, BadTopology { cores: total });
            assert!(error.to_string().contains("from 1 to 256"), "{error}");
        }
        assert_eq!(Topology::new(1, 1, 256, 1, cost::TWO_SOCKETS).map(|t| t.cores()), Ok(256));
    }
}
