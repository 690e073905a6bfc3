"""Mutants that serialize a tensor's hooks, or drop them without a warning."""

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


@overriding("unserializable_hook")
def marked_hooks_replace_nothing(self: Mutant, old: Hook, hook: Hook) -> Hook:
    """What a hook that is marked with unserializable_hook returns is ignored."""
    return old(without_result(hook))


@overriding("unserializable_hook")
def marked_hooks_run_once(self: Mutant, old: Hook, hook: Hook) -> Hook:
    """A hook that is marked with unserializable_hook runs in the first backward only."""
    return old(once(hook))
