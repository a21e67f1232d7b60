//! Without the component layer, rows arrive in a guest's memory exactly as wasmtime writes them: field by field, each by its
//! name.

use proptest::prelude::*;
use wasmtime::component::{Func, Instance, Val};

use super::*;
use crate::rows::Rows;
use crate::rows::{AgesRow, EventRow, QueuedRow, RequestRow, RunningRow, StepRow};
use crate::wasm::direct::Direct;
use crate::wasm::functions::WasmInputs;
use crate::wasm::typed::{self, values};
use crate::{Function, Output};
use blis_abi::AnyRows;

/// A module that leaves the arguments of a call at address 4096: `cabi_realloc` puts those that are passed in memory
/// there, the module the others.
fn recorder() -> String {
    let numbers = |types: &[(&str, usize)]| {
        let params: String =
            types.iter().map(|(ty, count)| format!("(param {})", format!("{ty} ").repeat(*count))).collect();
        let types = types.iter().flat_map(|(ty, count)| std::iter::repeat_n(ty, *count));
        let stores: String = types
            .enumerate()
            .map(|(i, ty)| format!("({ty}.store (i32.const {}) (local.get {i}))", 4096 + 8 * i))
            .collect();
        (params, stores)
    };
    let (step, store_step) = numbers(&[("i64", 8)]);
    let (event, store_event) = numbers(&[("i64", 3), ("i32", 10)]);
    let functions = format!(
        r#"(func (export "blis:policy/scheduling@1.0.0#rank") (param i32) (result f64)
          (global.set $top (i32.const 4096)) (f64.const 0))
        (func (export "blis:policy/preemption@1.0.0#victim") (param i64 i32 i32 i32) (result i32)
          (global.set $top (i32.const 4096)) (i32.const 0))
        (func (export "blis:policy/latency@1.0.0#constants") (result i32) (unreachable))
        (func (export "blis:policy/latency@1.0.0#queueing-time") (param i32) (result i64) (unreachable))
        (func (export "blis:policy/latency@1.0.0#step-time") {step} (result i64) {store_step} (i64.const 1))
        (func (export "blis:policy/lifecycle@1.0.0#observe") {event} {store_event})
        (memory (export"#
    );
    changed(&[
        ("(memory (export", &functions),
        // The state is 16 KB from 4096 on.
        (r#""\90\02\00\00" "\08\00\00\00")"#, r#""\00\10\00\00" "\00\40\00\00")"#),
    ])
}

/// A guest of the recorder, callable with any bindings.
struct Recorder {
    store: Store<WasmHost>,
    instance: Instance,
}

impl Recorder {
    fn new() -> Self {
        let core = wat::parse_str(recorder()).expect("assembles");
        let component = componentize(Path::new("recorder.wasm"), &core).expect("a component");
        let engine = engine::engine(&settings()).expect("runs here");
        let component = Component::new(&engine, component).expect("compiles");
        let limits = Limits::default();
        let file = PluginPath::new(Path::new("recorder.wasm"));
        let host = WasmHost::new(&file, limits, &Arc::from([]), Stream::new(0, ""), WasmLog::default());
        let mut store = Store::new(&engine, host);
        store.set_fuel(u64::MAX).expect("counted");
        let instance = Linker::new(&engine).instantiate(&mut store, &component).expect("instantiates");
        Self { store, instance }
    }

    /// The bytes of `inputs`, as values of the component model, that arrived in the guest when it was called by `function`.
    fn bytes_of(&mut self, function: Function, inputs: &WasmInputs<'_>) -> Vec<u8> {
        self.bytes(function.interface(), function.row().wit, &values(function, inputs), 1)
    }

    /// The bytes of `values` that arrived in the guest, in a call with so many results.
    fn bytes(&mut self, interface: &str, function: &str, values: &[Val], results: usize) -> Vec<u8> {
        let called = self.function(interface, function);
        called.call(&mut self.store, values, &mut vec![Val::Bool(false); results]).expect("a result");
        let save = self.function("plugin", "save").typed::<(), (Vec<u8>,)>(&self.store).expect("of that type");
        save.call(&mut self.store, ()).expect("saves").0
    }

    fn function(&mut self, interface: &str, function: &str) -> Func {
        let name = format!("blis:policy/{interface}@1.0.0");
        let index = self.instance.get_export_index(&mut self.store, None, &name).expect("exported");
        let index = self.instance.get_export_index(&mut self.store, Some(&index), function).expect("exported");
        self.instance.get_func(&mut self.store, index).expect("a function")
    }
}

/// A guest of the recorder that is called without the component layer.
struct DirectRecorder {
    store: Store<WasmHost>,
    instance: wasmtime::Instance,
    code: LinkedCode<wasmtime::InstancePre<WasmHost>>,
}

impl DirectRecorder {
    fn new() -> Self {
        let core = wat::parse_str(recorder()).expect("assembles");
        let file = PluginPath::new(Path::new("recorder.wasm"));
        let engine = engine::engine(&settings()).expect("runs here");
        let module = Module::new(&engine, &core).expect("compiles");
        let exports = inspect::module(&file, &core).expect("fits").exports;
        let code = LinkedCode { pre: direct::link(&module).expect("links"), exports };
        let host = WasmHost::new(&file, Limits::default(), &Arc::from([]), Stream::new(0, ""), WasmLog::default());
        let mut store = Store::new(&engine, host);
        store.set_fuel(u64::MAX).expect("counted");
        let instance = Direct::instantiate(&code.pre, &mut store).expect("instantiates");
        Self { store, instance, code }
    }

    /// The bytes of `inputs` that arrived in the guest when it was called by `function`.
    fn decided(&mut self, function: Function, inputs: &WasmInputs<'_>) -> Vec<u8> {
        self.bytes::<Output>(function.kind(), |functions, store| {
            functions.call(store, function, inputs, &mut Vec::new())
        })
    }

    /// The bytes that arrived in the guest when it was called as `kind`.
    fn bytes<A>(
        &mut self,
        kind: Kind,
        call: impl FnOnce(&Direct, &mut Store<WasmHost>) -> wasmtime::Result<A>,
    ) -> Vec<u8> {
        let Self { store, instance, code } = self;
        let file = PluginPath::new(Path::new("recorder.wasm"));
        let functions = Direct::find(&mut code.exports(&file, store, instance), kind, described()).expect("has them");
        call(&functions, store).expect("a result");
        functions.save(store).expect("saves")
    }
}

/// A description with scores and events, so that all functions are looked up.
fn described() -> &'static PolicyDescription {
    static DESCRIPTION: std::sync::OnceLock<PolicyDescription> = std::sync::OnceLock::new();
    DESCRIPTION.get_or_init(|| {
        let events = blis_sim::policy::Events { routed: true, ..Default::default() };
        PolicyDescription { events, ..load_text(LEAST_LOADED).expect("loads").description().clone() }
    })
}

/// A row of random numbers.
macro_rules! random {
    ($source:ident, $row:ident { $($field:ident: $ty:ident),* $(,)? }) => {{
        $(let $field = random!(@number $source $ty);)*
        $row { $($field),* }
    }};
    (@number $source:ident f64) => { f64::from_bits($source.next_u64()) };
    (@number $source:ident $ty:ident) => { $source.next_u64() as $ty };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn rows_arrive_as_the_component_layer_sends_them(seed: u64, n in 0_usize..100) {
        let mut source = Stream::new(seed, "rows").at(0);
        let (mut recorder, mut direct) = (Recorder::new(), DirectRecorder::new());

        let request = random!(source, RequestRow {
            now_us: u64, arrival_us: u64, deadline_us: u64, slo_ttft_us: u64, slo_itl_us: u64, id: u32, input_tokens: u32, max_output_tokens: u32,
            prompt_blocks: u32, shared_blocks: u32, block_size: u32, class_priority: i32, client_priority: i32,
            slo_class: u32, tenant: u32, session: u32, model: u32, client: u32, prefix_group: u32,
            round_index: u32, tenant_in_flight: u32, adapter: u32, stage: u32,
        });
        let ages = random!(source, AgesRow { periodic_us: u64, cache_us: u64, gateway_us: u64, pipeline_us: u64 });
        let instances: Vec<f64> = (0..3 * n).map(|_| f64::from_bits(source.next_u64())).collect();
        let rows = Rows { count: n, numbers: &instances, changed: None };
        let nothing = WasmInputs { request, now_us: 1, number: 2, rows: &[], ages, instances: rows };
        prop_assert_eq!(direct.decided(Function::Route, &nothing), recorder.bytes_of(Function::Route, &nothing));

        let queued = random!(source, QueuedRow {
            priority: i64, turn: i64, generated_tokens: u32, preemptions: u32,
        });
        let inputs = WasmInputs { rows: &[AnyRows::one(&queued)], ..nothing };
        prop_assert_eq!(direct.decided(Function::Rank, &inputs), recorder.bytes_of(Function::Rank, &inputs));

        let running: Vec<_> = (0..n).map(|_| random!(source, RunningRow {
            arrival_us: u64, deadline_us: u64, priority: i64, id: u32, input_tokens: u32, computed_tokens: u32,
            generated_tokens: u32, kv_blocks: u32, preemptions: u32, class_priority: i32, slo_class: u32, tenant: u32,
            session: u32,
        })).collect();
        let inputs = WasmInputs { rows: &[AnyRows::new(&running)], ..nothing };
        prop_assert_eq!(direct.decided(Function::Victim, &inputs), recorder.bytes_of(Function::Victim, &inputs));

        let step = random!(source, StepRow {
            prefill_requests: u64, prefill_tokens: u64, prefill_tokens_squared: u64, prefill_tokens_by_input: u64,
            prefill_tokens_by_context: u64, prefill_context: u64, decode_requests: u64, decode_context: u64,
        });
        let inputs = WasmInputs { rows: &[AnyRows::one(&step)], ..nothing };
        prop_assert_eq!(direct.decided(Function::StepTime, &inputs), recorder.bytes_of(Function::StepTime, &inputs));

        let event = random!(source, EventRow {
            at_us: u64, ttft_us: u64, e2e_us: u64, kind: u32, request: u32, instance: u32, input_tokens: u32,
            generated_tokens: u32, slo_class: u32, tenant: u32, session: u32, prefix_group: u32, block: u32,
        });
        let values = typed::event(&event);
        let ours = direct.bytes(Kind::Latency, |functions, store| functions.observe(store, &event));
        prop_assert_eq!(ours, recorder.bytes("lifecycle", "observe", &values, 0));
    }
}

#[test]
fn the_recorder_tells_rows_apart() {
    let mut recorder = Recorder::new();
    let mut saw = |id| {
        let request = RequestRow { id, ..RequestRow::default() };
        let (ages, instances) = (AgesRow::default(), Rows::default());
        let inputs = WasmInputs { request, now_us: 0, number: 0, rows: &[], ages, instances };
        recorder.bytes_of(Function::Route, &inputs)
    };
    let (one, two) = (saw(1), saw(2));
    assert_ne!(one, two);
    assert_eq!(one[40..44], [1, 0, 0, 0], "behind the five times");
}
