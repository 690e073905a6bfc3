"""Mutants of the engine whose pass executes Nodes in the wrong order or handles their gradients wrongly."""

# ruff: noqa: SLF001 - these mutants replace private steps of a pass

import heapq
from contextlib import nullcontext, suppress
from math import isinf
from typing import Any

from hooklaw.model import engine, function, ops
from hooklaw.model.errors import NotANumberError
from hooklaw.model.hooks import Hooks
from hooklaw.model.node import AccumulateGrad, Node
from hooklaw_backends.mutants.base import Hook, fresh
from hooklaw_backends.mutants.inside import Inside, another, inside, instead_of


@inside(engine.Pass, "_queue")
def node_runs_before_all_its_gradients_arrived(self: Inside, _: Hook, this: Any, node: Any) -> None:
    """A Node is executed once for each arriving gradient instead of once for their sum."""
    if node in this._arrived and node not in this._ready:
        heapq.heappush(this._ready, node)


class GradientsSummedAfterTheHooks(Inside):
    """Tensor hooks get only the first gradient that arrives; later ones are added to the hooks' result."""

    _late = fresh(dict[Any, list[tuple[int, Any]]])

    @instead_of(engine.Pass, "_arrive")
    def put_aside(self, old: Hook, this: Any, edge: Any, result: Any) -> None:
        if _is_later(this, edge, result):
            self._late.setdefault(edge.node, []).append((edge.nr, result))
        else:
            old(this, edge, result)

    @instead_of(engine, "_tensor_hooks")
    def then_summed(self, old: Hook, node: Any, grads: Any) -> Any:
        after = list(old(node, grads))
        for nr, late in self._late.pop(node, ()):
            after[nr] = after[nr] + late
        return tuple(after)


def _is_later(this: Any, edge: Any, result: Any) -> bool:
    """Whether a gradient arrives where another has arrived."""
    received = this._arrived.get(edge.node)
    return bool(received) and received[edge.nr] is not None and result is not None


@inside(engine.Pass, "_arrive")
def gradients_summed_in_place(self: Inside, old: Hook, this: Any, edge: Any, result: Any) -> None:
    """Gradients are added in place into the first one, which other tensors may share."""
    if _is_later(this, edge, result):
        first = this._arrived[edge.node][edge.nr]
        first.data.write((first + result).data.values())
    else:
        old(this, edge, result)


class CapturedBeforeTheHooksOfAnExecutedNode(Inside):
    """autograd.grad returns the gradient from before the tensor hooks if the tensor's Node is executed."""

    _received = fresh(dict[Any, Any])

    @instead_of(engine, "_tensor_hooks")
    def remembering(self, old: Hook, node: Any, grads: Any) -> Any:
        self._received[node] = grads
        return old(node, grads)

    @instead_of(engine.Pass, "_capture")
    def before_hooks(self, old: Hook, this: Any, node: Any, grads: Any) -> None:
        received = self._received.pop(node)
        old(this, node, received if node in this._executed else grads)


class RetainGradBeforeNodePreHook(Inside):
    """The gradient is retained before the pre-hooks of the tensor's Node run."""

    keep: Hook

    @another(engine, "_retain")
    def later(self, old: Hook) -> Hook:
        self.keep = old
        return lambda _node, _grads: None

    @instead_of(engine, "_tensor_hooks")
    def then_retained(self, old: Hook, node: Any, grads: Any) -> Any:
        after = old(node, grads)
        self.keep(node, after)
        return after


class RetainGradMissesEarlierPreHooks(Inside):
    """The gradient is retained before the Node's pre-hooks run if one of them was registered before retain_grad."""

    _mark = "has a pre-hook"

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        self.node_metadata(node)[self._mark] = True
        return super().node_register_prehook(node, hook)

    def retain_grad(self, tensor: Any) -> None:
        if not self.is_leaf(tensor) and self._mark in self.node_metadata(self.grad_fn(tensor)):
            self.register_hook(tensor, lambda grad: self.set_grad(tensor, grad))
        else:
            super().retain_grad(tensor)


class RetainedGradientIsWhatTheFirstPreHookLeft(Inside):
    """The retained gradient is what the first pre-hook of the tensor's Node left, whatever later ones return."""

    left = fresh(dict[int, Any])

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        name = id(node)  # alone: a hook must not keep its Node alive

        def noting(grads: Any) -> Any:
            result = hook(grads)
            self.left.setdefault(name, grads if result is None else result)
            return result

        return super().node_register_prehook(node, noting)

    @instead_of(engine, "_retain")
    def earlier(self, old: Hook, node: Any, grads: Any) -> None:
        old(node, self.left.pop(id(node), grads))


class SavedTensorsReleasedAtTheEndOfThePass(Inside):
    """Saved tensors are freed only at the end of the backward, and not at all if it fails."""

    @instead_of(Node, "release")
    def wait(self, _: Hook, node: Any) -> None:
        self.kept.extend(saved for saved in node.saved if saved is not None)

    @instead_of(engine.Pass, "run")
    def then_release(self, old: Hook, *given: Any) -> Any:
        captures = old(*given)
        while self.kept:
            self.kept.pop().release()
        return captures


@inside(engine.Pass, "_around")
def released_though_retained(self: Inside, old: Hook, this: Any, node: Any, grads: Any) -> Any:
    """A backward frees saved tensors even with retain_graph=True."""
    results = old(this, node, grads)
    node.release()
    return results


@inside(engine.Pass, "__init__")
def limited_pass_executes_the_whole_graph(self: Inside, old: Hook, this: Any, roots: Any, _: Any, *rest: Any) -> None:
    """A pass limited to some inputs executes the whole graph and accumulates into every leaf."""
    old(this, roots, None, *rest)


@inside(engine.Pass, "__init__")
def limited_backward_spares_other_leaves_alone(
    self: Inside, old: Hook, this: Any, roots: Any, targets: Any, *rest: Any
) -> None:
    """A backward with inputs executes all Nodes but those that accumulate into other leaves."""
    ahead, found = [root.needed_edge().node for root in roots if targets], set[Node]()
    while ahead:
        node = ahead.pop()
        ahead += [edge.node for edge in node.next_edges if edge and edge.node not in found]
        found.add(node)
    old(this, roots, targets and targets | {node for node in found if not isinstance(node, AccumulateGrad)}, *rest)


@inside(engine, "_add")
def first_gradient_kept_as_it_is(self: Inside, old: Hook, leaf: Any, new: Any, **how: Any) -> None:
    """The first gradient becomes .grad without a copy and with its own strides."""
    if leaf.grad is None:
        leaf.grad = new
    else:
        old(leaf, new, **how)


@inside(engine, "_refuse_nan")
def anomalies_of_later_gradients_undetected(self: Inside, old: Hook, node: Any, results: Any) -> None:
    """Anomaly detection looks only at the first gradient that a Node computes."""
    old(node, results[:1])


@inside(engine, "_refuse_nan")
def anomalies_of_earlier_gradients_undetected(self: Inside, old: Hook, node: Any, results: Any) -> None:
    """Anomaly detection looks only at the last gradient that a Node computes."""
    old(node, results[-1:])


@inside(engine, "_refuse_nan")
def infinite_gradients_are_anomalies(self: Inside, old: Hook, node: Any, results: Any) -> None:
    """Anomaly detection takes an infinite gradient for a NaN."""
    old(node, results)
    if any(result is not None and any(map(isinf, result.data.values())) for result in results):
        raise NotANumberError(f"{node.name} returned an infinite gradient")


@inside(engine, "grad_mode")
def backward_records_as_its_caller_does(self: Inside, old: Hook, _: Any) -> Any:
    """A backward records its computation if grad mode is on, even with create_graph=False."""
    return nullcontext()


class _Reversed(Hooks):
    def now(self) -> list[Hook]:
        return super().now()[::-1]


@inside(Node, "__init__")
def node_pre_hooks_in_reverse(self: Inside, old: Hook, node: Any, *given: Any) -> None:
    """The pre-hooks of a Node run in reverse order of registration."""
    old(node, *given)
    node.pre_hooks = _Reversed()


@inside(Hooks, "now")
def hooks_of_hooks_run_at_once(self: Inside, old: Hook, hooks: Any) -> Any:
    """A hook registered by another hook in the same place runs in the same pass."""
    seen: set[int] = set()
    while unseen := [handle for handle in hooks if handle not in seen]:
        seen.add(unseen[0])
        yield hooks[unseen[0]]


@inside(engine.Pass, "_around")
def undefined_gradients_skip_node_hooks(self: Inside, old: Hook, this: Any, node: Any, grads: Any) -> Any:
    """A Node that gets no gradient skips its hooks."""
    if all(grad is None for grad in grads):
        return (None,) * len(node.next_edges)
    return old(this, node, grads)


class FailedPassLeavesGradientsBehind(Inside):
    """Gradients left over from a failed pass are added to those of the next pass."""

    _arrived = fresh(dict[Any, Any])

    @instead_of(engine.Pass, "__init__")
    def sharing(self, old: Hook, this: Any, *given: Any) -> None:
        old(this, *given)
        this._arrived = self._arrived


@inside(engine, "all_replaced")
def node_hook_results_detached(self: Inside, old: Hook, grads: Any, result: Any) -> Any:
    """The return value of a Node hook is detached from its graph."""
    after = old(grads, result)
    return after if result is None else tuple(grad and grad.detach() for grad in after)


@inside(function, "with_zeros")
def custom_functions_get_no_zeros(self: Inside, _: Hook, node: Any, grads: Any) -> Any:
    """A custom Function's backward gets None instead of zeros for a missing gradient."""
    return grads


@inside(function, "with_zeros")
def custom_functions_get_no_zeros_for_the_first_output(self: Inside, old: Hook, node: Any, grads: Any) -> Any:
    """A custom Function's backward gets None instead of zeros for a missing gradient of the first of its outputs."""
    after = old(node, grads)
    return (grads[0], *after[1:]) if isinstance(node, function.CustomNode) and len(after) > 1 else after


@inside(engine, "_add")
def first_gradient_of_a_view_kept_as_it_is(self: Inside, old: Hook, leaf: Any, new: Any, **how: Any) -> None:
    """A first gradient that is dense, but not contiguous, becomes .grad with its own strides."""
    if leaf.grad is None and new.data.is_dense() and not new.data.is_contiguous():
        leaf.grad = new
    else:
        old(leaf, new, **how)


@inside(engine, "_add")
def later_gradient_of_a_view_lays_grad_out(self: Inside, old: Hook, leaf: Any, new: Any, **how: Any) -> None:
    """A .grad gets the strides of what is added to it, if these are dense and not contiguous."""
    if leaf.grad is not None and new.data.is_dense() and not new.data.is_contiguous():
        leaf.grad = ops.clone(leaf.grad, new.data.strides)
    old(leaf, new, **how)


class _FitsLate(Inside):
    """A mutant in which the gradients on some edges are summed to their shapes, and cast, after the tensor hooks."""

    def is_late(self, edge: Any) -> bool:
        """Whether the gradient on an edge is; only one that hooks see makes a difference."""
        return any(nr == edge.nr for nr, _ in edge.node.hooked())

    @instead_of(engine, "_fitting")
    def as_computed(self, old: Hook, node: Any, results: Any) -> Any:
        ways = zip(node.next_edges, results, old(node, results), strict=True)
        return tuple(result if edge and self.is_late(edge) else fitting for edge, result, fitting in ways)

    @instead_of(engine, "_tensor_hooks")
    def then_fit(self, old: Hook, node: Any, grads: Any) -> Any:
        after = zip(old(node, grads), node.outputs, strict=True)
        return tuple(grad and ops.cast(ops.sum_to(grad, shape), dtype) for grad, (shape, dtype) in after)


class GradientsFitAfterTheHooks(_FitsLate):
    """The gradient of a tensor that was broadcast is summed to the tensor's shape only after the tensor's hooks."""


class GradientsOfNonLeavesFitAfterTheHooks(_FitsLate):
    """The gradient of a non-leaf that was broadcast is summed to its shape only after its hooks."""

    def is_late(self, edge: Any) -> bool:
        return super().is_late(edge) and not isinstance(edge.node, AccumulateGrad)


class PassGoesOnAfterAnError(Inside):
    """A pass that fails executes the other Nodes that are ready before it raises the error."""

    @instead_of(engine.Pass, "_around")
    def around(self, old: Hook, this: Any, node: Any, grads: Any) -> Any:
        try:
            return old(this, node, grads)
        except Exception:
            while this._ready:
                self.executed(this, this._next())
            raise

    def executed(self, this: Any, node: Any) -> None:
        """Execute a Node after an error."""
        with suppress(Exception):
            this._send(node, this._around(node, tuple(this._arrived.pop(node))))


class GradientsOfSingleValuesFitAfterTheHooks(Inside):
    """The hooks of a tensor of a single value that an operation broadcast get the gradient in the larger shape."""

    @instead_of(engine, "_fitting")
    def fitting(self, old: Hook, node: Any, results: Any) -> Any:
        after = list(old(node, results))
        for nr, edge in enumerate(node.next_edges):
            shape, dtype = edge.node.outputs[edge.nr] if edge else ((), "")
            if edge and results[nr] is not None and set(shape) <= {1}:
                after[nr] = ops.cast(results[nr], dtype)
        return tuple(after)

    @instead_of(engine, "_tensor_hooks")
    def tensor_hooks(self, old: Hook, node: Any, grads: Any) -> Any:
        after = old(node, grads)
        return tuple(grad and ops.sum_to(grad, node.outputs[nr][0]) for nr, grad in enumerate(after))


class ReplacedGradientOfARootReachesTheFirstInputAlone(Inside):
    """What a hook of a root returns counts for the first input of the root's Node, and not for the others."""

    _raw: Any = None

    @instead_of(engine, "_tensor_hooks")
    def tensor_hooks(self, old: Hook, node: Any, grads: Any) -> Any:
        after = old(node, grads)
        self._raw = None if len(node.next_edges) == 1 or after == grads else grads
        return after

    @instead_of(engine.Pass, "_execute")
    def execute(self, old: Hook, this: Any, node: Any, given: Any) -> Any:
        raw, self._raw = self._raw, None
        if raw is None or node is not this._lone_root:
            raw = None
            return old(this, node, given)
        return (*old(this, node, given)[:1], *old(this, node, list(raw))[1:])
