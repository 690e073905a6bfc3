"""Mutants that lose their way when a tensor is changed in place."""

from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant


class Followed:
    """A hook that can be put on its tensor anew."""

    def __init__(self, tensor: Any, hook: Hook, handle: Any) -> None:
        self.tensor, self.hook, self.handle = tensor, hook, handle

    def remove(self) -> None:
        self.handle.remove()


class HookFollowsItsTensor(Mutant):
    """A hook moves on to the new grad_fn when its tensor is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self._followed: list[Followed] = []

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        followed = Followed(tensor, hook, super().register_hook(tensor, hook))
        self._followed.append(followed)
        return Handle(followed.remove)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        changed = super().mul_(tensor, factor)
        for one in self._followed:
            if self._root_of(one.tensor) is self._root_of(tensor):
                one.remove()
                self.grad_fn(one.tensor)  # lets torch rebuild a view's history
                one.handle = super().register_hook(one.tensor, one.hook)
        return changed

    def _root_of(self, tensor: Any) -> Any:
        base = self.base_of(tensor)
        return tensor if base is None else base


class HookBoundToTheFirstGradFn(Mutant):
    """A hook is put on the grad_fn that its tensor had before any in-place operation."""

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
    """After an in-place operation the handles from before it remove nothing."""

    changed = False

    def mul_(self, tensor: Any, factor: Any) -> Any:
        self.changed = True
        return super().mul_(tensor, factor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        return Handle(lambda: None if self.changed else handle.remove())


class VersionCheckedUnderHooks(Mutant):
    """A change in place is an error wherever the tensor was saved, also under hooks."""

    hooked = False

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Any:
        self.hooked = True
        return super().saved_tensors_hooks(pack, unpack)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.hooked:
            raise RuntimeError("a saved tensor would be modified by an inplace operation")
        return super().mul_(tensor, factor)
