"""Measure ResNet-152 on one GPU, part by part: `python tools/bench_cuda.py PART ... [--results FILE]`.

It needs torch and what hooklaw itself needs. Each command takes at most about ten minutes; start the same command again
until no cells are left. The whole record file is rewritten after every cell, so a killed process loses only the cell
under measurement. A strategy whose worker dies or hangs gives a marked cell. `--tiny` runs everything on the CPU.
"""

import argparse
import os
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "conformance"), str(ROOT / "backends")]

from hooklaw.errors import HooklawError  # noqa: E402 - needs the line above
from hooklaw.offload import running  # noqa: E402 - as above
from hooklaw.offload.benchmark import BenchmarkRun  # noqa: E402 - as above
from hooklaw.offload.plan import Plan  # noqa: E402 - as above
from hooklaw.offload.wording import text  # noqa: E402 - as above
from hooklaw.results.records import Cell  # noqa: E402 - as above

STAGES = "checkpoint:1,2,2,4,5,9,9,9,11"
"""Cuts of ResNet-152 that need the least memory if the tensors at the boundaries stay on the device."""
FINE = "checkpoint:1,1,1,1,2,2,2,2,6,6,6,6,6,6,4"
"""Cuts that need the least if those tensors leave: no segment has two blocks of the first, largest stage."""
AWAY = "async:window=256MiB"
MEMORY = (
    *("none", "hook-only", "checkpoint", STAGES),
    *(f"{FINE}+{AWAY}", f"{FINE}+fraction:0.8+{AWAY}", f"{FINE}+fraction:0.6+{AWAY}"),
    *("checkpoint+async", "checkpoint+bf16+async"),
)
LINK = ("none", "fraction:0.1+async", "fraction:0.2+async", "fraction:0.3+async", "fraction:0.5+async", "async")
CODEC = ("none", "bf16", "int8", "bf16+async", "int8+async", "fraction:0.5+bf16+async")
ANCHOR = ("none", "checked-copy", "save-on-cpu-pinned", "save-on-cpu")
PARTS = {"memory": MEMORY, "link": LINK, "codec": CODEC, "anchor": ANCHOR}
PRECISIONS = ("fp32", "tf32", "amp")
TINY = ("none", "save-on-cpu", "disk-raw", "checkpoint:2", "checkpoint:2+async:min=1", "bf16")
ROUNDS = {"anchor": 2}
"""Slow parts get fewer rounds than the default of five."""
SECONDS = 500.0
"""Start no new cell after this time."""


def main() -> int:
    """Measure and print the state; return 1 if cells are marked, 2 if cells are left."""
    args = _arguments()
    tiny: bool = args.tiny
    parts: list[str] = args.part or ["memory"]
    plan = Plan(
        workloads=("tiny",) if tiny else ("resnet152",),
        strategies=TINY if tiny else tuple(dict.fromkeys(each for part in parts for each in PARTS[part])),
        device="cpu" if tiny else "cuda",
        precisions=("fp32",) if tiny else tuple(args.precision or PRECISIONS),
        batch=0 if tiny else args.batch,
        rounds=args.rounds or (5 if tiny else min(ROUNDS.get(part, 5) for part in parts)),
        limit=args.limit,
    )
    results: Path = args.results or Path(f"bench-{'tiny' if tiny else '-'.join(parts)}.jsonl")
    try:
        return _measure(plan, results, args.seconds)
    except HooklawError as error:
        sys.stderr.write(f"bench_cuda: {error}\n")
        return 3


def _measure(plan: Plan, results: Path, seconds: float) -> int:
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stdout:  # pytest captures the other one

        def show(cell: Cell, _visit: int) -> None:
            stdout.write(msgspec.json.encode(cell).decode() + "\n")
            stdout.flush()

        with BenchmarkRun(plan, results, on_cell=show, seconds=seconds) as benchmark:
            benchmark.resume()
            stdout.write(f"{len(benchmark.left())} of {len(benchmark.cells)} cells are left to measure\n")
            stdout.flush()
            run = running.run(benchmark)
            if left := len(benchmark.left()):
                stdout.write(f"{left} cells are left: start the same command again\n")
                return 2
        stdout.write("\n" + text(run))
        return int(any(cell.detail for cell in run.cells))


def _part(name: str) -> str:
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"no part is called {name!r}: there are {', '.join(PARTS)}")
    return name


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", type=_part, metavar="PART", help=f"{', '.join(PARTS)}; default: memory")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="repeatable; default: all three")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--limit", type=float, default=240.0, metavar="SECONDS", help="limit of one cell")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="start no new cell after this time")
    parser.add_argument("--results", type=Path, metavar="FILE")
    parser.add_argument("--tiny", action="store_true", help="measure a small network on the CPU, as a trial")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
