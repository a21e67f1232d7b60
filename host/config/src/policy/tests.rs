//! The meaning of bundles, messages about mistakes, and that explained settings can be read as a bundle.

use proptest::prelude::*;
use std::fmt;

use super::*;
use blis_diag::YamlPage;
use blis_sim::instance::{Preemption, Scheduler};

fn parse(text: &str) -> Result<PolicySettings, PolicyError> {
    let bundle = Bundle::parse("policy.yaml", text)?;
    PolicySettings::choose(&Choices::default(), Some(&bundle), &NoPlugins)
}

fn settings(text: &str) -> PolicySettings {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn usual<T>(value: T) -> Sourced<T> {
    Sourced::default_value(value)
}

fn flag<T>(value: T) -> Option<Sourced<T>> {
    Some(Sourced::flag("--some-flag", value))
}

const WHOLE: &str = "\
admission:
  policy: token-bucket
  token_bucket_capacity: 5e4
  token_bucket_refill_rate: '250.5'
  slo_priorities: {gold: 7, batch: -100}
routing:
  policy: weighted
  scorers:
  - name: queue-depth
    weight: 2
  - {name: lora-affinity, weight: .5}
priority: {policy: slo-based}
scheduler: sjf
preemption: {policy: priority}
tenant_budgets:
  '10': 0
  t0: 1
";

/// The policy for `kind`, and its parameters with values other than 0, without the one of `weighted` that is no weight.
fn policy(settings: &PolicySettings, kind: Kind) -> (&str, Vec<(&str, f64)>) {
    let used = settings.used(kind).expect("a policy");
    let parameters = used.parameters.iter().filter(|(name, value)| name != PREFIX_CAPACITY && **value != 0.0);
    (&used.loaded.name, parameters.map(|(name, value)| (name.as_str(), value.value)).collect())
}

fn routing_of(text: &str) -> Vec<(String, f64)> {
    let settings = settings(text);
    policy(&settings, Kind::Routing).1.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn weights(pairs: &[(&str, f64)]) -> Vec<(String, f64)> {
    pairs.iter().map(|&(name, weight)| (name.to_owned(), weight)).collect()
}

/// Flags that name policies.
fn named(names: &[(Kind, &str)]) -> Choices {
    names.iter().fold(Choices::default(), |choices, &(kind, name)| {
        choices.with(kind, Sourced::flag("--some-flag", name.to_owned()))
    })
}

/// Flags that set parameters by BLIS's keys.
fn keyed(mut choices: Choices, keys: &[(&'static str, f64)]) -> Choices {
    keys.iter().for_each(|&(key, value)| choices.set(key, flag(value)));
    choices
}

/// Flags that set parameters by their names.
fn set(mut choices: Choices, kind: Kind, values: &[(&str, f64)]) -> Choices {
    choices.parameters.extend(values.iter().map(|&(name, value)| ParameterSetting {
        kind,
        name: name.to_owned(),
        value: Sourced::flag("--policy-param", ParameterInput::Number(value)),
        key: None,
    }));
    choices
}

#[test]
fn every_key_arrives() {
    let whole = settings(WHOLE);
    let bucket = ("token-bucket", vec![("capacity", 50_000.0), ("refill-rate", 250.5)]);
    assert_eq!(policy(&whole, Kind::Admission), bucket);
    assert_eq!(policy(&whole, Kind::Routing), ("weighted", vec![("queue-depth", 2.0), ("lora-affinity", 0.5)]));
    let rest = [Kind::Priority, Kind::Scheduling, Kind::Preemption].map(|kind| whole.name(kind));
    assert_eq!(rest, ["slo-based", "sjf", "priority"]);
    assert_eq!((whole.scheduler(), whole.preemption()), (Scheduler::Sjf, Preemption::Priority));
    assert_eq!(whole.slo_priorities, [("gold".into(), usual(7)), ("batch".into(), usual(-100))]);
    assert_eq!(whole.tenant_budgets, [("10".into(), usual(0.0)), ("t0".into(), usual(1.0))]);
    let tier = settings("admission: {policy: tier-shed, tier_shed_threshold: 12, tier_shed_min_priority: -2}");
    assert_eq!(policy(&tier, Kind::Admission), ("tier-shed", vec![("threshold", 12.0), ("min-priority", -2.0)]));
    let gaie = settings("admission: {policy: gaie-legacy, gaie_qd_threshold: 2.5, gaie_kv_threshold: 1}");
    assert_eq!(policy(&gaie, Kind::Admission), ("gaie-legacy", vec![("queue-depth", 2.5), ("kv-utilization", 1.0)]));
    let pair = settings("routing: {policy: weighted, cache_weight: 0.6}");
    assert_eq!(policy(&pair, Kind::Routing), ("cache-and-load", vec![("cache-weight", 0.6)]));
    assert_eq!(pair.name(Kind::Routing), "weighted", "as BLIS calls it");
}

#[test]
fn what_is_left_out_is_the_default() {
    let usual = PolicySettings::default();
    let names = Kind::ALL.map(|kind| usual.name(kind));
    assert_eq!(
        names,
        ["always-admit", "round-robin", "", "class", "fcfs", "fcfs", "", "", "", "", "", "", "", "", "", "", "", ""]
    );
    for text in ["{}", "admission:\nrouting: {}\n", "routing: {policy: ''}\nscheduler: ~\ntenant_budgets: {}\n"] {
        assert_eq!(settings(text), usual, "{text}");
    }
    let scorers = WeightedScorer::DEFAULT.map(|scorer| (scorer.name.name().to_owned(), scorer.weight));
    assert_eq!(routing_of("routing: {policy: weighted}"), scorers);
    let bucket = settings("admission: {policy: token-bucket}");
    assert_eq!(policy(&bucket, Kind::Admission).1, [("capacity", 10_000.0), ("refill-rate", 1_000.0)]);
    let gaie = settings("admission: {policy: gaie-legacy}");
    assert_eq!(policy(&gaie, Kind::Admission).1, [("queue-depth", 5.0), ("kv-utilization", 0.8)]);
}

/// BLIS's rule: 3 in a bundle that names the policy, 0 if only the flag does.
#[test]
fn tier_shed_has_two_defaults() {
    let least = |flags: &Choices, bundle: &str| {
        let bundle = Bundle::parse("policy.yaml", bundle).expect("legal");
        let settings = PolicySettings::choose(flags, Some(&bundle), &NoPlugins).expect("legal");
        let used = settings.used(Kind::Admission).expect("a policy");
        used.parameters.iter().find(|(name, _)| name == "min-priority").map(|(_, value)| value.value)
    };
    let by_flag = named(&[(Kind::Admission, "tier-shed")]);
    assert_eq!(least(&Choices::default(), "admission: {policy: tier-shed}"), Some(3.0));
    assert_eq!(least(&by_flag, "{}"), Some(0.0));
    assert_eq!(least(&by_flag, "admission: {policy: tier-shed}"), Some(3.0));
    let alone = least(&by_flag, "admission: {tier_shed_min_priority: 4}");
    assert_eq!(alone, Some(4.0), "the bundle may hold the parameters alone");
}

#[test]
fn flags_win_over_the_bundle() {
    let bundle = Bundle::parse("policy.yaml", WHOLE).expect("legal");
    let names = [(Kind::Routing, "least-loaded"), (Kind::Priority, "constant"), (Kind::Scheduling, "fcfs")];
    let flags = keyed(named(&names), &[("token_bucket_capacity", 7.0)]);
    let both = PolicySettings::choose(&flags, Some(&bundle), &NoPlugins).expect("legal");
    assert_eq!(policy(&both, Kind::Admission).1, [("capacity", 7.0), ("refill-rate", 250.5)]);
    let routing = policy(&both, Kind::Routing);
    assert_eq!(routing, ("least-loaded", vec![]), "the bundle's scorers go with its policy");
    assert_eq!((both.name(Kind::Priority), both.name(Kind::Scheduling)), ("constant", "fcfs"));
    assert_eq!(both.name(Kind::Preemption), "priority", "the bundle's, no flag was given");
    let source = |kind| both.used(kind).map(|used| used.source.to_string());
    assert_eq!(source(Kind::Scheduling).as_deref(), Some("flag --some-flag"));
    assert_eq!(source(Kind::Preemption).as_deref(), Some("policy.yaml:14:22"));
}

#[test]
fn a_pair_of_weights_may_come_from_both() {
    let bundle = Bundle::parse("policy.yaml", "routing: {policy: weighted, load_weight: 0.4}").expect("legal");
    let flags = keyed(Choices::default(), &[("cache_weight", 0.6)]);
    let both = PolicySettings::choose(&flags, Some(&bundle), &NoPlugins).expect("legal");
    assert_eq!(policy(&both, Kind::Routing), ("cache-and-load", vec![("cache-weight", 0.6), ("load-weight", 0.4)]));
    let scorers = vec![Sourced::flag("--routing-scorers", WeightedScorer::DEFAULT[0].clone())];
    let flags = Choices { scorers: Some(scorers), ..Choices::default() };
    let both = PolicySettings::choose(&flags, Some(&bundle), &NoPlugins).expect("the flag replaces the pair");
    assert_eq!(policy(&both, Kind::Routing), ("weighted", vec![("precise-prefix-cache", 2.0)]));
}

#[test]
fn the_record_of_prefix_affinity_has_a_capacity() {
    let capacity = |text: &str| {
        let settings = settings(text);
        let used = settings.used(Kind::Routing).expect("a policy").parameters.clone();
        used.into_iter().find(|(name, _)| name == PREFIX_CAPACITY).map(|(_, value)| value.value)
    };
    let scorers = "scorers: [{name: prefix-affinity, weight: 1}]";
    assert_eq!(capacity(&format!("routing: {{policy: weighted, {scorers}}}")), Some(10_000.0));
    assert_eq!(
        capacity(&format!("routing: {{policy: weighted, parameters: {{prefix-capacity: 7}}, {scorers}}}")),
        Some(7.0)
    );
    assert_eq!(capacity("routing: {policy: epp-default, parameters: {prefix-capacity: 9.5}}"), Some(9.0));
    assert_eq!(capacity("routing: {policy: least-loaded}"), None);
}

#[test]
fn weights_are_set_one_by_one() {
    let chosen = |flags: Choices, text: &str| {
        let bundle = Bundle::parse("policy.yaml", text).expect("legal");
        let settings = PolicySettings::choose(&flags, Some(&bundle), &NoPlugins).expect("legal");
        weights(&policy(&settings, Kind::Routing).1)
    };
    let weighted = || named(&[(Kind::Routing, "weighted")]);
    let two = set(weighted(), Kind::Routing, &[("queue-depth", 2.0)]);
    let usual = [("precise-prefix-cache", 2.0), ("queue-depth", 2.0), ("kv-utilization", 1.0)];
    assert_eq!(chosen(two.clone(), "{}"), weights(&usual), "the usual scorers, one of them with another weight");
    let added = set(weighted(), Kind::Routing, &[("load-aware", 3.0), ("queue-depth", 0.0)]);
    let rest = [("precise-prefix-cache", 2.0), ("kv-utilization", 1.0), ("load-aware", 3.0)];
    assert_eq!(chosen(added, "{}"), weights(&rest), "one more, one less");
    let list = "routing: {policy: weighted, scorers: [{name: vllm-dp, weight: 1}], parameters: {queue-depth: 4}}";
    assert_eq!(chosen(Choices::default(), list), weights(&[("vllm-dp", 1.0), ("queue-depth", 4.0)]));
    assert_eq!(chosen(two, list), weights(&[("vllm-dp", 1.0), ("queue-depth", 2.0)]), "the flag wins");
    let scorers = Some(vec![Sourced::flag("--routing-scorers", WeightedScorer::DEFAULT[1].clone())]);
    let listed = Choices { scorers, ..weighted() };
    assert_eq!(chosen(listed, list), weights(&[("queue-depth", 1.0)]), "a list replaces all");
}

#[test]
fn filters_are_read_replaced_and_written() {
    let text = "routing: {policy: weighted, filters: [{name: saturation, parameters: {headroom: 0.5}}, {name: prefix-cache-affinity}]}";
    let bundle = Bundle::parse("policy.yaml", text).expect("legal");
    let settings = |flags: &Choices| PolicySettings::choose(flags, Some(&bundle), &NoPlugins).expect("legal");
    let filters = |settings: &PolicySettings| -> Vec<String> {
        settings
            .used(Kind::Routing)
            .expect("there is one")
            .filters
            .iter()
            .map(|filter| filter.value.to_string())
            .collect()
    };
    let listed = settings(&Choices::default());
    assert_eq!(filters(&listed), ["saturation:headroom=0.5", "prefix-cache-affinity"]);
    let flag = Sourced::flag("--routing-filters", FilterSetting::named("prefix-cache-affinity").expect("known"));
    let replaced = settings(&Choices { filters: Some(vec![flag]), ..Choices::default() });
    assert_eq!(filters(&replaced), ["prefix-cache-affinity"]);
    for settings in [listed, replaced] {
        let written = Bundle::parse("again.yaml", &explained_page(&settings)).expect("what is written can be read");
        let again = PolicySettings::choose(&Choices::default(), Some(&written), &NoPlugins).expect("legal");
        assert_eq!(filters(&again), filters(&settings));
    }
}

#[test]
fn parameters_without_a_key_of_blis_are_written() {
    let flags = set(named(&[(Kind::Routing, "token-aware")]), Kind::Routing, &[("affinity", 0.25)]);
    let settings = PolicySettings::choose(&flags, None, &NoPlugins).expect("legal");
    let written = Bundle::parse("again.yaml", &explained_page(&settings)).expect("what is written can be read");
    let again = PolicySettings::choose(&Choices::default(), Some(&written), &NoPlugins).expect("legal");
    assert_eq!(policy(&again, Kind::Routing), policy(&settings, Kind::Routing));
}

#[test]
fn a_parameter_wins_over_the_key_beside_it() {
    let bucket = named(&[(Kind::Admission, "token-bucket")]);
    let flags = set(keyed(bucket, &[("token_bucket_capacity", 5.0)]), Kind::Admission, &[("capacity", 6.0)]);
    let settings = PolicySettings::choose(&flags, None, &NoPlugins).expect("legal");
    assert_eq!(policy(&settings, Kind::Admission).1, [("capacity", 6.0), ("refill-rate", 1_000.0)]);
    let shed =
        set(named(&[(Kind::Admission, "tier-shed")]), Kind::Admission, &[("threshold", 2.5), ("min-priority", 2.5)]);
    let settings = PolicySettings::choose(&shed, None, &NoPlugins).expect("legal");
    let whole = [("threshold", 2.0), ("min-priority", 3.0)];
    assert_eq!(policy(&settings, Kind::Admission).1, whole, "the whole numbers that mean the same");
}

#[test]
fn parameters_that_a_built_in_does_not_have_are_refused() {
    let message = |name: &str, (parameter, value): (&str, f64)| {
        let flags = set(named(&[(Kind::Routing, name)]), Kind::Routing, &[(parameter, value)]);
        PolicySettings::choose(&flags, None, &NoPlugins).expect_err("a contradiction").to_string()
    };
    let all = [
        message("round-robin", ("queue-depth", 2.0)),
        message("weighted", ("queue-dpth", 2.0)),
        message("weighted", ("queue-depth", 11.0)),
        message("cache-and-load", ("queue-depth", 1.0)),
    ];
    insta::assert_snapshot!(all.join("\n"), @r"
    `round-robin` has no parameter `queue-depth`
    hint: it has no parameters
    `weighted` has no parameter `queue-dpth`
    hint: did you mean `queue-depth`?
    parameter `queue-depth` of `weighted` is 11
    hint: it must be a number from 0 to 10
    `cache-and-load` has no parameter `queue-depth`
    hint: known are cache-weight, load-weight
    ");
    let zero = ["precise-prefix-cache", "queue-depth", "kv-utilization"].map(|name| (name, 0.0));
    let flags = set(named(&[(Kind::Routing, "weighted")]), Kind::Routing, &zero);
    insta::assert_snapshot!(PolicySettings::choose(&flags, None, &NoPlugins).expect_err("nothing is left"), @r"
    every scorer of `weighted` has the weight 0
    hint: raise one of them
    ");
}

#[test]
fn nonsense_is_shown_and_explained() {
    let long = format!("tenant_budgets: {{? {} : 1}}\n", "x".repeat(300));
    let bundles = [
        "",
        "# nothing\n",
        "- admission\n",
        "weighted\n",
        "admision: {policy: reject-all}\n",
        "admission:\n  polcy: reject-all\n",
        "admission:\n  policy: tiershed\n",
        "admission: {policy: [tier-shed]}\n",
        "admission: {policy: token-bucket, token_bucket_capacity: 0}\n",
        "admission: {policy: token-bucket, token_bucket_refill_rate: .inf}\n",
        "admission: {policy: tier-shed, tier_shed_threshold: -1}\n",
        "admission: {policy: tier-shed, tier_shed_min_priority: 2.5}\n",
        "admission: {policy: gaie-legacy, gaie_qd_threshold: .nan}\n",
        "admission: {policy: gaie-legacy, gaie_kv_threshold: 1.01}\n",
        "admission:\n  slo_priorities:\n    gold: 101\n",
        "admission:\n  slo_priorities: [gold]\n",
        "admission:\n  slo_targets: {gold: 5}\n",
        "admission: {token_bucket_capacity: 5}\n",
        "admission: {policy: reject-all, gaie_qd_threshold: 5}\n",
        "routing:\n  policy: wieghted\n",
        "routing: {policy: weighted, scorers: []}\n",
        "routing: {policy: weighted, scorers: {queue-depth: 1}}\n",
        "routing:\n  policy: weighted\n  scorers:\n  - {name: queue-depth, weight: 1}\n  - {name: queue-dpth, weight: 1}\n",
        "routing: {policy: weighted, scorers: [{name: queue-depth}]}\n",
        "routing: {policy: weighted, scorers: [{name: queue-depth, weight: 1}, {name: load-aware, weight: 0}]}\n",
        "routing: {policy: weighted, scorers: [{name: queue-depth, weight: .nan}]}\n",
        "routing: {policy: weighted, scorers: [{name: queue-depth, weight: heavy}]}\n",
        "routing: {policy: weighted, scorers: [{name: vllm-dp, weight: 1}, {name: vllm-dp, weight: 2}]}\n",
        "routing: {policy: weighted, scorers: [{name: vllm-dp, weight: 1e308}, {name: load-aware, weight: 1e308}]}\n",
        "routing: {policy: least-loaded, scorers: [{name: vllm-dp, weight: 1}]}\n",
        "routing: {policy: weighted, cache_weight: 1, scorers: [{name: vllm-dp, weight: 1}]}\n",
        "routing: {policy: weighted, cache_weight: 0, load_weight: 0}\n",
        "routing: {policy: weighted, cache_weight: -1}\n",
        "routing: {cache_weight: 1}\n",
        "routing: {policy: weighted, filters: [{name: saturatoin}]}\n",
        "routing: {policy: weighted, filters: [{name: saturation, parameters: {queue-dept: 1}}]}\n",
        "routing: {policy: weighted, filters: [{name: saturation, parameters: {headroom: -1}}]}\n",
        "routing: {policy: weighted, filters: [{name: saturation}, {name: saturation}]}\n",
        "routing: {policy: least-loaded, filters: [{name: saturation}]}\n",
        "routing: {policy: weighted, filters: [{name: saturation}], load_weight: 1}\n",
        "priority: {policy: slo}\n",
        "scheduler: {policy: fcfs}\n",
        "scheduler: lifo\n",
        "preemption: {policy: fcsf}\n",
        "tenant_budgets: {t0: 1.5}\n",
        "tenant_budgets: {t0: }\n",
        "tenant_budgets: 0.5\n",
        &long,
        "node_pools:\n- name: a\n",
        "autoscaler: {interval_us: 5}\n",
        "instance_lifecycle: {}\n",
        "scheduler: fcfs\nscheduler: sjf\n",
        "scheduler: *sjf\n",
        "admission: {policy: \"\u{7}\"}\n",
        "routing: {policy: weighted\n",
        "scheduler: fcfs\n---\nscheduler: sjf\n",
        "scheduler: |\n  fcfs\n  sjf\n",
    ];
    let message = bundles.map(|text| match parse(text) {
        Ok(settings) => panic!("`{text}` was accepted: {settings:?}"),
        Err(error) => format!("{error}\n"),
    });
    insta::assert_snapshot!(message.join("\n"));
}

#[test]
fn contradicting_flags_are_explained() {
    let message =
        |flags: Choices| PolicySettings::choose(&flags, None, &NoPlugins).expect_err("a contradiction").to_string();
    insta::assert_snapshot!(message(keyed(Choices::default(), &[("token_bucket_capacity", 1.0)])), @r"
    `--some-flag` only makes sense with the admission policy `token-bucket`, not `always-admit`
    hint: leave it out, or choose `token-bucket`
    ");
    insta::assert_snapshot!(message(keyed(Choices::default(), &[("cache_weight", 1.0)])), @r"
    `--some-flag` only makes sense with the routing policy `weighted`, not `round-robin`
    hint: leave it out, or choose `weighted`
    ");
    let weighted = named(&[(Kind::Routing, "weighted")]);
    insta::assert_snapshot!(message(keyed(weighted, &[("load_weight", 0.0)])), @r"
    the cache weight and the load weight are both 0
    hint: raise one of them
    ");
}

#[test]
fn aliases_and_merges_are_yaml() {
    let text = "admission: {policy: &name tier-shed, tier_shed_threshold: &number 3}\n\
                tenant_budgets: {a: &one 1, b: *one}\nrouting:\n  <<: {policy: weighted}\n  cache_weight: *number\n";
    let plain = "admission: {policy: tier-shed, tier_shed_threshold: 3}\ntenant_budgets: {a: 1, b: 1}\n\
                 routing: {policy: weighted, cache_weight: 3}\n";
    assert_eq!(settings(text), settings(plain));
}

#[test]
fn no_trick_of_yaml_stops_the_reader() {
    let ten = |name: &str| vec![format!("*{name}"); 10].join(", ");
    let bomb = |start: &str| {
        let mut text = format!("{start}[&a [x, x, x, x, x, x, x, x, x, x]");
        for pair in "abcdefghi".as_bytes().windows(2) {
            let (from, to) = (char::from(pair[0]), char::from(pair[1]));
            text.push_str(&format!(", &{to} [{}]", ten(&from.to_string())));
        }
        text + "]\n"
    };
    let deep = |open: &str| format!("tenant_budgets: {}", open.repeat(100_000));
    let many: String = (0..20_000).map(|i| format!("  t{i}: 0.5\n")).collect();
    let refused = [
        bomb("tenant_budgets: "),
        bomb("routing: {policy: weighted, scorers: "),
        bomb("scheduler: "),
        bomb("? "),
        deep("["),
        deep("{"),
        deep("? "),
        deep("- "),
        deep("{a: "),
        "a: &a [*a]".to_owned(),
        "tenant_budgets: &a {b: *a}".to_owned(),
        "tenant_budgets: {<<: [{a: 2}, {b: 1}]}".to_owned(),
        "\u{feff}\u{feff}".to_owned(),
        "%YAML 9.9\n---\nx".to_owned(),
        "!!python/object:os.system {}\n---\n".to_owned(),
        "\0".to_owned(),
        "'".repeat(100_001),
        "&".repeat(100_000),
    ];
    for text in refused {
        let start: String = text.chars().take(50).collect();
        let message = parse(&text).map_or_else(|error| error.to_string(), |settings| panic!("{start}: {settings:?}"));
        assert!(message.starts_with("policy.yaml:") && message.contains("\nhint: "), "{start}: {message}");
        assert!(message.len() < 2_000, "{start}: {} bytes", message.len());
    }
    assert_eq!(settings(&format!("tenant_budgets:\n{many}")).tenant_budgets.len(), 20_000);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = std::env::temp_dir().join(format!("blis-bundle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("scratch");
    let path = folder.join("policy.yaml");
    let load = || Bundle::load(&path).expect_err("unreadable").to_string();
    let message = load();
    assert!(message.ends_with("does not exist\nhint: check the path and the current folder"), "{message}");
    std::fs::write(&path, [0xff, 0xfe]).expect("scratch");
    assert!(load().ends_with("is not text (UTF-8)\nhint: is this the right file?"));
    std::fs::write(&path, " ".repeat(2 << 20)).expect("scratch");
    assert!(load().ends_with("is longer than 1 MiB\nhint: is this the right file?"));
    std::fs::write(&path, WHOLE).expect("scratch");
    assert_eq!(Bundle::load(&path).expect("legal").choices(), Bundle::parse("", WHOLE).expect("legal").choices());
    std::fs::remove_dir_all(&folder).expect("scratch");
}

#[test]
fn explained() {
    let page = explained_page(&settings(WHOLE));
    insta::assert_snapshot!(page, @r#"
    admission:
      policy: token-bucket  # policy.yaml:2:11
      token_bucket_capacity: 50000  # policy.yaml:3:26
      token_bucket_refill_rate: 250.5  # policy.yaml:4:29
      slo_priorities:
        gold: 7  # policy.yaml:5:26
        batch: -100  # policy.yaml:5:36
    routing:
      policy: weighted  # policy.yaml:7:11
      scorers:
        - {name: queue-depth, weight: 2}  # policy.yaml:9:11
        - {name: lora-affinity, weight: 0.5}  # policy.yaml:11:12
    priority:
      policy: slo-based  # policy.yaml:12:20
    scheduler: sjf  # policy.yaml:13:12
    preemption:
      policy: priority  # policy.yaml:14:22
    tenant_budgets:
      "10": 0  # policy.yaml:16:9
      t0: 1  # policy.yaml:17:7
    "#);
}

fn explained_page(settings: &PolicySettings) -> String {
    let mut page = YamlPage::default();
    settings.explain(&mut page);
    page.to_string()
}

fn source() -> impl Strategy<Value = SettingSource> {
    prop_oneof![
        Just(SettingSource::Default),
        Just(SettingSource::Flag("--routing-policy".into())),
        any::<String>().prop_map(|words| SettingSource::Other(words.into())),
        (any::<String>(), any::<u64>())
            .prop_map(|(file, line)| SettingSource::File(blis_diag::Location::file(file).characters(line, 3, 1))),
    ]
}

fn sourced<T: fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Sourced<T>> {
    (value, source()).prop_map(|(value, source)| Sourced { value, source })
}

/// Any number above 0, also very small and very large ones.
fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![1e-3..1e3, proptest::num::f64::POSITIVE].prop_filter("far from infinity", |number| *number < 1e300)
}

/// Keys and values of an admission policy.
fn admission() -> impl Strategy<Value = (&'static str, Vec<(&'static str, Sourced<f64>)>)> {
    let loads = sourced((0..=u32::MAX).prop_map(f64::from));
    prop_oneof![
        Just(("always-admit", vec![])),
        Just(("reject-all", vec![])),
        (sourced(positive()), sourced(positive())).prop_map(|(capacity, rate)| {
            ("token-bucket", vec![("token_bucket_capacity", capacity), ("token_bucket_refill_rate", rate)])
        }),
        (loads, sourced(any::<i32>().prop_map(f64::from))).prop_map(|(threshold, least)| {
            ("tier-shed", vec![("tier_shed_threshold", threshold), ("tier_shed_min_priority", least)])
        }),
        (sourced(positive()), sourced(1e-9..=1.0))
            .prop_map(|(queue, kv)| ("gaie-legacy", vec![("gaie_qd_threshold", queue), ("gaie_kv_threshold", kv)])),
    ]
}

/// A routing policy, keys and values, scorers.
type RoutingCase = (&'static str, Vec<(&'static str, Sourced<f64>)>, Option<Vec<Sourced<WeightedScorer>>>);

fn routing() -> impl Strategy<Value = RoutingCase> {
    let scorers = proptest::sample::subsequence(ScorerKind::ALL.to_vec(), 1..=ScorerKind::ALL.len()).prop_shuffle();
    let scorers = scorers.prop_flat_map(|names| {
        let scorer = |name| {
            sourced(positive()).prop_map(move |weight| weight.map(|weight| WeightedScorer::built_in(name, weight)))
        };
        names.into_iter().map(scorer).collect::<Vec<_>>()
    });
    prop_oneof![
        proptest::sample::select(vec!["round-robin", "least-loaded", "prefix-affinity", "always-busiest"])
            .prop_map(|name| (name, vec![], None)),
        scorers.prop_map(|scorers| ("weighted", vec![], Some(scorers))),
        (sourced(prop_oneof![Just(0.0), positive()]), sourced(positive())).prop_map(|(cache, load)| (
            "weighted",
            vec![("cache_weight", cache), ("load_weight", load)],
            None
        )),
    ]
}

fn of_kind(kind: Kind) -> impl Strategy<Value = Sourced<String>> {
    sourced(proptest::sample::select(built_in_names(kind)).prop_map(str::to_owned))
}

/// A value for each name, for names of every kind.
fn entries<T: fmt::Debug>(value: impl Strategy<Value = T> + Clone) -> impl Strategy<Value = Vec<(String, Sourced<T>)>> {
    let name = prop_oneof![
        any::<String>().prop_map(|name| name.chars().take(40).collect()),
        "[a-z0-9_:#*&~ -]{0,8}",
        proptest::sample::select(vec![
            "", "null", "True", "0x10", "16", "1e3", "<<", "=", "~", "- a", "? b", "\t", "..."
        ])
        .prop_map(str::to_owned),
    ];
    proptest::collection::btree_map(name, sourced(value), 0..6).prop_map(|map| map.into_iter().collect())
}

fn any_settings() -> impl Strategy<Value = PolicySettings> {
    let names = (of_kind(Kind::Priority), of_kind(Kind::Scheduling), of_kind(Kind::Preemption));
    let maps = (entries(-100..=100), entries(0.0..=1.0));
    (sourced(admission()), sourced(routing()), names, maps).prop_map(
        |(admission, routing, (priority, scheduling, preemption), (slo_priorities, tenant_budgets))| {
            let (admission, routing) = (admission.value, routing.value);
            let mut choices = Choices { slo_priorities, tenant_budgets, scorers: routing.2, ..Choices::default() }
                .with(Kind::Admission, usual(admission.0.to_owned()))
                .with(Kind::Routing, usual(routing.0.to_owned()))
                .with(Kind::Priority, priority)
                .with(Kind::Scheduling, scheduling)
                .with(Kind::Preemption, preemption);
            admission.1.into_iter().chain(routing.1).for_each(|(key, value)| choices.set(key, Some(value)));
            PolicySettings::choose(&choices, None, &NoPlugins).expect("nothing contradicts")
        },
    )
}

proptest! {
    #[test]
    fn what_is_explained_is_a_bundle_that_says_the_same(settings in any_settings()) {
        let page = explained_page(&settings);
        let again = parse(&page).map_err(|error| TestCaseError::fail(format!("{error}\n{page}")))?;
        prop_assert_eq!(again, settings);
    }

    #[test]
    fn any_text_is_a_bundle_or_an_error_with_a_location(
        parts in proptest::collection::vec(proptest::sample::select(vec![
            "admission", "routing", "policy", "scorers", "weighted", "tenant_budgets", "name", "weight", ": ", ":", "\n",
            "  ", "- ", "{", "}", "[", "]", ",", "&a ", "*a", "<<: ", "'", "\"", "|", ">", "# ", "? ", "!!", "\t", "1",
            "-5", ".nan", "~", "é", "\u{7}", "\r\n", "---\n", "%",
        ]), 0..40)
    ) {
        let text: String = parts.concat();
        match parse(&text) {
            Ok(settings) => prop_assert_eq!(parse(&explained_page(&settings)).expect("explained"), settings),
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.starts_with("policy.yaml:") && message.contains("\nhint: "), "{}", message);
            }
        }
    }
}
