//! Scripts as steps of one pipeline.

use blis_sim::policy::StepMemory;

use super::*;

/// A filter, a scorer with other columns and the blocks of the prompt, and one that keeps a column: their results are those of
/// each by itself.
#[test]
fn steps_see_what_they_see_alone() {
    const SOURCES: [&str; 3] = [
        "fn filter(r, s) { s.queue_depth + s.in_flight >= 3 }",
        "fn route(r, s) { s.cached_tokens_gpu / r.input_tokens + s.in_flight_tokens * 1e-6 + r.blocks.len() }",
        r"
fn init() { #{ kept: zeros(9) } }

fn route(r, s) {
    let before = sum(this.kept);
    if r.input_tokens % 3 == 0 { this.kept = s.in_flight; }
    s.in_flight + s.effective_load * 1e3 + before * 1e6
}",
    ];
    let plugins = SOURCES.map(|source| script(source).unwrap_or_else(|fault| panic!("{fault}")));
    // Guests of a run have one list of names.
    let names: Arc<[Box<str>]> = ["".into()].into();
    let guests = || -> (Box<dyn Guest>, [Box<dyn Guest>; 2]) {
        let [filter, scorer, keeper] = &plugins;
        let started = |kind: Kind, plugin: &dyn Plugin| {
            let setup = GuestSetup { names: Arc::clone(&names), ..setup(kind, plugin) };
            plugin.start(&setup).unwrap_or_else(|fault| panic!("{fault}"))
        };
        (
            started(Kind::RoutingFilter, filter.as_ref()),
            [scorer, keeper].map(|plugin| started(Kind::Routing, plugin.as_ref())),
        )
    };
    let ((mut filter, mut scorers), (mut alone, mut scorers_alone)) = (guests(), guests());
    let mut memory = StepMemory::default();
    let mut service = inputs::SyntheticService::new(9);
    let reads = plugins.iter().fold(Reads::NOTHING, |all, plugin| all.and(plugin.description().reads));
    for decision in 0..300 {
        service.advance(reads);
        memory.begin();
        let (request, cluster, ties) = (service.request(), service.cluster(), Ties::LowestIndex);
        let (mut shared, mut own) = (Vec::new(), Vec::new());
        filter.filter(&request, &cluster, &ties, Some(&mut memory), &mut shared).expect("filters");
        alone.filter(&request, &cluster, &ties, None, &mut own).expect("filters");
        for (scorer, alone) in scorers.iter_mut().zip(&mut scorers_alone) {
            let (mut scores, mut scores_alone) = (Vec::new(), Vec::new());
            scorer.scores(&request, &cluster, &ties, Some(&mut memory), &mut scores).expect("scores");
            alone.scores(&request, &cluster, &ties, None, &mut scores_alone).expect("scores");
            shared.append(&mut scores);
            own.append(&mut scores_alone);
        }
        assert_eq!(shared.len(), 27);
        assert_eq!(shared, own, "decision {decision}");
    }
}
