use super::*;
use crate::model_source;

fn llama_8b() -> ModelConfig {
    let (_, model) = model_source::load("llama-3.1-8b-instruct", None, &mut Vec::new()).expect("it is built in");
    model.expect("with a configuration").config
}

const FILE: &str = "lora:
  adapter_capacity: 2
  adapters:
    - {id: sql, rank: 8}
    - {id: legal, rank: 16, base_model: meta-llama/Llama-3.1-8B-Instruct}
";

fn deployed(change: impl FnOnce(&mut AdapterArgs)) -> DeployedAdapters {
    let mut args = AdapterArgs::parse("lora.yaml", FILE).expect("a file");
    change(&mut args);
    DeployedAdapters::new(&args, "llama", Some(&llama_8b()), 1).expect("they fit").expect("they are on")
}

#[test]
fn slots_have_the_size_of_the_maximum_rank() {
    let adapters = deployed(|_| ());
    assert_eq!((adapters.slots, adapters.host_slots, adapters.max_rank), (2, 2, 16));
    // 32 layers · (q 8192 + k, v 2·5120 + o 8192 + gate, up, down 3·18 432) · 2 bytes
    assert_eq!(adapters.footprint, 32.0 * 81_920.0 * 2.0);
    assert_eq!(adapters.reserved_gib, 2.0 * 16.0 * adapters.footprint / GIB);
    let on_two = bytes_per_rank(&llama_8b(), 2);
    assert!(
        on_two > adapters.footprint / 2.0 && on_two < adapters.footprint,
        "a part of each pair is on both: {on_two}"
    );
}

#[test]
fn times_follow_from_bytes_and_bandwidth() {
    let costs = deployed(|_| ()).costs(8);
    let bytes = 8.0 * 5_242_880.0;
    assert_eq!(costs.from_host, Micros((bytes / 50_000.0) as u64), "0.8 ms");
    assert_eq!(costs.from_disk, Micros((1500.0 + bytes / 1000.0 + bytes / 50_000.0) as u64), "44 ms");
    assert_eq!((costs.rank, costs.overhead), (16, 0.035), "kernels compute the whole slot");
}

#[test]
fn blis_loads_by_its_own_figures() {
    let adapters = deployed(|args| args.as_in_blis = true);
    assert_eq!(adapters.reserved_gib, 2.0 * 2e6 * 16.0 / GIB);
    let costs = adapters.costs(8);
    assert_eq!((costs.from_disk, costs.rank, costs.overhead), (Micros(1508), 8, 0.02));
    let off = |change: fn(&mut AdapterArgs)| {
        let mut args = AdapterArgs { as_in_blis: true, ..AdapterArgs::parse("lora.yaml", FILE).expect("a file") };
        change(&mut args);
        DeployedAdapters::new(&args, "llama", None, 1).expect("nothing is wrong").is_none()
    };
    assert!(off(|args| args.slots = None) && off(|args| args.declared = None));
}

#[test]
fn the_nearest_rank_has_the_overhead() {
    let of = |rank| overhead(&OVERHEADS, rank);
    assert_eq!([of(1), of(12), of(13), of(24), of(64)], [0.02, 0.02, 0.035, 0.035, 0.06]);
    assert_eq!(overhead(&[], 8), 0.0);
}

#[test]
fn requests_name_what_is_declared() {
    let adapters = deployed(|_| ());
    let ask = |id, model| adapters.settings([(Name(3), id, model)].into_iter(), &["llama-3.1-8b-instruct"]);
    assert_eq!(ask("sql", "any").expect("of any model").costs(Name(3)), Some(&adapters.costs(8)));
    assert!(ask("legal", "").is_ok() && ask("legal", "Llama-3.1-8B-Instruct").is_ok());
    let refused = [ask("sqll", ""), ask("legal", "qwen3-14b")].map(|asked| asked.expect_err("refused").to_string());
    insta::assert_snapshot!(refused.join("\n"), @r"
    requests name the LoRA adapter `sqll`, which is not declared
    hint: add it to `adapters` in `--lora-config`; did you mean `sql`?
    lora.yaml:5:12: requests name the LoRA adapter `legal` of meta-llama/Llama-3.1-8B-Instruct on qwen3-14b
    hint: correct its `base_model`, or leave it out
    ");
    let undeclared = deployed(|args| args.declared = None);
    let any = undeclared.settings([(Name(1), "any", "")].into_iter(), &[]).expect("every adapter exists");
    assert_eq!(any.costs(Name(1)).map(|costs| costs.rank), Some(16));
}

#[test]
fn mistakes_show_their_line() {
    let mistake = |text: &str| AdapterArgs::parse("lora.yaml", text).expect_err("a mistake").to_string();
    let texts = [
        "",
        "lora: {adapter_capacity: 0}\n",
        "lora: {max_lora_rank: 17}\n",
        "lora: {adapters: [{id: a, rank: 8}, {id: a, rank: 8}]}\n",
        "lora: {adapters: [{id: a, rank: many}]}\n",
        "lora: {step_overhead_tiers: {8: {k6: 1, k7: 0}}}\n",
        "lora: {adapter: []}\n",
    ];
    let larger = AdapterArgs { max_rank: Some(8), ..AdapterArgs::parse("lora.yaml", FILE).expect("a file") };
    let larger = DeployedAdapters::new(&larger, "llama", Some(&llama_8b()), 1).expect_err("rank 16").to_string();
    insta::assert_snapshot!(format!("{}\n{larger}", texts.map(mistake).join("\n")), @r"
    lora.yaml:1:1: the file of adapters is empty
      1 | 
        | ^
    hint: a file of adapters has `lora: { adapters: [{id: sql, rank: 16}] }`
    lora.yaml:1:26: `adapter_capacity` is `0`
      1 | lora: {adapter_capacity: 0}
        |                          ^
    hint: it must be a whole number from 1 to 100000
    lora.yaml:1:23: `max_lora_rank` is 17
      1 | lora: {max_lora_rank: 17}
        |                       ^^
    hint: it must be one of 1, 8, 16, 32, 64, 128, 256, 320, 512
    lora.yaml:1:42: the adapter `a` is declared twice
      1 | lora: {adapters: [{id: a, rank: 8}, {id: a, rank: 8}]}
        |                                          ^
    hint: keep one of them
    lora.yaml:1:33: the rank of `a` is `many`
      1 | lora: {adapters: [{id: a, rank: many}]}
        |                                 ^^^^
    hint: it must be a whole number from 1 to 65536
    lora.yaml:1:45: `k7` of rank 8 is `0`
      1 | lora: {step_overhead_tiers: {8: {k6: 1, k7: 0}}}
        |                                             ^
    hint: it must be a number above 0
    lora.yaml:1:8: unknown key `adapter`
      1 | lora: {adapter: []}
        |        ^^^^^^^
    hint: did you mean `adapters`?
    lora.yaml:5:12: the adapter `legal` has rank 16, and slots are for rank 8
    hint: add `--max-lora-rank 16`
    ");
}

/// The number was raised without a word; vLLM refuses it.
#[test]
fn fewer_adapters_in_host_memory_than_slots_are_refused() {
    let args = |as_in_blis| {
        let file = AdapterArgs::parse("lora.yaml", FILE).expect("a file");
        AdapterArgs { slots: Some(4), host_slots: Some(2), as_in_blis, ..file }
    };
    let deployed = |as_in_blis| DeployedAdapters::new(&args(as_in_blis), "llama", Some(&llama_8b()), 1);
    insta::assert_snapshot!(deployed(false).expect_err("refused"), @r"
    2 adapters in the host's memory (`--max-cpu-loras`) are fewer than 4 on the GPU (`--max-loras`)
    hint: an adapter on the GPU is in the host's memory, too: raise `--max-cpu-loras`, or lower `--max-loras`
    ");
    assert!(deployed(true).is_ok(), "BLIS does not read it");
}
