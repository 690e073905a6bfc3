"""Mutants whose backward loses or overwrites the gradient of some of the non-leaves among its inputs."""

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.passes import Inputs
from hooklaw_backends.mutants.shared import KnowsLastOutputs
from hooklaw_backends.mutants.situations import Acting, Knowing


def losing(step: Hook) -> type[Mutant]:
    """Make a mutant whose backward leaves the .grad of a non-leaf input if ``(self, tensor, options)`` says so."""

    @wraps(step)
    def backward(self: Mutant, old: Hook, *given: Any, inputs: Inputs = None, **how: Any) -> None:
        lost = [
            (tensor, self.grad_of(tensor))
            for tensor in inputs or ()
            if self.is_tensor(tensor) and not self.is_leaf(tensor) and step(self, tensor, how)
        ]
        old(*given, inputs=inputs, **how)
        for tensor, grad in lost:
            self.set_grad(tensor, grad)

    return overriding("backward", base=Acting)(backward)


@losing
def non_leaf_inputs_lost_in_no_grad(self: Knowing, _tensor: Any, _how: Mapping[str, Any]) -> bool:
    """A backward in no_grad gives no gradient to a non-leaf among its inputs."""
    return not self.is_grad_enabled()


@losing
def non_leaf_inputs_lost_in_another_thread(self: Acting, _tensor: Any, _how: Mapping[str, Any]) -> bool:
    """A backward in another thread than the first gives no gradient to a non-leaf among its inputs."""
    return self.registration("backward").thread != self.home


@losing
def non_leaf_inputs_lost_in_a_pass(self: Knowing, _tensor: Any, _how: Mapping[str, Any]) -> bool:
    """A backward during another gives no gradient to a non-leaf among its inputs."""
    return bool(self.under_way)


@losing
def non_leaf_inputs_lost_by_create_graph(self: Mutant, _tensor: Any, how: Mapping[str, Any]) -> bool:
    """A backward that creates a graph gives no gradient to a non-leaf among its inputs."""
    return bool(how.get("create_graph"))


@losing
def views_among_backward_inputs_lost(self: Mutant, tensor: Any, _how: Mapping[str, Any]) -> bool:
    """A backward gives no gradient to a view among its inputs."""
    return self.base_of(tensor) is not None


@losing
def later_outputs_among_backward_inputs_lost(self: Mutant, tensor: Any, _how: Mapping[str, Any]) -> bool:
    """A backward gives no gradient to an input that is an output of an operation, and not the first."""
    return self.gradient_edge(tensor)[1] > 0


def overwriting(step: Hook) -> type[Mutant]:
    """Make a mutant whose backward drops what a non-leaf input has in .grad if ``(self, tensor)`` says so."""

    @wraps(step)
    def backward(self: Mutant, old: Hook, *given: Any, inputs: Inputs = None, **how: Any) -> None:
        for tensor in inputs or ():
            if self.is_tensor(tensor) and not self.is_leaf(tensor) and step(self, tensor):
                self.set_grad(tensor, None)
        old(*given, inputs=inputs, **how)

    return overriding("backward")(backward)


@overwriting
def backward_overwrites_views_among_its_inputs(self: Mutant, tensor: Any) -> bool:
    """A backward sets the gradient of a view among its inputs, whatever it was."""
    return self.base_of(tensor) is not None


@overwriting
def backward_overwrites_later_outputs_among_its_inputs(self: Mutant, tensor: Any) -> bool:
    """A backward sets the gradient of an input that is an output of an operation, and not the first."""
    return self.gradient_edge(tensor)[1] > 0


@overriding("backward", base=KnowsLastOutputs)
def outputs_in_between_among_backward_inputs_lost(
    self: KnowsLastOutputs, old: Hook, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """A backward gives no gradient to an input that is neither the first nor the last output of an operation."""
    lost = [
        each for each in inputs or () if self.is_tensor(each) and not self.is_leaf(each) and self.is_in_between(each)
    ]
    before = [self.grad_of(tensor) for tensor in lost]
    old(*given, inputs=inputs, **how)
    for tensor, grad in zip(lost, before, strict=True):
        self.set_grad(tensor, grad)


@overriding("backward")
def non_leaf_inputs_accumulate_constants(
    self: Mutant, old: Hook, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """What a backward with create_graph=True accumulates into non-leaf inputs cannot be differentiated."""
    old(*given, inputs=inputs, **how)
    _detach_grads(self, inputs or () if how.get("create_graph") else ())


@overriding("backward")
def later_non_leaf_inputs_accumulate_constants(
    self: Mutant, old: Hook, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """What a backward with create_graph=True accumulates into non-leaves after its first input is a constant."""
    old(*given, inputs=inputs, **how)
    _detach_grads(self, list(inputs or ())[1:] if how.get("create_graph") else ())


def _detach_grads(mutant: Mutant, tensors: Sequence[Any]) -> None:
    """Detach the .grad of each non-leaf."""
    for tensor in tensors:
        grad = mutant.grad_of(tensor) if mutant.is_tensor(tensor) and not mutant.is_leaf(tensor) else None
        if grad is not None:
            mutant.set_grad(tensor, mutant.detach(grad))
