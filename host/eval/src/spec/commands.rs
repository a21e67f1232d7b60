//! Sets of commands, by which the table of settings says which of them have a setting as a flag.

/// `blis run` and `blis regret`.
pub const RUN: u16 = 1;
/// The flags of `blis replay`.
pub const REPLAY: u16 = 1 << 1;
/// The flags of `blis compare`.
pub const COMPARE: u16 = 1 << 2;
/// The flags of `blis capacity`.
pub const CAPACITY: u16 = 1 << 3;
/// The flags of `blis size`.
pub const SIZE: u16 = 1 << 4;
/// The flags of `blis sweep`.
pub const SWEEP: u16 = 1 << 5;
/// The flags of `blis calibrate`.
pub const CALIBRATE: u16 = 1 << 6;
/// The flags of `blis mock-server`.
pub const MOCK: u16 = 1 << 7;
/// The flags of `blis observe`.
pub const OBSERVE: u16 = 1 << 8;
/// `blis workload inspect` and `convert`.
pub const TRACES: u16 = 1 << 9;
/// The flags of `blis advise`.
pub const ADVISE: u16 = 1 << 10;
/// The flags of `blis diagnose`.
pub const DIAGNOSE: u16 = 1 << 11;
/// The commands that search over several runs.
pub const PLANNING: u16 = CAPACITY | SIZE | SWEEP | ADVISE | DIAGNOSE;
/// The commands that simulate a service.
pub const SIMULATED: u16 = RUN | REPLAY | COMPARE | PLANNING | CALIBRATE | MOCK;
/// The commands that generate requests.
pub const GENERATED: u16 = RUN | COMPARE | PLANNING | OBSERVE;
/// The commands that evaluate runs.
pub const EVALUATED: u16 = RUN | REPLAY | COMPARE;
