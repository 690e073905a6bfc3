"""Mutants that treat what a function registers on its own arguments as a careless compiler would."""

import weakref
from contextlib import nullcontext
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.shared import Handle, once, without_result


class _InCall(Mutant):
    """A mutant that knows the function that is running inside `call`, and its arguments."""

    running: Any = None
    arguments: tuple[Any, ...] = ()
    calls = fresh(list[Any])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        self.running, self.arguments = fn, tensors
        self.calls.append(fn)
        try:
            return super().call(fn, *tensors)
        finally:
            self.running, self.arguments = None, ()

    def takes(self, tensor: Any) -> bool:
        """Whether a tensor is an argument of the running function."""
        return any(tensor is argument for argument in self.arguments)


@overriding("register_hook", "register_post_accumulate_grad_hook", base=_InCall)
def hooks_on_arguments_ignored(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook that a function registers on its argument never runs."""
    return Handle() if self.takes(tensor) else old(tensor, hook)


@overriding("register_hook", base=_InCall)
def hooks_on_arguments_replace_each_other(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Of the hooks that a function registers on its arguments only the last one runs."""
    if self.takes(tensor):
        while self.kept:
            self.kept.pop().remove()
        self.kept.append(old(tensor, hook))
        return self.kept[0]
    return old(tensor, hook)


@overriding("register_hook", base=_InCall)
def handles_made_in_a_call_remove_nothing(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """The handle of a hook that a function registers on its argument does not remove it."""
    handle = old(tensor, hook)
    return Handle() if self.takes(tensor) else handle


class _InCallWithHandles(_InCall):
    """A mutant that knows the running function, and keeps the handles of each call."""

    handles = fresh(dict[int, list[Any]])


@overriding("register_hook", base=_InCallWithHandles)
def handles_made_in_a_call_remove_the_oldest(self: _InCallWithHandles, old: Hook, tensor: Any, hook: Hook) -> Any:
    """The handle of a hook that a function registers on its argument removes the first of those hooks."""
    handle = old(tensor, hook)
    if not self.takes(tensor):
        return handle
    its = self.handles.setdefault(len(self.calls), [])
    its.append(handle)
    return Handle(lambda: its.pop(0).remove())


@overriding("register_hook", base=_InCall)
def calls_repeat_the_hooks_of_the_first(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Each call of a function registers on its argument the hook that the function's first call registered."""
    if not self.takes(tensor):
        return old(tensor, hook)
    self.kept.append((self.running, hook))
    return old(tensor, next(first for fn, first in self.kept if fn is self.running))


@overriding("register_post_accumulate_grad_hook", base=_InCall)
def post_accumulate_handles_made_in_a_call_remove_nothing(self: _InCall, old: Hook, leaf: Any, hook: Hook) -> Any:
    """The handle of a post-accumulate-grad hook that a function registers on its argument does not remove it."""
    handle = old(leaf, hook)
    return Handle() if self.takes(leaf) else handle


@overriding("register_hook", base=_InCall)
def hooks_on_an_argument_given_twice_run_once(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """If a tensor is given for two arguments, only the first hook that the call registers on it runs."""
    if sum(tensor is argument for argument in self.arguments) <= 1:
        return old(tensor, hook)
    self.kept.append(len(self.calls))
    return old(tensor, hook) if self.kept.count(len(self.calls)) == 1 else Handle()


@overriding("register_hook", "register_post_accumulate_grad_hook", base=_InCall)
def calls_remove_the_hooks_of_earlier_calls(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook that a function registers on its argument removes those that earlier calls registered on it."""
    handle = old(tensor, hook)
    if self.takes(tensor):
        for call, argument, earlier in self.kept:
            if call < len(self.calls) and argument is tensor:
                earlier.remove()
        self.kept.append((len(self.calls), tensor, handle))
    return handle


@overriding(*verbs.FORWARD, *verbs.FORWARD_PRE, base=_InCall)
def forward_hooks_after_the_first_call_ignored(self: _InCall, old: Hook, *given: Any, **options: Any) -> Any:
    """Forward hooks and pre-hooks that are registered after a function has run never run."""
    return Handle() if self.calls else old(*given, **options)


class _KnowsForwardHooks(_InCall):
    """A mutant that keeps when the forward hooks that a module has were registered, by verb and module."""

    registered = fresh(dict[Any, list[int]])


@overriding(*verbs.FORWARD, *verbs.FORWARD_PRE, base=_KnowsForwardHooks)
def forward_hooks_beside_earlier_ones_ignored(self: _KnowsForwardHooks, old: Hook, *given: Any, **options: Any) -> Any:
    """Forward hooks and pre-hooks that are registered after a call of a module that has some never run."""
    times = self.registered.setdefault((old, given[:-1]), [])
    if any(time < len(self.calls) for time in times):
        return Handle()
    times.append(len(self.calls))
    handle = old(*given, **options)
    return Handle(lambda: (times and times.pop(), handle.remove()))


@overriding("register_hook", "register_post_accumulate_grad_hook", *verbs.FULL_BACKWARD, base=_InCall)
def hooks_between_calls_ignored(self: _InCall, old: Hook, *given: Any, **options: Any) -> Any:
    """Hooks that are registered outside of any call, after a function has run, never run."""
    return Handle() if self.calls and not self.running else old(*given, **options)


@overriding("register_hook", base=_InCall)
def hooks_in_later_calls_ignored(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook that a function registers never runs if the function has run before."""
    return Handle() if self.running and self.calls.count(self.running) > 1 else old(tensor, hook)


@overriding("register_hook", base=_InCall)
def hooks_in_later_calls_see_the_first(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook that a function registers in a later call is given the first gradient of all."""

    def stale(grad: Any) -> Any:
        self.kept.append(grad)
        return hook(self.kept[0])

    return old(tensor, stale if self.running else hook)


@overriding("register_hook", base=_InCall)
def hooks_on_intermediates_ignored(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook that a function registers on a tensor that is not its argument never runs."""
    return Handle() if self.running and not self.takes(tensor) else old(tensor, hook)


@overriding("retain_grad", base=_InCall)
def retained_gradients_in_later_calls_ignored(self: _InCall, old: Hook, tensor: Any) -> Any:
    """A function that has run before retains no gradient."""
    return None if self.running and self.calls.count(self.running) > 1 else old(tensor)


@overriding("saved_tensors_hooks")
def first_pair_around_all_calls(self: Mutant, old: Hook, pack: Hook, unpack: Hook) -> Any:
    """Each context of saved-tensor hooks has the pair of the first."""
    self.kept = self.kept or [pack, unpack]
    return old(*self.kept)


@overriding("saved_tensors_hooks", base=_InCall)
def saved_tensor_hooks_around_later_calls_ignored(self: _InCall, old: Hook, pack: Hook, unpack: Hook) -> Any:
    """Saved-tensor hooks that are entered after a function has run do nothing."""
    return nullcontext() if self.calls and not self.running else old(pack, unpack)


class GradModeOfTheFirstCall(Mutant):
    """Every call of a function runs in the grad mode of its first call."""

    modes_of = fresh(dict[Any, bool])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        code = getattr(fn, "__code__", fn)
        with self.enable_grad() if self.modes_of.setdefault(code, self.is_grad_enabled()) else self.no_grad():
            return super().call(fn, *tensors)


class ResultsOfACallOverwriteThoseBefore(Mutant):
    """A call of a function writes its result also into that of the call before."""

    results_of = fresh(dict[Any, Any])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        result = super().call(fn, *tensors)
        before = self.results_of.get(code := getattr(fn, "__code__", fn), lambda: None)()
        if self.is_tensor(result):
            if before is not None and before is not result and self._fits(before, result):
                self.overwrite_unseen(before, self.detach(result))
            self.results_of[code] = weakref.ref(result)
        return result

    def _fits(self, one: Any, other: Any) -> bool:
        return self.shape(one) == self.shape(other) and self.dtype(one) == self.dtype(other)


class _BetweenCalls(_InCall):
    """A mutant that knows in how many passes since its first use each leaf has been."""

    used = fresh(list[tuple[weakref.ref[Any], list[None]]])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        made = super().call(fn, *tensors)
        new = [each for each in tensors if self.is_tensor(each) and self._passes_of(each) is None]
        self.used += [(weakref.ref(each), []) for each in new]
        return made

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        for _, passes in self.used:
            passes.append(None)

    def _passes_of(self, leaf: Any) -> list[None] | None:
        return next((passes for alive, passes in self.used if alive() is leaf), None)

    def gap(self, leaf: Any) -> int:
        """Return after how many passes of a leaf it is, or 0 inside of calls or for other tensors."""
        return 0 if self.running or not self.is_leaf(leaf) else len(self._passes_of(leaf) or ())


@overriding("register_hook", base=_BetweenCalls)
def later_hooks_between_the_same_calls_ignored(self: _BetweenCalls, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Of several hooks that are registered on a leaf between two calls only the first runs."""
    gap = self.gap(tensor)
    is_later = gap > 0 and any(alive() is tensor and other == gap for alive, other in self.kept)
    self.kept.append((weakref.ref(tensor), gap))
    return Handle() if is_later else old(tensor, hook)


@overriding("register_hook", base=_BetweenCalls)
def hooks_between_later_calls_ignored(self: _BetweenCalls, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook that is registered on a leaf after two calls, and before a third, never runs."""
    return Handle() if self.gap(tensor) == 2 else old(tensor, hook)  # noqa: PLR2004 - two calls


@overriding("register_hook", base=_BetweenCalls)
def hooks_between_calls_run_once(self: _BetweenCalls, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook that is registered on a leaf between two calls runs in the second alone."""
    return old(tensor, once(hook) if self.gap(tensor) else hook)


@overriding("register_hook", base=_BetweenCalls)
def hooks_between_calls_stay_after_two_calls(self: _BetweenCalls, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook that is registered on a leaf between two calls is not removed once it could run in two."""
    handle, alive, gap = old(tensor, hook), weakref.ref(tensor), self.gap(tensor)
    return Handle(lambda: None if gap and self.gap(alive()) > gap + 1 else handle.remove())


@overriding("register_hook", base=_BetweenCalls)
def hooks_between_later_calls_stay(self: _BetweenCalls, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook that is registered on a leaf after two calls is never removed."""
    handle = old(tensor, hook)
    return Handle() if self.gap(tensor) > 1 else handle


@overriding("register_hook", base=_BetweenCalls)
def what_hooks_between_calls_return_is_ignored(self: _BetweenCalls, old: Hook, tensor: Any, hook: Hook) -> Any:
    """What a hook returns that is registered on a leaf between two calls does not replace the gradient."""
    return old(tensor, without_result(hook) if self.gap(tensor) else hook)


class HooksOnNonLeavesThatAreReturnedIgnored(_InCall):
    """A hook that a function registers on its argument never runs if this is not a leaf and the function returns it."""

    hooked = fresh(list[tuple[weakref.ref[Any], list[None]]])

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if not self.takes(tensor) or self.is_leaf(tensor):
            return super().register_hook(tensor, hook)
        lost: list[None] = []
        self.hooked.append((weakref.ref(tensor), lost))
        return super().register_hook(tensor, lambda grad: None if lost else hook(grad))

    def call(self, fn: Hook, *tensors: Any) -> Any:
        result = super().call(fn, *tensors)
        returned = result if isinstance(result, tuple) else (result,)
        for alive, lost in self.hooked:
            lost += [None for each in returned if each is alive()]
        self.hooked.clear()
        return result


@overriding("register_post_accumulate_grad_hook", base=_InCall)
def post_accumulate_handles_of_a_call_remove_nothing_after_it(self: _InCall, old: Hook, leaf: Any, hook: Hook) -> Any:
    """The handle of a post-accumulate-grad hook on an argument removes it during the call alone."""
    handle = old(leaf, hook)
    return Handle(lambda: handle.remove() if self.running else None) if self.takes(leaf) else handle


@overriding("register_hook", base=_InCall)
def handles_on_non_leaves_remove_nothing_after_their_call(self: _InCall, old: Hook, tensor: Any, hook: Hook) -> Any:
    """The handle of a hook that a function registers on an argument that is no leaf removes it in the call alone."""
    handle = old(tensor, hook)
    is_kept = self.takes(tensor) and not self.is_leaf(tensor)
    return Handle(lambda: handle.remove() if self.running else None) if is_kept else handle


@overriding("register_post_accumulate_grad_hook", base=_BetweenCalls)
def post_accumulate_hooks_between_later_calls_ignored(self: _BetweenCalls, old: Hook, leaf: Any, hook: Hook) -> Any:
    """A post-accumulate-grad hook that is registered on a leaf after two calls, and before a third, never runs."""
    return Handle() if self.gap(leaf) == 2 else old(leaf, hook)  # noqa: PLR2004 - two calls
