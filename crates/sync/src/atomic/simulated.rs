//! Atomics for the simulator: before each operation on a std atomic they report the line and the kind of
//! access to the virtual multiprocessor. Layouts are those of std, so false sharing is the same.

use super::Ordering;
use manylane_sim::Access::{Load, Rmw, Store};
use std::panic::Location;
use std::sync::atomic as real;

#[inline]
#[track_caller]
fn touch<T>(cell: &T, access: manylane_sim::Access) {
    manylane_sim::access(std::ptr::from_ref(cell).addr(), size_of::<T>(), access, Location::caller());
}

/// Orders memory. A sequentially consistent fence costs the virtual core a full fence.
#[track_caller]
pub fn fence(order: Ordering) {
    manylane_sim::fence(order);
    real::fence(order);
}

macro_rules! common {
    ($name:ident, $inner:ty, $value:ty $(, $generic:ident)?) => {
        /// The std type of the same name, whose accesses the simulator sees.
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name $(<$generic>)? ($inner);

        #[allow(missing_docs, clippy::missing_errors_doc)] // documented in std
        impl $(<$generic>)? $name $(<$generic>)? {
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(<$inner>::new(value))
            }
            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                touch(self, Load);
                self.0.load(order)
            }
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                // On x86 a sequentially consistent store is an exchange.
                touch(self, if order == Ordering::SeqCst { Rmw } else { Store });
                self.0.store(value, order);
            }
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                touch(self, Rmw);
                self.0.swap(value, order)
            }
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                touch(self, Rmw);
                self.0.compare_exchange(current, new, success, failure)
            }
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $inner:ty, $value:ty) => {
        common!($name, $inner, $value);
        number!(@ops $name, $value, fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);
        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }
    };
    (@ops $name:ident, $value:ty, $($op:ident)*) => {
        #[allow(missing_docs)] // documented in std
        impl $name {
            $(
                #[inline]
                #[track_caller]
                pub fn $op(&self, value: $value, order: Ordering) -> $value {
                    touch(self, Rmw);
                    self.0.$op(value, order)
                }
            )*
        }
    };
}

number!(AtomicU8, real::AtomicU8, u8);
number!(AtomicU32, real::AtomicU32, u32);
number!(AtomicU64, real::AtomicU64, u64);
number!(AtomicI64, real::AtomicI64, i64);
number!(AtomicUsize, real::AtomicUsize, usize);
common!(AtomicBool, real::AtomicBool, bool);
number!(@ops AtomicBool, bool, fetch_and fetch_or fetch_xor);
common!(AtomicPtr, real::AtomicPtr<T>, *mut T, T);
number!(AtomicU128, portable_atomic::AtomicU128, u128);
