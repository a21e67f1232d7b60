//! What `--model` names: a folder with a `config.json`, or a model by its organisation and name.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use blis_diag::Diagnostic;

use super::coefficients::blackbox_rows;
use super::error::ConfigError;
use super::model::{self, LoadedModel};
use super::short_name::short_name;
use super::{model_files, model_names};

/// The model that the user names: its short name (lower case), its architecture if it is known, and the notes about it.
///
/// A path is a text that begins with `/`, `./` or `../`, or names a folder with a `config.json`. Everything else is a
/// name on Hugging Face, and only the part after the last `/` counts.
///
/// # Errors
/// If a folder has no config of the model, or a file cannot be read or is invalid; also if both a path and `--model-config-folder` are given.
pub(super) fn load(
    model: &str,
    folder: Option<&Path>,
    notes: &mut Vec<String>,
) -> Result<(String, Option<LoadedModel>), ConfigError> {
    if let Some(path) = local_path(model) {
        if folder.is_some() {
            return Err(ConfigError::Conflict {
                message: format!("`--model {model}` is a folder, and `--model-config-folder` names another"),
                hint: "leave out one of them".to_owned(),
            });
        }
        let name = folder_name(&path);
        let Some(file) = (if path.is_dir() { model_files::within(&path)? } else { None }) else {
            return Err(no_config(&path, &name));
        };
        notes.push(format!("architecture of {}", file.display()));
        let loaded = model::from_file(&name, file, None)?;
        return Ok((name, Some(loaded)));
    }
    let name = short_name(model);
    let organisation = model.trim_end_matches('/').rsplit_once('/').map(|parts| parts.0);
    let Some(folder) = folder else { return built_in(model, name, notes) };
    let loaded = in_folder(&name, organisation, folder, notes)?;
    Ok((name, Some(loaded)))
}

/// The built-in model with that name, a former one of it, or one with a suffix.
fn built_in(model: &str, name: String, notes: &mut Vec<String>) -> Result<(String, Option<LoadedModel>), ConfigError> {
    for candidate in model_names::candidates(&name) {
        let suffixed = candidate.formats.is_some();
        // Coefficients that were fitted to that name win over the config of another.
        if suffixed && blackbox_rows().iter().any(|row| row.model == name) {
            continue;
        }
        let Some(loaded) = model::built_in(&candidate.name, candidate.formats)? else { continue };
        notes.extend(candidate.note);
        notes.extend(other_organisation(model, &candidate.name));
        if Path::new(model).is_dir() {
            notes.push(format!("the folder `{model}` is not read: `--model ./{model}` reads its `config.json`"));
        }
        // Coefficients of the base are not those of other number formats.
        return Ok((if suffixed { name } else { candidate.name }, Some(loaded)));
    }
    Ok((name, None))
}

/// The model of that name in a folder: its own folder below, the one model of the folder, or the base of a name with a suffix.
fn in_folder(
    name: &str,
    organisation: Option<&str>,
    folder: &Path,
    notes: &mut Vec<String>,
) -> Result<LoadedModel, ConfigError> {
    let unreadable = |source| ConfigError::Read { path: folder.into(), source };
    if !std::fs::metadata(folder).map_err(unreadable)?.is_dir() {
        let what = Diagnostic::new("not a folder").hint("give the folder that holds `config.json`");
        return Err(ConfigError::in_file(folder, what));
    }
    let (bases, names): (Vec<_>, Vec<_>) =
        model_names::candidates(name).into_iter().partition(|candidate| candidate.formats.is_some());
    for candidate in names {
        if let Some(path) = model_files::named(folder, organisation, &candidate.name)? {
            notes.extend(candidate.note);
            return model::from_file(name, path, None);
        }
    }
    if let Some(path) = model_files::within(folder)? {
        return model::from_file(name, path, None);
    }
    for candidate in bases {
        let organisations = [organisation, None];
        let found = organisations
            .into_iter()
            .find_map(|organisation| model_files::named(folder, organisation, &candidate.name).transpose());
        if let Some(path) = found.transpose()? {
            notes.extend(candidate.note);
            return model::from_file(name, path, candidate.formats);
        }
    }
    let like = model_files::like(folder, name).map_or(String::new(), |like| format!("did you mean `{like}`? Else "));
    let hint = format!(
        "{like}put it there as `config.json` or `{name}/config.json`, or drop `--model-config-folder` for the built-in ones"
    );
    let what = format!("no config.json of `{name}` in this folder");
    Err(ConfigError::in_file(folder, Diagnostic::new(what).hint(hint)))
}

/// The message about a folder that `--model` names and that has no model.
fn no_config(path: &Path, name: &str) -> ConfigError {
    match std::fs::metadata(path) {
        Err(source) => ConfigError::Read { path: path.into(), source },
        Ok(file) if !file.is_dir() => {
            ConfigError::in_file(path, Diagnostic::new("not a folder").hint("give the folder that holds `config.json`"))
        }
        Ok(_) => {
            let what = format!("no `config.json` of the model `{name}` in this folder");
            let hint = "put that of Hugging Face there, or name the model as `organisation/name`";
            ConfigError::in_file(path, Diagnostic::new(what).hint(hint))
        }
    }
}

/// The folder that `model` names, if it is a path.
#[must_use]
pub fn local_path(model: &str) -> Option<PathBuf> {
    let path = Path::new(model);
    let is_path = path.is_absolute() || path.starts_with(".") || path.starts_with("..");
    (is_path || model.contains('/') && (path.join("config.json").is_file() || path.join("snapshots").is_dir()))
        .then(|| path.to_owned())
}

/// The name of a folder, lower case: the last part of its path, without `.` and `..`.
fn folder_name(path: &Path) -> String {
    let whole = path.canonicalize().map_or(Cow::Borrowed(path), Cow::Owned);
    let name = whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().to_lowercase());
    // The hub's cache: `models--Organisation--Name`.
    match name.strip_prefix("models--").and_then(|rest| rest.rsplit_once("--")) {
        Some((_, name)) => name.to_owned(),
        None => name,
    }
}

/// The organisations of the built-in models by the beginnings of their names, as on Hugging Face; the first is the
/// author, others publish the same weights.
const ORGANISATIONS: [(&str, &[&str]); 16] = [
    ("codellama", &["codellama", "meta-llama"]),
    ("deepseek", &["deepseek-ai"]),
    ("glm", &["zai-org"]),
    ("granite", &["ibm-granite"]),
    ("llama-3.1-nemotron", &["nvidia"]),
    ("llama", &["meta-llama"]),
    ("mistral", &["mistralai"]),
    ("mixtral", &["mistralai"]),
    ("phi", &["microsoft"]),
    ("qwen", &["Qwen"]),
    ("smollm", &["HuggingFaceTB"]),
    ("yi", &["01-ai"]),
    ("gpt-oss", &["openai"]),
    ("gemma", &["google"]),
    ("kimi", &["moonshotai"]),
    ("minimax", &["MiniMaxAI"]),
];

/// Publishers of quantized models.
const QUANTIZERS: [&str; 2] = ["RedHatAI", "neuralmagic"];

/// The note for a built-in model with the organisation of another one.
fn other_organisation(model: &str, name: &str) -> Option<String> {
    let (organisation, _) = model.rsplit_once('/')?;
    let (_, known) = ORGANISATIONS.iter().find(|(start, _)| name.starts_with(start))?;
    let quantized = ["fp8", "quantized"].iter().any(|part| name.contains(part));
    let mut all = known.iter().chain(QUANTIZERS.iter().filter(|_| quantized));
    let author = if quantized { QUANTIZERS[0] } else { known[0] };
    all.all(|other| !other.eq_ignore_ascii_case(organisation)).then(|| {
        format!("`{model}` is simulated as {author}'s `{name}`, whose config is built in; `--model PATH` reads another")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_organisations_are_noted() {
        let note = |model: &str| other_organisation(model, &short_name(model));
        let own = ["meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b-instruct", "qwen/qwen3-14b", "x/unheard-of"];
        let own = own.iter().chain(&["RedHatAI/phi-4-quantized.w8a8", "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF"]);
        for model in own {
            assert_eq!(note(model), None, "{model}");
        }
        insta::assert_snapshot!(note("foo/llama-3.1-8b-instruct").unwrap(), @"`foo/llama-3.1-8b-instruct` is simulated as meta-llama's `llama-3.1-8b-instruct`, whose config is built in; `--model PATH` reads another");
        assert!(note("RedHatAI/phi-4").is_some());
    }

    #[test]
    fn every_built_in_model_has_an_organisation() {
        for model in crate::known_models().iter().filter(|model| model.has_config) {
            assert!(ORGANISATIONS.iter().any(|(start, _)| model.name.starts_with(start)), "{}", model.name);
        }
    }

    #[test]
    fn a_path_is_read_from_that_path() {
        let folder = std::env::temp_dir().join(format!("blis-model-path-{}", std::process::id()));
        let mine = folder.join("Llama-3.1-8B-Instruct");
        std::fs::create_dir_all(&mine).unwrap();
        let path = mine.display().to_string();
        let refused = load(&path, None, &mut Vec::new()).unwrap_err().to_string();
        assert!(refused.contains("no `config.json` of the model `llama-3.1-8b-instruct`"), "{refused}");
        let config = crate::embedded::model_config("llama-3.1-8b-instruct").unwrap();
        let shallow = config.replace("\"num_hidden_layers\": 32", "\"num_hidden_layers\": 16");
        std::fs::write(mine.join("config.json"), shallow).unwrap();
        for model in [path.clone(), format!("{path}/"), format!("{path}/../Llama-3.1-8B-Instruct")] {
            let mut notes = Vec::new();
            let (name, loaded) = load(&model, None, &mut notes).unwrap();
            assert_eq!((name.as_str(), loaded.unwrap().config.num_hidden_layers), ("llama-3.1-8b-instruct", 16));
            assert!(notes[0].starts_with("architecture of /"), "{notes:?}");
        }
        assert!(load(&path, Some(&folder), &mut Vec::new()).is_err());
        assert!(load("/no/such/model", None, &mut Vec::new()).is_err());
        let missing = load("m", Some(Path::new("/no/such/folder")), &mut Vec::new()).unwrap_err().to_string();
        assert!(missing.starts_with("`/no/such/folder` does not exist"), "{missing}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    const SMALL: &str = r#"{"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100,
        "intermediate_size": 128, "torch_dtype": "bfloat16"}"#;

    /// A folder that is empty, and removed at the end.
    struct ModelFolder(PathBuf);

    impl ModelFolder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("blis-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn load(&self, model: &str) -> Result<LoadedModel, String> {
            let loaded = load(model, Some(&self.0), &mut Vec::new()).map_err(|error| error.to_string())?;
            Ok(loaded.1.unwrap())
        }
    }

    impl Drop for ModelFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn folders_are_found_in_any_case() {
        let scratch = ModelFolder::new("any-case");
        scratch.write("Qwen3-9B/config.json", SMALL);
        scratch.write("Acme/Some-Model/config.json", SMALL);
        for model in ["Qwen/Qwen3-9B", "qwen/qwen3-9b", "QWEN3-9B", "acme/some-model", "Acme/SOME-model"] {
            assert_eq!(scratch.load(model).unwrap().config.num_hidden_layers, 4, "{model}");
        }
        let error = scratch.load("qwen/qwen3-8b").unwrap_err();
        assert!(error.contains("did you mean `qwen3-9b`?"), "{error}");
        let awq = scratch.load("Qwen/Qwen3-9B-AWQ").unwrap();
        assert_eq!((awq.config.weight_bytes, awq.quantization.as_deref()), (0.5, Some("awq")));
    }

    #[test]
    fn the_cache_of_the_hub_is_read() {
        let scratch = ModelFolder::new("hub");
        let model = "models--Qwen--Qwen3-9B";
        scratch.write(&format!("{model}/snapshots/abc/config.json"), SMALL);
        assert_eq!(scratch.load("qwen/qwen3-9b").unwrap().config.num_hidden_layers, 4);
        scratch.write(
            &format!("{model}/snapshots/def/config.json"),
            &SMALL.replace("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 8"),
        );
        let several = scratch.load("Qwen/Qwen3-9B").unwrap_err();
        assert!(several.contains("2 snapshots, and no `refs/main`"), "{several}");
        scratch.write(&format!("{model}/refs/main"), "def\n");
        assert_eq!(scratch.load("Qwen/Qwen3-9B").unwrap().config.num_hidden_layers, 8);
        assert_eq!(scratch.load("Qwen3-9B").unwrap().config.num_hidden_layers, 8);
        let own = load("x/y", Some(&scratch.0.join(model)), &mut Vec::new()).unwrap().1.unwrap();
        assert_eq!(own.config.num_hidden_layers, 8);
        let path = scratch.0.join(model).display().to_string();
        assert_eq!(load(&path, None, &mut Vec::new()).unwrap().0, "qwen3-9b");
        scratch.write(&format!("{model}/refs/main"), "gone");
        assert!(scratch.load("Qwen/Qwen3-9B").unwrap_err().contains("`gone`"));
    }

    /// The formats of `hf_quant_config.json` count if the config has none.
    #[test]
    fn the_second_file_of_modelopt_is_read() {
        let scratch = ModelFolder::new("sidecar");
        scratch.write("config.json", SMALL);
        let sidecar = r#"{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8",
            "group_size": 16, "exclude_modules": ["lm_head"]}}"#;
        scratch.write("hf_quant_config.json", sidecar);
        let model = scratch.load("x/m").unwrap();
        assert_eq!((model.config.weight_bytes, model.fp8_kv_cache, model.config.fp4_activations), (0.5625, true, true));
        scratch.write(
            "config.json",
            &SMALL.replace("\"vocab_size\"", "\"quantization_config\": {\"quant_method\": \"fp8\"}, \"vocab_size\""),
        );
        assert_eq!(scratch.load("x/m").unwrap().config.weight_bytes, 1.0);
        scratch.write("config.json", SMALL);
        scratch.write("hf_quant_config.json", r#"{"quantization": {"quant_algo": "FP3"}}"#);
        assert!(scratch.load("x/m").unwrap_err().contains("`quant_algo` is \"FP3\""));
        scratch.write("hf_quant_config.json", "{\n x");
        assert!(scratch.load("x/m").unwrap_err().contains("hf_quant_config.json:2:2"));
    }

    #[test]
    fn built_in_models_have_former_names_and_suffixes() {
        let of = |model: &str| {
            let mut notes = Vec::new();
            let (name, loaded) = load(model, None, &mut notes).unwrap();
            let loaded = loaded.unwrap_or_else(|| panic!("{model}"));
            (name, loaded.config.weight_bytes, notes.join("; "))
        };
        assert_eq!(of("meta-llama/Meta-Llama-3.1-8B-Instruct").0, "llama-3.1-8b-instruct");
        let (name, bytes, note) = of("Qwen/Qwen3-32B-AWQ");
        assert_eq!((name.as_str(), bytes), ("qwen3-32b-awq", 0.5));
        assert!(note.contains("the config of `qwen3-32b` with weights of 4 bits (AWQ)"), "{note}");
        for (model, bytes) in [
            ("Qwen3-14B-GPTQ-Int8", 1.0),
            ("Qwen3-14B-FP8", 1.0),
            ("Qwen3-14B-FP8-dynamic", 1.0),
            ("RedHatAI/Qwen3-14B-quantized.w4a16", 0.5),
            ("nvidia/Qwen3-14B-NVFP4", 0.5625),
            ("unsloth/Qwen3-14B-bnb-4bit", 0.5),
            ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", 0.5),
        ] {
            assert_eq!(of(model).1, bytes, "{model}");
        }
        assert_eq!(load("qwen3-1000b-awq", None, &mut Vec::new()).unwrap().1, None);
    }
}
