"""Mutants of autograd.grad that are wrong for scalar outputs, repeated outputs, or unused inputs of one kind."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.batches import batched


def _is_several(values: Any) -> bool:
    return type(values) in {list, tuple}


def _listed(values: Any) -> list[Any]:
    return list(values) if _is_several(values) else [values]


def _is_scalar(self: Mutant, value: Any) -> bool:
    return self.is_tensor(value) and not self.shape(value)


@overriding("grad")
def gradients_of_scalar_outputs_are_one(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad starts from 1 at a scalar output, even if a gradient is given for it."""
    if grad_outputs is not None and not how.get("is_grads_batched"):
        pairs = zip(_listed(outputs), _listed(grad_outputs), strict=True)
        grad_outputs = [None if _is_scalar(self, output) else gradient for output, gradient in pairs]
    return old(outputs, inputs, grad_outputs, **how)


@overriding("grad")
def grad_outputs_are_none_if_the_first_is(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad takes grad_outputs whose first is None for none at all."""
    return old(outputs, inputs, None if _listed(grad_outputs)[0] is None else grad_outputs, **how)


@overriding("grad")
def grad_outputs_of_none_alone_refused(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad refuses grad_outputs that have nothing but None."""
    if _is_several(grad_outputs) and all(gradient is None for gradient in grad_outputs):
        raise self.errors.get(ErrorKind.ROOT_GRADIENT, (RuntimeError,))[0]("there is no gradient among grad_outputs")
    return old(outputs, inputs, grad_outputs, **how)


@overriding("grad")
def an_output_given_twice_counts_once(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad starts once at an output that it is given twice."""
    if not _is_several(outputs):
        return old(outputs, inputs, grad_outputs, **how)
    kept = [nr for nr, output in enumerate(outputs) if not any(output is other for other in outputs[:nr])]
    gradients = [grad_outputs[nr] for nr in kept] if _is_several(grad_outputs) else grad_outputs
    return old([outputs[nr] for nr in kept], inputs, gradients, **how)


@overriding("grad")
def unused_inputs_alone_never_allowed(self: Mutant, old: Hook, *given: Any, **how: Any) -> tuple[Any, ...]:
    """With allow_unused=True it is an error all the same if every input of autograd.grad is unused."""
    found = old(*given, **how)
    if all(grad is None for grad in found):
        raise self.errors.get(ErrorKind.UNUSED_INPUT, (RuntimeError,))[0]("no input is used")
    return found


@overriding("grad")
def unused_inputs_alone_not_materialized(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> tuple[Any, ...]:
    """With materialize_grads=True the gradients are None if every input of autograd.grad is unused."""
    if not how.get("materialize_grads") or how.get("allow_unused") is False or not all(map(self.is_tensor, inputs)):
        return old(outputs, inputs, *given, **how)
    how |= {"materialize_grads": False, "allow_unused": True}
    found = old(outputs, inputs, *given, **how)
    if all(grad is None for grad in found):
        return found
    pairs = zip(inputs, found, strict=True)
    return tuple(self.zeros_like(tensor) if grad is None else grad for tensor, grad in pairs)


def materializing(step: Callable[[Mutant, Any, int], Any]) -> type[Mutant]:
    """Make a mutant whose autograd.grad returns ``(self, tensor, nr)`` for an unused input, with its number, from 0.

    It does so with materialize_grads=True.
    """

    def all_of(self: Mutant, inputs: Any, found: tuple[Any, ...]) -> Iterator[Any]:
        unused = 0
        for tensor, grad in zip(inputs, found, strict=True):
            yield step(self, tensor, unused) if grad is None else grad
            unused += grad is None

    @wraps(step)
    def grad(self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any) -> tuple[Any, ...]:
        if not how.get("materialize_grads") or how.get("allow_unused") is False or not all(map(self.is_tensor, inputs)):
            return old(outputs, inputs, *given, **how)
        how |= {"materialize_grads": False, "allow_unused": True}
        return tuple(all_of(self, inputs, old(outputs, inputs, *given, **how)))

    return overriding("grad")(grad)


@materializing
def first_unused_input_alone_materialized(self: Mutant, tensor: Any, nr: int) -> Any:
    """autograd.grad with materialize_grads=True returns zeros for the first unused input alone."""
    return None if nr else self.zeros_like(tensor)


@materializing
def unused_scalars_not_materialized(self: Mutant, tensor: Any, _: int) -> Any:
    """autograd.grad with materialize_grads=True returns None for an unused scalar."""
    return self.zeros_like(tensor) if self.shape(tensor) else None


@materializing
def materialized_zeros_have_a_dimension(self: Mutant, tensor: Any, _: int) -> Any:
    """autograd.grad with materialize_grads=True returns zeros with one dimension for an unused scalar."""
    return self.zeros_like(tensor) if self.shape(tensor) else self.tensor([0.0], dtype=self.dtype(tensor))


@materializing
def unused_intermediates_not_materialized(self: Mutant, tensor: Any, _: int) -> Any:
    """autograd.grad with materialize_grads=True returns None for an unused input that is not a leaf."""
    return self.zeros_like(tensor) if self.is_leaf(tensor) else None


@batched
def batches_of_one_row_lose_their_dimension(self: Mutant, old: Hook, outputs: Any, inputs: Any, batches: Any) -> Any:
    """autograd.grad returns a single product for a batch of one row."""
    products = old(outputs, inputs, batches, is_grads_batched=True)
    if len(self.tolist(batches[0])) > 1:
        return products
    return tuple(self.tensor(self.tolist(product)[0]) for product in products)


@overriding("grad")
def batches_of_scalar_outputs_summed(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad sums the batch of gradients of a scalar output instead of returning a product for each."""
    if not how.get("is_grads_batched") or not _is_scalar(self, outputs):
        return old(outputs, inputs, grad_outputs, **how)
    return old(outputs, inputs, self.sum(grad_outputs), **{**how, "is_grads_batched": False})


@overriding("grad")
def edges_need_grad_outputs(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad with a gradient edge as an output is an error without a gradient for it."""
    starts = _listed(outputs)
    gradients = [None] * len(starts) if grad_outputs is None else _listed(grad_outputs)
    pairs = zip(starts, gradients, strict=True)
    if any(gradient is None and _is_edge(self, start) for start, gradient in pairs):
        raise self.errors.get(ErrorKind.ROOT_GRADIENT, (RuntimeError,))[0]("an edge needs a gradient")
    return old(outputs, inputs, grad_outputs, **how)


def _is_edge(self: Mutant, start: Any) -> bool:
    return not self.is_tensor(start) and not _is_several(start)


@overriding("grad")
def leaves_have_no_gradient_of_their_own(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """A leaf that is an output of autograd.grad, and an input, gets only what other outputs send it."""
    found = old(outputs, inputs, grad_outputs, **how)
    if not _is_several(outputs) or grad_outputs is not None:
        return found
    own = [self.is_tensor(each) and self.is_leaf(each) and any(each is output for output in outputs) for each in inputs]
    return tuple(grad - 1 if is_own else grad for grad, is_own in zip(found, own, strict=True))


@overriding("grad", "backward_from_edge")
def scalar_gradients_of_edges_unchecked(self: Mutant, old: Hook, start: Any, *given: Any, **how: Any) -> Any:
    """A gradient without dimensions for a gradient edge is no error, whatever the shape of the edge's tensor is."""
    gradient = given[-1] if given else None
    if not _is_edge(self, start) or not _is_scalar(self, gradient):
        return old(start, *given, **how)
    with suppress(RuntimeError):
        return old(start, *given, **how)


@overriding("grad")
def an_input_given_twice_has_one_gradient(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad returns None for an input that it is given a second time."""
    found = old(outputs, inputs, *given, **how)
    return tuple(
        None if any(tensor is other for other in inputs[:nr]) else grad
        for nr, (tensor, grad) in enumerate(zip(inputs, found, strict=True))
    )


@overriding("grad")
def grad_outputs_of_an_input_ignored(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """An output that is an input, too, counts nothing among several outputs of autograd.grad."""
    if type(outputs) not in {list, tuple} or grad_outputs is None:
        return old(outputs, inputs, grad_outputs, **how)
    pairs = [pair for pair in zip(outputs, grad_outputs, strict=True) if all(pair[0] is not each for each in inputs)]
    kept, seeds = zip(*pairs, strict=True) if pairs else (outputs, grad_outputs)
    return old(kept, inputs, seeds, **how)


def _are_branches(self: Mutant, outputs: Any, inputs: Any) -> list[bool]:
    """Return for each input of autograd.grad whether it is a non-leaf of a leaf on which an output depends."""
    roots = [root for root in _listed(outputs) if self.is_tensor(root) and self.requires_grad(root)]
    used = [leaf for root in roots for leaf in self.leaves_of(root)]

    def is_branch(tensor: Any) -> bool:
        if not self.is_tensor(tensor) or self.is_leaf(tensor):
            return False
        return any(leaf is each for leaf in self.leaves_of(tensor) for each in used)

    return [is_branch(tensor) for tensor in inputs]


@overriding("grad")
def unused_branches_of_used_leaves_allowed(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> tuple[Any, ...]:
    """An unused non-leaf among the inputs of autograd.grad is no error if the outputs depend on its leaf."""
    are_branches = _are_branches(self, outputs, inputs)
    try:
        return old(outputs, inputs, *given, **how)
    except self.errors.get(ErrorKind.UNUSED_INPUT, (RuntimeError,)):
        if how.get("materialize_grads") or not any(are_branches):
            raise
        rest = [tensor for tensor, is_branch in zip(inputs, are_branches, strict=True) if not is_branch]
        found = iter(old(outputs, rest, *given, **how) if rest else ())
        return tuple(None if is_branch else next(found) for is_branch in are_branches)


@overriding("grad")
def unused_branches_of_used_leaves_get_zeros(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad with allow_unused=True returns zeros for an unused non-leaf if the outputs depend on its leaf."""
    are_branches = _are_branches(self, outputs, inputs)
    found = zip(inputs, old(outputs, inputs, *given, **how), are_branches, strict=True)
    return tuple(self.zeros_like(tensor) if grad is None and is_branch else grad for tensor, grad, is_branch in found)
