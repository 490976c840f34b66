//! Passwords that were hashed: what came of it, so that a client that shows its password with each request
//! costs one hash on each lane.
//!
//! # Protocol
//! 1. Hashing takes milliseconds on purpose, so it is done by [`hashing`] threads, of which there are
//!    [`THREADS`]. The lane goes on with others meanwhile.
//! 2. What came of it is kept by lane and generation, under a hash with a secret of the process: no password
//!    is kept.
//! 3. At most [`MOST`] are kept. When there are more, wrong ones go, and then all.

use manylane_sched::BlockingPool;
use manylane_sync::Arc;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// Threads that hash passwords: wrong ones cost as much as right ones, and are not to keep all processors
/// from the lanes.
const THREADS: usize = 2;

/// Passwords that wait for them at most. Beyond that requests are answered that the service is not available.
const WAITING: usize = 256;

/// Outcomes that a lane keeps.
const MOST: usize = 4096;

/// The threads, started when there is something to hash.
pub(crate) fn hashing() -> &'static BlockingPool {
    static POOL: OnceLock<Arc<BlockingPool>> = OnceLock::new();
    POOL.get_or_init(|| Arc::new(BlockingPool::new(THREADS, WAITING)))
}

type Key = [u8; 32];

/// Outcomes by list, user and password.
#[derive(Debug, Default)]
pub(crate) struct Passwords(RefCell<HashMap<Key, bool>>);

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

    /// Whether it is the user's password, if that is known.
    pub(crate) fn known(&self, list: usize, user: &[u8], password: &[u8]) -> Option<bool> {
        self.0.borrow().get(&Self::key(list, user, password)).copied()
    }

    /// It is known from here on.
    pub(crate) fn learn(&self, list: usize, user: &[u8], password: &[u8], right: bool) {
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
        for guess in 0..2 * MOST {
            passwords.learn(0, b"ann", &guess.to_le_bytes(), false);
        }
        assert_eq!(passwords.known(0, b"ann", b"secret"), Some(true));
        assert!(passwords.0.borrow().len() <= MOST);
    }
}
