//! The repository's folders `hardware/` and `model_configs/`, embedded in the program so that it runs in any folder.

use std::path::Path;

use include_dir::{Dir, include_dir};

static HARDWARE: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../hardware");
static MODEL_CONFIGS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../model_configs");

/// One file: its path in the repository and its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Embedded {
    pub path: &'static str,
    pub text: &'static str,
}

/// All files of `hardware/`, with their names.
pub(super) fn hardware() -> impl Iterator<Item = (&'static Path, &'static str)> {
    HARDWARE.files().filter_map(|file| Some((file.path(), file.contents_utf8()?)))
}

/// The text of `model_configs/<name>/config.json`.
pub(super) fn model_config(name: &str) -> Option<&'static str> {
    MODEL_CONFIGS.get_file(format!("{name}/config.json"))?.contents_utf8()
}

/// The text of `model_configs/<name>/generation_config.json`.
pub(super) fn generation_config(name: &str) -> Option<&'static str> {
    MODEL_CONFIGS.get_file(format!("{name}/generation_config.json"))?.contents_utf8()
}

/// The names of the models that have a `config.json`, sorted.
pub(super) fn model_names() -> impl Iterator<Item = &'static str> {
    MODEL_CONFIGS.dirs().filter_map(|dir| dir.path().to_str())
}

pub(super) const BLACKBOX: Embedded = Embedded {
    path: "model_configs/blackbox.csv",
    text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../model_configs/blackbox.csv")),
};

pub(super) const BLACKBOX_PRESETS: Embedded = Embedded {
    path: "model_configs/blackbox-presets.yaml",
    text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../model_configs/blackbox-presets.yaml")),
};

pub(super) const PHYSICS: Embedded = Embedded {
    path: "model_configs/physics.yaml",
    text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../model_configs/physics.yaml")),
};

pub(super) const TRAINED_PHYSICS: Embedded = Embedded {
    path: "model_configs/trained-physics.yaml",
    text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../model_configs/trained-physics.yaml")),
};
