//! Where another thread stands: a signal handler in that thread walks its own stack, and the watchdog names
//! the functions.
//!
//! The handler calls `_Unwind_Backtrace` and `gettid`. Neither allocates; the first looks for call frame
//! information as a panic does, with a lock of the dynamic linker at most, which the thread that holds it may
//! take again. It leaves `errno` as it was, and runs on the stack that it walks: an alternate one may be too
//! small.
//!
//! # Protocol
//! The addresses are the asker's, who holds the lock [`ASKING`], while the state is `IDLE` or `DONE`, and the
//! handler's while it is `WALKING`. In between the asker has `WANTED` a thread and sends the signal.
//!
//! 1. Both ways out of `WANTED` are compare-and-swaps of the state with the thread's number in it, so a
//!    signal that comes late finds no request, or one that is meant for it.
//! 2. The asker holds the lane's [`Unpark`](crate::Unpark) lock from its look at the thread's number until
//!    the signal is sent. A lane clears the number under that lock before it ends: the signal never goes to a
//!    thread that has inherited the number.
//! 3. Nobody waits for a walk without end, whose lock may be held by a thread that does not come back either:
//!    the addresses stay the handler's, and who asks before it is done gets none.

use crate::home::Home;
use manylane_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use manylane_sync::{LockClass, Mutex};
use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::io;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::time::{Duration, Instant};

/// Frames of a stack at most: a recursion without end shows itself in fewer.
const FRAMES: usize = 128;
/// How long an answer is waited for: a thread that runs is interrupted at once, one that waits for a
/// processor later. Only one that waits uninterruptibly in the kernel, or has blocked the signal, does not
/// answer.
const PATIENCE: Duration = Duration::from_millis(200);

static ASKING: LockClass = LockClass::new("stack of a thread", 3);
/// For the one that is asking.
static TURN: Mutex<()> = Mutex::new(&ASKING, ());

const IDLE: u64 = 0;
const WALKING: u64 = 1;
const DONE: u64 = 2;

/// `WANTED`, with the system's number of the thread that is meant, which is not 0.
fn wanted(thread: u32) -> u64 {
    u64::from(thread) << 2 | 3
}

/// The system's number of the calling thread. A lane's place for it has 0 while there is no thread, which a
/// lane that ends stores under its lock (rule 2).
pub(crate) fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

// What asker and handler share. Relaxed, but for the state, which publishes the addresses.
static STATE: AtomicU64 = AtomicU64::new(IDLE);
static WALKED: AtomicUsize = AtomicUsize::new(0);
static ADDRESSES: [AtomicUsize; FRAMES] = [const { AtomicUsize::new(0) }; FRAMES];

/// Processor time so far of the thread in a lane's place. None: there is no thread, or it has just ended. A
/// number that another thread of the process has inherited gives that one's time, which is of no lane's poll.
pub(super) fn processor_time(place: &AtomicU32) -> Option<Duration> {
    let thread = place.load(Ordering::Relaxed);
    if thread == 0 {
        return None;
    }
    // The kernel's own encoding of a thread's clock, as `pthread_getcpuclockid` makes it: the number's
    // complement, then what is counted (2: as the scheduler does, in nanoseconds), with the bit that says it
    // is one thread's.
    let clock = (!thread.cast_signed() << 3 | 2 | 4) as libc::clockid_t;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into memory of ours; a clock that is not there is refused.
    let known = unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    known.then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32))
}

/// Installs the handler, of the last real-time signal: nothing else of the program uses it.
///
/// # Errors
/// The system's.
pub(super) fn install() -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    // SAFETY: zeros are a valid `sigaction`: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // System calls go on where that is possible; the others see EINTR, as with any signal.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler is async-signal-safe (see above) and lives as long as the program.
    match unsafe { libc::sigaction(libc::SIGRTMAX(), &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Notes the calls of the thread that it interrupts, if that is the one that is meant.
extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let wanted = wanted(this_thread());
    // Acquire: pairs with the release in `addresses`.
    if STATE.compare_exchange(wanted, WALKING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: this thread's own `errno`, which the code that is interrupted may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the system gives a handler with SA_SIGINFO the interrupted context.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let interrupted = machine.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let interrupted = machine.pc as usize;
    // That one alone where there is no way through the system's frame.
    ADDRESSES[0].store(interrupted, Ordering::Relaxed);
    let (mut walked, mut below) = (1, false);
    // SAFETY: it shares nothing with calls on other threads but the call frame information, which stays.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let address = frame.ip().addr();
            if below {
                ADDRESSES[walked].store(address, Ordering::Relaxed);
                walked += 1;
            }
            below |= address == interrupted; // those before are the handler's own
            walked < FRAMES
        });
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    WALKED.store(walked, Ordering::Relaxed);
    // Release: publishes the addresses.
    STATE.store(DONE, Ordering::Release);
}

/// The stack of the lane's thread, the innermost call first: a line for a function, and one for its place, as
/// panics show them. Or a line that says why there is none. Waits [`PATIENCE`] at most.
pub(super) fn stack_of(home: &Home) -> String {
    let mut text = String::new();
    let addresses = match addresses(home) {
        Ok(addresses) => addresses,
        Err(why) => return format!("      there is no stack: {why}\n"),
    };
    for (number, address) in addresses.into_iter().enumerate() {
        // The byte before is looked up: of a call that is the call, whose return address may be the next
        // function's. The innermost address is no call.
        let place = with_exposed_provenance_mut::<c_void>(address + usize::from(number == 0));
        let before = text.len();
        backtrace::resolve(place, |symbol| {
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
    let wanted = {
        let _keeps_the_lane = home.unpark.lock(); // rule 2
        let thread = home.published.thread.load(Ordering::Relaxed);
        // Release: pairs with the handler's acquire, which then finds the addresses given up.
        STATE.store(wanted(thread), Ordering::Release);
        // SAFETY: a system call on numbers.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGRTMAX()) } == 0;
        if thread == 0 || !sent {
            STATE.store(IDLE, Ordering::Relaxed); // no signal, no handler
            return Err("the lane's thread has ended");
        }
        wanted(thread)
    };
    let asked = Instant::now();
    // Acquire: pairs with the release in the handler.
    while STATE.load(Ordering::Acquire) != DONE {
        if asked.elapsed() >= PATIENCE {
            match STATE.compare_exchange(wanted, IDLE, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Err("the thread did not answer; it may block the last real-time signal"),
                Err(WALKING) => return Err("the walk through it does not end"), // rule 3
                Err(_) => {}                                                    // done just now
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let walked = &ADDRESSES[..WALKED.load(Ordering::Relaxed)];
    Ok(walked.iter().map(|address| address.load(Ordering::Relaxed)).collect())
}

/// Takes the next request for this thread as a handler does that then hangs.
#[cfg(all(test, not(manylane_sim)))]
pub(super) fn walk_without_end(may_be_asked: &dyn Fn()) {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: makes a set of signals, and blocks them on this thread.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGRTMAX());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), null_mut());
    }
    may_be_asked();
    let wanted = wanted(this_thread());
    while STATE.compare_exchange(wanted, WALKING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
}

/// Ends it.
#[cfg(all(test, not(manylane_sim)))]
pub(super) fn end_walk() {
    STATE.store(DONE, Ordering::Release);
}
