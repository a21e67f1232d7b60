//! Settings from text, from files and from JSON.

use blis_config::policy::SettingSource;
use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Result<ExperimentSpec, String> {
    ExperimentSpec::parse("e.yaml", text).map_err(|failure| failure.to_string())
}

#[test]
fn names_of_flags_and_their_aliases_mean_the_same() {
    let spec = parsed("model: m\ngpu: H100\ntensor_parallel_size: 2\nmax-prompts: 7\n").expect("legal");
    assert_eq!((spec.hardware.as_deref(), spec.tp, spec.num_requests), (Some("H100"), Some(2), Some(7)));
    assert!(
        matches!(spec.source("tp", SettingSource::Default), SettingSource::File(location) if location.line == Some(3))
    );
}

#[test]
fn sections_mean_nothing_and_policies_stay_where_they_are() {
    let text = "engine:\n  simulation: plain\n  max-num-seqs: 8\nworkload: chatbot\nrouting:\n  policy: weighted\n\
                seed: 3\nscheduler: sjf\n";
    let spec = parsed(text).expect("legal");
    assert_eq!((spec.simulation, spec.max_num_seqs, spec.seed), (Some(SimulationName::Plain), Some(8), Some(3)));
    assert_eq!(spec.workload, Some(WorkloadName::Chatbot));
    let policies = spec.policies.expect("some");
    assert_eq!(&*policies.text, "\n\n\n\nrouting:\n  policy: weighted\n\nscheduler: sjf\n");
}

#[test]
fn mistakes_show_their_line() {
    let files = [
        "",
        "model: m\nmax-num-seq: 3\n",
        "model: m\nrate: fast\n",
        "model: m\nmodel: n\n",
        "model: m\ngpu: H100\nhardware: H200\n",
        "model: [m, n]\n",
        "cluster:\n  num-instances: 0\n",
        "- model\n",
        "model: m\n  tp: 2\n",
        "tie-break: first\n",
        "alpha-coeffs: 3\n",
        "what: is this\n",
    ];
    let messages: Vec<String> = files.map(|text| format!("{text:?}\n{}\n", parsed(text).expect_err(text))).into();
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn flags_win_over_the_file() {
    let file = parsed("model: m\ntp: 2\npolicy-param: [routing.a=1]\nrate: 5\n").expect("legal");
    let mut flags = ExperimentSpec::default();
    flags.set_named("rate", "7").expect("legal");
    flags.set_named("policy-param", "routing.b=2").expect("legal");
    let spec = flags.over(&file);
    assert_eq!((spec.rate, spec.tp, spec.model.as_deref()), (Some(7.0), Some(2), Some("m")));
    assert_eq!(spec.policy_param.map(|list| list.len()), Some(1), "a list is replaced whole");
}

#[test]
fn json_has_numbers_switches_and_lists() {
    let json =
        r#"{"model":"m","tp":2,"rate":2.5,"async-scheduling":true,"alpha-coeffs":[1,2.5,3],"policy-dir":["a","b"]}"#;
    let spec: ExperimentSpec = serde_json::from_str(json).expect("legal");
    assert_eq!(spec.alpha_coeffs.as_deref(), Some(&[1.0, 2.5, 3.0][..]));
    let again = serde_json::to_string(&spec).expect("JSON");
    assert_eq!(
        again,
        json.replace(
            "\"tp\":2,\"rate\":2.5,\"async-scheduling\":true,\"alpha-coeffs\":[1,2.5,3],\"policy-dir\":[\"a\",\"b\"]",
            "\"tp\":2,\"alpha-coeffs\":[1,2.5,3],\"async-scheduling\":true,\"policy-dir\":[\"a\",\"b\"],\"rate\":2.5"
        )
    );
    assert_eq!(serde_json::from_str::<ExperimentSpec>(&again).expect("legal"), spec);
    let messages = serde_json::from_str::<ExperimentSpec>(r#"{"rates":2}"#).expect_err("no such setting").to_string();
    assert!(messages.contains("there is no setting `rates`"), "{messages}");
}

/// A valid text for `key`, one of the few that the tests need.
fn value_of(key: &SettingKey, number: u16) -> Option<String> {
    let number = u32::from(number % 30) + 1;
    let candidates = [
        number.to_string(),
        "0.5".to_owned(),
        "true".to_owned(),
        "H100".to_owned(),
        "fp8".to_owned(),
        "a=1s,b=20ms".to_owned(),
        "a=3,b=0.5".to_owned(),
        "queue-depth:2,load-aware:0.5".to_owned(),
        "saturation:queue-depth=3".to_owned(),
        "routing.weight=0.25".to_owned(),
        "lognormal:mu=1,sigma=2,min=3s".to_owned(),
        "fcfs".to_owned(),
        "vllm".to_owned(),
        "vllm-0.15".to_owned(),
        "random".to_owned(),
        "fast".to_owned(),
        "none".to_owned(),
        "ratio".to_owned(),
        "utilization".to_owned(),
        "hybrid".to_owned(),
        "soft-reflective".to_owned(),
        "round-robin".to_owned(),
        "edf".to_owned(),
        "fail".to_owned(),
        "chatbot".to_owned(),
        "auto".to_owned(),
        "fixed".to_owned(),
        "poisson".to_owned(),
        "hardware=A100-SXM,tp=2,instances=3".to_owned(),
        "name=a,hardware=H100,max=4,provisioning=90s,price=12.5".to_owned(),
        "window=30s,100%/60s".to_owned(),
        "weights=2s".to_owned(),
        "hot:2".to_owned(),
        "newest".to_owned(),
        "lru".to_owned(),
        "fs".to_owned(),
        "drop".to_owned(),
        "prefill".to_owned(),
        "always".to_owned(),
        "prefill-first".to_owned(),
        "rdma".to_owned(),
        "16".to_owned(),
    ];
    let key = SettingKey::find(key.name).expect("known");
    let fits = |text: &&String| ExperimentSpec::default().set(key, text, SettingSource::Default).is_ok();
    candidates.iter().find(fits).cloned()
}

#[test]
fn every_setting_comes_back_from_its_text() {
    for key in KEYS {
        let text = value_of(key, 3).unwrap_or_else(|| panic!("no value for {}", key.name));
        let mut spec = ExperimentSpec::default();
        spec.set(key, &text, SettingSource::Default).expect("legal");
        let texts: Vec<String> = spec.entries().flat_map(|(_, texts)| texts).collect();
        let mut again = ExperimentSpec::default();
        for text in &texts {
            again
                .set(key, text, SettingSource::Default)
                .unwrap_or_else(|messages| panic!("{} = {text}: {messages}", key.name));
        }
        assert_eq!(again, spec, "{}", key.name);
        let json = serde_json::to_string(&spec).expect("JSON");
        assert_eq!(serde_json::from_str::<ExperimentSpec>(&json).expect("legal"), spec, "{json}");
    }
}

proptest! {
    #[test]
    fn any_file_is_read_or_refused(text in "[a-z:\\-\\[\\]{} \n0-9#\"]{0,80}") {
        let _ = parsed(&text);
    }

    #[test]
    fn sets_of_settings_come_back_from_json(chosen in prop::collection::vec((0..KEYS.len(), any::<u16>()), 0..20)) {
        let mut spec = ExperimentSpec::default();
        for (index, number) in chosen {
            let key = &KEYS[index];
            if let Some(text) = value_of(key, number) {
                spec.unset(key);
                spec.set(key, &text, SettingSource::Default).expect("legal");
            }
        }
        let json = serde_json::to_string(&spec).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<ExperimentSpec>(&json).expect("legal"), spec);
    }
}
