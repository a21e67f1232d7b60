use serde_json::{Value, json};

use super::*;

fn page_of(title: &str, results: &[PageResult]) -> String {
    let mut out = Vec::new();
    page(title, PageContent::Results(results), &mut out).expect("memory");
    String::from_utf8(out).expect("text")
}

/// The data as the script reads them.
fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("an element for the data");
    serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON")
}

#[test]
fn no_text_becomes_markup() {
    const EVIL: &str = "</script><script>alert(1)</script>&<!--\u{2028}";
    let result = PageResult::new(EVIL, &json!({ "name": EVIL }), None);
    let page = page_of(EVIL, &[result]);
    assert!(!page.contains("<script>alert"), "a name must not start a script");
    let data = data_of(&page);
    assert_eq!((&data["title"], &data["results"][0]["name"]), (&EVIL.into(), &EVIL.into()));
    assert_eq!(data["results"][0]["result"]["name"], EVIL);
    // Five scripts of our own, and one element with data.
    assert_eq!(page.matches("<script").count(), 6);
    assert_eq!(page.matches("</script").count(), 6);
}

#[test]
fn numbers_are_those_of_the_document() {
    let document = json!({ "share": 0.1 + 0.2, "whole": 9_007_199_254_740_991_u64, "small": 1e-7, "none": null });
    assert_eq!(data_of(&page_of("t", &[PageResult::new("r", &document, None)]))["results"][0]["result"], document);
}

#[test]
fn a_page_needs_no_network() {
    let page = page_of("t", &[]);
    assert!(page.contains("default-src 'none'"));
    for reference in
        ["src=", "@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "connect-src", "import("]
    {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(!page.contains("{{"), "every part of the template is filled");
    assert!(page.len() < 150_000, "{} bytes without data", page.len());
}

#[test]
fn a_live_page_connects_to_its_server_only() {
    let page = live_page("<Tuning>");
    assert!(
        page.contains("img-src data:; connect-src 'self'\">")
            && page.contains("new EventSource(\"events\" + location.search)")
    );
    assert!(page.contains("<title>&lt;Tuning&gt;</title>"));
    assert_eq!(data_of(&page), json!({"title": "<Tuning>", "results": [], "live": true}));
}

#[test]
fn results_are_read_one_after_the_other() {
    let results = PageResult::read("two.jsonl", "{\"a\": 1.50}\n{\"b\": \"<\"}\n").expect("JSON");
    let names: Vec<_> = results.iter().map(|result| result.name.as_str()).collect();
    assert_eq!(names, ["two.jsonl", "two.jsonl, 2"]);
    let data = data_of(&page_of("t", &results));
    assert_eq!((&data["results"][0]["result"]["a"], &data["results"][1]["result"]["b"]), (&json!(1.5), &json!("<")));
    let error = PageResult::read("bad", "{\n\"a\": }").expect_err("a mistake");
    assert_eq!((error.line(), error.column()), (2, 6));
    assert!(PageResult::read("empty", " \n").expect("nothing").is_empty());
}
