"""Mutants that confuse requires_grad, is_leaf and detach."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Passes, Products


class ResultRequiresGradWithItsFirstInput(Products):
    """A product requires grad only if its first factor does."""

    def product(self, multiply: Hook, left: Any, right: Any) -> Any:
        made = multiply(left, right)
        return made if self.requires_grad(left) else self.detach(made)


class ConstantsAreRecorded(Products):
    """A product requires grad even if neither factor does."""

    def product(self, multiply: Hook, left: Any, right: Any) -> Any:
        made = multiply(left, right)
        return self.requires_grad_(made) if self.is_floating(made) else made


class FlagOfANonLeafIsSet(Mutant):
    """requires_grad of a non-leaf tensor can be set to False."""

    def __init__(self) -> None:
        super().__init__()
        self._told: list[Any] = []

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        if requires_grad or self.is_leaf(tensor):
            super().set_requires_grad(tensor, requires_grad=requires_grad)
        else:
            self._told.append(tensor)

    def requires_grad(self, tensor: Any) -> bool:
        return super().requires_grad(tensor) and all(tensor is not told for told in self._told)


class FlagOfANonLeafIsIgnored(Mutant):
    """Setting requires_grad of a non-leaf tensor to False does nothing instead of raising an error."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        with suppress(RuntimeError):
            super().set_requires_grad(tensor, requires_grad=requires_grad)


class FreezingHasNoEffect(Mutant):
    """Setting requires_grad of a leaf to False has no effect."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        if requires_grad or not self.is_leaf(tensor):
            super().set_requires_grad(tensor, requires_grad=requires_grad)


class FrozenForGood(Mutant):
    """Once requires_grad of a leaf was set to False, it cannot be set to True again."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        if not requires_grad:
            super().set_requires_grad(tensor, requires_grad=False)


class ParametersAreFrozen(Mutant):
    """The parameters of a module do not require grad."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = super().module(parameters, forward)
        for name in parameters:
            self.set_requires_grad(getattr(made, name), requires_grad=False)
        return made


class EveryTensorRequiresGrad(Mutant):
    """A floating-point tensor requires grad by default."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        return super().tensor(data, requires_grad=requires_grad or "float" in dtype, dtype=dtype)


class _Made(Mutant):
    """A mutant that knows the tensors that the user created."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        self.made.append(super().tensor(data, requires_grad=requires_grad, dtype=dtype))
        return self.made[-1]


class ResultsAreNeverLeaves(_Made):
    """The result of an operation is never a leaf, even if it does not require grad."""

    def is_leaf(self, tensor: Any) -> bool:
        return any(tensor is made for made in self.made)


class ResultsAreLeavesToo(Mutant):
    """Every tensor is a leaf."""

    def is_leaf(self, tensor: Any) -> bool:  # noqa: ARG002 - that is the vice
        return True


class LeafOnlyWithoutRequiresGrad(Mutant):
    """A tensor that requires grad is never a leaf."""

    def is_leaf(self, tensor: Any) -> bool:
        return not self.requires_grad(tensor)


class ConstantsAccumulateZeros(_Made, Passes):
    """After a backward a tensor that does not require grad has a .grad of zeros."""

    def around(self, run: Hook) -> Any:
        made, self.made = self.made, []
        result = run()
        for tensor in made:
            if self.is_floating(tensor) and not self.requires_grad(tensor):
                self.set_grad(tensor, self.mapped(tensor, lambda _: 0.0))
        return result


class DetachCopies(Mutant):
    """detach copies the data instead of sharing it."""

    def detach(self, tensor: Any) -> Any:
        return super().detach(self.clone(tensor))


class DetachKeepsTheHistory(Mutant):
    """A detached tensor still requires grad."""

    def detach(self, tensor: Any) -> Any:
        return self.clone(tensor)
