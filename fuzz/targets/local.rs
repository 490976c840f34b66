//! A pair of local sockets against two queues: see `manylane_local::model`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| manylane_local::model::run(bytes));
