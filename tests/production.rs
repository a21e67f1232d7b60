//! `blis export` of scripts, for programs that run in production.

use crate::macros::{Scratch, blis};

/// The ScaledObject that KEDA gets, and what it does not get.
#[test]
fn a_scaling_script_becomes_a_scaled_object() {
    let scratch = Scratch::new();
    let file = scratch.path("queue.yaml");
    let script = "examples/built-ins/queue.rhai";
    let flags = "--deployment decode --set running=8 --min-replicas 2 --scale-up window=0,100%/15s";
    let ended = blis!(format!("export keda {script} {flags}")).done();
    blis!(format!("export keda {script} {flags} --out {file}")).done();
    assert_eq!(std::fs::read_to_string(&file).expect("written"), ended.stdout);
    let parts = ["kind: ScaledObject\n", "  minReplicaCount: 2\n", "(round((8.0 * 1000.0)) * replicas)"];
    for part in
        parts.into_iter().chain(["sum(vllm:num_requests_running{pod=~\"decode-[a-z0-9]+-[a-z0-9]+\"}) or vector(0)\n"])
    {
        assert!(ended.stdout.contains(part), "{part}\n{}", ended.stdout);
    }

    let mine = scratch.write("mine.rhai", "fn scale(g) {\n    max(g.queued / 4.0, g.oldest_wait / 1000.0)\n}\n");
    let mine = mine.display().to_string();
    let messages = [
        format!("{mine} --deployment decode"),
        script.to_owned(),
        format!("{script} --deployment decode --set speed=1"),
        format!("{script} --deployment decode --min-replicas 9"),
        format!("{script} --deployment Decode"),
        format!("{script} --deployment decode --model a\"b"),
        format!("{script} --deployment decode --prometheus prometheus:9090"),
    ]
    .map(|flags| blis!(format!("export keda {flags}")).with_code(2).stderr.replace(&mine, "mine.rhai"));
    insta::assert_snapshot!(messages.join("\n"));
}

/// The plugin in Go, and the signals that the endpoint picker does not have.
#[test]
fn a_routing_script_becomes_a_plugin_of_the_endpoint_picker() {
    let scratch = Scratch::new();
    let file = scratch.path("plugin.go");
    let ended =
        blis!(format!("export llm-d-plugin examples/discoveries/shared-prefix/two-signals.rhai --out {file}")).done();
    assert_eq!(ended.stderr, "");
    let text = std::fs::read_to_string(&file).expect("written");
    assert!(text.contains("\npackage found\n") && text.contains("return ((-s[i].inFlightTokens) + ("), "{text}");

    let script = scratch.path("slow.rhai");
    std::fs::write(&script, "fn route(r, s) { -s.in_flight - s.ttft_ewma / 1000.0 }").expect("written");
    let ended = blis!(format!("export llm-d-plugin {script}")).done();
    assert!(ended.stdout.contains("\t// FILL IN: s.ttft_ewma\n"), "{}", ended.stdout);
    let messages = [
        ended.stderr,
        blis!("export llm-d-plugin examples/discoveries/agentic/found.rhai").with_code(2).stderr,
        blis!("export llm-d-plugin examples/built-ins/queue.rhai").with_code(2).stderr,
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
