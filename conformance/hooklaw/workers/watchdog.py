"""Containment: a worker that crashes or hangs, even holding the GIL, costs one rule its result and names the culprit.

In the worker a C thread of faulthandler ends the process when a rule passes its limit; it needs no GIL. What it
wrote stays in a file of the worker's own, which the controller reads once xdist says that the worker is gone.
"""

import faulthandler
import os
import re
from pathlib import Path

from hooklaw.results.verdict import Outcome

LIMIT = 30.0
"""Seconds a rule may take."""
LOADING_LIMIT = 300.0
"""Seconds a backend may take to load."""
_HERE = str(Path(__file__).parents[1])


class Watchdog:
    """Ends the worker when a rule passes its limit, having written where every thread stood."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def start(self, limit: float) -> None:
        """Watch from now on."""
        self._file.seek(0)
        self._file.truncate()
        faulthandler.disable()  # a framework may have put handlers of its own over ours
        faulthandler.enable(self._file)
        faulthandler.dump_traceback_later(limit, exit=True, file=self._file)

    def stop(self) -> None:
        """Watch no more."""
        faulthandler.cancel_dump_traceback_later()


def last_words(path: Path) -> tuple[Outcome, str, str]:
    """Return the outcome of the rule that ended a worker, one line that says how, and the source line."""
    text = path.read_text(errors="replace") if path.exists() else ""
    if text.startswith("Timeout"):
        limit = re.match(r"Timeout \(([\d:.]+)\)", text)
        return Outcome.TIMEOUT, f"did not end within {_seconds(limit[1]) if limit else 'its limit'}", _culprit(text)
    fatal = re.search(r"Fatal Python error: (.+)", text)
    if fatal:
        return Outcome.CRASH, f"the process died: {fatal[1].strip()}", _culprit(text)
    return Outcome.CRASH, "the process died without a word (killed, out of memory, or os._exit)", ""


def _seconds(clock: str) -> str:
    hours, minutes, seconds = clock.split(":")
    return f"{int(hours) * 3600 + int(minutes) * 60 + float(seconds):g} s"


def _culprit(text: str) -> str:
    """Return the line of a rule nearest the fault: of the thread that failed first, then of any thread."""
    threads = re.split(r"\n(?=(?:Current thread|Thread) )", text)
    current = [one for one in threads if one.startswith("Current thread") or "Current thread" in one.split("\n")[0]]
    for thread in [*current, *threads]:
        frames = re.findall(r'File "(.+?)", line (\d+) in (\S+)', thread)
        rule_frames = [(file, line) for file, line, _ in frames if Path(file).name.startswith("test_")]
        if rule_frames:
            file, line = rule_frames[0]
            shown = os.path.relpath(file, Path(_HERE).parent) if file.startswith(_HERE) else file
            return f"{shown}:{line}"
    return ""
