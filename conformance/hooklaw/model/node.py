"""Nodes and the edges between them: the graph that backward walks."""

import threading
from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from hooklaw.model.errors import GraphFreedError
from hooklaw.model.flags import on
from hooklaw.model.hooks import Gradients, Hooks

if TYPE_CHECKING:
    import weakref

    from hooklaw.model.record import SavedTensor
    from hooklaw.model.strided import Shape
    from hooklaw.model.tensor import Tensor


class _Made(threading.local):
    def __init__(self) -> None:
        self.numbers = count()


_made = _Made()


class Edge(NamedTuple):
    """One output of a Node, to which a gradient is sent."""

    node: "Node"
    nr: int


class Node:
    """One operation of the forward pass, seen from the backward: gradients of its outputs in, of its inputs out.

    A Node refers to Nodes nearer the leaves and never to the tensors that it made, so that a graph is freed with the
    last tensor that needs it.
    """

    computes_all = False
    """Whether it computes gradients that a pass limited to some inputs has no use for."""
    saves_by_input = False
    """Whether what is saved at a place serves the gradient of the input at that place alone."""
    frees = ""
    """The flag by which it keeps, and frees, more than tensors."""
    freed = False

    def __init__(self, name: str, edges: Sequence[Edge | None], derivative: Callable[..., Any]) -> None:
        self.name = name
        self.next_edges = list(edges)
        self.derivative = derivative
        self.outputs: list[tuple[Shape, str]] = []
        """Shape and dtype of each output, and so of the gradients that the Node takes."""
        self.saved: list[SavedTensor | None] = []
        self.sequence: float = next(_made.numbers)
        self.metadata: dict[Any, Any] = {}
        self.tensor_hooks: dict[int, Hooks] = {}
        self.retained: dict[int, weakref.ref[Tensor]] = {}
        self.pre_hooks, self.post_hooks = Hooks(), Hooks()

    def __lt__(self, other: "Node") -> bool:
        """Tell whether the Node is executed before another, if both are ready: of one thread's the one made last."""
        return self.sequence > other.sequence

    def hooks_of(self, nr: int) -> Hooks:
        """Return the hooks of the tensor that is this output."""
        return self.tensor_hooks.setdefault(nr, Hooks())

    def hooked(self) -> list[tuple[int, Hooks]]:
        """Return the outputs that were given hooks, in the order of their first, with the hooks."""
        return list(self.tensor_hooks.items())

    def execute(self, grads: Gradients, needed: Sequence[bool]) -> Gradients:
        """Unpack what was saved and compute the gradients of the inputs, None where none is needed."""
        if self.freed:
            raise GraphFreedError("an earlier backward has freed what this Node needs")
        saved = [one and one.unpack(self) for one in self.saved]
        if not any(needed) or all(grad is None for grad in grads):
            return (None,) * len(self.next_edges)
        if self.saves_by_input:
            saved = [one if serves else None for one, serves in zip(saved, needed, strict=True)]
        results = self.derivative(*grads, *saved)
        return tuple(grad if asked else None for grad, asked in zip(results, needed, strict=True))

    def release(self) -> None:
        """Free what was saved; a Node that saved nothing can be executed again."""
        self.freed = on(self.frees)
        for one in self.saved:
            if one is not None:
                one.release()


class AccumulateGrad(Node):
    """Where a gradient arrives at a leaf. The engine executes it, and as soon as it is ready.

    The leaf refers to it weakly: it lives as long as a graph, or the user, needs it. The leaf's own hooks live longer.
    """

    def __init__(self, leaf: "Tensor") -> None:
        super().__init__("torch::autograd::AccumulateGrad", (), lambda: ())
        self.leaf = leaf
        self.outputs = [(leaf.shape, leaf.dtype)]
        self.sequence = inf

    def hooks_of(self, nr: int) -> Hooks:  # noqa: ARG002 - there is one output
        """Return the leaf's hooks."""
        return self.leaf.hooks

    def hooked(self) -> list[tuple[int, Hooks]]:
        """Return the leaf's hooks."""
        return [(0, self.leaf.hooks)]
