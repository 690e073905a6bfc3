"""Records made up for tests of what reads records: no backend runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hooklaw.law.rule import Basis, Level, Rule, Source, digest
from hooklaw.law.trace import Check, Event
from hooklaw.results.records import FORMAT, Cell, Footer, Header, Result, Run, RunKind, Writer
from hooklaw.results.verdict import Expectation, Outcome, Stale
from hooklaw_reports import html
from hooklaw_reports.page import build

NOTES = Source("notes", "autograd", "backward-hooks-execution")
DOCSTRING = Source("docstring", "torch.Tensor.register_hook")


def rule(rule_id: str = "order.first", chapter: str = "order", level: Level = Level.MUST, **parts: Any) -> Rule:
    """Make a rule."""
    given = {
        "statement": f"The hooks of {rule_id} run in the order in which they were registered.",
        "basis": Basis.DOCUMENTED,
        "sources": [NOTES, DOCSTRING],
        "needs": ["tensor-hooks", "node-hooks"],
        "mutants": ["hooks-run-in-reverse-order"],
    }
    return Rule(id=rule_id, chapter=chapter, level=level, **(given | parts))


def events(*labels: str | tuple[str, Any]) -> list[Event]:
    """Make a lane."""
    return [Event(one, any_value=True) if isinstance(one, str) else Event(*one) for one in labels]


def passed(rule_id: str = "order.first", **parts: Any) -> Result:
    """Make a result that holds."""
    lanes = {"expected": events("first", "second"), "observed": events(("first", [1.0, 2.0]), ("second", [1.0, 2.0]))}
    return Result(run="", rule=rule_id, **({"outcome": Outcome.PASS} | lanes | parts))


def failed(rule_id: str = "order.first", outcome: Outcome = Outcome.FAIL, **parts: Any) -> Result:
    """Make a result that does not hold: the second event came first."""
    given = {
        "detail": "event 1 should be 'first', was 'second' with [1.0, 2.0]",
        "where": "hooklaw/rules/test_order.py:12",
        "expected": events("first", "second"),
        "observed": events(("second", [1.0, 2.0]), ("first", [1.0, 2.0])),
        "difference": 0,
    }
    return Result(run="", rule=rule_id, outcome=outcome, **(given | parts))


def known(rule_id: str = "order.first", *outcomes: str) -> Expectation:
    """Make an expectation entry."""
    return Expectation(
        rule=rule_id,
        outcome=list(outcomes or ("fail",)),
        reason="the engine runs them the other way round",
        issue="https://github.com/pytorch/pytorch/issues/1",
        when="torch>=2.4",
        file="expectations/torch-eager.toml",
        line=7,
    )


def run(
    backend: str,
    rules: Sequence[Rule],
    results: Sequence[Result],
    *,
    stale: Sequence[Stale] = (),
    **parts: Any,
) -> Run:
    """Make a complete run."""
    name = "-".join(["run-of", backend, *([parts["device"]] if "device" in parts else [])])
    given: dict[str, Any] = {
        "started": "2026-11-21T10:22:05+00:00",
        "versions": {"torch": "2.13.0", "python": "3.13.1"},
        "command": f"hooklaw run --backend {backend}",
        "suite": "0.1.0",
    }
    header = Header(
        hooklaw=FORMAT,
        run=name,
        digest=digest(rules),
        collected=len(results),
        backend=backend,
        rules=list(rules),
        **(given | parts),
    )
    footer = Footer(run=name, results=len(results), seconds=0.5, stale=list(stale))
    return Run(header, {one.rule: one for one in results}, footer, f"{backend}.jsonl")


def write(path: Path, *runs: Run) -> Path:
    """Write the runs into one record file."""
    with Writer(path) as writer:
        for one in runs:
            writer.write(one.header)
            for line in (*one.results.values(), *one.cells):
                writer.write(msgspec.structs.replace(line, run=one.header.run))
            if one.footer:
                writer.write(one.footer)
    return path


def report(runs: Sequence[Run], title: str = "") -> str:
    """Make the HTML report of these runs."""
    return html.render(build(runs, title))


def packer(name: str, rules: Sequence[Rule], results: Sequence[Result], **parts: Any) -> Run:
    """Make a run that judged a packer on the CPU."""
    return run(name, rules, results, **({"run_kind": RunKind.PACKER, "device": "cpu"} | parts))


def three() -> list[Run]:
    """Make three runs that show every outcome, verdict and kind of entry."""
    first = rule("order.first")
    second = rule("order.second", level=Level.SHOULD)
    third = rule("unpack.third", "unpack-and-pack", needs=["saved-tensor-hooks"], mutants=["unpack-runs-twice"])
    may = rule("unpack.may", "unpack-and-pack", Level.MAY, basis=Basis.OBSERVED, sources=[Source("observed", "2.13")])
    rules = [first, second, third, may]
    good = [passed(one.id) for one in rules]
    checks = [
        Check("x.grad", [2.0, 4.0], [2.0, 4.5], held=False),
        Check("raises", "no-gradient", "RuntimeError", held=True),
    ]
    bad = [
        failed("order.first", expectation=known("order.first")),
        failed("order.second", observed=events("first"), difference=1),
        failed(
            "unpack.third",
            Outcome.CRASH,
            detail="Fatal Python error: Segmentation fault",
            expected=[],
            observed=[],
            difference=None,
        ),
        failed("unpack.may", checks=checks, difference=None),
    ]
    worse = [
        passed("order.first", expectation=known("order.first")),
        failed("order.second", Outcome.TIMEOUT, expectation=known("order.second", "timeout", "crash")),
        Result(run="", rule="unpack.third", outcome=Outcome.UNSUPPORTED, detail="lacks saved-tensor-hooks"),
        failed("unpack.may", Outcome.ERROR, detail="AttributeError: no such verb"),
    ]
    stale = Stale("order.gone", "matches no rule", "expectations/paddle.toml", 3)
    return [
        run("torch-eager", rules, good, notes={"data_parallel": "one process, two replicas on the CPU"}),
        run("torch-compile:aot_eager", rules, bad),
        run("paddle", rules, worse, stale=[stale], versions={"paddle": "3.3.1"}),
        run("torch-eager:cuda", rules, [], not_run="no NVIDIA driver here"),
    ]


GB = 1_000_000_000


def cell(strategy: str = "none", peak: float = 48.2, ratio: float = 1.0, **parts: Any) -> Cell:
    """Make a cell, its peak in GB, its quartiles three percent away from the ratio."""
    given: dict[str, Any] = {
        "workload": "conv",
        "device": "NVIDIA H200",
        "text": f"what {strategy} does",
        "outcome": Outcome.PASS,
        "rounds": 9,
        "step": 0.2 * ratio,
        "forward": 0.07 * ratio,
        "backward": 0.13 * ratio,
        "ratio_q1": ratio * 0.97,
        "ratio_q3": ratio * 1.03,
        "after_forward": int(peak * 0.9 * GB),
        "static": GB // 2,
        "packs": 778,
        "packed": 68 * GB,
    }
    return Cell(run="", strategy=strategy, peak=int(peak * GB), ratio=ratio, **(given | parts))


def measured(*cells: Cell, device: str = "cuda", collected: int | None = None, ended: bool = True, **parts: Any) -> Run:
    """Make a benchmark run."""
    one = run("", [], [], run_kind=RunKind.BENCHMARK, device=device, **parts)
    count = len(cells) if collected is None else collected
    header = msgspec.structs.replace(one.header, collected=count, command=f"hooklaw bench --device {device}")
    footer = msgspec.structs.replace(one.footer, results=len(cells)) if one.footer and ended else None
    return Run(header, {}, footer, f"bench-{device}.jsonl", list(cells))


def strategies(scale: float = 1.0, **parts: Any) -> list[Cell]:
    """Make the cells of a workload: a frontier, a lossy one, points that others beat, and every mark."""
    moved = {
        "out": int(44 * scale * GB),
        "back": int(44 * scale * GB),
        "rate": 50e9,
        "ceiling": 55e9,
        "efficiency": 0.91,
    }
    lossy = {"lossless": False, "error": 2.5e-3}
    why = {"lawful": False, "detail": "it turns the check for in-place changes off"}
    unlawful = why | {"packer": "torch.autograd.graph:save_on_cpu"}
    failed = {"outcome": Outcome.FAIL, "detail": "the gradients differ from the plain step's by 1.2", "error": 1.2}
    rows: list[tuple[str, float, float, dict[str, Any]]] = [
        ("none", 48.2, 1.0, {"lawful": True}),
        ("hook-only", 48.2, 1.02, {"lawful": True}),
        ("save-on-cpu", 9.1, 9.6, moved | unlawful),
        ("save-on-cpu-pinned", 9.1, 6.1, moved),
        ("disk-raw", 6.9, 4.4, moved | {"lawful": True}),
        ("bf16", 25.3, 1.06, lossy),
        ("int8", 14.4, 1.31, lossy | {"error": 4.8e-2}),
        ("async", 6.3, 2.9, moved | {"lawful": True, "host": 45 * GB}),
        ("checkpoint", 13.9, 1.39, {"lawful": True}),
        ("checkpoint+async", 4.61, 1.52, moved | {"lawful": True}),
        ("checkpoint+bf16", 7.9, 1.42, lossy),
        ("fraction:0.3+async", 34.6, 1.08, moved | {"lawful": True}),
    ]
    cells = [cell(name, peak * scale, ratio, **(more | parts)) for name, peak, ratio, more in rows]
    cells.append(cell("disk-save", 0, 0, **(failed | parts)))
    late = {"outcome": Outcome.TIMEOUT, "detail": "no end after 120 s, in round 1", "rounds": 0}
    return [*cells, cell("my_package:Offload", 0, 0, **(late | parts))]
