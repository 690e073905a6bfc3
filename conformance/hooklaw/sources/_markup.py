"""Inline markup of reStructuredText and Markdown, taken off a paragraph."""

import re

START = "\ue000"
"""Stands before code while sentences are split: a sentence may begin with a name in lower case."""
_DOT = "\ue001"
"""Stands for a full stop, a question or an exclamation mark within code, which ends no sentence."""
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
    text = _CODE.sub(_hidden, _LINK.sub(r"\g<title>", text))
    return _ESCAPE.sub("", _EMPHASIS.sub(r"\g<inside>", text)).strip()


def reveal(text: str) -> str:
    """Return the text with the code that `plain` hid."""
    return text.replace(START, "").replace(_DOT, ".")


def _hidden(found: re.Match[str]) -> str:
    inside: str = found["inside"].strip()
    titled = _TITLED.fullmatch(inside)
    name = titled["title"] if titled else inside.removeprefix("~").removeprefix("!")
    return START + re.sub(r"[.!?]", _DOT, name)
