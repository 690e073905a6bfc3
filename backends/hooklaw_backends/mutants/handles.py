"""Mutants whose handles do not do what a handle is for."""

import weakref
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant


class RemoveDoesNothing(Mutant):
    """A handle's remove leaves the hook where it is."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        super().register_hook(tensor, hook)
        return Handle()

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        super().register_post_accumulate_grad_hook(tensor, hook)
        return Handle()

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        super().node_register_prehook(node, hook)
        return Handle()

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        super().node_register_hook(node, hook)
        return Handle()


class RemoveClearsEveryHook(Mutant):
    """A handle's remove takes all hooks of the tensor away."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        super().register_hook(tensor, hook)
        return Handle(self.hooks_of(tensor).clear)


class SecondRemoveRaises(Mutant):
    """Calling remove again raises a KeyError."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        hooks = self.hooks_of(tensor)
        return Handle(lambda: hooks.pop(handle.id))


class HandleIdsReused(Mutant):
    """The id of a removed hook is given to the next one."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        hooks = self.hooks_of(tensor)
        lowest = next(one for one in range(len(hooks)) if one not in hooks)
        hooks[lowest] = hooks.pop(handle.id)
        return Handle(lambda: hooks.pop(lowest, None))


class HandleKeepsItsTensor(Mutant):
    """A tensor lives as long as the handle of a hook on it."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        handle.tensor = tensor
        return handle


class LateRemoveRaises(Mutant):
    """Calling remove after the tensor is gone raises a ReferenceError."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle, alive = super().register_hook(tensor, hook), weakref.ref(tensor)

        def remove() -> None:
            if alive() is None:
                raise ReferenceError("the tensor is gone")
            handle.remove()

        return Handle(remove)
