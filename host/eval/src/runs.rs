//! Runs of several policies under several seeds, on all threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::error::RunError;

/// The results of `run` for every policy under every seed: by policy, then by seed.
///
/// Runs are spread over the threads of the current rayon pool. The result does not depend on their number, provided
/// that a single run does not.
///
/// # Errors
///
/// The error of the first failed run, in order of policies and then of seeds. Runs that come after a failed one in
/// this order may be skipped.
pub fn run_all<C: Sync, T: Send, E: Send>(
    policies: &[C],
    seeds: &[u64],
    run: impl Fn(&C, u64) -> Result<T, E> + Sync,
) -> Result<Vec<Vec<T>>, E> {
    let runs: Vec<(&C, u64)> =
        policies.iter().flat_map(|policy| seeds.iter().map(move |&seed| (policy, seed))).collect();
    // Runs before the first failed one are never skipped, so that the same error is returned every time.
    let first_failed = AtomicUsize::new(usize::MAX);
    let results: Vec<Option<Result<T, E>>> = runs
        .par_iter()
        .enumerate()
        .map(|(number, &(policy, seed))| {
            if number > first_failed.load(Ordering::Relaxed) {
                return None;
            }
            let result = run(policy, seed);
            if result.is_err() {
                first_failed.fetch_min(number, Ordering::Relaxed);
            }
            Some(result)
        })
        .collect();
    let mut results = results.into_iter().flatten();
    policies.iter().map(|_| results.by_ref().take(seeds.len()).collect()).collect()
}

/// How many of `threads` threads, 0 for one per core, may simulate at once where a run has as many as `requests` requests: together
/// they stay below a gigabyte, at some 700 bytes a request.
pub fn at_once(threads: usize, requests: impl Iterator<Item = Option<u64>>) -> usize {
    const TOGETHER: u64 = 1_400_000;
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let threads = if threads == 0 { cores() } else { threads };
    let most = requests.flatten().max().unwrap_or(0).max(1);
    threads.min(usize::try_from(TOGETHER / most).unwrap_or(usize::MAX).max(1))
}

/// Runs `work` on a pool of `threads` threads; 0 for one per core.
pub fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> Result<T, RunError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(RunError::runtime)?;
    Ok(pool.install(work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn results_come_by_policy_then_seed() {
        let run = |policy: &&str, seed: u64| Ok::<_, ()>(format!("{policy}{seed}"));
        let results = on_threads(3, || run_all(&["a", "b"], &[7, 5], run)).expect("threads");
        assert_eq!(results, Ok(vec![vec!["a7".into(), "a5".into()], vec!["b7".into(), "b5".into()]]));
        assert_eq!(run_all(&["a", "b"], &[], run), Ok(vec![vec![], vec![]]));
        assert_eq!(run_all(&[], &[1], run), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn threads_change_nothing(
            policies in 1..5u64,
            seeds in prop::collection::vec(0..100u64, 1..6),
            failing in prop::collection::btree_set(0..500u64, 0..40),
        ) {
            let policies: Vec<u64> = (0..policies).collect();
            let run = |&policy: &u64, seed: u64| {
                let number = 100 * policy + seed;
                if failing.contains(&number) { Err(number) } else { Ok(number) }
            };
            let expected: Result<Vec<Vec<u64>>, u64> =
                policies.iter().map(|policy| seeds.iter().map(|&seed| run(policy, seed)).collect()).collect();
            for threads in [1, 2, 5] {
                prop_assert_eq!(&on_threads(threads, || run_all(&policies, &seeds, run)).expect("threads"), &expected);
            }
        }
    }
}
