//! The compiled plugins in `policies/` decide as what their sources compile to today.
//!
//! Needs a compiler for WebAssembly, so `sdk/rebuild-guests.sh` comes first and the folder that it
//! filled is named in `BLIS_REBUILT_GUESTS`; `.ci/run` does both.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blis_plugin::find::Finder;
use blis_plugin::inputs::{GuestCall, ties};
use blis_plugin::{Kind, Limits, Plugin, check};

/// Per kind and number of instances.
const QUESTIONS: u64 = 1000;

#[test]
fn rebuilt_guests_decide_as_the_committed_ones() {
    let Some(rebuilt) = env::var_os("BLIS_REBUILT_GUESTS").map(PathBuf::from) else {
        println!("skipped: BLIS_REBUILT_GUESTS names no folder");
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let list = std::fs::read_to_string(root.join("policies/SOURCES.toml")).expect("policies/SOURCES.toml");
    let modules: Vec<&str> =
        list.lines().filter_map(|line| line.strip_prefix("file = \"")?.strip_suffix('"')).collect();
    assert!(!modules.is_empty());
    for module in modules {
        let [committed, fresh] = [root.join("policies"), root.join(&rebuilt)].map(|folder| load(&folder.join(module)));
        assert_eq!(committed.description(), fresh.description(), "{module}");
        let mut compared = 0;
        for &kind in &committed.description().kinds {
            for n in [1, 4, 64] {
                compared += compare(module, kind, n, &*committed, &*fresh);
            }
        }
        println!("{module}: {compared} decisions alike");
    }
}

/// The number of outputs that were compared.
fn compare(module: &str, kind: Kind, n: usize, committed: &dyn Plugin, fresh: &dyn Plugin) -> usize {
    let setup = check::setup(committed, kind, n, &Limits::default());
    let mut guests = [committed, fresh].map(|plugin| plugin.start(&setup).expect("it starts"));
    for item in 0..QUESTIONS {
        let question = GuestCall::plausible(kind, n, item);
        let [one, other] = guests.each_mut().map(|guest| question.run(&mut **guest, &ties()));
        assert!(one.is_ok(), "{module}: {one:?}");
        assert_eq!(one, other, "{module}: {kind}, {n} instances, question {item}");
    }
    QUESTIONS as usize
}

fn load(file: &Path) -> Arc<dyn Plugin> {
    let finder = Finder::new(Vec::new());
    let found = finder.find(file.to_str().expect("UTF-8")).unwrap_or_else(|fault| panic!("{fault}"));
    finder.load(&found.expect("a file")).unwrap_or_else(|fault| panic!("{fault}")).plugin
}
