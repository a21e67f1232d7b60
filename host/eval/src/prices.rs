//! Prices of GPUs: the file of `--prices`. There is no default, because prices differ by provider, contract and month.

use std::path::Path;

use blis_diag::yaml::{ABOVE_0, Document, Entries, Word, explain};
use blis_diag::{Diagnostic, Location, name_hint, unreadable};
use serde::{Deserialize, Serialize};

use crate::error::RunError;

/// Longer files are refused as price lists.
const BYTES_MAX: u64 = 1 << 20;

/// A price list of GPUs, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// The file, as messages name it.
    file: String,
    /// When the prices were valid, as written.
    date: String,
    /// Where they are from.
    source: String,
    /// GPU and dollars per GPU-hour.
    gpus: Vec<(String, f64)>,
}

/// Price of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuPrice {
    /// The GPU, as the file has it.
    pub gpu: String,
    /// Dollars per GPU-hour. Unit: $/h.
    pub usd_per_gpu_hour: f64,
    /// When it was valid, as the file has it.
    pub date: String,
    /// Where it is from.
    pub source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrices {
    date: Word,
    source: Word,
    usd_per_gpu_hour: Entries<Word>,
}

impl Prices {
    /// Reads a price list (YAML).
    ///
    /// # Errors
    /// The first mistake, with its location.
    pub fn load(path: &Path) -> Result<Self, RunError> {
        let file = path.display().to_string();
        let text =
            blis_diag::read_text(path, BYTES_MAX).map_err(|error| RunError::refused(unreadable(&file, &error)))?;
        Self::parse(&file, &text).map_err(RunError::refused)
    }

    /// Parses `text`, the content of `file`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(file: &str, text: &str) -> Result<Self, Diagnostic> {
        const FORM: &str = "a price list has `date`, `source` and `usd_per_gpu_hour: { H100: 2.49 }`";
        let document = Document { file: file.into(), text };
        let raw: Option<RawPrices> = document.read().map_err(|error| {
            let (what, hint) = explain(&error);
            match error.location() {
                Some(at) => document.wrong(at, what, hint),
                None => Diagnostic::new(format!("{file}: {what}")).hint(hint),
            }
        })?;
        let Some(raw) = raw else {
            return Err(Diagnostic::in_text(Location::start(file), text, "the price list is empty").hint(FORM));
        };
        let mut gpus: Vec<(String, f64)> = Vec::new();
        for (gpu, price) in &raw.usd_per_gpu_hour.0 {
            let number = document.number(format_args!("the price of `{}`", gpu.value), price, ABOVE_0)?;
            if gpus.iter().any(|(other, _)| other.eq_ignore_ascii_case(&gpu.value)) {
                return Err(document.wrong(gpu.referenced, format!("`{}` has two prices", gpu.value), "keep one"));
            }
            gpus.push((gpu.value.clone(), number));
        }
        Ok(Self { file: file.to_owned(), date: raw.date.value, source: raw.source.value, gpus })
    }

    /// The GPUs of the list, in its order.
    pub fn gpus(&self) -> impl Iterator<Item = &str> {
        self.gpus.iter().map(|(gpu, _)| gpu.as_str())
    }

    /// The price of the GPU `hardware`, in upper or lower case.
    ///
    /// # Errors
    /// If the list has none.
    pub fn price(&self, hardware: &str) -> Result<GpuPrice, RunError> {
        let found = self.gpus.iter().find(|(gpu, _)| gpu.eq_ignore_ascii_case(hardware));
        let Some((gpu, usd_per_gpu_hour)) = found else {
            let known: Vec<&str> = self.gpus.iter().map(|(gpu, _)| gpu.as_str()).collect();
            let what = format!("{} has no price of `{hardware}`", self.file);
            return Err(
                RunError::usage(what).hint(format!("add it to `usd_per_gpu_hour`; {}", name_hint(hardware, &known)))
            );
        };
        Ok(GpuPrice {
            gpu: gpu.clone(),
            usd_per_gpu_hour: *usd_per_gpu_hour,
            date: self.date.clone(),
            source: self.source.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_has_a_date_and_a_source() {
        let text = "date: 2026-01-20\nsource: a list\nusd_per_gpu_hour: { H100: 2.49, A100-SXM: 1.49 }\n";
        let prices = Prices::parse("p.yaml", text).expect("a list");
        let price = prices.price("h100").expect("a price");
        assert_eq!(
            (price.usd_per_gpu_hour, price.date.as_str(), price.source.as_str()),
            (2.49, "2026-01-20", "a list")
        );
        let missing = prices.price("H200").expect_err("not in the list").text();
        assert!(missing.contains("p.yaml has no price of `H200`") && missing.contains("H100"), "{missing}");
    }

    #[test]
    fn mistakes_show_their_line() {
        let mistake = |text: &str| Prices::parse("p.yaml", text).expect_err("a mistake").to_string();
        let texts = [
            "",
            "date: 2026-01-20\nusd_per_gpu_hour: {}\n",
            "date: 2026-01-20\nsource: a\nusd_per_gpu_hour: { H100: 0 }\n",
            "date: 2026-01-20\nsource: a\nusd_per_gpu_hour: { H100: 1, h100: 2 }\n",
            "date: 2026-01-20\nsource: a\nusd_per_gpu_hour: { H100: 1 }\ncurrency: EUR\n",
        ];
        insta::assert_snapshot!(texts.map(mistake).join("\n"), @r"
        p.yaml:1:1: the price list is empty
          1 | 
            | ^
        hint: a price list has `date`, `source` and `usd_per_gpu_hour: { H100: 2.49 }`
        p.yaml:2:1: `source` is missing
          2 | usd_per_gpu_hour: {}
            | ^^^^^^^^^^^^^^^^
        hint: add `source: …`
        p.yaml:3:27: the price of `H100` is `0`
          3 | usd_per_gpu_hour: { H100: 0 }
            |                           ^
        hint: it must be a number above 0
        p.yaml:3:30: `h100` has two prices
          3 | usd_per_gpu_hour: { H100: 1, h100: 2 }
            |                              ^^^^
        hint: keep one
        p.yaml:4:1: unknown key `currency`
          4 | currency: EUR
            | ^^^^^^^^
        hint: known are date, source, usd_per_gpu_hour
        ");
    }
}
