"""Nodes and edges: the graph that backward walks."""

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
    """One operation, as backward sees it: it takes the gradients of its outputs and returns those of its inputs.

    A Node refers to Nodes nearer the leaves and never to the tensors that it made, so a graph is freed with its last
    tensor.
    """

    computes_all = False
    """Whether it also computes gradients that a pass with inputs does not need."""
    saves_by_input = False
    """Whether the n-th saved tensor is used for the gradient of the n-th input only."""
    is_boxed = False
    """Whether it may take the gradients out of the list that it is given."""
    frees = ""
    """The flag with which backward frees it even if it saved no tensor."""
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
        """Whether the Node is executed before another ready Node: the newer one of a thread is first."""
        return self.sequence > other.sequence

    def hooks_of(self, nr: int) -> Hooks:
        """Return the hooks of the tensor that is output `nr`."""
        return self.tensor_hooks.setdefault(nr, Hooks())

    def hooked(self) -> list[tuple[int, Hooks]]:
        """Return the outputs that have hooks, with the hooks, in the order of each output's first hook."""
        return list(self.tensor_hooks.items())

    def take(self, given: "list[Tensor | None]", needed: Sequence[bool]) -> Gradients:
        """Execute the Node with the gradients in a list; only a boxed Node changes the list."""
        return self.execute(tuple(given), needed)

    def execute(self, grads: Gradients, needed: Sequence[bool]) -> Gradients:
        """Unpack the saved tensors and compute the gradients of the inputs, None where `needed` is false."""
        if self.freed:
            raise GraphFreedError("an earlier backward has freed what this Node needs")
        saved = [tensor and tensor.unpack(self) for tensor in self.saved]
        if not any(needed) or all(grad is None for grad in grads):
            return (None,) * len(self.next_edges)
        if self.saves_by_input:
            saved = [tensor if used else None for tensor, used in zip(saved, needed, strict=True)]
        results = self.derivative(*grads, *saved)
        return tuple(grad if asked else None for grad, asked in zip(results, needed, strict=True))

    def release(self) -> None:
        """Free the saved tensors; a Node that saved none can be executed again."""
        self.freed = on(self.frees)
        for saved in self.saved:
            if saved is not None:
                saved.release()


class AccumulateGrad(Node):
    """Adds a gradient to a leaf's .grad. It is executed as soon as it is ready.

    The leaf refers to it weakly: it dies with the last graph that needs it, but the leaf keeps its own hooks.
    """

    def __init__(self, leaf: "Tensor") -> None:
        super().__init__("torch::autograd::AccumulateGrad", (), lambda: ())
        self.leaf = leaf
        self.outputs = [(leaf.shape, leaf.dtype)]
        self.tensor_hooks = {0: leaf.hooks}
        self.sequence = inf
