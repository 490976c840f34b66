#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod cond;
pub mod diag;
pub mod lex;
pub mod limits;
mod nearest;
pub mod read;
mod show;
pub mod source;

pub use nearest::nearest;
pub use show::Shown;
