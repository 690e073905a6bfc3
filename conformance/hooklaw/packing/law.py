"""Property and the registry: a rule for packers, whose function's body is a program that raises where it is broken."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hypothesis.strategies import SearchStrategy

from hooklaw.errors import RuleDefinitionError
from hooklaw.law.rule import Basis, Level, Rule, Source, docstring, notes

FAMILIES = "hooklaw.packing.properties"
HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
NOTES = notes("autograd", "hooks-for-saved-tensors")

Function = TypeVar("Function", bound=Callable[..., Any])


class Property(NamedTuple):
    """A rule together with its program, and what Hypothesis may write in the program's head."""

    rule: Rule
    program: Callable[..., Any]
    draws: Mapping[str, SearchStrategy[str]]
    """For each parameter of the program that is searched: Python expressions to stand there."""


_registry: dict[str, Property] = {}


def law(  # noqa: PLR0913 - a property has that many parts, all but the id by keyword
    property_id: str,
    *,
    level: Level = Level.MUST,
    sources: Sequence[Source] = (HOOKS,),
    needs: Iterable[str] = (),
    wrong: Sequence[str] = (),
    draws: Mapping[str, SearchStrategy[str]] | None = None,
) -> Callable[[Function], Function]:
    """Register a program as a property; its docstring's first paragraph is the law.

    `wrong` names bug classes that it catches, as the names of mutants do in a rule.
    Raises RuleDefinitionError where the id is taken, or the law or what it catches is not said.
    """

    def register(function: Function) -> Function:
        statement = " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())
        if property_id in _registry or not statement or not wrong:
            raise RuleDefinitionError(
                f"property {property_id!r} is registered twice, states no law, or names no bug that it catches"
            )
        seen = all(source.kind == "observed" for source in sources)
        rule = Rule(
            id=property_id,
            chapter=f"packer-{function.__module__.rpartition('.')[2].replace('_', '-')}",
            statement=statement,
            level=level,
            basis=Basis.OBSERVED if seen else Basis.DOCUMENTED,
            sources=list(sources),
            needs=list(needs),
            mutants=list(wrong),
        )
        if level is Level.MUST and seen:
            raise RuleDefinitionError(f"property {property_id!r}: what is not documented is never a MUST")
        _registry[property_id] = Property(rule, function, draws or {})
        return function

    return register


def properties() -> dict[str, Property]:
    """Import every family and return all properties by id; torch must be there."""
    package = importlib.import_module(FAMILIES)
    for module in sorted(found.name for found in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"{FAMILIES}.{module}")
    return dict(_registry)
