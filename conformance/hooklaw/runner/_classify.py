"""Whose fault an exception is: the backend broke the law (fail), or the suite or the adapter broke (error)."""

import re
from pathlib import Path
from traceback import FrameSummary, extract_tb
from types import TracebackType
from typing import Any

from hooklaw.backend.blame import files_of, is_adapters, is_file_of
from hooklaw.law.trace import Mismatch
from hooklaw.results.verdict import Outcome

HERE = Path(__file__).parents[1]
PROGRAMMING = (AttributeError, NameError, ImportError, NotImplementedError)
"""Exceptions that, raised in our own code, mean that this code is wrong."""
FALSIFYING = re.compile(r"(?:Falsifying (?:explicit )?example|Failing test case): \w+\((.*)\)\s*$", re.DOTALL)
"""How Hypothesis shows a failing example, by its version."""


def classify(error: BaseException, backend: Any) -> tuple[Outcome, str, str]:
    """Return the outcome, one line that says what happened, and the source line.

    A Mismatch is a fail. Any other exception is a fail too, since a framework may not raise where the rule
    demands none, unless the adapter is to blame for it, or a programming error was raised by the rule itself.
    """
    frames = _since_rule(extract_tb(error.__traceback__))
    where = _place(_last_outside(frames))
    verb = _verb(error.__traceback__, backend)
    said = f"{type(error).__name__}: {_text(error)}"
    if is_adapters(error, backend):
        return Outcome.ERROR, f"backend {backend.name!r}: {verb and f'verb {verb!r} '}raised {said}", _place(frames[-1])
    if isinstance(error, AssertionError):
        return Outcome.FAIL, _text(error) or f"{verb or 'the rule'} raised {type(error).__name__}", where
    if _broken_here(error, frames, backend):
        who = f"backend {backend.name!r}: verb {verb!r} raised " if verb else "the rule itself raised "
        return Outcome.ERROR, who + said, _place(frames[-1])
    return Outcome.FAIL, f"{verb or 'the rule'} raised {said}", where


def _broken_here(error: BaseException, frames: list[FrameSummary], backend: Any) -> bool:
    last = frames[-1].filename
    if type(error) is TypeError:  # not what an engine of our own raises for a wrong hook
        return _is_ours(Path(last)) and not is_file_of(last, backend) and not _came_through_framework(frames, backend)
    return isinstance(error, PROGRAMMING) and _is_ours(Path(last))


def _came_through_framework(frames: list[FrameSummary], backend: Any) -> bool:
    return any(not _is_ours(Path(one.filename)) and not is_file_of(one.filename, backend) for one in frames)


def _verb(traceback: TracebackType | None, backend: Any) -> str:
    """Return the verb that the rule, or a hook of it, called last; what an adapter calls within itself is no verb."""
    found, adapter, inside = "", files_of(type(backend)), False
    while traceback:
        code = traceback.tb_frame.f_code
        entered = not inside
        inside = code.co_filename in adapter
        if entered and inside and traceback.tb_frame.f_locals.get("self") is backend:
            found = code.co_name
        traceback = traceback.tb_next
    return found


def _is_ours(path: Path) -> bool:
    return path.is_relative_to(HERE) or _is_chapter(path)


def _is_chapter(path: Path) -> bool:
    return path.name.startswith("test_")


def _since_rule(frames: list[FrameSummary]) -> list[FrameSummary]:
    """Leave the runner's own frames out."""
    rule = next((place for place, frame in enumerate(frames) if _is_chapter(Path(frame.filename))), 0)
    return frames[rule:]


def _last_outside(frames: list[FrameSummary]) -> FrameSummary:
    rules = [frame for frame in frames if _is_chapter(Path(frame.filename))]
    return rules[-1] if rules else frames[-1]


def place(file: str, line: int | None) -> str:
    """Return a source line as a record names it: hooklaw's own files by their place in the package."""
    path = Path(file)
    shown = path.relative_to(HERE.parent) if path.is_relative_to(HERE.parent) else path
    return f"{shown}:{line}"


def _place(frame: FrameSummary) -> str:
    return place(frame.filename, frame.lineno)


def _gist(lines: list[str]) -> str:
    """Return the first line of a long message, and the exception it quotes, if any."""
    quoted = [line.strip() for line in lines[1:] if re.match(r"\s*[\w.]*(Error|Exception)\b.*:", line)]
    return " ... ".join([lines[0].strip(), *quoted[-1:]]) + f" (+{len(lines) - 1} lines)"


def _text(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()] or [""]
    head = lines[0].strip() if isinstance(error, Mismatch) or len(lines) == 1 else _gist(lines)
    return (head + _example(error))[:600]


def _example(error: BaseException) -> str:
    """Return the example that Hypothesis found, without the backend and the trace, which every rule is given."""
    for note in getattr(error, "__notes__", []):
        if isinstance(note, str) and (shown := FALSIFYING.match(note)):
            lines = [line.partition("  # ")[0].strip() for line in shown[1].splitlines()]
            drawn = " ".join(line for line in lines if line and not line.startswith(("backend=", "trace=")))
            return f" [Falsifying example: {drawn.rstrip(',')}]"
    return ""
