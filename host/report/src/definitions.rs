//! Definitions of the anomalies, for `--help`.

use blis_sim::metrics::Anomaly;

/// One paragraph per anomaly: its field in the JSON document, then its definition.
#[must_use]
pub fn anomaly_definitions() -> String {
    let paragraph = |anomaly: Anomaly| format!("  {}\n          {}\n", anomaly.name(), anomaly.definition());
    Anomaly::ALL.map(paragraph).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_and_defines_every_anomaly() {
        let text = anomaly_definitions();
        assert!(text.starts_with("  priority_inversions\n          requests that entered the batch"), "{text}");
        assert_eq!(text.lines().count(), 2 * Anomaly::ALL.len(), "{text}");
    }

    #[test]
    fn docs_define_them_in_the_same_words() {
        let page = include_str!("../../../docs/metrics.md");
        for anomaly in Anomaly::ALL {
            let line = format!("| `{}` | {} |", anomaly.name(), anomaly.definition());
            assert!(page.contains(&line), "docs/metrics.md lacks this line:\n{line}");
        }
    }
}
