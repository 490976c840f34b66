//! Results of password hashes, so that a client that sends its password with each request costs one hash on
//! each lane.
//!
//! # Protocol
//! 1. Hashing takes milliseconds on purpose, so [`THREADS`] threads of [`hashing`] do it. The lane serves
//!    other tasks meanwhile.
//! 2. Each lane keeps the results for each generation, under a hash with a secret of the process. No password
//!    is kept.
//! 3. At most [`MOST`] results are kept. When there are more, the wrong passwords are removed first, and then
//!    all.

use manylane_sched::BlockingPool;
use manylane_sync::Arc;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// Number of threads that hash passwords. Wrong passwords cost as much as right ones and must not take all
/// processors from the lanes.
pub const THREADS: usize = 2;

/// Most passwords that wait for a thread. Beyond that, requests get a 503.
const WAITING: usize = 256;

/// Most results that a lane keeps.
const MOST: usize = 4096;

/// Returns the pool of threads, which start when there is something to hash.
pub fn hashing() -> &'static BlockingPool {
    static POOL: OnceLock<Arc<BlockingPool>> = OnceLock::new();
    POOL.get_or_init(|| Arc::new(BlockingPool::new(THREADS, WAITING)))
}

type Key = [u8; 32];

/// Results by list, user and password.
#[derive(Debug, Default)]
pub struct Passwords(RefCell<HashMap<Key, bool>>);

impl Passwords {
    fn key(list: usize, user: &[u8], password: &[u8]) -> Key {
        static SECRET: OnceLock<[u64; 4]> = OnceLock::new();
        let secret = SECRET.get_or_init(|| std::array::from_fn(|n| RandomState::new().hash_one(n)));
        let mut hash = Sha256::new();
        secret.iter().for_each(|part| hash.update(part.to_le_bytes()));
        for number in [list, user.len()] {
            hash.update(number.to_le_bytes());
        }
        hash.chain_update(user).chain_update(password).finalize().into()
    }

    /// Returns whether the password is correct, if the result is known.
    pub fn known(&self, list: usize, user: &[u8], password: &[u8]) -> Option<bool> {
        self.0.borrow().get(&Self::key(list, user, password)).copied()
    }

    /// Stores a result.
    pub fn learn(&self, list: usize, user: &[u8], password: &[u8], right: bool) {
        let mut all = self.0.borrow_mut();
        if all.len() >= MOST {
            all.retain(|_, right| *right);
        }
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(Self::key(list, user, password), right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_is_of_one_list_user_and_password() {
        let passwords = Passwords::default();
        passwords.learn(1, b"ann", b"secret", true);
        passwords.learn(1, b"bob", b"secret", false);
        assert_eq!(passwords.known(1, b"ann", b"secret"), Some(true));
        assert_eq!(passwords.known(1, b"bob", b"secret"), Some(false));
        for (list, user, password) in
            [(0, &b"ann"[..], &b"secret"[..]), (1, b"anns", b"ecret"), (1, b"ann", b"secre")]
        {
            assert_eq!(passwords.known(list, user, password), None);
        }
    }

    #[test]
    fn wrong_ones_make_room_before_right_ones() {
        let passwords = Passwords::default();
        passwords.learn(0, b"ann", b"secret", true);
        // 4,096 are kept; one more removes all wrong ones before it.
        for guess in 1..8_000_usize {
            passwords.learn(0, b"ann", &guess.to_le_bytes(), false);
            assert_eq!(passwords.0.borrow().len(), if guess < 4096 { guess + 1 } else { guess - 4096 + 2 });
        }
        assert_eq!(passwords.known(0, b"ann", b"secret"), Some(true));
    }

    #[test]
    fn right_ones_make_room_when_nothing_else_is_left() {
        let passwords = Passwords::default();
        for number in 1..=4097_usize {
            passwords.learn(0, b"ann", &number.to_le_bytes(), true);
            assert_eq!(passwords.0.borrow().len(), if number <= 4096 { number } else { 1 });
        }
        assert_eq!(size_of::<(Key, bool)>(), 33);
    }
}
