//! Hashes the password of a request on another thread before rules ask whether it is correct.

use super::stream::Stream;
use manylane_http::Head;
use manylane_lanes::{Local, THREADS, hashing};
use manylane_plan::Cause;
use std::pin::pin;
use std::time::Duration;

/// Too many passwords wait for a thread, or memory is short.
#[derive(Debug)]
struct Busy;

/// Numbers of user lists, a user and a password.
type Open = (Vec<usize>, Vec<u8>, Vec<u8>);

/// Longest time that a request waits until its password is hashed.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

impl Stream<'_> {
    /// Checks the password of a request if the check takes long and its result is not known yet; rules ask
    /// for the result soon.
    ///
    /// # Errors
    /// The result stays unknown: too many passwords wait for a thread, or something else ends the stream.
    pub(super) async fn finds_out(&self, head: &Head) -> Result<(), Cause> {
        if !self.local.generation.hashes_passwords {
            return Ok(());
        }
        let Some(open) = unknown(self.local, head) else { return Ok(()) };
        let hashing = Box::pin(authenticate(self.local, open));
        match self.unless_ended(pin!(self.local.here().timeout(LONGEST_WAIT, hashing))).await? {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Busy)) | Err(_) => Err(Cause::Resource),
        }
    }
}

/// Checks the password of a request against each list that has its user with a hash.
///
/// # Errors
/// [`Busy`]
async fn authenticate(local: &Local, (lists, user, password): Open) -> Result<(), Busy> {
    let all = &local.generation.userlists;
    manylane_pool::check_memory().map_err(|_| Busy)?;
    let mut found: Vec<(usize, bool)> = Vec::new();
    for list in lists {
        if let Some(&(_, right)) = found.iter().find(|(other, _)| all[*other].has_same(&all[list], &user)) {
            local.passwords.learn(list, &user, &password, right);
            continue;
        }
        let (generation, name, secret) = (local.generation.clone(), user.clone(), password.clone());
        let right = move || {
            let list = &generation.userlists[list];
            // All threads may hash at once, and their memory must not fail.
            let memory = THREADS * list.memory_to_hash(&name);
            let is_there = manylane_pool::check_block(memory).is_ok();
            is_there.then(|| list.knows(&name, &secret, || None))
        };
        let right = hashing().run(right).map_err(|_| Busy)?.await.ok_or(Busy)?;
        local.passwords.learn(list, &user, &password, right);
        found.push((list, right));
    }
    Ok(())
}

/// Returns the check that a request's `Authorization: Basic` needs: none if the result is known or the check
/// is quick.
fn unknown(local: &Local, head: &Head) -> Option<Open> {
    let mut memory = local.memory.borrow_mut();
    let mut scratch = memory.scratch();
    let (user, password) = manylane_expr::basic(head, &mut scratch)?;
    let lists = local.generation.userlists.iter().enumerate();
    let open = lists.filter(|(number, list)| {
        list.takes_time(user, password) && local.passwords.known(*number, user, password).is_none()
    });
    let open: Vec<usize> = open.map(|(number, _)| number).collect();
    (!open.is_empty()).then(|| (open, user.to_vec(), password.to_vec()))
}
