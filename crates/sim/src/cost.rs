//! The cost model: the only file with durations in it, each with its source.
//!
//! Sources:
//! - *measured*: on the machine of `VALIDATION.md`, a virtual machine with two cores of a Cascade Lake Xeon
//!   at 2.5 GHz;
//! - *Intel*: Intel 64 and IA-32 Architectures Optimization Reference Manual (Skylake server chapter);
//! - *Fog*: A. Fog, *Instruction tables* (Skylake-X) and *The microarchitecture of Intel, AMD and VIA CPUs*;
//! - *McCalpin*: J. McCalpin's published core-to-core and memory latencies of two-socket Skylake-SP and
//!   Cascade Lake nodes;
//! - *Schweizer*: H. Schweizer, M. Besta, T. Hoefler, *Evaluating the Cost of Atomic Operations on Modern
//!   Architectures*, PACT 2015: an atomic costs the transfer of its line, plus a constant;
//! - *assumed*: the usual order of magnitude, without a measurement or a source;
//! - *core-to-core*: N. Viennot's published core-to-core latency matrices (Xeon Platinum 8275CL, EPYC 7R13,
//!   7V73X).
//!
//! Published figures are ranges; this file uses their middle. This project has compared nothing beyond the
//! two cores of *measured* with a real machine (`VALIDATION.md`).
//!
//! # Decisions
//! - *Hits cost their throughput, not their latency.* An out-of-order core overlaps hits with other work: a
//!   counter's load-add-store takes 0.7 ns when the counters rotate (measured), and 1.8 ns only in a chain
//!   through one word.
//! - *A load or locked instruction that misses stalls the core.* Overlapping misses are not modelled: code
//!   that misses on several independent lines at once is faster on a real core.
//! - *A plain store that misses does not stall.* It waits in the core's store buffer while the core goes on,
//!   as on every machine with one; the core stalls when the buffer is full, at a locked instruction and at a
//!   full fence, which drain it. Loads of a line with a store in the buffer are forwarded from it.
//! - *A miss has two parts.* Until the request has reached the owner, the owner goes on using the line. Then
//!   the line is in transit, and later requests wait in the order of their arrival: the home of the line
//!   forwards the next one when the line has arrived, and until that request arrives the new owner uses the
//!   line. So two cores that contend for a counter do better than one transfer for each operation.
//! - *Transfers vary by one sixteenth*, from the seed: without that, cores would stay in step, as they do on
//!   no real machine.

/// Picoseconds: integers, so that sums are equal everywhere.
pub type Picoseconds = u64;

/// A nanosecond.
const NS: Picoseconds = 1_000;
/// A microsecond.
const US: Picoseconds = 1_000 * NS;

/// The durations of one machine, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A load from the core's own cache.
    pub load: Picoseconds,
    /// A store to a line that the core owns, or into its store buffer.
    pub store: Picoseconds,
    /// A locked instruction on a line that the core owns.
    pub locked: Picoseconds,
    /// A full fence, without the draining of the store buffer.
    pub fence: Picoseconds,
    /// One pause instruction.
    pub pause: Picoseconds,
    /// The branch and the addition of a measured loop, in each round.
    pub round: Picoseconds,
    /// One allocation or one release by a thread-caching allocator.
    pub allocate: Picoseconds,
    /// A line from the sibling thread of the same core.
    pub same_core: Picoseconds,
    /// A line from another core of the same complex (the cores that share a last-level cache).
    pub same_complex: Picoseconds,
    /// A line from another complex of the same socket.
    pub same_socket: Picoseconds,
    /// A line from another socket.
    pub other_socket: Picoseconds,
    /// A line that no core has.
    pub memory: Picoseconds,
    /// Part of a transfer, in percent, until the request reaches the owner, which keeps the line for that
    /// time.
    pub request_percent: u64,
    /// Maximum number of stores in a core's store buffer.
    pub store_buffer: u32,
    /// Maximum number of lines for which a core's store buffer waits at the same time.
    pub fill_buffers: usize,
    /// How long a store to a line that the core owns stays in the store buffer: a load of the same word
    /// within this time gets the value from there, even if the core loses the line meanwhile.
    pub store_residence: Picoseconds,
    /// Yielding the core when no other thread waits for it.
    pub yield_call: Picoseconds,
    /// From the decision to sleep until the core is free for another thread.
    pub sleep_call: Picoseconds,
    /// Cost for the waker of waking a sleeper.
    pub wake_call: Picoseconds,
    /// From the end of the wake call until the sleeper runs on an idle core.
    pub wake_latency: Picoseconds,
    /// Switching from one thread to another on the same core.
    pub context_switch: Picoseconds,
    /// How long a thread runs while others wait for its core.
    pub quantum: Picoseconds,
}

/// The machine of `VALIDATION.md`: two virtual cores of a Cascade Lake Xeon at 2.5 GHz under KVM.
pub const SMALL_VM: Costs = Costs {
    load: NS * 4 / 10,  // measured: half of a load-add-store that rotates over counters (0.7 ns)
    store: NS * 4 / 10, // measured: as above
    locked: 6 * NS,     // measured: uncontended fetch_add in a loop
    fence: 8 * NS,      // measured: a locked instruction with a store before it takes 8.5 ns
    pause: 4 * NS,      /* measured: spin_loop in a loop (this hypervisor traps no pause; Intel gives up to
                         * 140 cycles) */
    round: NS * 4 / 10, // one taken branch a cycle (Fog)
    allocate: 10 * NS,  /* assumed: malloc and free from a thread's own cache take 15 to 25 ns the
                         * pair */
    same_core: 8 * NS,      // no such pair here; as TWO_SOCKETS
    same_complex: 65 * NS,  // measured: ping-pong of one line between the two cores
    same_socket: 65 * NS,   // one complex only
    other_socket: 130 * NS, // no such pair here; as TWO_SOCKETS
    memory: 90 * NS,        // McCalpin: local memory, 80 to 95 ns; not measured here
    request_percent: 35,    /* fitted: two cores adding to one counter, 17.6 ns an operation
                             * (VALIDATION.md) */
    store_buffer: 56,        // Intel: entries of the Skylake store buffer
    fill_buffers: 12,        // Intel: line fill buffers of the Skylake server core
    store_residence: 8 * NS, // Fog: store to load forwarding and commit, 4 to 20 cycles after retirement
    yield_call: 230 * NS,    // measured: sched_yield alone on a core
    sleep_call: 2 * US,      // assumed: system call and switch to idle in a guest
    wake_call: 26 * US / 10, // measured: examples/wake.rs, slept up to 30 us
    wake_latency: 35 * US / 10, /* measured: examples/wake.rs, slept up to 30 us; after a millisecond it is
                              * 10 to 25 us */
    context_switch: 2 * US, // assumed: 1 to 3 us with mitigations in a guest
    quantum: 3_000 * US,    // Linux: base slice of the fair scheduler, 3 ms
};

/// Two sockets of 24 cores with two threads each (Skylake-SP, Cascade Lake).
pub const TWO_SOCKETS: Costs = Costs {
    same_core: 8 * NS, /* the siblings share the first-level cache: a hit, and a pipeline clear at times
                        * (Intel) */
    same_complex: 55 * NS,  // core-to-core, McCalpin: 45 to 60 ns over the mesh
    same_socket: 55 * NS,   // one complex a socket
    other_socket: 125 * NS, // core-to-core, McCalpin: 110 to 140 ns over UPI
    pause: 44 * NS,         // Intel: up to 140 cycles since Skylake; at 3.2 GHz
    sleep_call: US,         /* assumed for Linux on bare metal: futex wait and the switch to idle,
                             * about 1 us */
    wake_call: 3 * US / 2, /* assumed for Linux on bare metal: futex wake with an interrupt to another
                            * core, 1 to 2 us */
    wake_latency: 5 * US, // assumed for Linux on bare metal: out of a shallow idle state, 3 to 10 us
    context_switch: 3 * US / 2, // assumed for Linux on bare metal: 1 to 2 us with mitigations
    ..SMALL_VM
};

/// One socket of 64 cores in eight complexes of eight (EPYC "Milan").
pub const ONE_SOCKET_64: Costs = Costs {
    pause: 18 * NS,        // Fog: 65 cycles on Zen 3, at 3.6 GHz
    same_complex: 25 * NS, // core-to-core: 7R13 and 7V73X, 20 to 30 ns within a complex
    same_socket: 95 * NS,  // core-to-core: the same, 85 to 110 ns between complexes
    memory: 100 * NS,      // published local memory latencies of Milan, 95 to 105 ns
    store_buffer: 64,      // AMD: Software Optimization Guide for family 19h
    ..TWO_SOCKETS
};
