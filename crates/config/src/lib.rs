#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod build;
pub mod cond;
pub mod diag;
pub mod lex;
pub mod limits;
mod nearest;
pub mod read;
pub mod reference;
mod show;
pub mod source;
pub mod table;
pub mod tree;
pub mod value;

pub use build::{Loaded, load};
pub use nearest::nearest;
pub use show::Shown;
