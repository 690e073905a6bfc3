"""Mutants that do not take a named tuple that a hook of a module returns for a tuple."""

from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, calling


def _is_named(result: Any) -> bool:
    return isinstance(result, tuple) and hasattr(result, "_fields")  # pyright: ignore[reportUnknownArgumentType]


@calling(*verbs.FORWARD)
def named_tuple_of_a_forward_hook_becomes_a_tuple(_: Mutant, hook: Hook, *given: Any) -> Any:
    """A named tuple that a forward hook returns becomes a plain tuple."""
    result = hook(*given)
    return tuple(result) if _is_named(result) else result


@calling(*verbs.FORWARD_PRE)
def named_tuple_of_a_pre_hook_is_one_argument(_: Mutant, hook: Hook, *given: Any) -> Any:
    """A named tuple that a forward pre-hook returns is passed to forward as a single argument."""
    result = hook(*given)
    return (result,) if _is_named(result) else result


@calling(*verbs.FULL_BACKWARD)
def named_tuple_of_a_full_backward_hook_ignored(_: Mutant, hook: Hook, *given: Any) -> Any:
    """A named tuple that a full backward hook returns is ignored."""
    result = hook(*given)
    return None if _is_named(result) else result


@calling(*verbs.FULL_BACKWARD_PRE)
def named_tuple_of_a_backward_pre_hook_ignored(_: Mutant, hook: Hook, *given: Any) -> Any:
    """A named tuple that a backward pre-hook returns is ignored."""
    result = hook(*given)
    return None if _is_named(result) else result
