"""Mutants that are wrong about the gradients of roots and outputs of one element: their shape, or their absence."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, overriding

Shape = tuple[int, ...]
WITH_A_DIMENSION, WITHOUT = (1,), ()


def _listed(values: Any) -> list[Any]:
    return list(values) if type(values) in {list, tuple} else [values]


def _fitted(self: Mutant, tensors: Iterable[Any], gradients: Iterable[Any], right: Shape, given: Shape) -> list[Any]:
    """Return gradients of which one of a shape is 1 in another shape, if this is its tensor's."""

    def fits(tensor: Any, gradient: Any) -> bool:
        both = gradient is not None and self.is_tensor(tensor)
        return both and self.shape(tensor) == right and self.shape(gradient) == given

    one = self.tensor([1.0] if right else 1.0)
    return [one if fits(*pair) else pair[1] for pair in zip(tensors, gradients, strict=True)]


@overriding("backward_from_all")
def gradients_of_several_scalars_may_have_a_dimension(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors accepts a vector of one element as the gradient of a scalar."""
    old(roots, gradients and _fitted(self, roots, gradients, WITHOUT, WITH_A_DIMENSION))


@overriding("backward_from_all")
def gradients_of_several_vectors_may_be_scalars(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors accepts a scalar as the gradient of a vector of one element."""
    old(roots, gradients and _fitted(self, roots, gradients, WITH_A_DIMENSION, WITHOUT))


@overriding("grad")
def grad_outputs_of_scalars_may_have_a_dimension(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad accepts a vector of one element as the gradient of a scalar output."""
    if grad_outputs is not None and not how.get("is_grads_batched"):
        grad_outputs = _fitted(self, _listed(outputs), _listed(grad_outputs), WITHOUT, WITH_A_DIMENSION)
    return old(outputs, inputs, grad_outputs, **how)


@overriding("grad")
def grad_outputs_of_vectors_may_be_scalars(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad accepts a scalar as the gradient of an output that is a vector of one element."""
    if grad_outputs is not None and not how.get("is_grads_batched"):
        grad_outputs = _fitted(self, _listed(outputs), _listed(grad_outputs), WITH_A_DIMENSION, WITHOUT)
    return old(outputs, inputs, grad_outputs, **how)


def fitting(change: Callable[[Mutant, Any], Any]) -> type[Mutant]:
    """Make a mutant that gives ``(self, gradient)`` to an edge if a pass from it fails, unless it is None."""

    @wraps(change)
    def run(self: Mutant, old: Hook, start: Any, *given: Any, **how: Any) -> Any:
        try:
            return old(start, *given, **how)
        except RuntimeError:
            is_edge = not self.is_tensor(start) and type(start) not in {list, tuple}
            changed = change(self, given[-1]) if is_edge and given and given[-1] is not None else None
            if changed is None:
                raise
            return old(start, *given[:-1], changed, **how)

    return overriding("grad", "backward_from_edge")(run)


@fitting
def gradients_of_edges_of_scalars_may_have_a_dimension(self: Mutant, gradient: Any) -> Any:
    """A vector of one element is no error as the gradient of the edge of a scalar."""
    return self.tensor(self.tolist(gradient)[0]) if self.shape(gradient) == WITH_A_DIMENSION else None


@fitting
def gradients_of_edges_lose_a_dimension_of_one_row(self: Mutant, gradient: Any) -> Any:
    """A matrix of one row is no error as the gradient of the edge of a vector."""
    return self.tensor(self.tolist(gradient)[0]) if self.shape(gradient)[:-1] == WITH_A_DIMENSION else None


def _without(self: Mutant, roots: Sequence[Any], gradients: Iterable[Any]) -> Iterator[Any]:
    """Yield each root that requires grad and has no gradient."""
    for root, gradient in zip(roots, gradients, strict=True):
        if gradient is None and self.is_tensor(root) and self.requires_grad(root):
            yield root


def _refused(self: Mutant) -> BaseException:
    return self.errors.get(ErrorKind.ROOT_GRADIENT, (RuntimeError,))[0]("a root needs a gradient")


@overriding("backward_from_all")
def scalars_need_gradients_after_one_that_has_one(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors is an error if a scalar has no gradient and one before it has."""
    has = [nr for nr, gradient in enumerate(gradients or []) if gradient is not None]
    if has and gradients is not None and [*_without(self, roots[has[0] :], gradients[has[0] :])]:
        raise _refused(self)
    old(roots, gradients)


@overriding("backward_from_all")
def only_scalars_without_dimensions_need_no_gradient_among_others(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors with gradients is an error if a vector of one element has none."""
    if gradients is not None and any(map(self.shape, _without(self, roots, gradients))):
        raise _refused(self)
    old(roots, gradients)


@overriding("grad")
def only_outputs_without_dimensions_are_scalars(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad is an error if an output that is a vector of one element has no gradient."""
    starts = _listed(outputs)
    seeds = [None] * len(starts) if grad_outputs is None else _listed(grad_outputs)
    if any(map(self.shape, _without(self, starts, seeds))):
        raise _refused(self)
    return old(outputs, inputs, grad_outputs, **how)


@overriding("grad")
def only_several_outputs_without_dimensions_are_scalars(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad of several outputs is an error if one that is a vector of one element has no gradient."""
    starts = _listed(outputs)
    seeds = [None] * len(starts) if grad_outputs is None else _listed(grad_outputs)
    if len(starts) > 1 and any(map(self.shape, _without(self, starts, seeds))):
        raise _refused(self)
    return old(outputs, inputs, grad_outputs, **how)
