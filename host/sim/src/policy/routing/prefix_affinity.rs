//! The routing policy `prefix-affinity`, which compares whole prompts. The scorer of that name compares prefixes
//! (`sent_blocks`).

use rustc_hash::FxHashMap;

use super::LOAD;
use super::loads::LeastLoadedIndex;
use crate::ids::InstanceIndex;
use crate::policy::{ClusterView, Reads, Reason, RequestView, RoutingDecision, RoutingPolicy, Ties};
use crate::request::BlockKey;

/// Routes a prompt to the instance that had the same prompt before, and any other prompt to the least loaded instance.
///
/// BLIS compares hashes of the whole list of tokens. Here two prompts are the same if they are equally long and all
/// their full blocks are equal; the tokens behind the last full block are not compared. A prompt with a block that no
/// other request has, or shorter than a block, equals no other prompt. The map from prompts to instances is never
/// trimmed, as in BLIS.
#[derive(Clone, Debug, Default)]
pub struct PrefixAffinity {
    /// The instance to which each prompt was sent.
    instances: FxHashMap<PromptKey, InstanceIndex>,
    loads: LeastLoadedIndex,
}

/// A prompt that other requests may have: its last full block (the key of which identifies all blocks before it, too)
/// and its length in tokens.
type PromptKey = (BlockKey, u32);

impl RoutingPolicy for PrefixAffinity {
    fn reads(&self) -> Reads {
        LOAD
    }

    fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        _: &mut Vec<f64>,
    ) -> RoutingDecision {
        let prompt = common_prompt(request);
        let known = prompt.and_then(|prompt| self.instances.get(&prompt));
        let known = known.and_then(|known| cluster.instances.iter().position(|instance| instance.id == *known));
        if let Some(target) = known {
            return RoutingDecision { target, reason: Reason::PrefixAffinity { hit: true } };
        }
        let target = self.loads.least(request.id, cluster, ties);
        RoutingDecision { target, reason: Reason::PrefixAffinity { hit: false } }
    }

    fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        if let Some(prompt) = common_prompt(request) {
            self.instances.insert(prompt, instance);
        }
    }

    fn fork(&self) -> Box<dyn RoutingPolicy> {
        Box::new(self.clone())
    }
}

/// The identity of the prompt of `request`, if other requests may have the same prompt.
fn common_prompt(request: &RequestView<'_>) -> Option<PromptKey> {
    let (last, shared) = request.shared_blocks().fold((None, 0), |(_, n), key| (Some(key), n + 1));
    last.filter(|_| shared == request.prompt_blocks).map(|key| (key, request.input_tokens))
}
