"""The watchdog of a worker, the limits that it keeps, and what it leaves to say of a process that died.

A C thread of faulthandler ends the worker when it passes a limit. The thread does not need the GIL.
"""

import faulthandler
import os
import re
from pathlib import Path

from hooklaw.results.verdict import Outcome

LOADING_LIMIT = 300.0
"""Seconds that a service may take to start."""
RULE_LIMIT = 30.0
"""Seconds that a rule may take on a backend."""
MUTANT_LIMIT = 20.0
"""Seconds that a rule may take on a mutant."""
PROPERTY_LIMIT = 20.0
"""Seconds that a property of packers may take."""
CELL_LIMIT = 120.0
"""Seconds that a cell of the benchmark may take."""
GRACE = 5.0
"""Seconds past a limit after which a supervisor kills a worker whose watchdog did not."""
WORDS = "words"
"""The file in a worker's folder that the watchdog writes to."""
FRAME = re.compile(r'File "(.+?)", line (\d+) in \S+')
_HERE = str(Path(__file__).parents[1])


class Watchdog:
    """Ends the process when a limit has passed, having written where every thread stood."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def start(self, limit: float) -> None:
        """Start the watchdog; what it wrote before is forgotten."""
        self._file.seek(0)
        self._file.truncate()
        faulthandler.disable()  # a framework may have put handlers of its own over ours
        faulthandler.enable(self._file)
        faulthandler.dump_traceback_later(limit, exit=True, file=self._file)

    def stop(self) -> None:
        """Stop the watchdog."""
        faulthandler.cancel_dump_traceback_later()


def last_words(path: Path) -> tuple[Outcome, str, str]:
    """Return how the process ended (crash or timeout), the same in one line, and the source line of the culprit."""
    text = path.read_text(errors="replace") if path.exists() else ""
    if text.startswith("Timeout"):
        clock = re.match(r"Timeout \((\d+):(\d+):([\d.]+)\)", text)
        limit = int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3]) if clock else 0.0
        return Outcome.TIMEOUT, late(limit), culprit(text)
    fatal = re.search(r"Fatal Python error: (.+)", text)
    if fatal:
        return Outcome.CRASH, f"the process died: {fatal[1].strip()}", culprit(text)
    return Outcome.CRASH, "the process died without a word (killed, out of memory, or os._exit)", ""


def late(limit: float) -> str:
    """Return in words that a limit has passed."""
    return f"did not end within {limit:g} s"


def culprit(text: str) -> str:
    """Return the line of a rule nearest the fault: of the thread that failed first, then of any thread.

    Where no rule is running, e.g. while a backend loads, return the line nearest the fault that is not our own.
    """
    threads = re.split(r"\n(?=(?:Current thread|Thread) )", text)
    current = [thread for thread in threads if "Current thread" in thread.split("\n")[0]]
    frames = [frame for thread in [*current, *threads] for frame in FRAME.findall(thread)]
    of_rules = [(file, line) for file, line in frames if Path(file).name.startswith("test_")]
    others = [(file, line) for file, line in frames if not file.startswith((_HERE, "<"))]
    for file, line in (*of_rules, *others):
        shown = os.path.relpath(file, Path(_HERE).parent) if file.startswith(_HERE) else file
        return f"{shown}:{line}"
    return ""
