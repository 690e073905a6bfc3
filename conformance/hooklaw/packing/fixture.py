"""Packers in their authors' own tests: a fixture for all properties in a test, and a test for each property.

`check_packer` comes with ``pytest -p hooklaw.packing.fixture``, or name the module in ``pytest_plugins``;
`each_property` needs no plugin. torch is imported when a test runs, not when tests are collected.
"""

import atexit
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from hooklaw.law.hypothesis_settings import EXAMPLES
from hooklaw.law.rule import Level
from hooklaw.packing import _law, report
from hooklaw.packing._check import Checker
from hooklaw.packing._packer import examine, lines_of, resolve
from hooklaw.packing._service import PackerOptions
from hooklaw.packing.judge import Judge, choose, judge_all, laws, require
from hooklaw.packing.report import CheckedProperty, PackerVerdict
from hooklaw.results.verdict import Outcome
from hooklaw.workers.watchdog import PROPERTY_LIMIT

HANDED_OVER = "# packer is what the test handed over"
Packer = str | Callable[[], Any]


class BrokenShouldWarning(UserWarning):
    """A packer is safe, but breaks a property that it should keep."""


@pytest.fixture
def check_packer() -> Callable[..., list[CheckedProperty]]:
    """Return `check`, which fails the test if a packer is unsafe."""
    return check


def check(  # noqa: PLR0913 - each is a choice of its own, all but the packer by keyword
    packer: Packer,
    *,
    device: str = "cpu",
    imports: Sequence[str] = (),
    only: Sequence[str] = (),
    known: Sequence[str] = (),
    strict: bool = False,
    examples: int = EXAMPLES,
    limit: float = PROPERTY_LIMIT,
) -> list[CheckedProperty]:
    """Judge a packer on its properties, and return the result of each.

    `packer`: a text such as "my_package:MyOffload" is judged in a separate process, where a crash or a hang is a result
    too; all properties take about half a minute. A class or function is judged in this process, which a crash ends, and
    need not be importable.
    `device`: where the tensors are, such as "cuda".
    `imports`: modules to import first in the separate process, such as a package that registers the device.
    `only`: parts of ids; other properties are not tried.
    `known`: ids of properties that may fail, and must: one that holds fails the test, so that the list stays true.
    `strict`: whether a broken SHOULD fails the test too; without, it is a BrokenShouldWarning.
    `examples`: how many cases Hypothesis tries of a property.
    `limit`: seconds that a property may take in a separate process.

    Raises PackerError if the packer cannot be judged, and UnknownRuleError for an id that no property has.
    """
    spec = packer if isinstance(packer, str) else ""
    options = PackerOptions(
        packer=spec, device=device, imports=[*imports], parts=[*only], examples=examples, limit=limit
    )
    found = _by_name(options, known) if isinstance(packer, str) else _in_this_process(packer, options, known)
    _refuse_fixed(row for row in found.rows if row.property_id in known and row.outcome == Outcome.PASS)
    broken = [row for row in found.broken if row.property_id not in known]
    wrong = [row for row in broken if strict or row.property_id in found.unsafe]
    if wrong:
        pytest.fail(report.text(PackerVerdict(found.head, wrong, found.seconds)), pytrace=False)
    for row in broken:
        _warn(row)
    return found.rows


def each_property(  # noqa: PLR0913 - as `check`
    packer: Packer,
    *,
    device: str = "cpu",
    imports: Sequence[str] = (),
    only: Sequence[str] = (),
    known: Sequence[str] = (),
    strict: bool = False,
    examples: int = EXAMPLES,
    limit: float = PROPERTY_LIMIT,
) -> pytest.MarkDecorator:
    """Return a decorator that makes a test function one test for each property; its argument is `holds`, to be called.

    The arguments are those of `check`; all tests of a text share one worker. A known property is an expected failure,
    which fails when it holds; one that does not apply is skipped.

        @each_property("my_package:MyOffload", known=["packer.layout.sparse"])
        def test_my_offload(holds):
            holds()
    """
    spec = packer if isinstance(packer, str) else ""
    options = PackerOptions(
        packer=spec, device=device, imports=[*imports], parts=[*only], examples=examples, limit=limit
    )
    every = laws()
    require(known, every)
    check_property = (_Shared(options) if isinstance(packer, str) else _Here(packer, options)).check
    return pytest.mark.parametrize(
        "holds",
        [
            pytest.param(
                _Holds(check_property, rule.id, strict=strict or rule.level is Level.MUST or rule.id in known),
                id=rule.id,
                marks=[pytest.mark.xfail(reason="known to fail", strict=True)] if rule.id in known else [],
            )
            for rule in choose(every, options.parts)
        ],
    )


class _Holds:
    """Fails the test that calls it if the property does not hold."""

    def __init__(self, check_property: Callable[[str], CheckedProperty], property_id: str, *, strict: bool) -> None:
        self._check, self._property_id, self._strict = check_property, property_id, strict

    def __call__(self) -> CheckedProperty:
        row = self._check(self._property_id)
        if row.outcome == Outcome.UNSUPPORTED:
            pytest.skip(row.detail)
        if row.broken and self._strict:
            pytest.fail("\n".join(report.failure(row)), pytrace=False)
        if row.broken:
            _warn(row)
        return row


class _Shared:
    """Properties of a packer by its name, checked in one worker that starts with the first test."""

    def __init__(self, options: PackerOptions) -> None:
        self._options = options
        self._judge: Judge | None = None

    def check(self, property_id: str) -> CheckedProperty:
        if self._judge is None:
            self._judge = Judge(self._options)
            atexit.register(self._judge.close)
        found = next(rule for rule in self._judge.loaded.rules if rule.id == property_id)
        return report.checked(found, self._judge.check(found), self._options.device)


class _Here:
    """Properties of a packer that a test hands over, checked in this process."""

    def __init__(self, packer: Callable[[], Any], options: PackerOptions) -> None:
        self._packer, self._options = packer, options
        self._checker: Checker | None = None

    @property
    def name(self) -> str:
        """Return what the packer is called in messages."""
        packer = self._packer
        return f"{getattr(packer, '__module__', '')}:{getattr(packer, '__qualname__', type(packer).__name__)}"

    def check(self, property_id: str) -> CheckedProperty:
        if self._checker is None:
            examined = examine(self._packer, self._lines(), self._options.device, self.name)
            self._checker = Checker(examined, self._options.examples, given_packer=self._packer)
        found = _law.properties()[property_id]
        return report.checked(found.rule, self._checker.check(found), self._options.device)

    def _lines(self) -> str:
        """Return the lines that import the packer, if it can be imported."""
        try:
            return lines_of(self.name) if resolve(self.name) is self._packer else HANDED_OVER
        except Exception:  # noqa: BLE001 - its name leads to something else, which may raise anything
            return HANDED_OVER


def _by_name(options: PackerOptions, known: Sequence[str]) -> PackerVerdict:
    with Judge(options) as worker:
        require(known, worker.loaded.rules)
        return report.of_run(judge_all(worker, options).run)


def _in_this_process(packer: Callable[[], Any], options: PackerOptions, known: Sequence[str]) -> PackerVerdict:
    here, every = _Here(packer, options), [prop.rule for prop in _law.properties().values()]
    require(known, every)
    began = time.perf_counter()
    rows = [here.check(rule.id) for rule in choose(every, options.parts)]
    return PackerVerdict(f"{here.name} on {options.device}", rows, time.perf_counter() - began)


def _refuse_fixed(rows: Iterable[CheckedProperty]) -> None:
    fixed = [row.property_id for row in rows]
    if fixed:
        pytest.fail(f"known to fail, and holds now: {', '.join(fixed)}; remove it from `known`", pytrace=False)


def _warn(row: CheckedProperty) -> None:
    said = f"{row.property_id} (SHOULD) does not hold: {row.detail}"
    warnings.warn(said, BrokenShouldWarning, stacklevel=3)  # the line of the test
