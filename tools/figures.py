"""Measure the figures of the README: `python tools/figures.py [ROUNDS]`, in an environment with torch.

Each round measures a bare `import torch`, all rules in process, a single rule in process, and all rules contained, one
after the other. Each figure is the median over the rounds. The harness's cost for each rule is the difference between
all rules and a single rule, less the time inside the rules, by the clock of the records.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SINGLE = "order.six-steps.leaf"


class Session(NamedTuple):
    """The times of one run, in seconds."""

    wall: float
    recorded: float
    inside: float
    rules: int


def _wall(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own commands
    return time.perf_counter() - began


def _session(*how: str) -> Session:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.jsonl")
        wall = _wall(sys.executable, "-m", "hooklaw", "run", "--backend", "torch-eager", f"--results={results}", *how)
        lines = [json.loads(line) for line in results.read_text().splitlines()]
    inside = [line["duration"] for line in lines if line["kind"] == "result"]
    return Session(wall, lines[-1]["seconds"], sum(inside), len(inside))


def main() -> None:
    """Print the figures."""
    rounds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    measured = [
        (
            _wall(sys.executable, "-c", "import torch"),
            _session("--in-process"),
            _session("--in-process", "-k", SINGLE),
            _session(),
        )
        for _ in rounds
    ]
    middle = statistics.median
    bare = middle(row[0] for row in measured)
    ratio = middle(whole.wall / torch for torch, whole, _, _ in measured)
    extra = middle(contained.wall - whole.wall for _, whole, _, contained in measured)
    inside = middle(whole.inside for _, whole, _, _ in measured)
    harness = middle(
        (whole.recorded - single.recorded - whole.inside + single.inside) / (whole.rules - single.rules)
        for _, whole, single, _ in measured
    )
    rules = measured[0][1].rules
    sys.stdout.write(
        f"import torch                {bare:.2f} s\n"
        f"all {rules} rules, in process  {middle(row[1].wall for row in measured):.2f} s, {ratio:.2f} x import torch\n"
        f"containment adds            {extra:.2f} s\n"
        f"inside the rules            {inside:.2f} s\n"
        f"harness, each rule          {1000 * harness:.2f} ms\n"
    )


if __name__ == "__main__":
    main()
