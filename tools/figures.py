"""Measure the figures of the README: `python tools/figures.py [ROUNDS]`, in an environment with torch.

Every round takes, one after the other, a bare `import torch`, one with what torch imports later, all rules in process,
one rule in process, all but those of ranks in process, all rules contained, and all but those of ranks contained.
Figures are processor time, since other work on the machine changes it less; that of child processes is included, on
Linux also that of ranks which died with the worker that forked them. They are medians over the rounds of what was
measured within a round. What the harness costs a rule is what all rules take beyond one rule, less the time inside the
rules themselves, by the records' own clock.
"""

import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SINGLE = "order.six-steps.leaf"
ALONE = "not processes"
"""Chooses the rules that run in no rank."""
LATE = "torch, torch._dynamo"
"""What torch itself imports before a checkpoint: the rules of checkpoints pay for it too."""
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER: orphans among its descendants become a process's own children."""


class Session(NamedTuple):
    """The times of one run, in seconds."""

    processor: float
    recorded: float
    inside: float
    rules: int


def _processor(*command: str) -> float:
    """Return the processor time of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own commands
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _session(*how: str) -> Session:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.jsonl")
        command = (sys.executable, "-m", "hooklaw", "run", "--backend", "torch-eager", f"--results={results}", *how)
        processor = _processor(*command)
        lines = [json.loads(line) for line in results.read_text().splitlines()]
    inside = [line["duration"] for line in lines if line["kind"] == "result"]
    return Session(processor, lines[-1]["seconds"], sum(inside), len(inside))


class Round(NamedTuple):
    """What is taken one after the other; processor times in seconds."""

    torch: float
    dynamo: float
    whole: Session
    single: Session
    alone: Session
    contained: Session
    contained_alone: Session


def _round() -> Round:
    return Round(
        torch=_processor(sys.executable, "-c", "import torch"),
        dynamo=_processor(sys.executable, "-c", f"import {LATE}"),
        whole=_session("--in-process"),
        single=_session("--in-process", "-k", SINGLE),
        alone=_session("--in-process", "-k", ALONE),
        contained=_session(),
        contained_alone=_session("-k", ALONE),
    )


def _harness(taken: Round) -> float:
    """Return what the harness costs each rule."""
    whole, single = taken.whole, taken.single
    return (whole.recorded - single.recorded - whole.inside + single.inside) / (whole.rules - single.rules)


def main() -> None:
    """Print the figures."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1)
    taken = [_round() for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 7)]

    def middle(figure: Callable[[Round], float]) -> float:
        return statistics.median(map(figure, taken))

    rules, alone = taken[0].whole.rules, taken[0].alone.rules
    ratios = {
        f"import {LATE}": middle(lambda each: each.dynamo / each.torch),
        f"all {rules} rules, in process": middle(lambda each: each.whole.processor / each.torch),
        f"all {rules} rules, contained": middle(lambda each: each.contained.processor / each.torch),
        f"{alone} rules of one process, in process": middle(lambda each: each.alone.processor / each.torch),
        f"{alone} rules of one process, contained": middle(lambda each: each.contained_alone.processor / each.torch),
    }
    sys.stdout.write(
        f"{'import torch':42}{middle(lambda each: each.torch):.2f} s of the processor\n"
        + "".join(f"{what:42}{ratio:.2f} x import torch\n" for what, ratio in ratios.items())
        + f"{'inside the rules':42}{middle(lambda each: each.whole.inside):.2f} s\n"
        f"{'harness, each rule':42}{1000 * middle(_harness):.2f} ms\n"
    )


if __name__ == "__main__":
    main()
