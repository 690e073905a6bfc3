"""Rule, Level, Source, the `rule` decorator, and the registry of all rules."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.conditions import find_condition
from hooklaw.errors import RuleDefinitionError, UnknownConditionError
from hooklaw.law._links import docstring_url, page_url

RULES_PACKAGE = "hooklaw.rules"
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9_]+(-[a-z0-9_]+)*)+")

Function = TypeVar("Function", bound=Callable[..., Any])


class Level(StrEnum):
    """How binding a rule is, in the words of RFC 2119."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


class Basis(StrEnum):
    """Whether the documentation states the rule, or torch was only observed to keep it."""

    DOCUMENTED = "documented"
    OBSERVED = "observed"


class Source(msgspec.Struct, frozen=True):
    """Where a rule is documented: a docstring, a section of a page, a tutorial; or what was observed instead."""

    kind: str
    name: str
    section: str = ""
    sentences: tuple[int, ...] = ()
    """The ordinals of the sentences that state the rule, from 1, as `hooklaw.sources` counts them."""

    def sentence(self, *ordinals: int) -> "Source":
        """Return the source with the sentences that state the rule, e.g. ``docstring(...).sentence(2, 3)``."""
        return Source(self.kind, self.name, self.section, tuple(sorted({*ordinals})))

    @property
    def url(self) -> str:
        """The address of the page, or an empty string if there is none."""
        match self.kind:
            case "docstring":
                return docstring_url(self.name)
            case "notes":
                return page_url(f"notes/{self.name}", self.section)
            case "page":
                return page_url(self.name, self.section)
            case "tutorial":
                return f"https://docs.pytorch.org/tutorials/{self.name}.html"
            case _:
                return ""

    def __str__(self) -> str:
        where = f", section {self.section}" if self.section else ""
        return f"{self.kind} {self.name}{where}{self._counted()}"

    def _counted(self) -> str:
        if not self.sentences:
            return ""
        *before, last = map(str, self.sentences)
        return f", sentences {', '.join(before)} and {last}" if before else f", sentence {last}"


def docstring(name: str) -> Source:
    """Name the docstring of a public object, e.g. ``torch.Tensor.register_hook``."""
    return Source("docstring", name)


def notes(page: str, section: str = "") -> Source:
    """Name a notes page and the anchor of a section in it, e.g. ``autograd``, ``backward-hooks-execution``."""
    return Source("notes", page, section)


def page(name: str, section: str = "") -> Source:
    """Name a reference page, e.g. ``autograd``, and the anchor of a section in it."""
    return Source("page", name, section)


def tutorial(name: str) -> Source:
    """Name a tutorial by its path, e.g. ``intermediate/autograd_saved_tensors_hooks_tutorial``."""
    return Source("tutorial", name)


def observed(what: str) -> Source:
    """Describe in a few words what was observed where the documentation is silent."""
    return Source("observed", what)


class Rule(msgspec.Struct, frozen=True):
    """A rule. Its id is permanent: never renamed, never reused."""

    id: str
    chapter: str
    statement: str
    level: Level
    basis: Basis
    sources: list[Source]
    needs: list[str]
    mutants: list[str]
    except_under: dict[str, str] = {}
    """The conditions that change the law, with the reason."""
    processes: int = 0
    """The number of ranks in which the rule runs, each of them a process; 0 for a rule that needs no other process."""


class Registered(msgspec.Struct, frozen=True):
    """A rule with the function that tests it."""

    rule: Rule
    function: Callable[..., Any]
    node: str
    """The pytest node id below the rules package, e.g. ``test_order.py::test_leaf``."""


_registry: dict[str, Registered] = {}


def rule(  # noqa: PLR0913 - all but the id are keywords
    rule_id: str,
    *,
    level: Level,
    sources: Sequence[Source],
    needs: Iterable[StrEnum] = (),
    basis: Basis = Basis.DOCUMENTED,
    mutants: Sequence[str] = (),
    except_under: Mapping[str, str] | None = None,
    processes: int = 0,
) -> Callable[[Function], Function]:
    """Register a test function as a rule; the first paragraph of its docstring is the rule's statement.

    `except_under` names the conditions that change the law, each with the reason: the rule is not run under them.
    With `processes` the function runs in so many ranks, side by side, and the rule needs Capability.PROCESSES.
    Raises RuleDefinitionError if the id is malformed or taken, the docstring or the source is missing, a MUST names
    no mutant or is only observed, or a condition does not exist or lacks a reason.
    """

    def register(function: Function) -> Function:
        module = function.__module__.rpartition(".")[2]
        made = Rule(
            id=rule_id,
            chapter=module.removeprefix("test_").replace("_", "-"),
            statement=_statement(rule_id, function),
            level=level,
            basis=basis,
            sources=list(sources),
            needs=[*([str(Capability.PROCESSES)] if processes else []), *map(str, needs)],
            mutants=list(mutants),
            except_under=dict(except_under or {}),
            processes=processes,
        )
        _check(made)
        _registry[rule_id] = Registered(made, function, f"{module}.py::{function.__name__}")
        function.__dict__["hooklaw_rule"] = made
        return function

    return register


def _statement(rule_id: str, function: Callable[..., Any]) -> str:
    text = (function.__doc__ or "").strip()
    if not text:
        raise RuleDefinitionError(f"rule {rule_id!r} has no docstring: state the law in its first sentence")
    return " ".join(text.split("\n\n")[0].split())


def _check(made: Rule) -> None:
    if not _ID.fullmatch(made.id):
        raise RuleDefinitionError(f"rule id {made.id!r} is malformed: write family.what.aspect in lower case")
    if made.id in _registry:
        first = _registry[made.id].node
        raise RuleDefinitionError(f"rule id {made.id!r} is registered twice, first by {first}: ids are unique")
    if not made.sources:
        raise RuleDefinitionError(f"rule {made.id!r} names no source: say where it is documented or observed")
    if made.level is Level.MUST and made.basis is Basis.OBSERVED:
        raise RuleDefinitionError(f"rule {made.id!r} is only observed, so it cannot be a MUST: make it SHOULD or MAY")
    if made.level is Level.MUST and not made.mutants:
        raise RuleDefinitionError(f"MUST rule {made.id!r} names no mutant: name a wrong backend that it catches")
    _check_conditions(made)


def _check_conditions(made: Rule) -> None:
    for name, reason in made.except_under.items():
        try:
            find_condition(name)
        except UnknownConditionError as error:
            raise RuleDefinitionError(f"rule {made.id!r} is excepted under a condition: {error}") from error
        if not reason.strip():
            raise RuleDefinitionError(f"rule {made.id!r} is excepted under {name} without a reason: say why")


def registered() -> Iterator[Registered]:
    """Yield the rules registered so far; import nothing."""
    yield from _registry.values()


def registered_rule(rule_id: str) -> Registered | None:
    """Return the rule of this id if it is registered so far."""
    return _registry.get(rule_id)


def digest(rules: Iterable[Rule]) -> str:
    """Return a hash of the rules, by which two runs can be seen to have judged the same law."""
    lines = sorted(f"{rule.id}\t{rule.level}\t{rule.statement}\t{','.join(sorted(rule.needs))}" for rule in rules)
    return sha256("\n".join(lines).encode()).hexdigest()[:16]
