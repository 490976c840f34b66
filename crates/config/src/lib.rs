#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod diag;
pub mod lex;
pub mod limits;
mod nearest;
mod show;
pub mod source;

pub use nearest::nearest;
pub use show::Shown;
