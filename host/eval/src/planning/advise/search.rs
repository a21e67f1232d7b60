//! The search as a whole.

use crate::error::RunError;
use crate::runs::{at_once, on_threads};

use super::config::AdviseConfig;
use super::document::DeploymentAdvice;
use super::finalists::finalists;
use super::race::Race;
use super::report::advice;

/// Searches the cheapest deployment of `config`. The result does not depend on the number of threads.
///
/// # Errors
/// If the workload or a policy is invalid, a run fails, or the runs are too short to tell.
pub fn advise(config: &AdviseConfig) -> Result<DeploymentAdvice, RunError> {
    let requests = [config.plan.base.spec.num_requests.map(u64::from)];
    on_threads(at_once(config.threads, requests.into_iter()), || search(config))?
}

fn search(config: &AdviseConfig) -> Result<DeploymentAdvice, RunError> {
    let mut race = Race::new(config)?;
    race.run()?;
    let rows = finalists(&mut race, config.risk)?;
    race.note("rows examined");
    if let Some(choice) = rows.first() {
        choice.evaluated.runs.iter().try_for_each(|run| race.length.check(run, &config.slos))?;
    }
    advice(config, &race, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::Slo;
    use crate::planning::advise::bench::EvaluatedDeployment;
    use crate::planning::advise::budget::{Budget, Weights};
    use crate::planning::advise::config::AdviseOptions;
    use crate::planning::advise::race::Deployed;
    use crate::planning::advise::space::ReplicaLayout;
    use crate::planning::load_run::EarlyStop;
    use crate::planning::variation::Variation;
    use crate::spec::ExperimentSpec;

    fn config(settings: &[(&str, &str)], slos: &[&str], vary: &[&str], threads: usize) -> AdviseConfig {
        let mut spec = ExperimentSpec::default();
        for (name, value) in settings {
            spec.set_named(name, value).expect("valid");
        }
        let slos: Vec<Slo> = slos.iter().map(|text| Slo::parse(text).expect("valid")).collect();
        let options = AdviseOptions {
            budget: Budget::Gpus(8),
            weights: vec![Weights::Published],
            variations: vary.iter().map(|text| Variation::parse(text).expect("valid")).collect(),
            risk: 0.1,
            all: false,
            seeds: 5,
            threads,
        };
        AdviseConfig::new(&spec, &slos, &options).expect("valid")
    }

    /// An engine that is cheap to simulate: its steps take longer the larger they are.
    const SMALL: [(&str, &str); 7] = [
        ("model", "llama-3.1-8b-instruct"),
        ("latency-model", "blackbox"),
        ("alpha-coeffs", "0,0,0"),
        ("beta-coeffs", "8000,10,100"),
        ("output-tokens", "20"),
        ("output-tokens-stdev", "5"),
        ("rate", "150"),
    ];

    /// Every number of replicas of every design without roles, with all seeds: the cheapest that holds, of equal ones that with the most slack.
    fn exhaustive(race: &Race) -> Option<(Deployed, EvaluatedDeployment)> {
        let mut best: Option<(Deployed, EvaluatedDeployment)> = None;
        for (index, design) in race.designs.iter().enumerate().filter(|(_, design)| !design.has_roles) {
            for replicas in design.least..=design.most {
                let layout = ReplicaLayout::of(replicas);
                let loads = race.loads(index).expect("requests");
                let of = race.bench.evaluate(index, layout, &loads, EarlyStop(5.0)).expect("runs");
                if !of.holds() {
                    continue;
                }
                let is_better = best.as_ref().is_none_or(|(other, known)| {
                    let by_cost = race.cost((index, layout)).total_cmp(&race.cost(*other));
                    by_cost.then(known.slack.total_cmp(&of.slack)).is_lt()
                });
                if is_better {
                    best = Some(((index, layout), of));
                }
                break;
            }
        }
        best
    }

    fn check_against_exhaustive(config: &AdviseConfig) {
        let mut race = Race::new(config).expect("valid");
        race.run().expect("runs");
        let (found, _) = race.best().expect("one holds");
        let (expected, of) = exhaustive(&race).expect("one holds");
        let words = |(index, layout): Deployed| format!("{:?} {layout:?}", race.designs[index].settings);
        let (cost, slack) = (race.cost(found), race.evaluated[&found].slack);
        if race.designs[found.0].has_roles {
            // No point of the grid: it is the choice only if it is cheaper, or has more slack.
            assert!(cost < race.cost(expected) || slack > of.slack, "{} {}", words(found), words(expected));
            return;
        }
        assert_eq!(cost, race.cost(expected), "{} {}", words(found), words(expected));
        assert_eq!(slack, of.slack, "{} {}", words(found), words(expected));
    }

    #[test]
    fn the_choice_is_that_of_an_exhaustive_search() {
        let vary = [
            "routing-policy=round-robin,weighted,token-aware",
            "max-num-seqs=8,16,32,64",
            "max-num-batched-tokens=512,2048",
        ];
        for slos in [["ttft_p90=60ms", "tpot_p90=25ms"], ["ttft_p95=100ms", "tpot_p90=40ms"]] {
            check_against_exhaustive(&config(&SMALL, &slos, &vary, 2));
        }
    }

    /// 64 designs of qwen3-32b-fp8 on H100, as `advise.md` has it.
    #[test]
    #[ignore = "heavy: `.ci/run` runs it in a step of its own"]
    fn the_choice_on_a_grid_of_64_is_that_of_an_exhaustive_search() {
        let settings =
            [("model", "qwen/qwen3-32b-fp8"), ("hardware", "H100"), ("workload", "summarization"), ("rate", "6")];
        let vary = [
            "tp=1,2,4,8",
            "kv-cache-dtype=auto,fp8",
            "max-num-batched-tokens=2048,8192",
            "max-num-seqs=128,256",
            "routing-policy=round-robin,token-aware",
        ];
        for slos in
            [["ttft_p95=1s", "tpot_p90=40ms"], ["ttft_p95=500ms", "tpot_p90=60ms"], ["ttft_p90=2s", "e2e_mean=20s"]]
        {
            check_against_exhaustive(&config(&settings, &slos, &vary, 2));
        }
    }

    #[test]
    fn threads_change_nothing() {
        let vary = ["routing-policy=round-robin,token-aware", "max-num-seqs=16,64"];
        let of = |threads: usize| {
            let found = advise(&config(&SMALL, &["ttft_p90=60ms"], &vary, threads)).expect("runs");
            serde_json::to_string(&found).expect("JSON")
        };
        assert_eq!(of(1), of(3));
    }

    #[test]
    fn what_cannot_hold_is_no_recommendation() {
        let found = advise(&config(&SMALL, &["ttft_p90=1ms"], &["max-num-seqs=16,64"], 1)).expect("runs");
        let nearest = found.nearest.as_ref().expect("one comes closest");
        assert!(found.deployments.is_empty() && nearest.idle, "{nearest:?}");
        assert!(found.sentence.contains("Nothing within 8 GPUs holds"), "{}", found.sentence);
    }
}
