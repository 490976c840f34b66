#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod build;
pub mod cond;
pub mod diag;
pub mod help;
pub mod lex;
pub mod limits;
pub mod read;
pub mod reference;
pub mod source;
pub mod table;
pub mod tree;
pub mod value;

pub use build::{Loaded, algorithms, load};
pub use manylane_expr::{LISTED, Shown, choice, guess, is_harmful, nearest, none_of};
