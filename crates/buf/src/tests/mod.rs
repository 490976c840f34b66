//! Tests of the whole crate that need its hooks; one file a topic.

mod count;
mod designs;
mod errors;
mod model;
