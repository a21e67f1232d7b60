//! Broken specifications: an error with a hint, or requests in order; never a panic.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const WHOLE: &str = include_str!("everything.yaml");
const VALUES: [&str; 16] = [
    "0",
    "-1",
    "1",
    "1e9",
    "18446744073709551615",
    "9223372036854775807",
    "nan",
    ".inf",
    "0.5",
    "\"\"",
    "[]",
    "{}",
    "~",
    "true",
    "constant",
    "empirical",
];

/// A change of one line.
#[derive(Clone, Debug)]
enum Edit {
    Remove,
    Repeat,
    Indent,
    /// Replaces the value after the n-th colon by one of [`VALUES`].
    Value(usize, usize),
    Character(usize, char),
}

fn edits() -> impl Strategy<Value = (usize, Edit)> {
    let edit = prop_oneof![
        Just(Edit::Remove),
        Just(Edit::Repeat),
        Just(Edit::Indent),
        (0_usize..4, 0..VALUES.len()).prop_map(|(index, value)| Edit::Value(index, value)),
        (0_usize..4, 0..VALUES.len()).prop_map(|(index, value)| Edit::Value(index, value)),
        (0_usize..60, any::<char>()).prop_map(|(index, character)| Edit::Character(index, character)),
    ];
    (0..WHOLE.lines().count(), edit)
}

fn apply(lines: &mut Vec<String>, line: usize, edit: &Edit) {
    let Some(text) = lines.get_mut(line) else { return };
    match edit {
        Edit::Remove => drop(lines.remove(line)),
        Edit::Repeat => {
            let again = text.clone();
            lines.insert(line, again);
        }
        Edit::Indent => text.insert(0, ' '),
        Edit::Value(index, value) => {
            let Some((colon, _)) = text.match_indices(": ").nth(*index) else { return };
            let start = colon + 2;
            let end = text[start..].find([',', '}']).map_or(text.len(), |end| start + end);
            text.replace_range(start..end, VALUES[*value]);
        }
        Edit::Character(index, character) => {
            let at = text.char_indices().nth(*index).map_or(text.len(), |(at, _)| at);
            text.insert(at, *character);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_specification_is_too_broken(edits in vec(edits(), 1..4)) {
        let mut lines: Vec<String> = WHOLE.lines().map(str::to_owned).collect();
        for (line, edit) in &edits {
            apply(&mut lines, *line, edit);
        }
        match Spec::parse("spec.yaml", &lines.join("\n"), &NoFiles) {
            Err(error) => prop_assert!(error.to_string().contains("\nhint: "), "{error}"),
            Ok(spec) => {
                let options = GenerateOptions { horizon: secs(20), num_requests: Some(200), ..options() };
                match spec.requests(&options) {
                    Err(error) => prop_assert!(error.to_string().contains("\nhint: "), "{error}"),
                    Ok((requests, _)) => {
                        let arrivals: Vec<Micros> = requests.map(|drawn| drawn.request.arrival).collect();
                        prop_assert!(arrivals.is_sorted() && arrivals.iter().all(|&at| at < secs(20)));
                    }
                }
            }
        }
    }

    #[test]
    fn no_text_is_too_broken(text in any::<String>(), trace in "[0-9.,aGm\n-]{0,80}", dataset in "[{}\":0-9., a-z]{0,80}") {
        let folder = ServeGenPair(trace, dataset);
        let texts = [text.as_str(), "servegen_data: { path: x }", "load: {}\ndata: {}"];
        for text in texts {
            if let Err(error) = Spec::parse("spec.yaml", text, &folder) {
                prop_assert!(error.to_string().contains("\nhint: "), "{error}");
            }
        }
    }
}

struct ServeGenPair(String, String);

impl Files for ServeGenPair {
    fn read(&self, path: &Path) -> std::io::Result<String> {
        Ok(if path.extension().is_some_and(|e| e == "csv") { &self.0 } else { &self.1 }.clone())
    }

    fn names(&self, _path: &Path) -> std::io::Result<Vec<String>> {
        Ok(vec!["chunk-1-dataset.json".to_owned(), "chunk-1-trace.csv".to_owned()])
    }
}
