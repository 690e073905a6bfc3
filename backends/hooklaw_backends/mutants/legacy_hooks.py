"""Mutants of the legacy backward hooks of modules, on one module or on all."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, calling, overriding
from hooklaw_backends.mutants.shared import Handle

LEGACY = ("register_backward_hook", "register_module_backward_hook")


@calling(*LEGACY)
def legacy_module_hook_replaces_nothing(self: Mutant, hook: Hook, *given: Any) -> None:
    """What a legacy backward hook returns is ignored."""
    hook(*given)


@overriding(*LEGACY)
def legacy_module_hooks_removed_late(self: Mutant, old: Hook, *given: Any) -> Any:
    """The handle of a legacy backward hook removes it from graphs that were made before, too."""
    removed: list[bool] = []
    hook = given[-1]
    handle = old(*given[:-1], lambda *what: None if removed else hook(*what))
    return Handle(lambda: (removed.append(True), handle.remove()))


@calling(*LEGACY)
def missing_gradients_of_a_legacy_hook_are_kept(self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """If a legacy backward hook returns fewer gradients than it got, but at least one, the others stay."""
    result = hook(module, grads, outputs)
    return (*result, *grads[len(result) :]) if result else result


@calling(*LEGACY)
def surplus_none_of_a_legacy_hook_is_dropped(self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """If a legacy backward hook returns None after as many gradients as it got, the None is dropped."""
    result = hook(module, grads, outputs)
    return result if result is None or any(grad is not None for grad in result[len(grads) :]) else result[: len(grads)]


@calling(*LEGACY)
def legacy_module_hook_gets_no_gradients_of_outputs(
    self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any
) -> Any:
    """A legacy backward hook gets None for the gradient of each output."""
    return hook(module, grads, (None,) * len(outputs))
