//! Text of other programs in our messages: bounded, on one line, and without anything that steers a terminal or the direction of
//! text. Pure.

/// The most characters of a message of another program.
pub const LONGEST_MESSAGE: usize = 1_000;
/// The most characters of a name of another program.
pub const LONGEST_NAME: usize = 300;

/// A text as it may be shown: control characters are spaces, spaces in a row are one, invisible ones are gone, and what is
/// too long is cut.
#[must_use]
pub fn plain(text: &str, most: usize) -> String {
    let mut shown = String::new();
    let mut count = 0;
    let visible = text.chars().filter(|character| !is_invisible(*character));
    let mut space = false;
    for character in visible {
        if character.is_whitespace() || character.is_control() {
            space = count > 0;
            continue;
        }
        let needed = 1 + usize::from(space);
        if count + needed > most {
            shown.push('…');
            break;
        }
        if space {
            shown.push(' ');
        }
        shown.push(character);
        (count, space) = (count + needed, false);
    }
    shown
}

/// Our own sentence with text of other programs in it: its spaces stay as they are, since some are part of the wire contract.
#[must_use]
pub fn printable(text: &str, most: usize) -> String {
    let visible = text.chars().filter(|character| !is_invisible(*character));
    let mut visible = visible.map(|character| if character.is_control() { ' ' } else { character });
    let mut shown: String = visible.by_ref().take(most).collect();
    if visible.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A text in quotation marks, as text of another program.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", plain(text, LONGEST_MESSAGE).replace('"', "'"))
}

/// Invisible characters that change how others are shown: marks of direction, of joining and of width.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s01_text_of_others_is_one_line_without_anything_that_steers_a_terminal() {
        let text = " \u{1b}[2Jall is\r\nwell\u{202e}lufrednow\u{200b}\t\t now\0 ";
        assert_eq!(plain(text, 100), "[2Jall is welllufrednow now");
        assert_eq!(quoted("say \"yes\""), "\"say 'yes'\"");
    }

    #[test]
    fn s01_a_sentence_of_ours_keeps_its_spaces_and_steers_no_terminal_either() {
        assert_eq!(printable("success: 2, failed: 0 ", 100), "success: 2, failed: 0 ");
        assert_eq!(printable("a  b\u{1b}[2J\nc\u{202e}d", 100), "a  b [2J cd");
        assert_eq!(printable("abcdef", 3), "abc…");
        assert_eq!(printable("abc", 3), "abc");
    }

    #[test]
    fn s01_text_of_others_is_bounded() {
        assert_eq!(plain("abc def", 7), "abc def");
        assert_eq!(plain("abc def", 6), "abc de…");
        assert_eq!(plain("ab cdef", 2), "ab…");
        assert_eq!(
            plain(&"ä".repeat(5_000), LONGEST_MESSAGE).chars().count(),
            LONGEST_MESSAGE + 1
        );
        assert_eq!(plain("", 5), "");
        assert_eq!(plain(&" ".repeat(9_000), 5), "");
    }
}
