//! Wraps prose to lines of at most `WIDTH` columns and paragraphs of at most `PARAGRAPH` lines.

use super::paragraphs::{self, Paragraph};
use super::{PARAGRAPH, WIDTH};

pub(super) fn wrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n').enumerate().peekable();
    let mut copy_until = |end: usize, out: &mut String, keep: bool| {
        while let Some((_, line)) = lines.next_if(|(number, _)| *number < end) {
            if keep {
                out.push_str(line);
            }
        }
    };
    for paragraph in paragraphs::of(text) {
        let wide = |line: &&str| line.chars().count() > WIDTH;
        if !paragraph.lines.iter().any(wide) && paragraph.lines.len() <= PARAGRAPH {
            continue;
        }
        copy_until(paragraph.first, &mut out, true);
        copy_until(paragraph.first + paragraph.lines.len(), &mut out, false);
        write(&paragraph, &mut out);
    }
    copy_until(usize::MAX, &mut out, true);
    out
}

fn write(paragraph: &Paragraph<'_>, out: &mut String) {
    let indent = paragraph.indent();
    let first = paragraph.lines.iter().take(1).map(|line| &line[paragraph.lead.len()..]);
    let more = paragraph.lines.iter().skip(1).map(|line| line.trim_start_matches([' ', '>']));
    let text: Vec<&str> = first.chain(more).collect();
    let text = text.join("\n");
    let words = words(&text);
    let mut lead = paragraph.lead;
    for (number, part) in parts(&words, indent.len()).into_iter().enumerate() {
        if number > 0 {
            out.push_str(indent.trim_end());
            out.push('\n');
            lead = &indent;
        }
        for (number, line) in fill(part, indent.len()).iter().enumerate() {
            out.push_str(if number == 0 { lead } else { &indent });
            out.push_str(line);
            out.push('\n');
        }
    }
}

/// Splits text where a line may break. A code span stays whole, and text that would begin a list or a heading
/// stays with its left neighbour.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_code = false;
    for word in text.split_whitespace() {
        let begins_a_block = matches!(word, "-" | "+" | "*" | ">" | "#" | "|" | "=")
            || word.starts_with('|')
            || word.strip_suffix(['.', ')']).is_some_and(|n| n.len() < 4 && n.parse::<u16>().is_ok());
        match words.last_mut().filter(|_| in_code || begins_a_block) {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
        in_code ^= word.matches('`').count() % 2 == 1;
    }
    words
}

fn fill(words: &[String], indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut width = 0;
    for word in words {
        let more = word.chars().count();
        match lines.last_mut().filter(|_| indent + width + 1 + more <= WIDTH) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
                width += 1 + more;
            }
            None => {
                lines.push(word.clone());
                width = more;
            }
        }
    }
    lines
}

/// The fewest parts with at most `PARAGRAPH` lines each, of similar length, split between sentences.
fn parts(words: &[String], indent: usize) -> Vec<&[String]> {
    let lines = fill(words, indent).len();
    let wanted = lines.div_ceil(PARAGRAPH).max(1);
    for count in wanted..wanted + 3 {
        let cut = cut(words, count);
        if cut.iter().all(|part| fill(part, indent).len() <= PARAGRAPH) {
            return cut;
        }
    }
    cut(words, wanted + 2)
}

fn cut(words: &[String], count: usize) -> Vec<&[String]> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for part in 1..count {
        let fill = words.len() * part / count;
        let ends = (begin + 1..words.len()).filter(|at| ends_sentence(&words[at - 1], &words[*at]));
        if let Some(end) = ends.min_by_key(|at| at.abs_diff(fill)) {
            parts.push(&words[begin..end]);
            begin = end;
        }
    }
    parts.push(&words[begin..]);
    parts
}

fn ends_sentence(word: &str, next: &str) -> bool {
    let ends = word.trim_end_matches([')', '*', '`', '"', '_']).ends_with(['.', '?', '!']);
    let begins = next
        .trim_start_matches(['*', '(', '[', '"', '_'])
        .starts_with(|c: char| c.is_uppercase() || c == '`');
    ends && begins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_are_filled_and_narrow_paragraphs_stay() {
        let word = "x".repeat(54);
        let text = format!("short\nlines\n\n- {word} {word} {word}\n\n| {word} | {word} {word} |\n");
        let expected =
            format!("short\nlines\n\n- {word}\n  {word}\n  {word}\n\n| {word} | {word} {word} |\n");
        assert_eq!(wrapped(&text), expected);
        assert_eq!(wrapped(&expected), expected);
    }

    #[test]
    fn a_long_paragraph_is_cut_between_sentences() {
        let sentence = format!("Some {}.", "words ".repeat(60).trim_end());
        let text = format!("{}\n", [sentence.as_str(); 4].join(" "));
        let out = wrapped(&text);
        let paragraphs: Vec<&str> = out.trim_end().split("\n\n").collect();
        assert_eq!(paragraphs.len(), 4, "{out}");
        for paragraph in paragraphs {
            assert_eq!(paragraph.replace('\n', " "), sentence);
        }
    }

    #[test]
    fn code_is_not_broken_and_no_line_begins_a_list() {
        assert_eq!(words("a `b c d` - e 12. f"), ["a", "`b c d` -", "e 12.", "f"]);
    }
}
