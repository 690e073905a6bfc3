"""Nodes and the edges between them: the graph that backward walks."""

from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from hooklaw.model.hooks import Gradients, Hooks

if TYPE_CHECKING:
    import weakref

    from hooklaw.model.record import SavedTensor
    from hooklaw.model.strided import Shape
    from hooklaw.model.tensor import Tensor

_sequence = count()


class Edge(NamedTuple):
    """One output of a Node, to which a gradient is sent."""

    node: "Node"
    nr: int


class Node:
    """One operation of the forward pass, seen from the backward: gradients of its outputs in, of its inputs out.

    A Node refers to Nodes nearer the leaves and never to the tensors that it made, so that a graph is freed with the
    last tensor that needs it.
    """

    def __init__(self, name: str, edges: Sequence[Edge | None], derivative: Callable[..., Any]) -> None:
        self.name = name
        self.next_edges = list(edges)
        self.derivative = derivative
        self.outputs: list[tuple[Shape, str]] = []
        """Shape and dtype of each output, and so of the gradients that the Node takes."""
        self.saved: list[SavedTensor | None] = []
        self.sequence: float = next(_sequence)
        self.metadata: dict[Any, Any] = {}
        self.tensor_hooks: dict[int, Hooks] = {}
        self.retained: dict[int, weakref.ref[Tensor]] = {}
        self.pre_hooks, self.post_hooks = Hooks(), Hooks()

    def hooks_of(self, nr: int) -> Hooks:
        """Return the hooks of the tensor that is this output."""
        return self.tensor_hooks.setdefault(nr, Hooks())

    def execute(self, grads: Gradients) -> Gradients:
        """Unpack what was saved and compute the gradients of the inputs, None where an input needs none."""
        saved = [one and one.unpack(self) for one in self.saved]
        if not any(grad is not None for grad in grads):
            return (None,) * len(self.next_edges)
        results = self.derivative(*grads, *saved)
        return tuple(grad if edge else None for grad, edge in zip(results, self.next_edges, strict=True))

    def release(self) -> None:
        """Free what was saved; a Node that saved nothing can be executed again."""
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
