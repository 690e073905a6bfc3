"""Mutants that accumulate gradients wrongly, or give them the wrong memory layout."""

import weakref
from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.in_situations import named


@overriding("grad_of")
def gradient_starts_as_zeros(self: Mutant, old: Hook, tensor: Any) -> Any:
    """Before any backward a tensor's .grad is zeros instead of None."""
    grad = old(tensor)
    return self.detach(tensor) * 0 if grad is None else grad


@overriding("backward")
def leaves_share_their_first_gradient(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """Leaves that get equal gradients in their first backward share one tensor as .grad, to which later passes add."""
    without = [leaf for leaf in self.leaves_of(root) if self.grad_of(leaf) is None]
    old(root, *given, **how)
    grads: dict[str, Any] = {}
    for leaf in without:
        grad = self.grad_of(leaf)
        if grad is not None:
            key = f"{self.tolist(self.detach(grad))} {self.dtype(grad)} {self.stride(grad)}"
            self.set_grad(leaf, grads.setdefault(key, grad))


class GradientKeptAsideOfGrad(Mutant):
    """Setting .grad does not reset the sum that later gradients are added to."""

    def set_grad(self, tensor: Any, value: Any) -> None:
        before = super().grad_of(tensor)
        if before is not None:
            self.kept.append((tensor, before))
        super().set_grad(tensor, value)

    def grad_of(self, tensor: Any) -> Any:
        grad = super().grad_of(tensor)
        return grad if grad is None else sum((old for owner, old in self.kept if owner is tensor), grad)


@overriding("grad")
def autograd_grad_accumulates(self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any) -> Any:
    """autograd.grad also adds to the .grad of its inputs."""
    grads = old(outputs, inputs, *given, **how)
    _accumulate(self, inputs, grads)
    return grads


@overriding("grad")
def autograd_grad_of_several_inputs_accumulates(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad of more than one input also adds to their .grad."""
    grads = old(outputs, inputs, *given, **how)
    if len(inputs) > 1:
        _accumulate(self, inputs, grads)
    return grads


@overriding("grad")
def autograd_grad_of_edges_accumulates(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad also adds to the .grad of the leaves whose gradient edges it is given."""
    grads = old(outputs, inputs, *given, **how)
    for edge, grad in zip(inputs, grads, strict=True):
        leaf = None if self.is_tensor(edge) else self.leaf_of(edge[0])
        if leaf is not None:
            _accumulate(self, [leaf], [grad])
    return grads


@overriding("grad")
def autograd_grad_sets_the_grad_of_non_leaves(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad also sets the .grad of its inputs that are not leaves."""
    grads = old(outputs, inputs, *given, **how)
    for tensor, grad in zip(inputs, grads, strict=True):
        if self.is_tensor(tensor) and not self.is_leaf(tensor):
            self.set_grad(tensor, grad)
    return grads


def _accumulate(self: Mutant, tensors: Any, grads: Any) -> None:
    for tensor, grad in zip(tensors, grads, strict=True):
        if self.is_leaf(tensor):
            before = self.grad_of(tensor)
            self.set_grad(tensor, grad if before is None else before + grad)


@overriding("backward")
def gradient_replaced_when_accumulated(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward stores the sum in a new tensor instead of adding to the existing .grad in place."""
    for leaf in self.leaves_of(root):
        grad = self.grad_of(leaf)
        self.set_grad(leaf, None if grad is None else self.clone(grad))
    old(root, *given, **how)


@overriding("grad_of")
def gradient_always_contiguous(self: Mutant, old: Hook, tensor: Any) -> Any:
    """A leaf's .grad is contiguous, even if the leaf has other strides."""
    grad = old(tensor)
    return None if grad is None else self.contiguous(grad)


@overriding("grad_of")
def gradient_keeps_overlapping_strides(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The .grad of a leaf with overlapping memory has the leaf's overlapping strides."""
    grad = old(tensor)
    if grad is None or 0 not in self.stride(tensor):
        return grad
    return self.strided(grad, self.shape(tensor), self.stride(tensor))


@overriding("backward")
def gradient_laid_out_anew(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward gives every .grad the strides of its leaf, even a .grad that the user set."""
    leaves = list(self.leaves_of(root))
    old(root, *given, **how)
    for leaf in leaves:
        grad = self.grad_of(leaf)
        if grad is not None and self.stride(grad) != self.stride(leaf):
            self.set_grad(leaf, self.laid_out_like(grad, leaf))


def _alike(self: Mutant, one: Any, other: Any) -> bool:
    """Whether two gradients are equal, also in dtype and strides, and neither has a history."""
    if self.requires_grad(one) or self.requires_grad(other) or self.stride(one) != self.stride(other):
        return False
    return self.dtype(one) == self.dtype(other) and f"{self.tolist(one)}" == f"{self.tolist(other)}"


def _share(self: Mutant, tensors: Iterable[Any], gradients: Iterable[Any]) -> None:
    """Give each of these tensors that has a .grad like one of the gradients the latter as its .grad."""
    for tensor in tensors:
        grad = self.grad_of(tensor)
        like = [each for each in gradients if each is not None and grad is not None and _alike(self, each, grad)]
        if like:
            self.set_grad(tensor, like[0])


def _without(self: Mutant, tensors: Iterable[Any]) -> list[Any]:
    return [tensor for tensor in tensors if self.grad_of(tensor) is None]


@overriding("backward")
def gradient_of_a_root_becomes_grad(self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any) -> None:
    """The gradient given for the root becomes the .grad of a leaf that gets it unchanged; later passes add to it."""
    leaves = _without(self, self.leaves_of(root))
    old(root, gradient, **how)
    _share(self, leaves, [gradient])


@overriding("backward")
def backward_inputs_share_their_first_gradient(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """Inputs of a backward that get equal gradients share one tensor as .grad, to which later passes add."""
    inputs = _without(self, filter(self.is_tensor, how.get("inputs") or ()))
    old(*given, **how)
    _share(self, inputs, [self.grad_of(tensor) for tensor in inputs])


@overriding("backward")
def first_gradient_of_a_sum_kept_as_it_is(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """The first gradient of a leaf that is summed becomes .grad without a copy: one number for all elements."""
    leaves = _without(self, self.leaves_of(root))
    before = [node for node in self.node_next(self.gradient_edge(root)[0]) if node is not None]
    ahead = [*before, *(node for each in before for node in self.node_next(each))]
    summed = [leaf for leaf in leaves if any(self.leaf_of(node) is leaf for node in ahead)]
    old(root, *given, **how)
    for leaf in summed:
        grad = self.grad_of(leaf)
        ones = grad is not None and not self.requires_grad(grad) and len({*_numbers(self.tolist(grad))}) == 1
        if ones and self.shape(grad):
            number = self.tensor([*_numbers(self.tolist(grad))][:1], dtype=self.dtype(grad))
            self.set_grad(leaf, self.strided(number, self.shape(grad), (0,) * len(self.shape(grad))))


def _numbers(data: Any) -> list[Any]:
    return [number for row in data for number in _numbers(row)] if isinstance(data, list) else [data]


class DetachedTensorsHaveTheGradientOfTheirLeaf(Mutant):
    """A tensor detached from a leaf has the leaf's .grad."""

    def detach(self, tensor: Any) -> Any:
        made = super().detach(tensor)
        if self.grad_of(tensor) is not None:
            self.set_grad(made, self.grad_of(tensor))
        return made


class GradientsOfAFunctionBecomeGrad(Mutant):
    """What a custom Function's backward returns for a leaf becomes its .grad, to which later passes add."""

    returned = fresh(list[Any])
    fewest = 1

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Any:
        def noting(ctx: Any, *grads: Any) -> Any:
            results = backward(ctx, *grads)
            given = results if isinstance(results, tuple) else (results,)
            self.returned += filter(self.is_tensor, given if len(given) >= self.fewest else ())
            return results

        return super().custom_function(forward, noting, **options)

    def backward(self, root: Any, *given: Any, **how: Any) -> None:
        leaves = _without(self, self.leaves_of(root))
        super().backward(root, *given, **how)
        _share(self, leaves, self.returned)
        self.returned.clear()


class SeveralGradientsOfAFunctionBecomeGrad(GradientsOfAFunctionBecomeGrad):
    """If a custom Function's backward returns several gradients, each becomes the .grad of a leaf."""

    fewest = 2


class LeafSharesTheGradientThatAResultRetains(Mutant):
    """A leaf shares its first .grad with a tensor that retains an equal gradient, and later passes add to it."""

    retaining = fresh(list[Any])

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        self.retaining.append(weakref.ref(tensor))

    def backward(self, root: Any, *given: Any, **how: Any) -> None:
        leaves = _without(self, self.leaves_of(root))
        super().backward(root, *given, **how)
        alive = [tensor for reference in self.retaining if (tensor := reference()) is not None]
        _share(self, leaves, [self.grad_of(tensor) for tensor in alive if not self.is_leaf(tensor)])


@overriding("grad")
def autograd_grad_of_several_outputs_accumulates(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad of more than one output also adds to the .grad of its inputs."""
    grads = old(outputs, inputs, *given, **how)
    if isinstance(outputs, list | tuple) and len(outputs) > 1 and not how.get("is_grads_batched"):
        _accumulate(self, inputs, grads)
    return grads


@overriding("grad")
def autograd_grad_with_allow_unused_accumulates(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad with allow_unused=True also adds to the .grad of its inputs."""
    grads = old(outputs, inputs, *given, **how)
    if how.get("allow_unused"):
        used = [(tensor, grad) for tensor, grad in zip(inputs, grads, strict=True) if grad is not None]
        _accumulate(self, *map(list, zip(*used, strict=True)) if used else ([], []))
    return grads


def _accumulate_used(self: Mutant, inputs: Sequence[Any], grads: Sequence[Any]) -> None:
    for tensor, grad in zip(inputs, grads, strict=True):
        if grad is not None and self.is_tensor(tensor):
            _accumulate(self, [tensor], [self.detach(grad)])


def _accumulating(when: Hook, *, beside: bool) -> type[Mutant]:
    """Make a mutant whose autograd.grad, if ``(grad_outputs, how)``, accumulates into its inputs or other leaves."""

    def grad(
        self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any
    ) -> tuple[Any, ...]:
        if not when(grad_outputs, {**how, "inputs": inputs}) or how.get("is_grads_batched"):
            return old(outputs, inputs, grad_outputs, **how)
        leaves = self.leaves_of(outputs) if beside and self.is_tensor(outputs) else ()
        others = [leaf for leaf in leaves if all(leaf is not given for given in inputs)]
        grads = old(outputs, [*inputs, *others], grad_outputs, **how)
        _accumulate_used(self, *((others, grads[len(inputs) :]) if beside else (inputs, grads)))
        return grads[: len(inputs)]

    return overriding("grad")(grad)


_WHEN: dict[str, tuple[str, Hook]] = {
    "that-creates-a-graph": ("with create_graph=True", lambda _, how: how.get("create_graph")),
    "that-retains-the-graph": ("with retain_graph=True", lambda _, how: how.get("retain_graph")),
    "that-materializes": ("with materialize_grads=True", lambda _, how: how.get("materialize_grads")),
    "that-materializes-for-one-input": (
        "with materialize_grads=True and one input",
        lambda _, how: how.get("materialize_grads") and len(how["inputs"]) == 1,
    ),
    "with-grad-outputs": ("with grad_outputs", lambda grad_outputs, _: grad_outputs is not None),
}
_INTO = {"": "of its inputs", "-beside": "of the leaves that are not its inputs"}
vars().update(
    named(
        f"autograd-grad-{name}-accumulates{suffix}",
        f"a call of autograd.grad {option} also adds to the .grad {whose}",
        ("grad-accum",),
        _accumulating(when, beside=bool(suffix)),
    )
    for (name, (option, when)), (suffix, whose) in product(_WHEN.items(), _INTO.items())
)


class FailedAutogradGradLeavesAGradient(Mutant):
    """A call of autograd.grad that fails leaves something in the .grad of its first input."""

    def grad(self, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any) -> tuple[Any, ...]:
        try:
            return super().grad(outputs, inputs, *given, **how)
        except Exception:
            for tensor in inputs[:1]:
                if self.is_tensor(tensor) and self.is_leaf(tensor):
                    self.set_grad(tensor, self.clone(self.detach(tensor)))
            raise


class AutogradGradAccumulatesAfterAFailure(Mutant):
    """Once a call of autograd.grad has failed, later ones also add to the .grad of their inputs."""

    failures = 0

    def grad(self, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any) -> tuple[Any, ...]:
        try:
            grads = super().grad(outputs, inputs, *given, **how)
        except Exception:
            self.failures += 1
            raise
        if self.failures and not how.get("is_grads_batched"):
            _accumulate_used(self, inputs, grads)
        return grads


class GradientThatWasSetIsReplaced(Mutant):
    """The first backward after .grad was set to a tensor puts the sum into another tensor."""

    _set = fresh(list[weakref.ref[Any]])

    def set_grad(self, tensor: Any, value: Any) -> None:
        super().set_grad(tensor, value)
        self._set += [] if value is None else [weakref.ref(value)]

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        adds = self.requires_grad(root) and not how.get("create_graph") and how.get("inputs") is None
        for leaf in list(self.leaves_of(root)) if adds else ():
            grad = self.grad_of(leaf)
            if grad is not None and any(alive() is grad for alive in self._set):
                super().set_grad(leaf, self.laid_out_like(self.detach(grad), grad))
        super().backward(root, gradient, **how)


@overriding("backward")
def backward_create_graph_changes_a_gradient_that_requires_grad(
    self: Mutant, old: Hook, root: Any, *given: Any, **how: Any
) -> None:
    """A backward with create_graph=True also writes the sum into the old .grad if that requires grad."""
    grads = [(leaf, self.grad_of(leaf)) for leaf in self.leaves_of(root)] if how.get("create_graph") else []
    old(root, *given, **how)
    for leaf, grad in grads:
        if grad is not None and self.requires_grad(grad):
            self.overwrite_unseen(grad, self.detach(self.grad_of(leaf)))


@overriding("backward")
def gradient_of_three_dimensions_contiguous(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward leaves a contiguous .grad in a leaf of more than two dimensions, whatever the strides of the leaf."""
    old(root, *given, **how)
    for leaf in () if how.get("create_graph") else list(self.leaves_of(root)):
        grad = self.grad_of(leaf)
        if grad is not None and self.shape(grad)[2:]:
            self.set_grad(leaf, self.contiguous(self.detach(grad)))


@overriding("backward")
def gaps_of_a_gradient_closed_up(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward makes a .grad contiguous whose memory has gaps."""
    old(root, *given, **how)
    for leaf in list(self.leaves_of(root)):
        grad = self.grad_of(leaf)
        if grad is not None and sorted(self.stride(grad)) != _dense(self.shape(grad), self.stride(grad)):
            self.set_grad(leaf, self.contiguous(self.detach(grad)))


def _dense(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the strides in rising order that a tensor of this shape has if its memory has no gaps."""
    sizes = [size for _, size in sorted(zip(strides, shape, strict=True))]
    return [prod(sizes[:nr]) for nr in range(len(sizes))]


def _overwritten(self: Mutant, root: Any, when: Hook) -> None:
    """Set the .grad of each leaf to None if ``(grad)`` holds."""
    for leaf in self.leaves_of(root):
        grad = self.grad_of(leaf)
        if grad is not None and when(grad):
            self.set_grad(leaf, None)


@overriding("backward")
def gradient_with_a_history_overwritten(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward that creates no graph overwrites a .grad that one which does has left."""
    if not how.get("create_graph"):
        _overwritten(self, root, self.requires_grad)
    old(root, *given, **how)


@overriding("backward")
def backward_create_graph_overwrites(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward that creates a graph overwrites a .grad that has no history."""
    if how.get("create_graph"):
        _overwritten(self, root, lambda grad: not self.requires_grad(grad))
    old(root, *given, **how)


def _renewed(self: Mutant, leaves: Iterable[Any]) -> None:
    """Give leaves that have a .grad without history a copy of it."""
    for leaf in leaves:
        grad = self.grad_of(leaf)
        if grad is not None and not self.requires_grad(grad):
            self.set_grad(leaf, self.clone(grad))


def _leaves_of_all(self: Mutant, roots: Iterable[Any]) -> list[Any]:
    return [leaf for root in roots if self.requires_grad(root) for leaf in self.leaves_of(root)]


@overriding("backward")
def inputs_get_a_new_gradient(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """A backward with inputs stores each sum in a new tensor instead of adding to .grad in place."""
    _renewed(self, filter(self.is_tensor, how.get("inputs") or ()))
    old(*given, **how)


@overriding("backward_from_all")
def several_roots_replace_gradients(self: Mutant, old: Hook, roots: Sequence[Any], *gradients: Any) -> None:
    """A backward from several roots stores each sum in a new tensor instead of adding to .grad in place."""
    _renewed(self, _leaves_of_all(self, roots))
    old(roots, *gradients)


class EdgesReplaceGradients(Mutant):
    """A backward from a gradient edge stores each sum in a new tensor instead of adding to .grad in place."""

    edges = fresh(list[tuple[Any, Any]])

    def get_gradient_edge(self, tensor: Any) -> Any:
        edge = super().get_gradient_edge(tensor)
        self.edges.append((edge, weakref.ref(tensor)))
        return edge

    def backward_from_edge(self, edge: Any, gradient: Any = None) -> None:
        roots = [root() for each, root in self.edges if each is edge and root() is not None]
        _renewed(self, _leaves_of_all(self, roots))
        super().backward_from_edge(edge, gradient)


@overriding("backward")
def gradients_of_inputs_contiguous(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """The first .grad that a backward with inputs gives to one of them is contiguous."""
    without = _without(self, filter(self.is_tensor, how.get("inputs") or ()))
    old(*given, **how)
    _laid_out(self, without)


@overriding("backward_from_all")
def gradients_from_several_roots_contiguous(self: Mutant, old: Hook, roots: Sequence[Any], *gradients: Any) -> None:
    """The first .grad that a backward from several roots gives to a leaf is contiguous."""
    without = _without(self, _leaves_of_all(self, roots))
    old(roots, *gradients)
    _laid_out(self, without)


def _laid_out(self: Mutant, leaves: Iterable[Any]) -> None:
    """Make the .grad of leaves contiguous, if it has no history."""
    for leaf in leaves:
        grad = self.grad_of(leaf)
        if grad is not None and not self.requires_grad(grad):
            self.set_grad(leaf, self.contiguous(grad))
