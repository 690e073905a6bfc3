"""Text of others, such as names and messages of a framework, made fit to be shown."""

from typing import Any, cast

import msgspec

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
    return _escaped(text)


def harmless(text: str) -> str:
    """Return a text with an escape for each character that is not printable, but for ends of lines and tabs."""
    return "\n".join("\t".join(map(_escaped, line.split("\t"))) for line in text.split("\n"))


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


def encoded(value: object) -> bytes:
    """Return a value as JSON; a lone surrogate in its texts, which UTF-8 does not have, is written as an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(each) for key, each in cast("dict[Any, Any]", value).items()}
    return [*map(_encodable, cast("list[Any]", value))] if isinstance(value, list | tuple) else value


def _escaped(text: str) -> str:
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
