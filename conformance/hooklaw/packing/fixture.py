"""A pytest fixture for a packer's own tests: ``pytest -p hooklaw.packing.fixture``, or name it in ``pytest_plugins``.

It imports torch when it is used, not when tests are collected.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hooklaw.packing import law, report
from hooklaw.packing.check import Trial
from hooklaw.packing.judge import EXAMPLES, LIMIT, Wanted, choose, judge, row
from hooklaw.packing.report import Findings, Row
from hooklaw.packing.subject import lines_of, resolve, subject

HANDED_OVER = "# packer is what the test handed to check_packer"


@pytest.fixture
def check_packer() -> Callable[..., list[Row]]:
    """Return a function that fails the test where a packer is unsafe, and else returns what came of each property.

    A text such as "my_package:MyOffload" is judged in a process of its own, where a crash or a hang is a finding too.
    A class or function is judged right here, and need not be importable.
    """
    return check


def check(  # noqa: PLR0913 - each is a choice of its own, all but the packer by keyword
    packer: str | Callable[[], Any],
    *,
    device: str = "cpu",
    only: Sequence[str] = (),
    known: Sequence[str] = (),
    strict: bool = False,
    examples: int = EXAMPLES,
    limit: float = LIMIT,
) -> list[Row]:
    """Judge a packer: `only` takes parts of ids, `known` ids that may break, `strict` fails for a SHOULD too."""
    how = Wanted(
        packer=packer if isinstance(packer, str) else "", device=device, parts=[*only], examples=examples, limit=limit
    )
    found = judge(how).findings if isinstance(packer, str) else _here(packer, how)
    wrong = [
        one for one in found.broken if one.property_id not in known and (strict or one.property_id in found.unsafe)
    ]
    if wrong:
        pytest.fail(report.text(Findings(found.head, [*wrong], found.seconds)), pytrace=False)
    return found.rows


def _here(packer: Callable[[], Any], how: Wanted) -> Findings:
    name = f"{getattr(packer, '__module__', '')}:{getattr(packer, '__qualname__', type(packer).__name__)}"
    known = law.properties()
    found = subject(packer, _lines(packer, name), how.device, name)
    trial = Trial(found, how.examples, packer)
    began = time.perf_counter()
    rows: list[Row] = []
    for rule in choose([one.rule for one in known.values()], how.parts):
        tried = trial.run(known[rule.id])
        rows.append(row(rule, tried, how.device))
    return Findings(f"{name} on {how.device}", rows, time.perf_counter() - began)


def _lines(packer: Callable[[], Any], name: str) -> str:
    """Return the lines that import the packer, where it can be imported."""
    try:
        return lines_of(name) if resolve(name) is packer else HANDED_OVER
    except Exception:  # noqa: BLE001 - whatever its name leads to, it is not this one
        return HANDED_OVER
