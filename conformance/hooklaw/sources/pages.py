"""Sections of a page's source: reStructuredText, MyST Markdown, or the Python file of a tutorial."""

import ast
import re
from collections.abc import Iterator

_HEADING = re.compile(r"#{1,6}\s+(?P<title>.+)")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}")
_BAR = re.compile(r"#{20,}|# %%.*")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_ROLE = re.compile(r":[\w:+.-]+:(?=`)|\{[\w:+.-]+\}(?=`)")


def sections(source: str) -> dict[str, str]:
    """Return the text of each section below its anchor; what a subsection says belongs to the subsection alone.

    The text before the first heading has the empty anchor. Where two headings have the same anchor, the first counts.
    """
    found: dict[str, str] = {}
    for anchor, lines in _sections(source.splitlines()):
        found.setdefault(anchor, "\n".join(lines))
    return found


def tutorial_text(source: str) -> str:
    """Return the text of a tutorial's Python file: its docstring and the comments below a bar."""
    lines = [ast.get_docstring(ast.parse(source)) or ""]
    within = False
    for line in source.splitlines():
        within = bool(_BAR.fullmatch(line)) or (within and line.startswith("#"))
        lines.append(line[1:].removeprefix(" ") if within and not _BAR.fullmatch(line) else "")
    return "\n".join(lines)


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    anchor, text, fence = "", [], ""
    for number, line in enumerate(lines):
        fence = _within(fence, line)
        title = "" if fence else _title(line, lines[number + 1] if number + 1 < len(lines) else "")
        if title:
            yield anchor, text
            anchor, text = _anchor(title), []
        else:
            text.append(line)
    yield anchor, text


def _within(fence: str, line: str) -> str:
    """Return the fence that is open after this line, or an empty string."""
    found = _FENCE.match(line)
    if not found:
        return fence
    return "" if fence and found[1] == fence else fence or found[1]


def _title(line: str, below: str) -> str:
    if found := _HEADING.fullmatch(line):
        return found["title"]
    underlined = line.strip() and not line.startswith(" ") and _UNDERLINE.fullmatch(below)
    return line if underlined and len(below) >= len(line.rstrip()) and not _UNDERLINE.fullmatch(line) else ""


def _anchor(title: str) -> str:
    """Return the id that docutils makes of a title."""
    return re.sub(r"[^a-z0-9]+", "-", _ROLE.sub("", title).lower()).strip("-")
