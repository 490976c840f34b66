//! What a stack says: from the words of a [`Snapshot`] to frames with names.

use super::capture::{Failed, Snapshot};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::with_exposed_provenance_mut;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwindRegsAarch64, UnwinderAarch64 as Machine};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64, UnwinderX86_64 as Machine};

/// Frames of a stack at most: a recursion without end shows itself in fewer.
const FRAMES: usize = 128;

/// Where a thread was, the innermost call first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Stack {
    /// The calls. Functions that were inlined have frames of their own.
    pub frames: Vec<Frame>,
}

/// A call on a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where in the program.
    pub address: usize,
    /// The function, if the program has symbols.
    pub function: Option<String>,
    /// Source file and line, if it has debug information.
    pub place: Option<(String, u32)>,
}

impl fmt::Display for Stack {
    /// One line for a function, and one for its place, as panics show them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, frame) in self.frames.iter().enumerate() {
            let function = frame.function.as_deref().unwrap_or("<unknown>");
            writeln!(f, "{number:>4}: {:#x} {function}", frame.address)?;
            if let Some((file, line)) = &frame.place {
                writeln!(f, "             at {file}:{line}")?;
            }
        }
        Ok(())
    }
}

/// Why there is no stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoStack {
    /// The system gave no signal to ask the thread with, for the reason that is told.
    NoSignal(String),
    /// The lane's thread has ended.
    Gone,
    /// The thread did not answer: it has blocked the signal of this number, or waits in the kernel.
    NoAnswer(c_int),
}

impl fmt::Display for NoStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSignal(reason) => write!(f, "there is no stack: no signal could be set up ({reason})"),
            Self::Gone => f.write_str("there is no stack: the lane's thread has ended"),
            Self::NoAnswer(signal) => write!(
                f,
                "there is no stack: the thread did not answer; unblock signal {signal} there if it is blocked"
            ),
        }
    }
}

impl std::error::Error for NoStack {}

impl From<Failed> for NoStack {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NoSignal(error) => Self::NoSignal(error.to_string()),
            Failed::Gone => Self::Gone,
            Failed::NoAnswer(signal) => Self::NoAnswer(signal),
        }
    }
}

/// Finds the frames of snapshots, by the call frame information of the program and its libraries.
pub(super) struct Unwinder {
    machine: Machine<Vec<u8>>,
    cache: Cache,
}

impl Unwinder {
    /// Copies the call frame information of all that is loaded now; a few megabytes. Not later: a stuck lane
    /// may hold the dynamic linker's lock. Libraries that come later have no frames.
    pub(super) fn new() -> Self {
        let mut machine = Machine::new();
        each_module(|module| machine.add_module(module));
        Self { machine, cache: Cache::new() }
    }

    /// The frames of a snapshot, with names.
    pub(super) fn stack(&mut self, snapshot: &Snapshot) -> Stack {
        #[cfg(target_arch = "x86_64")]
        let registers = UnwindRegsX86_64::new(snapshot.pc as u64, snapshot.sp as u64, snapshot.fp as u64);
        #[cfg(target_arch = "aarch64")]
        let registers = UnwindRegsAarch64::new(snapshot.lr as u64, snapshot.sp as u64, snapshot.fp as u64);
        let mut read = |address| snapshot.word(address).ok_or(());
        let mut calls = self.machine.iter_frames(snapshot.pc as u64, registers, &mut self.cache, &mut read);
        let mut frames = Vec::new();
        while frames.len() < FRAMES
            // An error ends the stack where its information does.
            && let Ok(Some(call)) = calls.next()
        {
            name(call, &mut frames);
        }
        Stack { frames }
    }
}

/// Adds the function of a call, and those that were inlined there.
fn name(call: FrameAddress, frames: &mut Vec<Frame>) {
    let known = frames.len();
    let address = call.address() as usize;
    // A return address may be the next function's: looked up is the call before it.
    let place = with_exposed_provenance_mut::<c_void>(call.address_for_lookup() as usize);
    backtrace::resolve(place, |symbol| {
        let file = symbol.filename().map(|file| file.display().to_string());
        frames.push(Frame {
            address,
            function: symbol.name().map(|name| format!("{name:#}")),
            place: file.zip(symbol.lineno()),
        });
    });
    if frames.len() == known {
        frames.push(Frame { address, function: None, place: None });
    }
}

/// Calls back with each object that is loaded and has call frame information.
fn each_module<F: FnMut(Module<Vec<u8>>)>(mut found: F) {
    unsafe extern "C" fn visit<F: FnMut(Module<Vec<u8>>)>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker gives a valid record, for the time of the call; `found` is what it was
        // told to pass on.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<F>()) };
        // SAFETY: the record says how many headers there are.
        if let Some(module) = unsafe { module(info) } {
            found(module);
        }
        0
    }
    // SAFETY: `visit` is called during this call only, with the pointer to `found`, and does not unwind
    // unless memory runs out.
    unsafe { libc::dl_iterate_phdr(Some(visit::<F>), (&raw mut found).cast()) };
}

/// # Safety
/// The record is the dynamic linker's, and its object stays loaded during the call.
unsafe fn module(info: &libc::dl_phdr_info) -> Option<Module<Vec<u8>>> {
    // SAFETY: by contract.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr;
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let (first, last) = (
        loaded().map(|header| header.p_vaddr).min()?,
        loaded().map(|header| header.p_vaddr + header.p_memsz).max()?,
    );
    let index = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
    let index_range = index.p_vaddr..index.p_vaddr + index.p_memsz;
    // SAFETY: by contract the segment is mapped.
    let index_bytes = unsafe { bytes(base, &index_range) };
    // Four bytes: a version, and how three numbers are encoded. The first is where `.eh_frame` begins:
    // linkers write it as four bytes, relative to itself.
    const RELATIVE_INT: u8 = 0x1B;
    if index_bytes.first() != Some(&1) || index_bytes.get(1) != Some(&RELATIVE_INT) {
        return None;
    }
    let offset = i32::from_ne_bytes(index_bytes.get(4..8)?.try_into().ok()?);
    let start = (index.p_vaddr + 4).checked_add_signed(offset.into())?;
    // Its length is not told: to the end of its segment.
    let segment =
        loaded().find(|header| (header.p_vaddr..header.p_vaddr + header.p_filesz).contains(&start))?;
    let frames_range = start..segment.p_vaddr + segment.p_filesz;
    // SAFETY: as above.
    let frames_bytes = unsafe { bytes(base, &frames_range) };
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        eh_frame_hdr_svma: Some(index_range),
        eh_frame_hdr: Some(index_bytes),
        eh_frame_svma: Some(frames_range),
        eh_frame: Some(frames_bytes),
        ..Default::default()
    };
    Some(Module::new(String::new(), base + first..base + last, base, sections))
}

/// # Safety
/// The range, counted from `base`, is mapped for reading.
unsafe fn bytes(base: u64, range: &std::ops::Range<u64>) -> Vec<u8> {
    let start = std::ptr::with_exposed_provenance::<u8>((base + range.start) as usize);
    // SAFETY: by contract; nobody writes there.
    unsafe { std::slice::from_raw_parts(start, (range.end - range.start) as usize) }.to_vec()
}
