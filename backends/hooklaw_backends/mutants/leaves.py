"""Mutants that mistake which tensors require grad, which are leaves, and what it means to be detached."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Passes


class ResultRequiresGradWithItsFirstInput(Mutant):
    """A product requires grad only if its first factor does."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def product(multiply: Hook, left: Any, right: Any) -> Any:
            made = multiply(left, right)
            return made if self.requires_grad(left) else self.detach(made)

        with self.products_by(product):
            return super().call(fn, *tensors)


class ConstantsAreRecorded(Mutant):
    """A product requires grad even if neither of its factors does."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def product(multiply: Hook, left: Any, right: Any) -> Any:
            made = multiply(left, right)
            return self.requires_grad_(made) if self.is_floating(made) else made

        with self.products_by(product):
            return super().call(fn, *tensors)


class FlagOfANonLeafIsSet(Mutant):
    """A tensor that operations made can be told not to require grad."""

    def __init__(self) -> None:
        super().__init__()
        self._told: list[Any] = []

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        if requires_grad or self.is_leaf(tensor):
            super().set_requires_grad(tensor, requires_grad=requires_grad)
        else:
            self._told.append(tensor)

    def requires_grad(self, tensor: Any) -> bool:
        return super().requires_grad(tensor) and all(tensor is not one for one in self._told)


class FlagOfANonLeafIsIgnored(Mutant):
    """To tell a tensor that operations made not to require grad is no error, and has no effect."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        with suppress(RuntimeError):
            super().set_requires_grad(tensor, requires_grad=requires_grad)


class FreezingHasNoEffect(Mutant):
    """A leaf cannot be told not to require grad."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        if requires_grad or not self.is_leaf(tensor):
            super().set_requires_grad(tensor, requires_grad=requires_grad)


class FrozenForGood(Mutant):
    """A leaf that was told not to require grad never does again."""

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
    """A tensor requires grad though nobody asked for it."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        return super().tensor(data, requires_grad=requires_grad or "float" in dtype, dtype=dtype)


class _Made(Mutant):
    """Knows the tensors that the user made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        self.made.append(super().tensor(data, requires_grad=requires_grad, dtype=dtype))
        return self.made[-1]


class ResultsAreNeverLeaves(_Made):
    """No tensor but those that the user made is a leaf."""

    def is_leaf(self, tensor: Any) -> bool:
        return any(tensor is one for one in self.made)


class ResultsAreLeavesToo(Mutant):
    """Every tensor is a leaf."""

    def is_leaf(self, tensor: Any) -> bool:  # noqa: ARG002 - that is the vice
        return True


class LeafOnlyWithoutRequiresGrad(Mutant):
    """A tensor that requires grad is no leaf."""

    def is_leaf(self, tensor: Any) -> bool:
        return not self.requires_grad(tensor)


class ConstantsAccumulateZeros(_Made, Passes):
    """After a backward a tensor that does not require grad has zeros for its gradient."""

    def around(self, run: Hook) -> Any:
        made, self.made = self.made, []
        result = run()
        for one in made:
            if self.is_floating(one) and not self.requires_grad(one):
                self.set_grad(one, self.mapped(one, lambda _: 0.0))
        return result


class DetachCopies(Mutant):
    """A detached tensor has data of its own."""

    def detach(self, tensor: Any) -> Any:
        return super().detach(self.clone(tensor))


class DetachKeepsTheHistory(Mutant):
    """A detached tensor requires grad as the one does that it was detached from."""

    def detach(self, tensor: Any) -> Any:
        return self.clone(tensor)
