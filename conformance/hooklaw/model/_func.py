"""Function transforms: the gradients of a function's arguments, which only the function's own computation reaches."""

from collections.abc import Callable, Sequence
from typing import Any

from hooklaw.model import engine
from hooklaw.model.hooks import Gradients
from hooklaw.model.modes import grad_mode, recording
from hooklaw.model.node import AccumulateGrad, Node
from hooklaw.model.record import record
from hooklaw.model.strided import filled
from hooklaw.model.tensor import Tensor

Function = Callable[..., Any]
HOW = engine.How(retain_graph=True, create_graph=True)


def func_grad(function: Function) -> Function:
    """Return the function that computes the gradient of this one with respect to its first argument."""

    def gradient(first: Tensor, *further: Any) -> Tensor:
        _, pullback = func_vjp(lambda argument: function(argument, *further), first)
        return pullback(None)[0]

    return gradient


def func_vjp(function: Function, *primals: Tensor) -> tuple[Any, Function]:
    """Return what the function returns, and a function from its gradients to those of its arguments.

    Grad mode is on inside, whatever it is outside; outside it decides whether the results can be differentiated.
    """
    outside = recording()
    with grad_mode(enabled=True):
        arguments = [_argument(primal, outside=outside) for primal in primals]
        results = function(*arguments)
    own = [argument for argument in arguments if argument.is_leaf]

    def pullback(cotangents: Any) -> tuple[Tensor, ...]:
        with grad_mode(enabled=True):
            grads = _gradients(_flat(results), tuple(_flat(cotangents)), arguments)
        return tuple(_outside(grad, own, outside=recording()) for grad in grads)

    return _mapped(results, lambda result: _outside(result, own, outside=outside)), pullback


def _argument(primal: Tensor, *, outside: bool) -> Tensor:
    """Return the function's own tensor for an argument, whose hooks are not those of the argument."""
    if outside and primal.requires_grad:
        return record("Alias", [primal], primal.data, lambda grad: (grad,))
    return primal.detach().requires_grad_()


def _gradients(results: Sequence[Tensor], cotangents: Gradients, arguments: Sequence[Tensor]) -> list[Tensor]:
    grads: Gradients = (None,) * len(arguments)
    if any(result.requires_grad for result in results):
        grads = engine.grad(results, cotangents, arguments, HOW)
    return [_zeros_like(argument) if grad is None else grad for grad, argument in zip(grads, arguments, strict=True)]


def _zeros_like(tensor: Tensor) -> Tensor:
    return Tensor(filled([0] * tensor.data.size, tensor.shape, tensor.dtype))


def _outside(tensor: Tensor, own: Sequence[Tensor], *, outside: bool) -> Tensor:
    """Return the tensor without its history if only the function's own arguments are behind it."""
    return tensor if outside and tensor.requires_grad and _has_other_leaves(tensor, own) else tensor.detach()


def _has_other_leaves(tensor: Tensor, own: Sequence[Tensor]) -> bool:
    ahead, seen = [tensor.needed_edge().node], set[Node]()
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, AccumulateGrad) and not any(node.leaf is leaf for leaf in own):
            return True
        ahead += [edge.node for edge in node.next_edges if edge]
    return False


def _mapped(value: Any, function: Function) -> Any:
    """Return a structure of dicts, lists and tuples with the function applied to each value in it."""
    if isinstance(value, dict):
        return {key: _mapped(part, function) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(part, function) for part in value)
    return function(value)


def _flat(value: Any) -> list[Any]:
    """Return the values in a structure; those of a dict are in the order of its sorted keys."""
    if isinstance(value, dict):
        return [each for key in sorted(value) for each in _flat(value[key])]
    return [each for part in value for each in _flat(part)] if isinstance(value, (list, tuple)) else [value]
