"""Property and its registry: a rule for packers, and a program that raises if a packer breaks it."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hypothesis.strategies import SearchStrategy

from hooklaw.errors import RuleDefinitionError
from hooklaw.law.rule import Basis, Level, Rule, Source, docstring, notes

FAMILIES = "hooklaw.packing.properties"
HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
EQUAL = HOOKS.sentence(11)
"""Unpacking what was packed should give an equal tensor: where a property names no other source, this states it."""
NOTES = notes("autograd", "hooks-for-saved-tensors")

Function = TypeVar("Function", bound=Callable[..., Any])


class Property(NamedTuple):
    """A rule with its program and the values that Hypothesis tries."""

    rule: Rule
    program: Callable[..., Any]
    draws: Mapping[str, SearchStrategy[str]]
    """A strategy of Python expressions for each parameter that Hypothesis searches."""
    frees: bool = False
    """Whether it is about memory that is freed, so that addresses of saved tensors may come again."""


_registry: dict[str, Property] = {}


def law(  # noqa: PLR0913 - all but the id are keywords
    property_id: str,
    *,
    level: Level | None = None,
    sources: Sequence[Source] = (EQUAL,),
    needs: Iterable[str] = (),
    wrong: Sequence[str] = (),
    draws: Mapping[str, SearchStrategy[str]] | None = None,
    frees: bool = False,
) -> Callable[[Function], Function]:
    """Register a program as a property; the first paragraph of its docstring is the property's statement.

    `wrong` names the wrong packers that it catches, like the mutants of a rule. The default of `level` is SHOULD for
    what is only observed, and MUST for the rest. A property that `frees` is about memory that comes free; in any other
    no address of a saved tensor comes again, so that a packer which keys by address breaks the same ones in every run.
    Raises RuleDefinitionError if the id is taken, the docstring or `wrong` is empty, or a MUST is only observed.
    """

    def register(function: Function) -> Function:
        statement = " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())
        if property_id in _registry or not statement or not wrong:
            raise RuleDefinitionError(
                f"property {property_id!r} is registered twice, has no docstring, or names no wrong packer"
            )
        seen = all(source.kind == "observed" for source in sources)
        rule = Rule(
            id=property_id,
            chapter=f"packer-{function.__module__.rpartition('.')[2].replace('_', '-')}",
            statement=statement,
            level=level or (Level.SHOULD if seen else Level.MUST),
            basis=Basis.OBSERVED if seen else Basis.DOCUMENTED,
            sources=list(sources),
            needs=list(needs),
            mutants=list(wrong),
        )
        if level is Level.MUST and seen:
            raise RuleDefinitionError(f"property {property_id!r} is only observed, so it cannot be a MUST")
        _registry[property_id] = Property(rule, function, draws or {}, frees)
        return function

    return register


def properties() -> dict[str, Property]:
    """Import every family and return all properties by id, those that free memory last; needs torch."""
    package = importlib.import_module(FAMILIES)
    for module in sorted(found.name for found in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"{FAMILIES}.{module}")
    return dict(sorted(_registry.items(), key=lambda item: item[1].frees))
