//! The Markdown documents of the repository: their blocks, links and anchors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use pulldown_cmark::{BrokenLink, CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

use crate::macros::root;

/// A Markdown document.
pub struct Document {
    /// Its path from the repository.
    pub name: String,
    pub text: String,
    pub blocks: Vec<Block>,
    pub links: Vec<PageLink>,
    pub spans: Vec<Span>,
    /// What `#…` may name.
    pub anchors: BTreeSet<String>,
}

/// A fenced or indented block.
pub struct Block {
    pub line: usize,
    /// Empty if the fence names none, or there is no fence.
    pub language: String,
    pub text: String,
    /// Number of headings above it.
    pub section: usize,
    /// The text of the HTML comment directly above it.
    pub comment: Option<String>,
    /// Where it begins, in bytes.
    start: usize,
}

/// A link or an image, of Markdown or HTML.
pub struct PageLink {
    pub line: usize,
    pub target: String,
}

/// Code in a sentence or a table.
pub struct Span {
    pub line: usize,
    pub text: String,
}

/// The names of all Markdown documents that Git has or would take; none, with a message, without Git.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn documents() -> Vec<String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"]).current_dir(root());
    let Some(output) = git.output().ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: Git does not list the documents");
        return Vec::new();
    };
    let names = String::from_utf8(output.stdout).expect("names in UTF-8");
    let names: BTreeSet<&str> = names.lines().filter(|name| root().join(name).is_file()).collect();
    names.into_iter().map(str::to_owned).collect()
}

impl Document {
    pub fn read(name: &str) -> Self {
        let path = root().join(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(name, text)
    }

    pub fn parse(name: &str, text: String) -> Self {
        let mut parts = Parts::default();
        let undefined = |link: BrokenLink<'_>| {
            let is_reference = matches!(link.link_type, LinkType::Reference | LinkType::Collapsed);
            is_reference
                .then(|| (CowStr::from(format!("[{}], which is not defined", link.reference)), CowStr::from("")))
        };
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH;
        let events = Parser::new_with_broken_link_callback(&text, options, Some(undefined)).into_offset_iter();
        for (event, range) in events {
            parts.add(event, &text, range.start, range.end);
        }
        let Parts { blocks, links, spans, anchors, .. } = parts;
        Self { name: name.to_owned(), text, blocks, links, spans, anchors }
    }

    /// The text above a block.
    pub fn above(&self, block: &Block) -> &str {
        &self.text[..block.start]
    }
}

#[derive(Default)]
struct Parts {
    blocks: Vec<Block>,
    links: Vec<PageLink>,
    spans: Vec<Span>,
    anchors: BTreeSet<String>,
    slugs: Slugs,
    sections: usize,
    open_block: Option<Block>,
    open_heading: Option<String>,
    /// The last comment, and where it ends.
    comment: Option<(String, usize)>,
}

impl Parts {
    fn add(&mut self, event: Event<'_>, text: &str, start: usize, end: usize) {
        let line = text[..start].matches('\n').count() + 1;
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let language =
                    if let CodeBlockKind::Fenced(language) = kind { language.into_string() } else { String::new() };
                let above = self.comment.take().filter(|(_, end)| text[*end..start].trim().is_empty());
                let comment = above.map(|(comment, _)| comment);
                let text = String::new();
                self.open_block = Some(Block { line, language, text, section: self.sections, comment, start });
            }
            Event::End(TagEnd::CodeBlock) => self.blocks.extend(self.open_block.take()),
            Event::Start(Tag::Heading { .. }) => self.open_heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                self.sections += 1;
                let heading = self.open_heading.take().unwrap_or_default();
                self.anchors.insert(self.slugs.next(&heading));
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                self.links.push(PageLink { line, target: dest_url.into_string() });
            }
            Event::Start(Tag::HtmlBlock) => self.add_html(&text[start..end], line, end),
            Event::InlineHtml(html) => self.add_html(&html, line, end),
            Event::Code(code) => {
                self.open_heading.iter_mut().for_each(|heading| heading.push_str(&code));
                self.spans.push(Span { line, text: code.into_string() });
            }
            Event::Text(part) => match (&mut self.open_block, &mut self.open_heading) {
                (Some(block), _) => block.text.push_str(&part),
                (None, Some(heading)) => heading.push_str(&part),
                (None, None) => {}
            },
            _ => {}
        }
    }

    fn add_html(&mut self, html: &str, line: usize, end: usize) {
        let comment = html.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
        if let Some(comment) = comment {
            self.comment = Some((comment.trim().to_owned(), end));
            return;
        }
        self.anchors.extend(["id", "name"].iter().flat_map(|name| attributes(html, name)));
        let targets = ["href", "src"].iter().flat_map(|name| attributes(html, name));
        self.links.extend(targets.map(|target| PageLink { line, target }));
    }
}

/// The values of an attribute in HTML.
fn attributes(html: &str, name: &str) -> Vec<String> {
    let start = format!(" {name}=\"");
    html.split(&start).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

/// Anchors of headings as GitHub makes them: equal ones get a number.
#[derive(Default)]
struct Slugs(BTreeMap<String, usize>);

impl Slugs {
    fn next(&mut self, heading: &str) -> String {
        let slug = slug(heading);
        let mut unique = slug.clone();
        while self.0.contains_key(&unique) {
            let count = self.0.get_mut(&slug).expect("it was there before");
            *count += 1;
            unique = format!("{slug}-{count}");
        }
        self.0.insert(unique.clone(), 0);
        unique
    }
}

/// Lower case, dashes for blanks, no punctuation.
fn slug(heading: &str) -> String {
    let kept =
        heading.trim().chars().filter(|c| c.is_alphabetic() || c.is_ascii_digit() || matches!(c, '-' | '_' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}
