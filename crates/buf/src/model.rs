//! A model of the crate: bytes become operations, and every operation on chains, segments and clusters runs
//! beside the same operation on a plain vector.
//!
//! The property tests and the fuzz target share it. [`run`] panics if chain and vector differ, if a refused
//! operation has changed anything (R-B6), if foreign bytes are not freed exactly once or with the wrong size
//! or argument (R-B3), or if a zero mark is ignored (R-B5).

use crate::{
    Chain, Cluster, Error, External, FreeIndex, MAX_CLUSTER, OutOfRange, PackedSegment, Parcel, Segment,
};
use manylane_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::cell::Cell;
use std::io::{BufRead, IoSlice, Read};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Number of arms of [`Run::operation`].
const KINDS: usize = 31;
/// Number of chains in a run.
const CHAINS: usize = 3;
/// Length at which a chain is cut, so that a run stays short.
const LONGEST: usize = 100_000;

/// Counts of a run, so that a test can check that its inputs reach the interesting cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Number of operations.
    pub operations: u64,
    /// Number of operations that were refused for lack of memory.
    pub refused: u64,
    /// Number of foreign segments made; all of them are freed by the end.
    pub externals: u64,
    /// Number of clusters and foreign segments that were zeroed at their end.
    pub zeroed: u64,
}

/// Reads `data` as a list of operations, does them on chains and on vectors, and compares the two after each.
///
/// # Panics
/// If they differ.
pub fn run(data: &[u8]) -> Reached {
    let zeroed = ZEROED.get();
    let mut run =
        Run { input: data, chains: Default::default(), entries: Vec::new(), reached: Reached::default() };
    while !run.input.is_empty() {
        run.step();
        run.reached.operations += 1;
        run.compare();
    }
    run.chains = Default::default(); // drops all
    for (number, entry) in run.entries.iter().enumerate() {
        assert_eq!(entry.freed.load(Ordering::Relaxed), 1, "external {number} was freed so often");
    }
    run.reached.zeroed = ZEROED.get() - zeroed;
    run.reached
}

thread_local! {
    static ZEROED: Cell<u64> = const { Cell::new(0) };
}

/// Returns how many clusters this thread has zeroed at their end.
pub fn zeroed() -> u64 {
    ZEROED.get()
}

/// Test hook: called after a marked payload was zeroed, before another owner can get it.
pub(crate) fn check_zeroed(data: NonNull<u8>, len: usize) {
    for at in 0..len {
        // SAFETY: the payload is the caller's until it returns.
        assert_eq!(unsafe { data.add(at).read_volatile() }, 0, "byte {at} of a marked cluster");
    }
    ZEROED.set(ZEROED.get() + 1);
}

/// Foreign bytes and the record of their free function. The bytes stay until the end of the run, so that a
/// second free is detected instead of crashing.
struct Entry {
    bytes: Vec<u8>,
    freed: AtomicU64,
    marked: AtomicBool,
}

fn free_function() -> FreeIndex {
    static INDEX: OnceLock<FreeIndex> = OnceLock::new();
    /// # Safety
    /// `argument` is the address of an `Entry` that lives until the end of the run.
    unsafe fn free(data: NonNull<u8>, len: usize, argument: usize) {
        // SAFETY: by contract.
        let entry = unsafe { &*std::ptr::with_exposed_provenance::<Entry>(argument) };
        assert_eq!(data.as_ptr().cast_const(), entry.bytes.as_ptr(), "the bytes that were given");
        assert_eq!(len, entry.bytes.len(), "the size that was given");
        entry.freed.fetch_add(1, Ordering::Relaxed);
        if entry.marked.load(Ordering::Relaxed) {
            check_zeroed(data, len);
            ZEROED.set(ZEROED.get() - 1); // the header's hook counted it
        }
    }
    *INDEX.get_or_init(|| FreeIndex::register("model", free).expect("registered once, and there is room"))
}

struct Run<'a> {
    input: &'a [u8],
    chains: [(Chain, Vec<u8>); CHAINS],
    #[allow(clippy::vec_box)] // others keep their addresses
    entries: Vec<Box<Entry>>,
    reached: Reached,
}

impl Run<'_> {
    fn byte(&mut self) -> usize {
        match self.input.split_first() {
            Some((&first, rest)) => {
                self.input = rest;
                usize::from(first)
            }
            None => 0,
        }
    }

    /// Returns a number of bytes: mostly small, sometimes near the limits of the size classes.
    fn size(&mut self) -> usize {
        let (a, b) = (self.byte(), self.byte());
        match a {
            0..=159 => b,
            160..=199 => 2048 - 128 + b,
            200..=219 => MAX_CLUSTER - 128 + b,
            220..=229 => 2 * MAX_CLUSTER + b,
            _ => a * 16 + b,
        }
    }

    /// Returns a position, mostly inside `len`, sometimes behind it.
    fn position(&mut self, len: usize) -> usize {
        let (a, b) = (self.byte(), self.byte());
        (a * 256 + b) % (len + 3)
    }

    /// Returns `n` bytes that depend on the number of the operation.
    fn bytes(&self, n: usize) -> Vec<u8> {
        let seed = self.reached.operations as usize * 31 + 7;
        (0..n).map(|at| (seed + at * 13 + (at >> 8)) as u8).collect()
    }

    /// Counts a refusal. Lack of memory is the only legal reason, and only if the run injected it.
    fn refused(&mut self, error: &Error, injected: bool) {
        assert!(injected && matches!(error, Error::Alloc(_)), "refused for another reason: {error}");
        self.reached.refused += 1;
    }

    fn step(&mut self) {
        let kind = self.byte() % KINDS;
        let which = self.byte();
        let (a, b) = (which % CHAINS, (which / CHAINS) % CHAINS);
        // In one of four operations each allocation fails, or each second, third or fourth.
        let injected = (which >= 192).then(|| 1 + self.byte() % 4);
        let failing = injected.map(crate::fail::every);
        self.operation(kind, a, b, injected.is_some());
        drop(failing);
    }

    #[allow(clippy::too_many_lines)] // one arm an operation
    fn operation(&mut self, kind: usize, a: usize, b: usize, injected: bool) {
        match kind {
            0 => {
                let n = self.size();
                let bytes = self.bytes(n);
                let (chain, model) = &mut self.chains[a];
                match chain.append(&bytes) {
                    Ok(()) => model.extend_from_slice(&bytes),
                    Err(error) => self.refused(&error, injected),
                }
            }
            1 => {
                let n = self.size();
                let bytes = self.bytes(n);
                let (chain, model) = &mut self.chains[a];
                match chain.prepend(&bytes) {
                    Ok(()) => drop(model.splice(0..0, bytes)),
                    Err(error) => self.refused(&error, injected),
                }
            }
            2 | 3 => {
                let at = self.position(self.chains[a].1.len());
                let (chain, model) = &mut self.chains[a];
                let before = chain.len();
                let cut = if kind == 2 { chain.split_off(at) } else { chain.split_to(at) };
                match cut {
                    Ok(other) => {
                        let rest = model.split_off(at);
                        if kind == 2 {
                            self.chains[b] = (other, rest); // if `a` is `b`, the kept part is gone
                        } else {
                            let head = std::mem::replace(model, rest);
                            self.chains[b] = (other, head);
                        }
                    }
                    Err(Error::OutOfRange(error)) => {
                        assert!(at > before, "{error}");
                        assert!(
                            error
                                .to_string()
                                .contains(&format!("split at {at} of a chain of {before} bytes"))
                        );
                    }
                    Err(error) => self.refused(&error, injected),
                }
            }
            4 => {
                let len = self.chains[a].1.len();
                let (start, end) = (self.position(len), self.position(len));
                match self.chains[a].0.copy_range(start..end) {
                    Ok(copy) => {
                        let bytes = self.chains[a].1[..end].get(start..).unwrap_or(&[]).to_vec();
                        self.chains[b] = (copy, bytes);
                    }
                    Err(Error::OutOfRange(_)) => assert!(end > len),
                    Err(error) => self.refused(&error, injected),
                }
            }
            5 => {
                let n = self.size();
                let (chain, model) = &mut self.chains[a];
                match chain.pull_up(n) {
                    Ok(front) => assert_eq!(front, &model[..n]),
                    Err(Error::OutOfRange(_)) => assert!(n > model.len()),
                    Err(Error::TooLong { .. }) => assert!(n > MAX_CLUSTER),
                    Err(error) => self.refused(&error, injected),
                }
            }
            6 | 7 => {
                let n = self.position(self.chains[a].1.len());
                let (chain, model) = &mut self.chains[a];
                let done = chain.trim_front(n);
                assert_eq!(done.is_ok(), n <= model.len());
                if done.is_ok() {
                    model.drain(..n);
                }
            }
            8 => {
                let n = self.position(self.chains[a].1.len());
                self.chains[a].0.truncate(n);
                self.chains[a].1.truncate(n);
            }
            9 | 10 => {
                if a == b {
                    return;
                }
                let (mut other, mut bytes) = std::mem::take(&mut self.chains[b]);
                let (chain, model) = &mut self.chains[a];
                if let Err(error) = chain.append_chain(&mut other) {
                    self.chains[b] = (other, bytes);
                    return self.refused(&error, injected);
                }
                assert!(other.is_empty() && other.segment_count() == 0);
                model.append(&mut bytes);
            }
            11 | 12 => {
                let n = self.size();
                let writable = self.byte().is_multiple_of(2);
                let Some(segment) = self.external(n, writable, injected) else { return };
                let bytes = segment.to_vec();
                self.push(a, segment, &bytes, kind == 11, injected);
            }
            13 => {
                let n = self.size().clamp(1, MAX_CLUSTER);
                let bytes = self.bytes(n);
                match Cluster::with(&bytes) {
                    Ok(cluster) => self.push(a, cluster.into_segment(), &bytes, true, injected),
                    Err(error) => self.refused(&error, injected),
                }
            }
            14 => self.read(a),
            15 => {
                let (chain, model) = &self.chains[a];
                let mut vectors = [IoSlice::new(&[]); 8];
                let n = chain.io_slices(&mut vectors);
                assert_eq!(n, chain.segment_count().min(8));
                let bytes: Vec<u8> = vectors[..n].iter().flat_map(|vector| vector.iter().copied()).collect();
                assert!(model.starts_with(&bytes) && (n == 8 || bytes.len() == model.len()));
            }
            16 => self.mark(a),
            17 => {
                let parcel = Parcel::from(std::mem::take(&mut self.chains[a].0));
                assert_eq!(parcel.len(), self.chains[a].1.len());
                self.chains[a].0 = parcel.open();
            }
            18 => self.elsewhere(a),
            19 => {
                let (least, n) = (self.byte(), self.size());
                let bytes = self.bytes(n);
                let (chain, model) = &mut self.chains[a];
                let filled = chain.spare(least, 2048).map(|spare| {
                    let put = spare.fill(|room| {
                        assert!(room.len() >= least.max(1));
                        let n = n.min(room.len());
                        Ok::<_, ()>(room[..n].write_copy_of_slice(&bytes[..n]))
                    });
                    put.expect("nothing failed")
                });
                match filled {
                    Ok(put) => model.extend_from_slice(&bytes[..put]),
                    Err(error) => self.refused(&error, injected),
                }
            }
            20 => {
                // Writing in place is refused while another handle could see the bytes.
                let (chain, model) = &mut self.chains[a];
                let at = model.len() - chain.back().map_or(0, Segment::len);
                if let Some(mut back) = chain.pop_back() {
                    if let Some(bytes) = back.try_unique() {
                        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                        model[at..].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                    }
                    chain.push_back(back).expect("it came from there");
                }
            }
            21 => {
                // A failed read adds nothing, and the room can be claimed again.
                if let Ok(spare) = self.chains[a].0.spare(1, 2048) {
                    assert_eq!(spare.fill(|_| Err::<&mut [u8], _>("reset")), Err("reset"));
                }
            }
            22 => {
                let (first, second) = (self.chains[a].0.share(), self.chains[a].1.clone());
                match first {
                    Ok(chain) => self.chains[b] = (chain, second),
                    Err(error) => self.refused(&error, injected),
                }
            }
            23 | 24 => {
                // All parts come into one segment, or nothing at all.
                let sizes = [self.byte(), self.size(), self.byte()];
                let size = self.size();
                let bytes = self.bytes(sizes.iter().sum());
                let (first, rest) = bytes.split_at(sizes[0]);
                let (second, third) = rest.split_at(sizes[1]);
                let (chain, model) = &mut self.chains[a];
                match chain.append_together(&[first, second, third], size) {
                    Ok(()) => {
                        assert!(chain.back().map_or(0, Segment::len) >= bytes.len(), "in one segment");
                        model.extend_from_slice(&bytes);
                    }
                    Err(Error::TooLong { .. }) => assert!(size.max(bytes.len()) > MAX_CLUSTER),
                    Err(error) => self.refused(&error, injected),
                }
            }
            25 => {
                let n = self.position(self.chains[a].1.len());
                let byte = self.byte() as u8;
                let (chain, model) = &self.chains[a];
                let mut front = model[..n.min(model.len())].to_vec();
                assert!(chain.starts_with(&front));
                if let Some(last) = front.last_mut() {
                    *last ^= 1;
                    assert!(!chain.starts_with(&front), "the last of {} bytes differs", front.len());
                }
                assert!(!chain.starts_with(&[&model[..], &[byte]].concat()), "longer than the chain");
                assert_eq!(chain.cursor().find(byte), model.iter().position(|&each| each == byte));
            }
            26 => {
                let (least, n) = (self.byte(), self.size());
                let bytes = self.bytes(n);
                let (chain, model) = &mut self.chains[a];
                let filled = chain.spare(least, 2048).map(|spare| {
                    let filled = spare.fill(|room| {
                        assert!(room.len() >= least.max(1));
                        let n = n.min(room.len());
                        Ok::<_, ()>(room[..n].write_copy_of_slice(&bytes[..n]))
                    });
                    filled.expect("nothing failed")
                });
                match filled {
                    Ok(put) => model.extend_from_slice(&bytes[..put]),
                    Err(error) => self.refused(&error, injected),
                }
            }
            27 => self.segment(a, b, injected),
            28 => self.cluster(a, injected),
            29 => self.packed(a, injected),
            _ => {
                self.chains[a].0.clear();
                self.chains[a].1.clear();
            }
        }
    }

    /// Removes the first or the last segment of `a`, with its bytes, from chain and vector.
    fn pop(&mut self, a: usize, front: bool) -> Option<(Segment, Vec<u8>)> {
        let (chain, model) = &mut self.chains[a];
        let segment = if front { chain.pop_front() } else { chain.pop_back() }?;
        let start = if front { 0 } else { model.len() - segment.len() };
        let bytes: Vec<u8> = model.drain(start..start + segment.len()).collect();
        assert_eq!(*segment, bytes[..]);
        Some((segment, bytes))
    }

    /// Tests a single segment of `a`, cut or viewed in every way. The part that is cut off goes to `b`, the
    /// rest back to its place.
    fn segment(&mut self, a: usize, b: usize, injected: bool) {
        let (cut, front) = (self.byte() % 5, self.byte().is_multiple_of(2));
        let Some((mut segment, mut bytes)) = self.pop(a, front) else { return };
        let (at, end) = (self.position(bytes.len()), self.position(bytes.len()));
        let len = bytes.len();
        let refused = |error: OutOfRange, at: usize| {
            assert!(at > len, "{error}");
            assert!(error.to_string().contains(&format!(" {at} of a segment of {len} bytes")), "{error}");
        };
        let mut other = None;
        match cut {
            0 => match segment.slice(at..end) {
                Ok(view) => {
                    assert!(view.shares_with(&segment) && !segment.is_unique());
                    other = Some((view, bytes[..end].get(at..).unwrap_or(&[]).to_vec()));
                }
                Err(error) => refused(error, end),
            },
            1 => match segment.split_off(at) {
                Ok(tail) => other = Some((tail, bytes.split_off(at))),
                Err(error) => refused(error, at),
            },
            2 => match segment.split_to(at) {
                Ok(head) => {
                    let rest = bytes.split_off(at);
                    other = Some((head, std::mem::replace(&mut bytes, rest)));
                }
                Err(error) => refused(error, at),
            },
            3 => match segment.trim_front(at) {
                Ok(()) => drop(bytes.drain(..at)),
                Err(error) => refused(error, at),
            },
            _ => {
                segment.truncate(at);
                bytes.truncate(at);
            }
        }
        assert_eq!(
            (&*segment, segment.len(), segment.is_empty()),
            (&bytes[..], bytes.len(), bytes.is_empty())
        );
        self.push(a, segment, &bytes, !front, injected);
        if let Some((segment, bytes)) = other {
            assert_eq!(*segment, bytes[..]);
            self.push(b, segment, &bytes, true, injected);
        }
    }

    /// Tests a cluster with room in front, filled by `put` and by `commit`; it is at least as long as
    /// requested.
    fn cluster(&mut self, a: usize, injected: bool) {
        let (headroom, size) = (self.byte(), self.size());
        let (put, commit) = (self.size(), self.byte());
        let bytes = self.bytes(put + commit);
        let mut cluster = match Cluster::with_headroom(headroom, size) {
            Ok(cluster) => cluster,
            Err(Error::TooLong { .. }) => return assert!(headroom + size > MAX_CLUSTER),
            Err(Error::EmptyCluster) => return assert_eq!(headroom + size, 0),
            Err(error) => return self.refused(&error, injected),
        };
        let room = cluster.spare_len();
        assert!(room >= size && cluster.is_empty());
        assert_eq!(cluster.put(&bytes[..put]), put.min(room));
        let put = put.min(room);
        let commit = commit.min(cluster.spare_len());
        cluster.spare_mut()[..commit].write_copy_of_slice(&bytes[put..][..commit]);
        // SAFETY: just written.
        unsafe { cluster.commit(commit) };
        let (bytes, before) = (&bytes[..put + commit], vec![b'<'; headroom]);
        assert_eq!((cluster.as_slice(), cluster.spare_len()), (bytes, room - bytes.len()));
        // The room in front exists as long as this chain is the cluster's only owner.
        let mut chain = Chain::from(cluster.into_segment());
        let mut model = bytes.to_vec();
        if !bytes.is_empty() {
            chain.prepend(&before).expect("no allocation: the room is there");
            assert_eq!(chain.segment_count(), 1);
            model.splice(0..0, before);
        }
        self.chains[a] = (chain, model);
    }

    /// Packs a segment, opens and reads it on another lane, and brings it back.
    fn packed(&mut self, a: usize, injected: bool) {
        let (front, there) = (self.byte().is_multiple_of(2), self.byte().is_multiple_of(2));
        let Some((segment, bytes)) = self.pop(a, front) else { return };
        let mut packed = PackedSegment::from(segment);
        assert_eq!((packed.len(), packed.is_empty()), (bytes.len(), false));
        if there {
            let expected = bytes.clone();
            let opened = std::thread::spawn(move || {
                let segment = packed.open();
                assert_eq!(*segment, expected[..]);
                let copy = segment.clone();
                assert!(copy.shares_with(&segment));
                drop(copy);
                (PackedSegment::from(segment), ZEROED.get())
            });
            let (back, zeroed) = opened.join().expect("no assertion failed");
            ZEROED.set(ZEROED.get() + zeroed);
            packed = back;
        }
        self.push(a, packed.open(), &bytes, !front, injected);
    }

    fn push(&mut self, a: usize, segment: Segment, bytes: &[u8], back: bool, injected: bool) {
        let (chain, model) = &mut self.chains[a];
        match if back { chain.push_back(segment) } else { chain.push_front(segment) } {
            Ok(()) if back => model.extend_from_slice(bytes),
            Ok(()) => drop(model.splice(0..0, bytes.iter().copied())),
            Err(refused) => {
                assert_eq!(&*refused.segment, bytes, "given back untouched");
                self.refused(&refused.error, injected);
            }
        }
    }

    fn external(&mut self, n: usize, writable: bool, injected: bool) -> Option<Segment> {
        let entry = Entry { bytes: self.bytes(n), freed: AtomicU64::new(0), marked: AtomicBool::new(false) };
        let mut entry = Box::new(entry);
        let data = NonNull::new(entry.bytes.as_mut_ptr()).expect("a vector's pointer is never null");
        let argument = std::ptr::from_ref(&*entry).expose_provenance();
        // SAFETY: the bytes live until the end of the run, and nothing else touches them before `free` is
        // called.
        match unsafe { External::from_raw(data, n, free_function(), argument, writable) } {
            Ok(segment) => {
                self.entries.push(entry);
                self.reached.externals += 1;
                Some(segment)
            }
            Err(error) => {
                assert_eq!(
                    entry.freed.load(Ordering::Relaxed),
                    0,
                    "refused: the bytes are still the caller's"
                );
                self.refused(&error, injected);
                None
            }
        }
    }

    fn mark(&mut self, a: usize) {
        for segment in self.chains[a].0.segments() {
            match segment.zero_on_free() {
                Ok(()) => assert!(segment.is_zero_on_free()),
                Err(error) => {
                    assert!(segment.is_external() && error.to_string().contains("read-only"));
                    continue;
                }
            }
            if segment.is_external() {
                let inside = |entry: &Entry| entry.bytes.as_ptr_range().contains(&segment.as_ptr());
                let entry = self.entries.iter().find(|entry| inside(entry)).expect("made by this run");
                entry.marked.store(true, Ordering::Relaxed);
            }
        }
    }

    fn read(&mut self, a: usize) {
        let at = self.position(self.chains[a].1.len());
        let n = self.size();
        let byte = self.byte() as u8;
        let (chain, model) = &self.chains[a];
        let mut cursor = chain.cursor();
        if cursor.advance(at).is_err() {
            assert!(at > model.len());
            return;
        }
        let rest = &model[at..];
        assert_eq!((cursor.position(), cursor.remaining()), (at, rest.len()));
        assert_eq!(cursor.peek(), rest.first().copied());
        assert_eq!(cursor.find(byte), rest.iter().position(|&each| each == byte));
        assert_eq!(
            cursor.clone().read_u32().ok(),
            rest.first_chunk().map(|first| u32::from_be_bytes(*first))
        );
        let mut bytes = vec![0; n];
        match cursor.clone().read_bytes(&mut bytes) {
            Ok(()) => assert_eq!(bytes, rest[..n]),
            Err(error) => assert!(n > rest.len(), "{error}"),
        }
        let mut line = Vec::new();
        let read = cursor.read_until(byte, &mut line).expect("memory does not fail");
        let wanted = rest.iter().position(|&each| each == byte).map_or(rest.len(), |at| at + 1);
        assert_eq!((read, &line[..]), (wanted, &rest[..wanted]));
        let mut tail = Vec::new();
        cursor.read_to_end(&mut tail).expect("memory does not fail");
        assert_eq!(tail, rest[wanted..]);
    }

    /// Another lane opens the chain, reads it, shares it, appends to it and sends it back.
    fn elsewhere(&mut self, a: usize) {
        let parcel = Parcel::from(std::mem::take(&mut self.chains[a].0));
        let expected = self.chains[a].1.clone();
        let zeroed = std::thread::spawn(move || {
            let mut chain = parcel.open();
            assert_eq!(chain, expected[..]);
            let copy = chain.share().expect("injection is for the other thread");
            chain.append(b"from elsewhere").expect("injection is for the other thread");
            assert_eq!(copy, expected[..]);
            drop(copy);
            (Parcel::from(chain), ZEROED.get())
        })
        .join()
        .expect("no assertion failed");
        self.chains[a].0 = zeroed.0.open();
        ZEROED.set(ZEROED.get() + zeroed.1);
        self.chains[a].1.extend_from_slice(b"from elsewhere");
    }

    fn compare(&mut self) {
        for (chain, model) in &mut self.chains {
            assert_eq!((chain.len(), chain.is_empty()), (model.len(), model.is_empty()));
            assert!(chain.segments().all(|segment| !segment.is_empty()));
            assert_eq!(chain.segments().map(Segment::len).sum::<usize>(), model.len());
            assert!(*chain == model[..], "the chain reads differently");
            if model.len() > LONGEST {
                chain.truncate(1000);
                model.truncate(1000);
            }
        }
    }
}
