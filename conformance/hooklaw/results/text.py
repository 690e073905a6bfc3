"""Text of others, such as names and messages of a framework, made fit to be shown."""

LONG = 2000
"""Characters of a line beyond which its middle is left out."""
NAME = 120
"""The same for a name."""


def printable(text: str, longest: int = LONG) -> str:
    """Return the text in one line, with an escape for each character that is not printable, and without a long middle.

    A name from a file can then neither move the cursor, nor reverse a line, nor fill the screen.
    """
    if len(text) > longest:
        head = longest * 2 // 3
        text = f"{text[:head]}\u2026{text[head - longest + 1 :]}"
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def printable_lines(text: str) -> str:
    """Return a text of several lines, each made printable."""
    return "\n".join(map(printable, text.split("\n")))


def name(text: str) -> str:
    """Return a name as it is shown within a sentence."""
    return printable(text, NAME)


def markdown(text: str) -> str:
    """Return the text for a place in markdown: it starts no table cell, no tag and no emphasis."""
    shown = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return "".join(f"\\{letter}" if letter in "\\`*_[]" else letter for letter in shown)


def code(text: str) -> str:
    """Return a name as code in markdown."""
    return f"`{name(text).replace('`', '').replace('|', '')}`"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
