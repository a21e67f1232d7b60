use super::*;

fn parsed(text: &str) -> KvOffload {
    KvOffload::parse("o.yaml", text, 16).unwrap_or_else(|error| panic!("{error}"))
}

fn tier(text: &str) -> StorageTier {
    let text =
        format!("kv_offload:\n  cpu_bytes_to_use: 1e9\n  secondary_tiers:\n    - {{type: fs, root_dir: /x, {text}}}\n");
    parsed(&text).storage[0]
}

fn refused(text: &str) -> String {
    KvOffload::parse("o.yaml", text, 16).expect_err("it is refused").to_string()
}

/// A file with these lines beside the size of the CPU tier.
fn refused_beside_size(lines: &str) -> String {
    refused(&format!("kv_offload:\n  cpu_bytes_to_use: 8589934592\n{lines}\n"))
}

#[test]
fn what_is_left_out_has_the_defaults_of_vllm() {
    let offload = parsed("kv_offload: {cpu_bytes_to_use: 8589934592}");
    assert_eq!((offload.cpu_bytes, offload.prompt_only, offload.storage.len()), (8_589_934_592, true, 0));
    let tier = tier("direct_io: true, device_class: nvme_gen4");
    assert_eq!((tier.read_threads, tier.write_threads), (16, 16));
    assert_eq!((tier.read_bandwidth, tier.write_bandwidth, tier.base_latency), (7000.0, 5000.0, Micros(80)));
    assert_eq!((tier.saturation_queue_depth, tier.latency_jitter_stddev), (1, 0.0));
}

#[test]
fn values_without_effect_are_accepted() {
    let offload = parsed(
        "kv_offload:\n  cpu_bytes_to_use: 8589934592\n  block_size: 16\n  tokens_per_hash: 16\n  eviction_policy: lru\n  \
         offload_prompt_only: false\n  self_describing_kv_events: true\n  store_threshold: 1\n  secondary_tiers:\n    \
         - {type: fs, root_dir: /x, locality: REMOTE, enable_kv_events: true, direct_io: false, device_class: s3}\n",
    );
    assert!(!offload.prompt_only);
    assert_eq!(offload.storage[0].base_latency, Micros(30_000));
    parsed("kv_offload: {cpu_bytes_to_use: 1, blocks_per_chunk: 1, store_threshold: 0}");
}

#[test]
fn explicit_times_replace_those_of_the_class() {
    let given =
        tier("direct_io: true, device_class: sata_ssd, read_bandwidth: 600, n_read_threads: 4, n_write_threads: 2");
    assert_eq!((given.read_bandwidth, given.write_bandwidth, given.base_latency), (600.0, 500.0, Micros(150)));
    assert_eq!((given.read_threads, given.write_threads), (4, 2));
    let alone = tier("direct_io: true, read_bandwidth: 1.5, write_bandwidth: 2.5, base_latency: 0.5");
    assert_eq!((alone.read_bandwidth, alone.write_bandwidth, alone.base_latency), (1.5, 2.5, Micros(1)));
}

#[test]
fn a_file_may_have_device_classes_of_its_own() {
    let text = |direct_io: bool| {
        format!(
            "kv_offload:\n  cpu_bytes_to_use: 1\n  secondary_tiers:\n    \
             - {{type: fs, root_dir: /x, direct_io: {direct_io}, device_class: raid}}\nkv_offload_devices:\n  \
             raid: {{read_bandwidth: 9000, write_bandwidth: 8000, base_latency: 50, saturation_queue_depth: 8, \
             single_transfer_fraction: 0.25, latency_jitter_stddev: 0.1, buffered_read_bandwidth: 12000, \
             buffered_latency_jitter_stddev: 0.3}}\n"
        )
    };
    let [direct, buffered] = [true, false].map(|direct_io| parsed(&text(direct_io)).storage[0]);
    assert_eq!((direct.read_bandwidth, direct.write_bandwidth), (9000.0, 8000.0));
    assert_eq!((direct.saturation_queue_depth, direct.single_transfer_fraction), (8, 0.25));
    assert_eq!((buffered.read_bandwidth, buffered.write_bandwidth), (12_000.0, 8000.0));
    assert_eq!((direct.latency_jitter_stddev, buffered.latency_jitter_stddev), (0.1, 0.3));
}

/// BLIS writes what it has resolved into the header of a trace, and leaves out zeros.
#[test]
fn the_header_of_a_trace_has_resolved_numbers() {
    let parse = |text: &str| KvOffload::parse_header("t.yaml", text, 16).expect("a header");
    let header = parse(
        "trace_version: 3\nmode: generated\nkv_offload:\n  cpu_bytes_to_use: 8192\n  per_block_bytes: 4096\n  \
         block_size: 16\n  blocks_per_chunk: 1\n  tokens_per_hash: 16\n  eviction_policy: lru\n  tiers:\n    \
         - {type: fs, root_dir: /x, n_read_threads: 2, n_write_threads: 3, device_class: ours, read_bandwidth: 7, \
         write_bandwidth: 5, saturation_queue_depth: 8, single_transfer_fraction: 0.4, latency_jitter_stddev: 0.1}\n",
    );
    let offload = header.expect("it has tiers");
    assert!(!offload.prompt_only);
    let chain = offload.chain(offload.block_bytes.expect("the header says it")).expect("two blocks fit");
    assert_eq!((chain.cpu_blocks, chain.block_bytes), (2, 4096));
    let tier = chain.storage[0];
    assert_eq!((tier.read_threads, tier.write_threads, tier.base_latency), (2, 3, Micros(0)));
    assert_eq!((tier.saturation_queue_depth, tier.single_transfer_fraction), (8, 0.4));
    assert_eq!(parse("trace_version: 3\n"), None);
    assert!(offload.is_same(&offload.clone()) && !offload.is_same(&parsed("kv_offload: {cpu_bytes_to_use: 8192}")));
}

#[test]
fn the_cpu_tier_has_room_for_whole_blocks() {
    let offload = parsed("kv_offload: {cpu_bytes_to_use: 1000}");
    assert_eq!(offload.chain(300).expect("it fits").cpu_blocks, 3);
    insta::assert_snapshot!(offload.chain(1001).expect_err("it does not fit").to_string(), @r"
        o.yaml:1:32: `cpu_bytes_to_use` is 1000, and one KV block takes 1001 bytes on each GPU
        hint: give room for at least one block
        ");
}

#[test]
fn mistakes_show_their_location() {
    insta::assert_snapshot!(refused(""), @r"
        o.yaml:1:1: the configuration of KV offloading is empty
          1 | 
            | ^
        hint: it has `kv_offload: { cpu_bytes_to_use: 8589934592 }`
        ");
    insta::assert_snapshot!(refused("kv_offload: {}"), @r"
        o.yaml:1:13: `cpu_bytes_to_use` is missing
          1 | kv_offload: {}
            |             ^
        hint: add `cpu_bytes_to_use: …`
        ");
    insta::assert_snapshot!(refused("kv_offload: {cpu_bytes_to_use: 0}"), @r"
        o.yaml:1:32: `cpu_bytes_to_use` is `0`
          1 | kv_offload: {cpu_bytes_to_use: 0}
            |                                ^
        hint: it must be a whole number from 1 to 18446744073709551615
        ");
    insta::assert_snapshot!(refused_beside_size("  evict_policy: lru"), @r"
        o.yaml:3:3: unknown key `evict_policy`
          3 |   evict_policy: lru
            |   ^^^^^^^^^^^^
        hint: did you mean `eviction_policy`?
        ");
    insta::assert_snapshot!(refused_beside_size("  eviction_policy: arc"), @r"
        o.yaml:3:20: `eviction_policy` is `arc`
          3 |   eviction_policy: arc
            |                    ^^^
        hint: BLIS simulates `lru` only: leave it out
        ");
    insta::assert_snapshot!(refused_beside_size("  eviction_policy: fifo"), @r"
        o.yaml:3:20: `eviction_policy` is `fifo`
          3 |   eviction_policy: fifo
            |                    ^^^^
        hint: known are lru
        ");
    insta::assert_snapshot!(refused_beside_size("  store_threshold: 2"), @r"
        o.yaml:3:20: `store_threshold` is 2
          3 |   store_threshold: 2
            |                    ^
        hint: with further tiers every block is stored: set 0 or 1, or leave it out
        ");
    insta::assert_snapshot!(refused_beside_size("  block_size: 32"), @r"
        o.yaml:3:15: `block_size` is 32, and a KV block has 16 tokens
          3 |   block_size: 32
            |               ^^
        hint: BLIS offloads single blocks: leave it out
        ");
    insta::assert_snapshot!(refused_beside_size("  blocks_per_chunk: 2"), @r"
        o.yaml:3:21: `blocks_per_chunk` is 2
          3 |   blocks_per_chunk: 2
            |                     ^
        hint: BLIS offloads single blocks: leave it out
        ");
    insta::assert_snapshot!(refused_beside_size("  block_size: 16\n  blocks_per_chunk: 1"), @r"
        o.yaml:4:21: `blocks_per_chunk` and `block_size` set the same
          4 |   blocks_per_chunk: 1
            |                     ^
        hint: leave out one of them
        ");
}

#[test]
fn mistakes_in_a_tier_show_their_location() {
    let refused = |tier: &str| refused_beside_size(&format!("  secondary_tiers:\n    - {tier}"));
    insta::assert_snapshot!(refused("{type: obj, root_dir: /x}"), @r"
        o.yaml:4:14: `type` is `obj`
          4 |     - {type: obj, root_dir: /x}
            |              ^^^
        hint: BLIS simulates tiers of type `fs` only
        ");
    insta::assert_snapshot!(refused("{type: fs, root_dir: /x, device_class: s3}"), @r"
        o.yaml:4:7: `direct_io` is missing
          4 |     - {type: fs, root_dir: /x, device_class: s3}
            |       ^
        hint: add `direct_io: true`, or `false` for buffered access, which may have other times
        ");
    insta::assert_snapshot!(refused("{type: fs, root_dir: /x, direct_io: true, device_class: nvme_gen5}"), @r"
        o.yaml:4:63: unknown device class `nvme_gen5`
          4 |     - {type: fs, root_dir: /x, direct_io: true, device_class: nvme_gen5}
            |                                                               ^^^^^^^^^
        hint: did you mean `nvme_gen3`?
        ");
    insta::assert_snapshot!(refused("{type: fs, root_dir: /x, direct_io: true, read_bandwidth: 1, base_latency: 1}"), @r"
        o.yaml:4:7: `write_bandwidth` is missing
          4 |     - {type: fs, root_dir: /x, direct_io: true, read_bandwidth: 1, base_latency: 1}
            |       ^
        hint: give `read_bandwidth`, `write_bandwidth` and `base_latency`, or a `device_class`
        ");
    insta::assert_snapshot!(refused("{type: fs, root_dir: /x, direct_io: true, device_class: s3, read_bandwidth: 0}"), @r"
        o.yaml:4:83: `read_bandwidth` is `0`
          4 |     - {type: fs, root_dir: /x, direct_io: true, device_class: s3, read_bandwidth: 0}
            |                                                                                   ^
        hint: it must be a number above 0
        ");
    insta::assert_snapshot!(refused("{type: fs, root_dir: '', direct_io: true, device_class: s3}"), @r"
        o.yaml:4:28: `root_dir` is empty
          4 |     - {type: fs, root_dir: '', direct_io: true, device_class: s3}
            |                            ^^
        hint: name a folder
        ");
    insta::assert_snapshot!(refused("{type: fs, root_dir: /x, locality: NEAR, direct_io: true, device_class: s3}"), @r"
        o.yaml:4:42: `locality` is `NEAR`
          4 |     - {type: fs, root_dir: /x, locality: NEAR, direct_io: true, device_class: s3}
            |                                          ^^^^
        hint: known are LOCAL, REMOTE
        ");
    insta::assert_snapshot!(refused("{type: fs, root_dir: /x, direct_io: true, device_class: s3, n_read_threads: 0}"), @r"
        o.yaml:4:83: `n_read_threads` is `0`
          4 |     - {type: fs, root_dir: /x, direct_io: true, device_class: s3, n_read_threads: 0}
            |                                                                                   ^
        hint: it must be a whole number from 1 to 65536
        ");
    insta::assert_snapshot!(refused("{type: fs, root_dir: /x, direct_io: true, device_class: s3, base_latency: .nan}"), @r"
        o.yaml:4:81: `base_latency` is `.nan`
          4 |     - {type: fs, root_dir: /x, direct_io: true, device_class: s3, base_latency: .nan}
            |                                                                                 ^^^^
        hint: it must be a number of microseconds from 0 to 1e9
        ");
}
