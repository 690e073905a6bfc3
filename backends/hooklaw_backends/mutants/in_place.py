"""Mutants that lose hooks when a tensor is changed in place, miscount changes, or refuse the wrong ones."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from weakref import ref

from hooklaw_backends.mutants.base import Hook, Mutant, altering, fresh, overriding, products
from hooklaw_backends.mutants.shared import Handle, as_prehook
from hooklaw_backends.mutants.verbs import NODE


class HookFollowsItsTensor(Mutant):
    """After an in-place operation a tensor hook moves to the tensor's new grad_fn."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        followed = SimpleNamespace(tensor=tensor, hook=hook, handle=super().register_hook(tensor, hook))
        self.kept.append(followed)
        return Handle(lambda: followed.handle.remove())  # noqa: PLW0108 - the handle changes later

    def mul_(self, tensor: Any, factor: Any) -> Any:
        changed = super().mul_(tensor, factor)
        for followed in self.kept:
            if self._base_or_itself(followed.tensor) is self._base_or_itself(tensor):
                followed.handle.remove()
                self.grad_fn(followed.tensor)  # makes torch rebuild a view's history
                followed.handle = super().register_hook(followed.tensor, followed.hook)
        return changed

    def _base_or_itself(self, tensor: Any) -> Any:
        base = self.base_of(tensor)
        return tensor if base is None else base


class HookMovesToTheInPlaceOperation(Mutant):
    """After an in-place operation on a tensor that is no view its hooks see only what this operation's Node sends."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        if self.is_leaf(tensor) or self.base_of(tensor) is not None:
            return handle
        moving = SimpleNamespace(handle=handle)
        self.kept.append((ref(tensor, self._forget), hook, moving))
        return Handle(lambda: moving.handle.remove())  # noqa: PLW0108 - the handle changes later

    def mul_(self, tensor: Any, factor: Any) -> Any:
        changed = super().mul_(tensor, factor)
        for registered, hook, moving in [each for each in self.kept if each[0]() is tensor]:
            self._forget(registered)
            moving.handle.remove()
            moving.handle = self.node_register_hook(self.grad_fn(tensor), self._on_sent(hook))
        return changed

    def _forget(self, registered: Any) -> None:
        self.kept[:] = [each for each in self.kept if each[0] is not registered]

    @staticmethod
    def _on_sent(hook: Hook) -> Hook:
        """Return a Node hook that calls a tensor hook with the first gradient that the Node sends on."""

        def run(sent: Any, _received: Any) -> Any:
            result = None if sent[0] is None else hook(sent[0])
            return None if result is None else (result, *sent[1:])

        return run


class HookBoundToTheFirstGradFn(Mutant):
    """A tensor hook goes to the grad_fn from before any in-place operation."""

    _first = fresh(dict[int, Any])

    def mul_(self, tensor: Any, factor: Any) -> Any:
        node = self.grad_fn(tensor)
        if node is not None:
            self._first.setdefault(id(tensor), node)
        return super().mul_(tensor, factor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        node = self._first.get(id(tensor))
        if node is None:
            return super().register_hook(tensor, hook)
        return super().node_register_prehook(node, as_prehook(hook, 0))


class HandleLostAfterInPlace(Mutant):
    """After an in-place operation earlier handles no longer remove their hooks."""

    changed = False

    def mul_(self, tensor: Any, factor: Any) -> Any:
        self.changed = True
        return super().mul_(tensor, factor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        return Handle(lambda: None if self.changed else handle.remove())


class VersionCheckedUnderHooks(Mutant):
    """Changing a saved tensor in place is an error even if saved-tensor hooks packed it."""

    hooked = False

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Any:
        self.hooked = True
        return super().saved_tensors_hooks(pack, unpack)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.hooked:
            raise RuntimeError("a saved tensor would be modified by an inplace operation")
        return super().mul_(tensor, factor)


class ChangesThroughViewsOfViewsUnrecorded(Mutant):
    """A change in place of a view of a view is not recorded."""

    def view(self, tensor: Any, *shape: int) -> Any:
        made = super().view(tensor, *shape)
        self.kept += [ref(made)] * (self.base_of(tensor) is not None)
        return made

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if not any(kept() is tensor for kept in self.kept):
            return super().mul_(tensor, factor)
        self.overwrite_unseen(tensor, self.detach(tensor) * factor)
        return tensor


@overriding("mul_")
def leaf_changed_in_place(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A leaf that requires grad can be changed in place, and the change is not recorded."""
    return _changing(self, old, tensor, factor, if_=True)


def _changing(self: Mutant, old: Hook, tensor: Any, factor: Any, *, if_: bool) -> Any:
    """Multiply a tensor in place, without recording it if it is a leaf that requires grad and something holds."""
    with self.no_grad() if if_ and self.is_leaf(tensor) and self.requires_grad(tensor) else nullcontext():
        return old(tensor, factor)


@overriding("mul_")
def leaf_multiplied_by_a_tensor(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A leaf that requires grad can be multiplied in place by a tensor."""
    return _changing(self, old, tensor, factor, if_=self.is_tensor(factor))


@overriding("mul_")
def leaf_without_dimensions_changed_in_place(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A 0-d leaf that requires grad can be changed in place."""
    return _changing(self, old, tensor, factor, if_=self.shape(tensor) == ())


@overriding("mul_")
def leaf_with_a_gradient_changed_in_place(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A leaf that requires grad can be changed in place once it has a gradient."""
    return _changing(self, old, tensor, factor, if_=self.grad_of(tensor) is not None)


class _KnowingChanges(Mutant):
    """A mutant that knows which leaves were changed in place."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        self.kept += [ref(tensor)] * (self.is_leaf(tensor) and self.requires_grad(tensor))
        return super().mul_(tensor, factor)

    def unless_changed(self, hook: Hook, leaves: Sequence[Any]) -> Hook:
        """Return a hook that runs only until one of these leaves is changed."""
        its = [ref(leaf) for leaf in leaves]

        def run(*given: Any) -> Any:
            return None if any(kept() is leaf() is not None for kept in self.kept for leaf in its) else hook(*given)

        return run


@overriding("register_multi_grad_hook", base=_KnowingChanges)
def multi_grad_hooks_of_a_leaf_lost_when_it_changes(
    self: _KnowingChanges, old: Hook, tensors: Sequence[Any], hook: Hook, **how: Any
) -> Any:
    """The multi-grad hooks of a leaf do not run once it was changed in place."""
    return old(tensors, self.unless_changed(hook, tensors), **how)


@altering(*NODE, base=_KnowingChanges)
def node_hooks_of_a_leaf_lost_when_it_changes(self: _KnowingChanges, node: Any, hook: Hook) -> Hook:
    """The hooks on the Node of a leaf do not run once the leaf was changed in place."""
    leaf = self.leaf_of(node)
    return self.unless_changed(hook, [] if leaf is None else [leaf])


class ParametersChangedInPlace(Mutant):
    """A parameter of a module can be changed in place in grad mode."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = super().module(parameters, forward)
        self.kept += [ref(getattr(made, name)) for name in parameters]
        return made

    def mul_(self, tensor: Any, factor: Any) -> Any:
        return _changing(self, super().mul_, tensor, factor, if_=any(kept() is tensor for kept in self.kept))


class LeavesMadeToRequireGradChangedInPlace(Mutant):
    """A leaf that was made to require grad can be changed in place in grad mode."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        self.kept.append(ref(tensor))
        super().set_requires_grad(tensor, requires_grad=requires_grad)

    def requires_grad_(self, tensor: Any) -> Any:
        self.kept.append(ref(tensor))
        return super().requires_grad_(tensor)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        return _changing(self, super().mul_, tensor, factor, if_=any(kept() is tensor for kept in self.kept))


@overriding("mul_")
def leaves_never_changed_in_place(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A leaf that requires grad cannot be changed in place, even under no_grad."""
    if self.is_leaf(tensor) and self.requires_grad(tensor):
        raise RuntimeError("a leaf that requires grad must not be changed in place")
    return old(tensor, factor)


@overriding("mul_")
def change_to_the_same_values_goes_uncounted(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """An in-place operation that leaves the values equal does not increase the version."""
    return tensor if factor == 1 else old(tensor, factor)


@products
def second_factor_saved_as_a_copy(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """A product saves a copy of its second factor, so a change of that factor goes unnoticed."""
    return multiply(left, self.clone(right) if self.is_tensor(right) else right)


@products
def every_operation_counts_as_a_change(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """A product increases the version of its first factor."""
    made = multiply(left, right)
    self.overwrite(self.detach(left), self.clone(self.detach(left)))
    return made


@overriding("mul_")
def every_change_in_place_refused(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """Every in-place change of a tensor that requires grad is an error."""
    if self.requires_grad(tensor):
        raise RuntimeError("a tensor that requires grad must not be changed in place")
    return old(tensor, factor)


class VersionNotCheckedAfterAPass(Mutant):
    """A change of a saved tensor goes unnoticed once a backward has gone through a graph that it retained."""

    ran = False

    def reset(self) -> None:
        super().reset()
        self.ran = False

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        self.ran = bool(how.get("retain_graph"))

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if not self.ran:
            return super().mul_(tensor, factor)
        self.overwrite_unseen(tensor, self.detach(tensor) * factor)
        return tensor


@overriding("mul_")
def hooks_of_a_leaf_lost_when_it_changes(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A leaf that is changed in place under no_grad loses its hooks."""
    changed = old(tensor, factor)
    if self.is_leaf(tensor) and self.requires_grad(tensor):
        (self.hooks_of(tensor) or {}).clear()
    return changed


@overriding("mul_")
def constants_changed_in_place_stay_constant(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A tensor that does not require grad is changed in place without recording, even if the factor requires grad."""
    is_constant = self.is_tensor(factor) and not self.requires_grad(tensor)
    return old(tensor, self.detach(factor) if is_constant else factor)


@overriding("mul_")
def factors_in_place_get_no_gradient(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """The factor of a change in place gets no gradient if the tensor gets one."""
    is_recorded = self.is_tensor(factor) and self.requires_grad(tensor) and not self.is_leaf(tensor)
    return old(tensor, self.detach(factor) if is_recorded else factor)


@overriding("mul_")
def factors_in_place_get_the_new_value(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """The gradient of the factor of a change in place is multiplied by the tensor's new value, not by the old one."""
    if not self.is_tensor(factor) or not self.requires_grad(factor):
        return old(tensor, factor)
    by = self.detach(factor)
    return old(tensor, self.custom_function(lambda _, factor: factor * 1, lambda _, grad: grad * by)(factor))


@overriding("mul_")
def version_of_what_a_product_in_place_saved_not_checked(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """Changing the factor of a product in place goes unnoticed."""
    return old(tensor, self.clone(factor) if self.is_tensor(factor) and self.is_grad_enabled() else factor)


@overriding("mul_")
def changes_of_leaves_under_no_grad_uncounted(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A change in place of a leaf that requires grad, which is only possible under no_grad, is not counted."""
    if self.is_grad_enabled() or not self.is_leaf(tensor) or not self.requires_grad(tensor):
        return old(tensor, factor)
    self.overwrite_unseen(tensor, self.detach(tensor) * (self.detach(factor) if self.is_tensor(factor) else factor))
    return tensor


@overriding("increment_version")
def increments_of_non_leaves_are_lost(self: Mutant, old: Hook, tensors: Any) -> None:
    """increment_version does nothing for tensors that are not leaves."""
    old([tensor for tensor in ([tensors] if self.is_tensor(tensors) else tensors) if self.is_leaf(tensor)])


@overriding("mul_")
def versions_of_constants_not_bumped_through_a_view(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """Changing a tensor that does not require grad through a view of it goes unnoticed."""
    base = self.base_of(tensor)
    if base is None or self.requires_grad(base):
        return old(tensor, factor)
    self.overwrite_unseen(tensor, tensor * factor)
    return tensor


@overriding("mul_")
def constants_changed_in_place_require_grad(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A constant that is changed in place by another constant requires grad."""
    changed = old(tensor, factor)
    is_constant = self.is_tensor(factor) and not self.requires_grad(tensor) and self.is_grad_enabled()
    return self.requires_grad_(changed) if is_constant else changed
