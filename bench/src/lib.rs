#![doc = include_str!("../README.md")]
#![cfg(not(loom))] // nothing here is a loom model

pub mod cases;
pub mod cli;
pub mod designs;
pub mod evidence;
#[cfg(not(manylane_sim))]
pub mod heavy;
#[cfg(not(manylane_sim))]
pub mod manage;
#[cfg(not(manylane_sim))]
pub mod peers;
pub mod plot;
#[cfg(not(manylane_sim))]
pub mod proxy;
pub mod results;
pub mod run;
pub mod scale;
pub mod stats;
