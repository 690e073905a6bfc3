"""Measure the figures of the README: `python tools/figures.py [ROUNDS]`, in an environment with torch.

Every round takes, one after the other, a bare `import torch`, all rules in process, one rule in process, and all rules
contained. Figures are processor time, since other work on the machine changes it less; that of child processes is
included, on Linux also that of ranks which died with the worker that forked them. They are medians over the rounds of
what was measured within a round. What the harness costs a rule is what all rules take beyond one rule, less the time
inside the rules themselves, by the records' own clock.
"""

import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SINGLE = "order.six-steps.leaf"
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


def main() -> None:
    """Print the figures."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1)
    rounds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    measured = [
        (
            _processor(sys.executable, "-c", "import torch"),
            _session("--in-process"),
            _session("--in-process", "-k", SINGLE),
            _session(),
        )
        for _ in rounds
    ]
    middle = statistics.median
    bare = middle(torch for torch, _, _, _ in measured)
    direct = middle(whole.processor / torch for torch, whole, _, _ in measured)
    apart = middle(contained.processor / torch for torch, _, _, contained in measured)
    inside = middle(whole.inside for _, whole, _, _ in measured)
    harness = middle(
        (whole.recorded - single.recorded - whole.inside + single.inside) / (whole.rules - single.rules)
        for _, whole, single, _ in measured
    )
    rules = measured[0][1].rules
    sys.stdout.write(
        f"import torch                {bare:.2f} s of the processor\n"
        f"all {rules} rules, in process  {direct:.2f} x import torch\n"
        f"all {rules} rules, contained   {apart:.2f} x import torch\n"
        f"inside the rules            {inside:.2f} s\n"
        f"harness, each rule          {1000 * harness:.2f} ms\n"
    )


if __name__ == "__main__":
    main()
