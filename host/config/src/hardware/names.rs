//! Names of GPUs as people, drivers and clusters write them.

/// Whether both name the same GPU: without case, separators and the maker (`NVIDIA H100-SXM`, `h100_sxm`).
#[must_use]
pub fn same(known: &str, given: &str) -> bool {
    let given = plain(given);
    !given.is_empty() && plain(known) == given
}

/// Names of several GPUs, with the one that is usually meant, and the others.
const USUAL: [UsualGpu; 1] = [UsualGpu { given: "A100", meant: "A100-SXM", others: "A100-40GB, A100-PCIE-40GB" }];

/// The GPU that a name of several means.
#[derive(Clone, Copy, Debug)]
pub struct UsualGpu {
    given: &'static str,
    /// Name of the GPU that is taken.
    pub meant: &'static str,
    others: &'static str,
}

impl UsualGpu {
    /// That of a name, if it is one of several GPUs.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        USUAL.into_iter().find(|usual| same(usual.given, name))
    }

    /// The note about it.
    #[must_use]
    pub fn note(self) -> String {
        let Self { given, meant, others } = self;
        format!("hardware {given}: {meant}, with 80 GB; others are {others}")
    }
}

fn plain(name: &str) -> String {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let without = ["nvidia", "amdinstinct", "amd"].iter().find_map(|maker| plain.strip_prefix(maker));
    without.map_or_else(|| plain.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{UsualGpu, same};

    #[test]
    fn names_differ_in_letters_and_digits_only() {
        for given in ["H100-SXM", "h100_sxm", "NVIDIA H100 SXM", "nvidia-h100-sxm"] {
            assert!(same("H100-SXM", given), "{given}");
        }
        assert!(same("MI300X", "AMD Instinct MI300X"));
        assert!(!same("H100", "H10") && !same("L4", "L40S") && !same("", "") && !same("H100", "NVIDIA"));
    }

    #[test]
    fn a_name_of_several_gpus_means_the_usual_one() {
        assert_eq!(UsualGpu::of("NVIDIA-A100").map(|usual| usual.meant), Some("A100-SXM"));
        assert!(UsualGpu::of("A100-40").is_none() && UsualGpu::of("H100").is_none());
    }
}
