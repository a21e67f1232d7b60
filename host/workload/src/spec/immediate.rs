//! The requests of closed loops without a simulation: requests take almost no time, so follow-ups are known immediately.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BinaryHeap;

use blis_sim::ids::RequestId;
use blis_sim::request::{Name, Request};
use blis_sim::units::Micros;

use super::generate::Requests;
use crate::closed_loop::SessionSource as _;
use crate::conversation::{EndStatus, RequestEnd};

/// All requests of a specification in the order of arrival. As in BLIS's estimate for open loops, an output token takes
/// 1 µs.
pub(super) struct ImmediateRequests {
    requests: Requests,
    /// The next request that does not follow another one.
    start: Option<Request>,
    /// Future ends of requests: time, session, and number of output tokens.
    ends: BinaryHeap<Reverse<(Micros, Name, u32)>>,
    /// Requests that follow earlier ends, by arrival.
    follow_ups: BTreeMap<(Micros, RequestId), Request>,
}

impl ImmediateRequests {
    pub fn new(requests: Requests) -> Self {
        let mut immediate = Self { requests, start: None, ends: BinaryHeap::new(), follow_ups: BTreeMap::new() };
        immediate.start = immediate.requests.start();
        immediate
    }

    /// Arrival of the next request that is known so far.
    fn known(&self) -> Option<Micros> {
        let start = self.start.as_ref().map(|request| request.arrival);
        let follow_up = self.follow_ups.first_key_value().map(|(&(at, _), _)| at);
        [start, follow_up].into_iter().flatten().min()
    }
}

impl Iterator for ImmediateRequests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while let Some(&Reverse((at, session, generated_tokens))) = self.ends.peek() {
            if self.known().is_some_and(|known| known < at) {
                break;
            }
            self.ends.pop();
            let ended = RequestEnd { at, generated_tokens, status: EndStatus::Completed };
            let follow_up = self.requests.ended(session, ended);
            self.follow_ups.extend(follow_up.map(|request| ((request.arrival, request.id), request)));
        }
        let at = self.known()?;
        let follows = self.follow_ups.first_key_value().is_some_and(|(&(arrival, _), _)| arrival == at);
        let request = if follows {
            self.follow_ups.pop_first().map(|(_, request)| request)?
        } else {
            let next = self.requests.start();
            std::mem::replace(&mut self.start, next)?
        };
        if request.tags.session != Name::NONE {
            let (session, tokens) = (request.tags.session, request.output_tokens);
            self.ends.push(Reverse((at.saturating_add(Micros(tokens.into())), session, tokens)));
        }
        Some(request)
    }
}
