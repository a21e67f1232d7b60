//! Prefetch of the data that the next events of an instance will read.

use super::Fast;
use crate::instance::PrefetchDistance;
use crate::prefetch::soon;

impl Fast {
    pub(super) fn prefetch_at(&self, distance: PrefetchDistance) {
        match distance {
            PrefetchDistance::Here => soon(self),
            PrefetchDistance::Parts => {
                self.decoders.prefetch();
                self.kv.prefetch();
                self.log.prefetch();
                self.order.prefetch();
                self.deadlines.prefetch();
                self.live.prefetch_free();
                self.arriving.front().into_iter().for_each(|(_, request)| soon(&**request));
            }
            PrefetchDistance::Request => {
                self.decoders.next_to_finish().into_iter().for_each(|slot| self.live.prefetch(slot));
            }
            PrefetchDistance::Rest => {
                if let Some((_, live)) = self.decoders.next_to_finish().and_then(|slot| self.live.at(slot)) {
                    soon(&*live.request);
                    self.order.prefetch_number(live.seq);
                    self.deadlines.prefetch_number(live.deadline);
                }
            }
        }
    }
}
