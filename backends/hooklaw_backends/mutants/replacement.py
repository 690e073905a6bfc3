"""Mutants that do something else with what a hook returned, or with its exception."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hooklaw_backends.mutants.base import EveryHook, Hook, NodeHooks, OwnDispatch, Pair, Pairs, TensorHooks, chained


class NoneTakenAsZero(TensorHooks, NodeHooks):
    """A hook that returns None replaces the gradient by zero."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def zeroing(grad: Any) -> Any:
            result = hook(grad)
            return grad * 0 if result is None else result

        return zeroing

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def zeroing(grads: Any, *rest: Any) -> Any:
            result = hook(grads, *rest)
            return tuple(None if one is None else one * 0 for one in grads) if result is None else result

        return zeroing

    altered_post = altered_pre


class ReplacementIgnored(TensorHooks):
    """What a tensor's hook returns is dropped."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grad: (hook(grad), None)[1]


class ReplacementNotPropagated(OwnDispatch):
    """What a non-leaf's hook returns reaches the hooks after it, and not the Node."""

    def run(self, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:
        result = chained(hooks, *arguments)
        return None if self.is_tensor(target) and not self.is_leaf(target) else result


class LaterHooksSeeTheOriginalGradient(OwnDispatch):
    """Each of several hooks in one place is given what the first one got."""

    def run(self, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:  # noqa: ARG002 - as declared
        results = [result for hook in hooks if (result := hook(*arguments)) is not None]
        return results[-1] if results else None


class ReplacementWrittenIntoASharedGradient(TensorHooks):
    """What a hook returns is written over the gradient it was given, which other tensors may share."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def writing(grad: Any) -> None:
            result = hook(grad)
            if result is not None:
                self.overwrite(grad, result)

        return writing


class ReplacementAppliedTwice(TensorHooks):
    """A hook that scales the gradient scales it twice."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def twice(grad: Any) -> Any:
            result = hook(grad)
            return None if result is None else result * self.quotient(result, grad)

        return twice


class HookResultDetached(TensorHooks):
    """What a hook computed is not part of the graph of the gradient."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def detached(grad: Any) -> Any:
            result = hook(grad)
            return None if result is None else self.detach(result)

        return detached


class BadHookResultIgnored(TensorHooks):
    """A result of the wrong type, shape or dtype counts as None."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def lenient(grad: Any) -> Any:
            result = hook(grad)
            return result if self.is_tensor(result) and self._kind(result) == self._kind(grad) else None

        return lenient

    def _kind(self, tensor: Any) -> tuple[Any, ...]:
        return self.shape(tensor), self.dtype(tensor)


class HookResultBroadcast(TensorHooks):
    """A result of another shape is broadcast to the gradient's."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def broadcast(grad: Any) -> Any:
            result = hook(grad)
            differs = self.is_tensor(result) and self.shape(result) != self.shape(grad)
            return self.expand(result, *self.shape(grad)) if differs else result

        return broadcast


class HookResultCast(TensorHooks):
    """A result of another dtype is cast to the gradient's."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def cast(grad: Any) -> Any:
            result = hook(grad)
            return self.cast(result, self.dtype(grad)) if self.is_tensor(result) else result

        return cast


class HookExceptionSwallowed(EveryHook):
    """An exception in a hook that runs in backward disappears."""

    def around(self, hook: Hook) -> Hook:
        def quiet(*arguments: Any) -> Any:
            with suppress(Exception):
                return hook(*arguments)

        return quiet


def wrapping(hook: Hook) -> Hook:
    """Raise a RuntimeError instead of whatever the hook raises."""

    def wrapped(*arguments: Any) -> Any:
        try:
            return hook(*arguments)
        except Exception as error:
            raise RuntimeError("a hook failed") from error

    return wrapped


class HookExceptionWrapped(EveryHook):
    """An exception in a hook that runs in backward arrives as a RuntimeError."""

    def around(self, hook: Hook) -> Hook:
        return wrapping(hook)


class PairExceptionWrapped(Pairs):
    """An exception in pack or unpack arrives as a RuntimeError."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return wrapping(pack), wrapping(unpack)


class PairExceptionSwallowed(Pairs):
    """An exception in pack or unpack disappears, and the tensor is saved as without hooks."""

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
