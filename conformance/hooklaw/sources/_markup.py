"""Inline markup of reStructuredText and Markdown, taken off a paragraph."""

import re

START = "\ue000"
"""Stands before code while sentences are split: a sentence may begin with a name in lower case."""
_HIDE = str.maketrans({mark: chr(0xE001 + number) for number, mark in enumerate(".!?*\\[]")})
"""Stand for what is punctuation or markup elsewhere, and is neither within code."""
_REVEAL = {ord(hidden): chr(mark) for mark, hidden in _HIDE.items()} | {ord(START): None}
_SPACES = re.compile(r"\s+")
_CODE = re.compile(
    r"(?::[\w:+.-]+:|\{[\w:+.-]+\})?"  # a role, of reStructuredText or of MyST
    r"(?<!`)(?P<ticks>`{1,2})(?!`)(?P<inside>[^`]+)(?P=ticks)(?!`)_{0,2}"
)
_TITLED = re.compile(r"(?P<title>.+?)\s*<[^<>]+>", re.DOTALL)
_LINK = re.compile(r"\[(?P<title>[^\]]+)\]\([^)\s]+\)")
_EMPHASIS = re.compile(r"(?<![\w*])(?P<stars>\*{1,2})(?=\S)(?P<inside>[^*]*[^*\s])(?P=stars)(?![\w*])")
_CODE_FOLLOWS = re.compile(r"(?<=\w)::(?=\s|$)")
_ESCAPE = re.compile(r"\\ |\\(?!\w)|\\(?=s\b)")
_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"})


def plain(paragraph: str) -> str:
    """Return a paragraph in one line without markup; what stands for code is hidden until `reveal`."""
    text = _CODE_FOLLOWS.sub(":", _SPACES.sub(" ", paragraph).translate(_QUOTES))
    text = _LINK.sub(r"\g<title>", _CODE.sub(_hidden, text))
    return _ESCAPE.sub("", _EMPHASIS.sub(r"\g<inside>", text)).strip()


def reveal(text: str) -> str:
    """Return the text with the code that `plain` hid."""
    return text.translate(_REVEAL)


def _hidden(found: re.Match[str]) -> str:
    inside: str = found["inside"].strip()
    titled = _TITLED.fullmatch(inside)
    name = titled["title"] if titled else inside.removeprefix("~").removeprefix("!")
    return START + name.translate(_HIDE)
