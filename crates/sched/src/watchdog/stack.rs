//! The stack of another thread: a signal handler in that thread walks its own stack, and the watchdog names
//! the functions.
//!
//! The handler calls `_Unwind_Backtrace` and `gettid`. Neither allocates; the first searches the call frame
//! information as a panic does, at most with a lock of the dynamic linker, which its holder may take again.
//! The handler preserves `errno`, and runs on the stack that it walks: an alternate stack may be too small.
//!
//! # Protocol
//! While the state is `DONE`, the addresses belong to the requester, who holds the lock [`ASKING`]; while it
//! is `WALKING` they belong to the handler. In between the requester stores the number of the wanted thread
//! and sends the signal.
//!
//! 1. Both transitions out of that state are compare-and-swaps of the thread's number, so a late signal finds
//!    no request, or one for its own thread.
//! 2. The requester holds the lane's [`Unpark`](crate::Unpark) lock from its read of the thread's number
//!    until the signal is sent. A lane clears the number under that lock before it ends: the signal never
//!    reaches a thread that has inherited the number.
//! 3. A requester gives up on a walk without end, since that may wait for a lock whose holder does not return
//!    either. The addresses then stay the handler's, and later requesters get none until it is done.

use crate::home::Home;
use manylane_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use manylane_sync::{LockClass, Mutex};
use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::io;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::time::{Duration, Instant};

/// Maximum number of frames of a stack: an endless recursion is recognisable in fewer.
const FRAMES: usize = 128;
/// Maximum time for an answer. A running thread is interrupted at once, one that waits for a processor later.
/// A thread does not answer only if it waits uninterruptibly in the kernel, or has blocked the signal.
pub(super) const TIMEOUT: Duration = Duration::from_millis(200);

static ASKING: LockClass = LockClass::new("stack of a thread", 3);
/// Held by the requester.
static TURN: Mutex<()> = Mutex::new(&ASKING, ());

// The system's numbers of threads lie between the two.
pub(super) const DONE: u32 = 0;
pub(super) const WALKING: u32 = u32::MAX;

/// Returns the system's number of the calling thread. A lane's field for it is 0 while there is no thread; a
/// lane that ends stores 0 under its lock (rule 2).
pub(crate) fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

// State shared by requester and handler. Relaxed, except for the state, which publishes the addresses.
pub(super) static STATE: AtomicU32 = AtomicU32::new(DONE);
static WALKED: AtomicUsize = AtomicUsize::new(0);
static ADDRESSES: [AtomicUsize; FRAMES] = [const { AtomicUsize::new(0) }; FRAMES];

/// Returns the processor time so far of the lane's thread. None if there is no thread, or if it has just
/// ended. If another thread of the process inherited the number, the time is that thread's, which belongs to
/// no lane's poll.
pub(super) fn processor_time(home: &Home) -> Option<Duration> {
    let thread = home.published.thread.load(Ordering::Relaxed);
    // The kernel's encoding of a thread's clock, as `pthread_getcpuclockid` makes it: the complement of the
    // number, then the kind of clock (2: the scheduler's, in nanoseconds) and the bit for a single thread.
    let clock = (!thread.cast_signed() << 3 | 2 | 4) as libc::clockid_t;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into a local variable; the system refuses a clock that does not exist.
    let known = thread != 0 && unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    known.then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32))
}

/// Installs the handler for the last real-time signal, which nothing else in the program uses.
///
/// # Errors
/// That of the system.
pub(super) fn install() -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    // SAFETY: zeros are a valid `sigaction`: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // System calls are restarted if possible; the others return EINTR, as with any signal.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler is async-signal-safe (see above) and lives as long as the program.
    let done = unsafe { libc::sigaction(libc::SIGRTMAX(), &raw const action, null_mut()) } == 0;
    done.then_some(()).ok_or_else(io::Error::last_os_error)
}

/// Records the calls of the interrupted thread, if it is the wanted one.
extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // Acquire: pairs with the release in `addresses`.
    if STATE.compare_exchange(this_thread(), WALKING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: this thread's own `errno`, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the system gives a handler with SA_SIGINFO the interrupted context.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let interrupted = machine.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let interrupted = machine.pc as usize;
    // The only address if the system's frame cannot be unwound.
    ADDRESSES[0].store(interrupted, Ordering::Relaxed);
    let (mut walked, mut below) = (1, false);
    // SAFETY: it shares with calls on other threads only the call frame information, which does not change.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let address = frame.ip().addr();
            if below {
                ADDRESSES[walked].store(address, Ordering::Relaxed);
                walked += 1;
            }
            below |= address == interrupted; // earlier frames are the handler's own
            walked < FRAMES
        });
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    WALKED.store(walked, Ordering::Relaxed);
    // Release: publishes the addresses.
    STATE.store(DONE, Ordering::Release);
}

/// Returns the stack of the lane's thread, the innermost call first: a line for each function, and one for
/// its place, as panics show them; or a line with the reason why there is none. Waits at most [`TIMEOUT`].
pub(super) fn stack_of(home: &Home) -> String {
    let mut text = String::new();
    let addresses = match addresses(home) {
        Ok(addresses) => addresses,
        Err(why) => return format!("      there is no stack: {why}\n"),
    };
    for (number, address) in addresses.into_iter().enumerate() {
        // Looks up the byte before a return address: it belongs to the call, while the return address may
        // belong to the next function. The innermost address is no return address.
        let call_site = with_exposed_provenance_mut::<c_void>(address + usize::from(number == 0));
        let before = text.len();
        backtrace::resolve(call_site, |symbol| {
            let name = symbol.name().map_or_else(|| "<unknown>".to_owned(), |name| format!("{name:#}"));
            let _ = writeln!(text, "{number:>4}: {address:#x} {name}");
            if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
                let _ = writeln!(text, "             at {}:{line}", file.display());
            }
        });
        if text.len() == before {
            let _ = writeln!(text, "{number:>4}: {address:#x} <unknown>");
        }
    }
    text
}

fn addresses(home: &Home) -> Result<Vec<usize>, &'static str> {
    let _turn = TURN.lock();
    if STATE.load(Ordering::Relaxed) == WALKING {
        return Err("the handler of an earlier signal has not ended"); // rule 3
    }
    let thread = {
        let _keeps_the_lane = home.unpark.lock(); // rule 2
        let thread = home.published.thread.load(Ordering::Relaxed);
        // Release: pairs with the handler's acquire, which then owns the addresses.
        STATE.store(thread, Ordering::Release);
        // SAFETY: a system call with numbers only; it refuses the number 0.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGRTMAX()) } == 0;
        if !sent {
            // The handler of an earlier, late signal may have taken the number (rule 3).
            let _ = STATE.compare_exchange(thread, DONE, Ordering::Relaxed, Ordering::Relaxed);
            let why = if thread == 0 { "the lane's thread has ended" } else { "the system sent no signal" };
            return Err(why);
        }
        thread
    };
    let signalled = Instant::now();
    // Acquire: pairs with the release in the handler.
    while STATE.load(Ordering::Acquire) != DONE {
        if signalled.elapsed() >= TIMEOUT {
            match STATE.compare_exchange(thread, DONE, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Err("the thread did not answer; it may block the last real-time signal"),
                Err(WALKING) => return Err("the walk through it does not end"), // rule 3
                Err(_) => {}                                                    // the walk was done just now
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let walked = &ADDRESSES[..WALKED.load(Ordering::Relaxed)];
    Ok(walked.iter().map(|address| address.load(Ordering::Relaxed)).collect())
}
