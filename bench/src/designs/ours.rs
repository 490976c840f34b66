//! The design that ships: a biased count before the cluster, and handles that are values.

use super::{CLUSTER, Design};
use manylane_buf::{Chain, Cluster, Error, Parcel, Segment};

/// See the module's documentation.
#[derive(Debug)]
pub struct Ours;

impl Design for Ours {
    const NAME: &'static str = "ours (biased)";
    type Handle = Segment;
    type Sent = Parcel;

    #[inline]
    fn alloc() -> Result<Segment, Error> {
        let mut cluster = Cluster::alloc(CLUSTER)?;
        cluster.put(&[0]); // chains hold no empty segments
        Ok(cluster.into_segment())
    }

    #[inline]
    fn share(handle: &Segment) -> Result<Segment, Error> {
        Ok(handle.clone())
    }

    fn address(handle: &Segment) -> usize {
        handle.as_ptr().addr()
    }

    #[inline]
    fn send(handle: Segment) -> Parcel {
        Chain::from(handle).into()
    }

    #[inline]
    fn receive(sent: Parcel) -> Segment {
        sent.open().pop_front().expect("`send` has put it in")
    }
}
