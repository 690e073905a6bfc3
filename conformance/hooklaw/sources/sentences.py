"""A docstring or a section of a page as sentences, without code, headings and markup."""

import re

from hooklaw.sources._blocks import blocks
from hooklaw.sources._markup import START, plain, reveal

_END = re.compile(rf"(?<=[.!?])(?P<close>[\"')\]]*)\s+(?=[\"'(\[]*[A-Z0-9{START}])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|w\.r\.t|resp|Fig|Eq|No)|\b[A-Z])\.[\"')\]]*$")
_WORD = re.compile(r"[^\W\d_]")


def sentences(text: str) -> list[str]:
    """Return the sentences of a docstring, or of a section in reStructuredText or MyST Markdown, in their order.

    An item of a list and the entry of a parameter begin a sentence. A code block of one line, such as a signature,
    belongs to the sentence that announces it; other code is left out.
    """
    return [sentence for block in blocks(text) for sentence in _split(plain(block))]


def _split(paragraph: str) -> list[str]:
    found: list[str] = []
    start = 0
    for end in _END.finditer(paragraph):
        if not _ABBREVIATION.search(paragraph, start, end.end("close")):
            found.append(paragraph[start : end.end("close")])
            start = end.end()
    found.append(paragraph[start:])
    return [reveal(sentence).strip() for sentence in found if _WORD.search(sentence)]
