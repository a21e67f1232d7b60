//! No text of a candidate reaches a terminal as it is: names, messages, log lines and descriptions may hold what a terminal obeys.

use std::fs;
use std::path::Path;

use crate::evaluate::small;
use crate::macros::{Scratch, blis};

/// What a terminal obeys: it clears the screen, sets the title, changes the direction of text.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\rx";

/// Scripts with [`EVIL`] wherever a script has a text.
fn scripts() -> Vec<(&'static str, String)> {
    vec![
        ("throws", format!("fn route(r, s) {{ throw \"{EVIL}\" }}")),
        ("logs", format!("fn route(r, s) {{ log(\"{EVIL}\"); 0 }}")),
        ("prints", format!("fn route(r, s) {{ print(\"{EVIL}\"); 0 }}")),
        ("names", format!("// @name a{EVIL}\nfn route(r, s) {{ 0 }}")),
        ("describes", format!("// @about a{EVIL}\nfn route(r, s) {{ -s.in_flight }}")),
        ("parameter", format!("// @param a{EVIL} = 1 in 0..2\nfn route(r, s) {{ 0 }}")),
        ("kind", format!("// @kind {EVIL}\nfn route(r, s) {{ 0 }}")),
        ("unknown-field", format!("fn route(r, s) {{ s[\"{EVIL}\"] }}")),
        ("syntax", format!("fn route(r, s) {{ {EVIL} }}")),
        ("comment", format!("fn route(r, s) {{ 0 0 }} // {EVIL}")),
        ("map", format!("fn route(r, s) {{ #{{ \"{EVIL}\": 1 }} }}")),
        ("rejects", format!("fn admit(r, s) {{ \"{EVIL}\" }}")),
    ]
}

fn leb(number: usize) -> Vec<u8> {
    if number < 128 { vec![number as u8] } else { vec![number as u8 | 128, (number >> 7) as u8] }
}

/// Modules with [`EVIL`] in names.
fn modules() -> Vec<(&'static str, Vec<u8>)> {
    let name = |text: &str| [leb(text.len()), text.as_bytes().to_vec()].concat();
    let section = |id: u8, content: Vec<u8>| [vec![id], leb(content.len()), content].concat();
    let module = |sections: Vec<Vec<u8>>| [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat();
    let component = |sections: Vec<Vec<u8>>| [b"\0asm\x0d\0\x01\0".to_vec(), sections.concat()].concat();
    let types = section(1, vec![1, 0x60, 0, 0]);
    let import = |of: &str, field: &str| section(2, [vec![1], name(of), name(field), vec![0, 0]].concat());
    let twice = |field: &str| {
        let one = [name("blis:policy/host@1.1.0"), name(field), vec![0, 0]].concat();
        section(2, [vec![2], one.clone(), one].concat())
    };
    let export = |text: &str| {
        let body = section(10, vec![1, 2, 0, 0x0b]);
        [section(3, vec![1, 0]), section(7, [vec![1], name(text), vec![0, 0]].concat()), body].concat()
    };
    let instance = section(7, vec![1, 0x42, 0]);
    let of_component = |text: &str| section(10, [vec![1, 0], name(text), vec![5, 0]].concat());
    vec![
        ("module", module(vec![types.clone(), import(EVIL, EVIL)])),
        ("function", module(vec![types.clone(), import("blis:policy/host@1.1.0", EVIL)])),
        ("twice", module(vec![types.clone(), twice(EVIL)])),
        ("version", module(vec![types.clone(), import(&format!("blis:policy/host@{EVIL}"), "log")])),
        ("interface", module(vec![types.clone(), import(&format!("blis:policy/{EVIL}@1.1.0"), "log")])),
        ("export", module(vec![types.clone(), export(&format!("blis:policy/{EVIL}@1.1.0#route"))])),
        ("exported-function", module(vec![types, export(&format!("blis:policy/routing@1.1.0#{EVIL}"))])),
        ("of-component", component(vec![instance.clone(), of_component(EVIL)])),
        ("of-our-package", component(vec![instance, of_component(&format!("blis:policy/host@{EVIL}"))])),
    ]
}

/// Fails if a terminal obeys something in `text`.
fn check(what: &str, text: &str) {
    let obeyed = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202a}'..='\u{202e}');
    let found = text.find(obeyed).map(|at| {
        let (start, end) = (text.floor_char_boundary(at.saturating_sub(80)), text.ceil_char_boundary(at + 20));
        text[start..end].to_owned()
    });
    assert_eq!(found, None, "{what}");
}

const RUN: &str = "run --model qwen/qwen3-14b --num-instances 2 --num-requests 20 --rate 10 --output text";

#[test]
fn no_text_of_a_candidate_reaches_a_terminal_as_it_is() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let policies = dir.join("policies");
    fs::create_dir_all(&policies).expect("scratch");
    let mut files = Vec::new();
    for (name, source) in scripts() {
        files.push((name, policies.join(format!("{name}.rhai")), source.into_bytes()));
    }
    for (name, bytes) in modules() {
        files.push((name, policies.join(format!("{name}.wasm")), bytes));
    }
    for (name, path, bytes) in &files {
        fs::write(path, bytes).expect("scratch");
        let file = path.display().to_string();
        let ways: [&[&str]; 5] = [
            &["plugin", "check", &file, "--no-cost", "--output", "text"],
            &["plugin", "check", &file, "--no-cost", "--output", "json"],
            &["evaluate", &file, "--suite", &suite, "--stage", "smoke", "--output", "text"],
            &["evaluate", &file, "--suite", &suite, "--stage", "smoke", "--output", "json"],
            &[&RUN.split(' ').collect::<Vec<_>>()[..], &["--routing-policy", &file, "--on-plugin-error", "fallback"]]
                .concat(),
        ];
        for words in ways {
            let ended = blis!(words);
            check(&format!("{name}: {words:?}: standard output"), &ended.stdout);
            check(&format!("{name}: {words:?}: standard error"), &ended.stderr);
        }
    }
    // All of them in one list.
    for form in ["text", "json"] {
        let ended = blis!("plugin list --policy-dir", policies, "--output", form);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        check(form, &ended.stdout);
        check(form, &ended.stderr);
    }
    assert!(Path::new(&policies).is_dir());
}
