//! Colour, where it is wanted.

use std::io::IsTerminal;

/// Whether colour is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Plain text.
    Plain,
    /// ANSI colours.
    Colour,
}

/// What a colour says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// As it should be.
    Good,
    /// Not as it should be.
    Bad,
}

impl Style {
    /// Colour only if standard output is a terminal and `NO_COLOR` is absent or empty.
    pub fn detect() -> Style {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        if !refused && std::io::stdout().is_terminal() { Style::Colour } else { Style::Plain }
    }

    /// The text, coloured where colour is used.
    pub fn paint(self, paint: Paint, text: &str) -> String {
        match (self, paint) {
            (Style::Plain, _) => text.to_owned(),
            (Style::Colour, Paint::Good) => format!("\x1b[32m{text}\x1b[0m"),
            (Style::Colour, Paint::Bad) => format!("\x1b[31m{text}\x1b[0m"),
        }
    }
}
