//! R-A2 as its source measured it: 70,662,504 operations/s by 96 processes are 1.36 microseconds an
//! operation, nearly all of it work of the kernel beside the lock.

use super::Working;
use crate::cases::unix1::{Global, Ours, Pairs, PerPcb};
use crate::cases::{Case, Contender, Shape};
use crate::results::Role;

/// Other work of an operation.
const WORK_NS: u64 = 1_360;

pub(in crate::evidence) static CASE: Case = Case {
    name: "unix1-work",
    operation: "send a byte through an own pair and receive it, beside 1.36 us of other work",
    requirement: "R-A2",
    contenders: &[
        Contender::of::<Working<Pairs<Global>, WORK_NS>>(Role::Before),
        Contender::of::<Working<Pairs<PerPcb>, WORK_NS>>(Role::Other),
        Contender::of::<Working<Pairs<Ours>, WORK_NS>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};
