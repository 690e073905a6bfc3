"""Records made up for tests of what reads records: no backend runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hooklaw.outcome import Expectation, Outcome, Stale
from hooklaw.records import FORMAT, Footer, Header, Result, Run, Writer
from hooklaw.spec import Basis, Level, Rule, Source, digest
from hooklaw.trace import Check, Event

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
    return Result(run="", rule=rule_id, outcome=Outcome.PASS, **(lanes | parts))


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
    name = f"run-of-{backend}"
    given: dict[str, Any] = {
        "started": "2026-11-21T10:22:05+00:00",
        "versions": {"torch": "2.13.0", "python": "3.13.1"},
        "command": f"hooklaw run --backend {backend}",
    }
    header = Header(
        hooklaw=FORMAT,
        run=name,
        suite="0.1.0",
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
            for result in one.results.values():
                writer.write(msgspec.structs.replace(result, run=one.header.run))
            if one.footer:
                writer.write(one.footer)
    return path


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
