//! Chains against plain vectors: the model is the one of the property tests.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    manylane_buf::model::run(data);
});
