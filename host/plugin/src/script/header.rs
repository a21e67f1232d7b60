//! The metadata of a script, in comments: `// @name`, `// @about`, `// @version`, `// @events`, `// @param name default
//! min max about`, `// @every_step`.

use blis_abi::EventSet;
use blis_diag::most_alike;

use super::scan::{Scan, SourceSpan};
use crate::PolicyParameter;
use crate::limits::PARAMETERS;

/// The metadata read from the comments.
#[derive(Debug, Default)]
pub(super) struct ScriptHeader {
    pub name: Option<String>,
    pub about: String,
    pub version: String,
    pub events: EventSet,
    pub parameters: Vec<PolicyParameter>,
    pub every_step: bool,
}

/// An error in a comment, with its position.
#[derive(Debug)]
pub(super) struct HeaderError<'a> {
    pub span: SourceSpan<'a>,
    pub text: String,
}

const KEYS: [&str; 6] = ["name", "about", "version", "events", "param", "every_step"];
const EVENTS: [&str; 6] = ["routed", "first_token", "completed", "ended", "rejected", "blocks"];
/// Keywords of the language, and parameter names of the functions that the host calls.
const RESERVED: [&str; 46] = [
    "let", "const", "if", "else", "switch", "do", "while", "until", "loop", "for", "in", "continue", "break", "return",
    "throw", "try", "catch", "fn", "private", "this", "true", "false", "import", "export", "as", "global", "static",
    "var", "shared", "goto", "match", "case", "default", "new", "use", "with", "eval", "print", "debug", "is", "null",
    "sync", "async", "await", "yield", "void",
];

impl ScriptHeader {
    pub fn of<'a>(scan: &Scan<'a>) -> Result<Self, HeaderError<'a>> {
        let mut header = Self::default();
        for &span in &scan.comments {
            let Some(line) = span.text.strip_prefix('@') else { continue };
            if !line.starts_with(|c: char| c.is_alphabetic()) {
                continue;
            }
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            header.line(key, value.trim()).map_err(|text| HeaderError { span, text })?;
        }
        Ok(header)
    }

    fn line(&mut self, key: &str, value: &str) -> Result<(), String> {
        if value.is_empty() && key != "every_step" && KEYS.contains(&key) {
            return Err(format!("`@{key}` needs a value"));
        }
        match key {
            "name" if value.contains(char::is_whitespace) => return Err("a name is one word".to_owned()),
            "name" if !value.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c)) => {
                return Err("a name has letters, digits, `-`, `_` and `.`".to_owned());
            }
            "name" => self.name = Some(value.to_owned()),
            "about" if self.about.is_empty() => self.about = value.to_owned(),
            "about" => {
                self.about.push(' ');
                self.about.push_str(value);
            }
            "version" => self.version = value.to_owned(),
            "events" => self.events(value)?,
            "param" => {
                let parameter = parameter(value)?;
                if self.parameters.len() == PARAMETERS {
                    return Err(format!("there are more than {PARAMETERS} parameters"));
                }
                if self.parameters.iter().any(|known| known.name == parameter.name) {
                    return Err(format!("there are two parameters `{}`", parameter.name));
                }
                self.parameters.push(parameter);
            }
            "every_step" if value.is_empty() => self.every_step = true,
            "every_step" => return Err("`@every_step` stands alone".to_owned()),
            _ => return Err(format!("there is no `@{key}`{}", near(key, &KEYS, "@"))),
        }
        Ok(())
    }

    fn events(&mut self, value: &str) -> Result<(), String> {
        for name in value.split([',', ' ']).filter(|name| !name.is_empty()) {
            let events = EVENTS.contains(&name).then(|| EventSet::of(&name.replace('_', "-"))).flatten();
            let unknown = || format!("there is no event `{name}`{}", near(name, &EVENTS, ""));
            self.events = self.events | events.ok_or_else(unknown)?;
        }
        Ok(())
    }
}

fn parameter(value: &str) -> Result<PolicyParameter, String> {
    let form = "write `// @param name default min max about`";
    let (words, about) = split_words::<4>(value);
    let [name, numbers @ ..] = words.ok_or_else(|| format!("a parameter needs a name and three numbers: {form}"))?;
    let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.contains(|c: char| c.is_ascii_alphabetic());
    if !valid {
        return Err(format!("`{name}` cannot be the name of a parameter: letters, digits and _, no digit first"));
    }
    if RESERVED.contains(&name) {
        return Err(format!("`{name}` is a word of the language and cannot be the name of a parameter"));
    }
    let mut values = [0.0; 3];
    for ((value, text), what) in values.iter_mut().zip(numbers).zip(["default", "smallest", "largest"]) {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        *value = number.ok_or_else(|| format!("the {what} value of `{name}` is a number, not `{text}`: {form}"))?;
    }
    let [default, min, max] = values;
    if !(min <= default && default <= max) {
        return Err(format!("the default {default} of `{name}` is not between {min} and {max}: {form}"));
    }
    Ok(PolicyParameter { name: name.to_owned(), default, min, max, about: about.to_owned() })
}

/// The first `N` words, and the rest.
fn split_words<const N: usize>(mut text: &str) -> (Option<[&str; N]>, &str) {
    let mut words = [""; N];
    for word in &mut words {
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if first.is_empty() {
            return (None, text);
        }
        (*word, text) = (first, rest.trim_start());
    }
    (Some(words), text)
}

/// The text `; did you mean …?` if one of `names` is similar to `name`.
pub(super) fn near<'a, 'b: 'a>(name: &str, names: impl IntoIterator<Item = &'a &'b str>, sigil: &str) -> String {
    let names: Vec<&str> = names.into_iter().copied().collect();
    match most_alike(name, &names) {
        Some(known) if known != name => format!("; did you mean `{sigil}{known}`?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(source: &str) -> String {
        ScriptHeader::of(&Scan::of(source)).expect_err(source).text
    }

    #[test]
    fn a_header_says_what_a_script_is() {
        let source = "
            // @name my-router
            // @about Sends requests\n// @about where they fit.
            // @version 1.2
            // @events completed, routed
            // @param alpha 0.5 0 1 weight of the cache
            // @param beta -2 -5 1e3
            // an @example that is none, x@y.z
            fn f() {}
        ";
        let header = ScriptHeader::of(&Scan::of(source)).unwrap();
        assert_eq!(header.name.as_deref(), Some("my-router"));
        assert_eq!((header.about.as_str(), header.version.as_str()), ("Sends requests where they fit.", "1.2"));
        assert_eq!(header.events, EventSet::COMPLETED | EventSet::ROUTED);
        let parameters: Vec<_> =
            header.parameters.iter().map(|p| (p.name.as_str(), p.default, p.min, p.max, p.about.as_str())).collect();
        assert_eq!(parameters, [("alpha", 0.5, 0.0, 1.0, "weight of the cache"), ("beta", -2.0, -5.0, 1000.0, "")]);
        assert!(!header.every_step);
    }

    #[test]
    fn parameters_are_limited() {
        let source: String = (0..50_000).map(|n| format!("// @param p{n} 1 0 2\n")).collect();
        assert_eq!(error(&source), "there are more than 256 parameters");
    }

    #[test]
    fn mistakes_are_named() {
        let sources = [
            "// @parm a 1 0 2",
            "// @author me",
            "// @name",
            "// @name two words",
            "// @events complete",
            "// @param a 1 0",
            "// @param a one 0 2",
            "// @param a 1 0 inf",
            "// @param a 3 0 2",
            "// @param 1a 1 0 2",
            "// @param if 1 0 2",
            "// @param a 1 0 2\n// @param a 1 0 2",
            "// @every_step yes",
        ];
        let mistakes: Vec<_> = sources.iter().map(|source| error(source)).collect();
        insta::assert_snapshot!(mistakes.join("\n"), @r"
        there is no `@parm`; did you mean `@param`?
        there is no `@author`; did you mean `@about`?
        `@name` needs a value
        a name is one word
        there is no event `complete`; did you mean `completed`?
        a parameter needs a name and three numbers: write `// @param name default min max about`
        the default value of `a` is a number, not `one`: write `// @param name default min max about`
        the largest value of `a` is a number, not `inf`: write `// @param name default min max about`
        the default 3 of `a` is not between 0 and 2: write `// @param name default min max about`
        `1a` cannot be the name of a parameter: letters, digits and _, no digit first
        `if` is a word of the language and cannot be the name of a parameter
        there are two parameters `a`
        `@every_step` stands alone
        ");
    }
}
