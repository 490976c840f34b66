//! Variables. Names are resolved when the configuration is read; values live as long as their scope.
//!
//! Rules:
//! 1. A name belongs to a scope and has a dense index in it ([`VariableId`]). Evaluation uses no names.
//! 2. Values of `sess`, `txn`, `req`, `res` and `check` are in a [`Variables`] each, which belongs to one
//!    lane. Its owner clears and reuses it, so the steady state allocates nothing. Text is in one byte
//!    vector, bounded by [`MAX_SCOPE_BYTES`].
//! 3. Lanes share values of `proc`. Each is published as a whole ([`ProcessVariables`]); reading one takes
//!    two plain loads. Setting one allocates and takes a lock, so it is for rules that run rarely. Of two
//!    concurrent writes either one wins.

use crate::error::Error;
use crate::sample::Value;
use crate::scratch::Scratch;
use crate::show::Shown;
use manylane_sync::atomic::{AtomicUsize, Ordering};
use manylane_sync::{Arc, LockClass, Mutex, Published, Reader};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum length of a variable's name in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Maximum number of variables in a scope. It bounds the configuration, not traffic.
pub const MAX_VARIABLES: usize = 4096;
/// Default maximum size of text in a scope's variables, in bytes; see [`Variables::with_limit`]. Setting a
/// value beyond it fails.
pub const MAX_SCOPE_BYTES: usize = 64 * 1024;

/// Overhead of a variable in bytes, for the limits of `tune.vars.*-max-size`. It is similar to that of
/// HAProxy.
pub const VARIABLE_BYTES: usize = 64;

/// `tune.vars.*-max-size` in bytes. The limit of a scope includes the scopes inside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableLimits {
    /// `proc`
    pub process: usize,
    /// `sess`, including `txn`
    pub session: usize,
    /// `txn`, including `req` and `res`
    pub transaction: usize,
    /// `req` and `res` together
    pub message: usize,
    /// `check`
    pub check: usize,
    /// All variables of the process. Each lane has an equal share, so lanes need no synchronisation.
    pub global: usize,
    /// Number of lanes.
    pub lanes: usize,
}

impl Default for VariableLimits {
    fn default() -> Self {
        let none = usize::MAX;
        Self {
            process: none,
            session: none,
            transaction: none,
            message: none,
            check: none,
            global: none,
            lanes: 1,
        }
    }
}

thread_local! {
    /// Size of this lane's variables in bytes.
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// Scope of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The process.
    Process,
    /// The client connection.
    Session,
    /// A request and its response.
    Transaction,
    /// The processing of a request.
    Request,
    /// The processing of a response.
    Response,
    /// One run of a health check.
    Check,
    /// A scope of the parent of a stream: `psess`, `ptxn`, `preq` or `pres`. No stream has a parent here, so
    /// such variables have no value, and nothing sets them.
    Parent,
}

impl Scope {
    const COUNT: usize = Self::Parent as usize + 1;

    /// Returns the scope with this prefix in names.
    fn of(prefix: &[u8]) -> Option<Self> {
        Some(match prefix {
            b"proc" => Self::Process,
            b"sess" => Self::Session,
            b"txn" => Self::Transaction,
            b"req" => Self::Request,
            b"res" => Self::Response,
            b"check" => Self::Check,
            b"psess" | b"ptxn" | b"preq" | b"pres" => Self::Parent,
            _ => return None,
        })
    }
}

/// A variable: its index in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VariableId {
    /// Its scope.
    pub scope: Scope,
    pub(crate) index: u16,
}

/// All variable names of a generation.
#[derive(Clone, Debug, Default)]
pub struct VariableNames {
    ids: HashMap<Vec<u8>, VariableId>,
    counts: [u16; Scope::COUNT],
}

impl VariableNames {
    /// The variable named `scope.name`, created on first use.
    pub fn resolve(&mut self, text: &[u8]) -> Result<VariableId, Error> {
        if let Some(id) = self.ids.get(text) {
            return Ok(*id);
        }
        let dot = memchr::memchr(b'.', text).unwrap_or(text.len());
        let Some(scope) = Scope::of(&text[..dot]) else {
            return Err(Error::new(
                0,
                format!(
                    "a variable's name expects a scope first (proc., (p)sess., (p)txn., (p)req., (p)res. or \
                        check.), found '{}'",
                    Shown(text)
                ),
            ));
        };
        let name = text.get(dot + 1..).unwrap_or_default();
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Error::new(
                dot.min(text.len()),
                format!(
                    "a variable's name expects 1 to {MAX_NAME_BYTES} bytes behind its scope, found {}",
                    name.len()
                ),
            ));
        }
        if let Some(at) = name.iter().position(|b| !b.is_ascii_alphanumeric() && !matches!(b, b'_' | b'.')) {
            return Err(Error::new(
                dot + 1 + at,
                format!(
                    "a variable's name expects letters, digits, '_' and '.', found '{}'",
                    Shown(&name[at..=at])
                ),
            ));
        }
        let count = &mut self.counts[scope as usize];
        if usize::from(*count) >= MAX_VARIABLES {
            return Err(Error::new(
                0,
                format!(
                    "a scope expects {MAX_VARIABLES} variables at most, found more in '{}'",
                    Shown(&text[..dot])
                ),
            ));
        }
        let id = VariableId { scope, index: *count };
        *count += 1;
        self.ids.insert(text.to_vec(), id);
        Ok(id)
    }

    /// The variable with this name, if an expression of the generation uses it.
    pub fn get(&self, text: &[u8]) -> Option<VariableId> {
        self.ids.get(text).copied()
    }

    /// Number of variables in a scope.
    pub fn count(&self, scope: Scope) -> usize {
        usize::from(self.counts[scope as usize])
    }

    /// All names with their variables, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], VariableId)> {
        self.ids.iter().map(|(name, id)| (&name[..], *id))
    }
}

/// A value; text is in [`Variables::bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Unset,
    Bool(bool),
    Int(i64),
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr),
    Text { kind: TextKind, start: u32, len: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Str,
    Bin,
    Method,
}

impl TextKind {
    fn value(self, bytes: &[u8]) -> Value<'_> {
        match self {
            Self::Str => Value::Str(bytes),
            Self::Bin => Value::Bin(bytes),
            Self::Method => Value::Method(bytes),
        }
    }
}

/// The values of the variables in one scope.
#[derive(Debug)]
pub struct Variables {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    /// Number of bytes in `bytes` that slots refer to.
    live: usize,
    /// Number of variables that are set.
    count: usize,
    limit: usize,
}

impl Drop for Variables {
    fn drop(&mut self) {
        self.clear(); // subtracts from the lane's sum
    }
}

impl Clone for Variables {
    fn clone(&self) -> Self {
        let copy = Self {
            slots: self.slots.clone(),
            bytes: self.bytes.clone(),
            live: self.live,
            count: self.count,
            limit: self.limit,
        };
        copy.tell(0);
        copy
    }
}

impl Default for Variables {
    fn default() -> Self {
        Self::with_limit(MAX_SCOPE_BYTES)
    }
}

impl Variables {
    /// Variables that are all unset. Text takes at most `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self { slots: Vec::new(), bytes: Vec::new(), live: 0, count: 0, limit: limit.min(u32::MAX as usize) }
    }

    /// True if nothing was set since it was [cleared](Self::clear).
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Unsets all variables and keeps the memory.
    pub fn clear(&mut self) {
        let before = self.used();
        self.slots.clear();
        self.bytes.clear();
        self.live = 0;
        self.count = 0;
        self.tell(before);
    }

    /// Size of the variables for the limits, in bytes.
    pub fn used(&self) -> usize {
        self.live + self.count * VARIABLE_BYTES
    }

    /// Memory that the texts may take without a new allocation, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Current size of a variable.
    fn used_by(&self, id: VariableId) -> usize {
        match self.slots.get(usize::from(id.index)) {
            None | Some(Slot::Unset) => 0,
            Some(Slot::Text { len, .. }) => *len as usize + VARIABLE_BYTES,
            Some(_) => VARIABLE_BYTES,
        }
    }

    /// Updates the lane's sum after a change from size `before`.
    fn tell(&self, before: usize) {
        let now = self.used();
        if now != before {
            // The sum does not exist any more while a thread ends.
            let _ = LANE.try_with(|sum| sum.set((sum.get() + now).saturating_sub(before)));
        }
    }

    /// The value; text is borrowed.
    pub fn get(&self, id: VariableId) -> Option<Value<'_>> {
        Some(match *self.slots.get(usize::from(id.index))? {
            Slot::Unset => return None,
            Slot::Bool(b) => Value::Bool(b),
            Slot::Int(n) => Value::Int(n),
            Slot::Ipv4(addr) => Value::Ipv4(addr),
            Slot::Ipv6(addr) => Value::Ipv6(addr),
            Slot::Text { kind, start, len } => kind.value(&self.bytes[start as usize..][..len as usize]),
        })
    }

    /// Unsets a variable.
    pub fn unset(&mut self, id: VariableId) {
        let before = self.used();
        self.forget(id);
        self.tell(before);
    }

    fn forget(&mut self, id: VariableId) {
        if let Some(slot) = self.slots.get_mut(usize::from(id.index)) {
            if let Slot::Text { len, .. } = slot {
                self.live -= *len as usize;
            }
            self.count -= usize::from(*slot != Slot::Unset);
            *slot = Slot::Unset;
        }
    }

    /// Sets a variable. If the text does not fit, or memory is short, unsets it and returns false.
    pub fn set(&mut self, id: VariableId, value: Value<'_>) -> bool {
        let before = self.used();
        let fits = self.put(id, value);
        self.tell(before);
        fits
    }

    fn put(&mut self, id: VariableId, value: Value<'_>) -> bool {
        let index = usize::from(id.index);
        if self.slots.len() <= index {
            self.slots.resize(index + 1, Slot::Unset);
        }
        let (kind, text) = match value {
            Value::Str(text) => (TextKind::Str, text),
            Value::Bin(text) => (TextKind::Bin, text),
            Value::Method(text) => (TextKind::Method, text),
            plain => {
                self.forget(id);
                self.count += 1;
                self.slots[index] = match plain {
                    Value::Bool(b) => Slot::Bool(b),
                    Value::Int(n) => Slot::Int(n),
                    Value::Ipv4(addr) => Slot::Ipv4(addr),
                    Value::Ipv6(addr) => Slot::Ipv6(addr),
                    Value::Str(_) | Value::Bin(_) | Value::Method(_) => Slot::Unset,
                };
                return true;
            }
        };
        // In place, if the old text is at least as long.
        if let Slot::Text { start, len: old, .. } = self.slots[index]
            && text.len() <= old as usize
        {
            self.bytes[start as usize..][..text.len()].copy_from_slice(text);
            self.live -= old as usize - text.len();
            self.slots[index] = Slot::Text { kind, start, len: text.len() as u32 };
            return true;
        }
        self.forget(id);
        if self.live + text.len() > self.limit {
            return false;
        }
        if self.bytes.len() + text.len() > self.limit {
            self.compact();
        }
        if self.bytes.capacity() - self.bytes.len() < text.len() && manylane_pool::check_memory().is_err() {
            return false;
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text);
        self.live += text.len();
        self.count += 1;
        self.slots[index] = Slot::Text { kind, start, len: text.len() as u32 };
        true
    }

    /// Moves the used texts together. Takes time quadratic in the number of variables with text, which the
    /// configuration bounds.
    fn compact(&mut self) {
        let mut end = 0usize;
        let mut from = 0u32;
        loop {
            let next = self
                .slots
                .iter()
                .enumerate()
                .filter_map(|(index, slot)| match slot {
                    Slot::Text { start, len, .. } if *start >= from && *len > 0 => {
                        Some((*start, *len, index))
                    }
                    _ => None,
                })
                .min();
            let Some((start, len, index)) = next else { break };
            self.bytes.copy_within(start as usize..(start + len) as usize, end);
            if let Slot::Text { start: target, .. } = &mut self.slots[index] {
                *target = end as u32;
            }
            end += len as usize;
            from = start + len;
        }
        for slot in &mut self.slots {
            if let Slot::Text { start, len: 0, .. } = slot {
                *start = 0;
            }
        }
        self.bytes.truncate(end);
    }
}

/// A value with owned bytes.
#[derive(Debug)]
enum Owned {
    Plain(Value<'static>),
    Text(TextKind, Box<[u8]>),
}

/// The values of `proc` variables, shared by all lanes and by consecutive generations.
#[derive(Debug)]
pub struct ProcessVariables {
    values: Box<[Arc<Global>]>,
    purse: Arc<ProcessVariablesUsage>,
}

/// A variable of the process.
#[derive(Debug)]
struct Global {
    value: Published<Option<Owned>>,
    /// Size for the limits; changed under the lock of `purse`.
    size: AtomicUsize,
    purse: Arc<ProcessVariablesUsage>,
}

/// Sum of the sizes of all `proc` variables.
#[derive(Debug)]
struct ProcessVariablesUsage {
    setting: Mutex<()>,
    /// Increases under the lock; read without it.
    used: AtomicUsize,
}

static SIZES: LockClass = LockClass::new("variables of the process", 71);

impl Drop for Global {
    fn drop(&mut self) {
        self.purse.used.fetch_sub(self.size.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl ProcessVariables {
    /// Unset variables for the names of a generation.
    pub fn new(names: &VariableNames) -> Self {
        Self::with_room(names, 0)
    }

    /// The same with room for `more` names that are resolved later.
    pub fn with_room(names: &VariableNames, more: usize) -> Self {
        let count = names.count(Scope::Process) + more;
        let purse =
            Arc::new(ProcessVariablesUsage { setting: Mutex::new(&SIZES, ()), used: AtomicUsize::new(0) });
        let global = || {
            Arc::new(Global { value: Published::new(None), size: AtomicUsize::new(0), purse: purse.clone() })
        };
        Self { values: (0..count).map(|_| global()).collect(), purse: purse.clone() }
    }

    /// Shares variables with `before`: each pair in `shared` is an index here and there. Setting a shared
    /// variable affects both. The other variables count into the sum of `before` from then on. Call it before
    /// `self` is used.
    pub fn follow(&mut self, before: &Self, shared: impl IntoIterator<Item = (VariableId, VariableId)>) {
        for (own, then) in shared {
            if let (Some(own), Some(then)) =
                (self.values.get_mut(usize::from(own.index)), before.values.get(usize::from(then.index)))
            {
                *own = then.clone();
            }
        }
        for alone in self.values.iter_mut().filter_map(Arc::get_mut) {
            let size = alone.size.load(Ordering::Relaxed);
            alone.purse.used.fetch_sub(size, Ordering::Relaxed);
            alone.purse = before.purse.clone();
            before.purse.used.fetch_add(size, Ordering::Relaxed);
        }
        self.purse = before.purse.clone();
    }

    /// The value, if it is set.
    pub fn get<'a>(&'a self, id: VariableId, reader: &'a Reader) -> Option<Value<'a>> {
        match self.values.get(usize::from(id.index))?.value.load(reader).as_ref()? {
            Owned::Plain(value) => Some(*value),
            Owned::Text(kind, bytes) => Some(kind.value(bytes)),
        }
    }

    /// Sets a variable for all lanes; `None` unsets it.
    pub fn set(&self, id: VariableId, value: Option<Value<'_>>) {
        self.set_within(id, value, usize::MAX);
    }

    /// Sets a variable if the sum of all sizes is at most `most` afterwards; otherwise unsets it and returns
    /// false. If memory is short, the old value stays.
    fn set_within(&self, id: VariableId, value: Option<Value<'_>>, most: usize) -> bool {
        let Some(slot) = self.values.get(usize::from(id.index)) else { return false };
        if manylane_pool::check_memory().is_err() {
            return false;
        }
        let size = value.map_or(0, size);
        let owned = value.map(|value| match value {
            Value::Str(bytes) => Owned::Text(TextKind::Str, bytes.into()),
            Value::Bin(bytes) => Owned::Text(TextKind::Bin, bytes.into()),
            Value::Method(bytes) => Owned::Text(TextKind::Method, bytes.into()),
            Value::Bool(b) => Owned::Plain(Value::Bool(b)),
            Value::Int(n) => Owned::Plain(Value::Int(n)),
            Value::Ipv4(addr) => Owned::Plain(Value::Ipv4(addr)),
            Value::Ipv6(addr) => Owned::Plain(Value::Ipv6(addr)),
        });
        let setting = slot.purse.setting.lock();
        let before = slot.size.load(Ordering::Relaxed);
        let others = slot.purse.used.load(Ordering::Relaxed) - before;
        let fits = size <= most.saturating_sub(others);
        let counted = if fits { size } else { 0 };
        slot.size.store(counted, Ordering::Relaxed);
        // The sum may also decrease concurrently, when an older generation is dropped.
        slot.purse.used.fetch_add(counted.wrapping_sub(before), Ordering::Relaxed);
        // Publish under the lock, so that value and size are from the same write.
        slot.value.replace(owned.filter(|_| fits));
        drop(setting);
        fits
    }
}

/// Size of a value for the limits, in bytes.
fn size(value: Value<'_>) -> usize {
    VARIABLE_BYTES
        + match value {
            Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes) => bytes.len(),
            Value::Bool(_) | Value::Int(_) | Value::Ipv4(_) | Value::Ipv6(_) => 0,
        }
}

/// The variables that an evaluation sees. A scope that does not exist is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scopes<'a> {
    /// `proc`
    pub process: Option<&'a ProcessVariables>,
    /// `sess`
    pub session: Option<&'a RefCell<Variables>>,
    /// `txn`
    pub transaction: Option<&'a RefCell<Variables>>,
    /// `req`
    pub request: Option<&'a RefCell<Variables>>,
    /// `res`
    pub response: Option<&'a RefCell<Variables>>,
    /// `check`
    pub check: Option<&'a RefCell<Variables>>,
    /// Limits of sizes.
    pub limits: VariableLimits,
}

impl<'a> Scopes<'a> {
    fn cell(&self, scope: Scope) -> Option<&'a RefCell<Variables>> {
        match scope {
            Scope::Process | Scope::Parent => None,
            Scope::Session => self.session,
            Scope::Transaction => self.transaction,
            Scope::Request => self.request,
            Scope::Response => self.response,
            Scope::Check => self.check,
        }
    }

    /// True if the scope exists here. Without it, expressions that read or write its variables have no value.
    pub(crate) fn has(&self, scope: Scope) -> bool {
        if scope == Scope::Process { self.process.is_some() } else { self.cell(scope).is_some() }
    }

    /// The value. Text of lane scopes is copied into the scratch, since a later converter may set the
    /// variable again.
    pub fn get<'x>(&self, id: VariableId, reader: &'x Reader, scratch: &mut Scratch<'x>) -> Option<Value<'x>>
    where
        'a: 'x,
    {
        if id.scope == Scope::Process {
            return self.process?.get(id, reader);
        }
        let variables = self.cell(id.scope)?.borrow();
        Some(match variables.get(id)? {
            Value::Str(bytes) => Value::Str(scratch.copy(bytes)?),
            Value::Bin(bytes) => Value::Bin(scratch.copy(bytes)?),
            Value::Method(bytes) => Value::Method(scratch.copy(bytes)?),
            Value::Bool(b) => Value::Bool(b),
            Value::Int(n) => Value::Int(n),
            Value::Ipv4(addr) => Value::Ipv4(addr),
            Value::Ipv6(addr) => Value::Ipv6(addr),
        })
    }

    /// True if a value fits into its scope and the scopes around it.
    fn fits(&self, id: VariableId, cell: &RefCell<Variables>, value: Value<'_>) -> bool {
        if self.limits == VariableLimits::default() {
            return true;
        }
        let used = |cell: Option<&RefCell<Variables>>| cell.map_or(0, |cell| cell.borrow().used());
        let before = cell.borrow().used_by(id);
        let within = |sum: usize, most: usize| (sum + size(value)).saturating_sub(before) <= most;
        let message = used(self.request) + used(self.response);
        let transaction = message + used(self.transaction);
        let session = transaction + used(self.session);
        let of_process = self.process.map_or(0, |process| process.purse.used.load(Ordering::Relaxed));
        let share = self.limits.global.saturating_sub(of_process) / self.limits.lanes.max(1);
        let inner = match id.scope {
            Scope::Request | Scope::Response => {
                within(message, self.limits.message) && within(transaction, self.limits.transaction)
            }
            Scope::Transaction => within(transaction, self.limits.transaction),
            Scope::Check => within(used(self.check), self.limits.check),
            Scope::Session | Scope::Process | Scope::Parent => true,
        };
        // The session of a check has no other variables.
        inner && within(session + used(self.check), self.limits.session) && within(LANE.get(), share)
    }

    /// Sets a variable; `None` unsets it. False if the scope does not exist or the value does not fit.
    pub fn set(&self, id: VariableId, value: Option<Value<'_>>) -> bool {
        if id.scope == Scope::Process {
            let lane = LANE.get().saturating_mul(self.limits.lanes);
            let most = self.limits.process.min(self.limits.global.saturating_sub(lane));
            return self.process.is_some_and(|process| process.set_within(id, value, most));
        }
        let Some(cell) = self.cell(id.scope) else { return false };
        match value {
            Some(value) if !self.fits(id, cell, value) => {
                cell.borrow_mut().unset(id);
                false
            }
            Some(value) => cell.borrow_mut().set(id, value),
            None => {
                cell.borrow_mut().unset(id);
                true
            }
        }
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_process_variable_is_that_of_its_value_whoever_sets_it() {
        let mut names = VariableNames::default();
        let id = names.resolve(b"proc.a").unwrap();
        let process = ProcessVariables::new(&names);
        let reader = Reader::new();
        for _ in 0..2_000 {
            let together = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                for length in [1, 1_000] {
                    let (process, together) = (&process, &together);
                    scope.spawn(move || {
                        together.wait();
                        process.set(id, Some(Value::Str(&[b'x'; 1_000][..length])));
                    });
                }
            });
            let length = match process.get(id, &reader) {
                Some(Value::Str(bytes)) => bytes.len(),
                other => panic!("{other:?}"),
            };
            assert_eq!(process.purse.used.load(Ordering::Relaxed), VARIABLE_BYTES + length);
        }
    }

    #[test]
    fn what_two_generations_share_is_one_variable_and_all_of_them_count_together() {
        let (mut before, mut names) = (VariableNames::default(), VariableNames::default());
        let (old, gone) = (before.resolve(b"proc.a").unwrap(), before.resolve(b"proc.gone").unwrap());
        let (new, own) = (names.resolve(b"proc.new").unwrap(), names.resolve(b"proc.a").unwrap());
        let (first, mut second) = (ProcessVariables::new(&before), ProcessVariables::new(&names));
        let reader = Reader::new();
        first.set(old, Some(Value::Int(7)));
        first.set(gone, Some(Value::Str(b"four")));
        second.set(own, Some(Value::Str(b"of the file")));
        second.set(new, Some(Value::Int(1)));
        second.follow(&first, [(own, old)]);
        assert_eq!(
            (second.get(own, &reader), second.get(new, &reader)),
            (Some(Value::Int(7)), Some(Value::Int(1)))
        );
        first.set(old, Some(Value::Int(8)));
        assert_eq!(second.get(own, &reader), Some(Value::Int(8)));
        let used = |of: &ProcessVariables| of.purse.used.load(Ordering::Relaxed);
        assert_eq!((used(&first), used(&second)), (3 * VARIABLE_BYTES + 4, 3 * VARIABLE_BYTES + 4));
        drop(first);
        assert_eq!(used(&second), 2 * VARIABLE_BYTES);
        assert!(second.set_within(new, Some(Value::Int(2)), 2 * VARIABLE_BYTES));
        assert!(!second.set_within(new, Some(Value::Str(b"x")), 2 * VARIABLE_BYTES));
        assert_eq!((second.get(own, &reader), used(&second)), (Some(Value::Int(8)), VARIABLE_BYTES));
    }

    #[test]
    fn a_scope_has_64_kib_of_text() {
        let mut names = VariableNames::default();
        let [first, second] = [b"txn.a", b"txn.b"].map(|name| names.resolve(name).unwrap());
        let text = vec![b'x'; 65_537];
        let mut variables = Variables::default();
        assert!(!variables.set(first, Value::Str(&text)));
        assert!(variables.set(first, Value::Str(&text[..65_536])));
        assert!(!variables.set(second, Value::Str(b"x")));
        assert!(variables.set(first, Value::Str(&text[..65_535])) && variables.set(second, Value::Str(b"x")));
        assert!(!variables.set(second, Value::Str(b"xx")));
    }

    #[test]
    fn each_scope_and_those_around_it_bound_what_is_set() {
        let mut names = VariableNames::default();
        let mut name = |text: &[u8]| names.resolve(text).unwrap();
        let (sess, txn, req, res) = (name(b"sess.a"), name(b"txn.a"), name(b"req.a"), name(b"res.a"));
        let global = name(b"proc.a");
        let own = name(b"check.a");
        let process = ProcessVariables::new(&names);
        let [session, transaction, request, response] =
            std::array::from_fn(|_| RefCell::new(Variables::default()));
        let scopes = |limits| Scopes {
            process: Some(&process),
            session: Some(&session),
            transaction: Some(&transaction),
            request: Some(&request),
            response: Some(&response),
            check: None,
            limits,
        };
        let text = |length: usize| Some(Value::Str(&[b'x'; 1000][..length - VARIABLE_BYTES]));
        let none = VariableLimits::default();
        let of = |limits| scopes(VariableLimits { ..limits });
        // `req` and `res` count together; a new value replaces the size of the old one.
        let message = VariableLimits { message: 300, ..none };
        assert!(of(message).set(req, text(200)));
        assert!(!of(message).set(res, text(101)));
        assert!(
            of(message).set(res, text(100))
                && of(message).set(req, text(150))
                && of(message).set(txn, text(900))
        );
        assert!(!of(message).set(req, text(201)), "it is unset then");
        assert_eq!((request.borrow().used(), response.borrow().used()), (0, 100));
        let transaction_only = VariableLimits { transaction: 1050, ..none };
        assert!(!of(transaction_only).set(req, text(100)) && of(transaction_only).set(sess, text(500)));
        let session_only = VariableLimits { session: 1600, ..none };
        assert!(!of(session_only).set(req, text(101)) && of(session_only).set(req, text(100)));
        // A check has its own limit, and that of its session, which has no other variables.
        let of_check = RefCell::new(Variables::default());
        let of = |limits| Scopes { check: Some(&of_check), ..scopes(limits) };
        assert!(!of(VariableLimits { check: 300, ..none }).set(own, text(301)));
        assert!(of(VariableLimits { check: 300, ..none }).set(own, text(300)));
        assert!(!of(VariableLimits { session: 1800, ..none }).set(own, text(301)), "it is unset then");
        let of = |limits| scopes(VariableLimits { ..limits });
        // A lane has its share of the global limit, minus the `proc` variables.
        assert_eq!(LANE.get(), 1600);
        let shared = VariableLimits { global: 4000, lanes: 2, process: 750, ..none };
        assert!(!of(shared).set(global, text(751)) && of(shared).set(global, text(700)));
        assert!(!of(shared).set(req, text(151)) && of(shared).set(req, text(150)));
        for variables in [&session, &transaction, &request] {
            variables.borrow_mut().clear();
        }
        drop(response.take());
        assert_eq!(LANE.get(), 0);
    }
}
