"""Mutants whose saved-tensor hooks, or whose ban on them, apply in the wrong place."""

import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, enter_for_good


class HooksOutliveTheirContext(Mutant):
    """Saved-tensor hooks stay active after their context was left."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        enter_for_good(super().saved_tensors_hooks(pack, unpack))
        yield


class HooksOutliveAnException(Mutant):
    """Saved-tensor hooks stay active if an exception leaves their context."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        hooks = super().saved_tensors_hooks(pack, unpack)
        enter_for_good(hooks)
        yield
        hooks.__exit__(None, None, None)


class HooksDroppedAtContextExit(Mutant):
    """A tensor packed in a context is not unpacked after the context was left."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        inside = [True]

        def choose(both: Any) -> Any:
            return unpack(both[0]) if inside else both[1]

        with super().saved_tensors_hooks(lambda tensor: (pack(tensor), self.detach(tensor)), choose):
            try:
                yield
            finally:
                inside.clear()


class _Active(threading.local):
    """The pairs of hooks that are active in this thread."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []


class _NestedPairs(Mutant):
    """A mutant that knows which pairs of hooks are active."""

    def __init__(self) -> None:
        super().__init__()
        self._active = _Active()

    def nested(self, pair: Pair, outer: Pair) -> Pair:
        """Return the pair that applies."""
        raise NotImplementedError

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        active = self._active.pairs
        pair = self.nested((pack, unpack), active[-1]) if active else (pack, unpack)
        active.append(pair)
        try:
            with super().saved_tensors_hooks(*pair):
                yield
        finally:
            active.pop()

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG002 - the tensors are on the CPU
        return self.saved_tensors_hooks(self.detach, lambda kept: kept)


class OutermostPairWins(_NestedPairs):
    """If saved-tensor hooks are nested, the outermost pair applies."""

    def nested(self, pair: Pair, outer: Pair) -> Pair:  # noqa: ARG002 - part of the method
        return outer


class NestedPairsComposed(_NestedPairs):
    """If saved-tensor hooks are nested, the outer pair packs what the inner pair packed."""

    def nested(self, pair: Pair, outer: Pair) -> Pair:
        return lambda tensor: outer[0](pair[0](tensor)), lambda packed: pair[1](outer[1](packed))


class NestingIsAnError(_NestedPairs):
    """Nesting saved-tensor hooks is an error."""

    def nested(self, pair: Pair, outer: Pair) -> Pair:  # noqa: ARG002 - part of the method
        raise RuntimeError("a pair of saved-tensor hooks is active already")


class OuterPairLostAfterInner(Mutant):
    """After an inner context of saved-tensor hooks was left, the outer hooks are no longer active."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        enter_for_good(super().saved_tensors_hooks(pack, unpack))
        try:
            yield
        finally:
            self.drop_pairs()


class HooksInheritedFromTheForwardPass(Mutant):
    """autograd.grad packs what it saves with the saved-tensor hooks of the forward pass."""

    last: Pair | None = None

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        self.last = (pack, unpack)
        return super().saved_tensors_hooks(pack, unpack)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        with super().saved_tensors_hooks(*self.last) if self.last else nullcontext():
            return super().grad(outputs, inputs, grad_outputs, **how)


class HooksIgnoredDuringBackward(Mutant):
    """autograd.grad does not pack what it saves with the saved-tensor hooks around it."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        with self.saved_tensors_hooks(lambda tensor: tensor, lambda kept: kept):
            return super().grad(outputs, inputs, grad_outputs, **how)


class DisabledHooksIgnoredSilently(Mutant):
    """Entering disabled saved-tensor hooks does nothing instead of raising an error."""

    disabled = False

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:  # noqa: ARG002 - that is the vice
        before, self.disabled = self.disabled, True
        try:
            yield
        finally:
            self.disabled = before

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        return nullcontext() if self.disabled else super().saved_tensors_hooks(pack, unpack)

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        return nullcontext() if self.disabled else super().save_on_cpu(pin_memory=pin_memory)


class DisablingMessageReplaced(Mutant):
    """The error for disabled saved-tensor hooks does not contain the given message."""

    def disable_saved_tensors_hooks(self, message: str) -> AbstractContextManager[Any]:  # noqa: ARG002 - that is the vice
        return super().disable_saved_tensors_hooks("saved-tensor hooks are disabled")


class SaveOnCpuNotDisabled(Mutant):
    """save_on_cpu works even where saved-tensor hooks are disabled."""

    @contextmanager
    def save_on_cpu(self, *, pin_memory: bool = False) -> Generator[None]:
        message = self.forbidden()
        self.allow_pairs()
        with super().save_on_cpu(pin_memory=pin_memory):
            yield
        if message:
            self.forbid_pairs(message)


class HooksStayDisabled(Mutant):
    """Saved-tensor hooks stay disabled after the context was left."""

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        enter_for_good(super().disable_saved_tensors_hooks(message))
        yield


class InnerDisablingMessageStays(Mutant):
    """After an inner context that disables hooks was left, errors still have the inner message."""

    messages: tuple[str, ...] = ()

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        outer, self.messages = self.messages, (*self.messages, message)
        with super().disable_saved_tensors_hooks(message):
            yield
        if outer:
            self.forbid_pairs(message)
        self.messages = outer


class InnerExitEnablesHooks(Mutant):
    """Leaving an inner context that disables hooks enables them, even inside an outer one."""

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        with super().disable_saved_tensors_hooks(message):
            yield
        self.allow_pairs()


class DisablingSuspendsActiveHooks(Mutant):
    """Disabling saved-tensor hooks while a pair is active is not an error."""

    def disable_saved_tensors_hooks(self, message: str) -> AbstractContextManager[Any]:
        return nullcontext() if self.has_pair() else super().disable_saved_tensors_hooks(message)


class PerTensorHooksDisabledToo(Mutant):
    """Hooks on a single saved tensor cannot be registered where saved-tensor hooks are disabled."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        message = self.forbidden()
        if message:
            raise RuntimeError(message)
        super().saved_tensor_register_hooks(saved, pack, unpack)
