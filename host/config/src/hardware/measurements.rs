//! Measured kernels and links as the file of a GPU has them.

use blis_sim::latency::physics::{Curve, GroupLink, Kernels, LinkSegment, Links, RowCurve, ServerNode};
use serde::Deserialize;

/// Measured kernels and links in the file of a GPU, or the GPUs that lend theirs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OwnMeasurements {
    pub(super) kernels: Option<KernelsEntry>,
    pub(super) links: Option<LinksEntry>,
    pub(super) node: Option<NodeEntry>,
    pub(super) kernels_of: Option<String>,
    pub(super) links_of: Option<String>,
}

impl OwnMeasurements {
    /// Checks every number; the message says which is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let what = |error: blis_sim::latency::LatencyError| {
            format!("kernels: {}", error.to_string().split('\n').next().unwrap_or_default())
        };
        let (node, _) = self.node.clone().unwrap_or_default().resolve();
        let links = match &self.links {
            Some(links) => links.links(node),
            // Only the node is checked.
            None => LinksEntry::any().links(node),
        };
        links.check().map_err(what)?;
        self.kernels.as_ref().map_or(Ok(()), |kernels| kernels.curves(links).check()).map_err(what)
    }
}

/// The GPU that lends its curves to one without any: curves are shares of peak figures.
pub(super) const DEFAULT: &str = "H100";

/// The curves in a file. See [`Kernels`].
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct KernelsEntry {
    pub(super) source: String,
    gemm: CurveEntry,
    gemm_8bit: Vec<RowCurveEntry>,
    #[serde(default)]
    gemm_4bit: Vec<RowCurveEntry>,
    experts: CurveEntry,
    experts_8bit: CurveEntry,
    experts_4bit: Option<CurveEntry>,
    experts_4bit_weights: Option<CurveEntry>,
    expert_activations: f64,
    attention_launch_us: f64,
    /// That of decodes, where it was not measured.
    attention_prompt_launch_us: Option<f64>,
    attention_head_us: f64,
    attention_bandwidth: f64,
    /// That of 16 bits, where it was not measured.
    attention_bandwidth_8bit: Option<f64>,
    #[serde(default)]
    attention_mixed_rows: f64,
    attention_flops: f64,
    /// `attention_bandwidth`, where it was not measured.
    attention_traffic: Option<f64>,
}

impl KernelsEntry {
    pub(super) fn curves(&self, links: Links) -> Kernels {
        let by_rows = |ranges: &[RowCurveEntry]| ranges.iter().map(|range| range.curve()).collect();
        Kernels {
            gemm: self.gemm.curve(),
            gemm_8bit: by_rows(&self.gemm_8bit),
            gemm_4bit: by_rows(&self.gemm_4bit),
            experts: self.experts.curve(),
            experts_8bit: self.experts_8bit.curve(),
            experts_4bit: self.experts_4bit.map(CurveEntry::curve),
            experts_4bit_weights: self.experts_4bit_weights.map(CurveEntry::curve),
            expert_activations: self.expert_activations,
            attention_launch_us: self.attention_launch_us,
            attention_prompt_launch_us: self.attention_prompt_launch_us.unwrap_or(self.attention_launch_us),
            attention_head_us: self.attention_head_us,
            attention_bandwidth: self.attention_bandwidth,
            attention_bandwidth_8bit: self.attention_bandwidth_8bit.unwrap_or(self.attention_bandwidth),
            attention_mixed_rows: self.attention_mixed_rows,
            attention_flops: self.attention_flops,
            attention_traffic: self.attention_traffic.unwrap_or(self.attention_bandwidth),
            links,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct CurveEntry {
    launch_us: f64,
    bandwidth: f64,
    flops: f64,
    #[serde(default)]
    tile_rows: f64,
    #[serde(default)]
    input_passes: f64,
    #[serde(default)]
    narrow_outputs: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct RowCurveEntry {
    /// Absent in the last one.
    up_to_rows: Option<f64>,
    launch_us: f64,
    bandwidth: f64,
    flops: f64,
    #[serde(default)]
    tile_rows: f64,
    #[serde(default)]
    input_passes: f64,
    #[serde(default)]
    narrow_outputs: f64,
}

impl CurveEntry {
    fn curve(self) -> Curve {
        let Self { launch_us, bandwidth, flops, tile_rows, input_passes, narrow_outputs } = self;
        Curve { launch_us, bandwidth, flops, tile_rows, input_passes, narrow_outputs }
    }
}

impl RowCurveEntry {
    fn curve(self) -> RowCurve {
        let Self { up_to_rows, launch_us, bandwidth, flops, tile_rows, input_passes, narrow_outputs } = self;
        let curve = Curve { launch_us, bandwidth, flops, tile_rows, input_passes, narrow_outputs };
        RowCurve { up_to_rows: up_to_rows.unwrap_or(f64::INFINITY), curve }
    }
}

/// The collectives in a file. See [`Links`].
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct LinksEntry {
    pub(super) source: String,
    all_reduce: Vec<GroupEntry>,
    gather: Vec<GroupEntry>,
}

impl LinksEntry {
    fn any() -> Self {
        let segments = vec![SegmentEntry { from_bytes: 0.0, launch_us: 1.0, gb_s: 1.0 }];
        let groups = vec![GroupEntry { gpus: 2, segments }];
        Self { source: String::new(), all_reduce: groups.clone(), gather: groups }
    }

    pub(super) fn links(&self, node: ServerNode) -> Links {
        let segment =
            |&SegmentEntry { from_bytes, launch_us, gb_s }: &SegmentEntry| LinkSegment { from_bytes, launch_us, gb_s };
        let group =
            |group: &GroupEntry| GroupLink { gpus: group.gpus, segments: group.segments.iter().map(segment).collect() };
        let groups = |groups: &[GroupEntry]| groups.iter().map(group).collect();
        Links { all_reduce: groups(&self.all_reduce), gather: groups(&self.gather), node }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct GroupEntry {
    gpus: u32,
    segments: Vec<SegmentEntry>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct SegmentEntry {
    from_bytes: f64,
    launch_us: f64,
    gb_s: f64,
}

/// The node in a file. See [`ServerNode`].
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeEntry {
    gpus: u32,
    network: String,
    network_gb_s: f64,
    network_us: f64,
    source: String,
}

impl Default for NodeEntry {
    /// The usual server: for GPUs without one in their file.
    fn default() -> Self {
        Self {
            gpus: 8,
            network: "InfiniBand NDR".into(),
            network_gb_s: 50.0,
            network_us: 10.0,
            source: "assumed: the GPU's file has no `node`; figures of NVIDIA's DGX H100".into(),
        }
    }
}

impl NodeEntry {
    pub(super) fn resolve(self) -> (ServerNode, Network) {
        let Self { gpus, network, network_gb_s, network_us, source } = self;
        (ServerNode { gpus, network_gb_s, network_us }, Network { name: network, source })
    }
}

/// The network between nodes with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Its name, such as `InfiniBand NDR`.
    pub name: String,
    /// Origin of its figures.
    pub source: String,
}
