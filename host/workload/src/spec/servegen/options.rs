//! How a ServeGen folder is read.

/// The way to read a ServeGen folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServeGenReading {
    /// One client per chunk, with one window per row of its trace, and lengths as measured.
    #[default]
    Measured,
    /// As BLIS: cohorts with mean rates and lognormal lengths, at three times of the day.
    Blis,
}

/// Options for reading a folder.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct ServeGenOptions {
    pub reading: ServeGenReading,
    /// Start of the selected part of the measurement, s.
    pub start_secs: u32,
    /// Length of the selected part, s.
    pub duration_secs: Option<u32>,
    /// For BLIS's reading: simulated time of each part of the day, s.
    pub window_secs: u32,
    /// For BLIS's reading: pause after each part, s.
    pub drain_secs: u32,
    /// For BLIS's reading: seed that selects the window of the day and the classes of clients.
    pub seed: u64,
}

impl Default for ServeGenOptions {
    fn default() -> Self {
        Self {
            reading: ServeGenReading::Measured,
            start_secs: 0,
            duration_secs: None,
            window_secs: 600,
            drain_secs: 180,
            seed: 42,
        }
    }
}
