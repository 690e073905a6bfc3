"""A pytest fixture for a packer's own tests: ``pytest -p hooklaw.packing.fixture``, or name it in ``pytest_plugins``.

It imports torch when it is used, not when tests are collected.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hooklaw.law.hypothesis_settings import EXAMPLES
from hooklaw.packing import _law, report
from hooklaw.packing._check import Checker
from hooklaw.packing._packer import examine, lines_of, resolve
from hooklaw.packing.judge import PackerOptions, choose, judge
from hooklaw.packing.report import CheckedProperty, PackerVerdict
from hooklaw.workers.watchdog import PROPERTY_LIMIT

HANDED_OVER = "# packer is what the test handed to check_packer"


@pytest.fixture
def check_packer() -> Callable[..., list[CheckedProperty]]:
    """Return a function that fails the test if a packer is unsafe, and otherwise returns the result of each property.

    A text such as "my_package:MyOffload" is judged in a separate process, where a crash or a hang is a result too.
    A class or function is judged in this process, and need not be importable.
    """
    return check


def check(  # noqa: PLR0913 - each is a choice of its own, all but the packer by keyword
    packer: str | Callable[[], Any],
    *,
    device: str = "cpu",
    imports: Sequence[str] = (),
    only: Sequence[str] = (),
    known: Sequence[str] = (),
    strict: bool = False,
    examples: int = EXAMPLES,
    limit: float = PROPERTY_LIMIT,
) -> list[CheckedProperty]:
    """Judge a packer: `only` takes parts of ids, `known` ids that may fail; with `strict` a broken SHOULD fails too."""
    spec = packer if isinstance(packer, str) else ""
    options = PackerOptions(
        packer=spec, device=device, imports=[*imports], parts=[*only], examples=examples, limit=limit
    )
    found = report.of_run(judge(options).run) if isinstance(packer, str) else _in_this_process(packer, options)
    wrong = [
        row for row in found.broken if row.property_id not in known and (strict or row.property_id in found.unsafe)
    ]
    if wrong:
        pytest.fail(report.text(PackerVerdict(found.head, wrong, found.seconds)), pytrace=False)
    return found.rows


def _in_this_process(packer: Callable[[], Any], options: PackerOptions) -> PackerVerdict:
    name = f"{getattr(packer, '__module__', '')}:{getattr(packer, '__qualname__', type(packer).__name__)}"
    known = _law.properties()
    examined = examine(packer, _lines(packer, name), options.device, name)
    checker = Checker(examined, options.examples, given_packer=packer)
    began = time.perf_counter()
    rules = choose([prop.rule for prop in known.values()], options.parts)
    rows = [report.checked(rule, checker.check(known[rule.id]), options.device) for rule in rules]
    return PackerVerdict(f"{name} on {options.device}", rows, time.perf_counter() - began)


def _lines(packer: Callable[[], Any], name: str) -> str:
    """Return the lines that import the packer, if it can be imported."""
    try:
        return lines_of(name) if resolve(name) is packer else HANDED_OVER
    except Exception:  # noqa: BLE001 - its name leads to something else, which may raise anything
        return HANDED_OVER
