"""Backward: which Nodes are executed, in which order, and what happens around each of them."""

import heapq
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import NamedTuple

from hooklaw.model import ops
from hooklaw.model.hooks import Gradients, all_replaced, replaced
from hooklaw.model.modes import grad_mode, recording
from hooklaw.model.node import AccumulateGrad, Edge, Node
from hooklaw.model.schedule import chosen
from hooklaw.model.strided import contiguous, filled
from hooklaw.model.tensor import Tensor

_accumulating = threading.Lock()


class How(NamedTuple):
    """What the caller of a backward says of graphs: the one that is walked, and the one of the gradients."""

    retain_graph: bool
    create_graph: bool


def backward(roots: Sequence[Tensor], seeds: Gradients, inputs: Sequence[Tensor] | None, how: How) -> None:
    """Accumulate the gradients of the roots: in all leaves, or in the inputs alone, which may be non-leaves."""
    for one in inputs or ():
        one.retain_grad()
    targets = None if inputs is None else {one.needed_edge().node for one in inputs}
    Pass(roots, targets, (), how).run(roots, seeds)


def grad(roots: Sequence[Tensor], seeds: Gradients, inputs: Sequence[Tensor], how: How) -> Gradients:
    """Return the gradients of the inputs, None for one that is not used; nothing is accumulated."""
    edges = [one.needed_edge() for one in inputs]
    captures = Pass(roots, set(), edges, how).run(roots, seeds)
    return tuple(captures.get(edge) for edge in edges)


class Pass:
    """One backward pass. It executes all Nodes, or the targets and what is on the way to them and to the captured."""

    def __init__(
        self, roots: Iterable[Tensor], targets: set[Node] | None, captured: Collection[Edge], how: How
    ) -> None:
        order = _leaves_first(root.needed_edge().node for root in roots)
        wanted = {edge.node for edge in captured} | (targets or set())
        self._how = how
        self._captures: dict[Edge, Tensor | None] = dict.fromkeys(captured)
        self._executed = set(order) if targets is None else targets & set(order)
        for node in order:
            if any(edge and (edge.node in wanted or edge.node in self._executed) for edge in node.next_edges):
                self._executed.add(node)
        self._reached = self._executed | wanted
        self._waiting = Counter(edge.node for node in self._executed for edge in node.next_edges if edge)
        self._arrived: dict[Node, list[Tensor | None]] = {}
        self._ready: list[tuple[float, int, Node]] = []
        self._ties = count()

    def run(self, roots: Sequence[Tensor], seeds: Gradients) -> dict[Edge, Tensor | None]:
        """Run what is ready until nothing is left."""
        for root, seed in zip(roots, seeds, strict=True):
            self._arrive(root.needed_edge(), _seed(root, seed))
        for node in self._arrived:
            self._queue(node)
        with grad_mode(self._how.create_graph):
            while self._ready:
                node = self._next()
                results = self._around(node, tuple(self._arrived.pop(node)))
                self._send(node, results)
        return self._captures

    def _next(self) -> Node:
        """Take a Node that is ready: AccumulateGrad at once, else the one made last, unless somebody else chooses."""
        number = chosen(len(self._ready))
        if not number:
            return heapq.heappop(self._ready)[-1]
        self._ready.sort()
        return self._ready.pop(number)[-1]

    def _send(self, node: Node, results: Gradients) -> None:
        for edge, result in zip(node.next_edges if results else (), results, strict=True):
            if edge:
                self._arrive(edge, result)
                self._waiting[edge.node] -= 1
                self._queue(edge.node)

    def _around(self, node: Node, grads: Gradients) -> Gradients:
        """Run one Node with the hooks around it: this is the documented order."""
        grads = _tensor_hooks(node, grads)
        self._captures.update({Edge(node, nr): one for nr, one in enumerate(grads) if Edge(node, nr) in self._captures})
        if node not in self._executed:
            _retain(node, grads)
            return ()
        for hook in node.pre_hooks.now():
            grads = all_replaced(grads, hook(grads))
        _retain(node, grads)
        results = _accumulate(node.leaf, grads[0]) if isinstance(node, AccumulateGrad) else node.execute(grads)
        if not self._how.retain_graph:
            node.release()
        for hook in node.post_hooks.now():
            results = all_replaced(results, hook(results, grads))
        return results

    def _arrive(self, edge: Edge, result: Tensor | None) -> None:
        """Add a gradient to what the Node has received for this output, out of place."""
        node, nr = edge
        if node not in self._reached:
            return
        received = self._arrived.setdefault(node, [None] * len(node.outputs))
        if result is not None:
            shape, dtype = node.outputs[nr]
            fitting, before = ops.cast(ops.sum_to(result, shape), dtype), received[nr]
            received[nr] = fitting if before is None else before + fitting

    def _queue(self, node: Node) -> None:
        if node in self._reached and not self._waiting[node]:
            heapq.heappush(self._ready, (-node.sequence, next(self._ties), node))


def _tensor_hooks(node: Node, grads: Gradients) -> Gradients:
    """Run the hooks of each tensor that the Node made, each on what the one before it has left."""
    after = list(grads)
    for nr in range(len(after)):
        for hook in node.hooks_of(nr).now():
            after[nr] = replaced(after[nr], hook(after[nr]))
    return tuple(after)


def _retain(node: Node, grads: Gradients) -> None:
    """Keep the gradients of the tensors that asked for it, added to what they have kept before."""
    for nr, reference in list(node.retained.items()):
        tensor, new = reference(), grads[nr]
        if tensor is not None and new is not None:
            tensor.grad = ops.clone(new) if tensor.grad is None else tensor.grad + new


def _accumulate(leaf: Tensor, new: Tensor | None) -> tuple[()]:
    """Add to the leaf's .grad, in place unless it is to be differentiable, then run the post-accumulate hooks."""
    if new is None:
        return ()
    with _accumulating:
        if leaf.grad is None:
            leaf.grad = ops.clone(new, leaf.data.strides if leaf.data.is_dense() else contiguous(leaf.shape))
        elif recording():
            leaf.grad = leaf.grad + new
        else:
            leaf.grad.data.write((leaf.grad + new).data.values())
    for hook in leaf.post_accumulate_hooks.now():
        hook(leaf)
    return ()


def _seed(root: Tensor, seed: Tensor | None) -> Tensor:
    if seed is None and root.data.size != 1:
        raise RuntimeError("the gradient of a root that is no scalar must be given")
    if seed is not None and seed.shape != root.shape:
        raise RuntimeError(f"a gradient of shape {seed.shape} was given for a root of shape {root.shape}")
    return Tensor(filled([1], root.shape, root.dtype)) if seed is None else seed


def _leaves_first(roots: Iterable[Node]) -> list[Node]:
    """Return every Node behind the roots, each after those that it feeds."""
    order: list[Node] = []
    seen: set[Node] = set()
    todo = [(node, False) for node in roots]
    while todo:
        node, fed_are_done = todo.pop()
        if fed_are_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            todo += [(node, True), *((edge.node, False) for edge in node.next_edges if edge)]
    return order
