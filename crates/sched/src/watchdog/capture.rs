//! A copy of another thread's stack, made by a signal handler in that thread.
//!
//! One thread cannot read another's stack while it runs. The handler reads its own, which stands still
//! meanwhile. It only copies words: unwinding and names come later, in the watchdog, from the copy (the way
//! of `perf record --call-graph dwarf`). So it takes no lock, allocates nothing and calls nothing but
//! `gettid`, wherever the signal meets the thread: in the allocator, in the dynamic linker, in the middle of
//! a panic.
//!
//! # Protocol
//! | state | whose the copy is | next |
//! |---|---|---|
//! | `IDLE` | the asker's, who holds the lock [`ASKING`] | `WANTED`: it has written where the stack is, and sends the signal |
//! | `WANTED` and a thread | nobody's | `COPYING` by the handler in that thread; `IDLE` by the asker, who has waited long enough |
//! | `COPYING` | the handler's, for some ten microseconds | `DONE` |
//! | `DONE` | the asker's | `IDLE` |
//!
//! 1. Both ways out of `WANTED` are compare-and-swaps of the state with the thread's number in it, so a
//!    signal that comes late finds no request, or one that is meant for it.
//! 2. The asker holds the lane's [`Unpark`](crate::Unpark) lock from its look at the thread's number until
//!    the signal is sent. A lane clears the number under that lock before it ends: the signal never goes to a
//!    thread that has inherited the number.
//! 3. The handler reads between its stack pointer and the end of the lane's stack, nothing if it runs on
//!    another stack.

use crate::home::Home;
use manylane_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use manylane_sync::{LockClass, Mutex};
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::{null, null_mut, with_exposed_provenance};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Words of the stack that are copied at most: 256 KiB, a few hundred frames. Untouched pages cost nothing.
const WORDS: usize = 32 * 1024;
/// How long an answer is waited for: a thread that runs is interrupted at once, one that waits for a
/// processor later. Only one that waits uninterruptibly in the kernel, or has blocked the signal, does not
/// answer.
const PATIENCE: Duration = Duration::from_millis(200);

static ASKING: LockClass = LockClass::new("stack capture", 3);
/// For the one that is asking.
static TURN: Mutex<()> = Mutex::new(&ASKING, ());

const IDLE: u64 = 0;
const COPYING: u64 = 1;
const DONE: u64 = 2;

/// `WANTED`, with the system's number of the thread that is meant, which is not 0.
fn wanted(thread: u32) -> u64 {
    u64::from(thread) << 2 | 3
}

/// The system's number of the calling thread.
fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// What asker and handler share. Relaxed, but for `state`, which publishes the rest.
struct Exchange {
    state: AtomicU64,
    /// Lowest address of its stack, and the first beyond it.
    stack: [AtomicUsize; 2],
    /// Program counter, stack pointer, frame pointer, link register.
    registers: [AtomicUsize; 4],
    /// How many words were copied, from the stack pointer on.
    copied: AtomicUsize,
    words: [AtomicUsize; WORDS],
}

static EXCHANGE: Exchange = Exchange {
    state: AtomicU64::new(IDLE),
    stack: [const { AtomicUsize::new(0) }; 2],
    registers: [const { AtomicUsize::new(0) }; 4],
    copied: AtomicUsize::new(0),
    words: [const { AtomicUsize::new(0) }; WORDS],
};

/// A thread's registers and the upper part of its stack, as they were.
pub(super) struct Snapshot {
    pub(super) pc: usize,
    pub(super) sp: usize,
    pub(super) fp: usize,
    #[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
    pub(super) lr: usize,
    words: Vec<usize>,
}

impl Snapshot {
    /// The word at an address of the stack, if it was copied.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address).ok()?.checked_sub(self.sp)?;
        let word = self.words.get(offset / size_of::<usize>())?;
        offset.is_multiple_of(size_of::<usize>()).then_some(*word as u64)
    }
}

/// Why there is no copy of a stack.
#[derive(Debug)]
pub(super) enum Failed {
    NoSignal(&'static io::Error),
    Gone,
    NoAnswer(c_int),
}

/// A lane's thread, where its handler finds out what it may read. Zero: no thread.
#[derive(Debug)]
pub(crate) struct ThreadPlace {
    thread: AtomicU32,
    stack: [AtomicUsize; 2],
}

impl ThreadPlace {
    pub(crate) fn new() -> Self {
        Self { thread: AtomicU32::new(0), stack: [AtomicUsize::new(0), AtomicUsize::new(0)] }
    }

    /// Notes the calling thread. Cost: microseconds; for the main thread the system's list of mappings is
    /// read.
    pub(crate) fn enter(&self) {
        let [low, high] = stack_of_this_thread().unwrap_or_default();
        self.stack[0].store(low, Ordering::Relaxed);
        self.stack[1].store(high, Ordering::Relaxed);
        // Release: whoever sees the thread sees its stack.
        self.thread.store(this_thread(), Ordering::Release);
    }

    /// Processor time of the thread so far. None: there is no thread, or it has just ended. A number that
    /// another thread of the process has inherited gives that one's time, which is of no lane's poll.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        let thread = self.thread.load(Ordering::Acquire); // as in `capture`
        if thread == 0 {
            return None;
        }
        // The kernel's own encoding of a thread's clock, as `pthread_getcpuclockid` makes it: the number's
        // complement, then what is counted (2: as the scheduler does, in nanoseconds), with the bit
        // that says it is one thread's.
        let clock = (!thread.cast_signed() << 3 | 2 | 4) as libc::clockid_t;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes into memory of ours; a clock that is not there is refused.
        if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
            return None;
        }
        Some(Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32))
    }

    /// The thread leaves. Under the lane's lock (rule 2).
    pub(crate) fn leave(&self) {
        self.thread.store(0, Ordering::Relaxed);
    }
}

fn stack_of_this_thread() -> Option<[usize; 2]> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut size) = (null_mut::<c_void>(), 0_usize);
    // SAFETY: the attributes are initialised by the first call, if it succeeds, read by the second, and
    // destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (found == 0).then(|| [low.addr(), low.addr().saturating_add(size)])
    }
}

/// The signal, with its handler installed: the last real-time signal that nobody had claimed.
pub(super) fn signal() -> Result<c_int, &'static io::Error> {
    static SIGNAL: OnceLock<io::Result<c_int>> = OnceLock::new();
    SIGNAL.get_or_init(install).as_ref().copied()
}

fn install() -> io::Result<c_int> {
    for signal in (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev() {
        // SAFETY: zeros are a valid `sigaction`: no handler, no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks what is installed, into memory of ours.
        if unsafe { libc::sigaction(signal, null(), &raw mut action) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if action.sa_sigaction != libc::SIG_DFL {
            continue; // somebody else's
        }
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
        action.sa_sigaction = handler as usize;
        // System calls go on where that is possible; the others see EINTR, as with any signal.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the handler is async-signal-safe (see above) and lives as long as the program.
        return match unsafe { libc::sigaction(signal, &raw const action, null_mut()) } {
            0 => Ok(signal),
            _ => Err(io::Error::last_os_error()),
        };
    }
    Err(io::Error::other("every real-time signal is in use"))
}

/// Copies the stack of the thread that it interrupts, if that is the one that is meant.
extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let exchange = &EXCHANGE;
    // Acquire: pairs with the release in `capture`: the request is whole.
    if exchange
        .state
        .compare_exchange(wanted(this_thread()), COPYING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return;
    }
    // SAFETY: the system gives a handler with SA_SIGINFO the interrupted context.
    let registers = unsafe { registers(&*context.cast::<libc::ucontext_t>()) };
    for (place, register) in exchange.registers.iter().zip(registers) {
        place.store(register, Ordering::Relaxed);
    }
    let [_, sp, ..] = registers;
    let [low, high] = [0, 1].map(|end| exchange.stack[end].load(Ordering::Relaxed));
    let aligned = sp.is_multiple_of(align_of::<usize>());
    let words = if aligned && low <= sp && sp < high { (high - sp) / size_of::<usize>() } else { 0 };
    let words = words.min(WORDS);
    for (index, place) in exchange.words[..words].iter().enumerate() {
        let address = with_exposed_provenance::<usize>(sp + index * size_of::<usize>());
        // SAFETY: between the stack pointer and the end of this thread's stack (rule 3): mapped, aligned, and
        // only this thread, which is here, writes there. Volatile: the compiler does not know what is
        // there.
        place.store(unsafe { address.read_volatile() }, Ordering::Relaxed);
    }
    exchange.copied.store(words, Ordering::Relaxed);
    // Release: publishes the copy.
    exchange.state.store(DONE, Ordering::Release);
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> [usize; 4] {
    let register = |number: c_int| context.uc_mcontext.gregs[number as usize] as usize;
    [register(libc::REG_RIP), register(libc::REG_RSP), register(libc::REG_RBP), 0]
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> [usize; 4] {
    let machine = &context.uc_mcontext;
    [machine.pc as usize, machine.sp as usize, machine.regs[29] as usize, machine.regs[30] as usize]
}

/// Copies the stack of the lane's thread. Waits [`PATIENCE`] at most.
pub(super) fn capture(home: &Home) -> Result<Snapshot, Failed> {
    let signal = signal().map_err(Failed::NoSignal)?;
    let exchange = &EXCHANGE;
    let _turn = TURN.lock();
    let wanted = {
        let _keeps_the_lane = home.unpark.lock(); // rule 2
        // Acquire: pairs with the release in `enter`.
        let thread = home.published.thread.thread.load(Ordering::Acquire);
        if thread == 0 {
            return Err(Failed::Gone);
        }
        for (to, from) in exchange.stack.iter().zip(&home.published.thread.stack) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // Release: publishes the request.
        exchange.state.store(wanted(thread), Ordering::Release);
        // SAFETY: a system call on numbers.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
        if sent != 0 {
            exchange.state.store(IDLE, Ordering::Relaxed); // no signal, no handler
            return Err(Failed::Gone);
        }
        wanted(thread)
    };
    let asked = Instant::now();
    // Acquire: pairs with the release in the handler.
    while exchange.state.load(Ordering::Acquire) != DONE {
        let withdrawn = asked.elapsed() >= PATIENCE
            && exchange.state.compare_exchange(wanted, IDLE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if withdrawn {
            return Err(Failed::NoAnswer(signal));
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let [pc, sp, fp, lr] = [0, 1, 2, 3].map(|register| exchange.registers[register].load(Ordering::Relaxed));
    let copied = exchange.copied.load(Ordering::Relaxed);
    let words = exchange.words[..copied].iter().map(|word| word.load(Ordering::Relaxed)).collect();
    exchange.state.store(IDLE, Ordering::Relaxed);
    Ok(Snapshot { pc, sp, fp, lr, words })
}
