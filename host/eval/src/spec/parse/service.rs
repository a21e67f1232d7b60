//! Parsers of what replicas are and how many there are: groups, node pools, starts, and rules of scaling.

use blis_sim::cluster::{PhaseTime, StartMode, StartTimes};
use blis_sim::scaling::{Change, ScalingRules, Select};
use blis_sim::units::Micros;

use blis_diag::name_hint;

use super::{above_0, choice, count, duration, instances, instances_or_zero, or_zero, parallelism};
use crate::group::GroupSettings;
use crate::node_pool::{GPUS_PER_NODE, NodePoolSettings};
use crate::startup::StartupSettings;

/// A group of instances: `hardware=A100-SXM,tp=1,instances=2`.
pub fn group(text: &str) -> Result<GroupSettings, String> {
    let mut group = GroupSettings::default();
    entries(text, "a setting of the group and its value, like hardware=A100-SXM", |name, value| {
        set_group(&mut group, name, value)
    })?;
    if group.instances == 0 {
        group.instances = group.min.unwrap_or_default().max(1);
    }
    Ok(group)
}

/// Sets `name` of `group`.
///
/// # Errors
/// What the value must be, or which settings there are.
pub(in super::super) fn set_group(group: &mut GroupSettings, name: &str, value: &str) -> Result<(), String> {
    const KEYS: [&str; 12] = [
        "model",
        "hardware",
        "tp",
        "max-num-seqs",
        "max-num-batched-tokens",
        "role",
        "block-size",
        "instances",
        "min",
        "max",
        "startup-time",
        "start-mode",
    ];
    let message = |message: String| format!("`{name}` {message}");
    match name {
        "model" => group.model = Some(value.to_owned()),
        "hardware" => group.hardware = Some(value.to_owned()),
        "tp" => group.tp = Some(parallelism(value).map_err(message)?),
        "max-num-seqs" => group.max_num_seqs = Some(count(value).map_err(message)?),
        "max-num-batched-tokens" => group.max_num_batched_tokens = Some(count(value).map_err(message)?),
        "role" => group.role = Some(choice(value).map_err(message)?),
        "block-size" => group.block_size = Some(count(value).map_err(message)?),
        "instances" => group.instances = instances(value).map_err(message)?,
        "min" => group.min = Some(instances_or_zero(value).map_err(message)?),
        "max" => group.max = Some(instances(value).map_err(message)?),
        "startup-time" => {
            let phases = value.strip_prefix('(').and_then(|value| value.strip_suffix(')')).unwrap_or(value);
            group.startup_time = Some(start_times(phases).map_err(|message| format!("`startup-time`: {message}"))?);
        }
        "start-mode" => group.start_mode = Some(start_mode(value).map_err(message)?),
        _ => return Err(format!("there is no setting `{name}` of a group: {}", name_hint(name, &KEYS))),
    }
    Ok(())
}

/// Nodes with GPUs: `name=a,hardware=H100,gpus-per-node=8,min=0,max=4,provisioning=5m,price=20`.
pub fn node_pool(text: &str) -> Result<NodePoolSettings, String> {
    let mut pool = NodePoolSettings {
        name: String::new(),
        hardware: None,
        gpus_per_node: GPUS_PER_NODE,
        min: 0,
        max: 0,
        provisioning: Micros::ZERO,
        price: None,
    };
    entries(text, "a setting of the node pool and its value, like name=a", |name, value| {
        set_node_pool(&mut pool, name, value)
    })?;
    if pool.name.is_empty() {
        return Err("`name` is missing: messages and results name the pool by it".to_owned());
    }
    if pool.max == 0 {
        return Err("`max` is missing: the most nodes of the pool, as max=4".to_owned());
    }
    Ok(pool)
}

/// Sets `name` of `pool`.
///
/// # Errors
/// What the value must be, or which settings there are.
pub(in super::super) fn set_node_pool(pool: &mut NodePoolSettings, name: &str, value: &str) -> Result<(), String> {
    const KEYS: [&str; 7] = ["name", "hardware", "gpus-per-node", "min", "max", "provisioning", "price"];
    let message = |message: String| format!("`{name}` {message}");
    match name {
        "name" => pool.name = value.to_owned(),
        "hardware" => pool.hardware = Some(value.to_owned()),
        "gpus-per-node" => pool.gpus_per_node = parallelism(value).map_err(message)?,
        "min" => pool.min = instances_or_zero(value).map_err(message)?,
        "max" => pool.max = instances(value).map_err(message)?,
        "provisioning" => pool.provisioning = or_zero(value).map_err(message)?,
        "price" => pool.price = Some(above_0(value).map_err(message)?),
        _ => return Err(format!("there is no setting `{name}` of a node pool: {}", name_hint(name, &KEYS))),
    }
    Ok(())
}

/// Calls `set` with each name and value of `text`; `form` says what an entry must be.
fn entries(text: &str, form: &str, mut set: impl FnMut(&str, &str) -> Result<(), String>) -> Result<(), String> {
    let mut seen = Vec::new();
    for part in parts(text) {
        let entry = part.split_once('=').filter(|(_, value)| !value.is_empty());
        let (name, value) = entry.ok_or_else(|| format!("`{part}`: must be {form}"))?;
        set(name, value)?;
        if seen.contains(&name) {
            return Err(format!("`{name}` is repeated"));
        }
        seen.push(name);
    }
    Ok(())
}

/// What is between the commas of `text` that are not in parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let separates = move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(separates).map(str::trim)
}

/// How fast the number of replicas may change in one direction: `window=30s,100%/60s,4/60s`, with `select=min` for the
/// smaller of the changes, or `disabled`.
pub fn scaling_rules(text: &str) -> Result<ScalingRules, String> {
    const FORM: &str = "must look like window=30s,100%/60s,4/60s, or be disabled";
    let mut rules = ScalingRules { window: Micros::ZERO, policies: Vec::new(), select: Select::Max };
    if text.trim() == "disabled" {
        return Ok(ScalingRules { select: Select::Disabled, ..rules });
    }
    let (mut window, mut select) = (None, None);
    for part in text.split(',').map(str::trim) {
        if let Some(time) = part.strip_prefix("window=") {
            if window.replace(or_zero(time)?).is_some() {
                return Err("`window` is repeated".to_owned());
            }
        } else if let Some(name) = part.strip_prefix("select=") {
            let value = match name {
                "max" => Select::Max,
                "min" => Select::Min,
                _ => return Err(format!("`{part}`: must be select=max or select=min")),
            };
            if select.replace(value).is_some() {
                return Err("`select` is repeated".to_owned());
            }
        } else {
            let (change, period) = part.split_once('/').ok_or_else(|| format!("`{part}`: {FORM}"))?;
            let number = |text: &str| count(text).map_err(|message| format!("`{part}`: the change {message}"));
            let change = match change.strip_suffix('%') {
                Some(percent) => Change::Percent(number(percent)?),
                None => Change::Pods(number(change)?),
            };
            rules.policies.push((change, duration(period)?));
        }
    }
    rules.window = window.unwrap_or_default();
    rules.select = select.unwrap_or(Select::Max);
    Ok(rules)
}

/// How long a replica takes to start: `135s`, or phases that replace single ones of the default:
/// `process=14s,weights-bandwidth=2GB/s,compile=gaussian(35s,5s),warm-up=11s,wake=3s`.
pub fn start_times(text: &str) -> Result<StartupSettings, String> {
    const PHASES: [&str; 6] = ["process", "weights", "weights-bandwidth", "compile", "warm-up", "wake"];
    let usual = StartTimes::default();
    if !text.contains('=') {
        let none = PhaseTime::default();
        let times = StartTimes { process: phase(text)?, weights: none, compile: none, warm_up: none, ..usual };
        return Ok(StartupSettings { times, bandwidth: None });
    }
    let (mut times, mut bandwidth, mut weights) = (usual, None, None);
    entries(text, "a phase and a time, like compile=35s", |name, value| {
        let time = || phase(value).map_err(|message| format!("`{name}`: {message}"));
        match name {
            "process" => times.process = time()?,
            "weights" => weights = Some(time()?),
            "weights-bandwidth" => bandwidth = Some(bytes_per_second(value)?),
            "compile" => times.compile = time()?,
            "warm-up" => times.warm_up = time()?,
            "wake" => times.wake = time()?,
            _ => return Err(format!("there is no phase `{name}`: {}", name_hint(name, &PHASES))),
        }
        Ok(())
    })?;
    if weights.is_some() && bandwidth.is_some() {
        return Err("`weights` and `weights-bandwidth` are two forms of one phase: leave out one of them".to_owned());
    }
    times.weights = weights.unwrap_or(times.weights);
    Ok(StartupSettings { times, bandwidth })
}

/// The time of a phase: `30s`, or `gaussian(30s,5s)` with mean and standard deviation.
fn phase(text: &str) -> Result<PhaseTime, String> {
    let form = || format!("`{text}` must be a time, like 30s, or gaussian(30s,5s) with mean and standard deviation");
    let Some(arguments) = text.strip_prefix("gaussian(") else {
        return or_zero(text).map(PhaseTime::constant);
    };
    let (mean, deviation) = arguments.strip_suffix(')').and_then(|text| text.split_once(',')).ok_or_else(form)?;
    Ok(PhaseTime { mean: or_zero(mean.trim())?, deviation: or_zero(deviation.trim())? })
}

/// A bandwidth, bytes per second: `10GB/s`.
fn bytes_per_second(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 7] = [
        ("TB/s", 1e12),
        ("GiB/s", 1_073_741_824.0),
        ("GB/s", 1e9),
        ("MiB/s", 1_048_576.0),
        ("MB/s", 1e6),
        ("kB/s", 1e3),
        ("B/s", 1.0),
    ];
    let found = UNITS.iter().find_map(|&(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    let bandwidth = found.and_then(|(number, bytes)| above_0(number).ok().map(|number| number * bytes));
    let message = || format!("`weights-bandwidth` is `{text}`: must be a number and a unit, like 10GB/s");
    bandwidth.filter(|bandwidth| (1.0..=1e18).contains(bandwidth)).ok_or_else(message)
}

/// `cold`, `warm` or `hot:N`.
pub fn start_mode(text: &str) -> Result<StartMode, String> {
    match text {
        "cold" => Ok(StartMode::Cold),
        "warm" => Ok(StartMode::Warm),
        _ => {
            let pool = text.strip_prefix("hot:").and_then(|pool| instances(pool).ok());
            pool.map(|pool| StartMode::Hot { pool })
                .ok_or_else(|| "must be cold, warm, or hot:N for N sleeping replicas, as hot:2".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_back() {
        for text in [
            "hardware=A100-SXM,tp=1,instances=2",
            "model=qwen/qwen3-14b",
            "min=0,max=4,max-num-seqs=64",
            "tp=2",
            "startup-time=100s,start-mode=hot:2",
            "startup-time=(weights-bandwidth=3GB/s,compile=gaussian(35s,5s)),tp=4",
        ] {
            let parsed = group(text).expect(text);
            assert_eq!(group(&parsed.to_string()), Ok(parsed), "{text}");
        }
        for text in [
            "",
            "hardware",
            "hardware=",
            "tp=0",
            "gpu=H100",
            "tp=1,tp=2",
            "instances=0",
            "startup-time=(compile=1s",
            "startup-time=9",
        ] {
            assert!(group(text).is_err(), "{text}");
        }
    }

    #[test]
    fn node_pools_come_back() {
        for text in [
            "name=a,max=4",
            "name=cheap,hardware=H100,gpus-per-node=4,min=1,max=2,provisioning=5m30s,price=12.5",
            "max=1,name=b,provisioning=0",
        ] {
            let parsed = node_pool(text).expect(text);
            assert_eq!(node_pool(&parsed.to_string()), Ok(parsed), "{text}");
        }
        assert_eq!(node_pool("name=a,max=4").map(|pool| (pool.gpus_per_node, pool.min)), Ok((8, 0)));
        for text in [
            "",
            "name=a",
            "max=4",
            "name=,max=4",
            "name=a,max=0",
            "name=a,max=4,max=5",
            "name=a,max=4,gpus-per-node=0",
            "name=a,max=4,price=0",
            "name=a,max=4,provisioning=300",
            "name=a,max=4,gpus=8",
        ] {
            assert!(node_pool(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rules_of_scaling_come_back() {
        for text in ["window=30s,100%/60s,4/60s", "window=0,select=min,1/120s", "disabled", "window=0"] {
            let rules = scaling_rules(text).expect(text);
            let written = super::super::super::text::scaling_rules(&rules).concat();
            assert_eq!(scaling_rules(&written), Ok(rules), "{text}: {written}");
        }
        let rules = scaling_rules("100%/15s, 4/15s").expect("legal");
        let period = Micros(15_000_000);
        assert_eq!(rules.policies, [(Change::Percent(100), period), (Change::Pods(4), period)]);
        assert_eq!((rules.window, rules.select), (Micros::ZERO, Select::Max));
        for text in ["", "4", "x/1s", "0/1s", "4/", "4/1", "window=1", "window=1s,window=1s", "select=none", "4/1s,"] {
            assert!(scaling_rules(text).is_err(), "{text}");
        }
    }

    #[test]
    fn start_times_are_a_sum_or_phases() {
        let usual = StartTimes::default();
        let total = start_times("135s").expect("legal");
        let of = |seconds: u64| PhaseTime::constant(Micros(seconds * 1_000_000));
        assert_eq!((total.times.process, total.times.weights, total.times.wake), (of(135), of(0), usual.wake));
        let phases = start_times("weights=2s, warm-up=0").expect("legal");
        assert_eq!(phases.times, StartTimes { weights: of(2), warm_up: of(0), ..usual });
        let drawn = start_times("weights-bandwidth=2.5GB/s,compile=gaussian(30s, 1.5s)").expect("legal");
        let compile = PhaseTime { deviation: Micros(1_500_000), ..of(30) };
        assert_eq!(drawn, StartupSettings { times: StartTimes { compile, ..usual }, bandwidth: Some(2.5e9) });
        let any = start_times("gaussian(100s,10s)").expect("legal");
        assert_eq!(any.times.process, PhaseTime { deviation: Micros(10_000_000), ..of(100) });
        for times in [total, phases, drawn, any, StartupSettings::default()] {
            assert_eq!(start_times(&super::super::super::text::start_times(&times).concat()), Ok(times));
        }
        for text in [
            "",
            "135",
            "weights=",
            "weights=1s,weights=1s",
            "weight=1s",
            "weights=1s,4s",
            "weights=1s,weights-bandwidth=1GB/s",
            "weights-bandwidth=1GB",
            "weights-bandwidth=0GB/s",
            "weights-bandwidth=infGB/s",
            "compile=gaussian(1s)",
            "compile=gaussian(1s,2s",
            "compile=normal(1s,2s)",
            "compile=gaussian(1s,2s,3s)",
        ] {
            assert!(start_times(text).is_err(), "{text}");
        }
        assert_eq!(start_mode("hot:2"), Ok(StartMode::Hot { pool: 2 }));
        assert!(["", "hot", "hot:0", "hot:x", "lukewarm"].into_iter().all(|text| start_mode(text).is_err()));
    }
}
