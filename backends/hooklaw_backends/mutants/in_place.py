"""Mutants that lose their way when a tensor is changed in place."""

from typing import Any

from hooklaw_backends.mutants.base import Handle, Mutant
from hooklaw_backends.torch_eager import Hook, TorchEager


class Followed:
    """A hook that can be put on its tensor anew."""

    def __init__(self, tensor: Any, hook: Hook, handle: Any) -> None:
        self.tensor, self.hook, self.handle = tensor, hook, handle

    def remove(self) -> None:
        self.handle.remove()

    @property
    def root(self) -> Any:
        return root_of(self.tensor)


def root_of(tensor: Any) -> Any:
    """Return the tensor whose data this one is a view of, or itself."""
    return tensor if tensor._base is None else tensor._base  # noqa: SLF001 - there is no other name for it


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
            if one.root is root_of(tensor):
                one.remove()
                self.grad_fn(one.tensor)  # lets torch rebuild a view's history
                one.handle = TorchEager.register_hook(self, one.tensor, one.hook)
        return changed


class HookBoundToTheFirstGradFn(Mutant):
    """A hook is put on the grad_fn that its tensor had before any in-place operation."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[int, Any] = {}

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if tensor.grad_fn is not None:
            self._first.setdefault(id(tensor), tensor.grad_fn)
        return super().mul_(tensor, factor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        node = self._first.get(id(tensor))
        if node is None:
            return super().register_hook(tensor, hook)

        def prehook(grads: Any) -> Any:
            result = hook(grads[0])
            return None if result is None else (result,)

        return node.register_prehook(prehook)


class HandleLostAfterInPlace(Mutant):
    """After an in-place operation the handles from before it remove nothing."""

    changed = False

    def mul_(self, tensor: Any, factor: Any) -> Any:
        self.changed = True
        return super().mul_(tensor, factor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        return Handle(lambda: None if self.changed else handle.remove())


class VersionNotChecked(Mutant):
    """A change in place of a tensor that was saved goes unnoticed."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        tensor.data.mul_(factor)
        return tensor


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
