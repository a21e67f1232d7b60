//! What a form of the trace writes: tracks, and the events on them.

use std::io;

use blis_sim::ids::InstanceIndex;
use blis_sim::units::Micros;

/// A form of the trace. Events of a track follow each other in order of time, and end in the opposite order of their begin.
pub(super) trait TraceForm {
    /// A process; `steps`: the name of its track [`Track::STEPS`]. Called before its events.
    fn process(&mut self, process: u32, name: &str, steps: &str) -> io::Result<()>;
    /// A track of requests. Called before its events.
    fn lane(&mut self, track: Track) -> io::Result<()>;
    fn slice(&mut self, track: Track, slice: &TraceSlice<'_>) -> io::Result<()>;
    /// A request, or a stage of it, begins.
    fn begin(
        &mut self,
        track: Track,
        request: u32,
        name: &str,
        at: Micros,
        properties: Properties<'_>,
    ) -> io::Result<()>;
    /// What began last on the track ends.
    fn end(&mut self, track: Track, request: u32, name: &str, at: Micros) -> io::Result<()>;
}

/// A line of the viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// Number of its process: 1 for the gateway, from 2 on for instances.
    pub process: u32,
    /// [`Self::STEPS`], or the lane of a request.
    pub line: u32,
}

impl Track {
    pub const GATEWAY: u32 = 1;
    /// Steps of an instance, routing in the gateway.
    pub const STEPS: u32 = 0;

    pub fn process_of(instance: InstanceIndex) -> u32 {
        instance.0 + 2
    }
}

/// The counters of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Running,
    KvPercent,
    Waiting,
}

impl Counter {
    /// The one that changes most often comes first.
    pub const ALL: [(Self, &str); 3] = [
        (Self::Running, "running requests"),
        (Self::KvPercent, "KV blocks in use, %"),
        (Self::Waiting, "waiting requests"),
    ];
}

/// The counters at the beginning of a step, in the order of [`Counter::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CounterValues {
    pub values: [u64; 3],
    /// Which of them have changed since the step before.
    pub changed: [bool; 3],
}

/// A number or a text of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Property<'a> {
    Number(u64),
    Text(&'a str),
}

/// Properties of an event, by name.
pub(super) type Properties<'a> = &'a [(&'static str, Property<'a>)];

/// An event of a track, in which nothing else happens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TraceSlice<'a> {
    pub name: &'a str,
    /// Its begin and its end.
    pub times: (Micros, Micros),
    pub properties: Properties<'a>,
    /// The arrows that start or end here.
    pub arrows: &'a [Arrow],
    pub counters: CounterValues,
}

/// An arrow of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arrow {
    Starts(ArrowPath, u32),
    Ends(ArrowPath, u32),
}

/// From where to where an arrow leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ArrowPath {
    /// From the gateway to its first step.
    Routing,
    /// From its last step on its prefill instance to its first on its decode instance.
    Transfer,
}
