"""Mutants whose hooks run once only if they were registered in some place, though several passes follow."""

from functools import partial, wraps
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, altering
from hooklaw_backends.mutants.shared import once
from hooklaw_backends.mutants.situations import Knowing, Registration


def running_once(step: Hook) -> type[Mutant]:
    """Make a mutant whose hooks in backward run once only if ``(registration)`` says so."""

    @wraps(step)
    def register(self: Knowing, *given: Any) -> Hook:
        hook = given[-1]
        return once(hook) if step(self.registration("hook")) else partial(hook)  # which may be a builtin

    return altering(*verbs.IN_BACKWARD, *verbs.MODULE_BACKWARD, "register_multi_grad_hook", base=Knowing)(register)


@running_once
def hooks_made_in_no_grad_run_once(its: Registration) -> bool:
    """A hook that was registered in no_grad and runs in backward runs once only."""
    return its.in_no_grad


@running_once
def hooks_made_in_a_pass_run_once(its: Registration) -> bool:
    """A hook that was registered during a pass and runs in backward runs once only."""
    return its.in_pass


@running_once
def hooks_made_in_a_checkpoint_run_once(its: Registration) -> bool:
    """A hook that was registered in a checkpointed function and runs in backward runs once only."""
    return its.in_checkpoint


@running_once
def hooks_made_in_a_module_run_once(its: Registration) -> bool:
    """A hook that was registered in the forward of a module and runs in backward runs once only."""
    return its.in_module


@running_once
def hooks_made_with_pairs_run_once(its: Registration) -> bool:
    """A hook that was registered under saved-tensor hooks and runs in backward runs once only."""
    return its.with_pairs
