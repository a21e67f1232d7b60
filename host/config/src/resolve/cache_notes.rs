//! What the number of KV blocks leaves out, for models whose requests take memory that is no multiple of their length.

use blis_sim::memory::CachedBytes;

use super::Resolution;
use crate::KvBlocksSource;
use crate::engine::BatchLimits;

impl Resolution<'_> {
    /// The longest request that the options allow, tokens: vLLM counts its KV blocks for requests of that length.
    pub(super) fn request_tokens(&self) -> Option<u64> {
        let given = self.args.max_model_len.filter(|given| *given > 0).map(u64::from);
        given.or(self.config.and_then(|model| model.config.max_model_len))
    }

    /// Notes what a cache of that many blocks leaves out where layers keep a window or a state: the memory that a request
    /// takes is then no multiple of its length.
    pub(super) fn note_cache(&self, tensor: u32, blocks: u32, source: KvBlocksSource, notes: &mut Vec<String>) {
        let Some(model) = self.config.filter(|_| source == KvBlocksSource::Computed) else { return };
        if self.args.batch.engine.is_none() {
            if model.config.architecture.is_some() {
                notes
                    .push(format!("KV blocks of {}: by BLIS's formula, which takes all layers to be equal", self.name));
            }
            return;
        }
        let (BatchLimits { max_num_seqs, max_num_batched_tokens }, _) = self.batch_limits();
        let cached = CachedBytes::of_model(&model.config, tensor, max_num_batched_tokens);
        let Some(longest) = self.request_tokens().filter(|_| cached.depends_on_length()) else { return };
        const SHORT: u64 = 1000;
        let [at_longest, at_short] = [longest, SHORT].map(|tokens| cached.per_token(Some(tokens)) / 1024.0);
        notes.push(format!(
            "KV blocks are counted as vLLM logs them, for requests of max_model_len {longest} tokens: {at_longest:.1} KiB per \
             token on a GPU; a request of {SHORT} tokens takes {at_short:.1}. Give the length of your requests as \
             `--max-model-len`"
        ));
        if cached.state > 0.0 {
            let cache_bytes = f64::from(blocks) * f64::from(self.args.block_size) * cached.per_token(Some(longest));
            let requests = (cache_bytes / cached.state) as u64;
            let enough = match requests < u64::from(max_num_seqs) {
                true => format!("more than {requests} at once do not fit: give `--max-num-seqs {requests}`"),
                false => format!("{max_num_seqs} at once fit"),
            };
            let state_mib = cached.state / (1024.0 * 1024.0);
            notes.push(format!("linear attention keeps {state_mib:.1} MiB per request on a GPU; {enough}"));
        }
    }
}
