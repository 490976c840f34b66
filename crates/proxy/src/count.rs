//! Counting in a frontend and its listener at once.

/// Adds one to a counter of a frontend and to the same counter of its listener.
macro_rules! count_in_front {
    ($frontend:expr, $listener:expr, $which:ident) => {{
        $frontend.counts.own().$which.add(1);
        $listener.counts.own().$which.add(1);
    }};
}
pub(crate) use count_in_front;
