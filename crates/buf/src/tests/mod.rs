//! Tests of the whole crate that need its hooks; one file a topic.

mod count;
mod errors;
mod model;
