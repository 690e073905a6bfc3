"""Phrases of `saw`: what a divergence looks like, chosen from a result, and looked for in another."""

import re
from collections.abc import Iterable

LONGEST = 100
LEAST = 12
"""A part of a sentence that is shorter says too little."""
VOLATILE = re.compile(
    r"0x[0-9a-fA-F]+"  # an address
    r"|(?:[A-Za-z]:)?[/\\][\w.+-]+[/\\][\w./\\+-]+"  # a path
    r"|\bline \d+|\bseed\W*\d+|:\d+\b"
    r"|\(\+\d+ lines\)|\[Falsifying.*|; saw .*|\n.*",
    re.DOTALL,
)
"""What changes from machine to machine or from run to run, or repeats the whole trace."""
SEEN = re.compile(r", ((?:saw|was) .*)")
NUMBERED = re.compile(r"^event \d+ ")
"""An event's number says nothing that its labels do not say."""


def phrase_of(detail: str) -> str:
    """Return the first telling part of a detail that is the same on every machine, or its longest part."""
    parts = [part.strip(" ,.;:") for part in VOLATILE.split(NUMBERED.sub("", detail))]
    telling = next((part for part in parts if len(part) >= LEAST), max(parts, key=len))
    if len(telling) > LONGEST and (seen := SEEN.search(telling)):
        telling = seen.group(1)
    return telling if len(telling) <= LONGEST else telling[:LONGEST].rpartition(" ")[0]


def shows(phrases: Iterable[str], seen: str) -> bool:
    """Whether a result shows one of the phrases; without any, every result does."""
    wanted = [*phrases]
    return not wanted or any(phrase in seen for phrase in wanted)
