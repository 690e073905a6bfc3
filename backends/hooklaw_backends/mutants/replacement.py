"""Mutants that misuse a hook's return value or its exception."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hooklaw_backends.mutants.base import (
    EveryHook,
    Hook,
    NodeHooks,
    OwnDispatch,
    Pair,
    Pairs,
    TensorHooks,
    chained,
    within,
    without_result,
)


class _Results(TensorHooks):
    """A mutant that changes the return value of each tensor hook."""

    def changed(self, grad: Any, result: Any) -> Any:
        raise NotImplementedError

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grad: self.changed(grad, hook(grad))


class NoneTakenAsZero(_Results, NodeHooks):
    """A hook that returns None replaces the gradient by zeros."""

    def changed(self, grad: Any, result: Any) -> Any:
        return grad * 0 if result is None else result

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def zeroing(grads: Any, *rest: Any) -> Any:
            result = hook(grads, *rest)
            return tuple(None if grad is None else grad * 0 for grad in grads) if result is None else result

        return zeroing

    altered_post = altered_pre


class ReplacementIgnored(TensorHooks):
    """The return value of a tensor hook is ignored."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return without_result(hook)


class ReplacementNotPropagated(OwnDispatch):
    """The return value of a non-leaf's hook reaches later hooks but not the Node."""

    def run(self, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:
        result = chained(hooks, *arguments)
        return None if self.is_tensor(target) and not self.is_leaf(target) else result


class LaterHooksSeeTheOriginalGradient(OwnDispatch):
    """Each hook gets the original gradient instead of what the earlier hooks returned."""

    def run(self, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:  # noqa: ARG002 - part of the method
        results = [result for hook in hooks if (result := hook(*arguments)) is not None]
        return results[-1] if results else None


class ReplacementWrittenIntoASharedGradient(_Results):
    """A hook's return value is written into the given gradient, which other tensors may share."""

    def changed(self, grad: Any, result: Any) -> None:
        if result is not None:
            self.overwrite(grad, result)


class ReplacementAppliedTwice(_Results):
    """A hook that scales the gradient scales it twice."""

    def changed(self, grad: Any, result: Any) -> Any:
        return None if result is None else result * self.quotient(result, grad)


class HookResultDetached(_Results):
    """The return value of a tensor hook is detached from its graph."""

    def changed(self, grad: Any, result: Any) -> Any:  # noqa: ARG002 - part of the method
        return None if result is None else self.detach(result)


class BadHookResultIgnored(_Results):
    """A hook's return value of the wrong type, shape or dtype is ignored instead of raising an error."""

    def changed(self, grad: Any, result: Any) -> Any:
        return result if self.is_tensor(result) and self._kind(result) == self._kind(grad) else None

    def _kind(self, tensor: Any) -> tuple[Any, ...]:
        return self.shape(tensor), self.dtype(tensor)


class HookResultBroadcast(_Results):
    """A hook's return value of the wrong shape is broadcast instead of raising an error."""

    def changed(self, grad: Any, result: Any) -> Any:
        differs = self.is_tensor(result) and self.shape(result) != self.shape(grad)
        return self.expand(result, *self.shape(grad)) if differs else result


class HookResultCast(_Results):
    """A hook's return value of another dtype is cast to the gradient's dtype."""

    def changed(self, grad: Any, result: Any) -> Any:
        return self.cast(result, self.dtype(grad)) if self.is_tensor(result) else result


class HookExceptionSwallowed(EveryHook):
    """An exception in a hook that runs during backward is lost."""

    def around(self, hook: Hook) -> Hook:
        return within(lambda: suppress(Exception), hook)


def wrapping(hook: Hook) -> Hook:
    """Return a hook that turns every exception into a RuntimeError."""

    def wrapped(*arguments: Any) -> Any:
        try:
            return hook(*arguments)
        except Exception as error:
            raise RuntimeError("a hook failed") from error

    return wrapped


class HookExceptionWrapped(EveryHook):
    """An exception in a hook that runs during backward becomes a RuntimeError."""

    def around(self, hook: Hook) -> Hook:
        return wrapping(hook)


class PairExceptionWrapped(Pairs):
    """An exception in pack or unpack becomes a RuntimeError."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return wrapping(pack), wrapping(unpack)


class PairExceptionSwallowed(Pairs):
    """An exception in pack or unpack is lost, and the tensor is saved as without hooks."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
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
