//! Names of GPUs as people, drivers and clusters write them.

/// Whether both name the same GPU: without case, separators and the maker (`NVIDIA H100-SXM`, `h100_sxm`).
#[must_use]
pub fn same(known: &str, given: &str) -> bool {
    let given = plain(given);
    !given.is_empty() && plain(known) == given
}

fn plain(name: &str) -> String {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let without = ["nvidia", "amdinstinct", "amd"].iter().find_map(|maker| plain.strip_prefix(maker));
    without.map_or_else(|| plain.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn names_differ_in_letters_and_digits_only() {
        for given in ["H100-SXM", "h100_sxm", "NVIDIA H100 SXM", "nvidia-h100-sxm"] {
            assert!(same("H100-SXM", given), "{given}");
        }
        assert!(same("MI300X", "AMD Instinct MI300X"));
        assert!(!same("H100", "H10") && !same("L4", "L40S") && !same("", "") && !same("H100", "NVIDIA"));
    }
}
