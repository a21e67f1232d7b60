//! Requests that are encoded first, worked out by hand.

use super::*;
use crate::cluster::decisions::{RecordedDecision, RecordedDecisions};
use crate::policy::NeverDisaggregate;

/// As [`by_hand`], with an instance that encodes behind the others.
fn with_encoder(hop: u64) -> PairSetup {
    let mut setup = by_hand(hop);
    setup.inner.instances.push(InstanceConfig { index: InstanceIndex(3), ..setup.inner.instances[0].clone() });
    setup.disaggregation.roles.push(InstanceRole::Encode);
    setup.disaggregation.encode = EncodeRule::Multimodal;
    if let TransferFlow::Nixl(flow) = &mut setup.disaggregation.flow {
        flow.encoders = vec![None, None, None, Some(ENCODER)];
        (flow.network.gpus, flow.network.token_bytes) = (vec![1; 4], vec![1000.0; 4]);
    }
    setup
}

fn request(id: u32, at: u64, media_tokens: u32) -> Request {
    Request { media_tokens, ..Request::new(RequestId(id), Micros(at), 320, 3) }
}

/// What both engines say.
fn both(setup: &PairSetup, requests: &[Request]) -> PairLog {
    let [plain, fast] = [run_pairs(setup, Plain::new, requests), run_pairs(setup, Fast::new, requests)];
    let plain = plain.expect("it ends");
    assert_eq!(plain, fast.expect("it ends"));
    plain
}

fn stages(times: EncodeTimes) -> [Option<u64>; 3] {
    [times.queue, times.time, times.transfer].map(|stage| stage.map(|stage| stage.0))
}

#[test]
fn the_stages_of_encoding_by_hand() {
    let mut setup = with_encoder(200);
    let requests = [request(0, 50, 100)];
    let log = both(&setup, &requests);
    // A hop; a batch of 700 + 20 · 100 and a hop; a hop, latency, handshake and 20 000 bytes at 100 bytes/µs.
    assert_eq!(stages(log.encoded[&RequestId(0)]), [Some(200), Some(2900), Some(200 + 500 + 3000 + 200)]);
    let times = log.stages[&RequestId(0)];
    let parts =
        [times.prefill_queue, times.prefill_time, times.hold, times.decode_wait, times.transfer, times.decode_first];
    // As without encoding, except that the first hop was before.
    assert_eq!(parts.map(|stage| stage.map(|stage| stage.0)), [4200, 101, 200, 4200, 6700, 101].map(Some));
    let ttft: u64 = [200, 2900, 3900, 4200, 101, 200, 4200, 6700, 101].into_iter().sum();
    assert_eq!(log.simulation.outcomes[&RequestId(0)].ttft, Some(Micros(ttft)), "the stages add up");

    setup.disaggregation.decider = Box::new(NeverDisaggregate);
    let log = both(&setup, &requests);
    // The sidecar is on the decode instance, which reads without a further hop.
    assert_eq!(stages(log.encoded[&RequestId(0)]), [Some(200), Some(2900), Some(500 + 3000 + 200)]);
    assert_eq!(log.simulation.outcomes[&RequestId(0)].ttft, Some(Micros(200 + 2900 + 3700 + 4200 + 101)));
}

/// Requests that come at one time share a batch, as far as the budget of 400 tokens goes.
#[test]
fn requests_wait_for_their_turn_to_be_encoded() {
    let mut setup = with_encoder(0);
    setup.disaggregation.decider = Box::new(NeverDisaggregate);
    let requests = [request(0, 50, 300), request(1, 50, 100), request(2, 50, 50), request(3, 60, 0)];
    let log = both(&setup, &requests);
    let queue = |id: u32| log.encoded[&RequestId(id)].queue.map(|queue| queue.0);
    let time = |id: u32| log.encoded[&RequestId(id)].time.map(|time| time.0);
    assert_eq!([queue(0), queue(1), queue(2)], [Some(0), Some(0), Some(700 + 20 * 400)]);
    assert_eq!([time(0), time(1), time(2)], [8700, 8700, 1700].map(Some));
    assert!(!log.encoded.contains_key(&RequestId(3)), "without media");
    setup.disaggregation.encode = EncodeRule::Always;
    let log = both(&setup, &requests);
    assert_eq!(stages(log.encoded[&RequestId(3)]), [Some(0); 3], "nothing to wait for: hops of no length");
}

/// Every 400 µs, the client of a request that is encoded goes away, by its deadline or by closing the connection. Nothing of it is
/// counted afterwards, and the next request is served as if it had been alone, or later by the batch and the read that go on.
#[test]
fn a_request_that_ends_while_it_is_encoded_leaves_nothing() {
    for (split, at) in (0..40).map(|index| (index % 2 == 0, Micros(60 + 400 * (index / 2)))) {
        for by_deadline in [true, false] {
            let mut setup = with_encoder(200);
            if !split {
                setup.disaggregation.decider = Box::new(NeverDisaggregate);
            }
            let deadline = by_deadline.then_some(at);
            let requests = [Request { deadline, ..request(0, 50, 300) }, request(1, 55, 200)];
            let reads = Reads { in_flight: true, tokens: true, ..Reads::NOTHING };
            let list = ArrivalList::new(requests.clone().into());
            let mut timeline = Timeline::new(setup.cluster(Plain::new), list, reads);
            let mut log = PairLog::default();
            timeline.run_until(at, &mut log).expect("it goes on");
            timeline.cancel(at, RequestId(0), Some(InstanceIndex(2)), &mut log).expect("it goes on");
            timeline.run_until(Micros(1_000_000), &mut log).expect("it ends");
            let outcome = log.simulation.outcomes[&RequestId(0)];
            let expected = if by_deadline { Status::TimedOut } else { Status::Evicted };
            let is_encoded = log.encoded[&RequestId(0)].transfer.is_some();
            if !is_encoded {
                assert_eq!((outcome.status, outcome.ended_at), (expected, at));
                assert_eq!(outcome.instance, Some(InstanceIndex(2)));
            }
            let next = log.simulation.outcomes[&RequestId(1)];
            assert!(next.completed(), "{next:?}");
            timeline.cluster.refresh_signals(Micros(2_000_000), &mut log).expect("all is over");
            for instance in (0..4).map(InstanceIndex) {
                assert_eq!(timeline.cluster.board.in_flight(instance), (0, 0), "{split} {at:?} on {instance}");
            }
        }
    }
}

/// As [`with_encoder`], with two of them, of which the one with fewer requests in flight is chosen.
fn with_two_encoders() -> PairSetup {
    let mut setup = with_encoder(200);
    setup.inner.instances.push(InstanceConfig { index: InstanceIndex(4), ..setup.inner.instances[0].clone() });
    setup.disaggregation.roles.push(InstanceRole::Encode);
    if let TransferFlow::Nixl(flow) = &mut setup.disaggregation.flow {
        flow.encoders.push(Some(ENCODER));
        (flow.network.gpus, flow.network.token_bytes) = (vec![1; 5], vec![1000.0; 5]);
    }
    let least = Weighted::new(vec![(ScorerKind::ActiveRequests, 1.0)]).expect("one scorer");
    setup.disaggregation.encode_routing = Some(PoolRouting { policy: Box::new(least), ties: Ties::LowestIndex });
    setup
}

/// The policy that chooses an instance to encode sees the requests in flight there.
#[test]
fn instances_that_encode_count_requests_in_flight() {
    let setup = with_two_encoders();
    let requests: Vec<Request> =
        [0, 10, 20, 30, 60_000].into_iter().zip(0..).map(|(at, id)| request(id, at, 300)).collect();
    let log = both(&setup, &requests);
    let by: Vec<u32> = log.encoded.values().map(|times| times.encode.0).collect();
    assert_eq!(by, [3, 4, 3, 4, 3], "in turn while they are busy");
}

#[test]
fn an_end_of_the_simulation_finds_requests_wherever_they_are() {
    let mut setup = with_encoder(200);
    setup.inner.config.horizon = Micros(3_000);
    let log = both(&setup, &[request(0, 50, 100), request(1, 50, 350), request(2, 2_900, 10)]);
    assert!(log.simulation.outcomes.values().all(|outcome| outcome.status == Status::Arriving));
    let reached: Vec<_> = log.encoded.values().map(|&times| stages(times)).collect();
    // One is on its way back, one in a batch, one on its way there.
    assert_eq!(reached, [[Some(200), None, None], [Some(2900), None, None], [None; 3]]);
}

/// Replayed decisions include the instance that encodes, also of requests with one part.
#[test]
fn replayed_decisions_encode_on_the_same_instances() {
    for threshold in [1, 400] {
        let mut setup = with_two_encoders();
        setup.disaggregation.decider =
            Box::new(PrefixThreshold { tokens: threshold, prompt_tokens: 0, exceeds: false });
        let requests: Vec<Request> =
            (0..20).map(|id| request(id, u64::from(id) * u64::from(id) * 100, 150 * (id % 4))).collect();
        let log = both(&setup, &requests);
        assert_eq!(log.stages.is_empty(), threshold == 400);
        let decision = |id: RequestId| {
            let encode = log.encoded.get(&id).map(|times| times.encode);
            let prefill = log.stages.get(&id).map(|times| times.prefill);
            let decode = log.simulation.outcomes[&id].instance.expect("it was served");
            match (encode, prefill) {
                (Some(encode), _) => RecordedDecision::Encoded { encode, prefill, decode },
                (None, Some(prefill)) => RecordedDecision::Split { decode, prefill },
                (None, None) => RecordedDecision::Routed(decode),
            }
        };
        let decisions: RecordedDecisions = requests.iter().map(|request| (request.id, decision(request.id))).collect();
        // With another policy, which is not called.
        setup.disaggregation.encode_routing = None;
        setup.disaggregation.prefill_routing = None;
        let list = ArrivalList::new(requests.clone().into());
        let mut timeline = Timeline::new(setup.cluster(Fast::new), list, Reads::NOTHING);
        timeline.replay(Arc::new(decisions));
        let mut replayed = PairLog::default();
        replayed.simulation.counters = timeline.finish(Micros::MAX, &mut replayed).expect("it ends");
        assert_eq!(replayed.sorted(), log);
    }
}
