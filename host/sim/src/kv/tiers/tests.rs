//! The rules of BLIS's tiers, one test each. Blocks have four tokens.

use super::*;
use crate::kv::plain::BlockHash;
use crate::request::{Content, Span};
use crate::semantics::Semantics;

const BLOCK: u32 = 4;

/// A GPU, and tiers below it.
struct Memory {
    gpu: PlainKv,
    tiers: LowerTiers,
    now: Micros,
}

impl Memory {
    fn new(gpu_blocks: u32, tiers: &BlisTiers) -> Self {
        let gpu = PlainKv::new(gpu_blocks, BLOCK, true, Semantics::BLIS);
        Self { gpu, tiers: LowerTiers::new(tiers), now: Micros::ZERO }
    }

    fn mirror(gpu_blocks: u32, cpu_blocks: u64) -> Self {
        let config = MirrorConfig { cpu_blocks, bandwidth: 3.0, base_latency: Micros(10) };
        Self::new(gpu_blocks, &BlisTiers::Mirror(config))
    }

    fn chain(gpu_blocks: u32, cpu_blocks: u64, storage: &[StorageTier]) -> Self {
        Self::new(gpu_blocks, &chain(cpu_blocks, storage))
    }

    /// Allocates the prompt of a new request, as far as the GPU has not cached it.
    fn admit(&mut self, request: &Request) -> bool {
        let cached = self.gpu.cached_prefix(request, request.input_tokens);
        let start = cached.len() as u32 * BLOCK;
        self.allocate(request, start, request.input_tokens, &cached)
    }

    fn allocate(&mut self, request: &Request, start: u32, end: u32, cached: &[u32]) -> bool {
        let prefill = start < request.input_tokens;
        let allocation = AllocationRequest { prefill, cached, ..AllocationRequest::of_prompt(request, start, end) };
        self.tiers.allocate(&mut self.gpu, &allocation)
    }

    fn copy(&mut self, request: &Request) {
        self.tiers.copy(&self.gpu, std::iter::once(request));
    }

    /// Serves `request` in one step: its blocks are on the CPU afterwards, and free on the GPU.
    fn serve(&mut self, request: &Request) {
        assert!(self.admit(request), "request {:?}", request.id);
        self.copy(request);
        self.gpu.release(request.id);
    }

    /// Serves a request of its own kind that needs all blocks of the GPU.
    fn flush(&mut self) {
        let blocks = self.gpu.free_blocks();
        let other = request(900 + self.gpu.misses as u32, 500 + 50 * self.gpu.misses as u32, blocks);
        assert!(self.admit(&other));
        self.gpu.release(other.id);
    }

    /// Starts a step at `us`, with what a step does before it schedules the waiting queue.
    fn step(&mut self, us: u64) {
        self.now = Micros(us);
        self.tiers.start_step(self.now);
        self.tiers.poll();
    }

    fn contents(&self, request: &Request) -> Vec<BlockHash> {
        self.gpu.held_hashes(request.id).flatten().collect()
    }
}

/// A request with a prompt of `blocks` blocks, the shared contents `first`, `first + 1` and so on.
fn request(id: u32, first: u32, blocks: u32) -> Request {
    let content = Content::shared(&[Span { first, len: blocks }]);
    Request { content, ..Request::new(RequestId(id), Micros(0), blocks * BLOCK, 8) }
}

fn chain(cpu_blocks: u64, storage: &[StorageTier]) -> BlisTiers {
    let storage = storage.to_vec();
    BlisTiers::Chain(ChainConfig { cpu_blocks, block_bytes: 100, prompt_only: true, storage, seed: 0 })
}

/// A disk that moves a block in 10 µs of latency and 10 µs for its 100 bytes, with one thread each way.
const DISK: StorageTier = StorageTier {
    read_threads: 1,
    write_threads: 1,
    read_bandwidth: 10.0,
    write_bandwidth: 10.0,
    base_latency: Micros(10),
    saturation_queue_depth: 0,
    single_transfer_fraction: 0.0,
    latency_jitter_stddev: 0.0,
};

#[test]
fn blocks_that_left_the_gpu_are_reloaded_and_delay_the_step() {
    let mut memory = Memory::mirror(4, 10);
    let [first, again] = [1, 2].map(|id| request(id, 0, 3));
    memory.serve(&first);
    memory.flush();
    assert!(memory.gpu.cached_prefix(&again, 12).is_empty());
    let misses = memory.gpu.misses;
    assert!(memory.admit(&again));
    assert_eq!(memory.contents(&again), [0, 1, 2].map(BlockHash::Shared));
    assert_eq!((memory.gpu.hits, memory.gpu.misses), (3, misses), "they are hits");
    // Three blocks of 10 µs and ceil(4 tokens / 3 per µs) = 2 µs.
    assert_eq!(memory.tiers.take_delay(), Micros(36));
    assert_eq!(memory.tiers.take_delay(), Micros(0));
}

#[test]
fn reloads_begin_behind_what_the_gpu_has_and_end_at_the_first_gap() {
    let mut memory = Memory::mirror(6, 10);
    memory.serve(&request(1, 0, 2));
    memory.serve(&request(2, 10, 4)); // the GPU is full: its first block is the last of the first request
    memory.serve(&request(3, 20, 1));
    let longer = Request {
        content: Content::shared(&[Span { first: 0, len: 2 }, Span { first: 90, len: 1 }, Span { first: 20, len: 1 }]),
        ..Request::new(RequestId(4), Micros(0), 16, 1)
    };
    assert_eq!(memory.gpu.cached_prefix(&longer, 16).len(), 1, "the first block only");
    assert!(memory.admit(&longer));
    assert_eq!(memory.tiers.take_delay(), Micros(12), "the second block; behind the third, none is looked for");
}

#[test]
fn no_more_blocks_are_reloaded_than_were_free() {
    let mut memory = Memory::mirror(4, 10);
    memory.serve(&request(1, 0, 3));
    memory.flush();
    let other = request(2, 40, 2);
    assert!(memory.admit(&other));
    let again = request(3, 0, 3);
    assert!(!memory.admit(&again), "there is no room for the third block");
    assert_eq!(memory.tiers.take_delay(), Micros(24));
    assert_eq!(memory.tiers.misses, 0, "blocks were reloaded");
    // The quirk: it waits, and holds the blocks that it claimed.
    assert_eq!((memory.gpu.held_by(again.id), memory.gpu.free_blocks()), (2, 0));
    memory.gpu.release(other.id);
    assert!(memory.admit(&again));
    assert_eq!(memory.contents(&again), [0, 1, 2].map(BlockHash::Shared));
}

#[test]
fn a_failure_without_reload_is_a_miss() {
    let mut memory = Memory::mirror(2, 10);
    assert!(!memory.admit(&request(1, 0, 3)));
    assert_eq!(memory.tiers.misses, 1);
}

#[test]
fn a_prompt_goes_on_behind_a_full_block_only() {
    for (computed, delay) in [(8, 12), (6, 0)] {
        let mut memory = Memory::mirror(8, 10);
        memory.serve(&request(1, 0, 4));
        let chunked = request(2, 0, 4);
        memory.flush();
        let mut blocks = Memory { tiers: LowerTiers::new(&chain(1, &[])), gpu: memory.gpu.clone(), now: Micros(0) };
        assert!(blocks.allocate(&chunked, 0, computed, &[]), "computed without tiers");
        memory.gpu = blocks.gpu;
        assert!(memory.allocate(&chunked, computed, computed + 4, &[]));
        let reloaded = if delay > 0 { 2 } else { 0 };
        assert_eq!(memory.tiers.take_delay(), Micros(delay * reloaded), "{computed} tokens computed");
    }
}

#[test]
fn the_mirror_evicts_the_least_recently_used_block() {
    let mut memory = Memory::mirror(8, 3);
    memory.serve(&request(1, 0, 2));
    memory.serve(&request(2, 10, 1));
    memory.serve(&Request { input_tokens: 10, ..request(6, 0, 2) }); // uses the blocks of the first again
    assert_eq!(memory.tiers.thrashing(), Thrashing { events: 0, of: 3 });
    memory.serve(&request(3, 20, 1));
    assert_eq!(memory.tiers.thrashing(), Thrashing { events: 1, of: 4 });
    memory.flush();
    memory.admit(&request(4, 10, 1));
    assert_eq!(memory.tiers.take_delay(), Micros(0), "the block of the second request has left");
    memory.admit(&request(5, 0, 1));
    assert_eq!(memory.tiers.take_delay(), Micros(12));
    assert_eq!(Thrashing { events: 1, of: 4 }.rate(), 0.25);
    assert_eq!(Thrashing::default().rate(), 0.0);
}

#[test]
fn a_chain_reloads_for_nothing() {
    let mut memory = Memory::chain(4, 10, &[]);
    memory.serve(&request(1, 0, 3));
    memory.flush();
    let misses = memory.gpu.misses;
    assert!(memory.admit(&request(2, 0, 3)));
    assert_eq!((memory.gpu.misses, memory.tiers.take_delay()), (misses, Micros(0)));
}

#[test]
fn generated_blocks_are_copied_if_the_file_says_so() {
    for prompt_only in [true, false] {
        let BlisTiers::Chain(config) = chain(10, &[]) else { unreachable!("it is a chain") };
        let mut memory = Memory::new(8, &BlisTiers::Chain(ChainConfig { prompt_only, ..config }));
        // A prompt of one block and a half, and a conversation that has all that was generated in its prompt.
        let content = Content::shared(&[Span { first: 0, len: 3 }]);
        let short = Request { content, ..Request::new(RequestId(1), Micros(0), 6, 8) };
        assert!(memory.admit(&short));
        (6..12).for_each(|token| assert!(memory.allocate(&short, token, token + 1, &[])));
        memory.copy(&short);
        memory.gpu.release(short.id);
        memory.flush();
        let misses = memory.gpu.misses;
        assert!(memory.admit(&request(2, 0, 3)));
        assert_eq!(memory.gpu.misses - misses, if prompt_only { 2 } else { 0 }, "prompt only: {prompt_only}");
    }
}

/// A chain with three blocks on its disk alone, at 60 µs: the CPU has two blocks, of other requests.
fn on_disk() -> Memory {
    let mut memory = Memory::chain(4, 3, &[DISK]);
    memory.serve(&request(1, 0, 3));
    memory.step(100); // one after the other, the two threads have written them
    memory.flush();
    memory
}

#[test]
fn blocks_are_written_through_and_pinned_until_then() {
    let mut memory = Memory::chain(4, 3, &[DISK]);
    memory.serve(&request(1, 0, 3));
    memory.serve(&request(2, 10, 1));
    memory.flush();
    assert!(memory.admit(&request(3, 10, 1)));
    assert_eq!(memory.gpu.hits, 0, "the CPU had no room: all of its blocks were pinned");
    memory.step(100);
    memory.serve(&request(4, 20, 1));
    memory.flush();
    assert!(memory.admit(&request(5, 20, 1)));
    assert_eq!(memory.gpu.hits, 1);
}

#[test]
fn a_cold_read_takes_three_rounds_and_a_warm_one_two() {
    let mut memory = on_disk();
    let others = request(2, 30, 3);
    memory.serve(&others); // pushes the three blocks from the CPU
    memory.step(200);
    memory.flush();
    let cold = request(3, 0, 3);
    assert!(!memory.admit(&cold) && memory.tiers.awaits(cold.id), "round 1: the disk looks for them");
    memory.step(300);
    assert!(memory.tiers.awaits(cold.id) && !memory.admit(&cold), "round 2: they are read, in 10 + 300 / 10 µs");
    memory.step(340 - 1);
    assert!(memory.tiers.awaits(cold.id));
    memory.step(340);
    assert!(!memory.tiers.awaits(cold.id) && memory.admit(&cold), "round 3");
    assert_eq!((memory.gpu.hits, memory.tiers.thrashing()), (3, Thrashing { events: 0, of: 1 }));
    memory.gpu.release(cold.id);

    memory.serve(&request(4, 60, 3));
    memory.step(500);
    memory.flush();
    let warm = request(5, 0, 3);
    assert!(!memory.admit(&warm) && memory.tiers.awaits(warm.id), "round 1: they are read");
    memory.step(540);
    assert!(!memory.tiers.awaits(warm.id) && memory.admit(&warm), "round 2");
    assert!(!memory.tiers.any_awaits());
}

#[test]
fn another_request_waits_for_the_same_read() {
    let mut memory = on_disk();
    memory.serve(&request(2, 30, 3));
    memory.step(200);
    memory.flush();
    let (first, second) = (request(3, 0, 3), request(4, 0, 2));
    assert!(!memory.admit(&first));
    memory.step(300);
    assert!(!memory.admit(&second) && memory.tiers.awaits(second.id));
    assert_eq!(memory.tiers.next_change(Micros(300)), Some(Micros(340)));
    memory.step(340);
    assert!(memory.admit(&second) && memory.admit(&first));
    assert_eq!(memory.tiers.thrashing().of, 1, "one read for both");
}

#[test]
fn without_room_on_the_cpu_blocks_are_computed() {
    let mut memory = on_disk();
    memory.step(200);
    memory.serve(&request(2, 30, 3)); // its blocks are pinned until the disk has them
    memory.flush();
    let cold = request(3, 0, 3);
    assert!(!memory.admit(&cold) && memory.tiers.awaits(cold.id));
    memory.step(201);
    assert!(!memory.tiers.awaits(cold.id), "the CPU has no room");
    assert!(memory.admit(&cold));
    assert_eq!((memory.gpu.hits, memory.tiers.thrashing().events), (0, 2), "refused when polled and when allocated");
}

#[test]
fn what_no_tier_has_is_computed_at_once() {
    let mut memory = on_disk();
    assert!(memory.admit(&request(2, 70, 2)));
    assert!(!memory.tiers.any_awaits());
}

#[test]
fn blocks_are_read_from_the_first_tier() {
    let slow = StorageTier { read_bandwidth: 5.0, write_bandwidth: 1.0, ..DISK };
    let mut memory = Memory::chain(4, 3, &[slow, DISK]);
    memory.serve(&request(1, 0, 3));
    memory.step(219); // 110 µs a block to the first tier, with two threads
    memory.serve(&request(2, 30, 1));
    memory.flush();
    let again = request(3, 0, 3);
    assert!(!memory.admit(&again) && memory.tiers.awaits(again.id), "one block has left the CPU");
    memory.step(220);
    assert_eq!(memory.tiers.next_change(Micros(220)), Some(Micros(239)), "the copy of another block ends");
    memory.step(239);
    assert_eq!(memory.tiers.next_change(Micros(239)), Some(Micros(220 + 30)), "100 / 5 + 10 µs");
    memory.step(250);
    assert!(memory.admit(&again));
}

#[test]
fn a_running_request_does_not_wait_but_lets_others_find_its_blocks() {
    let mut memory = on_disk();
    memory.serve(&request(2, 30, 3));
    memory.step(200);
    memory.flush();
    // It computes its first block, and finds that the disk has those that follow.
    let running = request(3, 0, 3);
    let allocation = AllocationRequest::of_prompt(&running, 0, 4);
    assert!(memory.gpu.allocate(&allocation));
    assert!(memory.allocate(&running, 4, 12, &[]), "it goes on");
    assert_eq!(memory.tiers.thrashing(), Thrashing { events: 0, of: 1 });
    assert_eq!(memory.tiers.next_change(Micros(200)), Some(Micros(230)), "two blocks are being read");
}

#[test]
fn a_request_that_ends_waits_no_longer() {
    let mut memory = on_disk();
    memory.serve(&request(2, 30, 3));
    memory.step(200);
    memory.flush();
    let cold = request(3, 0, 3);
    assert!(!memory.admit(&cold) && memory.tiers.any_awaits());
    memory.tiers.forget(cold.id);
    assert!(!memory.tiers.any_awaits());
}
