use proptest::prelude::*;

use super::*;
use crate::policy::{BuiltIn, Bundle, FilterSetting, ScorerKind, SettingSource};
use blis_plugin::Kind;

const HEADER: &str = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n";

fn read(body: &str) -> Imported {
    import("epp.yaml", &format!("{HEADER}{body}")).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(body: &str) -> String {
    import("epp.yaml", &format!("{HEADER}{body}")).expect_err("it is invalid").to_string()
}

fn scorers(picker: &EndpointPicker) -> Vec<(ScorerKind, f64)> {
    let built_in = |scorer: &WeightedScorer| (scorer.kind().expect("llm-d has no plugins of ours"), scorer.weight);
    picker.profile.scorers.iter().map(built_in).collect()
}

fn filters(picker: &EndpointPicker) -> Vec<String> {
    picker.profile.filters.iter().map(|filter| FilterSetting::BuiltIn(filter.clone()).to_string()).collect()
}

fn texts(remarks: &[blis_diag::Diagnostic]) -> Vec<String> {
    remarks.iter().map(|remark| remark.headline().to_string()).collect()
}

#[test]
fn weights_and_parameters_are_read_with_their_defaults() {
    let Imported { picker, left_out, .. } = read(
        "plugins:
- {type: prefix-cache-affinity-filter, parameters: {affinityThreshold: 0.5}}
- {type: queue-scorer, name: queues}
- {type: kv-cache-utilization-scorer}
- {type: active-request-scorer}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queues}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2.5}
  - {pluginRef: active-request-scorer, weight: 0}
  - {pluginRef: prefix-cache-affinity-filter}
",
    );
    assert_eq!(scorers(&picker), [(ScorerKind::QueueDepth, 1.0), (ScorerKind::KvUtilization, 2.5)]);
    assert_eq!(filters(&picker), ["prefix-cache-affinity:affinity=0.5"]);
    assert_eq!(picker.shedding, Some(Saturation { queue_depth: 5.0, kv_utilization: 0.8 }));
    assert_eq!(texts(&left_out), [""; 0]);
}

#[test]
fn a_configuration_without_plugins_is_llm_d_s_default() {
    let three_two_two =
        [(ScorerKind::PrefixAffinity, 3.0), (ScorerKind::QueueDepth, 2.0), (ScorerKind::KvUtilization, 2.0)];
    assert_eq!(scorers(&read("").picker), three_two_two);
    assert_eq!(scorers(&read("plugins: []\nschedulingProfiles:\n").picker), three_two_two);
    let profile = read("plugins: [{type: queue-scorer}, {type: openai-parser}, {type: load-aware-scorer}]\n").picker;
    assert_eq!(
        scorers(&profile),
        [(ScorerKind::QueueDepth, 1.0), (ScorerKind::LoadAware, 1.0)],
        "all scorers, weight 1"
    );
}

#[test]
fn the_producer_decides_which_scorer_it_is() {
    let scorer = |producer: &str| {
        let plugins =
            "plugins: [{type: precise-prefix-cache-producer}, {type: approx-prefix-cache-producer, name: record}, ";
        let read = read(&format!("{plugins}{{type: prefix-cache-scorer, parameters: {{{producer}}}}}]\n"));
        (scorers(&read.picker)[0].0, read.differs.len())
    };
    assert_eq!(scorer(""), (ScorerKind::PrefixAffinity, 1));
    assert_eq!(scorer("prefixMatchInfoProducerName: record"), (ScorerKind::PrefixAffinity, 1));
    let precise = "prefixMatchInfoProducerName: precise-prefix-cache-producer";
    assert_eq!(scorer(precise), (ScorerKind::PrecisePrefixCacheShare, 0));
    let unknown = refused("plugins: [{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: recrd}}]\n");
    assert!(unknown.starts_with("epp.yaml:3:81: no plugin is called `recrd`"), "{unknown}");
}

#[test]
fn pickers_that_read_no_scores() {
    let random = [(ScorerKind::Random, 1.0)];
    assert_eq!(scorers(&read("plugins: [{type: random-picker}, {type: queue-scorer}]\n").picker), random);
    assert_eq!(scorers(&read("plugins: [{type: max-score-picker}]\n").picker), random);
    let drawn = read("plugins: [{type: weighted-random-picker}, {type: queue-scorer}]\n");
    assert_eq!(scorers(&drawn.picker), [(ScorerKind::QueueDepth, 1.0)]);
    let expected = "epp.yaml:3:18: `weighted-random-picker` has no counterpart: it would draw an instance with a \
                    probability in proportion to its score";
    assert_eq!(texts(&drawn.left_out), [expected]);
}

/// A configuration with profiles for prefill and decode.
const APART: &str =
    "plugins: [{type: always-disagg-pd-decider}, {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}},
  {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}},
  {type: prefill-filter}, {type: decode-filter}, {type: queue-scorer}, {type: load-aware-scorer}]
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]}
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: load-aware-scorer, weight: 3}]}
";

#[test]
fn profiles_by_role_are_the_section_disaggregation() {
    let Imported { picker, left_out, differs, no_effect } = read(APART);
    assert_eq!(scorers(&picker), [(ScorerKind::LoadAware, 3.0)]);
    let apart = picker.disaggregation.clone().expect("it has a decider");
    let decider = apart.decider.expect("it has one");
    assert_eq!((decider.name(), decider.values().get("tokens")), ("prefix-threshold", 16.0));
    let prefill = apart.prefill.expect("it has a profile");
    assert_eq!(prefill.scorers, [WeightedScorer::built_in(ScorerKind::QueueDepth, 1.0)]);
    assert_eq!((apart.prefill_first, apart.encode), (false, None));
    assert_eq!(texts(&left_out), [""; 0]);
    assert_eq!(texts(&differs).len(), 1, "the decider reads the prefix caches: {:?}", texts(&differs));
    assert_eq!(no_effect, [("always-disagg-pd-decider".to_owned(), "no profile handler names it")]);
    insta::assert_snapshot!(picker.to_bundle(), @r"
    # What llm-d's endpoint picker decides, as `blis import llm-d` writes it.
    admission:
      policy: gaie-legacy
      gaie_qd_threshold: 5
      gaie_kv_threshold: 0.8
    routing:
      policy: weighted
      scorers:
        - {name: load-aware, weight: 3}
    disaggregation:
      policy: prefix-threshold
      parameters: {tokens: 16, prompt-tokens: 0}
      prefill:
        scorers:
          - {name: queue-depth, weight: 1}
    ");
    insta::assert_snapshot!(picker.to_config());
}

#[test]
fn handlers_without_a_decider_serve_requests_on_the_instances_that_decode() {
    let none = read(&APART.replace(", parameters: {deciders: {prefill: prefix-based-pd-decider}}", ""));
    assert_eq!(none.picker.disaggregation, None);
    assert_eq!(scorers(&none.picker), [(ScorerKind::LoadAware, 3.0)]);
    assert!(none.no_effect.contains(&("prefill".to_owned(), "no stage of the handler runs this profile")));
    let first = read(&APART.replace("deciders: {prefill: prefix-based-pd-decider}", "stageOrder: prefill-first"));
    let apart = first.picker.disaggregation.expect("prefill is first");
    assert!(apart.prefill_first && apart.decider.is_none() && apart.prefill.is_some());
}

#[test]
fn the_handler_of_earlier_versions_has_parameters_of_its_own() {
    let handler = |parameters: &str| {
        APART.replace(
            "disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}",
            &format!("pd-profile-handler, parameters: {{{parameters}}}"),
        )
    };
    let decider = |parameters: &str| {
        let apart = read(&handler(parameters)).picker.disaggregation.expect("it has a decider");
        let decider = apart.decider.expect("it has one");
        (decider.name().to_owned(), decider.parameters.first().map(|(_, value)| value.value))
    };
    assert_eq!(decider("primaryPort: 8000"), ("prefix-threshold".to_owned(), Some(16.0)), "its default");
    assert_eq!(decider("deciderPluginName: always-disagg-pd-decider"), ("always".to_owned(), None));
    assert_eq!(decider("threshold: 10, hashBlockSize: 5"), ("prefix-threshold".to_owned(), Some(10.0)));
    assert_eq!(decider("threshold: 0"), ("always".to_owned(), None));
    let renamed = read(&handler("decodeProfile: prefill, prefillProfile: decode"));
    assert_eq!(scorers(&renamed.picker), [(ScorerKind::QueueDepth, 1.0)]);
    let filters = texts(&renamed.left_out);
    assert_eq!(filters.len(), 2, "each profile has the filter of the other: {filters:?}");
    assert!(filters[0].ends_with("`prefill-filter` in profile `prefill` has no counterpart: it would keep the instances that compute prompts for others"), "{filters:?}");
}

/// Whether `message` is at the line of `expected`, and says what stands behind it.
fn shown(message: &str, expected: &str) -> bool {
    let line = expected.splitn(3, ':').take(2).collect::<Vec<_>>().join(":");
    let what = expected.splitn(3, ':').nth(2).unwrap_or_default();
    message.starts_with(&format!("{line}:")) && message.contains(what)
}

#[test]
fn mistakes_of_profile_handlers_are_shown_where_they_are() {
    let handler = "{deciders: {prefill: prefix-based-pd-decider}}";
    for (from, to, message) in [
        (handler, "{deciders: {prefil: x}}", "epp.yaml:4:`deciders` has no key `prefil`\n"),
        (handler, "{deciders: {prefill: x}}", "epp.yaml:4:no plugin is called `x`\n"),
        (handler, "{deciders: {prefill: queue-scorer}}", "epp.yaml:4:`queue-scorer` decides about no prefill\n"),
        (handler, "{deciders: {encode: queue-scorer}}", "epp.yaml:4:`queue-scorer` decides about no encoding\n"),
        (handler, "{deciders: [a]}", "epp.yaml:4:`deciders` is a list of 1\n"),
        (handler, "{profiles: {decode: 5}}", "epp.yaml:4:`decode` is 5\n"),
        (handler, "{profiles: {decode: generate}}", "epp.yaml:4:no profile is called `generate`\n"),
        (handler, "{stageOrder: encode-first}", "epp.yaml:4:`stageOrder` is `encode-first`\n"),
        (handler, "{threshold: -1}", "epp.yaml:4:`threshold` is -1\n"),
        (
            handler,
            "{stageOrder: prefill-first, deciders: {prefill: always-disagg-pd-decider}}",
            "epp.yaml:4:a decider of prefill cannot be used with `stageOrder: prefill-first`\n",
        ),
        ("{nonCachedTokens: 16}", "{nonCachedTokens: 1.5}", "epp.yaml:3:`nonCachedTokens` is 1.5\n"),
        ("{nonCachedTokens: 16}", "{nonCachedTokens: -1}", "epp.yaml:3:"),
        (
            "{type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}},",
            "",
            "epp.yaml:8:2 profiles, and no plugin that decides",
        ),
    ] {
        let refused = refused(&APART.replace(from, to));
        assert!(shown(&refused, message) && refused.contains("\nhint: "), "{to}: {refused}");
    }
}

#[test]
fn bundles_without_a_counterpart_of_disaggregation_are_refused() {
    for (section, start) in [
        ("policy: edpp", "bundle.yaml:2:disaggregation policy `edpp` has no counterpart in llm-d"),
        ("encode_decider: always", "bundle.yaml:2:`encode_decider: always` has no counterpart in llm-d"),
        (
            "prefill: {scorers: [{name: queue-depth, weight: 1}]}",
            "bundle.yaml:2:`prefill` has no counterpart without a policy",
        ),
        (
            "policy: always, prefill: {scorers: [{name: vllm-dp, weight: 1}]}",
            "bundle.yaml:2:scorer `vllm-dp` has no counterpart in llm-d",
        ),
        ("policy: always, prefill: {filters: [{name: mine.rhai}]}", "bundle.yaml:2:filter `mine.rhai` is not built in"),
    ] {
        let message =
            export(&format!("routing: {{policy: weighted}}\ndisaggregation: {{{section}}}\n")).expect_err(section);
        assert!(shown(&message, start) && message.contains("\nhint: "), "{section}: {message}");
    }
    let same = export("routing: {policy: epp-default}\ndisaggregation: {policy: always}\n").expect("it has one");
    let apart = same.disaggregation.expect("requests are prefilled elsewhere");
    assert_eq!(apart.prefill.as_ref(), Some(&same.profile), "both roles have the routing policy");
    let never = export("routing: {policy: epp-default}\ndisaggregation: {policy: never}\n").expect("it has one");
    assert_eq!(never.disaggregation, None);
}

#[test]
fn saturation_rejects_unless_flow_control_is_on() {
    let shedding = |body: &str| read(body).picker.shedding;
    assert_eq!(
        shedding("saturationDetector: {queueDepthThreshold: 7}\n"),
        Some(Saturation { queue_depth: 7.0, kv_utilization: 0.8 })
    );
    let detector = "plugins:
- {type: utilization-detector, name: mine, parameters: {queueDepthThreshold: 9, kvCacheUtilThreshold: 0.5}}
- {type: queue-scorer}
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
flowControl: {saturationDetector: {pluginRef: mine}}
";
    assert_eq!(shedding(detector), Some(Saturation { queue_depth: 9.0, kv_utilization: 0.5 }));
    assert_eq!(shedding(&format!("{detector}featureGates: [flowControl]\n")), None);
    assert_eq!(
        shedding(&format!("{detector}featureGates: [flowControl=false]\n")).map(|one| one.queue_depth),
        Some(9.0)
    );
    let both = "admission: {policy: gaie-legacy}\nrouting: {policy: epp-default}\ngateway: {}\n";
    assert!(export(both).unwrap_err().contains("beside `gateway` has no counterpart"));
}

#[test]
fn an_admitter_is_the_admission_policy_of_a_bundle() {
    let off = "{type: utilization-detector, parameters: {queueDepthThreshold: 999999999, kvCacheUtilThreshold: 1.0}}";
    let admitted = |plugins: &str| {
        let read = read(&format!("plugins: [{plugins}, {{type: queue-scorer}}]\n"));
        (read.picker.to_bundle(), texts(&read.left_out), texts(&read.differs).len())
    };
    let admitter = "{type: probabilistic-admitter, parameters: {k: 100, queueDepthThreshold: 8}}";
    let (bundle, left_out, _) = admitted(&format!("{admitter}, {off}"));
    let expected = "admission:\n  policy: probabilistic\n  \
                    parameters: {factor: 100, power: 5, queue-depth: 8, kv-utilization: 0.8}\n";
    assert!(bundle.contains(expected) && left_out.is_empty(), "{bundle} {left_out:?}");
    let (bundle, left_out, _) = admitted(admitter);
    assert!(
        bundle.contains(expected) && left_out[0].contains("it would reject requests of a negative"),
        "{left_out:?}"
    );
    let (bundle, left_out, differs) = admitted(&format!("{{type: latency-slo-admitter}}, {off}, {admitter}"));
    assert!(bundle.contains("admission:\n  policy: latency-slo\nrouting:"), "{bundle}");
    assert!(left_out[0].ends_with("`probabilistic` is left out beside `latency-slo`"), "{left_out:?}");
    assert_eq!(differs, 1);
    let wrong = refused("plugins: [{type: probabilistic-admitter, parameters: {power: 0}}]\n");
    assert!(wrong.starts_with("epp.yaml:3:62: parameter `power` of `probabilistic` is 0"), "{wrong}");
    let ours = "{admission: {policy: latency-slo, parameters: {ttft-ms: 500}}, routing: {policy: weighted}}";
    assert!(export(ours).unwrap_err().contains("`ttft-ms` of `latency-slo` has no counterpart in llm-d"));
}

#[test]
fn the_concurrency_detector_is_a_filter_as_well() {
    let detector =
        "{type: concurrency-detector, parameters: {maxConcurrency: 132, concurrencyMode: hybrid, headroom: 0.2}}";
    let read = read(&format!(
        "plugins: [{detector}, {{type: queue-scorer}}]
schedulingProfiles: [{{name: default, plugins: [{{pluginRef: concurrency-detector}}, {{pluginRef: queue-scorer}}]}}]
flowControl: {{saturationDetector: {{pluginRef: concurrency-detector}}}}
"
    ));
    assert_eq!(filters(&read.picker), ["concurrency:max-concurrency=132:headroom=0.2:mode=2"]);
    let left_out = texts(&read.left_out);
    assert!(
        left_out[0].contains("it would reject requests of a negative priority by what is in flight"),
        "{left_out:?}"
    );
    assert_eq!((left_out.len(), read.picker.shedding), (1, None));
}

#[test]
fn flow_control_is_the_gateway_of_a_bundle() {
    let gateway = |body: &str| {
        let read = read(&format!("featureGates: [flowControl]\n{body}"));
        (read.picker.gateway.expect("it is on"), texts(&read.left_out))
    };
    assert_eq!(gateway(""), (vec![], vec![]));
    let deprecated = gateway("saturationDetector: {queueDepthThreshold: 7}\n").0;
    assert_eq!(deprecated, [("queue-depth-threshold", "7".to_owned())]);
    for (parameters, hint) in [("{maxConcurrency: 0}", "above 0"), ("{concurrencyMode: token}", "tokens or hybrid")] {
        let body = format!(
            "featureGates: [flowControl]
plugins: [{{type: concurrency-detector, parameters: {parameters}}}, {{type: queue-scorer}}]
flowControl: {{saturationDetector: {{pluginRef: concurrency-detector}}}}
"
        );
        assert!(refused(&body).contains(hint), "{}", refused(&body));
    }
    let (settings, left_out) = gateway(
        "plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 132, concurrencyMode: hybrid, headroom: 0.2}}
- {type: priority-holdback-policy, parameters: {minCeiling: 0.6, maxCeiling: 0.9}}
- {type: round-robin-fairness-policy}
- {type: edf-ordering-policy}
- {type: queue-scorer}
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  usageLimitPolicyPluginRef: priority-holdback-policy
  defaultRequestTTL: 30s
  maxRequests: 10000
  maxBytes: 1Gi
  priorityBands: []
  defaultPriorityBand: {maxRequests: 200, maxBytes: 512Mi, fairnessPolicyRef: round-robin-fairness-policy, orderingPolicyRef: edf-ordering-policy}
",
    );
    let expected = [
        ("saturation-detector", "concurrency"),
        ("max-concurrency", "132"),
        ("concurrency-mode", "hybrid"),
        ("usage-limit-policy", "priority-holdback"),
        ("usage-limit-threshold", "0.6"),
        ("fairness-policy", "round-robin"),
        ("dispatch-order", "edf"),
        ("max-gateway-queue-depth", "10000"),
        ("request-ttl", "30s"),
        ("per-band-capacity", "200"),
        ("per-band-bytes", "536870912"),
    ];
    assert_eq!(settings, expected.map(|(flag, value)| (flag, value.to_owned())));
    let named = |what: &str| left_out.iter().any(|remark| remark.contains(what));
    assert!(named("`maxCeiling` has no counterpart"), "{left_out:?}");
    assert!(named("`maxBytes` has no counterpart: it would limit the bytes of all"), "{left_out:?}");
    assert!(named("`priorityBands` has no counterpart"), "{left_out:?}");
    assert_eq!(left_out.len(), 3, "{left_out:?}");
    for (gateway, named) in [
        ("fairness_policy: virtual-token-counter", "virtual-token-counter"),
        ("in_flight_eviction: true", "in_flight_eviction"),
        ("max_concurrency: 3", "max_concurrency"),
    ] {
        let message = export(&format!("routing: {{policy: epp-default}}\ngateway: {{{gateway}}}\n")).unwrap_err();
        assert!(message.contains(named) && message.contains("no counterpart in llm-d"), "{message}");
    }
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let cases = [
        ("pluginss: []\n", "epp.yaml:3:1: unknown key `pluginss`", "did you mean `plugins`?"),
        ("plugins: 5\n", "epp.yaml:3:10: ", "hint: "),
        ("dataLayer: 5\n", "epp.yaml:3:12: `dataLayer` is 5", "hint: it must have keys"),
        ("plugins: [queue-scorer]\n", "epp.yaml:3:11: ", "hint: "),
        ("plugins: [{name: a}]\n", "epp.yaml:3:11: plugin 1 has no `type`", "hint: add `type: …`"),
        ("plugins: [{type: queue-scorer}, {type: queue-scorer}]\n", "epp.yaml:3:40: two plugins are called", "hint: "),
        (
            "plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: a, plugins: [{pluginRef: queue-scorrer}]}]\n",
            "epp.yaml:4:54: no plugin is called `queue-scorrer`",
            "did you mean `queue-scorer`?",
        ),
        (
            "plugins: [{type: queue-scorer}]\n\
             schedulingProfiles: [{name: a, plugins: [{pluginRef: queue-scorer, weight: x}]}]\n",
            "epp.yaml:4:76: the weight of `queue-scorer` is `x`",
            "hint: it must be a number from 0 on",
        ),
        ("schedulingProfiles: [{plugins: []}]\n", "epp.yaml:3:22: profile 1 has no `name`", "hint: "),
        (
            "plugins: [{type: prefix-cache-affinity-filter, parameters: {affinityTreshold: 1}}]\n",
            "epp.yaml:3:61: `prefix-cache-affinity-filter` has no parameter `affinityTreshold`",
            "did you mean `affinityThreshold`?",
        ),
        (
            "plugins: [{type: prefix-cache-affinity-filter, parameters: {affinityThreshold: high}}]\n",
            "epp.yaml:3:80: `affinityThreshold` is `high`",
            "hint: it must be a number",
        ),
        (
            "plugins: [{type: prefix-cache-affinity-filter, parameters: {affinityThreshold: 1.5}}]\n",
            "epp.yaml:3:80: parameter `affinity` of `prefix-cache-affinity` is 1.5",
            "hint: it must be a number from 0 to 1",
        ),
        ("saturationDetector: {queueDepthThreshold: 0}\n", "epp.yaml:3:43: `queueDepthThreshold` is 0", "from 1"),
        ("saturationDetector: {pluginRef: mine}\n", "epp.yaml:3:33: no plugin is called `mine`", "no list `plugins`"),
    ];
    for (body, start, hint) in cases {
        let message = refused(body);
        assert!(message.starts_with(start), "{body}: {message}");
        assert!(message.contains(hint), "{body}: {message}");
    }
}

#[test]
fn other_files_are_refused() {
    let message = |text: &str| import("epp.yaml", text).expect_err("it is no configuration").to_string();
    assert!(message("").starts_with("epp.yaml:1:1: there is no configuration in it"));
    assert!(message("kind: ConfigMap\napiVersion: v1\n").starts_with("epp.yaml:1:7: the kind is `ConfigMap`"));
    assert!(message("kind: EndpointPickerConfig\n").starts_with("epp.yaml:1:1: `apiVersion` is missing"));
    let version = message("kind: EndpointPickerConfig\napiVersion: llm-d.ai/v1alpha9\n");
    assert!(version.starts_with("epp.yaml:2:13: unknown version `llm-d.ai/v1alpha9`"), "{version}");
    assert!(message("- a\n").starts_with("epp.yaml:1:1: "));
}

#[test]
fn what_is_unknown_or_not_simulated_is_named() {
    let read = read(
        "plugins:
- {type: queue-scorrer}
- {type: my-own-scorer, parameters: {a: [1, {b: c}]}}
- {type: load-aware-scorer, parameters: {threshold: 64}}
",
    );
    let left_out: Vec<String> = read.left_out.iter().map(ToString::to_string).collect();
    assert_eq!(
        left_out,
        [
            "epp.yaml:4:10: unknown plugin type `queue-scorrer`: it is left out\nhint: did you mean `queue-scorer`?",
            "epp.yaml:5:10: unknown plugin type `my-own-scorer`: it is left out",
            "epp.yaml:6:53: `threshold` is 64; it is simulated as 128",
        ]
    );
}

fn export(bundle: &str) -> Result<EndpointPicker, String> {
    let bundle = Bundle::parse("bundle.yaml", bundle).unwrap_or_else(|error| panic!("{error}"));
    EndpointPicker::of_bundle(&bundle).map_err(|error| error.to_string())
}

#[test]
fn bundles_that_llm_d_cannot_express_are_refused_by_name() {
    let cases = [
        ("{}", "routing policy `round-robin`, the default, has no counterpart in llm-d"),
        ("routing: {policy: my-script}", "bundle.yaml:1:19: routing policy `my-script` is not built in"),
        ("routing: {policy: least-loaded}", "bundle.yaml:1:19: routing policy `least-loaded` has no counterpart"),
        (
            "routing: {policy: weighted, scorers: [{name: vllm-dp, weight: 1}]}",
            "bundle.yaml:1:46: scorer `vllm-dp` has no counterpart in llm-d",
        ),
        ("{routing: {policy: weighted}, scheduler: sjf}", "bundle.yaml:1:42: scheduler `sjf` has no counterpart"),
        (
            "{routing: {policy: weighted}, tenant_budgets: {a: 0.5}}",
            "bundle.yaml:1:51: budgets of tenants have no counterpart",
        ),
        (
            "{routing: {policy: weighted}, admission: {slo_priorities: {a: 1}}}",
            "bundle.yaml:1:63: priorities of classes have no counterpart",
        ),
        (
            "{routing: {policy: weighted}, admission: {policy: reject-all}}",
            "bundle.yaml:1:51: admission policy `reject-all` has no counterpart",
        ),
        (
            "routing: {policy: weighted, filters: [{name: saturation, parameters: {queue-depth: 2.5}}]}",
            "bundle.yaml:1:46: `queue-depth` of filter `saturation` is 2.5",
        ),
    ];
    for (bundle, start) in cases {
        let message = export(bundle).expect_err(bundle);
        assert!(message.starts_with(start), "{bundle}: {message}");
        assert!(message.contains("\nhint: "), "{bundle}: {message}");
    }
}

#[test]
fn the_record_of_sent_prompts_has_a_capacity() {
    let blocks = |text: &str| read(text).picker.sent_blocks;
    let scorer = "plugins: [{type: prefix-cache-scorer}, ";
    assert_eq!(blocks(""), Some(31_250.0), "llm-d without a configuration has the scorer");
    assert_eq!(blocks("plugins: [{type: queue-scorer}]\n"), None);
    let producer = "{type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 500}}]\n";
    assert_eq!(blocks(&format!("{scorer}{producer}")), Some(500.0));
    assert_eq!(blocks("plugins: [{type: prefix-cache-scorer, parameters: {lruCapacityPerServer: 7}}]\n"), Some(7.0));
    let scorers = "scorers: [{name: prefix-affinity, weight: 1}]";
    let bundle = format!("routing: {{policy: weighted, parameters: {{prefix-capacity: 500}}, {scorers}}}");
    let config = export(&bundle).expect("it has a counterpart").to_config();
    assert!(config.contains("lruCapacityPerServer: 500"), "{config}");
    for wrong in ["0", "2.5", "many"] {
        let message = refused(&format!("{scorer}{}", producer.replace("500", wrong)));
        assert!(message.contains("`lruCapacityPerServer` is "), "{message}");
    }
    let rounded = export(&bundle.replace("500", "500.5")).expect("it is rounded down").to_config();
    assert_eq!(rounded, config);
}

#[test]
fn named_blends_are_exported_as_their_parts() {
    let token_aware =
        export("routing: {policy: token-aware, parameters: {affinity: 0.6}}").expect("it has a counterpart");
    assert_eq!(scorers(&token_aware), [(ScorerKind::TokenLoad, 1.0)]);
    assert_eq!(filters(&token_aware), ["prefix-cache-affinity:affinity=0.6"]);
    assert_eq!(token_aware.shedding, None);
    assert_eq!(scorers(&export("routing: {policy: epp-default}").expect("it has one")), scorers(&read("").picker));
}

prop_compose! {
    /// What llm-d can say.
    fn any_picker()(
        (profile, disaggregation) in any_profiles(),
        saturation in prop::option::of((1_u32.., 0.01..=1.0)),
        gateway in prop::option::of(any_gateway()),
        admitter in prop::option::of((any::<bool>(), 0.001..=1e6, 0.1..=20.0, 1_u32..=1000, 0.01..=1.0)),
        sent_blocks in prop::sample::select(vec![1.0, 10_000.0, 31_250.0, 1e9]),
    ) -> EndpointPicker {
        let shedding = saturation
            .map(|(queue_depth, kv_utilization)| Saturation { queue_depth: f64::from(queue_depth), kv_utilization });
        // With flow control, llm-d does not shed.
        let shedding = shedding.filter(|one| *one != Saturation::OFF && gateway.is_none());
        let admitter = admitter.map(|(probabilistic, factor, power, queue_depth, kv_utilization)| {
            let name = if probabilistic { "probabilistic" } else { "latency-slo" };
            let row = BuiltIn::find(Kind::Admission, name).expect("it is one of ours");
            let mut used = PolicyUse::built_in(row, SettingSource::Default);
            let values = [factor, power, f64::from(queue_depth), kv_utilization];
            for ((_, value), given) in used.parameters.iter_mut().zip(values).filter(|_| probabilistic) {
                value.value = given;
            }
            used
        });
        let shedding = shedding.filter(|_| admitter.is_none());
        let mut picker = EndpointPicker { shedding, admitter, gateway, profile, disaggregation, sent_blocks: None };
        let has_record = all_scorers(&picker).any(|scorer| scorer.kind() == Some(ScorerKind::PrefixAffinity));
        picker.sent_blocks = has_record.then_some(sent_blocks);
        picker
    }
}

/// The scorers of all profiles.
fn all_scorers(picker: &EndpointPicker) -> impl Iterator<Item = &WeightedScorer> {
    let further = picker.disaggregation.iter().flat_map(|apart| apart.prefill.iter().chain(&apart.encode));
    std::iter::once(&picker.profile).chain(further).flat_map(|profile| &profile.scorers)
}

prop_compose! {
    fn any_profile()(
        affinity in prop::option::of((0.0..=1.0, 1.0..=1e6, 0.0..=1e7)),
        guard in prop::option::of((1_u32..1_000_000_000, 0.01..=1.0, 0.0..=100.0)),
        limit in prop::option::of((1_u32..1_000_000_000, 1_u32.., 0.0..=100.0, 0_u32..3)),
        swapped in any::<bool>(),
        weights in prop::collection::vec(1e-9..1e9, ScorerKind::ALL.len()),
        chosen in prop::sample::subsequence(ScorerKind::ALL.to_vec(), 0..=ScorerKind::ALL.len()).prop_shuffle(),
    ) -> Profile {
        let filter = |name: &str, values: &[f64]| {
            let mut filter = BuiltInFilter::named(name).expect("it is one of ours");
            let names: Vec<String> = filter.parameters().map(|(parameter, _)| parameter.name).collect();
            for (name, value) in names.iter().zip(values) {
                filter.set(name, *value).expect("it is in its range");
            }
            filter
        };
        let affinity = affinity.map(|(a, b, c)| filter("prefix-cache-affinity", &[a, b, c]));
        let guard = guard.map(|(a, b, c)| filter("saturation", &[f64::from(a), b, c]));
        let limit = limit.map(|(a, b, c, mode)| {
            filter("concurrency", &[f64::from(a), f64::from(b), c, f64::from(mode)])
        });
        let mut filters: Vec<BuiltInFilter> = affinity.into_iter().chain(guard).chain(limit).collect();
        if swapped {
            filters.reverse();
        }
        let unknown = [ScorerKind::LoadBalance, ScorerKind::VllmDp, ScorerKind::Random];
        let scorers = chosen.into_iter().filter(|kind| !unknown.contains(kind)).zip(weights);
        let mut scorers: Vec<_> = scorers.map(|(kind, weight)| WeightedScorer::built_in(kind, weight)).collect();
        if scorers.is_empty() {
            scorers.push(WeightedScorer::built_in(ScorerKind::Random, 1.0));
        }
        Profile { filters, scorers }
    }
}

/// Profiles of instances by role, as a handler runs them.
fn any_profiles() -> impl Strategy<Value = (Profile, Option<RoleProfiles>)> {
    let decider = prop::option::of((any::<bool>(), 0_u32..1_000_000_000, 0_u32..1_000_000_000));
    let further = (any_profile(), any_profile(), any::<bool>());
    (any_profile(), decider, any::<bool>(), further).prop_map(
        |(profile, decider, first, (prefill, encode, encodes))| {
            let decider = decider.map(|(always, tokens, prompt_tokens)| {
                let name = if always { "always" } else { "prefix-threshold" };
                let row = BuiltIn::find(Kind::Disaggregation, name).expect("it is one of ours");
                let mut used = PolicyUse::built_in(row, SettingSource::Default);
                for ((_, value), given) in used.parameters.iter_mut().zip([tokens, prompt_tokens]) {
                    value.value = f64::from(given);
                }
                used
            });
            let prefill_first = first && decider.is_none();
            let prefills = decider.is_some() || prefill_first;
            let apart = RoleProfiles {
                decider,
                prefill_first,
                prefill: prefills.then_some(prefill),
                encode: encodes.then_some(encode),
            };
            (profile, Some(apart).filter(|apart| *apart != RoleProfiles::default()))
        },
    )
}

/// Settings of flow control in the order in which import writes them, without defaults.
fn any_gateway() -> impl Strategy<Value = GatewaySettings> {
    let detector = prop_oneof![
        Just(vec![]),
        Just(vec![("saturation-detector", "never".to_owned())]),
        (6_u32..1000, 0.01_f64..0.79).prop_map(|(depth, share)| {
            vec![("queue-depth-threshold", depth.to_string()), ("kv-cache-util-threshold", share.to_string())]
        }),
        (1_u32..100, prop::sample::select(vec!["tokens", "hybrid"]), 1_u32..1_000_000).prop_map(
            |(most, mode, tokens)| {
                vec![
                    ("saturation-detector", "concurrency".to_owned()),
                    ("max-concurrency", most.min(99).to_string()),
                    ("concurrency-mode", mode.to_owned()),
                    ("max-token-concurrency", tokens.min(999_999).to_string()),
                ]
            }
        ),
    ];
    let limit = prop_oneof![
        Just(vec![]),
        (0.01_f64..0.99).prop_map(|share| vec![("usage-limit-threshold", share.to_string())]),
        (0.01_f64..0.99).prop_map(|share| {
            vec![("usage-limit-policy", "priority-holdback".to_owned()), ("usage-limit-threshold", share.to_string())]
        }),
        Just(vec![("usage-limit-policy", "soft-reflective".to_owned())]),
    ];
    let fairness = prop::option::of(prop::sample::select(vec!["round-robin", "program-aware"]));
    let order = prop::option::of(prop::sample::select(vec!["edf", "slo-deadline"]));
    let sizes = (
        prop::option::of(0_u32..),
        prop::option::of(prop::sample::select(vec!["30s", "2m", "500ms"])),
        prop::option::of(0_u32..),
    );
    (detector, limit, fairness, order, sizes).prop_map(|(detector, limit, fairness, order, (most, ttl, band))| {
        let mut settings: GatewaySettings = detector;
        settings.extend(limit);
        settings.extend(fairness.map(|name| ("fairness-policy", name.to_owned())));
        settings.extend(order.map(|name| ("dispatch-order", name.to_owned())));
        settings.extend(most.map(|most| ("max-gateway-queue-depth", most.to_string())));
        settings.extend(ttl.map(|ttl| ("request-ttl", ttl.to_owned())));
        settings.extend(band.map(|band| ("per-band-capacity", band.to_string())));
        settings
    })
}

proptest! {
    #[test]
    fn export_and_import_give_the_same_bundle(picker in any_picker()) {
        let bundle = picker.to_bundle();
        let read = export(&bundle).map_err(TestCaseError::fail)?;
        prop_assert_eq!(&read, &picker);
        let config = read.to_config();
        let Imported { picker: again, left_out, differs, .. } =
            import("epp.yaml", &config).map_err(|error| TestCaseError::fail(format!("{error}\n{config}")))?;
        prop_assert_eq!(texts(&left_out), Vec::<String>::new());
        let different = [ScorerKind::PrefixAffinity, ScorerKind::SessionAffinity, ScorerKind::PredictedLatency];
        let mut kinds: Vec<_> = all_scorers(&picker).filter_map(WeightedScorer::kind).collect();
        kinds.retain(|kind| different.contains(kind));
        kinds.sort_unstable_by_key(|kind| kind.name());
        kinds.dedup();
        let predicts = picker.admitter.as_ref().is_some_and(|admitter| admitter.name() == "latency-slo");
        prop_assert_eq!(differs.len(), kinds.len() + usize::from(predicts), "{:?}", texts(&differs));
        prop_assert_eq!(again.to_bundle(), bundle);
    }

    /// No text makes the reader panic.
    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec(any_line(), 0..12)) {
        if let Err(error) = import("epp.yaml", &format!("{HEADER}{}", lines.concat())) {
            prop_assert!(error.to_string().contains("\nhint: "), "{}", error);
        }
    }
}

fn any_line() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "plugins:",
        "- type: queue-scorer",
        "- type: prefix-cache-scorer",
        "  parameters:",
        "    lruSize: ",
        "  name: ",
        "schedulingProfiles:",
        "- name: default",
        "  plugins:",
        "  - pluginRef: queue-scorer",
        "    weight: ",
        "- ",
        "flowControl: ",
        "  saturationDetector:",
        "    pluginRef: ",
        "featureGates: ",
        "- type: utilization-detector",
        "    queueDepthThreshold: ",
    ]);
    let value =
        prop::sample::select(vec!["", "", "", "1", "-1", "x", "[]", "{}", "null", "1e400", "[a, b]", "{a: 1}", "'"]);
    (key, value).prop_map(|(key, value)| format!("{key}{value}\n"))
}
