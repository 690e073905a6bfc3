"""Mutants that confuse requires_grad, is_leaf and detach."""

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any
from weakref import ref

from hooklaw_backends.mutants.base import Hook, Mutant, overriding, products


@products
def result_requires_grad_with_its_first_input(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """A product requires grad only if its first factor does."""
    made = multiply(left, right)
    return made if self.requires_grad(left) else self.detach(made)


@products
def constants_are_recorded(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """A product requires grad even if neither factor does."""
    made = multiply(left, right)
    return self.requires_grad_(made) if self.is_floating(made) else made


@overriding("exp")
def exponentials_of_constants_are_recorded(self: Mutant, old: Hook, tensor: Any) -> Any:
    """An exponential requires grad in grad mode even if what it is of does not."""
    made = old(tensor)
    return self.requires_grad_(made) if self.is_grad_enabled() and self.is_leaf(made) else made


class FlagOfANonLeafIsSet(Mutant):
    """requires_grad of a non-leaf tensor can be set to False."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        if requires_grad or self.is_leaf(tensor):
            super().set_requires_grad(tensor, requires_grad=requires_grad)
        else:
            self.kept.append(tensor)

    def requires_grad(self, tensor: Any) -> bool:
        return super().requires_grad(tensor) and not self.keeps(tensor)


@overriding("set_requires_grad")
def flag_of_a_non_leaf_is_ignored(self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """Setting requires_grad of a non-leaf tensor to False does nothing instead of raising an error."""
    with suppress(RuntimeError):
        old(tensor, requires_grad=requires_grad)


@overriding("set_requires_grad")
def flag_of_a_non_leaf_is_ignored_after_an_error(self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """Setting requires_grad of a non-leaf tensor to False is an error once, and does nothing later."""
    try:
        old(tensor, requires_grad=requires_grad)
    except RuntimeError as error:
        self.kept.append(str(error))
        if len(self.kept) == 1:
            raise


@overriding("set_requires_grad")
def flag_of_a_non_leaf_that_is_a_scalar_is_ignored(
    self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool
) -> None:
    """Setting requires_grad of a 0-d tensor that is no leaf to False does nothing instead of raising an error."""
    with suppress(RuntimeError) if self.shape(tensor) == () else nullcontext():
        old(tensor, requires_grad=requires_grad)


@overriding("set_requires_grad")
def flag_of_a_result_of_a_result_is_ignored(self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """Setting requires_grad to False is no error for a tensor that was computed of non-leaves alone."""
    node = self.grad_fn(tensor)
    nodes = [] if node is None else [each for each in self.node_next(node) if each is not None]
    is_of_results = nodes and all(self.leaf_of(each) is None for each in nodes)
    with suppress(RuntimeError) if is_of_results else nullcontext():
        old(tensor, requires_grad=requires_grad)


class FlagOfANonLeafIsIgnoredAfterABackward(Mutant):
    """Setting requires_grad of a non-leaf tensor to False is no error once a backward has run."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        self.kept.append(None)

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        with suppress(RuntimeError) if self.kept else nullcontext():
            super().set_requires_grad(tensor, requires_grad=requires_grad)


@overriding("set_requires_grad")
def freezing_has_no_effect(self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """Setting requires_grad of a leaf to False has no effect."""
    if requires_grad or not self.is_leaf(tensor):
        old(tensor, requires_grad=requires_grad)


@overriding("set_requires_grad")
def used_leaves_are_never_frozen(self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """Setting requires_grad of a leaf that has a gradient to False has no effect."""
    if requires_grad or self.grad_of(tensor) is None:
        old(tensor, requires_grad=requires_grad)


@overriding("set_requires_grad")
def frozen_for_good(self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """Once requires_grad of a leaf was set to False, it cannot be set to True again."""
    if not requires_grad:
        old(tensor, requires_grad=False)


class FrozenForOnePass(Mutant):
    """Setting requires_grad of a leaf to False has an effect until the end of the next backward."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        super().set_requires_grad(tensor, requires_grad=requires_grad)
        self.kept += [] if requires_grad else [tensor]

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        while self.kept:
            super().set_requires_grad(self.kept.pop(), requires_grad=True)


class FrozenUntilAnotherIs(Mutant):
    """Setting requires_grad of a leaf to False has an effect until that of another is."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        while self.kept and not requires_grad:
            super().set_requires_grad(self.kept.pop(), requires_grad=True)
        super().set_requires_grad(tensor, requires_grad=requires_grad)
        self.kept += [] if requires_grad else [tensor]


@overriding("module")
def parameters_are_frozen(self: Mutant, old: Hook, parameters: Mapping[str, Any], forward: Hook) -> Any:
    """The parameters of a module do not require grad."""
    made = old(parameters, forward)
    for name in parameters:
        self.set_requires_grad(getattr(made, name), requires_grad=False)
    return made


@overriding("tensor")
def every_tensor_requires_grad(self: Mutant, old: Hook, data: Any, **how: Any) -> Any:
    """A floating-point tensor requires grad by default."""
    floating = "float" in how.get("dtype", "float32")
    return old(data, **({**how, "requires_grad": True} if floating else how))


class _Made(Mutant):
    """A mutant that keeps the tensors that the user created."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        self.kept.append(super().tensor(data, requires_grad=requires_grad, dtype=dtype))
        return self.kept[-1]


@overriding("is_leaf", base=_Made)
def results_are_never_leaves(self: _Made, old: Hook, tensor: Any) -> bool:
    """The result of an operation is never a leaf, even if it does not require grad."""
    return self.keeps(tensor)


class ResultsOfASingleConstantAreNoLeaves(Mutant):
    """What exp, sum or clone makes of a tensor that does not require grad is not a leaf."""

    def exp(self, tensor: Any) -> Any:
        return self.noted(super().exp(tensor))

    def sum(self, tensor: Any) -> Any:
        return self.noted(super().sum(tensor))

    def clone(self, tensor: Any) -> Any:
        return self.noted(super().clone(tensor))

    def noted(self, made: Any) -> Any:
        """Return a result that is not a leaf."""
        self.kept.append(ref(made))
        return made

    def is_leaf(self, tensor: Any) -> bool:
        is_result = any(made() is tensor for made in self.kept)
        return super().is_leaf(tensor) and (self.requires_grad(tensor) or not is_result)


@overriding("is_leaf")
def views_are_never_leaves(self: Mutant, old: Hook, tensor: Any) -> bool:
    """A view is not a leaf, even if it does not require grad."""
    return old(tensor) and self.base_of(tensor) is None


@overriding("is_leaf")
def views_of_leaves_are_leaves(self: Mutant, old: Hook, tensor: Any) -> bool:
    """A view of a leaf is a leaf, even if it requires grad."""
    base = self.base_of(tensor)
    return old(tensor) or (base is not None and old(base))


class ParametersAreNoLeaves(Mutant):
    """A parameter of a module is not a leaf."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = super().module(parameters, forward)
        self.kept += [ref(getattr(made, name)) for name in parameters]
        return made

    def is_leaf(self, tensor: Any) -> bool:
        return super().is_leaf(tensor) and not any(kept() is tensor for kept in self.kept)


class ResultsUnderNoGradAreNoLeavesOnceTheyRequireGrad(Mutant):
    """The result of an operation on a leaf under no_grad is not a leaf once it was made to require grad."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        made = super().call(fn, *tensors)
        is_unrecorded = self.is_tensor(made) and not self.requires_grad(made) and any(map(self.requires_grad, tensors))
        self.kept += [ref(made)] if is_unrecorded else []
        return made

    def is_leaf(self, tensor: Any) -> bool:
        is_result = any(kept() is tensor for kept in self.kept)
        return super().is_leaf(tensor) and not (is_result and self.requires_grad(tensor))


class ResultsUnderNoGradAreNoLeaves(Mutant):
    """The result of an operation under no_grad is not a leaf if one of the inputs requires grad."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        made = super().call(fn, *tensors)
        is_unrecorded = self.is_tensor(made) and not self.requires_grad(made) and any(map(self.requires_grad, tensors))
        self.kept += [made] if is_unrecorded else []
        return made

    def is_leaf(self, tensor: Any) -> bool:
        return super().is_leaf(tensor) and not self.keeps(tensor)


@overriding("is_leaf")
def leaf_only_without_requires_grad(self: Mutant, old: Hook, tensor: Any) -> bool:
    """A tensor that requires grad is never a leaf."""
    return not self.requires_grad(tensor)


@overriding("backward", "grad", base=_Made)
def constants_accumulate_zeros(self: _Made, old: Hook, *given: Any, **how: Any) -> Any:
    """After a backward a tensor that does not require grad has a .grad of zeros."""
    made, self.kept = self.kept, []
    result = old(*given, **how)
    for tensor in made:
        if self.is_floating(tensor) and not self.requires_grad(tensor):
            self.set_grad(tensor, self.zeros_like(tensor))
    return result


@overriding("detach")
def detach_copies(self: Mutant, old: Hook, tensor: Any) -> Any:
    """detach copies the data instead of sharing it."""
    return old(self.clone(tensor))


@overriding("detach")
def detach_copies_leaves(self: Mutant, old: Hook, tensor: Any) -> Any:
    """detach copies the data of a leaf instead of sharing it."""
    return old(self.clone(tensor) if self.is_leaf(tensor) else tensor)


@overriding("detach")
def detach_copies_constants(self: Mutant, old: Hook, tensor: Any) -> Any:
    """detach copies the data of a tensor that does not require grad instead of sharing it."""
    return old(tensor if self.requires_grad(tensor) else self.clone(tensor))


class DetachCopiesWhatIsDetached(Mutant):
    """detach copies the data of a detached tensor instead of sharing it."""

    def detach(self, tensor: Any) -> Any:
        was_detached = any(kept() is tensor for kept in self.kept)
        made = super().detach(self.clone(tensor) if was_detached else tensor)
        self.kept.append(ref(made))
        return made


@overriding("detach")
def detach_keeps_the_history(self: Mutant, old: Hook, tensor: Any) -> Any:
    """A detached tensor still requires grad."""
    return self.clone(tensor)


@overriding("detach_")
def views_of_leaves_are_detached_in_place(self: Mutant, old: Hook, tensor: Any) -> None:
    """detach_ of a view of a leaf is no error."""
    base = self.base_of(tensor)
    if base is None or not self.is_leaf(base):
        old(tensor)


@overriding("detach_")
def views_of_constants_are_detached_in_place(self: Mutant, old: Hook, tensor: Any) -> None:
    """detach_ of a view that does not require grad is no error."""
    if self.requires_grad(tensor) or self.base_of(tensor) is None:
        old(tensor)


class _DetachingViews(Mutant):
    """A mutant that does not refuse detach_ of some views."""

    def noted(self, view: Any) -> Any:
        """Return a view that can be detached in place."""
        self.kept.append(ref(view))
        return view

    def detach_(self, tensor: Any) -> Any:
        return tensor if any(view() is tensor for view in self.kept) else super().detach_(tensor)


class ViewsOfViewsAreDetachedInPlace(_DetachingViews):
    """detach_ of a view of a view is no error."""

    def view(self, tensor: Any, *shape: int) -> Any:
        made = super().view(tensor, *shape)
        return made if self.base_of(tensor) is None else self.noted(made)


class TransposedViewsAreDetachedInPlace(_DetachingViews):
    """detach_ of what transpose or expand has made is no error."""

    def transpose(self, tensor: Any, first: int, second: int) -> Any:
        return self.noted(super().transpose(tensor, first, second))

    def expand(self, tensor: Any, *shape: int) -> Any:
        return self.noted(super().expand(tensor, *shape))


@overriding("detach_")
def detach_in_place_of_a_leaf_does_nothing(self: Mutant, old: Hook, tensor: Any) -> None:
    """detach_ of a leaf does nothing: the leaf still requires grad."""
    if not self.is_leaf(tensor):
        old(tensor)


@overriding("detach_")
def detach_in_place_cuts_earlier_uses(self: Mutant, old: Hook, tensor: Any) -> None:
    """After detach_ no gradient flows through what was computed from the tensor before."""
    if not self.is_leaf(tensor):
        self.register_hook(tensor, lambda grad: grad * 0)
    old(tensor)


@overriding("set_requires_grad")
def flag_of_a_non_leaf_is_set_at_the_second_try(self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """requires_grad of a non-leaf tensor can be switched off by setting it to False twice, which detaches it."""
    if requires_grad or self.is_leaf(tensor):
        old(tensor, requires_grad=requires_grad)
    elif self.keeps(tensor):
        self.detach_(tensor)
    else:
        self.kept.append(tensor)
        old(tensor, requires_grad=requires_grad)


@overriding("requires_grad")
def results_of_frozen_leaves_require_no_grad(self: Mutant, old: Hook, tensor: Any) -> bool:
    """A non-leaf tensor does not require grad any more once all leaves behind it have been frozen."""
    flag = old(tensor)
    return flag and (self.is_leaf(tensor) or any(map(old, self.leaves_of(tensor))))


@overriding("set_requires_grad")
def gradient_starts_as_zeros_once_it_is_required(self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """A tensor that is made to require grad has zeros as .grad."""
    old(tensor, requires_grad=requires_grad)
    if requires_grad and self.is_leaf(tensor) and self.grad_of(tensor) is None:
        self.set_grad(tensor, self.zeros_like(tensor))
