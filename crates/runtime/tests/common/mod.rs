//! What tests of one lane share.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_config::cond::Build;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_plan::Generation;
use manylane_plan::generation::StartOptions;

/// Builds the generation of a configuration without errors, for at most `maxconn` connections.
pub(crate) fn built(text: String, maxconn: u64) -> Generation {
    let mut sources = Sources::new();
    sources.add("test.cfg", text).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    let mut generation = Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    assert_eq!(loaded.found.errors(), 0, "{:?}", loaded.found.found());
    generation.set_maxconn(maxconn);
    generation
}
