//! The figures of CPU tiers as text.

use std::fmt;

use blis_sim::metrics::OffloadReport;

use super::grouped::Grouped;

/// The row of the summary.
pub(super) struct CpuTierText<'a>(pub &'a OffloadReport);

impl fmt::Display for CpuTierText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OffloadReport { counters, gpu_hit_tokens, cpu_hit_tokens, load_wait } = self.0;
        let gb = |bytes: u64| bytes as f64 / 1e9;
        write!(
            f,
            "{} tokens found there, {} on the GPU; {:.1} GB loaded, {:.1} GB stored",
            Grouped(*cpu_hit_tokens),
            Grouped(*gpu_hit_tokens),
            gb(counters.loaded_bytes),
            gb(counters.stored_bytes)
        )?;
        if load_wait.count > 0 {
            write!(f, "; wait for loads {:.1} ms p50, {:.1} ms p99", load_wait.p50_ms, load_wait.p99_ms)?;
        }
        let rest = [
            (counters.evicted, "chunks evicted"),
            (counters.refused, "chunks without room"),
            (counters.skipped, "chunks offered too rarely"),
            (counters.flushes, "steps waited for stores"),
        ];
        rest.into_iter()
            .filter(|&(count, _)| count > 0)
            .try_for_each(|(count, what)| write!(f, "; {} {what}", Grouped(count)))?;
        let below = &counters.secondary;
        if below.written_bytes + below.dropped == 0 {
            return Ok(());
        }
        write!(
            f,
            "; of these tokens {} from the secondary tier, {:.1} GB read, {:.1} GB written",
            Grouped(below.hit_tokens),
            gb(below.read_bytes),
            gb(below.written_bytes)
        )?;
        [(below.refused, "chunks without room in the CPU tier"), (below.dropped, "chunks dropped by back-pressure")]
            .into_iter()
            .filter(|&(count, _)| count > 0)
            .try_for_each(|(count, what)| write!(f, "; {} {what}", Grouped(count)))
    }
}

#[cfg(test)]
mod tests {
    use blis_sim::outcome::OffloadCounters;
    use blis_sim::units::Micros;

    use super::*;

    #[test]
    fn the_row_names_what_happened() {
        let mut report = OffloadReport { gpu_hit_tokens: 1_000, cpu_hit_tokens: 32_000, ..OffloadReport::default() };
        report.counters = OffloadCounters { loads: 3, loaded_bytes: 4_200_000_000, ..report.counters };
        insta::assert_snapshot!(CpuTierText(&report), @"32 000 tokens found there, 1 000 on the GPU; 4.2 GB loaded, 0.0 GB stored");
        report.counters = OffloadCounters { evicted: 5, flushes: 2, flush_time: Micros(1500), ..report.counters };
        report.load_wait.count = 3;
        insta::assert_snapshot!(CpuTierText(&report), @"32 000 tokens found there, 1 000 on the GPU; 4.2 GB loaded, 0.0 GB stored; wait for loads 0.0 ms p50, 0.0 ms p99; 5 chunks evicted; 2 steps waited for stores");
    }
}
