use proptest::prelude::*;

use super::*;
use crate::policy::kv_cache::LeastRecent;

const RECORDED: &str = include_str!("tests/recorded.txt");

fn policy(name: &str, capacity: usize) -> Box<dyn CachePolicy> {
    match name {
        "lru" => Box::new(Lru::default()),
        "arc" => Box::new(Arc::new(capacity)),
        other => panic!("policy {other}"),
    }
}

fn keys(list: &str) -> Vec<ChunkKey> {
    if list == "-" {
        return Vec::new();
    }
    list.split(',').map(|key| ChunkKey(key.parse().expect("a key"))).collect()
}

/// A tier, the requests that use it, and which of them tell positions.
struct Replayed {
    tier: CpuTier,
    requests: FxHashMap<String, (RequestAccess, bool)>,
}

impl Replayed {
    fn positioned(&self, request: &str, list: &str) -> Vec<Positioned> {
        let has_positions = self.requests[request].1;
        keys(list).into_iter().map(|key| (key, has_positions.then_some(16 * (key.0 % 100 + 1) as u32))).collect()
    }

    /// Executes a line of the record and compares the result.
    fn execute(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["new", name, form] => {
                self.requests.insert(name.into(), (RequestAccess::default(), form == "positions"));
            }
            ["lookup", list, found_by_vllm] => {
                let found = keys(list).into_iter().map(|key| match self.tier.lookup(key) {
                    Lookup::Miss => 'M',
                    Lookup::Pending => 'P',
                    Lookup::Hit => 'H',
                });
                assert_eq!(found.collect::<String>(), found_by_vllm, "{line}");
            }
            ["load", name, list] => {
                let chunks = self.positioned(name, list);
                self.tier.load(&chunks, &mut self.requests.get_mut(name).expect("a request").0);
            }
            ["loaded", list] => self.tier.loaded(&keys(list)),
            ["written", list] => self.tier.written(&keys(list), true),
            ["failed", list] => self.tier.written(&keys(list), false),
            ["store", name, list, ref result @ ..] => {
                let chunks = self.positioned(name, list);
                let stored = self.tier.store(&chunks, &mut self.requests.get_mut(name).expect("a request").0);
                let expected = match *result {
                    ["refused"] => None,
                    [chunks, evicted] => Some(Stored { chunks: keys(chunks), evicted: keys(evicted) }),
                    _ => panic!("{line}"),
                };
                assert_eq!(stored, expected, "{line}");
            }
            ["end", name] => self.tier.end(self.requests.remove(name).expect("a request").0),
            _ => panic!("{line}"),
        }
    }
}

/// Replays the sequences of the policies that `policy` has, each line a microsecond after the one before. Returns their number.
fn replay(policy: impl Fn(&str, usize) -> Option<Box<dyn CachePolicy>>) -> u32 {
    let mut replayed: Option<Replayed> = None;
    let mut sequences = 0;
    for (line, now) in RECORDED.lines().skip(1).zip(1..) {
        if let Some(settings) = line.strip_prefix("tier ") {
            let words: Vec<&str> = settings.split(' ').collect();
            let [capacity, threshold, tracked] = [1, 2, 3].map(|at| words[at].parse::<usize>().expect("a number"));
            replayed = policy(words[0], capacity).map(|policy| {
                sequences += 1;
                let tier = CpuTier::new(capacity, policy, threshold as u32, tracked);
                Replayed { tier, requests: FxHashMap::default() }
            });
        } else if let Some(replayed) = &mut replayed {
            replayed.tier.set_moment(Micros(now), ChunkUser::default(), 0);
            replayed.execute(line);
        }
    }
    sequences
}

#[test]
fn two_hundred_sequences_have_the_results_of_vllm() {
    assert_eq!(replay(|name, capacity| Some(policy(name, capacity))), 200);
}

/// Ranks by the time of the last use have the results of vLLM's own LRU.
#[test]
fn ranks_by_the_last_use_have_the_results_of_vllm() {
    let ranked = |name: &str, _| {
        let policy: Box<dyn CachePolicy> = Box::new(RankedChunks::new(Box::new(LeastRecent), 16));
        (name == "lru").then_some(policy)
    };
    assert!(replay(ranked) > 80);
}

/// A step of one of a few requests.
#[derive(Clone, Debug)]
enum TierCall {
    Load(usize),
    Store(usize, usize),
    Finish(usize),
}

fn steps() -> impl Strategy<Value = Vec<TierCall>> {
    let step = prop_oneof![
        (0..6_usize).prop_map(TierCall::Load),
        (0..6_usize, 1..9_usize).prop_map(|(document, length)| TierCall::Store(document, length)),
        (0..6_usize).prop_map(TierCall::Finish),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn pins_return_to_zero_and_chunks_are_conserved(
        steps in steps(), capacity in 1..20_usize, name in prop_oneof![Just("lru"), Just("arc")], threshold in 0..3_u32,
    ) {
        let mut tier = CpuTier::new(capacity, policy(name, capacity), threshold, 16);
        let mut live: Vec<(Vec<ChunkKey>, Vec<ChunkKey>, RequestAccess)> = vec![Default::default(); 6];
        for step in steps {
            match step {
                TierCall::Load(at) => {
                    let keys = (0..9).map(|chunk| ChunkKey(100 * at as u64 + chunk));
                    let hit: Vec<ChunkKey> = keys.take_while(|&key| tier.lookup(key) == Lookup::Hit).collect();
                    let chunks: Vec<Positioned> = hit.iter().map(|&key| (key, Some(key.0 as u32 % 100))).collect();
                    let (loading, _, access) = &mut live[at];
                    tier.load(&chunks, access);
                    loading.extend(hit);
                }
                TierCall::Store(at, length) => {
                    let chunks = (0..length).map(|chunk| (ChunkKey((100 * at + chunk) as u64), Some(chunk as u32)));
                    let chunks: Vec<Positioned> = chunks.collect();
                    let (_, writing, access) = &mut live[at];
                    if let Some(stored) = tier.store(&chunks, access) {
                        writing.extend(stored.chunks);
                    }
                }
                TierCall::Finish(at) => {
                    let (loading, writing, access) = std::mem::take(&mut live[at]);
                    tier.loaded(&loading);
                    tier.written(&writing, at % 2 == 0);
                    tier.end(access);
                }
            }
            prop_assert!(tier.used() <= tier.capacity() && tier.evictable() <= tier.used());
            let copy = tier.clone();
            prop_assert_eq!((copy.used(), copy.evictable()), (tier.used(), tier.evictable()));
        }
        for (loading, writing, access) in live {
            tier.loaded(&loading);
            tier.written(&writing, true);
            tier.end(access);
        }
        prop_assert_eq!(tier.evictable(), tier.used(), "nothing is pinned or pending");
    }
}
