"""Mutants that serialize a tensor's hooks, or drop them without a warning."""

import warnings
from functools import wraps
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.shared import once, without_result


@overriding("save")
def hooks_dropped_in_silence(self: Mutant, old: Hook, tensor: Any) -> bytes:
    """Serializing a tensor with hooks does not warn."""
    bare = self.detach(tensor)
    return old(self.requires_grad_(bare) if self.requires_grad(tensor) else bare)


@overriding("save")
def hooks_of_results_dropped_in_silence(self: Mutant, old: Hook, tensor: Any) -> bytes:
    """Serializing a tensor with hooks does not warn if an operation made it."""
    return old(tensor if self.is_leaf(tensor) else self.detach(tensor))


@overriding("save")
def hooks_of_a_tensor_that_was_saved_before_dropped_in_silence(self: Mutant, old: Hook, tensor: Any) -> bytes:
    """Serializing warns only once of the hooks of a tensor."""
    if self.hooks_of(tensor) and self.keeps(tensor):
        bare = self.detach(tensor)
        return old(self.requires_grad_(bare) if self.requires_grad(tensor) else bare)
    self.kept += [tensor] if self.hooks_of(tensor) else []
    return old(tensor)


@overriding("unserializable_hook")
def unserializable_mark_ignored(self: Mutant, old: Hook, hook: Hook) -> Hook:
    """Serializing warns about hooks marked with unserializable_hook too."""
    return hook


class _KnowsMarks(Mutant):
    """A mutant that keeps the hooks that are marked with unserializable_hook."""

    def unserializable_hook(self, hook: Hook) -> Hook:
        self.kept.append(super().unserializable_hook(hook))
        return self.kept[-1]


class HooksSerialized(Mutant):
    """A loaded tensor has the hooks of the saved tensor."""

    def save(self, tensor: Any) -> bytes:
        self.kept = list(self.hooks_of(tensor).values())
        return super().save(tensor)

    def load(self, data: bytes) -> Any:
        tensor = super().load(data)
        for hook in self.kept:
            self.register_hook(tensor, hook)
        return tensor


class UnmarkedHooksSerialized(_KnowsMarks):
    """A loaded tensor has those hooks of the saved tensor that are not marked with unserializable_hook."""

    unmarked = fresh(list[Hook])

    def save(self, tensor: Any) -> bytes:
        self.unmarked[:] = [hook for hook in self.hooks_of(tensor).values() if not self.keeps(hook)]
        return super().save(tensor)

    def load(self, data: bytes) -> Any:
        tensor = super().load(data)
        for hook in self.unmarked:
            self.register_hook(tensor, hook)
        return tensor


class AnyMarkSilencesTheWarning(_KnowsMarks):
    """Serializing does not warn if any hook of the tensor is marked with unserializable_hook."""

    def save(self, tensor: Any) -> bytes:
        if any(self.keeps(hook) for hook in (self.hooks_of(tensor) or {}).values()):
            return super().save(self.requires_grad_(self.detach(tensor)))
        return super().save(tensor)


class MarkOfTheLastHookSilencesTheWarning(_KnowsMarks):
    """Serializing does not warn if the last hook of the tensor is marked with unserializable_hook."""

    def save(self, tensor: Any) -> bytes:
        if any(self.keeps(hook) for hook in list((self.hooks_of(tensor) or {}).values())[-1:]):
            return super().save(self.requires_grad_(self.detach(tensor)))
        return super().save(tensor)


class _NeedsNoMark(_KnowsMarks):
    """A mutant that overlooks the hook in one place of a tensor's hooks when it saves the tensor."""

    place = 0

    def save(self, tensor: Any) -> bytes:
        hooks = [*(self.hooks_of(tensor) or {}).values()]
        del hooks[self.place : self.place + 1 or None]
        if all(self.keeps(hook) for hook in hooks):
            return super().save(self.requires_grad_(self.detach(tensor)))
        return super().save(tensor)


class FirstHookNeedsNoMark(_NeedsNoMark):
    """Serializing does not warn of the first hook of a tensor, whether it is marked with unserializable_hook or not."""


class LastHookNeedsNoMark(_NeedsNoMark):
    """Serializing does not warn of the last hook of a tensor, whether it is marked with unserializable_hook or not."""

    place = -1


@overriding("unserializable_hook")
def marked_hooks_replace_nothing(self: Mutant, old: Hook, hook: Hook) -> Hook:
    """What a hook that is marked with unserializable_hook returns is ignored."""
    return old(without_result(hook))


@overriding("unserializable_hook")
def marked_hooks_run_once(self: Mutant, old: Hook, hook: Hook) -> Hook:
    """A hook that is marked with unserializable_hook runs in the first backward only."""
    return old(once(hook))


@overriding("unserializable_hook")
def marked_hooks_run_twice_at_most(self: Mutant, old: Hook, hook: Hook) -> Hook:
    """A hook that is marked with unserializable_hook does not run a third time."""
    calls: list[None] = []

    def run(grad: Any) -> Any:
        calls.append(None)
        return hook(grad) if len(calls) < 3 else None  # noqa: PLR2004 - the third

    return old(run)


@overriding("unserializable_hook")
def later_marked_hooks_never_run(self: Mutant, old: Hook, hook: Hook) -> Hook:
    """Of the hooks that are marked with unserializable_hook only the first two run."""
    self.kept.append(hook)
    return old(hook if len(self.kept) < 3 else lambda _: None)  # noqa: PLR2004 - the third


def warning_of_marks(step: Hook) -> type[Mutant]:
    """Make a mutant that warns of marked hooks, too, if ``(self, tensor)`` says so."""

    @wraps(step)
    def save(self: Mutant, old: Hook, tensor: Any) -> bytes:
        if self.hooks_of(tensor) and step(self, tensor):
            warnings.warn("hooks are not serialized", stacklevel=2)
        return old(tensor)

    return overriding("save")(save)


@warning_of_marks
def marks_ignored_after_a_backward(self: Mutant, tensor: Any) -> bool:
    """Serializing a leaf warns about hooks that are marked with unserializable_hook if the leaf has a gradient."""
    return self.is_leaf(tensor) and self.grad_of(tensor) is not None


@warning_of_marks
def marks_of_three_hooks_ignored(self: Mutant, tensor: Any) -> bool:
    """Serializing a tensor with three hooks warns, even if all are marked with unserializable_hook."""
    return len(self.hooks_of(tensor)) > 2  # noqa: PLR2004 - three


@warning_of_marks
def marks_ignored_on_single_values(self: Mutant, tensor: Any) -> bool:
    """Serializing a tensor of one value that has hooks warns, even if all are marked with unserializable_hook."""
    return set(self.shape(tensor)) <= {1}


class SavingRemovesMarkedHooksOfResults(_KnowsMarks):
    """Serializing what an operation made removes its hooks that are marked with unserializable_hook."""

    def save(self, tensor: Any) -> bytes:
        data = super().save(tensor)
        hooks = {} if self.is_leaf(tensor) else self.hooks_of(tensor) or {}
        for handle in [handle for handle, hook in hooks.items() if self.keeps(hook)]:
            del hooks[handle]
        return data
