"""Mutants that take the roots, the inputs or the options of a backward for others."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Passes

Inputs = Sequence[Any] | None


class BackwardInputsIgnored(Mutant):
    """backward accumulates in all leaves, whatever inputs it is given."""

    def backward(self, root: Any, gradient: Any = None, *, inputs: Inputs = None, **how: Any) -> None:  # noqa: ARG002 - that is the vice
        super().backward(root, gradient, **how)


class BackwardInputsTakeLeavesAlone(Mutant):
    """Inputs of backward that are no leaves get no gradient."""

    def backward(self, root: Any, gradient: Any = None, *, inputs: Inputs = None, **how: Any) -> None:
        leaves = inputs and [one for one in inputs if self.is_leaf(one)]
        if leaves or not inputs:
            super().backward(root, gradient, inputs=leaves, **how)


class BackwardInputsCountRetainedGradientsTwice(Mutant):
    """An input of backward that retains its gradient adds it up twice."""

    def backward(self, root: Any, gradient: Any = None, *, inputs: Inputs = None, **how: Any) -> None:
        retaining = [one for one in inputs or () if not self.is_leaf(one) and self.retains_grad(one)]
        super().backward(root, gradient, inputs=inputs, **how)
        for one in retaining:
            self.set_grad(one, self.grad_of(one) * 2)


class GradientOfARootIsOnes(Mutant):
    """backward starts with ones, whatever gradient it is given."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:  # noqa: ARG002 - that is the vice
        super().backward(root, self.mapped(root, lambda _: 1.0) if self.shape(root) else None, **how)


class GradientOfARootBroadcast(Mutant):
    """The gradient of a root that has another shape is repeated until it fits."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if gradient is not None and self.shape(gradient) != self.shape(root):
            gradient = self.mapped(root, lambda _: 0.0) + gradient
        super().backward(root, gradient, **how)


class BackwardFromAConstantDoesNothing(Mutant):
    """A backward from a tensor that does not require grad returns at once."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if self.requires_grad(root):
            super().backward(root, gradient, **how)


class _Unused(Mutant):
    """Knows which inputs of autograd.grad were not used."""

    def found(self, tensor: Any) -> Any:
        raise NotImplementedError

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        return tuple(self.found(one) if grad is None else grad for one, grad in zip(inputs, grads, strict=True))


class UnusedInputsGetZeros(_Unused):
    """The gradient of an input that was not used is zeros."""

    def found(self, tensor: Any) -> Any:
        return self.mapped(tensor, lambda _: 0.0)


class HooksOfUnusedInputsRun(_Unused):
    """The hooks of an input that was not used run, on zeros."""

    def found(self, tensor: Any) -> None:
        for hook in list((self.hooks_of(tensor) or {}).values()):
            hook(self.mapped(tensor, lambda _: 0.0))


class UnusedInputsAlwaysAllowed(Mutant):
    """An input that was not used is no error, whether or not that was allowed."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{**how, "allow_unused": True})


class UnusedInputsNeverAllowed(Mutant):
    """An input that was not used is an error, whether or not that was allowed."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{**how, "allow_unused": False})


class CreateGraphIgnored(Mutant):
    """autograd.grad returns gradients without a history, and keeps the graph."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        kept: dict[str, Any] = {
            **how,
            "create_graph": False,
            "retain_graph": how.get("create_graph") or how.get("retain_graph"),
        }
        return super().grad(outputs, inputs, grad_outputs, **kept)


class CreateGraphAlways(Mutant):
    """autograd.grad returns gradients with a history though nobody asked for it."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{**how, "create_graph": True})


class BackwardCreatesNoGraph(Mutant):
    """backward accumulates gradients without a history."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        plain: dict[str, Any] = {**how, "create_graph": False}
        super().backward(root, gradient, **plain)


class BackwardInsideAHookRefused(Passes):
    """A backward cannot be run inside another one."""

    running = False

    def around(self, run: Hook) -> Any:
        if self.running:
            raise RuntimeError("a backward was run inside another one")
        self.running = True
        try:
            return run()
        finally:
            self.running = False


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
