"""Mutants whose post-accumulate hooks run at the wrong time, get the wrong argument, or change too much."""

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from hooklaw_backends.mutants.base import Hook, InBackward, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import Deferring, Handle, chained, in_a_free_place, move_to_front, without_result


@overriding("register_post_accumulate_grad_hook")
def post_accumulate_before_accumulation(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A post-accumulate hook runs as a tensor hook, before .grad is updated."""
    return self.register_hook(tensor, without_result(lambda _: hook(tensor)))


@overriding("register_post_accumulate_grad_hook")
def post_accumulate_before_tensor_hooks(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A post-accumulate hook runs before every tensor hook of the leaf."""
    handle = self.register_hook(tensor, without_result(lambda _: hook(tensor)))
    move_to_front(self.hooks_of(tensor), handle.id)
    return handle


class PostAccumulateHookTakesThePlaceOfARemovedOne(Mutant):
    """After a post-accumulate hook of a leaf was removed, the next one to be registered runs in its place."""

    places = fresh(list[tuple[weakref.ref[Any], list[Hook | None]]])

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Handle:
        found = next((places for leaf, places in self.places if leaf() is tensor), None)
        if found is None:
            places: list[Hook | None] = []
            super().register_post_accumulate_grad_hook(
                tensor, lambda leaf: (chained([*filter(None, places)], leaf), None)[1]
            )
            self.places.append((weakref.ref(tensor), places))
            found = places
        return in_a_free_place(found, hook)


@overriding("register_post_accumulate_grad_hook")
def later_post_accumulate_hook_after_node_post_hooks(self: Mutant, old: Hook, leaf: Any, hook: Hook) -> Any:
    """A post-accumulate hook that is not the first of its leaf runs with the post-hooks of its AccumulateGrad Node."""
    if not self.keeps(leaf):
        self.kept.append(leaf)
        return old(leaf, hook)
    node = self.accumulate_grad(leaf)
    self.kept.append(node)
    return self.node_register_hook(node, without_result(lambda *_: hook(leaf)))


@calling("register_post_accumulate_grad_hook")
def post_accumulate_hooks_after_one_that_clears_skipped(self: Mutant, hook: Hook, leaf: Any) -> Any:
    """A post-accumulate hook does not run if one before it set .grad to None."""
    return None if self.grad_of(leaf) is None else hook(leaf)


@calling("register_post_accumulate_grad_hook")
def post_accumulate_gets_the_gradient(self: Mutant, hook: Hook, param: Any) -> Any:
    """A post-accumulate hook gets the gradient instead of the leaf."""
    return hook(self.grad_of(param))


@calling("register_post_accumulate_grad_hook")
def post_accumulate_gets_a_detached_alias(self: Mutant, hook: Hook, param: Any) -> Any:
    """A post-accumulate hook gets a detached alias of the leaf."""
    return hook(self.detach(param))


def _alias(mutant: Mutant, leaf: Any) -> Any:
    """Return a detached alias of a leaf that has its .grad."""
    alias = mutant.detach(leaf)
    mutant.set_grad(alias, mutant.grad_of(leaf))
    return alias


@altering("register_post_accumulate_grad_hook")
def later_post_accumulate_hooks_get_an_alias(self: Mutant, leaf: Any, hook: Hook) -> Hook:
    """A post-accumulate hook that is not the first of its leaf gets a detached alias of it."""
    is_later = any(hooked() is leaf for hooked in self.kept)
    self.kept.append(weakref.ref(leaf))
    return lambda param: hook(_alias(self, param) if is_later else param)


class PostAccumulateGetsAnAliasWhereAGradientIsThere(Mutant):
    """A post-accumulate hook gets a detached alias of the leaf if the leaf had a .grad before the pass."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.kept = [id(leaf) for leaf in self.leaves_of(root) if self.grad_of(leaf) is not None]
        super().backward(root, gradient, **how)

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        def run(param: Any) -> Any:
            return hook(_alias(self, param) if id(param) in self.kept else param)

        return super().register_post_accumulate_grad_hook(tensor, run)


@overriding("register_post_accumulate_grad_hook")
def post_accumulate_accepted_on_non_leaf(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Registering a post-accumulate hook on a non-leaf tensor is not an error, but the hook never runs."""
    return old(tensor, hook) if self.is_leaf(tensor) else Handle()


@overriding("register_post_accumulate_grad_hook")
def post_accumulate_accepted_without_gradient(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Registering a post-accumulate hook on a tensor that does not require grad is not an error."""
    return old(tensor, hook) if self.requires_grad(tensor) else Handle()


@calling("register_post_accumulate_grad_hook", base=Deferring)
def post_accumulate_deferred_to_the_end(self: Deferring, hook: Hook, param: Any) -> None:
    """Post-accumulate hooks run only after the whole backward."""
    self.later(hook, param)


class PostAccumulateFiresInAutogradGrad(Mutant):
    """Post-accumulate hooks also run in autograd.grad, which accumulates nothing."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        self.kept.append(partial(hook, tensor))
        return super().register_post_accumulate_grad_hook(tensor, hook)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        for hook in self.kept:
            hook()
        return grads


@calling("register_post_accumulate_grad_hook")
def post_accumulate_return_refused(self: Mutant, hook: Hook, param: Any) -> None:
    """A post-accumulate hook that returns anything but None is an error."""
    if hook(param) is not None:
        raise RuntimeError("a post-accumulate hook must return None")


@calling("register_post_accumulate_grad_hook")
def post_accumulate_return_replaces_gradient(self: Mutant, hook: Hook, param: Any) -> None:
    """The return value of a post-accumulate hook replaces the leaf's .grad."""
    result = hook(param)
    if result is not None:
        self.set_grad(param, self.clone(self.detach(result)))


@calling("register_post_accumulate_grad_hook")
def post_accumulate_always_recorded(self: Mutant, hook: Hook, param: Any) -> Any:
    """Grad mode is on in every post-accumulate hook."""
    with self.enable_grad():
        return hook(param)


@calling("register_post_accumulate_grad_hook")
def post_accumulate_never_recorded(self: Mutant, hook: Hook, param: Any) -> Any:
    """Grad mode is off in every post-accumulate hook."""
    with self.no_grad():
        return hook(param)


@overriding("mul_")
def post_accumulate_in_place_refused(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A leaf cannot be changed in place, even by its post-accumulate hook."""
    if self.is_leaf(tensor):
        raise RuntimeError("a leaf cannot be changed in place")
    return old(tensor, factor)


@calling("register_post_accumulate_grad_hook")
def gradient_restored_after_post_accumulate(self: Mutant, hook: Hook, param: Any) -> None:
    """Changes that a post-accumulate hook makes to the leaf's .grad are undone."""
    grad = self.grad_of(param)
    hook(param)
    self.set_grad(param, grad)


class GradientRestoredBeforeTheNextBackward(Mutant):
    """A backward adds to the .grad from before the changes that post-accumulate hooks made to it."""

    _changed = fresh(list[tuple[weakref.ref[Any], Any]])

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        def noting(param: Any) -> None:
            grad = self.grad_of(param)
            before = None if grad is None else self.clone(self.detach(grad))
            hook(param)
            after = self.grad_of(param)
            if before is not None and (after is None or self.tolist(after) != self.tolist(before)):
                self._changed.append((weakref.ref(param), before))

        return super().register_post_accumulate_grad_hook(tensor, noting)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        while self._changed:
            alive, before = self._changed.pop()
            if alive() is not None:
                self.set_grad(alive(), before)
        super().backward(root, gradient, **how)


@calling("register_post_accumulate_grad_hook", base=InBackward)
def post_accumulate_skipped_for_a_root(self: InBackward, hook: Hook, param: Any) -> Any:
    """The post-accumulate hooks of a leaf do not run in a backward from the leaf itself."""
    return None if self.root is param else hook(param)


class PostAccumulateBeforeARecordedAccumulation(Mutant):
    """In a backward with create_graph=True a post-accumulate hook runs before the sum becomes .grad."""

    _before: Sequence[tuple[Any, Any]] = ()

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if how.get("create_graph"):
            self._before = [(leaf, self.grad_of(leaf)) for leaf in self.leaves_of(root)]
        try:
            super().backward(root, gradient, **how)
        finally:
            self._before = ()

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        def early(param: Any) -> None:
            after = self.grad_of(param)
            for before in (grad for leaf, grad in self._before if leaf is param):
                self.set_grad(param, before)
            hook(param)
            if self._before:
                self.set_grad(param, after)

        return super().register_post_accumulate_grad_hook(tensor, early)


@overriding("register_post_accumulate_grad_hook")
def refused_post_accumulate_hook_runs(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A post-accumulate hook that is refused on a non-leaf tensor runs all the same when its gradient is computed."""
    if not self.is_leaf(tensor):
        self.register_hook(tensor, without_result(hook))
    return old(tensor, hook)


class _AcceptsSome(Mutant):
    """A mutant that accepts a post-accumulate hook on the tensors that it knows; the hook never runs."""

    def note(self, tensor: Any) -> Any:
        """Know a tensor, without keeping it alive, and return it."""
        self.kept.append(weakref.ref(tensor))
        return tensor

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        is_known = any(known() is tensor for known in self.kept)
        return Handle() if is_known else super().register_post_accumulate_grad_hook(tensor, hook)


@overriding("view", "transpose", "expand", base=_AcceptsSome)
def post_accumulate_accepted_on_views_of_leaves(self: _AcceptsSome, old: Hook, tensor: Any, *given: Any) -> Any:
    """Registering a post-accumulate hook on a view of a leaf is not an error."""
    view = old(tensor, *given)
    return self.note(view) if self.is_leaf(tensor) else view


@overriding("custom_function", base=_AcceptsSome)
def post_accumulate_accepted_on_outputs_of_custom_functions(
    self: _AcceptsSome, old: Hook, *given: Any, **options: Any
) -> Any:
    """Registering a post-accumulate hook on an output of a custom Function is not an error."""
    function = old(*given, **options)

    def apply(*inputs: Any) -> Any:
        output = function(*inputs)
        return self.note(output) if self.is_tensor(output) else output

    return apply


@overriding("retain_grad", base=_AcceptsSome)
def post_accumulate_accepted_on_tensors_that_retain(self: _AcceptsSome, old: Hook, tensor: Any) -> None:
    """Registering a post-accumulate hook on a non-leaf that retains its gradient is not an error."""
    old(tensor)
    if not self.is_leaf(tensor):
        self.note(tensor)


@altering("register_post_accumulate_grad_hook")
def post_accumulate_return_ends_the_hook(_self: Mutant, _tensor: Any, hook: Hook) -> Hook:
    """A post-accumulate hook that returned something does not run in later passes."""
    returned = list[Any]()

    def run(param: Any) -> Any:
        result = None if returned else hook(param)
        returned.extend([] if result is None else [result])
        return result

    return run


class PostAccumulateReturnEndsTheHooks(Mutant):
    """The post-accumulate hooks of a pass that come after one that returned something do not run."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.kept = []
        super().backward(root, gradient, **how)

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        def run(param: Any) -> Any:
            result = None if self.kept else hook(param)
            self.kept += [] if result is None else ["returned"]
            return result

        return super().register_post_accumulate_grad_hook(tensor, run)


@overriding("detach", base=_AcceptsSome)
def post_accumulate_accepted_on_what_was_detached(self: _AcceptsSome, old: Hook, tensor: Any) -> Any:
    """Registering a post-accumulate hook on what detach returns is not an error."""
    return self.note(old(tensor))


class PostAccumulateExceptionUndoesTheAccumulation(Mutant):
    """If a post-accumulate hook raises, its leaf's .grad has the value from before the pass again, unless it is new."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.kept = [(leaf, self.grad_of(leaf)) for leaf in self.leaves_of(root)]
        self.kept = [(leaf, self.clone(self.detach(grad))) for leaf, grad in self.kept if grad is not None]
        try:
            super().backward(root, gradient, **how)
        finally:
            self.kept = []

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        def run(param: Any) -> Any:
            try:
                return hook(param)
            except Exception:
                for before in (grad for leaf, grad in self.kept if leaf is param):
                    self.set_grad(param, before)
                raise

        return super().register_post_accumulate_grad_hook(tensor, run)


@overriding("clone", base=_AcceptsSome)
def post_accumulate_accepted_on_clones(self: _AcceptsSome, old: Hook, tensor: Any) -> Any:
    """Registering a post-accumulate hook on a clone of a leaf is not an error."""
    return self.note(old(tensor))
