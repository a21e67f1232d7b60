//! Scans the text of a script before it is compiled: words with their lines, functions, and comments. The compiler
//! reports neither the position of a function nor which fields are used.

use std::collections::{HashMap, HashSet};

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct Scan<'a> {
    /// The words of the code outside of tests, including those in text literals (`${…}` contains code).
    pub words: HashSet<&'a str>,
    /// The functions without parameters whose names begin with `test_`. Their words are not in `words`.
    pub tests: HashSet<&'a str>,
    /// The functions, in the order of the text.
    pub functions: Vec<SourceSpan<'a>>,
    /// Parameters of each function, in the order of `functions`.
    pub parameters: Vec<Vec<&'a str>>,
    /// The most parameters of a function or closure, counted in the beginning of a list that does not end in it.
    pub most_parameters: usize,
    /// The most variables that `let` and `for` declare between two functions.
    pub most_declared: usize,
    /// Those since the last `fn`.
    declared: usize,
    /// Names that `const` declares.
    pub constants: Vec<&'a str>,
    /// Names that `const` and `let` declare outside of functions.
    pub top_level: Vec<SourceSpan<'a>>,
    /// What a function declares once as another name for a variable or for its entries, by the number of the function
    /// (its index + 1) and the name; `None` if it is declared in another way, more than once, or assigned to.
    pub aliases: HashMap<(usize, &'a str), Option<Alias<'a>>>,
    /// Names that may be those of fields of object maps: `#{name: …}`, `x.name = …`, and words of text literals.
    pub keys: HashSet<&'a str>,
    /// Words, numbers, text literals and signs.
    pub tokens: usize,
    /// The same with what each constant stands for, as the compiler writes it.
    pub expanded: usize,
    /// Of the constants, how many words, numbers and signs each stands for.
    sizes: HashMap<&'a str, usize>,
    /// The first hexadecimal, octal or binary number that does not fit 64 bits with its sign: the language makes a negative one
    /// of it.
    pub long_number: Option<SourceSpan<'a>>,
    /// Functions that are called by name, and fields that are read of a variable, in the order of the text.
    pub uses: Vec<NameUse<'a>>,
    /// Names that `let`, `for` and closures may declare, and those of parameters of functions.
    pub variables: HashSet<&'a str>,
    /// The loops, in the order of the text.
    pub loops: Vec<LoopSpan<'a>>,
    /// The `// …` comments without slashes, trimmed.
    pub comments: Vec<SourceSpan<'a>>,
}

/// A name in the code.
#[derive(Clone, Copy, Debug)]
pub(super) enum NameUse<'a> {
    /// `name(…)`, not behind a dot, and the number of arguments, if it is certain.
    Call(SourceSpan<'a>, Option<usize>),
    /// `x.name(…)`.
    Method(SourceSpan<'a>),
    /// `variable.name` or, `indexed`, `variable[…].name`, without arguments; `function` is the number of the function around
    /// it: its index + 1.
    Field { function: usize, variable: &'a str, indexed: bool, name: SourceSpan<'a> },
}

/// What a variable is another name for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alias<'a> {
    /// `let x = variable;`
    Of(&'a str),
    /// `let x = variable[…];`, or `for x in variable`.
    EntryOf(&'a str),
}

/// A loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopSpan<'a> {
    pub keyword: SourceSpan<'a>,
    pub function: &'a str,
    /// Depth of the braces around it.
    depth: usize,
    /// Line and column of the brace that closes it, and the bytes before it; `None` until it is found.
    end: Option<(u64, u64, usize)>,
}

impl LoopSpan<'_> {
    /// Whether the loop contains the character at `line` and `column`.
    pub fn contains(&self, line: u64, column: u64) -> bool {
        let at = (line, column);
        at >= (self.keyword.line, self.keyword.column) && self.end.is_none_or(|(line, column, _)| at <= (line, column))
    }
}

/// A piece of the text. Lines and columns count from 1; columns are characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceSpan<'a> {
    pub text: &'a str,
    pub line: u64,
    pub column: u64,
    /// For a function: its last line with code.
    pub last_line: u64,
}

impl<'a> Scan<'a> {
    pub fn of(source: &'a str) -> Self {
        let mut scanner = Scanner {
            source,
            at: 0,
            line: 1,
            column: 1,
            depth: 0,
            code_line: 1,
            before: "",
            is_behind_dot: false,
            indexed: None,
            receiver: None,
            call: None,
            open: Vec::new(),
            values: Vec::new(),
        };
        let mut scan = Self::default();
        while scanner.step(&mut scan) {}
        scan
    }

    /// Whether `span` is in a test function.
    pub fn is_in_test(&self, span: SourceSpan<'_>) -> bool {
        let before = |function: &&SourceSpan<'_>| (function.line, function.column) <= (span.line, span.column);
        let function = self.functions.iter().rfind(before);
        function.is_some_and(|function| {
            let ends_before = function.last_line != 0 && function.last_line < span.line;
            self.tests.contains(function.text) && !ends_before
        })
    }

    /// Whether the test function that was found last is not closed yet.
    fn in_test(&self) -> bool {
        self.functions.last().is_some_and(|function| function.last_line == 0 && self.tests.contains(function.text))
    }

    /// Whether the code contains one of `words`.
    pub fn has_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.words.contains(word))
    }
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    line: u64,
    column: u64,
    depth: usize,
    /// The line of the latest code other than a closing brace.
    code_line: u64,
    /// The previous word of the code.
    before: &'a str,
    /// Whether the previous word stands behind a dot.
    is_behind_dot: bool,
    /// After `variable[…]`: the variable.
    indexed: Option<&'a str>,
    /// After a dot: the variable before it, empty if something else is, and whether an index is between them.
    receiver: Option<(&'a str, bool)>,
    /// The call whose bracket follows: an index in [`Scan::uses`].
    call: Option<usize>,
    /// The brackets around the current position, from the outermost on.
    open: Vec<Bracket<'a>>,
    /// The constants with values that contain the current position.
    values: Vec<ConstantValue<'a>>,
}

/// The value of a constant, which is not at its end yet.
struct ConstantValue<'a> {
    name: &'a str,
    /// [`Scan::expanded`] before it.
    expanded: usize,
    /// The number of brackets around it.
    brackets: usize,
}

/// An open bracket.
#[derive(Default)]
struct Bracket<'a> {
    /// The call whose arguments it contains: an index in [`Scan::uses`].
    call: Option<usize>,
    /// The variable whose index it contains.
    of: Option<&'a str>,
    /// Whether it contains the variables of `for (x, i) in …`.
    declares: bool,
    commas: usize,
    /// Whether something is inside.
    is_used: bool,
    /// Whether a bar is inside: commas between the parameters of a closure separate no arguments.
    has_bar: bool,
}

impl Bracket<'_> {
    fn arguments(&self) -> Option<usize> {
        (!self.has_bar).then_some(self.commas + usize::from(self.is_used))
    }
}

impl<'a> Scanner<'a> {
    /// Consumes the next piece; returns false at the end.
    fn step(&mut self, scan: &mut Scan<'a>) -> bool {
        let rest = &self.source[self.at..];
        let Some(first) = rest.chars().next() else { return false };
        if let Some(comment) = rest.strip_prefix("//") {
            let comment = comment.split('\n').next().unwrap_or_default();
            let text = comment.trim_start_matches(['/', '!']).trim();
            scan.comments.push(self.span(text));
            self.advance(2 + comment.len());
        } else if rest.starts_with("/*") {
            self.advance(block_comment(rest));
        } else if matches!(first, '"' | '`' | '\'') {
            let (len, number) = if first == '`' { interpolated_text(rest) } else { (text_literal(rest, first), None) };
            if !scan.in_test() {
                scan.words.extend(words(&rest[..len]));
            }
            scan.keys.extend(words(&rest[..len]));
            // Text between backquotes may contain code.
            scan.tokens += if first == '`' { 1 + len / 4 } else { 1 };
            let inside = words(&rest[..len]).map(|word| scan.sizes.get(word).copied().unwrap_or(0));
            scan.expanded = inside.fold(scan.expanded.saturating_add(1), usize::saturating_add);
            self.indexed = None;
            self.inside();
            self.code_line = self.line;
            if let Some(number) = number.filter(|_| scan.long_number.is_none()) {
                self.advance(number);
                scan.long_number = long_number(&rest[number..]).map(|number| self.span(number));
                self.advance(len - number);
            } else {
                self.advance(len);
            }
            self.before = "";
        } else if first == '_' || first.is_alphabetic() {
            let len = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            self.inside();
            scan.tokens += 1;
            self.expand(&rest[..len], scan);
            self.word(&rest[..len], scan);
            self.indexed = None;
            self.advance(len);
        } else {
            let in_number = first.is_ascii_digit()
                && self.source[..self.at].ends_with(|before: char| before == '_' || before.is_alphanumeric());
            scan.tokens += usize::from(!first.is_whitespace() && !in_number);
            scan.expanded = scan.expanded.saturating_add(usize::from(!first.is_whitespace() && !in_number));
            if !in_number && scan.long_number.is_none() {
                scan.long_number = long_number(rest).map(|number| self.span(number));
            }
            let indexed = self.indexed.take();
            self.bracket(first, scan);
            self.end_values(first == ';', scan);
            if first.is_whitespace() {
                self.indexed = indexed;
            }
            match first {
                '{' => self.depth += 1,
                '}' => {
                    self.depth = self.depth.saturating_sub(1);
                    let open = |one: &&mut LoopSpan<'_>| one.end.is_none() && one.depth == self.depth;
                    if let Some(ended) = scan.loops.iter_mut().rfind(open) {
                        ended.end = Some((self.line, self.column, self.at));
                    }
                    if let (0, Some(function)) = (self.depth, scan.functions.last_mut())
                        && function.last_line == 0
                    {
                        function.last_line = self.code_line;
                    }
                }
                c if !c.is_whitespace() => self.code_line = self.line,
                _ => {}
            }
            if first == '.' && !rest.starts_with("..") && !self.source[..self.at].ends_with('.') {
                self.receiver = Some(match indexed {
                    Some(variable) => (variable, true),
                    None if self.is_behind_dot => ("", false),
                    None => (self.before, false),
                });
            } else if !first.is_whitespace() {
                self.receiver = None;
            }
            if !first.is_whitespace() {
                self.before = "";
            }
            self.advance(first.len_utf8());
        }
        true
    }

    /// Counts `word` as what it stands for; it may be the name of a new constant.
    fn expand(&mut self, word: &'a str, scan: &mut Scan<'a>) {
        let size = scan.sizes.get(word).copied().unwrap_or(1);
        scan.expanded = scan.expanded.saturating_add(size);
        if self.before == "const" {
            let (expanded, brackets) = (scan.expanded, self.open.len());
            self.values.push(ConstantValue { name: word, expanded, brackets });
        }
    }

    /// Ends the values of constants that the current position is behind.
    fn end_values(&mut self, at_semicolon: bool, scan: &mut Scan<'a>) {
        let brackets = self.open.len();
        let is_over =
            |value: &ConstantValue<'_>| brackets < value.brackets || (at_semicolon && brackets == value.brackets);
        while let Some(value) = self.values.pop_if(|value| is_over(value)) {
            let size = scan.sizes.entry(value.name).or_default();
            // There may be several of that name.
            *size = (*size).max(scan.expanded - value.expanded);
        }
    }

    /// Something stands in the innermost bracket.
    fn inside(&mut self) {
        if let Some(bracket) = self.open.last_mut() {
            bracket.is_used = true;
        }
    }

    /// Follows brackets, and the commas and bars in them.
    fn bracket(&mut self, character: char, scan: &mut Scan<'a>) {
        match character {
            '(' | '[' | '{' => {
                self.inside();
                let is_variable = character == '[' && !self.before.is_empty() && !self.is_behind_dot;
                let of = is_variable.then_some(self.before);
                let declares = character == '(' && self.before == "for";
                self.open.push(Bracket { call: self.call.take(), of, declares, ..Bracket::default() });
            }
            ')' | ']' | '}' => {
                if let Some(Bracket { call: Some(call), .. }) = self.open.last()
                    && let Some(NameUse::Call(_, arguments)) = scan.uses.get_mut(*call)
                {
                    *arguments = self.open.last().and_then(Bracket::arguments);
                }
                self.indexed = self.open.pop().and_then(|bracket| bracket.of);
            }
            ',' => {
                if let Some(bracket) = self.open.last_mut() {
                    bracket.commas += 1;
                    // A comma may stand after the last argument.
                    bracket.is_used = false;
                }
            }
            '|' => {
                // Variables of a closure, or an operand.
                let between = self.source[self.at + 1..].split('|').next().unwrap_or_default();
                let is_list = |c: char| c == '_' || c == ',' || c.is_alphanumeric() || c.is_whitespace();
                let start = beginning(between);
                if start.chars().all(is_list) {
                    scan.most_parameters = scan.most_parameters.max(words(start).count());
                }
                if between.len() < LONGEST_LIST && between.chars().all(is_list) {
                    words(between).for_each(|name| self.declare(name, None, scan));
                }
                if let Some(bracket) = self.open.last_mut() {
                    (bracket.is_used, bracket.has_bar) = (true, true);
                }
            }
            c if !c.is_whitespace() => self.inside(),
            _ => {}
        }
    }

    fn word(&mut self, word: &'a str, scan: &mut Scan<'a>) {
        let before_it = self.source[..self.at].trim_end();
        let after_it = self.source[self.at + word.len()..].trim_start();
        if before_it.ends_with('|') || after_it.starts_with('|') {
            scan.variables.insert(word); // of a closure, or an operand
        }
        let is_called = after_it.starts_with('(');
        self.call = None;
        let receiver = self.receiver.take();
        self.declarations(word, receiver.is_some(), after_it, scan);
        // `do { … } while x;`
        let ends_before = |one: &LoopSpan<'_>| one.end.is_some_and(|(.., at)| at + 1 == before_it.len());
        let of_do = word == "while" && scan.loops.iter().any(|one| one.keyword.text == "do" && ends_before(one));
        if matches!(word, "loop" | "for" | "do" | "while") && !of_do {
            let function = scan.functions.last().map_or("", |function| function.text);
            scan.loops.push(LoopSpan { keyword: self.span(word), function, depth: self.depth, end: None });
        }
        match (self.before, receiver) {
            ("fn", _) => {
                scan.functions.push(self.span(word));
                let parameters = after_it.strip_prefix('(').map(str::trim_start);
                let whole = parameters.map_or("", beginning);
                let list = whole.split_once(')').map(|(list, _)| list);
                scan.most_parameters = scan.most_parameters.max(words(list.unwrap_or(whole)).count());
                scan.parameters.push(words(list.unwrap_or_default()).collect());
                scan.declared = 0;
                if word.starts_with("test_") && parameters.is_some_and(|rest| rest.starts_with(')')) {
                    scan.tests.insert(word);
                }
            }
            ("const", _) => scan.constants.push(word),
            ("let" | "for", _) => {
                scan.declared += 1;
                scan.most_declared = scan.most_declared.max(scan.declared);
                scan.variables.insert(word);
            }
            (_, Some(_)) if is_called => scan.uses.push(NameUse::Method(self.span(word))),
            (_, Some((variable, indexed))) if !variable.is_empty() => {
                let function = scan.functions.len();
                scan.uses.push(NameUse::Field { function, variable, indexed, name: self.span(word) });
            }
            (_, None) if is_called => {
                self.call = Some(scan.uses.len());
                scan.uses.push(NameUse::Call(self.span(word), None));
            }
            _ => {}
        }
        if !scan.in_test() {
            scan.words.insert(word);
        }
        self.code_line = self.line;
        self.before = word;
        self.is_behind_dot = receiver.is_some();
    }

    /// Notes what `word`, in front of `after`, declares or changes.
    fn declarations(&self, word: &'a str, is_field: bool, after: &'a str, scan: &mut Scan<'a>) {
        let is_assigned = after.strip_prefix('=').is_some_and(|rest| !rest.starts_with(['=', '>']));
        if (is_field && is_assigned) || after.strip_prefix(':').is_some_and(|rest| !rest.starts_with(':')) {
            scan.keys.insert(word);
        }
        if is_field {
            return;
        }
        if matches!(self.before, "let" | "const") && self.depth == 0 {
            scan.top_level.push(self.span(word));
        }
        match self.before {
            "let" if is_assigned => self.declare(word, initial(&after[1..]), scan),
            "for" => self.declare(word, entry(after), scan),
            "let" | "const" | "catch" => self.declare(word, None, scan),
            _ if self.open.last().is_some_and(|bracket| bracket.declares) => {
                let is_first = self.open.last().is_some_and(|bracket| bracket.commas == 0);
                let of = beginning(after).split_once(')').and_then(|(_, rest)| entry(rest.trim_start()));
                self.declare(word, of.filter(|_| is_first), scan);
            }
            _ if is_assigned => self.declare(word, None, scan),
            _ => {}
        }
    }

    /// A second declaration of `name` in the function makes it unknown.
    fn declare(&self, name: &'a str, of: Option<Alias<'a>>, scan: &mut Scan<'a>) {
        let key = (scan.functions.len(), name);
        let is_first = !scan.aliases.contains_key(&key);
        scan.aliases.insert(key, of.filter(|_| is_first));
    }

    fn span(&self, text: &'a str) -> SourceSpan<'a> {
        SourceSpan { text, line: self.line, column: self.column, last_line: 0 }
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.source[self.at..self.at + bytes];
        self.line += passed.matches('\n').count() as u64;
        let of_line = match passed.rfind('\n') {
            Some(newline) => {
                self.column = 1;
                &passed[newline + 1..]
            }
            None => passed,
        };
        self.column += of_line.chars().count() as u64;
        self.at += bytes;
    }
}

/// Bytes of the longest list or index that is looked at: looking at the rest of the text would take the square of its length.
const LONGEST_LIST: usize = 4000;

fn beginning(rest: &str) -> &str {
    &rest[..rest.floor_char_boundary(LONGEST_LIST)]
}

/// What a variable declared with the value at the start of `rest` is another name for.
fn initial(rest: &str) -> Option<Alias<'_>> {
    let (name, rest) = identifier(rest.trim_start())?;
    let rest = rest.trim_start();
    if rest.starts_with(';') {
        return Some(Alias::Of(name));
    }
    let (index, rest) = beginning(rest).strip_prefix('[')?.split_once(']')?;
    let is_plain = !index.contains(['[', '"', '`', '/', '\'']);
    (is_plain && rest.trim_start().starts_with(';')).then_some(Alias::EntryOf(name))
}

/// What the variable of a loop is, from the words after it.
fn entry(rest: &str) -> Option<Alias<'_>> {
    let (word, rest) = identifier(rest)?;
    let (name, rest) = identifier(rest.trim_start()).filter(|_| word == "in")?;
    rest.trim_start().starts_with('{').then_some(Alias::EntryOf(name))
}

fn identifier(text: &str) -> Option<(&str, &str)> {
    let len = text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len());
    (len > 0 && !text.starts_with(|c: char| c.is_ascii_digit())).then(|| text.split_at(len))
}

/// The number with a prefix for its base at the beginning of `rest`, if it does not fit a whole number with its sign.
fn long_number(rest: &str) -> Option<&str> {
    let radix = match rest.as_bytes().get(..2)? {
        b"0x" | b"0X" => 16,
        b"0o" | b"0O" => 8,
        b"0b" | b"0B" => 2,
        _ => return None,
    };
    let len = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    let digits: String = rest[2..len].chars().filter(|&c| c != '_').collect();
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    (is_number && i64::from_str_radix(&digits, radix).is_err()).then_some(&rest[..len])
}

/// Length of the text between backquotes at the start of `rest`, and where in the code of its `${…}` the first number begins
/// that [`long_number`] finds.
pub(super) fn interpolated_text(rest: &str) -> (usize, Option<usize>) {
    // For each text that is open, the braces that are open in its `${…}`.
    let mut open = vec![0_usize];
    let (mut at, mut number) = (1, None);
    while let (Some(braces), Some(c)) = (open.last_mut(), rest[at..].chars().next()) {
        let here = &rest[at..];
        let is_code = *braces > 0;
        at += match c {
            '`' if is_code => {
                open.push(0);
                1
            }
            '`' => {
                open.pop();
                1
            }
            '$' if !is_code && here.starts_with("${") => {
                *braces = 1;
                2
            }
            '{' | '}' if is_code => {
                *braces = if c == '{' { *braces + 1 } else { *braces - 1 };
                1
            }
            '"' | '\'' if is_code => text_literal(here, c),
            '/' if is_code && here.starts_with("//") => here.find('\n').unwrap_or(here.len()),
            '/' if is_code && here.starts_with("/*") => block_comment(here),
            c if is_code && (c == '_' || c.is_alphanumeric()) => {
                number = number.or_else(|| long_number(here).map(|_| at));
                here.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(here.len())
            }
            c => c.len_utf8(),
        };
    }
    (at, number)
}

/// Length of the block comment at the start of `rest`; block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest[at..];
        let step = if here.starts_with("/*") {
            depth += 1;
            2
        } else if here.starts_with("*/") {
            depth -= 1;
            2
        } else {
            here.chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Length of the text literal at the start of `rest`; a `quote` inside is escaped or doubled.
fn text_literal(rest: &str, quote: char) -> usize {
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        if c == '\\' {
            characters.next();
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c != '_' && !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCRIPT: &str = r#"// @name x
/* fn no() { /* nested */ queue_depth } */
const A = 1; fn route(r, s) { // uses `in_flight`
    let t = "fn nor() { \" ${s.cached_blocks}";
    { s.batch_size }

}
fn helper() {}
"#;

    #[test]
    fn code_and_comments_are_separated() {
        let scan = Scan::of(SCRIPT);
        let functions: Vec<_> = scan.functions.iter().map(|f| (f.text, f.line, f.column, f.last_line)).collect();
        assert_eq!(functions, [("route", 3, 17, 5), ("helper", 8, 4, 8)]);
        assert_eq!(scan.constants, ["A"]);
        let comments: Vec<_> = scan.comments.iter().map(|c| (c.text, c.line, c.column)).collect();
        assert_eq!(comments, [("@name x", 1, 1), ("uses `in_flight`", 3, 31)]);
        assert!(scan.has_any(&["batch_size"]) && scan.has_any(&["cached_blocks"]), "{scan:?}");
        assert!(!scan.has_any(&["queue_depth", "in_flight"]), "only in comments: {scan:?}");
    }

    /// Counting each column from the start of its line would make the scan quadratic: minutes for this script.
    #[test]
    fn loops_have_their_ends() {
        let source =
            "fn f() { if x { } while a { for b in c { } }\n do { g(); } while h; loop { } }\nfn g() { loop { 1";
        let scan = Scan::of(source);
        let found: Vec<_> = scan.loops.iter().map(|one| (one.keyword.text, one.keyword.column, one.function)).collect();
        let expected = [("while", 19, "f"), ("for", 29, "f"), ("do", 2, "f"), ("loop", 23, "f"), ("loop", 10, "g")];
        assert_eq!(found, expected);
        let innermost =
            |line, column| scan.loops.iter().rfind(|one| one.contains(line, column)).map(|one| one.keyword.text);
        assert_eq!((innermost(1, 40), innermost(1, 44), innermost(2, 8)), (Some("for"), Some("while"), Some("do")));
        assert_eq!((innermost(1, 5), innermost(2, 20), innermost(9, 1)), (None, None, Some("loop")));
    }

    #[test]
    fn arguments_are_counted() {
        let source =
            "fn f(a, b) { g() + h(1) + g(1, [2, 3], \"(,\", i(4, 5,), /* , */ 6) + j(|x, y| x) + if (a) { k ( b ) } }";
        let scan = Scan::of(source);
        let calls = scan.uses.iter().filter_map(|used| match used {
            NameUse::Call(name, arguments) => Some((name.text, *arguments)),
            NameUse::Method(_) | NameUse::Field { .. } => None,
        });
        let expected = [("g", 0), ("h", 1), ("g", 5), ("i", 2), ("j", 9), ("if", 1), ("k", 1)];
        let expected = expected.map(|(name, count)| (name, Some(count).filter(|&count| count < 9)));
        assert_eq!(calls.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn words_of_tests_are_apart() {
        let source =
            "fn route(r, s) { s.queue_depth }\nfn test_a( ) { s.in_flight; \"${s.id}\" }\nfn test_b(x) { batch() }";
        let scan = Scan::of(source);
        assert_eq!(scan.tests, HashSet::from(["test_a"]), "test_b has an argument");
        assert!(scan.has_any(&["queue_depth"]) && scan.has_any(&["batch"]), "{scan:?}");
        assert!(!scan.has_any(&["in_flight", "id"]), "only in a test: {scan:?}");
        let inside = |name: &str| {
            scan.uses.iter().find_map(|used| match used {
                NameUse::Call(span, _) | NameUse::Method(span) if span.text == name => Some(scan.is_in_test(*span)),
                NameUse::Field { name: span, .. } if span.text == name => Some(scan.is_in_test(*span)),
                _ => None,
            })
        };
        assert_eq!(["queue_depth", "in_flight", "batch"].map(inside), [Some(false), Some(true), Some(false)]);
    }

    #[test]
    fn many_functions_on_one_line_have_columns() {
        let source = "fn é(){} ".repeat(100_000);
        let scan = Scan::of(&source);
        let last = scan.functions.last().expect("functions");
        assert_eq!((scan.functions.len(), last.line, last.column), (100_000, 1, 899_995));
    }

    proptest! {
        #[test]
        fn any_text_can_be_scanned(source in r#"([ \n"'`/*{}a-cé_\\$]|fn |const ){0,60}"#) {
            let scan = Scan::of(&source);
            prop_assert!(scan.comments.iter().all(|comment| source.contains(comment.text)));
        }
    }
}
