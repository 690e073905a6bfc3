"""Switches of many tensors at once: the parameters of a module, and those of an optimizer."""

from collections.abc import Iterable, Iterator
from typing import Any

from hooklaw.model.tensor import Tensor


def train(module: Any, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's own argument
    """Put a module and its submodules in training mode, or in evaluation mode; return the module."""
    for each in _modules(module):
        each.training = mode
    return module


def module_requires_grad_(module: Any, requires_grad: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's own argument
    """Set ``requires_grad`` of the parameters of a module and its submodules; return the module."""
    for parameter in _parameters(module):
        set_requires_grad(parameter, requires_grad=requires_grad)
    return module


def module_zero_grad(module: Any, *, set_to_none: bool = True) -> None:
    """Reset the gradients of the parameters of a module and its submodules."""
    zero_grad(_parameters(module), set_to_none=set_to_none)


def zero_grad(parameters: Iterable[Tensor], *, set_to_none: bool) -> None:
    """Set the gradients to None, or fill them with zeros and detach them."""
    for parameter in parameters:
        if set_to_none or parameter.grad is None:
            parameter.grad = None
        else:
            if parameter.grad.requires_grad:
                parameter.grad.detach_()
            parameter.grad.data.write([0] * parameter.grad.data.size)


def set_requires_grad(tensor: Tensor, *, requires_grad: bool) -> None:
    """Set ``requires_grad`` of a tensor; RuntimeError if it is to be turned off and the tensor has a history."""
    if not (requires_grad or tensor.is_leaf):
        raise RuntimeError("requires_grad can be turned off for leaves only")
    if requires_grad:
        tensor.requires_grad_()
    else:
        vars(tensor)["_is_leaf_with_grad"] = False


def _modules(module: Any) -> Iterator[Any]:
    yield module
    for child in module.children().values():
        yield from _modules(child)


def _parameters(module: Any) -> Iterator[Tensor]:
    for each in _modules(module):
        yield from each.registered["parameter"].values()
