//! What `--model` names: a folder with a `config.json`, or a model by its organisation and name.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use blis_diag::Diagnostic;

use super::error::ConfigError;
use super::model::{self, LoadedModel};
use super::short_name::short_name;

/// The model that the user names: its short name (lower case), its architecture if it is known, and the notes about it.
///
/// A path is a text that begins with `/`, `./` or `../`, or names a folder with a `config.json`. Everything else is a
/// name on Hugging Face, and only the part after the last `/` counts.
///
/// # Errors
/// As [`model::load`]; also if both a path and `--model-config-folder` are given.
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
        let file = path.join("config.json");
        if path.is_dir() && !file.is_file() {
            let what = format!("no `config.json` of the model `{name}` in this folder");
            let hint = "put that of Hugging Face there, or name the model as `organisation/name`";
            return Err(ConfigError::in_file(&path, Diagnostic::new(what).hint(hint)));
        }
        let loaded = model::load(&name, Some(&path))?;
        notes.push(format!("architecture of {}", file.display()));
        return Ok((name, loaded));
    }
    let name = short_name(model);
    let loaded = model::load(&name, folder)?;
    if folder.is_none() && loaded.is_some() {
        notes.extend(other_organisation(model, &name));
        if Path::new(model).is_dir() {
            notes.push(format!("the folder `{model}` is not read: `--model ./{model}` reads its `config.json`"));
        }
    }
    Ok((name, loaded))
}

/// The folder that `model` names, if it is a path.
#[must_use]
pub fn local_path(model: &str) -> Option<PathBuf> {
    let path = Path::new(model);
    let is_path = path.is_absolute() || path.starts_with(".") || path.starts_with("..");
    (is_path || model.contains('/') && path.join("config.json").is_file()).then(|| path.to_owned())
}

/// The name of a folder, lower case: the last part of its path, without `.` and `..`.
fn folder_name(path: &Path) -> String {
    let whole = path.canonicalize().map_or(Cow::Borrowed(path), Cow::Owned);
    whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().to_lowercase())
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
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
