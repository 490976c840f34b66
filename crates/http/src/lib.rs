#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod authority;
mod connauth;
mod cookie;
mod fields;
mod head;
mod hop;
mod list;
mod method;
mod name;
pub mod status;
pub mod syntax;
mod target;
mod version;

pub use authority::{split_host_port, without_default_port, without_user};
pub use connauth::names_connection_scheme;
pub use cookie::{Cookie, Cookies};
pub use fields::{FieldLine, Fields, MAX_FIELDS, PushError};
pub use head::{
    CaseTable, CaseTableError, EditError, Field, FieldId, FieldIter, Head, Kind, ListValues, MAX_HEAD,
    RequestLine, StatusLine, Values,
};
pub use hop::{MAX_OPTIONS, is_http2};
pub use list::List;
pub use method::Method;
pub use name::{Known, Name, NameRef};
pub use status::has_page;
pub use target::{Form, Target};
pub use version::Version;
