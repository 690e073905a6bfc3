"""Mutants whose hooks around a step or a state cannot remove themselves; in torch itself they may fail a call."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.shared import Handle


class Own(NamedTuple):
    """A hook: what it is registered on by which verb, its calls, and those under way."""

    place: Any
    calls: list[None]
    running: list[None]


class _KnowsHooks(Mutant):
    """A mutant that knows the hooks around steps and states that are not removed, in order."""

    hooks = fresh(list[Own])


def staying(*names: str) -> Callable[[Hook], type[Mutant]]:
    """Make a mutant whose hooks of these verbs do not remove themselves if ``(own, others)`` says so.

    It is given the hook, and all hooks of its place.
    """

    def make(step: Hook) -> type[Mutant]:
        @wraps(step)
        def register(self: _KnowsHooks, old: Hook, *given: Any, **options: Any) -> Handle:
            own = Own((old, given[:-1]), [], [])

            def run(*values: Any, **named: Any) -> Any:
                own.calls.append(None)
                own.running.append(None)
                try:
                    return given[-1](*values, **named)
                finally:
                    own.running.pop()

            def remove() -> None:
                if own.running and step(own, [each for each in self.hooks if each.place == own.place]):
                    return
                handle.remove()
                self.hooks[:] = [each for each in self.hooks if each is not own]

            handle = old(*given[:-1], run, **options)
            self.hooks.append(own)
            return Handle(remove)

        return overriding(*names, base=_KnowsHooks)(register)

    return make


@staying(*verbs.STEP_PRE, *verbs.STEP_POST, *verbs.STATE)
def lone_hooks_around_a_step_or_state_cannot_remove_themselves(own: Own, others: list[Own]) -> bool:
    """A handle's remove does nothing while its own hook around a step or a state runs, if there is no other."""
    return len(others) == 1


@staying(*verbs.STEP_PRE, *verbs.STEP_POST, *verbs.STATE)
def last_hooks_around_a_step_or_state_cannot_remove_themselves(own: Own, others: list[Own]) -> bool:
    """A handle's remove does nothing while its own hook around a step or a state runs, if it is the last of several."""
    return len(others) > 1 and others[-1] is own


@staying(*verbs.STEP_PRE, *verbs.STEP_POST, *verbs.STATE)
def hooks_around_a_step_or_state_cannot_remove_themselves_later(own: Own, others: list[Own]) -> bool:
    """A handle's remove does nothing while its own hook around a step or a state runs, unless for the first time."""
    return len(own.calls) > 1


@overriding("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook")
def global_step_hook_that_removes_itself_stays_for_other_optimizers(self: Mutant, old: Hook, hook: Hook) -> Any:
    """A global step hook that removes itself while it runs no longer runs for the optimizer of that step alone."""
    running, left = list[Any](), list[Any]()

    def run(optimizer: Any, *given: Any) -> Any:
        if any(optimizer is each for each in left):
            return None
        running.append(optimizer)
        try:
            return hook(optimizer, *given)
        finally:
            running.pop()

    handle = old(run)
    return Handle(lambda: left.append(running[-1]) if running else handle.remove())
