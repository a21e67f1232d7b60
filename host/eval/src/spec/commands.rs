//! Sets of commands, by which the table of settings says which of them have a setting as a flag.

/// `blis run` and `blis regret`.
pub const RUN: u16 = 1;
/// `blis replay`.
pub const REPLAY: u16 = 1 << 1;
/// `blis compare`.
pub const COMPARE: u16 = 1 << 2;
/// `blis capacity`.
pub const CAPACITY: u16 = 1 << 3;
/// `blis size`.
pub const SIZE: u16 = 1 << 4;
/// `blis sweep`.
pub const SWEEP: u16 = 1 << 5;
/// `blis calibrate`.
pub const CALIBRATE: u16 = 1 << 6;
/// `blis mock-server`.
pub const MOCK: u16 = 1 << 7;
/// `blis observe`.
pub const OBSERVE: u16 = 1 << 8;
/// `blis workload inspect` and `convert`.
pub const TRACES: u16 = 1 << 9;
/// The commands that search over several runs.
pub const PLANNING: u16 = CAPACITY | SIZE | SWEEP;
/// The commands that simulate a service.
pub const SIMULATED: u16 = RUN | REPLAY | COMPARE | PLANNING | CALIBRATE | MOCK;
/// The commands that generate requests.
pub const GENERATED: u16 = RUN | COMPARE | PLANNING | OBSERVE;
/// The commands that evaluate runs.
pub const EVALUATED: u16 = RUN | REPLAY | COMPARE;
