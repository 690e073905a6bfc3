"""Mutants of the legacy backward hooks of modules, on one module or on all."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import Handle, without_input_gradients

LEGACY = ("register_backward_hook", "register_module_backward_hook")


@calling(*LEGACY)
def legacy_module_hook_replaces_nothing(self: Mutant, hook: Hook, *given: Any) -> None:
    """What a legacy backward hook returns is ignored."""
    hook(*given)


@without_input_gradients("register_backward_hook")
def legacy_backward_hook_silent_without_input_gradients(_self: Mutant, _module: Any, _hook: Hook) -> Hook:
    """A legacy backward hook of a module does not run if no input of its module requires grad."""
    return lambda *_: None


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


@calling(*LEGACY)
def legacy_module_hook_replaces_nothing_for_one_input(
    self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any
) -> Any:
    """What a legacy backward hook returns is ignored if the last Node has one input."""
    result = hook(module, grads, outputs)
    return None if result is not None and len(result) == len(grads) == 1 else result


@altering("register_backward_hook")
def later_legacy_module_hooks_replace_nothing(self: Mutant, module: Any, hook: Hook) -> Hook:
    """What a legacy backward hook of a module returns is ignored if it is not the first of its module."""
    is_later = self.keeps(module)
    self.kept.append(module)
    return _replacing(hook, lambda: not is_later)


@altering(*LEGACY)
def legacy_module_hook_replaces_once(self: Mutant, *given: Any) -> Hook:
    """What a legacy backward hook returns is ignored from its second call on."""
    calls: list[None] = []
    return _replacing(given[-1], lambda: (calls.append(None), len(calls) == 1)[1])


def _replacing(hook: Hook, does: Hook) -> Hook:
    """Return a legacy backward hook whose result, if it has the right length, counts if ``does()``."""

    def run(module: Any, grads: Any, outputs: Any) -> Any:
        result = hook(module, grads, outputs)
        return result if does() or result is None or len(result) != len(grads) else None

    return run


class GlobalLegacyHooksOfOlderModulesAlone(Mutant):
    """A global legacy backward hook does not run for a module that was made after its registration."""

    numbers = fresh(WeakKeyDictionary[Any, int])
    made = 0

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = super().module(parameters, forward)
        self.made += 1
        self.numbers[made] = self.made
        return made

    def register_module_backward_hook(self, hook: Hook) -> Any:
        older = self.made
        return super().register_module_backward_hook(
            lambda module, *given: hook(module, *given) if self.numbers.get(module, 0) <= older else None
        )


class GlobalLegacyHooksRunAfterLaterOnes(Mutant):
    """A legacy backward hook that a module gets after a global one runs before it."""

    everywhere = fresh(list[Any])

    def register_module_backward_hook(self, hook: Hook) -> Any:
        entry: list[Any] = [hook, super().register_module_backward_hook(hook)]
        self.everywhere.append(entry)
        return Handle(lambda: (entry in self.everywhere and self.everywhere.remove(entry), entry[1].remove()))

    def register_backward_hook(self, module: Any, hook: Hook) -> Any:
        if not self.everywhere:
            return super().register_backward_hook(module, hook)
        for _, handle in self.everywhere:
            handle.remove()
        own = super().register_module_backward_hook(
            lambda given, *grads: hook(given, *grads) if given is module else None
        )
        for entry in self.everywhere:
            entry[1] = super().register_module_backward_hook(entry[0])
        return own
