"""Mutants of what autograd.grad returns in the place of None."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class MaterializeGradsIgnored(Mutant):
    """The gradient of an unused input is None though it was to be materialized."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        if how.pop("materialize_grads", False):
            how.setdefault("allow_unused", True)
        return super().grad(outputs, inputs, grad_outputs, **how)


class MaterializeGradsAllowsUnusedInputs(Mutant):
    """Gradients are materialized though unused inputs were forbidden."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        if how.get("materialize_grads"):
            how["allow_unused"] = True
        return super().grad(outputs, inputs, grad_outputs, **how)
