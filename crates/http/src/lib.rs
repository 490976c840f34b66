#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod fields;
mod head;
mod list;
mod method;
mod name;
pub mod status;
pub mod syntax;
mod target;
mod version;

pub use fields::{FieldLine, Fields, MAX_FIELDS, PushError};
pub use head::{
    CaseTable, CaseTableError, EditError, Field, FieldId, FieldIter, Head, Kind, ListValues, MAX_HEAD,
    RequestLine, StatusLine, Values,
};
pub use list::{List, Parameters, unquoted};
pub use method::Method;
pub use name::{Known, Name, NameRef};
pub use target::{Form, Target};
pub use version::Version;
