//! Kernels and links in the file of a GPU, and whose are used where a file has none.

use blis_sim::latency::physics::{Curve, GroupLink, Kernels, LinkSegment, Links, RowCurve, ServerNode};
use serde::Deserialize;

use super::{Catalogue, Hardware, OwnMeasurements};
use crate::error::ConfigError;
use blis_diag::Diagnostic;

/// The GPU whose curves are used for one without any: curves are shares of peak figures.
pub(super) const DEFAULT: &str = "H100";

/// Curves of the kernels of a GPU with their origin.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredKernels {
    /// Curves and links.
    pub curves: Kernels,
    /// Origin of the measurement, and the day on which the curves were fitted.
    pub source: String,
    /// The GPU that was measured, if it is another.
    pub measured_on: Option<String>,
    /// The same of the links between GPUs.
    pub links_source: String,
    /// The GPU whose links were measured, if it is another.
    pub links_measured_on: Option<String>,
    /// The network between nodes.
    pub network: Network,
}

/// The network between nodes with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Its name, such as `InfiniBand NDR`.
    pub name: String,
    /// Origin of its figures.
    pub source: String,
}

impl Catalogue {
    /// The kernels and links of a GPU: those of its own file, else of the GPU that the file names, else of H100.
    ///
    /// # Errors
    /// If the file names a GPU that is unknown or was not measured.
    pub fn kernels(&self, hardware: &Hardware) -> Result<MeasuredKernels, ConfigError> {
        let own = hardware.own();
        let curves_of = self.measured(hardware, own.kernels.is_some(), own.kernels_of.as_deref())?;
        let links_from = own.links_of.as_deref().or(own.kernels_of.as_deref());
        let links_of = self.measured(hardware, own.links.is_some(), links_from)?;
        let missing = |what: &str, of: &Hardware| {
            let message = format!("GPU `{}`: {what} of `{}` were not measured", hardware.name, of.name);
            let hint = "name a GPU whose file has them: `kernels_of`, `links_of`";
            ConfigError::Parse(Diagnostic::new(message).hint(hint))
        };
        let kernels = curves_of.own().kernels.as_ref().ok_or_else(|| missing("kernels", curves_of))?;
        let links = links_of.own().links.as_ref().ok_or_else(|| missing("links", links_of))?;
        let (node, network) = own.node.clone().unwrap_or_default().resolve();
        let other = |of: &Hardware| (of.name != hardware.name).then(|| of.name.clone());
        Ok(MeasuredKernels {
            curves: kernels.curves(links.links(node)),
            source: kernels.source.clone(),
            measured_on: other(curves_of),
            links_source: links.source.clone(),
            links_measured_on: other(links_of),
            network,
        })
    }

    /// `hardware` itself, or the GPU that its file names, or the default.
    fn measured<'a>(
        &'a self,
        hardware: &'a Hardware,
        own: bool,
        other: Option<&str>,
    ) -> Result<&'a Hardware, ConfigError> {
        if own { Ok(hardware) } else { self.find(other.unwrap_or(DEFAULT)) }
    }
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

/// The curves in a file. See [`Kernels`].
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct KernelsEntry {
    source: String,
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

impl KernelsEntry {
    fn curves(&self, links: Links) -> Kernels {
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

/// The collectives in a file. See [`Links`].
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct LinksEntry {
    source: String,
    all_reduce: Vec<GroupEntry>,
    gather: Vec<GroupEntry>,
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

impl LinksEntry {
    fn any() -> Self {
        let segments = vec![SegmentEntry { from_bytes: 0.0, launch_us: 1.0, gb_s: 1.0 }];
        let groups = vec![GroupEntry { gpus: 2, segments }];
        Self { source: String::new(), all_reduce: groups.clone(), gather: groups }
    }

    fn links(&self, node: ServerNode) -> Links {
        let segment =
            |&SegmentEntry { from_bytes, launch_us, gb_s }: &SegmentEntry| LinkSegment { from_bytes, launch_us, gb_s };
        let group =
            |group: &GroupEntry| GroupLink { gpus: group.gpus, segments: group.segments.iter().map(segment).collect() };
        let groups = |groups: &[GroupEntry]| groups.iter().map(group).collect();
        Links { all_reduce: groups(&self.all_reduce), gather: groups(&self.gather), node }
    }
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
    /// The usual server: for GPUs whose file does not say.
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
    fn resolve(self) -> (ServerNode, Network) {
        let Self { gpus, network, network_gb_s, network_us, source } = self;
        (ServerNode { gpus, network_gb_s, network_us }, Network { name: network, source })
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use blis_sim::latency::physics::Links;
    use std::path::Path;

    fn embedded() -> Catalogue {
        Catalogue::load(None).unwrap()
    }

    #[test]
    fn every_gpu_has_kernels_of_its_own_or_says_whose() {
        let catalogue = embedded();
        let borrowed: Vec<String> = catalogue
            .entries()
            .filter_map(|gpu| {
                let kernels = catalogue.kernels(gpu).unwrap();
                kernels.curves.check().unwrap();
                Some(format!("{} of {}", gpu.name, kernels.measured_on?))
            })
            .collect();
        insta::assert_snapshot!(
            borrowed.join(", "),
            @"A100-40GB of A100-SXM, A100-PCIE-40GB of A100-SXM, A10G of A100-SXM, GB200 of B200, H100-NVL of H100, H20 of H100, L4 of L40S, MI300X of H100, RTX-PRO-6000-WORKSTATION of RTX-PRO-6000-SERVER, RTX-PRO-6000 of RTX-PRO-6000-SERVER"
        );
    }

    /// No collective exceeds the links of its GPU, GB/s per direction of the data sheets, by more than reductions inside NVLink's switch
    /// allow. Sizes counted in elements of two bytes instead of bytes would appear at half of what they are.
    #[test]
    fn collectives_are_as_fast_as_their_links_and_no_faster() {
        let catalogue = embedded();
        let bus_gb_s = |name: &str, gpus: f64| {
            let Links { all_reduce, .. } = &catalogue.kernels(catalogue.find(name).unwrap()).unwrap().curves.links;
            let group = all_reduce.iter().find(|group| f64::from(group.gpus) == gpus).unwrap();
            let bytes = 1e9;
            2.0 * (gpus - 1.0) / gpus * bytes / group.us(bytes) / 1e3
        };
        // NVLink 3: 300 GB/s, NVLink 4: 450, NVLink 5: 900; large messages reach 65 to 95 % of it.
        for (name, gpus, peak) in
            [("A100-SXM", 8.0, 300.0), ("H100", 2.0, 450.0), ("H100", 8.0, 450.0), ("H200", 8.0, 450.0)]
        {
            let gb_s = bus_gb_s(name, gpus);
            assert!((0.6 * peak..1.1 * peak).contains(&gb_s), "{name}, {gpus} GPUs: {gb_s} GB/s");
        }
        // PCIe 4: 32 GB/s, PCIe 5: 64.
        for (name, peak) in [("L40S", 32.0), ("RTX-PRO-6000-SERVER", 64.0)] {
            let gb_s = bus_gb_s(name, 2.0);
            assert!((0.5 * peak..peak).contains(&gb_s), "{name}: {gb_s} GB/s");
        }
    }

    #[test]
    fn a_gpu_without_kernels_takes_those_it_names() {
        let mut catalogue = embedded();
        let text = "name: mine\ntflops_fp16: 100\nhbm_tb_s: 1\nkernels_of: A100-SXM\nlinks_of: L40S\n";
        let mine = parse(Path::new("mine.yaml"), text).unwrap().remove(0);
        let kernels = catalogue.kernels(&mine).unwrap();
        assert_eq!(kernels.measured_on.as_deref(), Some("A100-SXM"));
        assert_eq!(kernels.links_measured_on.as_deref(), Some("L40S"));
        let a100 = catalogue.kernels(catalogue.find("A100-SXM").unwrap()).unwrap();
        assert_eq!(kernels.curves.gemm, a100.curves.gemm);
        assert_eq!(a100.measured_on, None);
        let text = "name: other\ntflops_fp16: 100\nhbm_tb_s: 1\nkernels_of: mine\n";
        let other = parse(Path::new("other.yaml"), text).unwrap().remove(0);
        catalogue.given.push(mine);
        insta::assert_snapshot!(catalogue.kernels(&other).unwrap_err(), @r"
        GPU `other`: kernels of `mine` were not measured
        hint: name a GPU whose file has them: `kernels_of`, `links_of`
        ");
        let text = "name: plain\ntflops_fp16: 100\nhbm_tb_s: 1\n";
        let plain = parse(Path::new("plain.yaml"), text).unwrap().remove(0);
        assert_eq!(catalogue.kernels(&plain).unwrap().measured_on.as_deref(), Some("H100"));
    }

    #[test]
    fn invalid_links_and_nodes_are_refused() {
        let refused = |more: &str| {
            let text = format!("tflops_fp16: 100\nhbm_tb_s: 1\n{more}");
            parse(Path::new("mine.yaml"), &text).unwrap_err().to_string()
        };
        let node = "node: {gpus: 0, network: X, network_gb_s: 50, network_us: 10, source: Y}\n";
        insta::assert_snapshot!(refused(node), @"mine.yaml: GPU `mine`: kernels: `node` is missing or zero");
        let links = "links:\n  source: X\n  all_reduce: []\n  gather: []\n";
        insta::assert_snapshot!(refused(links), @"mine.yaml: GPU `mine`: kernels: `all_reduce` is missing or zero");
    }
}
