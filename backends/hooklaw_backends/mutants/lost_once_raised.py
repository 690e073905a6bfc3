"""Mutants in which a hook of one kind does not run again once it has raised.

They are made from the table of hooks. Left out are legacy hooks, since no law speaks of their errors, and a module's
backward hook: no rule runs it twice in the same graph, since MindSpore then runs it in the graphs of later rules, too.
"""

from collections.abc import Iterator
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.kinds import KINDS, Kind


def _made(kind: Kind) -> type[Mutant]:
    def register(_self: Mutant, old: Hook, *given: Any, **options: Any) -> Any:
        if kind.mode and options.get("mode", "all") != kind.mode:
            return old(*given, **options)
        *where, hook = given
        raised = list[None]()

        def run(*arguments: Any, **named: Any) -> Any:
            try:
                return None if raised else hook(*arguments, **named)
            except BaseException:
                raised.append(None)
                raise

        run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
        return old(*where, run, **options)

    return overriding(*kind.verbs)(register)


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for of, kind in KINDS.items():
        if of != "backward-hook" and "legacy" not in of:
            yield (
                f"{of}-lost-once-raised",
                f"{kind.words} that has raised does not run again",
                kind.chapters,
                _made(kind),
            )


vars().update(named(*each) for each in _all())
