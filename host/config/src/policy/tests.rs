//! What bundles mean, what nonsense is told, and that what is explained is a bundle again.

use proptest::prelude::*;

use super::*;
use blis_diag::Page;

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

#[test]
fn every_key_arrives() {
    let expected = PolicySettings {
        admission: usual(AdmissionSettings::TokenBucket { capacity: usual(50_000.0), refill_rate: usual(250.5) }),
        slo_priorities: vec![("gold".into(), usual(7)), ("batch".into(), usual(-100))],
        tenant_budgets: vec![("10".into(), usual(0.0)), ("t0".into(), usual(1.0))],
        routing: usual(RoutingSettings::Weighted(Weights::Scorers(vec![
            usual(Scorer { name: ScorerKind::QueueDepth, weight: 2.0 }),
            usual(Scorer { name: ScorerKind::LoraAffinity, weight: 0.5 }),
        ]))),
        priority: usual(PriorityName::SloBased),
        scheduler: usual(SchedulerName::Sjf),
        preemption: usual(PreemptionName::Priority),
        plugins: Vec::new(),
    };
    assert_eq!(settings(WHOLE), expected);
    let tier = AdmissionSettings::TierShed { threshold: usual(12), min_priority: usual(-2) };
    let text = "admission: {policy: tier-shed, tier_shed_threshold: 12, tier_shed_min_priority: -2}";
    assert_eq!(settings(text).admission, usual(tier));
    let gaie = AdmissionSettings::GaieLegacy { queue_depth: usual(2.5), kv_utilization: usual(1.0) };
    let text = "admission: {policy: gaie-legacy, gaie_qd_threshold: 2.5, gaie_kv_threshold: 1}";
    assert_eq!(settings(text).admission, usual(gaie));
    let pair = RoutingSettings::Weighted(Weights::CacheAndLoad { cache: usual(0.6), load: usual(0.0) });
    assert_eq!(settings("routing: {policy: weighted, cache_weight: 0.6}").routing, usual(pair));
}

#[test]
fn what_is_left_out_is_the_default() {
    let expected = PolicySettings {
        admission: usual(AdmissionSettings::AlwaysAdmit),
        slo_priorities: Vec::new(),
        tenant_budgets: Vec::new(),
        routing: usual(RoutingSettings::RoundRobin),
        priority: usual(PriorityName::Class),
        scheduler: usual(SchedulerName::Fcfs),
        preemption: usual(PreemptionName::Fcfs),
        plugins: Vec::new(),
    };
    assert_eq!(PolicySettings::default(), expected);
    for text in ["{}", "admission:\nrouting: {}\n", "routing: {policy: ''}\nscheduler: ~\ntenant_budgets: {}\n"] {
        assert_eq!(settings(text), expected, "{text}");
    }
    let scorers = Scorer::USUAL.map(usual).to_vec();
    assert_eq!(
        settings("routing: {policy: weighted}").routing,
        usual(RoutingSettings::Weighted(Weights::Scorers(scorers)))
    );
    let bucket = AdmissionSettings::TokenBucket { capacity: usual(10_000.0), refill_rate: usual(1_000.0) };
    assert_eq!(settings("admission: {policy: token-bucket}").admission, usual(bucket));
    let gaie = AdmissionSettings::GaieLegacy { queue_depth: usual(5.0), kv_utilization: usual(0.8) };
    assert_eq!(settings("admission: {policy: gaie-legacy}").admission, usual(gaie));
}

/// BLIS's rule: 3 in a bundle that names the policy, 0 where only the flag does.
#[test]
fn tier_shed_has_two_defaults() {
    let least = |flags: &Choices, bundle: &str| {
        let bundle = Bundle::parse("policy.yaml", bundle).expect("legal");
        match PolicySettings::choose(flags, Some(&bundle), &NoPlugins).expect("legal").admission.value {
            AdmissionSettings::TierShed { min_priority, .. } => *min_priority,
            other => panic!("{other:?}"),
        }
    };
    let by_flag = Choices { admission: flag(AdmissionName::TierShed), ..Choices::default() };
    assert_eq!(least(&Choices::default(), "admission: {policy: tier-shed}"), 3);
    assert_eq!(least(&by_flag, "{}"), 0);
    assert_eq!(least(&by_flag, "admission: {policy: tier-shed}"), 3);
    assert_eq!(
        least(&by_flag, "admission: {tier_shed_min_priority: 4}"),
        4,
        "the bundle may hold the parameters alone"
    );
}

#[test]
fn flags_win_over_the_bundle() {
    let bundle = Bundle::parse("policy.yaml", WHOLE).expect("legal");
    let flags = Choices {
        token_bucket_capacity: flag(7.0),
        routing: flag(RoutingName::LeastLoaded),
        priority: flag(PriorityName::Constant),
        scheduler: flag(SchedulerName::Fcfs),
        ..Choices::default()
    };
    let both = PolicySettings::choose(&flags, Some(&bundle), &NoPlugins).expect("legal");
    let bucket = AdmissionSettings::TokenBucket { capacity: usual(7.0), refill_rate: usual(250.5) };
    assert_eq!(both.admission, usual(bucket));
    assert_eq!(both.routing, usual(RoutingSettings::LeastLoaded), "the bundle's scorers go with its policy");
    assert_eq!((*both.priority, *both.scheduler), (PriorityName::Constant, SchedulerName::Fcfs));
    assert_eq!(*both.preemption, PreemptionName::Priority, "the bundle's, no flag was given");
    assert_eq!(both.scheduler.source.to_string(), "flag --some-flag");
    assert_eq!(both.preemption.source.to_string(), "policy.yaml:14:22");
}

#[test]
fn a_pair_of_weights_may_come_from_both() {
    let bundle = Bundle::parse("policy.yaml", "routing: {policy: weighted, load_weight: 0.4}").expect("legal");
    let flags = Choices { cache_weight: flag(0.6), ..Choices::default() };
    let pair = Weights::CacheAndLoad { cache: usual(0.6), load: usual(0.4) };
    let both = PolicySettings::choose(&flags, Some(&bundle), &NoPlugins).expect("legal");
    assert_eq!(both.routing, usual(RoutingSettings::Weighted(pair)));
    let scorers = vec![Sourced::flag("--routing-scorers", Scorer::USUAL[0])];
    let flags = Choices { scorers: Some(scorers.clone()), ..Choices::default() };
    let both = PolicySettings::choose(&flags, Some(&bundle), &NoPlugins).expect("the flag replaces the pair");
    assert_eq!(both.routing, usual(RoutingSettings::Weighted(Weights::Scorers(scorers))));
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
    let told = bundles.map(|text| match parse(text) {
        Ok(settings) => panic!("`{text}` was accepted: {settings:?}"),
        Err(error) => format!("{error}\n"),
    });
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn contradicting_flags_are_explained() {
    let told =
        |flags: Choices| PolicySettings::choose(&flags, None, &NoPlugins).expect_err("a contradiction").to_string();
    insta::assert_snapshot!(told(Choices { token_bucket_capacity: flag(1.0), ..Choices::default() }), @r"
    `--some-flag` only makes sense with the admission policy `token-bucket`, not `always-admit`
    hint: leave it out, or choose `token-bucket`
    ");
    insta::assert_snapshot!(told(Choices { cache_weight: flag(1.0), ..Choices::default() }), @r"
    `--some-flag` only makes sense with the routing policy `weighted`, not `round-robin`
    hint: leave it out, or choose `weighted`
    ");
    let routing = flag(RoutingName::Weighted);
    insta::assert_snapshot!(told(Choices { routing, load_weight: flag(0.0), ..Choices::default() }), @r"
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
        let told = parse(&text).map_or_else(|error| error.to_string(), |settings| panic!("{start}: {settings:?}"));
        assert!(told.starts_with("policy.yaml:") && told.contains("\nhint: "), "{start}: {told}");
        assert!(told.len() < 2_000, "{start}: {} bytes", told.len());
    }
    assert_eq!(settings(&format!("tenant_budgets:\n{many}")).tenant_budgets.len(), 20_000);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = std::env::temp_dir().join(format!("blis-bundle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("scratch");
    let path = folder.join("policy.yaml");
    let load = || Bundle::load(&path).expect_err("unreadable").to_string();
    let told = load();
    assert!(told.ends_with("does not exist\nhint: check the path and the current folder"), "{told}");
    std::fs::write(&path, [0xff, 0xfe]).expect("scratch");
    assert!(load().ends_with("is not text (UTF-8)\nhint: is this the right file?"));
    std::fs::write(&path, " ".repeat(2 << 20)).expect("scratch");
    assert!(load().ends_with("is longer than 1 MiB\nhint: is this the right file?"));
    std::fs::write(&path, WHOLE).expect("scratch");
    assert_eq!(Bundle::load(&path).expect("legal").choices(), Bundle::parse("", WHOLE).expect("legal").choices());
    std::fs::remove_dir_all(&folder).expect("scratch");
}

#[test]
fn names_are_found_by_their_text() {
    fn check<N: Named + std::fmt::Debug>() {
        for &name in N::ALL {
            assert_eq!(N::find(name.name()), Some(name));
            assert!(!name.about().is_empty() && !name.about().ends_with('.'));
        }
    }
    check::<AdmissionName>();
    check::<RoutingName>();
    check::<ScorerKind>();
    check::<PriorityName>();
    check::<SchedulerName>();
    check::<PreemptionName>();
    assert_eq!(ScorerKind::ALL.len(), 11);
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
    let mut page = Page::default();
    settings.explain(&mut page);
    page.to_string()
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        Just(Source::Default),
        Just(Source::Flag("--routing-policy".into())),
        any::<String>().prop_map(|words| Source::Told(words.into())),
        (any::<String>(), any::<u64>())
            .prop_map(|(file, line)| Source::File(blis_diag::Location::file(file).characters(line, 3, 1))),
    ]
}

fn sourced<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Sourced<T>> {
    (value, source()).prop_map(|(value, source)| Sourced { value, source })
}

fn named<N: Named + std::fmt::Debug>() -> impl Strategy<Value = N> {
    proptest::sample::select(N::ALL)
}

/// Any number above 0, also very small and very large ones.
fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![1e-3..1e3, proptest::num::f64::POSITIVE].prop_filter("far from infinity", |number| *number < 1e300)
}

fn admission() -> impl Strategy<Value = AdmissionSettings> {
    prop_oneof![
        Just(AdmissionSettings::AlwaysAdmit),
        Just(AdmissionSettings::RejectAll),
        (sourced(positive()), sourced(positive()))
            .prop_map(|(capacity, refill_rate)| AdmissionSettings::TokenBucket { capacity, refill_rate }),
        (sourced(0..=u64::from(u32::MAX)), sourced(any::<i32>()))
            .prop_map(|(threshold, min_priority)| AdmissionSettings::TierShed { threshold, min_priority }),
        (sourced(positive()), sourced(1e-9..=1.0))
            .prop_map(|(queue_depth, kv_utilization)| AdmissionSettings::GaieLegacy { queue_depth, kv_utilization }),
    ]
}

fn routing() -> impl Strategy<Value = RoutingSettings> {
    let scorers = proptest::sample::subsequence(ScorerKind::ALL.to_vec(), 1..=ScorerKind::ALL.len()).prop_shuffle();
    let scorers = scorers.prop_flat_map(|names| {
        let scorer = |name| sourced(positive()).prop_map(move |weight| weight.map(|weight| Scorer { name, weight }));
        names.into_iter().map(scorer).collect::<Vec<_>>()
    });
    prop_oneof![
        Just(RoutingSettings::RoundRobin),
        Just(RoutingSettings::LeastLoaded),
        Just(RoutingSettings::PrefixAffinity),
        Just(RoutingSettings::AlwaysBusiest),
        scorers.prop_map(|scorers| RoutingSettings::Weighted(Weights::Scorers(scorers))),
        (sourced(prop_oneof![Just(0.0), positive()]), sourced(positive()))
            .prop_map(|(cache, load)| RoutingSettings::Weighted(Weights::CacheAndLoad { cache, load })),
    ]
}

/// A value each for names of every kind.
fn entries<T: std::fmt::Debug>(
    value: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Vec<(String, Sourced<T>)>> {
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
    let names = (sourced(named()), sourced(named()), sourced(named()));
    let maps = (entries(-100..=100), entries(0.0..=1.0));
    (sourced(admission()), sourced(routing()), names, maps).prop_map(
        |(admission, routing, (priority, scheduler, preemption), (slo_priorities, tenant_budgets))| PolicySettings {
            admission,
            slo_priorities,
            tenant_budgets,
            routing,
            priority,
            scheduler,
            preemption,
            plugins: Vec::new(),
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
    fn any_text_is_a_bundle_or_an_error_with_a_place(
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
                let told = error.to_string();
                prop_assert!(told.starts_with("policy.yaml:") && told.contains("\nhint: "), "{}", told);
            }
        }
    }
}
