//! The event loop: requests arrive, the instance works, until nothing is left or time is up.

use crate::instance::{Instance, Stuck};
use crate::outcome::{Counters, Sink};
use crate::request::Request;
use crate::units::Micros;

/// Simulates `instance` under `arrivals` (in order of time) up to and including `horizon`.
///
/// Arrivals are not events in a heap but a cursor: before each one the instance catches up with
/// everything that happens earlier.
///
/// # Errors
/// [`Stuck`] if the instance would work for ever without finishing anything.
pub fn run<I: Instance, S: Sink>(
    mut instance: I,
    arrivals: impl IntoIterator<Item = Request>,
    horizon: Micros,
    sink: &mut S,
) -> Result<Counters, Stuck> {
    for request in arrivals {
        if request.arrival > horizon {
            break;
        }
        instance.advance(request.arrival, sink)?;
        instance.arrive(request, sink);
    }
    instance.advance(horizon.saturating_add(Micros(1)), sink)?;
    Ok(instance.finish(horizon, sink))
}
