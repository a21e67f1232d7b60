use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::*;

/// What is wrong with `text`, as a user sees it.
fn error<T: DeserializeOwned + Debug>(text: &str) -> String {
    let document = Document { file: "t.yaml".into(), text };
    let error = document.read::<T>().expect_err(text);
    let (what, hint) = explain(&error);
    error.location().map_or_else(|| what.clone(), |at| document.wrong(at, what.clone(), hint).to_string())
}

fn location<T>(at: &Spanned<T>) -> (u64, u64, u64) {
    (at.referenced.line(), at.referenced.column(), at.referenced.len())
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Whole {
    name: Option<Word>,
    rate: Option<Word>,
    sizes: Option<Vec<u32>>,
    part: Option<Spanned<Part>>,
    parts: Vec<Spanned<Part>>,
    other: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Part {
    weight: f64,
    #[serde(default)]
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Fast,
    Slow(u8),
}

#[test]
fn words_keep_their_text() {
    let text = "[1e6, 007, 0x1F, 1_000, yes, TRUE, .inf, 1e999, -0.50, 2026-11-22, ~a, a b, 'it''s', \"\\u00e9\", \
                \"~\", '', !!str 5, !!int 5, &x 1.0, *x, é]";
    let words: Vec<Word> = from_str(text).expect("words");
    let words: Vec<&str> = words.iter().map(|word| word.value.as_str()).collect();
    let expected = [
        "1e6",
        "007",
        "0x1F",
        "1_000",
        "yes",
        "TRUE",
        ".inf",
        "1e999",
        "-0.50",
        "2026-11-22",
        "~a",
        "a b",
        "it's",
        "é",
        "~",
        "",
        "5",
        "5",
        "1.0",
        "1.0",
        "é",
    ];
    assert_eq!(words, expected);
    let long: Vec<String> = from_str("- |\n  two\n  lines\n- >\n  one\n  line\n- 7\n  8\n").expect("texts");
    assert_eq!(long, ["two\nlines\n", "one line\n", "7 8"]);
}

#[test]
fn values_are_located_where_they_stand() {
    let text = "é: &base {x: 12, y: [ab, cd]}\nnested:\n  deep:\n    x: 'q'\nalias: *base\nmerged:\n  <<: *base\n";
    let read: BTreeMap<String, IgnoredAny> = from_str(text).expect("a map");
    assert_eq!(read.len(), 4);
    let Entries(top): Entries<Spanned<Option<IgnoredAny>>> = from_str(text).expect("a map");
    let marks: Vec<_> = top.iter().map(|(key, value)| (location(key), location(value))).collect();
    // That of a map in block style is its first key.
    let expected = [((1, 1, 1), (1, 10, 1)), ((2, 1, 6), (3, 3, 0)), ((5, 1, 5), (5, 8, 5)), ((6, 1, 6), (7, 3, 0))];
    assert_eq!(marks, expected);
    type Inner = Entries<Entries<Word>>;
    let Entries(nested): Inner =
        from_str("a:\n  b: 1\n  long key: two words # no more\nc: {d: [], }\n".replace("[]", "x").as_str())
            .expect("maps");
    let marks: Vec<_> =
        nested.iter().flat_map(|(_, inner)| &inner.0).map(|(k, v)| (location(k), location(v))).collect();
    assert_eq!(marks, [((2, 3, 1), (2, 6, 1)), ((3, 3, 8), (3, 13, 9)), ((4, 5, 1), (4, 8, 1))]);
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let texts = [
        "rates: 5",
        "nmae: a",
        "part: {weight: 1, wieght: 2}",
        "part: {mode: fast}",
        "part: {weight: heavy}",
        "part: {weight: }",
        "part: [1]",
        "parts:\n  - weight: 1\n  - 2",
        "parts: {weight: 1}",
        "sizes: [1, 2.5]",
        "sizes: [4294967296]",
        "name: [a]",
        "name: a\nrate: 1\nname: b",
        "part: {weight: 1, mode: quick}",
        "part: {weight: 1, mode: {slow: 256}}",
        "part: {weight: 1, mode: slow}",
        "part: {weight: 1, mode: [fast]}",
        "other: &o {weight: 1, x: 2}\npart: *o",
        "other: &o {weight: 1, x: 2}\npart:\n  <<: *o\n",
        "other: &o {weight: no}\npart: *o",
        "[]",
        "word",
        "name: *missing",
        "name: a\n\trate: 1",
        "name: a\n---\nname: b",
        "other: {a: 1, a: 2}",
        "? [a]\n: 1",
        "~: 1",
    ];
    let messages: Vec<String> = texts.iter().map(|text| error::<Whole>(text)).collect();
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[test]
fn a_file_without_values_is_empty() {
    for text in ["", "\n", "# a comment\n", "---\n", "~", "null"] {
        let document = Document { file: "t.yaml".into(), text };
        assert!(document.read::<Whole>().expect(text).is_none(), "{text}");
    }
    for text in ["", "# a comment\n", "---\n", "{}"] {
        assert!(from_str::<Whole>(text).expect(text).name.is_none(), "{text}");
    }
    assert_eq!(from_str::<Part>("").unwrap_err().to_string(), "missing field `weight`");
    assert_eq!(from_str::<Whole>("~").unwrap_err().to_string(), "keys with values are expected here");
}

#[test]
fn deep_files_are_refused() {
    for text in ["[".repeat(10_000), "{a: ".repeat(10_000), "- ".repeat(10_000), "? ".repeat(10_000)] {
        assert!(from_str::<Whole>(&text).is_err());
    }
    let deep = format!("other: {}{}", "[".repeat(62), "]".repeat(62));
    assert!(from_str::<Whole>(&deep).is_ok());
}

#[test]
fn variants_have_values() {
    assert_eq!(
        from_str::<Vec<Mode>>("[fast, slow: 3, {slow: 4}]").expect("modes"),
        [Mode::Fast, Mode::Slow(3), Mode::Slow(4)]
    );
    assert_eq!(from_str::<[f64; 2]>("[1, 2.5]").expect("two"), [1.0, 2.5]);
    assert!(from_str::<[f64; 2]>("[1, 2, 3]").is_err());
}

/// The tree and the library must agree on what `text` says, and on where it is wrong.
fn agree<T: DeserializeOwned + PartialEq + Debug>(text: &str) -> Result<(), TestCaseError> {
    let (ours, theirs) = (Document { file: "t".into(), text }.read::<T>(), serde_yaml::from_str::<Option<T>>(text));
    match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs, "{}", text),
        (Err(_), Err(_)) => {}
        _ => prop_assert!(false, "{text}: {ours:?} {theirs:?}"),
    }
    Ok(())
}

fn scalar() -> impl Strategy<Value = String> {
    let known = [
        "1",
        "-7",
        "1e6",
        "1.50",
        "007",
        "0x1F",
        "1_000",
        ".inf",
        "1e999",
        "~",
        "null",
        "''",
        "\"\"",
        "yes",
        "False",
        "a",
        "a b",
        "é",
        "\"\\u00e9\"",
        "'it''s'",
        "2026-11-22",
        "&a 5",
        "*a",
        "65536",
        "-",
        "x: y",
        "#",
        "",
    ];
    prop_oneof![9 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => "[a-z0-9.:_ +-]{0,6}"]
}

/// Small documents: maps of lists, in block or flow style.
fn document() -> impl Strategy<Value = String> {
    let list = prop_oneof![
        prop::collection::vec(scalar(), 0..4).prop_map(|items| format!(" [{}]", items.join(", "))),
        prop::collection::vec(scalar(), 1..4).prop_map(|items| format!("\n  - {}", items.join("\n  - "))),
        scalar().prop_map(|scalar| format!(" {scalar}")),
    ];
    let entry = ("[ab]|1|é", list).prop_map(|(key, list)| format!("{key}:{list}\n"));
    prop::collection::vec(entry, 0..4).prop_map(|entries| entries.concat())
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Three {
    a: Option<String>,
    #[serde(default)]
    b: Vec<Option<u16>>,
    #[serde(rename = "é")]
    e: Option<f64>,
}

proptest! {
    #[test]
    fn small_documents_are_read_as_the_library_does(text in document()) {
        agree::<BTreeMap<String, Vec<Option<String>>>>(&text)?;
        agree::<BTreeMap<String, Option<String>>>(&text)?;
        agree::<BTreeMap<String, Vec<i64>>>(&text)?;
        agree::<Three>(&text)?;
    }

    #[test]
    fn any_text_is_read_as_the_library_does(text in "[a-c0-9é.:,{}\\[\\] \n&*~'\"#|>?<-]{0,40}") {
        agree::<BTreeMap<String, Option<String>>>(&text)?;
        agree::<Vec<String>>(&text)?;
        agree::<Vec<f64>>(&text)?;
    }
}
