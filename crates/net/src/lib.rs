#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod address;

pub use address::{Address, AddressError, Rules};
