"""Mutants of the engine whose pass executes Nodes in the wrong order or handles their gradients wrongly."""

# ruff: noqa: SLF001 - these mutants replace private steps of a pass

import heapq
from contextlib import nullcontext
from typing import Any

from hooklaw.model import engine, function
from hooklaw.model.hooks import Hooks
from hooklaw.model.node import Node
from hooklaw_backends.mutants.base import Hook
from hooklaw_backends.mutants.inside import Inside, another, instead_of


class NodeRunsBeforeAllItsGradientsArrived(Inside):
    """A Node is executed once for each arriving gradient instead of once for their sum."""

    @instead_of(engine.Pass, "_queue")
    def at_once(self, _: Hook, this: Any, node: Any) -> None:
        if node in this._arrived and node not in this._ready:
            heapq.heappush(this._ready, node)


class GradientsSummedAfterTheHooks(Inside):
    """Tensor hooks get only the first gradient that arrives; later ones are added to the hooks' result."""

    def __init__(self) -> None:
        super().__init__()
        self._late: dict[Any, list[tuple[int, Any]]] = {}

    @instead_of(engine.Pass, "_arrive")
    def put_aside(self, old: Hook, this: Any, edge: Any, result: Any) -> None:
        received = this._arrived.get(edge.node)
        if received and received[edge.nr] is not None and result is not None:
            self._late.setdefault(edge.node, []).append((edge.nr, result))
        else:
            old(this, edge, result)

    @instead_of(engine, "_tensor_hooks")
    def then_summed(self, old: Hook, node: Any, grads: Any) -> Any:
        after = list(old(node, grads))
        for nr, late in self._late.pop(node, ()):
            after[nr] = after[nr] + late
        return tuple(after)


class GradientsSummedInPlace(Inside):
    """Gradients are added in place into the first one, which other tensors may share."""

    @instead_of(engine.Pass, "_arrive")
    def in_place(self, old: Hook, this: Any, edge: Any, result: Any) -> None:
        received = this._arrived.get(edge.node)
        if received and received[edge.nr] is not None and result is not None:
            first = received[edge.nr]
            first.data.write((first + result).data.values())
        else:
            old(this, edge, result)


class CapturedBeforeTheHooksOfAnExecutedNode(Inside):
    """autograd.grad returns the gradient from before the tensor hooks if the tensor's Node is executed."""

    def __init__(self) -> None:
        super().__init__()
        self._received: dict[Any, Any] = {}

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


class SavedTensorsReleasedAtTheEndOfThePass(Inside):
    """Saved tensors are freed only at the end of the backward, and not at all if it fails."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Any] = []

    @instead_of(Node, "release")
    def wait(self, _: Hook, node: Any) -> None:
        self._waiting.extend(saved for saved in node.saved if saved is not None)

    @instead_of(engine.Pass, "run")
    def then_release(self, old: Hook, *given: Any) -> Any:
        captures = old(*given)
        while self._waiting:
            self._waiting.pop().release()
        return captures


class ReleasedThoughRetained(Inside):
    """A backward frees saved tensors even with retain_graph=True."""

    @instead_of(engine.Pass, "_around")
    def anyway(self, old: Hook, this: Any, node: Any, grads: Any) -> Any:
        results = old(this, node, grads)
        node.release()
        return results


class LimitedPassExecutesTheWholeGraph(Inside):
    """A pass limited to some inputs executes the whole graph and accumulates into every leaf."""

    @instead_of(engine.Pass, "__init__")
    def unlimited(self, old: Hook, this: Any, roots: Any, targets: Any, captured: Any, how: Any) -> None:  # noqa: ARG002, PLR0913, PLR0917 - the signature of the engine
        old(this, roots, None, captured, how)


class FirstGradientKeptAsItIs(Inside):
    """The first gradient becomes .grad without a copy and with its own strides."""

    @instead_of(engine, "_add")
    def keep(self, old: Hook, leaf: Any, new: Any, **how: Any) -> None:
        if leaf.grad is None:
            leaf.grad = new
        else:
            old(leaf, new, **how)


class BackwardRecordsAsItsCallerDoes(Inside):
    """A backward records its computation if grad mode is on, even with create_graph=False."""

    @instead_of(engine, "grad_mode")
    def as_outside(self, old: Hook, enabled: bool) -> Any:  # noqa: ARG002, FBT001 - the signature of the engine
        return nullcontext()


class _Reversed(Hooks):
    def now(self) -> list[Hook]:
        return super().now()[::-1]


class NodePreHooksInReverse(Inside):
    """The pre-hooks of a Node run in reverse order of registration."""

    @instead_of(Node, "__init__")
    def reversing(self, old: Hook, node: Any, *given: Any) -> None:
        old(node, *given)
        node.pre_hooks = _Reversed()


class HooksOfHooksRunAtOnce(Inside):
    """A hook registered by another hook in the same place runs in the same pass."""

    @instead_of(Hooks, "now")
    def growing(self, old: Hook, hooks: Any) -> Any:  # noqa: ARG002 - the signature of the engine
        seen: set[int] = set()
        while fresh := [handle for handle in hooks if handle not in seen]:
            seen.add(fresh[0])
            yield hooks[fresh[0]]


class UndefinedGradientsSkipNodeHooks(Inside):
    """A Node that gets no gradient skips its hooks."""

    @instead_of(engine.Pass, "_around")
    def skip(self, old: Hook, this: Any, node: Any, grads: Any) -> Any:
        if all(grad is None for grad in grads):
            return (None,) * len(node.next_edges)
        return old(this, node, grads)


class FailedPassLeavesGradientsBehind(Inside):
    """Gradients left over from a failed pass are added to those of the next pass."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived: dict[Any, Any] = {}

    @instead_of(engine.Pass, "__init__")
    def sharing(self, old: Hook, this: Any, *given: Any) -> None:
        old(this, *given)
        this._arrived = self._arrived


class NodeHookResultsDetached(Inside):
    """The return value of a Node hook is detached from its graph."""

    @instead_of(engine, "all_replaced")
    def detached(self, old: Hook, grads: Any, result: Any) -> Any:
        after = old(grads, result)
        return after if result is None else tuple(grad and grad.detach() for grad in after)


class CustomFunctionsGetNoZeros(Inside):
    """A custom Function's backward gets None instead of zeros for a missing gradient."""

    @instead_of(function, "with_zeros")
    def none(self, _: Hook, node: Any, grads: Any) -> Any:  # noqa: ARG002 - the signature of the engine
        return grads
