//! Sections of a Markdown document as parts of a manual page.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The text below the first heading `## TITLE...` of `document`, up to the next one of its level.
pub(super) fn section<'a>(document: &'a str, title: &str) -> Option<&'a str> {
    let (mut start, mut fenced, mut at) = (None, false, 0usize);
    for line in document.split_inclusive('\n') {
        let heading = line.strip_prefix("## ").filter(|_| !fenced);
        fenced ^= line.starts_with("```");
        match (heading, start) {
            (Some(_), Some(start)) => return document.get(start..at),
            (Some(found), None) if found.starts_with(title) => start = Some(at.saturating_add(line.len())),
            _ => {}
        }
        at = at.saturating_add(line.len());
    }
    start.and_then(|start| document.get(start..))
}

/// Text and headings, as far as they have been read.
struct Page<'a> {
    roff: &'a mut Roff,
    /// Parts of the paragraph, cell or heading.
    text: Vec<Inline>,
    /// Cells of the row.
    cells: Vec<Vec<Inline>>,
    /// Depth of emphasis.
    emphasis: u32,
    code: bool,
    /// The paragraph is the first of a list item.
    item: bool,
}

/// Appends `markdown` to `roff`. Headings begin sections, tables become lists of terms.
pub(super) fn render(markdown: &str, roff: &mut Roff) {
    let mut page = Page { roff, text: Vec::new(), cells: Vec::new(), emphasis: 0, code: false, item: false };
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match event {
            Event::Start(tag) => page.start(&tag),
            Event::End(tag) => page.end(tag),
            Event::Text(text) if page.code => page.verbatim(&text),
            Event::Text(text) if page.emphasis > 0 => page.text.push(italic(&*text)),
            Event::Text(text) => page.text.push(roman(&*text)),
            Event::Code(text) => page.text.push(bold(&*text)),
            Event::SoftBreak | Event::HardBreak => page.text.push(roman(" ")),
            _ => {}
        }
    }
}

impl Page<'_> {
    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Paragraph if !self.item => {
                self.roff.control("PP", []);
            }
            Tag::Item => {
                self.item = true;
                self.roff.control("IP", ["\\(bu", "2"]);
            }
            Tag::CodeBlock(_) => {
                self.code = true;
                self.roff.control("PP", []).control("RS", ["4"]).control("nf", []);
            }
            Tag::Emphasis | Tag::Strong => self.emphasis = self.emphasis.saturating_add(1),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => self.heading(),
            TagEnd::Paragraph | TagEnd::Item => {
                self.flush();
                self.item = false;
            }
            TagEnd::CodeBlock => {
                self.code = false;
                self.roff.control("fi", []).control("RE", []);
            }
            TagEnd::Emphasis | TagEnd::Strong => self.emphasis = self.emphasis.saturating_sub(1),
            TagEnd::TableCell => self.cells.push(std::mem::take(&mut self.text)),
            // The head names columns that terms and their descriptions show without it.
            TagEnd::TableHead => self.cells.clear(),
            TagEnd::TableRow => self.row(),
            _ => {}
        }
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.roff.text(std::mem::take(&mut self.text));
        }
    }

    fn heading(&mut self) {
        let plain = |part: Inline| match part {
            Inline::Roman(text) | Inline::Bold(text) | Inline::Italic(text) => text,
            Inline::LineBreak => String::new(),
        };
        let title: String = std::mem::take(&mut self.text).into_iter().map(plain).collect();
        self.roff.control("SH", [title.to_uppercase().as_str()]);
    }

    fn verbatim(&mut self, text: &str) {
        for line in text.lines() {
            self.roff.text([roman(line)]);
        }
    }

    /// A row: the first cell is the term, the others describe it.
    fn row(&mut self) {
        let mut cells = std::mem::take(&mut self.cells).into_iter();
        self.roff.control("TP", []);
        self.roff.text(cells.next().unwrap_or_default());
        let mut description = Vec::new();
        for cell in cells.filter(|cell| !cell.is_empty()) {
            if !description.is_empty() {
                description.push(roman("; "));
            }
            description.extend(cell);
        }
        self.roff.text(description);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_at_the_next_heading_of_its_level() {
        let text = "# T\n\n## A\n\na\n\n```\n## no heading\n```\n\n### B\n\nb\n\n## C\n\nc\n";
        assert_eq!(section(text, "A"), Some("\na\n\n```\n## no heading\n```\n\n### B\n\nb\n\n"));
        assert_eq!(section(text, "C"), Some("\nc\n"));
        assert_eq!(section(text, "B"), None);
    }

    #[test]
    fn markdown_becomes_roff() {
        let mut roff = Roff::new();
        render(
            "One\n*two* [three](x.md).\n\n- `a`\n- b\n\n### The *rest*\n\n| k | v |\n|---|---|\n| `x` | .y |\n\n```yaml\nm:\n  'n'\n```\n",
            &mut roff,
        );
        let text = roff.render();
        let text = text.split_once(".PP\n").map_or(text.as_str(), |(_, text)| text);
        let want = "One \\fItwo\\fR three.\n.IP \\(bu 2\n\\fBa\\fR\n.IP \\(bu 2\nb\n.SH \"THE REST\"\n.TP\n\\fBx\\fR\n\\&.y\n\
                    .PP\n.RS 4\n.nf\nm:\n  \\*(Aqn\\*(Aq\n.fi\n.RE\n";
        assert_eq!(text, want);
    }
}
