//! Files on their way to compiled code: size, cache of compiled code, versions, bounds of the compiler.

use super::*;

#[test]
fn large_files_are_refused_before_they_are_read() {
    let folder = tempfile("large");
    let read = |path: &Path| crate::find::read(path, Limits::default().file_bytes);
    let path = folder.join("large.wasm");
    let file = fs::File::create(&path).expect("writable");
    // A sparse file: it needs no disk space, but reading it would need memory.
    file.set_len(50 << 20).expect("writable");
    let fault = read(&path).expect_err("too large");
    let message = fault.to_string().replace(&folder.display().to_string(), "DIR");
    insta::assert_snapshot!(message, @"DIR/large.wasm: it has 52428800 bytes; a plugin may have 33554432 [unreadable]");
    let fault = read(&folder).expect_err("a folder");
    assert_eq!(fault.kind, FaultKind::Unreadable);
    let fault = read(&folder.join("none.wasm")).expect_err("missing");
    assert_eq!(fault.kind, FaultKind::Unreadable);
    fs::remove_dir_all(folder).expect("ours");
}

/// An empty folder for this test.
fn tempfile(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("blis-wasm-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("writable");
    folder
}

/// Checks that the fixture routes, with compiled code cached in `folder`.
fn routes_with_code_in(folder: &Path) {
    let settings = WasmSettings { cache: CompileCache::Folder(folder.to_owned()), ..WasmSettings::default() };
    let core = wat::parse_str(LEAST_LOADED).expect("assembles");
    let plugin = load(Path::new("router.wasm"), &core, &Limits::default(), &settings).expect("loads");
    let mut guest = router(plugin.as_ref(), &setup(Kind::Routing)).expect("starts");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("made").map(|entry| entry.expect("readable").path()).collect()
}

#[test]
fn compiled_code_is_kept() {
    let folder = tempfile("kept").join("made");
    routes_with_code_in(&folder);
    let files = files_in(&folder);
    assert_eq!(files.len(), 1, "{files:?}");
    let written = |file: &Path| fs::metadata(file).and_then(|known| known.modified()).expect("readable");
    let before = written(&files[0]);
    routes_with_code_in(&folder);
    assert_eq!((files_in(&folder), written(&files[0])), (files.clone(), before), "and used");
    // A file without compiled code is not run, but replaced.
    fs::write(&files[0], "nonsense").expect("ours");
    routes_with_code_in(&folder);
    assert!(fs::metadata(&files[0]).expect("there").len() > 1000);
    fs::remove_dir_all(folder).expect("ours");
}

/// Damaged code was run, and crashed the host.
#[test]
fn damaged_code_is_compiled_anew() {
    let folder = tempfile("damaged").join("made");
    routes_with_code_in(&folder);
    let file = &files_in(&folder)[0];
    let mut damaged = fs::read(file).expect("ours");
    let apart = (damaged.len() - 2000) / 64;
    for i in 0..64 {
        damaged[1000 + i * apart] ^= 0xff;
    }
    fs::write(file, &damaged).expect("ours");
    routes_with_code_in(&folder);
    assert!(fs::read(file).expect("there") != damaged, "it was replaced");
    fs::remove_dir_all(folder).expect("ours");
}

/// Intact code of another plugin, under the name of this one, was run.
#[test]
fn the_code_of_another_plugin_is_compiled_anew() {
    let folder = tempfile("swapped").join("made");
    routes_with_code_in(&folder);
    let own = files_in(&folder).remove(0);
    let settings = WasmSettings { cache: CompileCache::Folder(folder.clone()), ..WasmSettings::default() };
    let other = wat::parse_str(LEAST_LOADED.replace("@1.0.0", "@1.0.7")).expect("assembles");
    load(Path::new("other.wasm"), &other, &Limits::default(), &settings).expect("loads");
    let other = files_in(&folder).into_iter().find(|file| *file != own).expect("a second file");
    let foreign = fs::read(other).expect("ours");
    fs::write(&own, &foreign).expect("ours");
    routes_with_code_in(&folder);
    assert!(fs::read(&own).expect("there") != foreign, "it was replaced");
    fs::remove_dir_all(folder).expect("ours");
}

/// A module for a later version of the same interface was refused.
#[test]
fn versions_with_another_third_number_are_the_same_interface() {
    let core = wat::parse_str(LEAST_LOADED.replace("@1.0.0", "@1.0.7")).expect("assembles");
    let mut guest =
        load_bytes(&core).and_then(|plugin| router(plugin.as_ref(), &setup(Kind::Routing))).expect("starts");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
}

/// A small module took the compiler a minute and a gigabyte.
#[test]
fn code_that_compiles_for_ever_is_refused() {
    let loops = "(loop ".repeat(100);
    let sets: String = (0..1000).map(|i| format!("(local.set {i} (i32.add (local.get {i}) (i32.const 1)))")).collect();
    let body = format!("{loops}{sets}{}", ")".repeat(100));
    let text = LEAST_LOADED.trim_end().strip_suffix(')').expect("a module").to_owned();
    let text = format!("{text} (func (local {}) {} {}))", "i32 ".repeat(1000), body.repeat(2), body);
    let fault = load_bytes(&wat::parse_str(text).expect("assembles")).map(|_| ()).expect_err("too much work");
    insta::assert_snapshot!(fault, @r"
    router.wasm: has 30000029 local variables × blocks × nesting, over all functions; the compiler takes 4000000
    hint: split functions, and optimise for size; a component with an interpreter inside (Python, JavaScript) needs `--allow-large-components` [out-of-fuel]
    ");
}

/// 19 000 empty functions and 60 000 calls were compiled for seconds.
#[test]
fn many_functions_and_calls_are_refused() {
    let text = LEAST_LOADED.trim_end().strip_suffix(')').expect("a module").to_owned();
    let functions = format!("{text} {})", "(func)".repeat(5000));
    let many = "(call $f)".repeat(20_000);
    let calls = format!("{text} (func $f {many}) {})", format!("(func {many})").repeat(4));
    for text in [functions, calls] {
        let fault = load_bytes(&wat::parse_str(text).expect("assembles")).map(|_| ()).expect_err("too much work");
        assert!(fault.to_string().contains("µs of compilation"), "{fault}");
    }
}

/// Components with an interpreter inside exceed the bounds of compiled languages. What was compiled for an operator that allows
/// them is not found by one that does not.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn large_components_are_allowed_explicitly() {
    let folder = tempfile("large-components").join("made");
    let settings = WasmSettings { cache: CompileCache::Folder(folder.clone()), ..WasmSettings::default() };
    let text = LEAST_LOADED.trim_end().strip_suffix(')').expect("a module").to_owned();
    let core = wat::parse_str(format!("{text} {})", "(func)".repeat(5000))).expect("assembles");
    let allowed = Limits { large_components: true, ..Limits::default() };
    for turn in 0..2 {
        let fault = load(Path::new("router.wasm"), &core, &Limits::default(), &settings).expect_err("too large");
        assert!(fault.to_string().contains("--allow-large-components"), "{turn}: {fault}");
        let plugin = load(Path::new("router.wasm"), &core, &allowed, &settings).expect("allowed");
        let mut guest = router(plugin.as_ref(), &setup(Kind::Routing)).expect("starts");
        assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
        assert_eq!(files_in(&folder).len(), 1, "{turn}: the compiled code is cached");
    }
    // Those have bounds as well.
    let deep = format!("{text} (func {} {}))", "(block ".repeat(5001), ")".repeat(5001));
    let fault = load(Path::new("router.wasm"), &wat::parse_str(deep).expect("assembles"), &allowed, &settings);
    let fault = fault.map(|_| ()).expect_err("too deep").to_string();
    assert!(fault.contains("has 5001 nested blocks; the compiler takes 5000"), "{fault}");
    fs::remove_dir_all(folder).expect("ours");
}

#[cfg(unix)]
#[test]
fn compiled_code_is_not_taken_from_where_others_may_write() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile("open");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("ours");
    routes_with_code_in(&folder);
    assert_eq!(files_in(&folder), Vec::<PathBuf>::new());
    fs::remove_dir_all(folder).expect("ours");
}

#[test]
fn components_are_not_componentized_again() {
    let component =
        componentize(Path::new("router.wasm"), &wat::parse_str(LEAST_LOADED).expect("assembles")).expect("a component");
    let mut guest =
        load_bytes(&component).and_then(|plugin| router(plugin.as_ref(), &setup(Kind::Routing))).expect("starts");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
    let fault = componentize(Path::new("router.wasm"), &component).expect_err("is one");
    insta::assert_snapshot!(fault, @"router.wasm: is a component already; use it as it is [syntax]");
}
