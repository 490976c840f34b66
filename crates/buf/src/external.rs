//! Foreign bytes, such as a mapping, a caller's allocation or a kernel buffer, with a function that frees
//! them (R-B3).
//!
//! A free function is registered once and identified by a small number from then on, so that a segment of
//! foreign bytes needs one byte for it. The table is bounded ([`MAX_FREE_FNS`]) and only ever grows.

use crate::error::Error;
use crate::header::{EXTERNAL, Parts, Ref};
use crate::segment::Segment;
use crate::store::store;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Frees foreign bytes. The arguments are the first byte, the number of bytes, and the argument of
/// [`External::from_raw`]. The lane that drops the last handle calls it, exactly once. It should not panic.
pub type FreeFn = unsafe fn(NonNull<u8>, usize, usize);

/// Maximum number of free functions: one for each *kind* of foreign memory, not for each buffer. The largest
/// known program has three.
pub const MAX_FREE_FNS: usize = 32;

struct Registered {
    name: &'static str,
    function: FreeFn,
}

/// The built-in kinds of memory: numbers 0 to 2.
static BUILT_IN: [Registered; 3] = [
    Registered { name: "vec", function: free_vec },
    Registered { name: "static", function: keep },
    Registered { name: "owner", function: free_owner },
];
const VEC: FreeIndex = FreeIndex(0);
const STATIC: FreeIndex = FreeIndex(1);
const OWNER: FreeIndex = FreeIndex(2);

/// Free functions of other kinds, from the first entry on. Each entry is written once, by the first caller
/// that finds it empty. No caller passes an empty entry, so if two callers register one name at the same
/// time, the later one sees the earlier entry.
static TABLE: [OnceLock<Registered>; MAX_FREE_FNS - BUILT_IN.len()] =
    [const { OnceLock::new() }; MAX_FREE_FNS - BUILT_IN.len()];

#[inline]
fn entry(index: usize) -> Option<&'static Registered> {
    match index.checked_sub(BUILT_IN.len()) {
        None => Some(&BUILT_IN[index]),
        Some(index) => TABLE.get(index)?.get(),
    }
}

/// Number of a registered free function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FreeIndex(u8);

impl FreeIndex {
    /// Registers `function` under `name`, once for the life of the process.
    ///
    /// # Errors
    /// [`RegisterError::Twice`] if the name is taken, [`RegisterError::Full`] if the table is full.
    pub fn register(name: &'static str, function: FreeFn) -> Result<Self, RegisterError> {
        for index in 0..MAX_FREE_FNS {
            if let Some(slot) = index.checked_sub(BUILT_IN.len()).map(|index| &TABLE[index])
                && slot.set(Registered { name, function }).is_ok()
            {
                return Ok(Self(index as u8));
            }
            if entry(index).is_some_and(|taken| taken.name == name) {
                return Err(RegisterError::Twice { name, index });
            }
        }
        Err(RegisterError::Full { name })
    }

    /// Returns the index of the function registered with the number `index`.
    ///
    /// # Errors
    /// [`RegisterError::Unknown`] if no function has the number.
    pub fn from_index(index: usize) -> Result<Self, RegisterError> {
        match entry(index) {
            Some(_) => Ok(Self(index as u8)),
            None => Err(RegisterError::Unknown { index }),
        }
    }

    /// Returns the number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the name of the registration.
    pub fn name(self) -> &'static str {
        registered(self.0).name
    }
}

fn registered(index: u8) -> &'static Registered {
    entry(usize::from(index)).expect("a FreeIndex exists for registered functions only")
}

/// Calls a free function: rule 11 of the header's protocol.
///
/// # Safety
/// The bytes were given to [`External::from_raw`] with this function and argument, nothing uses them any
/// more, and this is the only call.
pub(crate) unsafe fn call(index: u8, data: NonNull<u8>, len: usize, argument: usize) {
    // SAFETY: by contract.
    unsafe { (registered(index).function)(data, len, argument) }
}

/// Why a free function was not registered or not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is taken.
    Twice {
        /// The name.
        name: &'static str,
        /// Number of the earlier registration.
        index: usize,
    },
    /// The table has [`MAX_FREE_FNS`] functions already.
    Full {
        /// The name that was not registered.
        name: &'static str,
    },
    /// No function has this number.
    Unknown {
        /// The number.
        index: usize,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { name, index } => write!(
                f,
                "free function \"{name}\" is registered already, as number {index}; keep that number instead"
            ),
            Self::Full { name } => write!(
                f,
                "no room for free function \"{name}\": all {MAX_FREE_FNS} numbers are taken; register one \
                    for \
                 each kind of memory, not for each buffer"
            ),
            Self::Unknown { index } => {
                write!(f, "no free function has the number {index}; register one first")
            }
        }
    }
}

impl std::error::Error for RegisterError {}

/// Makes segments over foreign bytes.
#[derive(Debug)]
pub struct External;

impl External {
    /// Makes a segment over `len` foreign bytes at `data`. The lane that drops the last handle calls the
    /// registered function, once, with `data`, `len` and `argument`.
    ///
    /// `writable`: a sole holder may write into the bytes, and [`Segment::zero_on_free`] may zero them.
    ///
    /// Cost: one object from the lane's pool.
    ///
    /// # Safety
    /// Until the function is called, the bytes stay valid and initialised, and nothing else writes them. If
    /// `writable`, nothing else reads them either, and the memory may be written and left uninitialised. Any
    /// thread may call the function.
    ///
    /// # Errors
    /// [`Error::Alloc`], and [`Error::TooLong`] above 4 GiB - 1. Then the function is *not* called, and the
    /// bytes still belong to the caller.
    pub unsafe fn from_raw(
        data: NonNull<u8>,
        len: usize,
        function: FreeIndex,
        argument: usize,
        writable: bool,
    ) -> Result<Segment, Error> {
        let Ok(capacity) = u32::try_from(len) else {
            return Err(Error::TooLong {
                operation: "an external segment",
                wanted: len,
                limit: u32::MAX as usize,
            });
        };
        let at = store().proxies.alloc()?.into_raw();
        let parts = Parts {
            data,
            capacity,
            filled: capacity,
            class: EXTERNAL,
            free_fn: function.0,
            writable,
            argument,
        };
        // SAFETY: new memory of the proxies' pool, made for a header; the bytes are valid by contract.
        let hold = unsafe { Ref::new(at, parts) };
        // SAFETY: by contract all bytes are initialised.
        Ok(unsafe { Segment::over(hold, 0, capacity) })
    }

    /// Makes a segment over a vector's bytes; the last handle frees the vector. Not for small vectors:
    /// copying up to a few hundred bytes into a chain is cheaper.
    ///
    /// # Errors
    /// As [`from_raw`](Self::from_raw); returns the vector.
    pub fn from_vec(bytes: Vec<u8>) -> Result<Segment, Refused<Vec<u8>>> {
        let mut bytes = ManuallyDrop::new(bytes);
        // SAFETY: a vector's pointer is never null.
        let data = unsafe { NonNull::new_unchecked(bytes.as_mut_ptr()) };
        // SAFETY: the bytes belonged to the vector, which this function owns and does not drop.
        unsafe { Self::from_raw(data, bytes.len(), VEC, bytes.capacity(), true) }
            .map_err(|error| Refused { value: ManuallyDrop::into_inner(bytes), error })
    }

    /// Makes a segment over bytes that live as long as the program.
    ///
    /// # Errors
    /// As [`from_raw`](Self::from_raw).
    pub fn from_static(bytes: &'static [u8]) -> Result<Segment, Error> {
        // SAFETY: static, initialised, and never written.
        unsafe { Self::from_raw(NonNull::from(bytes).cast(), bytes.len(), STATIC, 0, false) }
    }

    /// Makes a segment over the bytes of any owner, such as an `Arc<[u8]>` or a mapping. The lane that drops
    /// the last handle drops the owner. Calls `as_ref` once.
    ///
    /// Cost: one allocation for the owner, beside the object from the lane's pool.
    ///
    /// # Errors
    /// As [`from_raw`](Self::from_raw); returns the owner.
    pub fn from_owner<T: AsRef<[u8]> + Send + 'static>(owner: T) -> Result<Segment, Refused<T>> {
        let boxed = Box::into_raw(Box::new(Boxed { drop: drop_box::<T>, owner }));
        // SAFETY: just made, and moved nowhere until `free`.
        let bytes = unsafe { (*boxed).owner.as_ref() };
        let (data, len) = (NonNull::from(bytes).cast(), bytes.len());
        // SAFETY: the bytes are borrowed from the owner, which neither moves nor changes until `free`;
        // `T: Send` allows the drop on any thread.
        let made = unsafe { Self::from_raw(data, len, OWNER, boxed.expose_provenance(), false) };
        // SAFETY: on failure nothing refers to the box.
        made.map_err(|error| Refused { value: unsafe { Box::from_raw(boxed) }.owner, error })
    }
}

/// # Safety
/// As for [`call`], after [`External::from_vec`].
unsafe fn free_vec(data: NonNull<u8>, _len: usize, capacity: usize) {
    // SAFETY: `from_vec` took the vector apart; its length no longer matters.
    drop(unsafe { Vec::from_raw_parts(data.as_ptr(), 0, capacity) });
}

/// Does nothing: the bytes are static.
unsafe fn keep(_: NonNull<u8>, _: usize, _: usize) {}

/// A boxed owner without its type: its drop function comes first.
#[repr(C)]
struct Boxed<T> {
    drop: unsafe fn(*mut ()),
    owner: T,
}

/// # Safety
/// `boxed` came from a `Box<Boxed<T>>` that nothing uses any more.
unsafe fn drop_box<T>(boxed: *mut ()) {
    // SAFETY: by contract.
    drop(unsafe { Box::from_raw(boxed.cast::<Boxed<T>>()) });
}

/// # Safety
/// As for [`call`], after [`External::from_owner`].
unsafe fn free_owner(_: NonNull<u8>, _: usize, argument: usize) {
    let boxed = std::ptr::with_exposed_provenance_mut::<()>(argument);
    // SAFETY: the argument is a `Boxed`, whose first field is its drop function.
    unsafe { boxed.cast::<unsafe fn(*mut ())>().read()(boxed) };
}

/// Error: a value that could not become a segment, with the value and the reason.
#[derive(Debug)]
pub struct Refused<T> {
    /// The value, unchanged.
    pub value: T,
    /// Reason of the refusal.
    pub error: Error,
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for Refused<T> {}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}
