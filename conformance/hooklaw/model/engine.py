"""The backward pass: which Nodes it executes, in which order, and which hooks run around each."""

import heapq
import threading
from cmath import isnan
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from hooklaw.model import ops
from hooklaw.model._numbers import is_complex
from hooklaw.model.errors import NoGradientError, NotANumberError
from hooklaw.model.flags import on
from hooklaw.model.hooks import Gradients, all_replaced, replaced
from hooklaw.model.modes import current_pass, detecting_anomaly, grad_mode, recording, running
from hooklaw.model.node import AccumulateGrad, Edge, Node
from hooklaw.model.schedule import chosen
from hooklaw.model.strided import contiguous, filled
from hooklaw.model.tensor import Tensor

_accumulating = threading.Lock()


class How(NamedTuple):
    """The caller's options about graphs: keep the one walked, record one of the gradients."""

    retain_graph: bool
    create_graph: bool


def backward(roots: Sequence[Tensor], seeds: Gradients, inputs: Sequence[Tensor] | None, how: How) -> None:
    """Accumulate gradients into all leaves behind the roots, or into `inputs` alone, which may be non-leaves."""
    if inputs is not None and not inputs:
        raise RuntimeError("backward was given an empty list of inputs: pass some, or None for all leaves")
    roots, seeds = _seeded(roots, seeds)
    for tensor in inputs or ():
        tensor.retain_grad()
    edges = None if inputs is None else {tensor.needed_edge() for tensor in inputs}
    targets = None if edges is None else {edge.node for edge in edges}
    started = Pass(roots, targets, (), how)
    started.retaining = None if on("passes-with-inputs-retain-everything") else edges
    started.run(roots, seeds)


def grad(roots: Sequence[Tensor], seeds: Gradients, inputs: Sequence[Tensor], how: How) -> Gradients:
    """Return the gradients of the inputs, None for an unused input; accumulate nothing."""
    roots, seeds = _seeded(roots, seeds)
    edges = [tensor.needed_edge() for tensor in inputs]
    captures = Pass(roots, set(), edges, how).run(roots, seeds)
    return tuple(captures.get(edge) for edge in edges)


class Pass:
    """One backward pass. It executes all Nodes, or only the targets and those on the way to targets and captures."""

    retaining: Collection[Edge] | None = None
    """The edges of the tensors that may retain their gradient, None for all."""

    def __init__(
        self, roots: Iterable[Tensor], targets: set[Node] | None, captured: Collection[Edge], how: How
    ) -> None:
        starts = [root.needed_edge().node for root in roots]
        order = _leaves_first(starts)
        wanted = ({edge.node for edge in captured} | (targets or set())) & set(order)
        self._how = how
        self._captures: dict[Edge, Tensor | None] = dict.fromkeys(captured)
        self.is_whole = targets is None
        """Whether it executes every Node behind the roots."""
        self.outer = current_pass()
        """The pass inside which this pass runs."""
        self.limits = False
        """Whether it is executing a Node now, and will not execute all Nodes."""
        self._executed = set(order) if targets is None else targets & set(order)
        for node in order:
            if any(edge and (edge.node in wanted or edge.node in self._executed) for edge in node.next_edges):
                self._executed.add(node)
        self._reached = self._executed | wanted
        self._lone_root = starts[0] if len(starts) == 1 else None
        if on("one-root-is-reached") and self._lone_root:
            self._reached.add(self._lone_root)
        self._waiting = Counter(edge.node for node in self._executed for edge in node.next_edges if edge)
        self._arrived: dict[Node, list[Tensor | None]] = {}
        self._ready: list[Node] = []
        self.memory: dict[object, Any] = {}
        """What hooks of this pass leave for each other."""

    def run(self, roots: Sequence[Tensor], seeds: Gradients) -> dict[Edge, Tensor | None]:
        """Execute ready Nodes until none is left; return the captured gradients."""
        before_roots = Node("GraphRoot", [root.needed_edge() for root in roots], tuple)
        self._waiting.update(edge.node for edge in before_roots.next_edges if edge)
        if detecting_anomaly():
            _refuse_nan(before_roots, seeds)
        self._send(before_roots, seeds)
        with grad_mode(self._how.create_graph), running(self):
            while self._ready:
                node = self._next()
                self._send(node, self._around(node, tuple(self._arrived.pop(node))))
        return self._captures

    def reaches(self, node: Node | None) -> bool:
        """Whether the pass computes gradients for the Node."""
        if node is self._lone_root and on("multi-grad-hooks-miss-a-lone-root"):
            return False
        captured_leaf = isinstance(node, AccumulateGrad) and node not in self._executed
        if node in self._reached and captured_leaf and on("multi-grad-hooks-take-no-leaf-in-grad"):
            raise RuntimeError("a multi-grad hook cannot wait for the gradient of a leaf that grad returns")
        return node in self._reached

    def _next(self) -> Node:
        """Take a ready Node: an AccumulateGrad first, else the newest, unless `schedule` chooses another."""
        number = chosen(len(self._ready))
        if not number:
            return heapq.heappop(self._ready)
        self._ready.sort()
        return self._ready.pop(number)

    def _send(self, node: Node, results: Gradients) -> None:
        for edge, result in zip(node.next_edges if results else (), results, strict=True):
            if edge:
                self._arrive(edge, result)
                self._waiting[edge.node] -= 1
                self._queue(edge.node)

    def _around(self, node: Node, grads: Gradients) -> Gradients:
        """Execute one Node with the hooks around it, in the documented order."""
        received, grads = grads, _tensor_hooks(node, grads)
        executed = node in self._executed
        self.limits = executed and not self.is_whole
        self._capture(node, received if executed and on("capture-before-tensor-hooks") else grads)
        early = not executed or on("retain-grad-before-pre-hooks")
        if early:
            self._retain(node, grads)
        if not executed:
            return ()
        for hook in node.pre_hooks.now():
            grads = all_replaced(grads, hook(grads))
        if not early:
            self._retain(node, grads)
        given = list(grads)
        if node.is_boxed and not node.post_hooks:
            received = grads = ()  # the list alone keeps the gradients, and the Node may take them out of it
        results = self._execute(node, given)
        for hook in node.post_hooks.now():
            results = all_replaced(results, hook(results, grads))
        if not self._how.retain_graph:
            node.release()
        if detecting_anomaly():
            _refuse_nan(node, results)
        return results

    def _capture(self, node: Node, grads: Gradients) -> None:
        """Keep the gradients that `grad` was asked for."""
        if self._captures:
            arrived = ((Edge(node, nr), grad) for nr, grad in enumerate(grads))
            self._captures.update({edge: grad for edge, grad in arrived if edge in self._captures})

    def _retain(self, node: Node, grads: Gradients) -> None:
        """Update the .grad of the Node's tensors that retain it and that the pass may change."""
        if self.retaining is not None:
            grads = tuple(grad if Edge(node, nr) in self.retaining else None for nr, grad in enumerate(grads))
        _retain(node, grads)

    def _execute(self, node: Node, given: list[Tensor | None]) -> Gradients:
        if isinstance(node, AccumulateGrad):
            return _accumulate(node, given[0])
        everything = self.is_whole or node.computes_all or not on("unneeded-gradients-are-none")
        needed = [edge is not None and (everything or edge.node in self._reached) for edge in node.next_edges]
        return _fitting(node, node.take(given, needed))

    def _arrive(self, edge: Edge, result: Tensor | None) -> None:
        """Add a gradient, out of place, to those the Node has received for this output."""
        node, nr = edge
        if node not in self._reached:
            return
        received = self._arrived.setdefault(node, [None] * len(node.outputs))
        if result is not None:
            before = received[nr]
            received[nr] = result if before is None else before + result

    def _queue(self, node: Node) -> None:
        if node in self._reached and not self._waiting[node]:
            heapq.heappush(self._ready, node)


def _tensor_hooks(node: Node, grads: Gradients) -> Gradients:
    """Run the hooks of each tensor that the Node made; each hook gets what the hook before it returned."""
    after = list(grads)
    for nr, hooks in node.hooked():
        for hook in hooks.now():
            after[nr] = replaced(after[nr], hook(after[nr]))
    return tuple(after)


def _fitting(node: Node, results: Gradients) -> Gradients:
    """Return the gradients in the shapes and dtypes of the inputs; sum over broadcast dimensions."""
    fitting = list(results)
    for nr, edge in enumerate(node.next_edges):
        result = results[nr]
        if edge and result is not None:
            shape, dtype = edge.node.outputs[edge.nr]
            fitting[nr] = ops.cast(ops.sum_to(result, shape), dtype)
    return tuple(fitting)


def _refuse_nan(node: Node, results: Gradients) -> None:
    for result in results:
        if result is not None and any(map(isnan, result.data.values())):
            raise NotANumberError(f"{node.name} returned NaN in a gradient")


def _retain(node: Node, grads: Gradients) -> None:
    """Add each gradient to the .grad of its tensor, if the tensor retains grad."""
    for nr, reference in list(node.retained.items()):
        tensor, new = reference(), grads[nr]
        if tensor is not None and new is not None:
            tensor.grad = ops.clone(new) if tensor.grad is None else tensor.grad + new


def _accumulate(node: AccumulateGrad, new: Tensor | None) -> tuple[()]:
    """Add to the leaf's .grad, in place unless it is to be differentiable, then run the post-accumulate hooks."""
    leaf = node.leaf
    new = new if leaf.requires_grad else None
    if new is not None:
        _add(leaf, new, held=new.is_view or bool(node.post_hooks))
    if new is not None or on("post-accumulate-without-gradient"):
        _post_accumulate(leaf)
    return ()


def _add(leaf: Tensor, new: Tensor, *, held: bool) -> None:
    """Add to the leaf's .grad. `held` says that something else refers to the data of `new`."""
    with _accumulating:
        if leaf.grad is None:
            strides = leaf.data.strides if leaf.data.is_dense() else contiguous(leaf.shape)
            shared = held and new.data.strides == strides and on("views-of-gradients-become-grad")
            leaf.grad = Tensor(new.data) if shared and not recording() else ops.clone(new, strides)
        elif recording():
            leaf.grad = leaf.grad + new
        else:
            leaf.grad.data.write((leaf.grad + new).data.values())


def _post_accumulate(leaf: Tensor) -> None:
    given: Tensor | None = leaf
    for hook in leaf.post_accumulate_hooks.now():
        result = hook(given)
        if on("post-accumulate-returns-none"):
            given = replaced(given, result)
    if given is not leaf:
        raise RuntimeError("a post-accumulate hook must return None")


def _seeded(roots: Sequence[Tensor], seeds: Gradients) -> tuple[Sequence[Tensor], Gradients]:
    """Return the roots at which the pass starts, each with its gradient."""
    if not on("constant-outputs-are-an-error"):
        roots, seeds = _without_constants(roots, seeds)
    return roots, tuple(map(_seed, roots, seeds))


def _without_constants(roots: Sequence[Tensor], seeds: Gradients) -> tuple[Sequence[Tensor], Gradients]:
    """Leave out each root that does not require grad and is given no gradient, unless none would be left."""
    pairs = list(zip(roots, seeds, strict=True))
    kept = [(root, seed) for root, seed in pairs if root.edge() is not None or seed is not None] or pairs
    return [root for root, _ in kept], tuple(seed for _, seed in kept)


def _seed(root: Tensor, seed: Tensor | None) -> Tensor:
    if root.edge() is None:
        raise NoGradientError("a root does not require grad, or has no history")
    if seed is None and root.data.size != 1:
        raise RuntimeError("a root that is not a scalar needs a gradient: pass it")
    if seed is None and is_complex(root.dtype):
        raise RuntimeError("a complex root needs a gradient: pass it")
    if seed is not None and seed.shape != root.shape:
        raise RuntimeError(f"a gradient of shape {seed.shape} was given for a root of shape {root.shape}")
    return Tensor(filled([1], root.shape, root.dtype)) if seed is None else ops.cast(seed, root.dtype)


def _leaves_first(roots: Iterable[Node]) -> list[Node]:
    """Return every Node behind the roots, each after the Nodes it sends gradients to."""
    order: list[Node] = []
    seen: set[Node] = set()
    todo = [(node, False) for node in roots]
    while todo:
        node, is_expanded = todo.pop()
        if is_expanded:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            todo += [(node, True), *((edge.node, False) for edge in node.next_edges if edge)]
    return order
