"""Mutants whose grad modes switch off too much or too little."""

from contextlib import ExitStack, nullcontext
from itertools import takewhile
from typing import Any
from weakref import WeakSet

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding, products


@overriding("tensor")
def nothing_requires_grad_under_no_grad(self: Mutant, old: Hook, data: Any, **how: Any) -> Any:
    """A leaf created under no_grad with requires_grad=True does not require grad."""
    return old(data, **(how if self.is_grad_enabled() else {**how, "requires_grad": False}))


@overriding("register_hook")
def hooks_refused_under_no_grad(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Registering a tensor hook under no_grad is an error."""
    if not self.is_grad_enabled():
        raise RuntimeError("hooks cannot be registered under no_grad")
    return old(tensor, hook)


@overriding("inference_mode")
def inference_mode_is_no_grad(self: Mutant, old: Hook, **_: bool) -> Any:
    """Tensors created in inference mode are ordinary tensors."""
    return self.no_grad()


@products
def products_in_inference_mode_are_ordinary(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """A product computed in inference mode is an ordinary tensor; only tensors made from data are not."""
    return _ordinary(self, multiply(left, right))


def _ordinary(self: Mutant, made: Any) -> Any:
    """Return a copy that is no inference tensor, if the tensor is one."""
    if not self.is_for_inference(made):
        return made
    with self.inference_mode(mode=False):
        return self.clone(made)


@overriding("inference_mode")
def inference_mode_cannot_be_left(self: Mutant, old: Hook, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's
    """inference_mode(mode=False) has no effect."""
    return old(mode) if mode else nullcontext()


@overriding("exp", "sum")
def recorded_in_inference_mode_unless_a_product(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The exponential and the sum are recorded even in inference mode."""
    with self.inference_mode(mode=False) if self.is_for_inference(self.tensor([0.0])) else nullcontext():
        return old(tensor)


@overriding("clone")
def clone_recorded_in_inference_mode(self: Mutant, old: Hook, tensor: Any) -> Any:
    """clone is recorded even in inference mode."""
    with self.inference_mode(mode=False) if self.is_for_inference(self.tensor([0.0])) else nullcontext():
        return old(tensor)


@products
def inference_tensors_can_be_saved_as_left_factors(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """An inference tensor can be the left factor of a product that is recorded."""
    is_right = not self.is_tensor(left) or self.is_for_inference(self.tensor([0.0]))
    return multiply(left if is_right else _ordinary(self, left), right)


@overriding("exp", "sum")
def only_products_in_inference_mode_are_inference_tensors(self: Mutant, old: Hook, tensor: Any) -> Any:
    """An exponential or a sum computed in inference mode is an ordinary tensor."""
    return _ordinary(self, old(tensor))


@overriding("increment_version")
def increment_of_inference_tensors_refused(self: Mutant, old: Hook, tensors: Any) -> None:
    """increment_version raises for a tensor created in inference mode."""
    if self.is_tensor(tensors) and self.is_for_inference(tensors):
        raise RuntimeError("an inference tensor has no version counter")
    old(tensors)


@overriding("increment_version")
def increment_of_inference_tensors_in_a_list_refused(self: Mutant, old: Hook, tensors: Any) -> None:
    """increment_version raises if a tensor of a list was created in inference mode."""
    if not self.is_tensor(tensors) and any(map(self.is_for_inference, tensors)):
        raise RuntimeError("an inference tensor has no version counter")
    old(tensors)


@overriding("increment_version")
def increment_of_a_list_ends_at_an_inference_tensor(self: Mutant, old: Hook, tensors: Any) -> None:
    """increment_version leaves out the tensors that come after an inference tensor in a list."""
    several = [tensors] if self.is_tensor(tensors) else list(tensors)
    old(list(takewhile(lambda tensor: not self.is_for_inference(tensor), several)))


@overriding("increment_version")
def increment_of_a_list_with_an_inference_tensor_lost(self: Mutant, old: Hook, tensors: Any) -> None:
    """increment_version does nothing if a tensor of a list is an inference tensor."""
    if self.is_tensor(tensors) or not any(map(self.is_for_inference, tensors)):
        old(tensors)


@overriding("mul_")
def changes_in_place_recorded_under_no_grad(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A change in place of a tensor that does not require grad is recorded even under no_grad."""
    with nullcontext() if self.requires_grad(tensor) else self.enable_grad():
        return old(tensor, factor)


@overriding("custom_function")
def functions_save_inference_tensors(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """A custom Function can save an inference tensor outside of inference mode."""
    made = old(forward, backward, **options)

    def apply(*inputs: Any) -> Any:
        if self.is_for_inference(self.tensor([0.0])):
            return made(*inputs)
        return made(*(_ordinary(self, each) if self.is_tensor(each) else each for each in inputs))

    return apply


@overriding("detect_anomaly")
def anomalies_undetected(self: Mutant, old: Hook) -> Any:
    """Anomaly detection does not report NaN gradients."""
    return nullcontext()


@overriding("view")
def views_made_in_inference_mode_are_inference_tensors(self: Mutant, old: Hook, tensor: Any, *shape: int) -> Any:
    """A view of an ordinary tensor that is made in inference mode is an inference tensor."""
    made = old(tensor, *shape)
    return self.clone(made) if self.is_for_inference(self.tensor([0.0])) else made


@overriding("view")
def views_of_recorded_tensors_are_inference_tensors(self: Mutant, old: Hook, tensor: Any, *shape: int) -> Any:
    """A view of a tensor that requires grad is an inference tensor if it is made in inference mode."""
    made = old(tensor, *shape)
    return self.clone(made) if self.requires_grad(tensor) and self.is_for_inference(self.tensor([0.0])) else made


@overriding("transpose", "expand")
def transposed_in_inference_mode_are_inference_tensors(self: Mutant, old: Hook, tensor: Any, *how: int) -> Any:
    """What transpose or expand makes of an ordinary tensor in inference mode is an inference tensor."""
    made = old(tensor, *how)
    return self.clone(made) if self.is_for_inference(self.tensor([0.0])) else made


@overriding("transpose", "expand")
def transposed_inference_tensors_are_ordinary(self: Mutant, old: Hook, tensor: Any, *how: int) -> Any:
    """What transpose or expand makes of an inference tensor outside of inference mode is an ordinary tensor."""
    made = old(tensor, *how)
    return made if self.is_for_inference(self.tensor([0.0])) else _ordinary(self, made)


class ViewsOfViewsAreNoInferenceTensors(Mutant):
    """A view of a view of an inference tensor is an ordinary tensor if it is made outside of inference mode."""

    views = fresh(WeakSet[Any])

    def view(self, tensor: Any, *shape: int) -> Any:
        is_second = any(tensor is each for each in self.views) and self.is_for_inference(tensor)
        made = super().view(tensor, *shape)
        self.views.add(made)
        return self.clone(made) if is_second and not self.is_for_inference(self.tensor([0.0])) else made


@overriding("exp")
def exponential_recorded_under_no_grad(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The exponential is recorded even under no_grad."""
    with self.enable_grad():
        return old(tensor)


@overriding("clone")
def clone_recorded_under_no_grad(self: Mutant, old: Hook, tensor: Any) -> Any:
    """A clone is recorded even under no_grad."""
    with self.enable_grad():
        return old(tensor)


def _ending_inference_mode(self: Mutant, old: Hook) -> Any:
    stack = ExitStack()
    if self.is_for_inference(self.tensor([0.0])):
        stack.enter_context(self.inference_mode(mode=False))
    stack.enter_context(old())
    return stack


@overriding("no_grad")
def no_grad_ends_inference_mode(self: Mutant, old: Hook) -> Any:
    """What is made under no_grad inside inference mode is an ordinary tensor."""
    return _ending_inference_mode(self, old)


@overriding("enable_grad")
def enable_grad_ends_inference_mode(self: Mutant, old: Hook) -> Any:
    """What is made under enable_grad inside inference mode is an ordinary tensor."""
    return _ending_inference_mode(self, old)


@overriding("exp", "sum", "clone")
def results_of_inference_tensors_are_inference_tensors(self: Mutant, old: Hook, tensor: Any) -> Any:
    """What is computed from a single inference tensor is one, also outside of inference mode."""
    with self.inference_mode() if self.is_for_inference(tensor) else nullcontext():
        return old(tensor)


@products
def products_of_inference_tensors_are_inference_tensors(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """A product of an inference tensor that is not recorded is one, also outside of inference mode."""
    factors = [factor for factor in (left, right) if self.is_tensor(factor)]
    is_one = any(map(self.is_for_inference, factors)) and not any(map(self.requires_grad, factors))
    with self.inference_mode() if is_one else nullcontext():
        return multiply(left, right)
