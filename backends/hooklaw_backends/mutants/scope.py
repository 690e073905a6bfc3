"""Mutants whose saved-tensor hooks, or whose ban on them, apply in the wrong place."""

import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial, wraps
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, calling, fresh, overriding
from hooklaw_backends.mutants.shared import enter_for_good


@overriding("saved_tensors_hooks")
@contextmanager
def hooks_dropped_at_context_exit(self: Mutant, old: Hook, pack: Hook, unpack: Hook) -> Generator[None]:
    """A tensor packed in a context is not unpacked after the context was left."""
    inside = [True]

    def choose(both: Any) -> Any:
        return unpack(both[0]) if inside else both[1]

    with old(lambda tensor: (pack(tensor), self.detach(tensor)), choose):
        try:
            yield
        finally:
            inside.clear()


def nesting(step: Hook) -> type[Mutant]:
    """Make a mutant that uses the pair that ``(self, pair, outer)`` returns if pairs are nested."""

    @wraps(step)
    @contextmanager
    def hooks(self: _NestedPairs, old: Hook, *pair: Hook) -> Generator[None]:
        active = self.active.__dict__.setdefault("pairs", list[Any]())
        active.append(step(self, pair, active[-1]) if active else pair)
        try:
            with old(*active[-1]):
                yield
        finally:
            active.pop()

    return overriding("saved_tensors_hooks", base=_NestedPairs)(hooks)


class _NestedPairs(Mutant):
    """A mutant that knows which pairs of hooks are active in each thread."""

    active = fresh(threading.local)

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        return self.saved_tensors_hooks(self.detach, lambda kept: kept)


@nesting
def outermost_pair_wins(self: Mutant, pair: Pair, outer: Pair) -> Pair:
    """If saved-tensor hooks are nested, the outermost pair applies."""
    return outer


@nesting
def nested_pairs_composed(self: Mutant, pair: Pair, outer: Pair) -> Pair:
    """If saved-tensor hooks are nested, the outer pair packs what the inner pair packed."""
    return lambda tensor: outer[0](pair[0](tensor)), lambda packed: pair[1](outer[1](packed))


class PairsInsideTwoOthersIgnored(Mutant):
    """A pair of saved-tensor hooks inside two others has no effect; the second applies."""

    depth = 0

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        self.depth += 1
        try:
            with super().saved_tensors_hooks(pack, unpack) if self.depth <= len((pack, unpack)) else nullcontext():
                yield
        finally:
            self.depth -= 1


@nesting
def nesting_is_an_error(self: Mutant, pair: Pair, outer: Pair) -> Pair:
    """Nesting saved-tensor hooks is an error."""
    raise RuntimeError("a pair of saved-tensor hooks is active already")


@overriding("saved_tensors_hooks")
@contextmanager
def outer_pair_lost_after_a_failing_inner(self: Mutant, old: Hook, pack: Hook, unpack: Hook) -> Generator[None]:
    """After an exception left an inner context of saved-tensor hooks, the outer hooks are no longer active."""
    hooks = old(pack, unpack)
    enter_for_good(hooks)
    try:
        yield
    except Exception:
        self.drop_pairs()
        raise
    with suppress(RuntimeError):  # an inner context has dropped this pair
        hooks.__exit__(None, None, None)


class HooksInheritedFromTheForwardPass(Mutant):
    """autograd.grad packs what it saves with the saved-tensor hooks of the forward pass."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        self.kept = [pack, unpack]
        return super().saved_tensors_hooks(pack, unpack)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        with super().saved_tensors_hooks(*self.kept) if self.kept else nullcontext():
            return super().grad(outputs, inputs, grad_outputs, **how)


@overriding("grad")
def hooks_ignored_during_backward(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad does not pack what it saves with the saved-tensor hooks around it."""
    with self.saved_tensors_hooks(lambda tensor: tensor, lambda kept: kept):
        return old(*given, **how)


@calling("custom_function")
def hooks_ignored_in_the_backward_of_functions(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """What the backward of a custom Function computes is not packed with the saved-tensor hooks around the pass."""
    with self.saved_tensors_hooks(lambda tensor: tensor, lambda kept: kept):
        return backward(ctx, *grads)


class _PacksTheFirstSave(Mutant):
    """A mutant that packs only the first tensor while it counts what is saved."""

    saves: list[None] | None = None

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        def keep(tensor: Any) -> Any:
            if self.saves:
                return None, self.detach(tensor)
            if self.saves is not None:
                self.saves.append(None)
            return pack(tensor), None

        return super().saved_tensors_hooks(keep, lambda both: unpack(both[0]) if both[1] is None else both[1])


class OnlyTheFirstSaveOfAutogradGradPacked(_PacksTheFirstSave):
    """Of what autograd.grad saves with create_graph=True, only the first tensor is packed."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self.saves = []
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self.saves = None


class DisabledHooksIgnoredSilently(Mutant):
    """Entering disabled saved-tensor hooks does nothing instead of raising an error."""

    disabled = False

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        before, self.disabled = self.disabled, True
        try:
            yield
        finally:
            self.disabled = before

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        return nullcontext() if self.disabled else super().saved_tensors_hooks(pack, unpack)

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        return nullcontext() if self.disabled else super().save_on_cpu(pin_memory=pin_memory)


@overriding("disable_saved_tensors_hooks")
def empty_message_disables_nothing(self: Mutant, old: Hook, message: str) -> AbstractContextManager[Any]:
    """Disabling saved-tensor hooks with an empty message does nothing."""
    return old(message) if message else nullcontext()


@overriding("disable_saved_tensors_hooks")
def disabling_message_replaced(self: Mutant, old: Hook, message: str) -> Any:
    """The error for disabled saved-tensor hooks does not contain the given message."""
    return old("saved-tensor hooks are disabled")


@overriding("save_on_cpu")
@contextmanager
def save_on_cpu_not_disabled(self: Mutant, old: Hook, *, pin_memory: bool = False) -> Generator[None]:
    """save_on_cpu works even where saved-tensor hooks are disabled."""
    message = self.forbidden()
    self.allow_pairs()
    with old(pin_memory=pin_memory):
        yield
    if message:
        self.forbid_pairs(message)


class SaveOnCpuStaysDisabled(Mutant):
    """save_on_cpu stays disabled after a context that disables saved-tensor hooks was left."""

    message = ""

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        with super().disable_saved_tensors_hooks(message):
            yield
        self.message = message

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        if self.message:
            raise RuntimeError(self.message)
        return super().save_on_cpu(pin_memory=pin_memory)


class SaveOnCpuEnabledByItsError(Mutant):
    """save_on_cpu is no error in the rest of a context that disables saved-tensor hooks once it was one."""

    was_refused = False

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        self.was_refused = False
        with super().disable_saved_tensors_hooks(message):
            yield

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        if self.forbidden() and self.was_refused:
            return nullcontext()
        self.was_refused = True
        return super().save_on_cpu(pin_memory=pin_memory)


class SaveOnCpuEnabledByLeavingAnInnerContext(Mutant):
    """save_on_cpu is no error after the inner of two contexts that disable saved-tensor hooks was left."""

    depth = 0
    has_left = False

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        self.depth += 1
        try:
            with super().disable_saved_tensors_hooks(message):
                yield
        finally:
            self.depth -= 1
            self.has_left = self.depth > 0

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        return nullcontext() if self.has_left else super().save_on_cpu(pin_memory=pin_memory)


@overriding("disable_saved_tensors_hooks")
@contextmanager
def inner_disabling_message_stays(self: Mutant, old: Hook, message: str) -> Generator[None]:
    """After an inner context that disables hooks was left, errors still have the inner message."""
    self.kept.append(message)
    with old(message):
        yield
    self.kept.pop()
    if self.kept:
        self.forbid_pairs(message)


@overriding("disable_saved_tensors_hooks")
def disabling_suspends_active_hooks(self: Mutant, old: Hook, message: str) -> Any:
    """Disabling saved-tensor hooks while a pair is active is not an error."""
    return nullcontext() if self.has_pair() else old(message)


@overriding("saved_tensor_register_hooks")
def per_tensor_hooks_disabled_too(self: Mutant, old: Hook, saved: Any, pack: Hook, unpack: Hook) -> None:
    """Hooks on a single saved tensor cannot be registered where saved-tensor hooks are disabled."""
    message = self.forbidden()
    if message:
        raise RuntimeError(message)
    old(saved, pack, unpack)


@overriding("saved_tensor_register_hooks")
def unpack_of_a_saved_tensor_disabled_too(self: Mutant, old: Hook, saved: Any, pack: Hook, unpack: Hook) -> None:
    """Where saved-tensor hooks are disabled, backward uses what was saved instead of calling the unpack hook."""
    kept: list[Any] = []
    if self.forbidden():
        old(saved, lambda tensor: (kept.append(self.detach(tensor)), pack(tensor))[1], lambda _: kept[0])
    else:
        old(saved, pack, unpack)


@overriding("backward")
def hooks_ignored_during_backward_itself(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A backward, unlike autograd.grad, does not pack what it saves with the saved-tensor hooks around it."""
    with self.saved_tensors_hooks(lambda tensor: tensor, lambda kept: kept):
        return old(*given, **how)


@overriding("saved_tensors_hooks")
@contextmanager
def hooks_outlive_an_exception_of_pack(self: Mutant, old: Hook, pack: Hook, unpack: Hook) -> Generator[None]:
    """Saved-tensor hooks stay active if their pack hook raised."""
    failed: list[bool] = []
    hooks = old(partial(_noting, failed, pack), unpack)
    enter_for_good(hooks)
    try:
        yield
    finally:
        if not failed:
            hooks.__exit__(None, None, None)


@overriding("saved_tensors_hooks")
@contextmanager
def exception_of_pack_leaves_grad_mode_off(self: Mutant, old: Hook, pack: Hook, unpack: Hook) -> Generator[None]:
    """An exception in pack leaves grad mode off, in which pack runs."""
    failed: list[bool] = []
    try:
        with old(partial(_noting, failed, pack), unpack):
            yield
    finally:
        if failed:
            enter_for_good(self.no_grad())


class ExceptionOfUnpackLeavesGradModeOff(Mutant):
    """An exception in unpack leaves grad mode off, in which backward runs."""

    failed = fresh(list[bool])

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        return super().saved_tensors_hooks(pack, partial(_noting, self.failed, unpack))

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        try:
            super().backward(root, gradient, **how)
        finally:
            if self.failed:
                self.failed.clear()
                enter_for_good(self.no_grad())


def _noting(failed: list[bool], hook: Hook, given: Any) -> Any:
    """Run a hook, and note whether it raises."""
    try:
        return hook(given)
    except Exception:
        failed.append(True)
        raise


class _CountsPairs(Mutant):
    """A mutant that knows how many pairs are open."""

    open_pairs = 0

    def reset(self) -> None:
        super().reset()
        self.open_pairs = 0

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        with super().saved_tensors_hooks(pack, unpack):
            self.open_pairs += 1
            try:
                yield
            finally:
                self.open_pairs -= 1


class BackwardItselfPacksAsForwardDid(_CountsPairs):
    """A backward with create_graph packs with the pair of the forward pass if no other is around it."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Any:
        self.kept = [pack, unpack]
        return super().saved_tensors_hooks(pack, unpack)

    def backward(self, root: Any, *given: Any, **how: Any) -> None:
        inherits = self.kept and how.get("create_graph") and not self.open_pairs
        with super().saved_tensors_hooks(*self.kept) if inherits else nullcontext():
            super().backward(root, *given, **how)


class OnlyTheFirstSaveOfBackwardItselfPacked(_PacksTheFirstSave):
    """Of what a backward with create_graph=True saves, only the first tensor is packed."""

    def backward(self, root: Any, *given: Any, **how: Any) -> None:
        self.saves = [] if how.get("create_graph") else None
        try:
            super().backward(root, *given, **how)
        finally:
            self.saves = None


class PairsIgnoredInLaterPassesThatCreateAGraph(_CountsPairs):
    """From the second autograd.grad with create_graph under a pair on, the pair packs nothing that it saves."""

    def grad(self, *given: Any, **how: Any) -> tuple[Any, ...]:
        if how.get("create_graph") and self.open_pairs:
            self.kept.append("a pass")
        is_later = len(self.kept) > 1
        with super().saved_tensors_hooks(lambda tensor: tensor, lambda kept: kept) if is_later else nullcontext():
            return super().grad(*given, **how)


class FloatsPacked(_CountsPairs):
    """A float that is a factor of a product is packed as a tensor."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Any:
        self.kept = [pack]
        return super().saved_tensors_hooks(pack, unpack)

    def call(self, fn: Hook, *tensors: Any) -> Any:
        with self.products_by(self._packing):
            return super().call(fn, *tensors)

    def _packing(self, multiply: Hook, left: Any, right: Any) -> Any:
        if isinstance(right, float) and self.open_pairs and self.requires_grad(left):
            self.kept[0](self.tensor(right))
        return multiply(left, right)
