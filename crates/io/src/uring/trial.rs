//! Tests whether the kernel supports this driver and lets the process use it. It tries a socket pair instead
//! of reading a version: distributions remove features, and sandboxes forbid calls.

use super::buffers::{BUFFERS, Buffers};
use super::{Uring, errno, patiently};
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsRawFd, OwnedFd};

/// Operations that the driver needs.
const OPERATIONS: [u8; 8] = [
    opcode::AcceptMulti::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Close::CODE,
    opcode::Connect::CODE,
    opcode::PollAdd::CODE,
    opcode::RecvMulti::CODE,
    opcode::Send::CODE,
    opcode::SendMsg::CODE,
];
/// Number of entries of the trial's ring. The trying thread receives only once, and the filled clusters stay
/// allocated.
const ENTRIES: u16 = 4;
const MESSAGE: &[u8] = b"one operation receives twice";
/// Number of waits for completions. Two messages and an end take at most six.
const ROUNDS: usize = 16;
/// Seconds of each wait.
const TIMEOUT_SECONDS: u64 = 1;

const SEND: u64 = 1;
const RECEIVE: u64 = 2;

/// The failed step, and the kernel's error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) step: &'static str,
    pub(crate) errno: Errno,
}

/// Field order matters: the kernel forgets the buffers with the ring.
struct Trial {
    ring: IoUring,
    buffers: Buffers,
    received: Vec<u8>,
    sent: usize,
    receives: bool,
}

/// Sends two messages through a ring and has one operation receive them.
///
/// # Errors
/// [`Failure`]
pub(crate) fn run() -> Result<(), Failure> {
    let failed = |step| move |errno| Failure { step, errno };
    let ring = patiently(Uring::ring).map_err(failed("setting up a ring"))?;
    let mut probe = Probe::new();
    let probed = ring.submitter().register_probe(&mut probe);
    probed.map_err(|error| Failure { step: "asking for operations", errno: errno(error) })?;
    if !OPERATIONS.iter().all(|operation| probe.is_supported(*operation)) {
        return Err(Failure { step: "asking for operations", errno: Errno::OPNOTSUPP });
    }
    let mut buffers = Buffers::new(&ring, ENTRIES).map_err(failed("registering buffers"))?;
    if buffers.is_dry() {
        return Err(Failure { step: "filling buffers", errno: Errno::NOMEM });
    }
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(failed("making a pair of sockets"))?;
    let mut trial = Trial { ring, buffers, received: Vec::new(), sent: 0, receives: true };
    trial.exchange(&ours, theirs).map_err(failed("sending and receiving"))
}

impl Trial {
    fn exchange(&mut self, ours: &OwnedFd, theirs: OwnedFd) -> Result<(), Errno> {
        let receive = opcode::RecvMulti::new(types::Fd(ours.as_raw_fd()), BUFFERS).build();
        self.begin(receive.user_data(RECEIVE))?;
        for messages in 1..=2 {
            let to = types::Fd(theirs.as_raw_fd());
            let send = opcode::Send::new(to, MESSAGE.as_ptr(), MESSAGE.len() as u32).build();
            self.begin(send.user_data(SEND))?;
            let bytes = messages * MESSAGE.len();
            self.until(|trial| trial.sent == bytes && trial.received.len() == bytes)?;
            if !is_whole(&self.received) {
                return Err(Errno::IO);
            }
        }
        drop(theirs);
        self.until(|trial| !trial.receives)
    }

    fn begin(&mut self, entry: squeue::Entry) -> Result<(), Errno> {
        // SAFETY: the message is static, the sockets are open until the operations have ended, and received
        // bytes go into the ring's buffers.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| Errno::NOBUFS)
    }

    fn until(&mut self, is_done: impl Fn(&Self) -> bool) -> Result<(), Errno> {
        let timeout = Timespec::new().sec(TIMEOUT_SECONDS);
        for _ in 0..ROUNDS {
            if is_done(self) {
                return Ok(());
            }
            let args = SubmitArgs::new().timespec(&timeout);
            self.ring.submitter().submit_with_args(1, &args).map_err(errno)?;
            let completions: Vec<_> = self.ring.completion().collect();
            completions.iter().try_for_each(|completion| self.take(completion))?;
        }
        Err(Errno::TIME)
    }

    fn take(&mut self, completion: &cqueue::Entry) -> Result<(), Errno> {
        let result = completion.result();
        let bytes = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))?;
        if completion.user_data() == SEND {
            self.sent += bytes;
            return Ok(());
        }
        if let Some(segment) = self.buffers.take(completion.flags(), bytes) {
            self.received.extend_from_slice(&segment);
        }
        let ends = bytes == 0;
        self.receives = cqueue::more(completion.flags());
        // An operation that ends early would have to begin again for each read.
        if self.receives == ends { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }
}

fn is_whole(received: &[u8]) -> bool {
    received.chunks(MESSAGE.len()).all(|message| message == MESSAGE)
}
