"""Blocks of a documentation text: paragraphs, items of lists and entries of parameters, without code and directives."""

import re
from collections.abc import Iterator
from inspect import cleandoc

_DESCRIBES = frozenset({"attribute", "class", "eval-rst", "function", "method"})
"""Directives whose argument is a name or a signature, and whose content is text to read."""
_SAYS = frozenset({"admonition", "attention", "caution", "danger", "error", "hint", "important", "note", "seealso"})
_WARNS = frozenset({"deprecated", "tip", "versionadded", "versionchanged", "warning"})
PROSE = _DESCRIBES | _SAYS | _WARNS
"""Directives whose content is text to read; that of any other is code, a picture or a list of names."""
_ENTRIES = frozenset({"args", "arguments", "attributes", "keyword", "parameters", "params", "raises"})
_HEADER = re.compile(
    r"(?P<name>args|arguments|parameters|params|keyword args|keyword arguments|attributes|raises|returns?|yields"
    r"|examples?|notes?|warnings?|warns|references?|shape|see also)\s*(?P<colons>::?)",
    re.IGNORECASE,
)
_DIRECTIVE = re.compile(r"\.\.\s+(?P<name>[\w:+.-]+?)\s*::\s*(?P<argument>.*)")
_FENCE = re.compile(r"(?P<fence>`{3,}|:{3,}|~{3,})\s*(?:\{(?P<name>[\w:+.-]+)\})?\s*(?P<argument>[^`]*)")
_ITEM = re.compile(r"(?:[-*+\u2022]|\(?(?:\d{1,2}|#)[.)]|\(?[a-z]\))\s+(?=\S)")
_ENTRY = re.compile(r"[*`\\]*\w[\w.]*`*\s*(?:\(|:(?!\w))")
_FIELD = re.compile(r":(?:param|type|returns?|rtype|raises|arg|keyword)\b[^:]*:")
_OPTION = re.compile(r":[\w-]+:(?:\s.*)?")
_RULE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}")
_TABLE = re.compile(r"[+|].*|=+(?:\s+=+)+")


def blocks(text: str) -> list[str]:
    """Return the blocks of a text in their order, each with its markup."""
    return list(_Reader(cleandoc(text).expandtabs().splitlines()).blocks())


class _Reader:
    """One reading of the lines, from the top; `_at` is the line that is next."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._entries: int | None = None
        """The indent of the header under which each line of least indent is a parameter, or None."""
        self._fences: list[str] = []

    def blocks(self) -> Iterator[str]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if self._entries is not None and line.strip() and _indent(line) <= self._entries:
                self._entries = None
            if not self._skipped(line):
                yield self._paragraph()

    def _skipped(self, line: str) -> bool:
        """Pass over a line that is no text, with what belongs to it."""
        text = line.strip()
        if not text or _RULE.fullmatch(text) or _TABLE.fullmatch(text) or re.match(r"#{1,6} |\(.+\)=$|% ", text):
            return self._fenced(text) or self._next()
        if text.startswith(">>>"):
            return self._until_blank()
        if header := _HEADER.fullmatch(text):
            return self._headed(line, header)
        if text.startswith(".. ") or text == "..":
            return self._directive(line)
        return self._title() or self._fenced(text)

    def _next(self) -> bool:
        self._at += 1
        return True

    def _until_blank(self) -> bool:
        while self._at < len(self._lines) and self._lines[self._at].strip():
            self._at += 1
        return True

    def _title(self) -> bool:
        """Pass over a title: the line above a rule that is no shorter."""
        if self._at + 1 >= len(self._lines):
            return False
        title, below = self._lines[self._at].rstrip(), self._lines[self._at + 1].rstrip()
        if not _RULE.fullmatch(below) or len(below) < len(title):
            return False
        self._at += 2
        return True

    def _headed(self, line: str, header: re.Match[str]) -> bool:
        self._at += 1
        if header["colons"] == "::":
            self._body(_indent(line))
        elif header["name"].lower().split()[0] in _ENTRIES:
            self._entries = _indent(line)
        return True

    def _directive(self, line: str) -> bool:
        found = _DIRECTIVE.fullmatch(line.strip())
        if not found or found["name"] not in PROSE:
            self._at += 1
            self._body(_indent(line))
            return True
        argument = "" if found["name"] in _DESCRIBES else found["argument"]
        self._lines[self._at] = " " * (_indent(line) + 3) + argument
        self._options(self._at + 1)
        return True

    def _fenced(self, text: str) -> bool:
        """Open or close a fence; a fence around code is passed over whole."""
        found = _FENCE.fullmatch(text)
        if not found:
            return False
        self._at += 1
        if self._fences and found["fence"] == self._fences[-1] and not found["name"]:
            self._fences.pop()
        elif found["name"] in PROSE:
            self._fences.append(found["fence"])
            self._options(self._at)
        else:
            self._close(found["fence"])
        return True

    def _close(self, fence: str) -> None:
        while self._at < len(self._lines) and self._lines[self._at].strip() != fence:
            self._at += 1
        self._at += 1

    def _options(self, at: int) -> None:
        while at < len(self._lines) and _OPTION.fullmatch(self._lines[at].strip()):
            self._lines[at] = ""
            at += 1

    def _body(self, indent: int) -> list[str]:
        """Pass over the lines that are indented more, and return those that are not blank."""
        start = self._at
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and _indent(line) <= indent:
                break
            self._at += 1
        return [line.strip() for line in self._lines[start : self._at] if line.strip()]

    def _paragraph(self) -> str:
        first = self._lines[self._at]
        indent = _indent(first)
        item = _ITEM.match(first.strip())
        lines = [first.strip()[item.end() if item else 0 :]]
        self._at += 1
        while self._at < len(self._lines) and self._continues(self._lines[self._at], indent):
            lines.append(self._lines[self._at].strip())
            self._at += 1
        if lines[-1].endswith("::"):
            lines[-1] = lines[-1][:-1]
            lines += self._announced(indent)
        return " ".join(lines)

    def _announced(self, indent: int) -> list[str]:
        """Pass over the code that a paragraph announces, and return it if it is one line, such as a signature."""
        code = self._body(indent)
        return code if len(code) == 1 and not code[0].startswith(">>>") else []

    def _continues(self, line: str, indent: int) -> bool:
        text = line.strip()
        if not text or text.startswith((">>>", ".. ")) or _ITEM.match(text) or _FIELD.match(text):
            return False
        if _RULE.fullmatch(text) or _FENCE.fullmatch(text) or _HEADER.fullmatch(text) or _indent(line) < indent:
            return False
        return not (self._entries is not None and _indent(line) == indent and _ENTRY.match(text))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
