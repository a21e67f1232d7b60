//! The time of each kind of attention, from its shape and the curves of the GPU.

use super::kernels::Kernels;
use crate::architecture::{Attention, BlockSelector, Compressed, Heads, Index, Latent, Linear, LinearKind};

/// Shares of memory bandwidth and FLOP peak that latent attention attains in decode, and its time per request: fitted to
/// `mla_generation_module_perf` of H100 (vLLM 0.24, NVIDIA aiconfigurator): 0.376 ns per token of KV at 8 to 64 heads
/// (1152 bytes at 3.35 TB/s are 0.344 ns), 0.399 ns at 128 heads (278 528 FLOP at 989.5 TFLOPS are 0.281 ns).
const LATENT_BANDWIDTH: f64 = 0.915;
const LATENT_FLOPS: f64 = 0.705;
const LATENT_REQUEST_US: f64 = 0.1;
const LATENT_HEAD_US: f64 = 0.0027;

/// Tokens that the chunked form of the gated delta rule computes at once (flash-linear-attention's kernels in vLLM).
const DELTA_CHUNK: f64 = 64.0;

/// Time of KDA's prompts, relative to that of the gated delta rule of the same shape: one decay per channel rescales the products
/// inside a chunk. Not measured; 1.2 to 1.4 is expected.
const KDA: f64 = 1.3;

/// Rates of one GPU: bytes/µs and FLOP/µs at peak, in the model's own format and in the narrowest one for an index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates<'a> {
    pub kernels: &'a Kernels,
    pub bandwidth: f64,
    /// Size of the L2 cache.
    pub l2_bytes: f64,
    /// Rate of reading the KV cache, relative to that of a cache in 16 bits: FP8 is converted on the way.
    pub kv_share: f64,
    pub flops: f64,
    pub flops_8bit: f64,
    pub dtype_bytes: f64,
    /// Bytes of a cached KV element.
    pub kv_dtype_bytes: f64,
}

/// Times of attention in one layer on one GPU, µs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttentionCost {
    /// Number of layers.
    pub layers: f64,
    /// Number of tokens that one token attends to at most, if there is a limit.
    pub limit: Option<f64>,
    /// Per decoding request.
    pub request: f64,
    /// Per token that a decoding request reads.
    pub context_token: f64,
    /// The same beyond `context_token`, in a step that also computes prompts.
    pub mixed_token: f64,
    /// Per pair of a prompt token and a token that it attends to.
    pub pair: f64,
    /// Per token of a prompt that was computed in an earlier step and is read again.
    pub prompt_context: f64,
    /// Number of tokens that requests share and the L2 cache holds, keys and values. Unknown for latent attention, which is
    /// bound by computation where it has many heads: 0.
    pub l2_tokens: f64,
    /// Per request of any kind: its state is read and written.
    pub state: f64,
    /// Per token of a prompt that is computed, whatever its context.
    pub prompt_token: f64,
}

/// The times of `layers` layers of one kind: none for layers without attention, two for sparse attention, whose index
/// reads every token.
pub(super) fn costs(layers: f64, attention: &Attention, tensor: f64, rates: Rates<'_>) -> Vec<AttentionCost> {
    match *attention {
        Attention::Heads(heads) => {
            let index = heads.index.map(|index| rates.block_index(index));
            let costs = [Some(rates.heads(heads, tensor)), index].into_iter().flatten();
            costs.map(|cost| AttentionCost { layers, ..cost }).collect()
        }
        Attention::Latent(latent) => {
            let (whole, index) = rates.latent(latent, tensor);
            [Some(whole), index].into_iter().flatten().map(|cost| AttentionCost { layers, ..cost }).collect()
        }
        Attention::Compressed(compressed) => {
            let costs = rates.compressed(compressed, tensor).into_iter();
            costs.map(|cost| AttentionCost { layers, ..cost }).collect()
        }
        Attention::Linear(linear) => vec![AttentionCost { layers, ..rates.linear(linear, tensor) }],
        Attention::Matrix | Attention::None => Vec::new(),
    }
}

impl Rates<'_> {
    /// FlashAttention reads the queries of a prompt once and writes its outputs once, beside its keys and values (Dao,
    /// "FlashAttention-2", 2023, algorithm 1): per token `2·(queries + KV heads)·dim` elements.
    fn heads(self, shape: Heads, tensor: f64) -> AttentionCost {
        let queries = f64::from(shape.queries) / tensor;
        // Fewer KV heads than GPUs: every GPU keeps a copy of one head.
        let kv = shape.kv_on(tensor);
        let widths = shape.dim + shape.value_dim;
        let pair = queries * 2.0 * widths / (self.flops * self.kernels.attention_flops);
        let bandwidth = self.bandwidth * self.kernels.attention_bandwidth * self.kv_share;
        let token_bytes = shape.token_bytes(tensor, self.kv_dtype_bytes);
        let context_token = (token_bytes / bandwidth).max(pair);
        let moved = widths * (queries * self.dtype_bytes + kv * self.kv_dtype_bytes / self.kv_share);
        AttentionCost {
            limit: shape.limit().map(f64::from),
            request: self.kernels.attention_head_us * kv,
            context_token,
            mixed_token: (self.kernels.attention_mixed_rows * pair - context_token).max(0.0),
            pair,
            l2_tokens: self.l2_bytes / token_bytes,
            prompt_context: context_token,
            prompt_token: moved / (self.bandwidth * self.kernels.attention_traffic),
            ..AttentionCost::default()
        }
    }

    /// Decodes read the compressed vectors and compute with them (matrices absorbed into query and output). Prompts expand
    /// them to keys and values per head, except in sparse attention, which computes as decodes do.
    fn latent(self, latent: Latent, tensor: f64) -> (AttentionCost, Option<AttentionCost>) {
        let heads = f64::from(latent.heads) / tensor;
        let (rank, rope) = (f64::from(latent.kv_rank), f64::from(latent.rope_dim));
        let (nope, value) = (f64::from(latent.nope_dim), f64::from(latent.value_dim));
        let read = (rank + rope) * self.kv_dtype_bytes / (self.bandwidth * LATENT_BANDWIDTH * self.kv_share);
        let absorbed = heads * 2.0 * (rank + rope + rank) / (self.flops * LATENT_FLOPS);
        let flops = self.flops * self.kernels.attention_flops;
        let expanded = heads * 2.0 * (nope + rope + value) / flops;
        let expansion = heads * 2.0 * rank * (nope + value) / flops;
        let sparse = latent.index.is_some();
        let prompt_context = if sparse { read } else { read + expansion };
        let whole = AttentionCost {
            limit: latent.index.map(|index| f64::from(index.top_k)),
            request: LATENT_REQUEST_US + LATENT_HEAD_US * heads,
            context_token: read.max(absorbed),
            pair: if sparse { absorbed } else { expanded },
            prompt_context,
            prompt_token: prompt_context,
            ..AttentionCost::default()
        };
        (whole, latent.index.and_then(Index::own).map(|index| self.index(index, 1.0)))
    }

    /// The index is on every GPU, whole; one of its keys stands for `ratio` tokens.
    fn index(self, index: Index, ratio: f64) -> AttentionCost {
        let pair = f64::from(index.heads) * 2.0 * f64::from(index.dim)
            / (self.flops_8bit * self.kernels.attention_flops)
            / ratio;
        let read = index.key_bytes() / (self.bandwidth * self.kernels.attention_bandwidth) / ratio;
        let context_token = read.max(pair);
        AttentionCost { context_token, pair, prompt_context: read, prompt_token: read, ..AttentionCost::default() }
    }

    /// The same of blocks, in 16 bits.
    fn block_index(self, index: BlockSelector) -> AttentionCost {
        let pair = f64::from(index.heads) * 2.0 * f64::from(index.dim) / (self.flops * self.kernels.attention_flops);
        let read = index.key_bytes() / (self.bandwidth * self.kernels.attention_bandwidth);
        AttentionCost {
            context_token: read.max(pair),
            pair,
            prompt_context: read,
            prompt_token: read,
            ..AttentionCost::default()
        }
    }

    /// DeepSeek-V4, architectures.md §4: `4·h·D` FLOP and 584 bytes per vector that is read: those of the window, and one per
    /// `ratio` earlier tokens, of which an index chooses some. Heads are divided, vectors are not. Compressors write their vectors
    /// and the numbers that they are made of.
    fn compressed(self, shape: Compressed, tensor: f64) -> Vec<AttentionCost> {
        let heads = f64::from(shape.heads) / tensor;
        let read = shape.vector_bytes() / (self.bandwidth * LATENT_BANDWIDTH);
        let pair = heads * 4.0 * f64::from(shape.dim) / (self.flops * LATENT_FLOPS);
        let vectors = |limit: Option<f64>, ratio: f64| AttentionCost {
            limit,
            context_token: read.max(pair) / ratio,
            pair: pair / ratio,
            prompt_context: read / ratio,
            prompt_token: read / ratio,
            ..AttentionCost::default()
        };
        let request = LATENT_REQUEST_US + LATENT_HEAD_US * heads;
        let mut costs = vec![AttentionCost { request, ..vectors(Some(f64::from(shape.window)), 1.0) }];
        if shape.ratio > 0 {
            let ratio = f64::from(shape.ratio);
            let limit = shape.index.map(|index| ratio * f64::from(index.top_k));
            let kept: f64 =
                shape.caches().iter().filter(|cache| cache.kind.window().is_some()).map(|c| c.token_bytes).sum();
            let written = (kept - shape.vector_bytes()).max(0.0) / self.bandwidth;
            let vectors = vectors(limit, ratio);
            costs.push(AttentionCost { prompt_token: vectors.prompt_token + written, ..vectors });
            costs.extend(shape.index.map(|index| self.index(index, ratio)));
        }
        costs
    }

    /// A decode reads and writes the state. A prompt computes chunks of `C` tokens with matrix products: per token and
    /// value head `2·C·(3·dk + 2·dv) + 6·dk·dv` FLOP (products of keys, of queries with keys, the solved triangle times
    /// keys and values, and three with the state), and writes and reads the state in 16 bits once per chunk. Mamba-2 is computed
    /// like it, with inputs and outputs of the state for keys and queries.
    fn linear(self, linear: Linear, tensor: f64) -> AttentionCost {
        let heads = f64::from(linear.value_heads) / tensor;
        let (key, value) = (f64::from(linear.key_dim), f64::from(linear.value_dim));
        let flop = heads * (2.0 * DELTA_CHUNK * (3.0 * key + 2.0 * value) + 6.0 * key * value);
        let bytes = heads * 2.0 * 2.0 * key * value / DELTA_CHUNK;
        let bandwidth = self.bandwidth * self.kernels.attention_bandwidth;
        let prompt_token = flop / (self.flops * self.kernels.attention_flops) + bytes / bandwidth;
        let longer = if matches!(linear.kind, LinearKind::Kda { .. }) { KDA } else { 1.0 };
        AttentionCost {
            state: 2.0 * linear.state_bytes(tensor, self.dtype_bytes) / bandwidth,
            prompt_token: longer * prompt_token,
            ..AttentionCost::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::physics::samples;

    fn rates(kernels: &Kernels) -> Rates<'_> {
        Rates {
            kernels,
            bandwidth: 3.35e6,
            l2_bytes: 50e6,
            kv_share: 1.0,
            flops: 989.5e6,
            flops_8bit: 1979e6,
            dtype_bytes: 2.0,
            kv_dtype_bytes: 2.0,
        }
    }

    /// Kimi-K3 on eight GPUs: twelve matrices of 128 × 128 in 32 bits are read and written once per request and layer, 1.57 MB, and
    /// the convolution's inputs; its prompts take longer than those of the gated delta rule.
    #[test]
    fn a_state_is_read_and_written() {
        let kernels = samples::kernels();
        let kda = Linear {
            kind: LinearKind::Kda { full_rank_gate: true, flash: true },
            key_heads: 96,
            value_heads: 96,
            key_dim: 128,
            value_dim: 128,
            convolution: 4,
            state_element_bytes: 4.0,
        };
        let of = |linear| costs(69.0, &Attention::Linear(linear), 8.0, rates(&kernels))[0];
        let bytes = 2.0 * (12.0 * 128.0 * 128.0 * 4.0 + 3.0 * 3.0 * 1536.0 * 2.0);
        let expected = bytes / (3.35e6 * kernels.attention_bandwidth);
        assert!((of(kda).state / expected - 1.0).abs() < 1e-12, "{}", of(kda).state);
        assert!((12.0 * 128.0 * 128.0 * 8.0 / 1.57e6_f64 - 1.0).abs() < 0.01);
        let delta = Linear { kind: LinearKind::GatedDelta, ..kda };
        assert!((of(kda).prompt_token / of(delta).prompt_token - KDA).abs() < 1e-12);
        assert_eq!((of(delta).state, of(kda).limit), (of(kda).state, None));
    }

    /// DeepSeek-V4-Flash: the window, 512 vectors for 4 tokens each, and an index that reads 33 bytes per token of all; a layer of
    /// ratio 128 reads all of its vectors. Latent vectors are on every GPU, heads are divided.
    #[test]
    fn compressed_attention_is_limited_but_for_its_index() {
        let kernels = samples::kernels();
        let index = Index { heads: 64, dim: 128, top_k: 512, reused: false };
        let sparse = Compressed {
            heads: 64,
            dim: 512,
            rope_dim: 64,
            query_rank: 1024,
            output_groups: 8,
            output_rank: 1024,
            window: 128,
            ratio: 4,
            index: Some(index),
            streams: 4,
        };
        let of = |shape, tensor| costs(1.0, &Attention::Compressed(shape), tensor, rates(&kernels));
        let limits = |costs: &[AttentionCost]| -> Vec<Option<f64>> { costs.iter().map(|cost| cost.limit).collect() };
        assert_eq!(limits(&of(sparse, 1.0)), [Some(128.0), Some(2048.0), None]);
        let dense = Compressed { ratio: 128, index: None, ..sparse };
        assert_eq!(limits(&of(dense, 1.0)), [Some(128.0), None]);
        assert_eq!(limits(&of(Compressed { ratio: 0, ..dense }, 1.0)), [Some(128.0)]);
        let (one, eight) = (of(sparse, 1.0), of(sparse, 8.0));
        assert!((one[0].pair / eight[0].pair - 8.0).abs() < 1e-9 && one[0].prompt_context == eight[0].prompt_context);
        let read = 33.0 / (3.35e6 * kernels.attention_bandwidth);
        assert!((one[2].prompt_context / read - 1.0).abs() < 1e-12 && one[2].context_token >= read);
    }

    /// MiniMax-M3: 17 blocks of 128 tokens are read, and 256 bytes of the index per token.
    #[test]
    fn block_sparse_attention_reads_its_blocks() {
        let kernels = samples::kernels();
        let heads = Heads {
            queries: 64,
            kv: 4,
            dim: 128.0,
            value_dim: 128.0,
            span: crate::architecture::AttentionSpan::Full,
            gated: false,
            values_from_keys: false,
            reuses_kv: false,
            index: Some(BlockSelector { heads: 4, dim: 128, tokens: 17 * 128 }),
        };
        let costs = costs(57.0, &Attention::Heads(heads), 4.0, rates(&kernels));
        assert_eq!((costs.len(), costs[0].limit, costs[1].limit), (2, Some(2176.0), None));
        let read = 256.0 / (3.35e6 * kernels.attention_bandwidth);
        assert!((costs[1].prompt_context / read - 1.0).abs() < 1e-12);
    }
}
