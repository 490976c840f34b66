//! R-B3: the table of free functions is bounded, and refuses more with an error. In a process of its own,
//! since it fills the table.
#![allow(unsafe_code)] // free functions are unsafe to call
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::{FreeIndex, MAX_FREE_FNS, RegisterError};
use std::ptr::NonNull;

unsafe fn keep(_: NonNull<u8>, _: usize, _: usize) {}

#[test]
fn a_full_table_of_free_functions_refuses_one_more() {
    let names: Vec<&'static str> =
        (0..MAX_FREE_FNS).map(|n| &*Box::leak(format!("kind {n}").into())).collect();
    let mut refused = None;
    for name in names {
        match FreeIndex::register(name, keep) {
            Ok(index) => assert_eq!((index.name(), refused), (name, None)),
            Err(error) => refused = refused.or(Some((name, error))),
        }
    }
    let (name, error) = refused.expect("the crate's own kinds have taken some numbers");
    assert_eq!(error, RegisterError::Full { name });
    assert_eq!(
        error.to_string(),
        format!(
            "no room for free function \"{name}\": all 32 numbers are taken; register one for each kind of \
                memory, \
             not for each buffer"
        )
    );
    // A registered function is still found.
    assert!(matches!(FreeIndex::register("kind 0", keep), Err(RegisterError::Twice { .. })));
}
