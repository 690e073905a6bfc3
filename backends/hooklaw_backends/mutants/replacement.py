"""Mutants that misuse a hook's return value or its exception."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial, wraps
from itertools import product
from math import prod
from typing import Any
from weakref import ref

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, InBackward, Mutant, Pair, altering, calling, fresh, pairs
from hooklaw_backends.mutants.shared import chained, dispatching
from hooklaw_backends.mutants.situations import Knowing


def results(step: Hook) -> type[Mutant]:
    """Make a mutant that passes the gradient and the return value of each tensor hook through ``(self, ...)``."""
    return calling("register_hook")(wraps(step)(lambda self, hook, grad: step(self, grad, hook(grad))))


@calling("register_hook", *verbs.NODE)
def none_taken_as_zero(self: Mutant, hook: Hook, grads: Any, *rest: Any) -> Any:
    """A hook that returns None replaces the gradient by zeros."""
    result = hook(grads, *rest)
    if result is not None:
        return result
    return grads * 0 if self.is_tensor(grads) else tuple(None if grad is None else grad * 0 for grad in grads)


@altering("node_register_prehook")
def none_of_a_pre_hook_of_a_leaf_taken_as_zero(self: Mutant, node: Any, hook: Hook) -> Hook:
    """A pre-hook of an AccumulateGrad Node that returns None replaces the gradient by zeros."""

    def run(grads: Any) -> Any:
        result = hook(grads)
        return tuple(grad * 0 for grad in grads) if result is None else result

    return hook if self.leaf_of(node) is None else run


@dispatching
def replacement_not_propagated(self: Mutant, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:
    """The return value of a non-leaf's hook reaches later hooks but not the Node."""
    result = chained(hooks, *arguments)
    return None if self.is_tensor(target) and not self.is_leaf(target) else result


@dispatching
def later_hooks_see_the_original_gradient(self: Mutant, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:
    """Each hook gets the original gradient instead of what the earlier hooks returned."""
    results = [result for hook in hooks if (result := hook(*arguments)) is not None]
    return results[-1] if results else None


@dispatching
def none_undoes_earlier_replacements(self: Mutant, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:
    """A hook that returns None brings back the original gradient."""
    result = None
    for hook in hooks:
        result = hook(*(arguments if result is None else (result, *arguments[1:])))
    return result


@results
def replacement_written_into_a_shared_gradient(self: Mutant, grad: Any, result: Any) -> None:
    """A hook's return value is written into the given gradient, which other tensors may share."""
    if result is not None:
        self.overwrite(grad, result)


@results
def replacement_applied_twice(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook that scales the gradient scales it twice."""
    return None if result is None else result * self.quotient(result, grad)


@results
def hook_result_detached(self: Mutant, grad: Any, result: Any) -> Any:
    """The return value of a tensor hook is detached from its graph."""
    return None if result is None else self.detach(result)


@altering("register_hook")
def hook_result_of_a_leaf_detached(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """The return value of a leaf's tensor hook is detached from its graph."""
    return (
        (lambda grad: None if (result := hook(grad)) is None else self.detach(result)) if self.is_leaf(tensor) else hook
    )


def _detached_in_backward(self: InBackward, hook: Hook) -> Hook:
    return lambda grad: self.detach(result) if (result := hook(grad)) is not None and self.root is not None else result


@altering("register_hook", base=InBackward)
def hook_results_detached_in_backward(self: InBackward, tensor: Any, hook: Hook) -> Hook:
    """The return value of the hook of a tensor that is no leaf is detached from its graph, but for autograd.grad."""
    return hook if self.is_leaf(tensor) else _detached_in_backward(self, hook)


@altering("register_hook", base=InBackward)
def hook_results_of_leaves_detached_in_backward(self: InBackward, tensor: Any, hook: Hook) -> Hook:
    """The return value of a leaf's tensor hook is detached from its graph, but for autograd.grad."""
    return _detached_in_backward(self, hook) if self.is_leaf(tensor) else hook


@altering("register_hook", base=InBackward)
def hook_results_of_roots_detached_in_backward(self: InBackward, tensor: Any, hook: Hook) -> Hook:
    """The return value of a tensor hook of a backward's root is detached from its graph."""
    alive = ref(tensor)

    def run(grad: Any) -> Any:
        result = hook(grad)
        is_root = self.root is not None and self.root is alive()
        return self.detach(result) if is_root and result is not None else result

    return run


@results
def bad_hook_result_ignored(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook's return value of the wrong type, shape or dtype is ignored instead of raising an error."""
    fits = self.is_tensor(result) and all(of(result) == of(grad) for of in (self.shape, self.dtype))
    return result if fits else None


@results
def false_taken_for_none(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook that returns False leaves the gradient as it is instead of raising an error."""
    return None if result is False else result


def _is_bad(self: Mutant, grad: Any, result: Any) -> bool:
    return result is not None and not (self.is_tensor(result) and self.shape(result) == self.shape(grad))


@altering("register_hook")
def bad_results_of_later_hooks_ignored(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """What a tensor hook returns is ignored if it has the wrong type or shape, and another hook was there before."""
    has_earlier = bool(self.hooks_of(tensor))
    return lambda grad: None if _is_bad(self, grad, result := hook(grad)) and has_earlier else result


@altering("register_hook", base=Knowing)
def bad_hook_results_ignored_in_autograd_grad(self: Knowing, _tensor: Any, hook: Hook) -> Hook:
    """What a tensor hook returns in autograd.grad is ignored if it has the wrong type or shape."""
    return lambda grad: None if _is_bad(self, grad, result := hook(grad)) and self.running("verb") == "grad" else result


@altering("register_hook")
def bad_results_before_other_hooks_ignored(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """What a tensor hook returns is ignored if it has the wrong type or shape, and another hook comes after it."""
    alive, before = ref(tensor), len(self.hooks_of(tensor) or ())

    def run(grad: Any) -> Any:
        result, tensor = hook(grad), alive()
        is_last = tensor is None or len(self.hooks_of(tensor) or ()) == before + 1
        return result if is_last or not _is_bad(self, grad, result) else None

    return run


@results
def hook_result_broadcast(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook's return value of the wrong shape is broadcast instead of raising an error."""
    differs = self.is_tensor(result) and self.shape(result) != self.shape(grad)
    return self.expand(result, *self.shape(grad)) if differs else result


@results
def hook_result_reshaped(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook's return value of another shape is reshaped, if it has as many elements, instead of raising an error."""
    shape = self.shape(grad)
    fits = self.is_tensor(result) and prod(self.shape(result)) == prod(shape)
    return self.view(result, *shape) if fits else result


@results
def hook_result_of_one_element_loses_its_dimension(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook may return a vector of one element as the gradient of a scalar."""
    fits = self.is_tensor(result) and (self.shape(grad), self.shape(result)) == ((), (1,))
    return self.sum(result) if fits else result


@results
def hook_result_without_dimensions_gets_one(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook may return a scalar as the gradient of a vector of one element."""
    fits = self.is_tensor(result) and (self.shape(grad), self.shape(result)) == ((1,), ())
    return self.tensor([self.tolist(result)], dtype=self.dtype(result)) if fits else result


@results
def longer_hook_result_cut(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook's return value that is longer than the gradient is cut instead of raising an error."""
    is_longer = self.is_tensor(result) and self.shape(result)[:1] > self.shape(grad)[:1] > ()
    return self.split(result, *self.shape(grad)[:1])[0] if is_longer else result


@results
def hook_result_cast(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook's return value of another dtype is cast to the gradient's dtype."""
    return self.cast(result, self.dtype(grad)) if self.is_tensor(result) else result


@results
def narrower_hook_result_cast(self: Mutant, grad: Any, result: Any) -> Any:
    """A hook's return value of float32 is cast if the gradient is of float64, which can hold it."""
    fits = self.is_tensor(result) and (self.dtype(result), self.dtype(grad)) == ("float32", "float64")
    return self.cast(result, self.dtype(grad)) if fits else result


def wrapped(hook: Hook, *given: Any) -> Any:
    """Call a hook; every exception becomes a RuntimeError."""
    try:
        return hook(*given)
    except Exception as error:
        raise RuntimeError("a hook failed") from error


@calling(*verbs.IN_BACKWARD)
def hook_exception_wrapped(self: Mutant, hook: Hook, *given: Any) -> Any:
    """An exception in a hook that runs during backward becomes a RuntimeError."""
    return wrapped(hook, *given)


def emptied(hook: Hook, *given: Any) -> Any:
    """Call a hook; every exception becomes a new one of its type, without its message."""
    try:
        return hook(*given)
    except Exception as error:
        raise type(error) from error


def remade(hook: Hook, *given: Any) -> Any:
    """Call a hook; every exception becomes a new one of its type and message."""
    try:
        return hook(*given)
    except Exception as error:
        raise type(error)(str(error)) from error


@calling(*verbs.IN_BACKWARD)
def hook_exception_without_its_message(self: Mutant, hook: Hook, *given: Any) -> Any:
    """An exception in a hook that runs during backward becomes a new one of its type, without its message."""
    return emptied(hook, *given)


@calling(*verbs.IN_BACKWARD)
def hook_exception_remade(self: Mutant, hook: Hook, *given: Any) -> Any:
    """An exception in a hook that runs during backward becomes a new one of its type and message."""
    return remade(hook, *given)


@pairs("saved_tensors_hooks")
def pair_exception_wrapped(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """An exception in pack or unpack becomes a RuntimeError."""
    return partial(wrapped, pack), partial(wrapped, unpack)


@pairs("saved_tensors_hooks")
def pair_exception_without_its_message(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """An exception in pack or unpack becomes a new one of its type, without its message."""
    return partial(emptied, pack), partial(emptied, unpack)


@pairs("saved_tensors_hooks")
def pair_exception_made_anew_from_its_message(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """An exception in pack or unpack becomes a new one of its type and message, without what else it has."""
    return partial(remade, pack), partial(remade, unpack)


@pairs("saved_tensors_hooks")
def pair_exception_swallowed(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """An exception in pack or unpack is lost, and the tensor is saved as without hooks."""

    def quiet_pack(tensor: Any) -> Any:
        with suppress(Exception):
            return self.detach(tensor), (pack(tensor),)
        return self.detach(tensor), ()

    def quiet_unpack(saved: Any) -> Any:
        tensor, packed = saved
        with suppress(Exception):
            return unpack(*packed)
        return tensor

    return quiet_pack, quiet_unpack


class _KeepsReplacements(Mutant):
    """A mutant that makes what it keeps of a backward, leaves and tensors, the .grad of the leaves."""

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        while self.kept:
            leaf, result = self.kept.pop(0)
            if self.grad_of(leaf) is not None and not how.get("create_graph"):
                self.overwrite_unseen(result, self.detach(result))  # what never adds in place does not show the fault
                self.set_grad(leaf, result)


@altering("register_hook", base=_KeepsReplacements)
def replacements_are_accumulated_uncopied(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """What the hook of a leaf without .grad returns becomes its .grad uncopied, and later passes add to it."""
    owner = ref(tensor)  # a hook must not keep its tensor alive

    def noting(grad: Any) -> Any:
        result, leaf = hook(grad), owner()
        if result is not None and self.is_leaf(leaf) and self.grad_of(leaf) is None:
            self.kept.append((leaf, result))
        return result

    return noting


class _GradsFromNonLeaves(Mutant):
    """A mutant that makes what it keeps of a backward the first .grad of the leaves that got the same numbers."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        leaves = [leaf for leaf in self.leaves_of(root) if self.grad_of(leaf) is None]
        super().backward(root, gradient, **how)
        for leaf, tensor in product(() if how.get("create_graph") else leaves, self.kept):
            if self._are_alike(self.grad_of(leaf), tensor):
                self.overwrite_unseen(tensor, self.detach(tensor))  # as for _KeepsReplacements
                self.set_grad(leaf, tensor)
        self.kept.clear()

    def _are_alike(self, grad: Any, tensor: Any) -> bool:
        return grad is not None and all(of(grad) == of(tensor) for of in (self.stride, self.dtype, self.tolist))


@altering("register_hook", base=_GradsFromNonLeaves)
def replacements_of_non_leaves_are_accumulated_uncopied(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """What the hook of a non-leaf returns becomes the .grad of a leaf uncopied, if no operation changes it."""
    is_leaf = self.is_leaf(tensor)

    def noting(grad: Any) -> Any:
        result = hook(grad)
        self.kept += [] if result is None or is_leaf else [result]
        return result

    return noting


@altering("register_hook", base=_GradsFromNonLeaves)
def kept_gradients_of_non_leaves_become_grad(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """The gradient that a non-leaf's hook gets becomes the .grad of a leaf, if no operation changes it."""
    is_leaf = self.is_leaf(tensor)

    def noting(grad: Any) -> Any:
        self.kept += [] if grad is None or is_leaf else [grad]
        return hook(grad)

    return noting


class KeptGradientsBecomeGradOfLeavesWithoutHooks(_GradsFromNonLeaves):
    """The gradient that a non-leaf's hook gets becomes the .grad of a leaf that never had a hook."""

    hooked = fresh(list[Any])

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if self.is_leaf(tensor):
            self.hooked.append(ref(tensor))
            return super().register_hook(tensor, hook)

        @wraps(hook)
        def noting(grad: Any) -> Any:
            self.kept += [] if grad is None else [grad]
            return hook(grad)

        return super().register_hook(tensor, noting)

    def leaves_of(self, root: Any) -> Iterator[Any]:
        return (leaf for leaf in super().leaves_of(root) if all(leaf is not hooked() for hooked in self.hooked))


class _GradsFromLeaves(Mutant):
    """A mutant that puts the .grad of leaves into the gradients that it keeps of a backward, and makes these .grad."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        had = [leaf for leaf in self.leaves_of(root) if self.grad_of(leaf) is not None]
        super().backward(root, gradient, **how)
        for leaf, grad in () if how.get("create_graph") else self.kept:
            is_later = any(leaf is each for each in had)
            if self.shape(leaf) == self.shape(grad) and self.takes(grad, is_later=is_later):
                self.overwrite_unseen(grad, self.detach(self.grad_of(leaf)))
                self.set_grad(leaf, grad)
        self.kept.clear()

    def takes(self, grad: Any, *, is_later: bool) -> bool:
        """Whether a gradient becomes .grad; it is a later one if the leaf had another."""
        raise NotImplementedError

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if not self.is_leaf(tensor):
            return super().register_hook(tensor, hook)
        leaf = ref(tensor)  # a hook must not keep its tensor alive

        @wraps(hook)
        def noting(grad: Any) -> Any:
            result = hook(grad)
            self.kept += [(leaf(), grad)] if result is None else []
            return result

        return super().register_hook(tensor, noting)


class GradientsKeptInALaterPassBecomeGrad(_GradsFromLeaves):
    """If a leaf has a .grad, it is added in place to the gradient that its hook gets, which becomes .grad."""

    def takes(self, grad: Any, *, is_later: bool) -> bool:
        return is_later


class KeptGradientsWithoutDimensionsBecomeGrad(_GradsFromLeaves):
    """A gradient without dimensions that the hook of a leaf without .grad gets becomes .grad uncopied."""

    def takes(self, grad: Any, *, is_later: bool) -> bool:
        return not is_later and self.shape(grad) == ()


@altering("register_hook")
def later_hooks_get_constants(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """The gradient that the hooks of a tensor after its first get has no history."""
    is_first = all(tensor is not each() for each in self.kept)
    self.kept.append(ref(tensor))
    return lambda grad: hook(grad if is_first else self.detach(grad))
