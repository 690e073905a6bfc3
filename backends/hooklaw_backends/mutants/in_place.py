"""Mutants that lose hooks when a tensor is changed in place."""

from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant, as_prehook, fresh


class HookFollowsItsTensor(Mutant):
    """After an in-place operation a tensor hook moves to the tensor's new grad_fn."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        followed: list[Any] = [tensor, hook, super().register_hook(tensor, hook)]
        self.kept.append(followed)
        return Handle(lambda: followed[-1].remove())  # noqa: PLW0108 - it changes later

    def mul_(self, tensor: Any, factor: Any) -> Any:
        changed = super().mul_(tensor, factor)
        for followed in self.kept:
            other, hook, handle = followed
            if self._base_or_itself(other) is self._base_or_itself(tensor):
                handle.remove()
                self.grad_fn(other)  # makes torch rebuild a view's history
                followed[-1] = super().register_hook(other, hook)
        return changed

    def _base_or_itself(self, tensor: Any) -> Any:
        base = self.base_of(tensor)
        return tensor if base is None else base


class HookBoundToTheFirstGradFn(Mutant):
    """A tensor hook goes to the grad_fn from before any in-place operation."""

    _first = fresh(dict[int, Any])

    def mul_(self, tensor: Any, factor: Any) -> Any:
        node = self.grad_fn(tensor)
        if node is not None:
            self._first.setdefault(id(tensor), node)
        return super().mul_(tensor, factor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        node = self._first.get(id(tensor))
        if node is None:
            return super().register_hook(tensor, hook)
        return super().node_register_prehook(node, as_prehook(hook, 0))


class HandleLostAfterInPlace(Mutant):
    """After an in-place operation earlier handles no longer remove their hooks."""

    changed = False

    def mul_(self, tensor: Any, factor: Any) -> Any:
        self.changed = True
        return super().mul_(tensor, factor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        return Handle(lambda: None if self.changed else handle.remove())


class VersionCheckedUnderHooks(Mutant):
    """Changing a saved tensor in place is an error even if saved-tensor hooks packed it."""

    hooked = False

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Any:
        self.hooked = True
        return super().saved_tensors_hooks(pack, unpack)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.hooked:
            raise RuntimeError("a saved tensor would be modified by an inplace operation")
        return super().mul_(tensor, factor)
