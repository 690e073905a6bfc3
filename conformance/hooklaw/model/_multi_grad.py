"""Multi-grad hooks: one hook on several tensors, called once in each backward pass."""

import weakref
from collections.abc import Callable, Sequence
from typing import Self

from hooklaw.model.flags import on
from hooklaw.model.hooks import Hook, RemovableHandle
from hooklaw.model.modes import running_pass
from hooklaw.model.node import AccumulateGrad, Node
from hooklaw.model.tensor import Tensor


class Handles(tuple[RemovableHandle, ...]):
    """The handles of one multi-grad hook on its tensors."""

    __slots__ = ()

    def remove(self) -> None:
        """Remove the hook from every tensor."""
        for handle in self:
            handle.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], hook: Hook, *, mode: str = "all") -> Handles:
    """Register ``hook(grads)`` for all of the tensors, or in mode ``any`` ``hook(grad)`` for the first gradient."""
    if mode not in _MODES:
        raise ValueError(f"a multi-grad hook has mode 'all' or 'any', not {mode!r}")
    hooks = _MODES[mode](tensors, hook)
    return Handles(tensor.register_hook(hooks[nr]) for nr, tensor in enumerate(tensors) if tensor.requires_grad)


def _all(tensors: Sequence[Tensor], hook: Hook) -> list[Hook]:
    """Call the hook when each gradient that the pass computes has arrived."""
    nodes, key = [_node_of(tensor) for tensor in tensors], object()
    shared = [0]
    left: dict[object, object] = {}

    def arrive(nr: int, grad: Tensor | None) -> None:
        now = running_pass()
        grads = now.memory.setdefault(key, {})
        grads[nr] = grad
        if on("multi-grad-hooks-miss-a-lone-root"):
            left[now] = grads  # kept for ever if the hook never runs
        awaited = sum(now.reaches(node()) for node in nodes)
        if on("passes-share-the-count-of-a-multi-grad-hook"):
            shared[0] = awaited if len(grads) == 1 else shared[0]
            awaited = shared[0]
        if len(grads) == awaited:
            del now.memory[key]
            left.pop(now, None)
            hook([grads.get(nr) for nr in range(len(nodes))])

    return [lambda grad, nr=nr: arrive(nr, grad) for nr in range(len(nodes))]


def _any(tensors: Sequence[Tensor], hook: Hook) -> list[Hook]:
    """Call the hook with the first gradient of a pass that is not None."""
    key = object()

    def arrive(grad: Tensor | None) -> None:
        memory = running_pass().memory
        counts = grad is not None or on("the-first-gradient-may-be-none")
        if counts and key not in memory:
            memory[key] = True
            hook(grad)

    return [arrive] * len(tensors)


def _node_of(tensor: Tensor) -> Callable[[], Node | None]:
    """Return a function that finds the tensor's Node later and keeps nothing alive; a leaf may have a new Node then."""
    edge = tensor.edge()
    if edge is None:
        if on("multi-grad-hooks-take-no-constants"):
            raise RuntimeError("a multi-grad hook in mode 'all' was given a tensor that does not require grad")
        return lambda: None
    if on("multi-grad-hooks-keep-their-nodes"):
        return lambda: edge.node
    if not isinstance(edge.node, AccumulateGrad):
        return weakref.ref(edge.node)
    leaf = weakref.ref(edge.node.leaf)
    return lambda: (found := leaf()) and found.accumulate()


_MODES: dict[str, Callable[[Sequence[Tensor], Hook], list[Hook]]] = {"all": _all, "any": _any}
