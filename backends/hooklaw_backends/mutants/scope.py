"""Mutants in which a pair of saved-tensor hooks, or their being disabled, applies in the wrong place."""

import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, enter_for_good


class HooksOutliveTheirContext(Mutant):
    """A pair stays active after its context was left."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        enter_for_good(super().saved_tensors_hooks(pack, unpack))
        yield


class HooksOutliveAnException(Mutant):
    """A pair stays active where an exception left its context."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        hooks = super().saved_tensors_hooks(pack, unpack)
        enter_for_good(hooks)
        yield
        hooks.__exit__(None, None, None)


class HooksDroppedAtContextExit(Mutant):
    """What was packed in a context is not unpacked once the context was left."""

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
    """The pairs that are active in this thread."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []


class _NestedPairs(Mutant):
    """Knows the pairs that are active."""

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

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG002 - on the CPU already
        return self.saved_tensors_hooks(self.detach, lambda kept: kept)


class OutermostPairWins(_NestedPairs):
    """Where pairs are nested the outermost applies."""

    def nested(self, pair: Pair, outer: Pair) -> Pair:  # noqa: ARG002 - as declared
        return outer


class NestedPairsComposed(_NestedPairs):
    """Where pairs are nested the outer packs what the inner packed."""

    def nested(self, pair: Pair, outer: Pair) -> Pair:
        return lambda tensor: outer[0](pair[0](tensor)), lambda packed: pair[1](outer[1](packed))


class NestingIsAnError(_NestedPairs):
    """A second pair cannot be set while one is active."""

    def nested(self, pair: Pair, outer: Pair) -> Pair:  # noqa: ARG002 - as declared
        raise RuntimeError("a pair of saved-tensor hooks is active already")


class OuterPairLostAfterInner(Mutant):
    """When an inner context is left no pair applies any more."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        enter_for_good(super().saved_tensors_hooks(pack, unpack))
        try:
            yield
        finally:
            self.drop_pairs()


class HooksInheritedFromTheForwardPass(Mutant):
    """What autograd.grad saves is packed by the pair of the forward pass."""

    last: Pair | None = None

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        self.last = (pack, unpack)
        return super().saved_tensors_hooks(pack, unpack)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        with super().saved_tensors_hooks(*self.last) if self.last else nullcontext():
            return super().grad(outputs, inputs, grad_outputs, **how)


class HooksIgnoredDuringBackward(Mutant):
    """What autograd.grad saves is not packed by the pair around it."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        with self.saved_tensors_hooks(lambda tensor: tensor, lambda kept: kept):
            return super().grad(outputs, inputs, grad_outputs, **how)


class DisabledHooksIgnoredSilently(Mutant):
    """Hooks that are disabled are left out without an error."""

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
    """The error of disabled hooks has a text of its own."""

    def disable_saved_tensors_hooks(self, message: str) -> AbstractContextManager[Any]:  # noqa: ARG002 - that is the vice
        return super().disable_saved_tensors_hooks("saved-tensor hooks are disabled")


class SaveOnCpuNotDisabled(Mutant):
    """save_on_cpu works where hooks are disabled."""

    @contextmanager
    def save_on_cpu(self, *, pin_memory: bool = False) -> Generator[None]:
        message = self.forbidden()
        self.allow_pairs()
        with super().save_on_cpu(pin_memory=pin_memory):
            yield
        if message:
            self.forbid_pairs(message)


class HooksStayDisabled(Mutant):
    """Hooks stay disabled after the context was left."""

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        enter_for_good(super().disable_saved_tensors_hooks(message))
        yield


class InnerDisablingMessageStays(Mutant):
    """After an inner context that disables hooks, the outer one says the inner one's message."""

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
    """Leaving a context that disables hooks enables them, though an outer one is active."""

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        with super().disable_saved_tensors_hooks(message):
            yield
        self.allow_pairs()


class DisablingSuspendsActiveHooks(Mutant):
    """Disabling hooks while a pair is active is no error."""

    def disable_saved_tensors_hooks(self, message: str) -> AbstractContextManager[Any]:
        return nullcontext() if self.has_pair() else super().disable_saved_tensors_hooks(message)


class PerTensorHooksDisabledToo(Mutant):
    """Where hooks are disabled a saved tensor takes no pair of its own."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        message = self.forbidden()
        if message:
            raise RuntimeError(message)
        super().saved_tensor_register_hooks(saved, pack, unpack)
