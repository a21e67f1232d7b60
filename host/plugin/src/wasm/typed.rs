//! Calls the functions of a component through wasmtime's component layer: for any component, from any compiler.
//!
//! Functions that get the instances have types of their own, because they are called for every request with a long list of
//! numbers. All others are called with values made from the shape of their rows.

use blis_abi::decisions::{FunctionRow, InputShape, NumberShape, OutputShape};
use blis_abi::{AnyRows, Field, Row as _, RowShape};
use blis_sim::policy::{AdmissionDecision, Events, Reason};
use wasmtime::component::{
    ComponentExportIndex, ComponentNamedList, Func, Instance, InstancePre, Lift, Lower, Type, TypedFunc, Val,
};
use wasmtime::{Engine, Store};

use super::bindings::{Ages, Decision, Description, Event, InstanceInfo, ModelFact, Request, Value};
use super::describe::RawDescription;
use super::functions::{Functions, InstanceExports, WasmInputs};
use super::host::WasmHost;
use super::inspect::does_not_fit;
use crate::rows::{EventRow, RequestRow};
use crate::{Fault, Function, GuestSetup, Kind, Output, ParameterValue, PolicyDescription};

type OfInstances<A> = TypedFunc<(Request, Ages, u32, &'static [f64]), (A,)>;
type Configure = TypedFunc<(&'static str, Vec<Value>, Vec<InstanceInfo>, Vec<ModelFact>), (Result<(), String>,)>;

/// A function of the table of decisions.
enum TypedFunction {
    Reason(OfInstances<Decision>),
    Index(OfInstances<u32>),
    Numbers(OfInstances<Vec<f64>>),
    Saturation(TypedFunc<(u64, Ages, u32, &'static [f64]), (f64,)>),
    /// Its type was compared with that of its row.
    Other(Func),
}

/// All functions of an instance that a guest uses.
pub(super) struct Typed {
    /// The functions of its kind, in the order of the table.
    functions: Vec<Option<TypedFunction>>,
    configure: Configure,
    save: TypedFunc<(), (Vec<u8>,)>,
    restore: TypedFunc<(&'static [u8],), (Result<(), String>,)>,
    observe: Option<TypedFunc<(Event,), ()>>,
}

impl Functions for Typed {
    type Pre = InstancePre<WasmHost>;
    type Instance = Instance;

    fn engine(pre: &InstancePre<WasmHost>) -> &Engine {
        pre.engine()
    }

    fn instantiate(pre: &InstancePre<WasmHost>, store: &mut Store<WasmHost>) -> wasmtime::Result<Instance> {
        pre.instantiate(store)
    }

    fn describe(exports: &mut ComponentExports<'_>) -> Result<wasmtime::Result<RawDescription>, Fault> {
        let describe = exports.function::<(), (Description,)>("plugin", "describe")?;
        Ok(describe.call(&mut *exports.store, ()).map(|(description,)| description.into()))
    }

    fn find(exports: &mut ComponentExports<'_>, kind: Kind, description: &PolicyDescription) -> Result<Self, Fault> {
        let needed = |&function: &Function| function != Function::Scores || description.scores;
        let functions = kind
            .functions()
            .iter()
            .map(|&function| Some(function).filter(needed).map(|function| exports.decision(function)).transpose());
        Ok(Self {
            functions: functions.collect::<Result<_, Fault>>()?,
            configure: exports.function("plugin", "configure")?,
            save: exports.function("plugin", "save")?,
            restore: exports.function("plugin", "restore")?,
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
        let instances = setup.instances.iter().map(|info| InstanceInfo {
            id: info.id.0,
            max_num_seqs: info.max_num_seqs,
            total_kv_blocks: info.total_kv_blocks,
            block_size: info.block_size,
        });
        let model_facts = setup.model_facts.iter().map(|(name, value)| ModelFact { name: name.clone(), value: *value });
        let values = values.iter().map(|&value| value.into()).collect();
        let params = (setup.kind.name(), values, instances.collect(), model_facts.collect());
        one(called(self.configure, store, params))
    }

    fn save(&self, store: &mut Store<WasmHost>) -> wasmtime::Result<Vec<u8>> {
        one(called(self.save, store, ()))
    }

    fn restore(&self, store: &mut Store<WasmHost>, state: &[u8]) -> wasmtime::Result<Result<(), String>> {
        one(called(self.restore, store, (state,)))
    }

    fn observe(&self, store: &mut Store<WasmHost>, event: &EventRow) -> wasmtime::Result<()> {
        self.observe.map_or(Ok(()), |observe| called(observe, store, (event.into(),)))
    }

    fn call(
        &self,
        store: &mut Store<WasmHost>,
        function: Function,
        inputs: &WasmInputs<'_>,
        numbers: &mut Vec<f64>,
    ) -> wasmtime::Result<Output> {
        let Some(Some(called_function)) = self.functions.get(function.index()) else {
            wasmtime::bail!("it has no function {}", function.name());
        };
        let count = u32::try_from(inputs.instances.count).unwrap_or(u32::MAX);
        let (ages, rows) = ((&inputs.ages).into(), inputs.instances.numbers);
        Ok(match *called_function {
            TypedFunction::Reason(admit) => {
                Output::Decision(match one(called(admit, store, ((&inputs.request).into(), ages, count, rows)))? {
                    Decision::Admit => AdmissionDecision::Admit,
                    Decision::Reject(reason) => AdmissionDecision::Reject(Reason::Text(reason.into())),
                })
            }
            TypedFunction::Index(route) => {
                Output::Index(one(called(route, store, ((&inputs.request).into(), ages, count, rows)))? as usize)
            }
            TypedFunction::Numbers(compute) => {
                let computed = called(compute, store, ((&inputs.request).into(), ages, count, rows));
                numbers.append(&mut one(computed)?);
                Output::Numbers
            }
            TypedFunction::Saturation(saturation) => {
                Output::Number(one(called(saturation, store, (inputs.now_us, ages, count, rows)))?)
            }
            TypedFunction::Other(other) => {
                let mut result = [Val::Bool(false)];
                other.call(store, &values(function, inputs), &mut result)?;
                let [result] = result;
                return output(&function.row().output, result, numbers);
            }
        })
    }
}

/// The inputs of a function that gets no instances, one by one.
pub(super) fn values(function: Function, inputs: &WasmInputs<'_>) -> Vec<Val> {
    let InputShape { request, now, number, .. } = &function.row().inputs;
    let (row, lists) = inputs.row_and_lists(function);
    let number = number.map(|number| match number {
        NumberShape::U32 => Val::U32(inputs.number as u32),
        NumberShape::U64 => Val::U64(inputs.number),
        NumberShape::F64 => Val::Float64(f64::from_bits(inputs.number)),
    });
    let request = request.then(|| records(&AnyRows::one(&inputs.request)));
    let list = |list: &AnyRows<'_>| Val::List(records(list).collect());
    let first = request.into_iter().flatten().chain(now.then_some(Val::U64(inputs.now_us))).chain(number);
    first.chain(row.into_iter().flat_map(records)).chain(lists.iter().map(list)).collect()
}

/// Rows as values of component records.
fn records<'a>(rows: &AnyRows<'a>) -> impl Iterator<Item = Val> + use<'a> {
    let shape = rows.shape();
    rows.bytes().chunks_exact(shape.size).map(|row| {
        let field = |field: &Field| {
            let bytes = &row[field.offset..field.offset + field.size];
            let wide = bytes.iter().rev().fold(0, |wide, &byte| wide << 8 | u64::from(byte));
            let value = match field.ty {
                "f64" => Val::Float64(f64::from_bits(wide)),
                "u64" => Val::U64(wide),
                "i64" => Val::S64(wide.cast_signed()),
                "i32" => Val::S32(wide as i32),
                _ => Val::U32(wide as u32),
            };
            (wit_name(field), value)
        };
        Val::Record(shape.fields.iter().map(field).collect())
    })
}

/// The name of a field in WIT.
fn wit_name(field: &Field) -> String {
    field.name.replace('_', "-")
}

/// What `result` says, for a function that returns `shape`.
fn output(shape: &OutputShape, result: Val, numbers: &mut Vec<f64>) -> wasmtime::Result<Output> {
    Ok(match (shape, result) {
        (OutputShape::Index, Val::U32(index)) => Output::Index(index as usize),
        (OutputShape::Chosen, Val::Option(None)) => Output::Chosen(None),
        (OutputShape::Chosen, Val::Option(Some(index))) => match *index {
            Val::U32(index) => Output::Chosen(Some(index as usize)),
            other => wasmtime::bail!("it returned {other:?}"),
        },
        (OutputShape::Integer, Val::S64(number)) => Output::Integer(number),
        (OutputShape::Duration, Val::U64(us)) => Output::Duration(us),
        (OutputShape::Number(_), Val::Float64(number)) => Output::Number(number),
        (OutputShape::Flag, Val::Bool(flag)) => Output::Flag(flag),
        (OutputShape::Numbers(_), Val::List(list)) => {
            for number in list {
                let Val::Float64(number) = number else { wasmtime::bail!("it returned {number:?}") };
                numbers.push(number);
            }
            Output::Numbers
        }
        (OutputShape::Record { .. }, Val::Record(fields)) => {
            let word = |(_, value): (String, Val)| {
                Ok(match value {
                    Val::Bool(flag) => u64::from(flag),
                    Val::U32(number) => number.into(),
                    Val::S32(number) => u64::from(number.cast_unsigned()),
                    Val::U64(number) => number,
                    Val::S64(number) => number.cast_unsigned(),
                    Val::Float64(number) => number.to_bits(),
                    other => wasmtime::bail!("it returned {other:?}"),
                })
            };
            Output::Record(fields.into_iter().map(word).collect::<wasmtime::Result<_>>()?)
        }
        (_, other) => wasmtime::bail!("it returned {other:?}"),
    })
}

/// Whether a function with these types of parameters and results is the one that `row` describes.
fn fits(row: &FunctionRow, parameters: &[Type], results: &[Type]) -> bool {
    let InputShape { request, now, number, row: own, lists, .. } = &row.inputs;
    let mut parameters = parameters.iter();
    let mut next = |fits: &dyn Fn(&Type) -> bool| parameters.next().is_some_and(fits);
    let inputs_fit = (!request || next(&|ty| is_record(ty, &RequestRow::SHAPE, 0)))
        && (!now || next(&|ty| matches!(ty, Type::U64)))
        && number.is_none_or(|number| {
            next(&|ty| match number {
                NumberShape::U32 => matches!(ty, Type::U32),
                NumberShape::U64 => matches!(ty, Type::U64),
                NumberShape::F64 => matches!(ty, Type::Float64),
            })
        })
        && own.as_ref().is_none_or(|own| next(&|ty| is_record(ty, own, 0)))
        && lists.iter().all(|list| next(&|ty| matches!(ty, Type::List(of) if is_record(&of.ty(), list, 0))));
    let [result] = results else { return false };
    inputs_fit
        && parameters.next().is_none()
        && match &row.output {
            OutputShape::Reason => false,
            OutputShape::Index => matches!(result, Type::U32),
            OutputShape::Chosen => matches!(result, Type::Option(of) if matches!(of.ty(), Type::U32)),
            OutputShape::Integer => matches!(result, Type::S64),
            OutputShape::Duration => matches!(result, Type::U64),
            OutputShape::Number(_) => matches!(result, Type::Float64),
            OutputShape::Flag => matches!(result, Type::Bool),
            OutputShape::Numbers(_) => matches!(result, Type::List(of) if matches!(of.ty(), Type::Float64)),
            OutputShape::Record { shape, flags, .. } => is_record(result, shape, *flags),
        }
}

/// Whether `ty` is the record of a row, of which the first `flags` fields are yes or no.
fn is_record(ty: &Type, shape: &RowShape, flags: usize) -> bool {
    let Type::Record(record) = ty else { return false };
    let is_field = |(index, field): (usize, &Field), name: &str, ty: &Type| {
        name == wit_name(field)
            && match field.ty {
                _ if index < flags => matches!(ty, Type::Bool),
                "f64" => matches!(ty, Type::Float64),
                "u64" => matches!(ty, Type::U64),
                "i64" => matches!(ty, Type::S64),
                "i32" => matches!(ty, Type::S32),
                _ => matches!(ty, Type::U32),
            }
    };
    record.fields().len() == shape.fields.len()
        && shape.fields.iter().enumerate().zip(record.fields()).all(|(own, found)| is_field(own, found.name, &found.ty))
}

/// Calls `function`. Parameters are passed by value, so that references in them live as long as the call.
#[inline]
fn called<P, R>(function: TypedFunc<P, R>, store: &mut Store<WasmHost>, params: P) -> wasmtime::Result<R>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    function.call(store, params)
}

fn one<A>(result: wasmtime::Result<(A,)>) -> wasmtime::Result<A> {
    result.map(|(output,)| output)
}

/// The exports of an instance of a component.
type ComponentExports<'a> = InstanceExports<'a, Instance>;

impl<'a> ComponentExports<'a> {
    /// A function of the table of decisions.
    fn decision(&mut self, function: Function) -> Result<TypedFunction, Fault> {
        let (row, interface) = (function.row(), function.interface());
        Ok(match (&row.inputs, &row.output) {
            (InputShape { cluster: true, request: false, .. }, _) => {
                TypedFunction::Saturation(self.function(interface, row.wit)?)
            }
            (InputShape { cluster: true, .. }, OutputShape::Reason) => {
                TypedFunction::Reason(self.function(interface, row.wit)?)
            }
            (InputShape { cluster: true, .. }, OutputShape::Index) => {
                TypedFunction::Index(self.function(interface, row.wit)?)
            }
            (InputShape { cluster: true, .. }, _) => TypedFunction::Numbers(self.function(interface, row.wit)?),
            _ => TypedFunction::Other(self.other(interface, row)?),
        })
    }

    /// A function that gets no instances, if it has the type that follows from `row`.
    fn other(&mut self, interface: &str, row: &FunctionRow) -> Result<Func, Fault> {
        let (index, full_name) = self.index(interface, row.wit)?;
        let found = self.instance.get_func(&mut *self.store, index);
        let found = found.ok_or_else(|| self.lacks(full_name, row.wit))?;
        let ty = found.ty(&*self.store);
        let parameters: Vec<Type> = ty.params().map(|(_, ty)| ty).collect();
        if fits(row, &parameters, &ty.results().collect::<Vec<_>>()) {
            return Ok(found);
        }
        Err(self.is_another(full_name, row.wit, "its type is another"))
    }

    fn function<P, R>(&mut self, interface: &str, name: &str) -> Result<TypedFunc<P, R>, Fault>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let (index, full_name) = self.index(interface, name)?;
        let found = self.instance.get_typed_func(&mut *self.store, index);
        found.map_err(|error| self.is_another(full_name, name, &format!("{error:#}")))
    }

    /// The index of a function, and the full name of its interface.
    fn index(&mut self, interface: &str, name: &str) -> Result<(ComponentExportIndex, &'a str), Fault> {
        let full_name = self.full_name(interface)?;
        let index = self
            .instance
            .get_export_index(&mut *self.store, None, full_name)
            .and_then(|index| self.instance.get_export_index(&mut *self.store, Some(&index), name));
        Ok((index.ok_or_else(|| self.lacks(full_name, name))?, full_name))
    }

    fn lacks(&self, full_name: &str, name: &str) -> Fault {
        does_not_fit(self.file, full_name, &format!("{full_name} lacks the function {name}"))
    }

    fn is_another(&self, full_name: &str, name: &str, why: &str) -> Fault {
        let what = format!("{full_name}: {name} is not the function that it should be: {why}");
        does_not_fit(self.file, full_name, &what)
    }
}
