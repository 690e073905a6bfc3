"""Hooks in order of registration, the handles that remove them, and the checks of what they return."""

import weakref
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Self, cast

from hooklaw.model import errors

if TYPE_CHECKING:
    from hooklaw.model.tensor import Tensor

Hook = Callable[..., Any]
Gradients = tuple["Tensor | None", ...]
_ids = count()


class Hooks(dict[int, Hook]):
    """Hooks of one kind on one object, by the ids of their handles; ids are never reused."""

    def add(self, hook: Hook, *, prepend: bool = False) -> "RemovableHandle":
        """Register a hook after those already there, or before them."""
        handle = RemovableHandle(self)
        before = list(self) if prepend else []
        self[handle.id] = hook
        for earlier in before:
            self[earlier] = self.pop(earlier)
        return handle

    def now(self) -> list[Hook]:
        """Return the hooks to run; a hook registered meanwhile waits for the next call."""
        return list(self.values())


class RemovableHandle:
    """Removes one hook; keeps neither the hook nor its tensor alive."""

    def __init__(self, hooks: Hooks) -> None:
        self.id = next(_ids)
        self._hooks = weakref.ref(hooks)

    def remove(self) -> None:
        """Remove the hook, if it is still there."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def replaced(grad: "Tensor | None", result: Any) -> "Tensor | None":
    """Return the gradient after a hook: the hook's result, or the old gradient if it returned None."""
    if result is None:
        return grad
    if grad is None:
        raise RuntimeError("a hook cannot replace a gradient that is None")
    if type(result) is not type(grad):
        raise errors.HookTypeError(f"a hook must return a tensor or None, not {type(result).__name__}")
    if result.shape != grad.shape:
        raise errors.HookShapeError(f"a hook returned shape {result.shape} for a gradient of shape {grad.shape}")
    if result.dtype != grad.dtype:
        raise errors.HookDtypeError(f"a hook returned {result.dtype} for a gradient of {grad.dtype}")
    return result


def all_replaced(grads: Gradients, result: Any) -> Gradients:
    """Return a Node's gradients after a hook, which must have returned as many, or None."""
    if result is None:
        return grads
    if not isinstance(result, tuple):
        raise errors.HookTypeError(f"a Node hook must return a tuple or None, not {type(result).__name__}")
    given = cast("tuple[Any, ...]", result)
    if len(given) != len(grads):
        raise errors.HookCountError(f"a Node hook returned {len(given)} gradients for {len(grads)}")
    return tuple(None if new is None else replaced(old, new) for old, new in zip(grads, given, strict=True))
