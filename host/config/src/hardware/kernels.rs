//! The kernels and links of a GPU: those of its own file, else of another GPU.

use blis_sim::latency::physics::Kernels;

use super::measurements::{DEFAULT, Network};
use super::{Catalogue, Hardware};
use crate::error::ConfigError;
use blis_diag::Diagnostic;

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
