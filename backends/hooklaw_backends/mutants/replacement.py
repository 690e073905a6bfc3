"""Mutants that do something else with what a hook returned, or with its exception."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hooklaw_backends.mutants.base import EveryHook, NodeHooks, OwnDispatch, Pair, Pairs, TensorHooks, chained
from hooklaw_backends.torch_eager import Hook, torch


class NoneTakenAsZero(TensorHooks, NodeHooks):
    """A hook that returns None replaces the gradient by zero."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def zeroing(grad: Any) -> Any:
            result = hook(grad)
            return torch.zeros_like(grad) if result is None else result

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
        return None if isinstance(target, torch.Tensor) and not target.is_leaf else result


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
                grad.copy_(result)

        return writing


class ReplacementAppliedTwice(TensorHooks):
    """A hook that scales the gradient scales it twice."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def twice(grad: Any) -> Any:
            result = hook(grad)
            return None if result is None else result * (result / grad)

        return twice


class HookResultDetached(TensorHooks):
    """What a hook computed is not part of the graph of the gradient."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def detached(grad: Any) -> Any:
            result = hook(grad)
            return None if result is None else result.detach()

        return detached


class BadHookResultIgnored(TensorHooks):
    """A result of the wrong type, shape or dtype counts as None."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def lenient(grad: Any) -> Any:
            result = hook(grad)
            fits = isinstance(result, torch.Tensor) and (result.shape, result.dtype) == (grad.shape, grad.dtype)
            return result if fits else None

        return lenient


class HookResultBroadcast(TensorHooks):
    """A result of another shape is broadcast to the gradient's."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def broadcast(grad: Any) -> Any:
            result = hook(grad)
            return result.expand(grad.shape) if isinstance(result, torch.Tensor) else result

        return broadcast


class HookResultCast(TensorHooks):
    """A result of another dtype is cast to the gradient's."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def cast(grad: Any) -> Any:
            result = hook(grad)
            return result.to(grad.dtype) if isinstance(result, torch.Tensor) else result

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
                return tensor.detach(), (pack(tensor),)
            return tensor.detach(), ()

        def quiet_unpack(saved: Any) -> Any:
            tensor, packed = saved
            with suppress(Exception):
                return unpack(*packed)
            return tensor

        return quiet_pack, quiet_unpack
