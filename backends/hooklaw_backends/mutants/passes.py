"""Mutants that ignore or misread the roots, inputs and options of a backward."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Passes

Inputs = Sequence[Any] | None


class BackwardInputsIgnored(Mutant):
    """backward accumulates into all leaves, even if inputs are given."""

    def backward(self, root: Any, gradient: Any = None, *, inputs: Inputs = None, **how: Any) -> None:  # noqa: ARG002 - that is the vice
        super().backward(root, gradient, **how)


class BackwardInputsTakeLeavesAlone(Mutant):
    """backward accumulates no gradient into inputs that are not leaves."""

    def backward(self, root: Any, gradient: Any = None, *, inputs: Inputs = None, **how: Any) -> None:
        leaves = inputs and [tensor for tensor in inputs if self.is_leaf(tensor)]
        if leaves or not inputs:
            super().backward(root, gradient, inputs=leaves, **how)


class BackwardInputsCountRetainedGradientsTwice(Mutant):
    """backward counts the gradient twice for an input that retains its gradient."""

    def backward(self, root: Any, gradient: Any = None, *, inputs: Inputs = None, **how: Any) -> None:
        retaining = [tensor for tensor in inputs or () if not self.is_leaf(tensor) and self.retains_grad(tensor)]
        super().backward(root, gradient, inputs=inputs, **how)
        for tensor in retaining:
            self.set_grad(tensor, self.grad_of(tensor) * 2)


class GradientOfARootIsOnes(Mutant):
    """backward starts from ones, even if a gradient is given."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:  # noqa: ARG002 - that is the vice
        super().backward(root, self.mapped(root, lambda _: 1.0) if self.shape(root) else None, **how)


class GradientOfARootBroadcast(Mutant):
    """A root gradient of the wrong shape is broadcast instead of raising an error."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if gradient is not None and self.shape(gradient) != self.shape(root):
            gradient = self.mapped(root, lambda _: 0.0) + gradient
        super().backward(root, gradient, **how)


class BackwardFromAConstantDoesNothing(Mutant):
    """A backward from a tensor that does not require grad does nothing instead of raising an error."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if self.requires_grad(root):
            super().backward(root, gradient, **how)


class _Unused(Mutant):
    """A mutant that finds a gradient for inputs that autograd.grad did not use."""

    def found(self, tensor: Any) -> Any:
        raise NotImplementedError

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        pairs = zip(inputs, grads, strict=True)
        return tuple(self.found(tensor) if grad is None else grad for tensor, grad in pairs)


class UnusedInputsGetZeros(_Unused):
    """autograd.grad returns zeros instead of None for an unused input."""

    def found(self, tensor: Any) -> Any:
        return self.mapped(tensor, lambda _: 0.0)


class HooksOfUnusedInputsRun(_Unused):
    """autograd.grad runs the hooks of an unused input on zeros."""

    def found(self, tensor: Any) -> None:
        for hook in list((self.hooks_of(tensor) or {}).values()):
            hook(self.mapped(tensor, lambda _: 0.0))


class UnusedInputsAlwaysAllowed(Mutant):
    """An unused input of autograd.grad is never an error, even without allow_unused=True."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{**how, "allow_unused": True})


class UnusedInputsNeverAllowed(Mutant):
    """An unused input of autograd.grad is an error even with allow_unused=True."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{**how, "allow_unused": False})


class CreateGraphIgnored(Mutant):
    """autograd.grad ignores create_graph=True, except that it retains the graph."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        kept: dict[str, Any] = {
            **how,
            "create_graph": False,
            "retain_graph": how.get("create_graph") or how.get("retain_graph"),
        }
        return super().grad(outputs, inputs, grad_outputs, **kept)


class CreateGraphAlways(Mutant):
    """autograd.grad always behaves as with create_graph=True."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{**how, "create_graph": True})


class BackwardCreatesNoGraph(Mutant):
    """backward ignores create_graph=True."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        plain: dict[str, Any] = {**how, "create_graph": False}
        super().backward(root, gradient, **plain)


class BackwardInsideAHookRefused(Passes):
    """A backward inside a hook of another backward is an error."""

    running = False

    def around(self, run: Hook) -> Any:
        if self.running:
            raise RuntimeError("a backward was run inside another backward")
        self.running = True
        try:
            return run()
        finally:
            self.running = False


class MaterializeGradsIgnored(Mutant):
    """autograd.grad returns None for an unused input even with materialize_grads=True."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        if how.pop("materialize_grads", False):
            how.setdefault("allow_unused", True)
        return super().grad(outputs, inputs, grad_outputs, **how)


class MaterializeGradsAllowsUnusedInputs(Mutant):
    """autograd.grad accepts materialize_grads=True together with allow_unused=False."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        if how.get("materialize_grads"):
            how["allow_unused"] = True
        return super().grad(outputs, inputs, grad_outputs, **how)
