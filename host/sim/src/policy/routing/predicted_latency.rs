//! The scorer `predicted-latency`: a linear model of TTFT and ITL that the router fits to what it measures, as llm-d's
//! `predicted-latency-producer` fits trees (XGBoost) and its `latency-scorer` compares their predictions.
//!
//! ```text
//! TTFT = a0 + a1 · prompt tokens in flight, its own included + a2 · requests in flight
//! ITL  = b0 + b1 · prompt tokens in flight                   + b2 · requests in flight
//! ```
//!
//! Both with the values when the request was sent. Least squares over all requests so far, in which every measurement
//! weighs 0.1 % less than the next one. All instances share the coefficients.

use rustc_hash::FxHashMap;

use crate::ids::{InstanceIndex, RequestId};
use crate::policy::{ClusterView, Event, EventKind, Events, Features, LinearModel, RequestView};

/// Weights of the predicted TTFT and ITL (llm-d's defaults).
const TTFT_WEIGHT: f64 = 0.8;
const ITL_WEIGHT: f64 = 0.2;
/// The two models, and what they wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct LatencyPredictor {
    ttft: LinearModel,
    itl: LinearModel,
    /// Inputs of both models for the requests in flight, as of their dispatch.
    waiting: FxHashMap<RequestId, (Features, Features)>,
    /// The same for every instance of the decision at hand, with its number.
    present: Vec<(InstanceIndex, Features, Features)>,
    predicted: Vec<f64>,
}

impl LatencyPredictor {
    /// The events with measurements, and those that end a request without one.
    pub const EVENTS: Events = Events { first_token: true, completed: true, ended: true, ..Events::NONE };

    /// 0.8 times the score of the predicted TTFT and 0.2 times that of the predicted ITL. Each is scaled to its range over
    /// the instances: the shortest 1, the longest 0; 1 for all if equal, as before the first measurements.
    pub fn score(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>, scores: &mut [f64]) {
        let signals = cluster.signals;
        self.present.clear();
        self.present.extend(cluster.instances.iter().enumerate().map(|(i, instance)| {
            let uncached = f64::from(request.input_tokens - signals.cached_tokens(request, i));
            let (tokens, requests) = (signals.in_flight_tokens[i] as f64, f64::from(signals.in_flight[i]));
            (instance.id, [1.0, (tokens + uncached) / 1000.0, requests], [1.0, tokens / 1000.0, requests])
        }));
        scores.fill(0.0);
        for (model, weight, of_ttft) in [(&self.ttft, TTFT_WEIGHT, true), (&self.itl, ITL_WEIGHT, false)] {
            let coefficients = model.coefficients();
            let features = self.present.iter().map(|(_, ttft, itl)| if of_ttft { ttft } else { itl });
            self.predicted.clear();
            self.predicted.extend(features.map(|features| LinearModel::value(&coefficients, features)));
            add_scaled(&self.predicted, weight, scores);
        }
    }

    /// `request`, scored last, is dispatched to `instance`.
    pub fn dispatched(&mut self, request: &RequestView<'_>, instance: InstanceIndex) {
        if let Some((_, ttft, itl)) = self.present.iter().find(|(number, ..)| *number == instance) {
            self.waiting.insert(request.id, (*ttft, *itl));
        }
    }

    /// Fits the models to a measurement.
    pub fn observe(&mut self, event: &Event) {
        if event.kind == EventKind::FirstToken {
            if let (Some((features, _)), Some(ttft)) = (self.waiting.get(&event.request), event.ttft) {
                self.ttft.add(features, ttft.0 as f64);
            }
            return;
        }
        let Some((_, features)) = self.waiting.remove(&event.request) else { return };
        if let Some(itl) = event.mean_itl() {
            self.itl.add(&features, itl);
        }
    }
}

/// `scores += weight` × each value scaled to the range: the smallest 1, the largest 0.
fn add_scaled(values: &[f64], weight: f64, scores: &mut [f64]) {
    let (least, most) =
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &x| (least.min(x), most.max(x)));
    for (score, value) in scores.iter_mut().zip(values) {
        *score += weight * if most > least { (most - value) / (most - least) } else { 1.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{TestService, request, view_of};
    use crate::request::Tags;
    use crate::units::Micros;

    #[test]
    fn instances_with_long_predicted_waits_score_low() {
        let mut predictor = LatencyPredictor::default();
        let mut scores = vec![f64::NAN; 2];
        // One millisecond per thousand prompt tokens in flight.
        for id in 0..50 {
            let tokens = u64::from(id % 10) * 1000;
            let service = TestService::idle(2).with(|signals| signals.in_flight_tokens = vec![tokens, 0]);
            let prompt = request(id, 2, &[]);
            predictor.score(&view_of(&prompt), &service.view(), &mut scores);
            if id == 0 {
                assert_eq!(scores, [1.0, 1.0], "nothing is known");
            }
            predictor.dispatched(&view_of(&prompt), InstanceIndex(0));
            predictor.observe(&Event {
                at: Micros(u64::from(id)),
                kind: EventKind::FirstToken,
                request: prompt.id,
                instance: Some(InstanceIndex(0)),
                input_tokens: prompt.input_tokens,
                generated_tokens: 1,
                ttft: Some(Micros(tokens + u64::from(prompt.input_tokens))),
                e2e: None,
                tags: Tags::default(),
                block: 0,
            });
        }
        let service = TestService::idle(2).with(|signals| signals.in_flight_tokens = vec![9000, 4000]);
        predictor.score(&view_of(&request(99, 2, &[])), &service.view(), &mut scores);
        assert_eq!(scores, [0.2, 1.0], "the ITL was never measured");
        assert!((predictor.ttft.coefficients()[1] - 1000.0).abs() < 1.0, "{:?}", predictor.ttft.coefficients());
        let mut fork = predictor.clone();
        let mut again = vec![0.0; 2];
        fork.score(&view_of(&request(99, 2, &[])), &service.view(), &mut again);
        assert_eq!(again, scores);
    }
}
