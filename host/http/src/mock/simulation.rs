//! The thread of the simulation: it waits for the next event or request, and simulates up to the present.

use std::sync::mpsc::{Receiver, RecvTimeoutError};

use blis_eval::error::RunError;
use blis_eval::live::LiveService;
use blis_sim::ids::RequestId;
use blis_sim::request::Request;
use blis_sim::units::Micros;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::deliveries::{Deliveries, StreamEvent};
use crate::clock::SimulatedClock;

/// A message to the simulation.
pub(super) enum SimulationCommand {
    /// A request that was read at its arrival time, and the receiver of its tokens.
    Submit(Box<Request>, UnboundedSender<StreamEvent>),
    /// The client of the request is gone.
    Cancel(RequestId),
    /// The page of `/metrics` is wanted.
    Metrics(oneshot::Sender<String>),
    /// The numbers of requests that arrived, completed, were refused and were cancelled; and of those in the service.
    Counts(oneshot::Sender<([u64; 4], usize)>),
}

/// Simulates `service` until all senders of commands are gone.
///
/// # Errors
/// If a policy fails, or the service can make no progress.
pub(super) fn simulate(
    mut service: LiveService,
    mut deliveries: Deliveries,
    commands: &Receiver<SimulationCommand>,
    clock: SimulatedClock,
) -> Result<(), RunError> {
    let mut simulated = Micros::ZERO;
    loop {
        let mut next = match wait(&mut service, &deliveries, commands, clock) {
            Waited::SimulationCommand(command) => Some(command),
            Waited::Event => None,
            Waited::Closed => return Ok(()),
        };
        while let Some(command) = next {
            execute(command, &mut service, &mut deliveries, &mut simulated, clock)?;
            next = commands.try_recv().ok();
        }
        simulated = simulated.max(clock.now());
        service.run_until(simulated, &mut deliveries)?;
        deliveries.deliver(simulated);
    }
}

enum Waited {
    SimulationCommand(SimulationCommand),
    Event,
    Closed,
}

fn wait(
    service: &mut LiveService,
    deliveries: &Deliveries,
    commands: &Receiver<SimulationCommand>,
    clock: SimulatedClock,
) -> Waited {
    let next = [service.next_event(), deliveries.next_due()].into_iter().flatten().min();
    let Some(at) = next else { return commands.recv().map_or(Waited::Closed, Waited::SimulationCommand) };
    match commands.recv_timeout(clock.until(at)) {
        Ok(command) => Waited::SimulationCommand(command),
        Err(RecvTimeoutError::Timeout) => Waited::Event,
        Err(RecvTimeoutError::Disconnected) => Waited::Closed,
    }
}

fn execute(
    command: SimulationCommand,
    service: &mut LiveService,
    deliveries: &mut Deliveries,
    simulated: &mut Micros,
    clock: SimulatedClock,
) -> Result<(), RunError> {
    match command {
        SimulationCommand::Submit(mut request, events) => {
            // What was simulated is past. It is later than the moment of reading if this thread was late.
            request.arrival = request.arrival.max(simulated.saturating_add(Micros(1)));
            *simulated = request.arrival;
            deliveries.add(&request, events);
            service.arrive(*request);
            service.run_until(*simulated, deliveries)
        }
        SimulationCommand::Cancel(id) => {
            *simulated = (*simulated).max(clock.now());
            service.run_until(*simulated, deliveries)?;
            match deliveries.abandon(id) {
                Some(instance) => service.cancel(*simulated, id, instance, deliveries),
                None => Ok(()),
            }
        }
        SimulationCommand::Metrics(reply) => {
            // The receiver is gone if the connection was closed.
            let _ = reply.send(deliveries.metrics.page(&service.loads()));
            Ok(())
        }
        SimulationCommand::Counts(reply) => {
            let _ = reply.send((deliveries.metrics.counts(), deliveries.len()));
            Ok(())
        }
    }
}
