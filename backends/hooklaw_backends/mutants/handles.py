"""Mutants whose handles do not work."""

import weakref
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant


class RemoveDoesNothing(Mutant):
    """A handle's remove does not remove the hook."""

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
    """A handle's remove removes all hooks of the tensor."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        super().register_hook(tensor, hook)
        return Handle(self.hooks_of(tensor).clear)


class SecondRemoveRaises(Mutant):
    """Calling a handle's remove a second time raises KeyError."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        hooks = self.hooks_of(tensor)
        return Handle(lambda: hooks.pop(handle.id))


class HandleIdsReused(Mutant):
    """A new hook gets the id of a removed hook."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        hooks = self.hooks_of(tensor)
        lowest = next(handle_id for handle_id in range(len(hooks)) if handle_id not in hooks)
        hooks[lowest] = hooks.pop(handle.id)
        return Handle(lambda: hooks.pop(lowest, None))


class HandleKeepsItsTensor(Mutant):
    """A handle keeps its tensor alive."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        handle.tensor = tensor
        return handle


class LateRemoveRaises(Mutant):
    """Calling a handle's remove after its tensor was freed raises ReferenceError."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle, alive = super().register_hook(tensor, hook), weakref.ref(tensor)

        def remove() -> None:
            if alive() is None:
                raise ReferenceError("the tensor was freed")
            handle.remove()

        return Handle(remove)
