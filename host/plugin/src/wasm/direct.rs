//! Calls the functions of a component's core module without wasmtime's component layer.
//!
//! That layer looks up the function, its options and its memory anew in every call, which is more than half of the cost
//! of a call. A component that consists of one core module behind the names of our interface (`standard.rs`) does not
//! need it: this module writes its parameters into memory and reads its results from there by the same rules (the
//! canonical ABI), with the same checks and limits. All other components are called through `typed.rs`.

use blis_abi::AnyRows;
use blis_abi::canonical::{self, ValueRecord};
use blis_abi::decisions::{FunctionRow, InputShape, NumberShape, OutputShape};
use blis_sim::policy::{AdmissionDecision, Events, Reason};
use wasmtime::{
    AsContextMut as _, Caller, Engine, Func, Instance, InstancePre, Linker, Module, Store, StoreContextMut, TypedFunc,
    ValRaw, ValType, WasmParams, WasmResults,
};

use super::describe::RawDescription;
use super::functions::{Functions, InstanceExports, WasmInputs};
use super::host::{self, WasmHost};
use super::inspect;
use super::memory::{GuestMemory, INPUT, InputMemory, write};
use super::results::{GuestList, MemoryResult, ResultReader, offset, read_result};
use super::standard;
use crate::limits::{DESCRIPTION_BYTES, RESULT_BYTES};
use crate::rows::{AgesRow, EventRow, RequestRow, Row};
use crate::{Fault, FaultKind, Function, GuestSetup, Kind, Output, ParameterValue, PolicyDescription, ValueTable};

#[cfg(target_endian = "big")]
compile_error!("guests are little-endian: rows would have to be turned round, number by number");

/// The structs that contain lists or texts in a guest's memory.
type GuestModelFact = canonical::ModelFact<GuestList>;
type GuestChanged = canonical::ChangedIndices<GuestList>;

/// Links the host functions of `module`. An error means that the module is not a standard one as `standard.rs` defines it.
pub(super) fn link(module: &Module) -> wasmtime::Result<InstancePre<WasmHost>> {
    let mut linker = Linker::new(module.engine());
    for import in module.imports() {
        define(&mut linker, import.module(), import.name())?;
    }
    linker.instantiate_pre(module)
}

/// Links the function `name` of the interface `host`.
fn define(linker: &mut Linker<WasmHost>, module: &str, name: &str) -> wasmtime::Result<()> {
    match name {
        "log" => linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, level: u32, at: u32, len: u32| {
            host::log(caller.as_context_mut(), level, |store| {
                let memory = memory_of(store)?.memory;
                let mut left = RESULT_BYTES;
                ResultReader::new(memory.data(store), &mut left).text(at, len)
            })
        }),
        "random" => {
            linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>| host::random(caller.as_context_mut()))
        }
        "pick" => linker
            .func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, n: u32| host::pick(caller.as_context_mut(), n)),
        "prompt-blocks" => linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, result: u32| {
            let mut store = caller.as_context_mut();
            let blocks = host::prompt_blocks(&mut store)?;
            put_numbers(&mut store, result, blocks)
        }),
        "text" => linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, name: u32, result: u32| {
            let mut store = caller.as_context_mut();
            let text = host::text(&mut store, name)?;
            put_list(&mut store, result, 1, text.as_bytes())
        }),
        "changed" => linker.func_wrap(module, name, |mut caller: Caller<'_, WasmHost>, result: u32| {
            let mut store = caller.as_context_mut();
            let changed = host::changed(&mut store)?;
            let memory = memory_of(&store)?.memory;
            let case = result_area(memory.data_mut(&mut store), result, size_of::<GuestChanged>())?;
            case[0] = u8::from(changed.is_some());
            let Some(indices) = changed else { return Ok(()) };
            put_numbers(&mut store, result + offset!(GuestChanged, indices), indices)
        }),
        _ => wasmtime::bail!("there is no host.{name}"),
    }?;
    Ok(())
}

fn memory_of(store: &StoreContextMut<'_, WasmHost>) -> wasmtime::Result<GuestMemory> {
    let memory = store.data().memory.clone();
    memory.ok_or_else(|| wasmtime::format_err!("its memory does not exist yet: its start function called the host"))
}

/// Writes `numbers` to the guest's memory as [`put_list`] does.
fn put_numbers(store: &mut StoreContextMut<'_, WasmHost>, result: u32, numbers: Vec<u32>) -> wasmtime::Result<()> {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
    put_list(store, result, size_of::<u32>() as u32, &bytes)
}

/// Writes a list of elements as long as `align`, and its address and length to the result area that the guest passed.
fn put_list(store: &mut StoreContextMut<'_, WasmHost>, result: u32, align: u32, bytes: &[u8]) -> wasmtime::Result<()> {
    let memory = memory_of(store)?;
    let (at, len) = memory.put(store, align, bytes)?;
    let pair = (u64::from(len / align) << 32 | u64::from(at)).to_le_bytes();
    result_area(memory.memory.data_mut(store), result, pair.len())?.copy_from_slice(&pair);
    Ok(())
}

/// The result area at `result`, which the guest passed.
fn result_area(memory: &mut [u8], result: u32, size: usize) -> wasmtime::Result<&mut [u8]> {
    if !result.is_multiple_of(4) {
        wasmtime::bail!("pointer not aligned");
    }
    let area = memory.get_mut(result as usize..).and_then(|memory| memory.get_mut(..size));
    area.ok_or_else(|| wasmtime::format_err!("pointer out of bounds of memory"))
}

/// A function of the table of decisions in an instance.
struct DirectFunction {
    row: &'static FunctionRow,
    /// Its type was checked: it takes what [`flat_types`] says.
    function: Func,
    /// Whether its parameters are passed in memory, as one pointer.
    in_memory: bool,
    /// Called after a result in memory was read.
    after: Option<TypedFunc<u32, ()>>,
}

impl DirectFunction {
    /// The result of the function with the parameters in `values`.
    #[inline]
    fn call(&self, store: &mut Store<WasmHost>, values: &mut [ValRaw]) -> wasmtime::Result<ValRaw> {
        #[allow(unsafe_code)]
        // SAFETY: `find` has compared the type of the function with that of the row, from which these values follow; all of them
        // are numbers, and there is room for the result, one number.
        unsafe {
            self.function.call_unchecked(&mut *store, &raw mut *values)?;
        }
        Ok(values[0])
    }
}

/// Most parameters that are passed one by one.
const FLAT_PARAMETERS: usize = 16;
/// Most functions of a kind.
const FUNCTIONS: usize = 3;

/// Pointer and length of each argument of `configure`: the kind and three lists.
type ConfigureNumbers = (u32, u32, u32, u32, u32, u32, u32, u32);

/// All functions of an instance that a guest uses.
pub(super) struct Direct {
    memory: GuestMemory,
    /// Where inputs are written, if the module offers it.
    input: Option<InputMemory>,
    /// The functions of its kind, in the order of the table.
    functions: [Option<DirectFunction>; FUNCTIONS],
    configure: MemoryResult<ConfigureNumbers>,
    save: MemoryResult<()>,
    restore: MemoryResult<(u32, u32)>,
    observe: Option<TypedFunc<<EventRow as Row>::Numbers, ()>>,
}

impl Functions for Direct {
    type Pre = InstancePre<WasmHost>;
    type Instance = Instance;

    fn engine(pre: &InstancePre<WasmHost>) -> &Engine {
        pre.module().engine()
    }

    fn instantiate(pre: &InstancePre<WasmHost>, store: &mut Store<WasmHost>) -> wasmtime::Result<Instance> {
        let instance = pre.instantiate(&mut *store)?;
        let memory = instance.get_memory(&mut *store, "memory");
        let memory = memory.ok_or_else(|| wasmtime::format_err!("does not export memory"))?;
        let realloc = instance.get_typed_func(&mut *store, "cabi_realloc")?;
        store.data_mut().memory = Some(GuestMemory { memory, realloc });
        if instance.get_func(&mut *store, standard::INITIALIZE).is_some() {
            instance.get_typed_func::<(), ()>(&mut *store, standard::INITIALIZE)?.call(&mut *store, ())?;
        }
        Ok(instance)
    }

    fn describe(exports: &mut CoreExports<'_>) -> Result<wasmtime::Result<RawDescription>, Fault> {
        let describe = exports.memory_result::<()>("plugin", "describe")?;
        let memory = exports.memory()?;
        Ok(describe.call(&memory, exports.store, (), DESCRIPTION_BYTES, |reader, at| reader.description(at)))
    }

    fn find(exports: &mut CoreExports<'_>, kind: Kind, description: &PolicyDescription) -> Result<Self, Fault> {
        let mut functions = [const { None }; FUNCTIONS];
        for &function in kind.functions() {
            if function != Function::Scores || description.scores {
                functions[function.index()] = Some(exports.decision(function)?);
            }
        }
        Ok(Self {
            memory: exports.memory()?,
            input: exports.input()?,
            functions,
            configure: exports.memory_result("plugin", "configure")?,
            save: exports.memory_result("plugin", "save")?,
            restore: exports.memory_result("plugin", "restore")?,
            observe: (description.events != Events::NONE)
                .then(|| exports.function("lifecycle", "observe"))
                .transpose()?,
        })
    }

    fn configure(
        &self,
        store: &mut Store<WasmHost>,
        setup: &GuestSetup,
        values: &[ParameterValue<'_>],
    ) -> wasmtime::Result<Result<(), String>> {
        let Self { memory, .. } = self;
        let mut context = store.as_context_mut();
        let (kind, kind_len) = memory.put(&mut context, 1, setup.kind.name().as_bytes())?;
        let mut records = Vec::with_capacity(values.len() * size_of::<ValueRecord>());
        let values_at = memory.room(&mut context, 8, values.len() * size_of::<ValueRecord>())?;
        for &value in values {
            let ValueRecord { case, unused, payload } = lowered(memory, &mut context, value)?;
            records.push(case);
            records.extend(unused);
            records.extend(payload.into_iter().flat_map(u32::to_le_bytes));
        }
        write(memory.memory.data_mut(&mut context), values_at, &records)?;
        let fields = setup.instances.iter().flat_map(|i| [i.id.0, i.max_num_seqs, i.total_kv_blocks, i.block_size]);
        let instances: Vec<u8> = fields.flat_map(u32::to_le_bytes).collect();
        let (instances, _) = memory.put(&mut context, 4, &instances)?;
        let size = size_of::<GuestModelFact>() * setup.model_facts.len();
        let model_facts_at = memory.room(&mut context, 8, size)?;
        let mut model_facts = Vec::with_capacity(size);
        for (name, value) in &*setup.model_facts {
            let (at, len) = memory.put(&mut context, 1, name.as_bytes())?;
            model_facts.extend([at.to_le_bytes(), len.to_le_bytes()].concat());
            model_facts.extend(value.to_le_bytes());
        }
        write(memory.memory.data_mut(&mut context), model_facts_at, &model_facts)?;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let lists = (
            kind,
            kind_len,
            count(values_at),
            count(values.len()),
            instances,
            count(setup.instances.len()),
            count(model_facts_at),
            count(setup.model_facts.len()),
        );
        let refused = self.configure.call(memory, store, lists, RESULT_BYTES, |reader, at| reader.refusal(at))?;
        Ok(refused.map_or(Ok(()), Err))
    }

    fn save(&self, store: &mut Store<WasmHost>) -> wasmtime::Result<Vec<u8>> {
        self.save.call(&self.memory, store, (), RESULT_BYTES, |reader, at| Ok(reader.list_at(at, 1, 1)?.to_vec()))
    }

    fn restore(&self, store: &mut Store<WasmHost>, state: &[u8]) -> wasmtime::Result<Result<(), String>> {
        let state = self.memory.put(&mut store.as_context_mut(), 1, state)?;
        let refused = self.restore.call(&self.memory, store, state, RESULT_BYTES, |reader, at| reader.refusal(at))?;
        Ok(refused.map_or(Ok(()), Err))
    }

    fn observe(&self, store: &mut Store<WasmHost>, event: &EventRow) -> wasmtime::Result<()> {
        let Some(observe) = &self.observe else { return Ok(()) };
        observe.call(store, event.numbers())
    }

    #[inline(always)] // on the way of every decision
    fn call(
        &self,
        store: &mut Store<WasmHost>,
        function: Function,
        inputs: &WasmInputs<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<Output> {
        let Some(called) = &self.functions[function.index()] else {
            wasmtime::bail!("it has no function {}", function.name());
        };
        let value = if called.in_memory {
            let mut values = [ValRaw::u32(self.put_parameters(store, called.row, function, inputs)?)];
            called.call(store, &mut values)?
        } else {
            let mut values = [ValRaw::u32(0); FLAT_PARAMETERS];
            self.flatten(store, called.row, function, inputs, &mut values)?;
            called.call(store, &mut values)?
        };
        self.output(store, called, value, numbers)
    }
}

impl Direct {
    /// Writes parameters that exceed the 16 numbers that the canonical ABI passes one by one: request, number, row, ages, and
    /// the number and rows of the instances, one after the other. Returns their address.
    #[inline(always)] // it has one caller
    fn put_parameters(
        &self,
        store: &mut Store<WasmHost>,
        row: &FunctionRow,
        function: Function,
        inputs: &WasmInputs<'_>,
    ) -> wasmtime::Result<u32> {
        let InputShape { number, cluster, .. } = &row.inputs;
        let request = RequestRow::bytes(std::slice::from_ref(&inputs.request));
        if !*cluster {
            let own = inputs.row_and_lists(function).0.map_or(&[][..], AnyRows::bytes);
            let start = self.room(store, request.len() + size_of::<u64>() + own.len())?;
            let memory = self.memory.memory.data_mut(&mut *store);
            write(memory, start, request)?;
            let mut end = start + request.len();
            if number.is_some() {
                write(memory, end, &inputs.number.to_le_bytes())?;
                end += size_of::<u64>();
            }
            write(memory, end, own)?;
            return Ok(start as u32);
        }
        let ages = AgesRow::bytes(std::slice::from_ref(&inputs.ages));
        let instances = &inputs.instances;
        let head = request.len() + ages.len();
        let room = self.room_of_instances(store, head + 16, instances.numbers.len())?;
        let memory = self.memory.memory.data_mut(&mut *store);
        room.write(memory, instances.count, instances.numbers, instances.changed)?;
        let InstanceRoom { at, numbers_at, .. } = room;
        write(memory, at, request)?;
        write(memory, at + request.len(), ages)?;
        let mut end = [0; 12];
        let list = [instances.count, numbers_at, instances.numbers.len()].map(|number| number as u32);
        for (bytes, number) in end.as_chunks_mut().0.iter_mut().zip(list) {
            *bytes = number.to_le_bytes();
        }
        write(memory, at + head, &end)?;
        Ok(at as u32)
    }

    /// Sets `values` to the parameters one by one: time, number, fields of the row, ages, count and list of the instances, lists.
    #[inline]
    fn flatten(
        &self,
        store: &mut Store<WasmHost>,
        row: &FunctionRow,
        function: Function,
        inputs: &WasmInputs<'_>,
        values: &mut [ValRaw; FLAT_PARAMETERS],
    ) -> wasmtime::Result<()> {
        let InputShape { now, number, cluster, .. } = &row.inputs;
        let (own_row, lists) = inputs.row_and_lists(function);
        let mut values = values.iter_mut();
        let mut push = |value: ValRaw| {
            if let Some(next) = values.next() {
                *next = value;
            }
        };
        if *now {
            push(ValRaw::u64(inputs.now_us));
        }
        match number {
            None => {}
            Some(NumberShape::U32) => push(ValRaw::u32(inputs.number as u32)),
            Some(NumberShape::U64 | NumberShape::F64) => push(ValRaw::u64(inputs.number)),
        }
        if let Some(own) = own_row {
            fields_of(own, &mut push);
        }
        if *cluster {
            fields_of(&AnyRows::one(&inputs.ages), &mut push);
            let instances = &inputs.instances;
            let room = self.room_of_instances(store, 0, instances.numbers.len())?;
            let memory = self.memory.memory.data_mut(&mut *store);
            room.write(memory, instances.count, instances.numbers, instances.changed)?;
            for number in [instances.count, room.numbers_at, instances.numbers.len()] {
                push(ValRaw::u32(number as u32));
            }
        }
        if !lists.is_empty() {
            // All lists are in the one memory for inputs.
            let mut at = self.put_lists(store, lists)?;
            for list in lists {
                push(ValRaw::u32(at));
                push(ValRaw::u32(list.len() as u32));
                at += list.bytes().len() as u32;
            }
        }
        Ok(())
    }

    /// The output of `called`, which returned `value`: that itself, or the address of a result in memory.
    #[inline(always)] // it has one caller
    fn output(
        &self,
        store: &mut Store<WasmHost>,
        called: &DirectFunction,
        value: ValRaw,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<Output> {
        Ok(match &called.row.output {
            OutputShape::Index => Output::Index(value.get_u32() as usize),
            OutputShape::Flag => Output::Flag(value.get_u32() != 0),
            OutputShape::Integer => Output::Integer(value.get_i64()),
            OutputShape::Duration => Output::Duration(value.get_u64()),
            OutputShape::Number(_) => Output::Number(f64::from_bits(value.get_f64())),
            in_memory => {
                let (at, after) = (value.get_u32(), called.after.as_ref());
                return read_result(&self.memory, store, at, after, RESULT_BYTES, |reader, at| match in_memory {
                    OutputShape::Numbers(_) => reader.numbers_at(at, numbers).map(|()| Output::Numbers),
                    OutputShape::Chosen => {
                        reader.chosen(at).map(|chosen| Output::Chosen(chosen.map(|index| index as usize)))
                    }
                    OutputShape::Record { shape, flags, .. } => reader.fields(at, shape, *flags).map(Output::Record),
                    _ => reader.refusal(at).map(|refused| {
                        Output::Decision(match refused {
                            None => AdmissionDecision::Admit,
                            Some(text) => AdmissionDecision::Reject(Reason::Text(text.into())),
                        })
                    }),
                });
            }
        })
    }

    /// The address of `size` bytes for the input of the next call.
    #[inline]
    fn room(&self, store: &mut Store<WasmHost>, size: usize) -> wasmtime::Result<usize> {
        match &self.input {
            Some(input) => input.room(store, size),
            None => self.memory.room(store, 8, size),
        }
    }

    /// Writes the rows of `lists`, one list after the other. All rows have as many bytes as is a multiple of 8.
    #[inline]
    fn put_lists(&self, store: &mut Store<WasmHost>, lists: &[AnyRows<'_>]) -> wasmtime::Result<u32> {
        let size = lists.iter().map(|list| list.bytes().len()).sum();
        let start = self.room(store, size)?;
        let memory = self.memory.memory.data_mut(store);
        let mut at = start;
        for list in lists {
            write(memory, at, list.bytes())?;
            at += list.bytes().len();
        }
        Ok(start as u32)
    }

    /// Room for `head` bytes of other parameters and for `numbers` of the instances.
    #[inline]
    fn room_of_instances(
        &self,
        store: &mut Store<WasmHost>,
        head: usize,
        numbers: usize,
    ) -> wasmtime::Result<InstanceRoom> {
        let size = numbers * size_of::<f64>();
        let Some(input) = &self.input else {
            let at = if head == 0 { 0 } else { self.memory.room(&mut *store, 8, head)? };
            return Ok(InstanceRoom { at, numbers_at: self.memory.room(store, 8, size)?, keeps_rows: false });
        };
        let at = input.room(store, head + size)?;
        Ok(InstanceRoom { at, numbers_at: at + head, keeps_rows: input.keeps_rows() })
    }
}

/// Gives `push` the fields of a row, in their order.
#[inline]
fn fields_of(row: &AnyRows<'_>, push: &mut impl FnMut(ValRaw)) {
    let mut rest = row.bytes();
    for field in row.shape().fields {
        if field.size == size_of::<u64>()
            && let Some((number, others)) = rest.split_first_chunk()
        {
            push(ValRaw::u64(u64::from_le_bytes(*number)));
            rest = others;
        } else if let Some((number, others)) = rest.split_first_chunk() {
            push(ValRaw::u32(u32::from_le_bytes(*number)));
            rest = others;
        }
    }
}

/// The types of the parameters of a function that are passed one by one, and of its result.
fn flat_types(row: &FunctionRow) -> (Vec<ValType>, ValType) {
    let InputShape { now, number, row: own, cluster, lists, .. } = &row.inputs;
    let types_of = |shape: &blis_abi::RowShape| {
        let types = shape.fields.iter().map(|field| match field.ty {
            "f64" => ValType::F64,
            "u64" | "i64" => ValType::I64,
            _ => ValType::I32,
        });
        types.collect::<Vec<_>>()
    };
    let mut types = Vec::new();
    if row.flat_inputs() > FLAT_PARAMETERS {
        types.push(ValType::I32);
    } else {
        types.extend(now.then_some(ValType::I64));
        types.extend(number.map(|number| match number {
            NumberShape::U32 => ValType::I32,
            NumberShape::U64 => ValType::I64,
            NumberShape::F64 => ValType::F64,
        }));
        types.extend(own.iter().flat_map(types_of));
        if *cluster {
            types.extend(types_of(&AgesRow::SHAPE));
            types.extend([ValType::I32, ValType::I32, ValType::I32]);
        }
        types.extend(lists.iter().flat_map(|_| [ValType::I32, ValType::I32]));
    }
    let result = match row.output {
        OutputShape::Integer | OutputShape::Duration => ValType::I64,
        OutputShape::Number(_) => ValType::F64,
        _ => ValType::I32,
    };
    (types, result)
}

/// Where the parameters of a decision about the instances are written.
struct InstanceRoom {
    /// Address of the other parameters.
    at: usize,
    numbers_at: usize,
    /// Whether the rows of the call before are still there.
    keeps_rows: bool,
}

impl InstanceRoom {
    /// Writes the numbers of `count` instances, of those that the call before has left only the `changed` rows.
    #[inline]
    fn write(
        &self,
        memory: &mut [u8],
        count: usize,
        instances: &[f64],
        changed: Option<&[u32]>,
    ) -> wasmtime::Result<()> {
        let numbers = bytes_of(instances);
        let Some(changed) = changed.filter(|_| self.keeps_rows) else { return write(memory, self.numbers_at, numbers) };
        let width = numbers.len() / count.max(1);
        for start in changed.iter().map(|&index| index as usize * width) {
            let Some(row) = numbers.get(start..start + width) else { continue };
            write(memory, self.numbers_at + start, row)?;
        }
        Ok(())
    }
}

/// The bytes of numbers as a little-endian guest has them.
#[inline]
#[allow(unsafe_code)]
fn bytes_of(numbers: &[f64]) -> &[u8] {
    // SAFETY: all bytes of a number are initialised; u8 has no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The record of `value`, with what it points to in the guest's memory.
fn lowered(
    memory: &GuestMemory,
    context: &mut StoreContextMut<'_, WasmHost>,
    value: ParameterValue<'_>,
) -> wasmtime::Result<ValueRecord> {
    Ok(match value {
        ParameterValue::Number(number) => ValueRecord::number(number),
        ParameterValue::Text(text) => {
            let (at, len) = memory.put(context, 1, text.as_bytes())?;
            ValueRecord::new(ValueRecord::TEXT, [at, len, 0, 0])
        }
        ParameterValue::Table(ValueTable { columns, numbers }) => {
            let (at, _) = memory.put(context, 8, bytes_of(numbers))?;
            ValueRecord::new(ValueRecord::TABLE, [*columns, at, numbers.len() as u32, 0])
        }
    })
}

/// The exports of an instance of a core module.
type CoreExports<'a> = InstanceExports<'a, Instance>;

impl CoreExports<'_> {
    fn memory(&self) -> Result<GuestMemory, Fault> {
        let memory = self.store.data().memory.clone();
        memory.ok_or_else(|| self.file.fault(FaultKind::MissingExport, "does not export memory"))
    }

    /// The memory for inputs, if the module exports the function that returns it.
    fn input(&mut self) -> Result<Option<InputMemory>, Fault> {
        let Some(reserve) = self.instance.get_func(&mut *self.store, INPUT) else { return Ok(None) };
        let reserve = reserve.typed(&*self.store);
        let reserve = reserve.map_err(|error| {
            self.file.fault(FaultKind::MissingExport, format_args!("{INPUT} is not the function of the SDK: {error:#}"))
        })?;
        Ok(Some(InputMemory::new(reserve)))
    }

    /// A function of the table of decisions, if it has the type that follows from there.
    fn decision(&mut self, function: Function) -> Result<DirectFunction, Fault> {
        let (row, interface) = (function.row(), function.interface());
        let name = self.name(interface, row.wit)?;
        let (file, full_name) = (self.file, self.full_name(interface)?);
        let wrong = |what: &str| inspect::does_not_fit(file, full_name, &format!("{name}: {what}"));
        let found = self.instance.get_func(&mut *self.store, &name).ok_or_else(|| wrong("it is not exported"))?;
        let ty = found.ty(&*self.store);
        let (parameters, result) = flat_types(row);
        let fits = ty.params().len() == parameters.len()
            && ty.results().len() == 1
            && ty.params().zip(&parameters).all(|(found, wanted)| found.matches(wanted))
            && ty.results().all(|found| found.matches(&result));
        if !fits {
            return Err(wrong(&format!("it has the type {ty}")));
        }
        let after = self.after(interface, row.wit)?;
        let in_memory = row.flat_inputs() > FLAT_PARAMETERS;
        Ok(DirectFunction { row, function: found, in_memory, after })
    }

    fn name(&self, interface: &str, function: &str) -> Result<String, Fault> {
        Ok(format!("{}#{function}", self.full_name(interface)?))
    }

    fn function<P: WasmParams, R: WasmResults>(
        &mut self,
        interface: &str,
        name: &str,
    ) -> Result<TypedFunc<P, R>, Fault> {
        let (full_name, name) = (self.full_name(interface)?, self.name(interface, name)?);
        let found = self.instance.get_typed_func(&mut *self.store, &name);
        found.map_err(|error| inspect::does_not_fit(self.file, full_name, &format!("{name}: {error:#}")))
    }

    fn memory_result<P: WasmParams>(&mut self, interface: &str, name: &str) -> Result<MemoryResult<P>, Fault> {
        Ok(MemoryResult { function: self.function(interface, name)?, after: self.after(interface, name)? })
    }

    /// The function that is called after a result of function `name` was read, if there is one.
    fn after(&mut self, interface: &str, name: &str) -> Result<Option<TypedFunc<u32, ()>>, Fault> {
        let after = format!("{}{}", standard::POST_RETURN, self.name(interface, name)?);
        let Some(after) = self.instance.get_func(&mut *self.store, &after) else { return Ok(None) };
        let after = after
            .typed(&*self.store)
            .map_err(|error| self.file.fault(FaultKind::MissingExport, format_args!("after {name}: {error:#}")))?;
        Ok(Some(after))
    }
}
