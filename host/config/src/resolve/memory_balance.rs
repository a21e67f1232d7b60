//! The KV cache of a deployment beside the memory of its GPUs: how many blocks, whether vLLM would start with them, and the balance that every
//! result has.

use std::sync::Arc;

use blis_sim::capacity;
use blis_sim::instance::KvGroups;
use blis_sim::kv::pages::{KvLayout, LayerRule, NeedsTooMuch, StartLimits};
use blis_sim::memory::{self, EngineBlocks, MemoryBalance};
use blis_sim::model::Parallelism;

use super::{DeployedCache, FittingBlocks, MemoryWarning, RECORDED_BLOCK_SIZE, Resolution};
use crate::engine::BatchLimits;
use crate::error::ConfigError;
use crate::kv_groups::DeployedLayout;
use crate::{DeployedMemory, DeploymentArgs, KvBlocksSource};

const GIB: f64 = 1_073_741_824.0;

/// Requests of `max_model_len` at once below which the automatic number of GPUs is noted as small.
const FEW_REQUESTS: f64 = 8.0;

/// Whether some layers keep less than every token.
pub(super) fn has_groups(layout: &KvLayout) -> bool {
    !matches!(&layout.groups[..], [only] if only.rule.holds_all())
}

impl Resolution<'_> {
    /// Engine processes of an instance: in vLLM each data-parallel rank is one, with its own scheduler, limits and KV cache.
    pub(super) fn engine_processes(&self) -> u32 {
        self.args.batch.engine.map_or(1, |_| self.args.data_parallel_size)
    }

    /// The KV blocks: as set, computed, or as recorded with blackbox coefficients where nothing can be computed or BLIS takes them.
    pub(super) fn kv_cache(
        &self,
        tensor: u32,
        notes: &mut Vec<String>,
        warnings: &mut Vec<MemoryWarning>,
    ) -> Result<DeployedCache, ConfigError> {
        let recorded = self.row.and_then(|row| row.total_kv_blocks);
        let uses_recorded = self.args.batch.engine.is_none() || self.config.is_none();
        let (blocks, source, computed) = if let Some(blocks) = self.args.total_kv_blocks {
            (blocks, KvBlocksSource::Flag, None)
        } else if let Some(blocks) = recorded.filter(|_| uses_recorded) {
            self.check_unused_memory()?;
            let size = u64::from(self.args.block_size);
            if size != RECORDED_BLOCK_SIZE {
                notes.push(format!("{blocks} recorded KV blocks of 16 tokens are converted to blocks of {size}"));
            }
            (u64::from(blocks) * RECORDED_BLOCK_SIZE / size, KvBlocksSource::CoefficientRow, None)
        } else {
            let config = self.config_for("the size of the KV cache", ", or set `--total-kv-blocks`")?;
            let capacity = self.capacity(config, tensor).map_err(|error| self.capacity_error(Some(tensor), error))?;
            let (blocks, computed) = match capacity {
                FittingBlocks::Blis(blocks) => (blocks, None),
                FittingBlocks::Vllm(blocks) => (self.usable_blocks(&blocks), Some(blocks)),
            };
            if let Some(recorded) = recorded {
                self.note_recorded(tensor, u64::from(recorded), blocks, notes, warnings);
            }
            (blocks, KvBlocksSource::Computed, computed)
        };
        let Some(total_kv_blocks) = u32::try_from(blocks).ok().filter(|&blocks| blocks > 0) else {
            return Err(ConfigError::OutOfRange {
                option: "--total-kv-blocks",
                given: blocks.to_string(),
                expected: "there must be 1 to 4294967295 KV blocks",
            });
        };
        let layout = match &computed {
            Some(blocks) => Some(blocks.layout.clone()),
            None => self.layout(tensor).filter(has_groups),
        };
        let simulated = layout.as_ref().filter(|layout| !self.keeps_one_number(layout));
        let block_size = simulated.map_or(self.args.block_size, |layout| layout.hash_block);
        Ok(DeployedCache { total_kv_blocks, source, computed, block_size, layout })
    }

    /// The KV groups, where the number of their pages does not follow from the memory.
    fn layout(&self, tensor: u32) -> Option<KvLayout> {
        let model = &self.config.filter(|_| self.args.batch.engine.is_some())?.config;
        let parallelism = Parallelism { tensor, data: self.args.data_parallel_size };
        memory::kv_layout(model, parallelism, self.pipeline, self.cache_settings()).ok()
    }

    /// Blocks that requests may hold, of all engine processes. With KV groups vLLM's null block is none of them.
    fn usable_blocks(&self, blocks: &EngineBlocks) -> u64 {
        let of_process = match blocks.layout {
            ref layout if self.keeps_one_number(layout) => {
                let longest = self.request_tokens().unwrap_or(1);
                layout.logged_tokens(blocks.count, blocks.limits(longest)) / u64::from(self.args.block_size)
            }
            ref layout if has_groups(layout) => blocks.count.saturating_sub(1),
            _ => blocks.count,
        };
        of_process.saturating_mul(u64::from(self.engine_processes()))
    }

    /// Whether the groups are simulated as blocks of equal layers: the CPU tier knows no groups. Windows hold all tokens then, and states
    /// take what they take of a request of the greatest length.
    pub(super) fn keeps_one_number(&self, layout: &KvLayout) -> bool {
        self.args.offload.is_some() && has_groups(layout)
    }

    /// The KV groups of the deployment.
    pub(super) fn deployed_layout(&self, cache: &DeployedCache, max_model_len: Option<u32>) -> Option<DeployedLayout> {
        let layout = cache.layout.clone()?;
        let (BatchLimits { max_num_batched_tokens, .. }, _) = self.batch_limits();
        let batches = self.pipeline.saturating_add(u32::from(self.args.cache.asynchronous));
        let limits = StartLimits {
            max_model_len: max_model_len.unwrap_or(u32::MAX),
            tokens_in_flight: u64::from(max_num_batched_tokens) * u64::from(batches),
        };
        let groups = (has_groups(&layout) && !self.keeps_one_number(&layout)).then(|| {
            Arc::new(KvGroups { layout: layout.clone(), retention: self.args.cache.retention, pipeline: self.pipeline })
        });
        Some(DeployedLayout {
            num_blocks: cache.computed.as_ref().map_or(u64::from(cache.total_kv_blocks) + 1, |blocks| blocks.count),
            available_bytes: cache.computed.as_ref().map(|blocks| blocks.balance.available()),
            layout,
            limits,
            groups,
        })
    }

    /// `max_num_seqs`, of which each needs a page for its state. vLLM does not start with more, unless it captures no CUDA graphs.
    pub(super) fn decodes_at_once(
        &self,
        layout: &DeployedLayout,
        max_num_seqs: u32,
        warnings: &mut Vec<MemoryWarning>,
    ) -> Result<u32, ConfigError> {
        let has_states = layout.layout.groups.iter().any(|group| matches!(group.rule, LayerRule::State { .. }));
        if !has_states || self.args.enforce_eager || u64::from(max_num_seqs) <= layout.num_blocks {
            return Ok(max_num_seqs);
        }
        let refusal = NeedsTooMuch::TooManyStates { max_num_seqs, blocks: layout.num_blocks };
        let hint = format!(
            "give `--max-num-seqs {}`, or more memory: a larger `--tp` or `--gpu-memory-utilization`",
            layout.num_blocks
        );
        if self.args.batch.max_num_seqs.is_some() {
            let message = format!("`{}` on {}: vLLM would not start: {refusal}", self.name, self.hardware.name);
            return Err(ConfigError::Conflict { message, hint });
        }
        let fewer = u32::try_from(layout.num_blocks).unwrap_or(u32::MAX);
        warnings.push(MemoryWarning {
            what: format!(
                "vLLM would not start with its default of max_num_seqs: {refusal} Simulated with max_num_seqs {fewer}"
            ),
            hint,
        });
        Ok(fewer)
    }

    /// Says that computed blocks replace those recorded with blackbox coefficients; a warning if these exceed the GPUs.
    fn note_recorded(
        &self,
        tensor: u32,
        recorded: u64,
        blocks: u64,
        notes: &mut Vec<String>,
        warnings: &mut Vec<MemoryWarning>,
    ) {
        let Some(model) = self.config.map(|model| &model.config) else { return };
        let bytes = recorded as f64 * RECORDED_BLOCK_SIZE as f64 * memory::kv_bytes_per_token(model, tensor);
        let weights = memory::weight_bytes(model, Parallelism { tensor, data: 1 }, 1);
        let what = format!(
            "KV blocks of {}: {blocks}, computed from the memory of the GPUs; the {recorded} of 16 tokens that are recorded with the blackbox \
             coefficients take {:.1} GiB of each GPU, which has {:.1} GiB",
            self.name,
            bytes / GIB,
            self.hardware.usable_gib
        );
        if bytes + weights > self.hardware.usable_gib * GIB {
            let hint = "set `--total-kv-blocks` to the blocks of your server's log".to_owned();
            warnings.push(MemoryWarning { what, hint });
        } else {
            notes.push(what);
        }
    }

    /// Refuses shares of a memory that decides nothing: the coefficients were recorded with a number of blocks.
    fn check_unused_memory(&self) -> Result<(), ConfigError> {
        let set = match self.args {
            DeploymentArgs { kv_cache_memory_bytes: Some(_), .. } => "--kv-cache-memory-bytes",
            args if args.utilization() != args.default_utilization() => "--gpu-memory-utilization",
            _ => return Ok(()),
        };
        Err(ConfigError::Conflict {
            message: format!("`{set}` has no effect beside the KV blocks recorded with these coefficients"),
            hint: format!("leave out `{set}`, or set `--total-kv-blocks`"),
        })
    }

    /// The longest request. vLLM starts only if one of that length fits the KV cache: a length that is set is refused otherwise; that of the model
    /// is cut, with a warning.
    pub(super) fn max_model_len(
        &self,
        cache: &DeployedCache,
        notes: &mut Vec<String>,
        warnings: &mut Vec<MemoryWarning>,
    ) -> Result<Option<u32>, ConfigError> {
        let given = self.args.max_model_len.filter(|given| *given > 0).map(u64::from);
        let Some(length) = given.or(self.config.and_then(|model| model.config.max_model_len)) else {
            notes.push(format!("the context length of {} is unknown: no request is too long", self.name));
            return Ok(None);
        };
        let narrow = |length| Some(u32::try_from(length).unwrap_or(u32::MAX));
        if let Some(blocks) = &cache.computed {
            return match blocks.check_start(length) {
                Ok(()) => Ok(narrow(length)),
                Err(refusal) => self.refused_length(length, given, blocks, &refusal, notes, warnings).map(narrow),
            };
        }
        if cache.layout.as_ref().is_some_and(has_groups) {
            return Ok(narrow(length)); // requests that do not fit the given pages are refused one by one
        }
        let of_rank = u64::from(cache.total_kv_blocks / self.engine_processes().max(1));
        let capped = capacity::max_model_len(length, of_rank.max(1), self.args.block_size);
        if capped < length {
            let limit = match given {
                Some(given) => format!("`--max-model-len` is {given}"),
                None => format!("the model allows {length}"),
            };
            let note = format!("max_model_len {capped}: the size of the KV cache; {limit}");
            // vLLM lets the number of blocks be set, but not a length that they do not hold.
            if let Some(given) = given.filter(|_| self.args.batch.engine.is_some()) {
                warnings.push(MemoryWarning {
                    what: note.clone(),
                    hint: format!(
                        "give a `--total-kv-blocks` that holds {given} tokens, or `--max-model-len {capped}`"
                    ),
                });
            }
            notes.push(note);
        }
        Ok(narrow(capped))
    }

    /// The length that is used where vLLM would refuse `length`.
    fn refused_length(
        &self,
        length: u64,
        given: Option<u64>,
        blocks: &EngineBlocks,
        refusal: &NeedsTooMuch,
        notes: &mut Vec<String>,
        warnings: &mut Vec<MemoryWarning>,
    ) -> Result<u64, ConfigError> {
        let longest = blocks.need(length).longest;
        let hint = match longest {
            0 => "give each instance more GPUs (`--tp`), or raise `--gpu-memory-utilization`".to_owned(),
            longest => format!(
                "give `--max-model-len {longest}` (or -1 for the longest that fits), or more memory: a larger `--tp` or \
                 `--gpu-memory-utilization`"
            ),
        };
        if self.args.auto_model_len && longest > 0 {
            notes.push(format!(
                "max_model_len {longest}: the longest request that fits the KV cache; the model allows {length}"
            ));
            return Ok(longest);
        }
        if given.is_some() || longest == 0 {
            let message = match self.args.auto_model_len {
                true => format!("Cannot auto-fit max_model_len: {refusal}"),
                false => format!("vLLM would not start: {refusal}"),
            };
            let message = format!("`{}` on {}: {message}", self.name, self.hardware.name);
            return Err(ConfigError::Conflict { message, hint });
        }
        notes.push(format!("max_model_len {longest}: the size of the KV cache; the model allows {length}"));
        warnings.push(MemoryWarning {
            what: format!(
                "vLLM would not start with the model's max_model_len: {refusal} Simulated with max_model_len {longest}"
            ),
            hint,
        });
        Ok(longest)
    }

    /// The memory of a GPU as vLLM divides it, and what the KV blocks take of it; `None` if it cannot be computed.
    pub(super) fn memory(
        &self,
        tensor: u32,
        cache: &DeployedCache,
        warnings: &mut Vec<MemoryWarning>,
    ) -> Option<DeployedMemory> {
        let (balance, block_bytes) = match &cache.computed {
            Some(blocks) => (blocks.balance, blocks.layout.bytes_per_block as f64),
            None => self.balance(tensor)?,
        };
        let of_rank = f64::from(cache.total_kv_blocks) / f64::from(self.ranks_of_blocks());
        let kv_cache_bytes = (of_rank * block_bytes) as u64;
        let mut memory = DeployedMemory { balance, block_bytes, kv_cache_bytes, note: None };
        let gib = |bytes: u64| bytes as f64 / GIB;
        if cache.computed.is_some() {
            if balance.unused < 0 && balance.weights.saturating_add(balance.available()) > balance.total {
                let (weights, total, kv) = (gib(balance.weights), gib(balance.total), gib(balance.available()));
                warnings.push(MemoryWarning {
                    what: format!(
                        "weights of {weights:.1} GiB and the given {kv:.1} GiB of KV cache exceed the {total:.1} GiB of a GPU: no server starts so"
                    ),
                    hint: "use more GPUs (`--tensor-parallel-size`), or lower `--kv-cache-memory-bytes`".into(),
                });
            }
            return Some(memory);
        }
        let origin = match cache.source {
            KvBlocksSource::Flag => "`--total-kv-blocks`",
            KvBlocksSource::CoefficientRow => "recorded with the blackbox coefficients",
            KvBlocksSource::Computed => "BLIS's formula",
        };
        let what = format!(
            "the KV cache of {} blocks ({origin}) takes {:.1} GiB of each GPU, which has {:.1} GiB, {:.1} beside the weights; vLLM {} would \
             leave {:.1} GiB for it",
            cache.total_kv_blocks,
            gib(kv_cache_bytes),
            gib(balance.total),
            gib(balance.total.saturating_sub(balance.weights)),
            balance.version,
            balance.kv_cache as f64 / GIB,
        );
        if kv_cache_bytes.saturating_add(balance.weights) > balance.total
            && cache.source == KvBlocksSource::CoefficientRow
        {
            warnings.push(MemoryWarning {
                what: what.clone(),
                hint: "set `--total-kv-blocks` to the blocks of your server's log".into(),
            });
        }
        memory.note = Some(what);
        Some(memory)
    }

    /// Data-parallel ranks among which the blocks of an instance are divided: those of a dense model have the blocks of one.
    fn ranks_of_blocks(&self) -> u32 {
        let experts = self.config.is_some_and(|model| model.config.moe.is_some());
        if experts { self.args.data_parallel_size.max(1) } else { 1 }
    }

    /// The balance where no number of blocks follows from it, with the bytes of a block: of the stage that leaves least for its KV cache.
    fn balance(&self, tensor: u32) -> Option<(MemoryBalance, f64)> {
        let model = &self.config?.config;
        let parallelism = Parallelism { tensor, data: self.args.data_parallel_size };
        let profile = self.memory_profile(tensor, self.args.utilization(), self.args.batch);
        let balances = memory::balances(model, parallelism, profile).ok()?;
        let balance = balances.into_iter().min_by_key(|balance| balance.kv_cache)?;
        let layout = memory::kv_layout(model, parallelism, self.pipeline, profile.cache).ok()?;
        let of_tokens = f64::from(self.args.block_size) / f64::from(layout.scheduler_block.max(1));
        // Blocks of equal layers are of the size that is set; pages of groups are as they are.
        let share = if has_groups(&layout) { 1.0 } else { of_tokens };
        Some((balance, layout.bytes_per_block as f64 * share))
    }

    /// The balance in a line, where the blocks follow from it.
    pub(super) fn memory_note(&self, memory: &DeployedMemory, cache: &DeployedCache, tensor: u32) -> Option<String> {
        let Some(blocks) = &cache.computed else { return memory.note.clone().filter(|_| self.takes_too_much(memory)) };
        let balance = &memory.balance;
        let gib = |bytes: u64| bytes as f64 / GIB;
        let others = balance.context.saturating_add(balance.multimodal).saturating_add(balance.reserved);
        let mut note = format!(
            "memory of a GPU, GiB: {:.2} of {:.2} = weights {:.2} + activations {:.2} + CUDA graphs {:.2} + context {:.2} + KV cache {:.2} \
             (vLLM {}, ± 1)",
            gib(balance.budget),
            gib(balance.total),
            gib(balance.weights),
            gib(balance.activations.peak()),
            gib(balance.graphs),
            gib(others),
            gib(balance.available()),
            balance.version,
        );
        let longest = self.request_tokens().map(|longest| (longest, blocks.concurrency(longest)));
        if let Some((longest, requests)) = longest.filter(|&(_, requests)| (1.0..FEW_REQUESTS).contains(&requests)) {
            note += &format!("; {requests:.1} requests of max_model_len {longest} fit at once");
        }
        let parallelism = Parallelism { tensor, data: self.args.data_parallel_size };
        let elsewhere = !["H100", "A100"].iter().any(|measured| self.hardware.name.starts_with(measured));
        let unmeasured = balance.version.unmeasured(parallelism);
        let unmeasured: Vec<&str> =
            unmeasured.into_iter().chain(elsewhere.then_some("fitted to logs of H100 and A100")).collect();
        if !unmeasured.is_empty() {
            note += &format!("; its constants are {}", unmeasured.join(", and "));
        }
        Some(note)
    }

    /// Whether the blocks do not fit beside the weights.
    fn takes_too_much(&self, memory: &DeployedMemory) -> bool {
        memory.kv_cache_bytes.saturating_add(memory.balance.weights) > memory.balance.total
    }
}
