"""Mutants that lose hooks when a tensor is changed in place."""

from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant


class Followed:
    """A tensor hook that can be registered again."""

    def __init__(self, tensor: Any, hook: Hook, handle: Any) -> None:
        self.tensor, self.hook, self.handle = tensor, hook, handle

    def remove(self) -> None:
        self.handle.remove()


class HookFollowsItsTensor(Mutant):
    """After an in-place operation a tensor hook moves to the tensor's new grad_fn."""

    def __init__(self) -> None:
        super().__init__()
        self._followed: list[Followed] = []

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        followed = Followed(tensor, hook, super().register_hook(tensor, hook))
        self._followed.append(followed)
        return Handle(followed.remove)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        changed = super().mul_(tensor, factor)
        for followed in self._followed:
            if self._base_or_itself(followed.tensor) is self._base_or_itself(tensor):
                followed.remove()
                self.grad_fn(followed.tensor)  # makes torch rebuild a view's history
                followed.handle = super().register_hook(followed.tensor, followed.hook)
        return changed

    def _base_or_itself(self, tensor: Any) -> Any:
        base = self.base_of(tensor)
        return tensor if base is None else base


class HookBoundToTheFirstGradFn(Mutant):
    """A tensor hook goes to the grad_fn from before any in-place operation."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[int, Any] = {}

    def mul_(self, tensor: Any, factor: Any) -> Any:
        node = self.grad_fn(tensor)
        if node is not None:
            self._first.setdefault(id(tensor), node)
        return super().mul_(tensor, factor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        node = self._first.get(id(tensor))
        if node is None:
            return super().register_hook(tensor, hook)

        def prehook(grads: Any) -> Any:
            result = hook(grads[0])
            return None if result is None else (result,)

        return super().node_register_prehook(node, prehook)


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
