//! A request for which an instance that decodes was chosen, and the instances that decode or prefill, from named values.

use super::replicas::{NamedRow, RowNumber, numbers};
use super::{LATEST_US, real, time, whole};
use crate::rows::{PoolInstanceRow, RoutedRequestRow};

impl NamedRow for RoutedRequestRow {
    const WHAT: &'static str = "a routed request";
    const NUMBERS: &'static [RowNumber<Self>] = numbers! { RoutedRequestRow
        now_us: time ["now", "now_us"],
        transfer_us_per_token: real ["transfer_us_per_token"],
        request: count ["id"],
        input_tokens: count ["input_tokens"],
        chosen: count ["chosen"],
        transfers: count ["transfers"],
        transfer_tokens: count ["transfer_tokens"],
        slo_class: count ["slo_class"],
        tenant: count ["tenant"],
        session: count ["session"],
        prefix_group: count ["prefix_group"],
        round: count ["round"],
    };

    fn name(&mut self, field: &str) -> Option<&mut u32> {
        Some(match field {
            "slo_class" => &mut self.slo_class,
            "tenant" => &mut self.tenant,
            "session" => &mut self.session,
            "prefix_group" => &mut self.prefix_group,
            _ => return None,
        })
    }
}

impl NamedRow for PoolInstanceRow {
    const WHAT: &'static str = "an instance";
    const NUMBERS: &'static [RowNumber<Self>] = numbers! { PoolInstanceRow
        in_flight_tokens: tokens ["in_flight_tokens"],
        kv_utilization: real ["kv_utilization"],
        instance: count ["id"],
        queue_depth: count ["queue_depth"],
        batch_size: count ["batch_size"],
        in_flight: count ["in_flight"],
        uncached_tokens: count ["uncached", "uncached_tokens"],
        free_kv_blocks: count ["free_kv_blocks"],
        transfers: count ["transfers"],
        transfer_tokens: count ["transfer_tokens"],
    };
}
