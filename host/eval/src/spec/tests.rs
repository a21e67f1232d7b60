//! Settings from text, from files and from JSON.

use blis_config::policy::SettingSource;
use proptest::prelude::*;

use super::*;
use crate::evaluation::context::EvaluationSuite;
use crate::suite::Suite;

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
    let spec = parsed(json).expect("legal");
    assert_eq!(spec.alpha_coeffs.as_deref(), Some(&[1.0, 2.5, 3.0][..]));
    let again = serde_json::to_string(&spec).expect("JSON");
    assert_eq!(
        again,
        json.replace(
            "\"tp\":2,\"rate\":2.5,\"async-scheduling\":true,\"alpha-coeffs\":[1,2.5,3],\"policy-dir\":[\"a\",\"b\"]",
            "\"tp\":2,\"alpha-coeffs\":[1,2.5,3],\"async-scheduling\":true,\"policy-dir\":[\"a\",\"b\"],\"rate\":2.5"
        )
    );
    assert_eq!(parsed(&again).expect("legal"), spec);
    let messages = parsed(r#"{"rates":2}"#).expect_err("no such setting");
    assert!(messages.contains("there is no setting `rates`"), "{messages}");
}

/// A value of `key` that is not its default: its example, or one that follows from its kind.
pub(crate) fn sample(key: &SettingKey) -> String {
    let choices = (key.choices)();
    match (key.example, &key.range) {
        ("", _) if !choices.is_empty() => {
            let other = choices.iter().find(|(name, _)| Some(*name) != key.default && !["auto", "none"].contains(name));
            other.expect("two values").0.to_owned()
        }
        ("", Range::Whole { least, most, .. }) => {
            let usual: u64 = key.default.map_or(2, |default| default.parse().expect("a number"));
            (usual * 2 + 1).clamp(*least, *most).to_string()
        }
        ("", Range::Number { .. }) => match key.default.map(|default| default.parse::<f64>().expect("a number")) {
            Some(usual) if key.validate(&(usual * 2.0).to_string()).is_ok() && usual > 0.0 => (usual * 2.0).to_string(),
            _ => "0.5".to_owned(),
        },
        ("", Range::Time { .. }) => "1700ms".to_owned(),
        ("", _) if key.form == ValueForm::Switch => (key.default != Some("true")).to_string(),
        ("", _) if key.placeholder == "N" => "3".to_owned(),
        ("", _) => format!("some-{}", key.name),
        (example, _) => example.to_owned(),
    }
}

fn flag() -> SettingSource {
    SettingSource::Flag("--flag".into())
}

#[test]
fn every_row_is_complete() {
    let mut names = std::collections::BTreeSet::new();
    for key in KEYS {
        assert!(key.aliases.iter().chain([&key.name]).all(|name| names.insert(*name)), "{key:?} is there twice");
        assert!(key.help.starts_with(' ') && !key.help.contains("  "), "{key:?}: {}", key.help);
        assert_eq!(key.placeholder.is_empty(), key.form == ValueForm::Switch, "{key:?}");
        if let Some(default) = key.default {
            let mut spec = ExperimentSpec::default();
            spec.set(key, default, flag()).unwrap_or_else(|message| panic!("{key:?}: {message}"));
            let texts = (key.get)(&spec).expect("it is set");
            assert_eq!(texts, [default], "{key:?}: the default is written as it is read");
            assert!(!spec.differs(key));
        }
        let mut spec = ExperimentSpec::default();
        spec.set(key, &sample(key), flag()).unwrap_or_else(|message| panic!("{key:?}: {} {message}", sample(key)));
        assert!(spec.differs(key), "{key:?}: {}", sample(key));
    }
}

#[test]
fn every_setting_comes_back_from_its_text() {
    for key in KEYS {
        let mut spec = ExperimentSpec::default();
        spec.set(key, &sample(key), flag()).expect("legal");
        let texts: Vec<String> = spec.entries().flat_map(|(_, texts)| texts).collect();
        let mut again = ExperimentSpec::default();
        for text in &texts {
            again.set(key, text, flag()).unwrap_or_else(|messages| panic!("{key:?} = {text}: {messages}"));
        }
        assert_eq!(again, spec, "{key:?}");
        // In a section, where `scheduler` is no key of a bundle.
        let json = format!("{{\"engine\": {}}}", serde_json::to_string(&spec).expect("JSON"));
        match key.permission {
            None => assert_eq!(parsed(&json).expect("legal"), spec, "{json}"),
            Some(_) => {
                let message = parsed(&json).expect_err("only the command line grants");
                assert!(message.contains(&format!("is granted by the flag `--{}`", key.name)), "{message}");
            }
        }
    }
}

/// Extreme values in files: read, or refused in one error that states what is allowed.
#[test]
fn extreme_numbers_are_read_or_refused_with_their_range() {
    let extremes = ["0", "1000000", "4294967296", "9223372036854775807", "18446744073709551615", "-1", "NaN", "1e308"];
    for key in KEYS.iter().filter(|key| key.form == ValueForm::Number) {
        for extreme in extremes.into_iter().chain([".nan", "-.inf", "1e999", "0x10", "1_000", "٣"]) {
            let Err(message) = parsed(&format!("{}: {extreme}", key.name)) else { continue };
            assert!(message.contains("must be"), "{key:?}: {message}");
            if let Range::Whole { least, most, .. } = key.range {
                assert!(message.contains(&format!("from {least} to {most}")), "{key:?}: {message}");
            }
        }
    }
}

/// What a flag refuses, a suite refuses with the same words; what it takes is used, or refused for another reason.
#[test]
fn extreme_numbers_in_suites_are_those_of_flags() {
    let extremes = ["0", "1000000", "4294967296", "9223372036854775807", "18446744073709551615", "-1", "NaN", "1e308"];
    for key in KEYS.iter().filter(|key| matches!(key.form, ValueForm::Number | ValueForm::Numbers) && key.suites) {
        for extreme in extremes {
            let text = format!(
                "schema: 1\nname: s\nweights: mean_e2e:1\nrun: {{model: qwen/qwen3-14b, num-requests: 5}}\n\
                 scenarios: [{{name: a, splits: [smoke, train], run: {{{}: {extreme}}}}}]\n",
                key.name
            );
            let suite = Suite::parse("s.yaml", &text).expect("a suite");
            let used = EvaluationSuite::new(suite).map(|_| ()).map_err(|failure| failure.to_string());
            match (key.validate(extreme), used) {
                (Err(flag), Err(suite)) => assert!(suite.contains(&flag), "{key:?}={extreme}: {flag}\n{suite}"),
                (Err(flag), Ok(())) => panic!("{key:?}={extreme} is used, but refused as a flag: {flag}"),
                (Ok(()), _) => {}
            }
        }
    }
}

/// The flags of permissions that are no settings are refused by their name, too.
#[test]
fn no_file_grants_a_permission() {
    for permission in Permission::all() {
        for flag in permission.flags() {
            for name in [(*flag).to_owned(), flag.replace('-', "_")] {
                for text in [format!("{name}: true"), format!("cluster:\n  {name}: x"), format!("{{\"{name}\": 1}}")] {
                    let message = parsed(&text).expect_err("only the command line grants");
                    assert!(message.contains(&format!("is granted by the flag `--{flag}`")), "{message}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_file_is_read_or_refused(text in "[a-z:\\-\\[\\]{} \n0-9#\"]{0,80}") {
        let _ = parsed(&text);
    }

    #[test]
    fn sets_of_settings_come_back_from_json(chosen in prop::collection::vec(0..KEYS.len(), 0..20)) {
        let mut spec = ExperimentSpec::default();
        for key in chosen.into_iter().map(|index| &KEYS[index]).filter(|key| key.permission.is_none()) {
            spec.unset(key);
            spec.set(key, &sample(key), flag()).expect("legal");
        }
        let json = format!("{{\"engine\": {}}}", serde_json::to_string(&spec).expect("JSON"));
        let read = parsed(&json);
        prop_assert_eq!(read, Ok(spec));
    }
}
