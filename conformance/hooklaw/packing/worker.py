"""The worker: ``python -m hooklaw.packing.worker SPEC DEVICE FILE LIMIT EXAMPLES`` reads ids, answers in JSON lines.

The first line answered is a `Hello` or a `Fault`, then a `Tried` for every id read. A worker that hangs is ended by
its watchdog, which writes to FILE; the program that it was at stands in FILE.program.
"""

import gc
import os
import sys
from pathlib import Path
from typing import TextIO

import msgspec

from hooklaw.errors import HooklawError, PackerError
from hooklaw.law.rule import Rule
from hooklaw.packing import law
from hooklaw.packing.check import Trial, Tried, clean
from hooklaw.packing.subject import Subject, lines_of, resolve, subject
from hooklaw.workers.watchdog import LOADING_LIMIT, Watchdog


class Hello(msgspec.Struct, tag=True):
    """What a worker found: the properties and the packer's declarations."""

    rules: list[Rule]
    further: list[str]
    """Devices of this machine beside the CPU."""
    versions: dict[str, str]
    notes: dict[str, str]


class Fault(msgspec.Struct, tag=True):
    """Why nothing can be judged."""

    why: str


Line = Hello | Fault | Tried


class _Noted(Trial):
    """A trial that leaves the running program in a file."""

    file: Path

    def _execute(self, text: str) -> tuple[str, str] | None:
        self.file.write_text(text, encoding="utf-8")
        return super()._execute(text)


def hello(found: Subject) -> Hello:
    """Return what is to be known before anything runs."""
    import torch  # noqa: PLC0415 - its absence is a sentence

    declared = {"tolerance": f"{found.tolerance:g}" if found.tolerance else "", "medium": found.medium}
    return Hello(
        [one.rule for one in law.properties().values()],
        ["cuda"] if torch.cuda.is_available() else [],
        {"torch": str(torch.__version__), **found.versions},
        {name: value for name, value in declared.items() if value},
    )


def load(spec: str, device: str) -> Subject:
    """Return the subject; PackerError where there is none, or torch is not there."""
    try:
        import torch  # noqa: PLC0415 - its absence is a sentence
    except ImportError as error:
        raise PackerError(f"packers are judged with torch, which does not import: {error}") from error
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise PackerError(f"--device {device}: {str(error).splitlines()[0]}") from error
    torch.set_num_threads(1)  # the tensors are small
    return subject(resolve(spec), lines_of(spec), device, spec)


def main() -> int:
    """Serve until there is no further order."""
    spec, device, file, limit, examples = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what a packer prints is no answer
    watchdog = Watchdog(Path(file))
    watchdog.start(LOADING_LIMIT)
    try:
        found = load(spec, device)
        _answer(answers, hello(found))
    except HooklawError as error:
        _answer(answers, Fault(str(error)))
        return 1
    watchdog.stop()
    gc.collect()
    gc.freeze()  # a property that collects garbage need not look at a whole framework
    trial = _Noted(found, int(examples))
    trial.file = Path(f"{file}.program")
    _serve(trial, watchdog, float(limit), answers)
    return 0


def _serve(trial: _Noted, watchdog: Watchdog, limit: float, answers: TextIO) -> None:
    known = law.properties()
    for line in sys.stdin:
        watchdog.start(limit)
        tried = trial.run(known[line.strip()])
        watchdog.stop()
        trial.file.unlink(missing_ok=True)  # from here on an end of the process is no fault of a program
        _answer(answers, tried)
        if not clean():  # what the packer left behind is not to be taken for what the next property finds
            return


def _answer(answers: TextIO, line: Line) -> None:
    answers.write(msgspec.json.encode(line).decode() + "\n")
    answers.flush()


if __name__ == "__main__":
    raise SystemExit(main())
