"""Mutants whose post-accumulate hooks run at the wrong time, get the wrong argument, or change too much."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import (
    Handle,
    Hook,
    Mutant,
    PostAccumulateHooks,
    move_to_front,
    within,
    without_result,
)


class PostAccumulateBeforeAccumulation(Mutant):
    """A post-accumulate hook runs as a tensor hook, before .grad is updated."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, without_result(lambda _: hook(tensor)))


class PostAccumulateBeforeTensorHooks(Mutant):
    """A post-accumulate hook runs before every tensor hook of the leaf."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, without_result(lambda _: hook(tensor)))
        move_to_front(self.hooks_of(tensor), handle.id)
        return handle


class PostAccumulateGetsTheGradient(PostAccumulateHooks):
    """A post-accumulate hook gets the gradient instead of the leaf."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda param: hook(self.grad_of(param))


class PostAccumulateGetsADetachedAlias(PostAccumulateHooks):
    """A post-accumulate hook gets a detached alias of the leaf."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda param: hook(self.detach(param))


class PostAccumulateAcceptedOnNonLeaf(Mutant):
    """Registering a post-accumulate hook on a non-leaf tensor is not an error, but the hook never runs."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_post_accumulate_grad_hook(tensor, hook) if self.is_leaf(tensor) else Handle()


class PostAccumulateAcceptedWithoutGradient(Mutant):
    """Registering a post-accumulate hook on a tensor that does not require grad is not an error."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_post_accumulate_grad_hook(tensor, hook) if self.requires_grad(tensor) else Handle()


class PostAccumulateOncePerUse(PostAccumulateHooks):
    """A post-accumulate hook runs several times in one backward instead of once."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda param: [hook(param) for _ in range(3)][-1]


class PostAccumulateDeferredToTheEnd(PostAccumulateHooks):
    """Post-accumulate hooks run only after the whole backward."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[Hook, Any]] = []

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda param: self._waiting.append((hook, param))

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        while self._waiting:
            hook, param = self._waiting.pop(0)
            hook(param)


class PostAccumulateFiresInAutogradGrad(Mutant):
    """Post-accumulate hooks also run in autograd.grad, which accumulates nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._hooks: list[tuple[Hook, Any]] = []

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        self._hooks.append((hook, tensor))
        return super().register_post_accumulate_grad_hook(tensor, hook)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        for hook, leaf in self._hooks:
            hook(leaf)
        return grads


class PostAccumulateReturnRefused(PostAccumulateHooks):
    """A post-accumulate hook that returns anything but None is an error."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def strict(param: Any) -> None:
            if hook(param) is not None:
                raise RuntimeError("a post-accumulate hook must return None")

        return strict


class PostAccumulateReturnReplacesGradient(PostAccumulateHooks):
    """The return value of a post-accumulate hook replaces the leaf's .grad."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def replacing(param: Any) -> None:
            result = hook(param)
            if result is not None:
                self.set_grad(param, self.clone(self.detach(result)))

        return replacing


class PostAccumulateAlwaysRecorded(PostAccumulateHooks):
    """Grad mode is on in every post-accumulate hook."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return within(self.enable_grad, hook)


class PostAccumulateNeverRecorded(PostAccumulateHooks):
    """Grad mode is off in every post-accumulate hook."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return within(self.no_grad, hook)


class GradModeLockedInHooks(Mutant):
    """enable_grad has no effect."""

    def enable_grad(self) -> AbstractContextManager[Any]:
        return nullcontext()


class PostAccumulateInPlaceRefused(Mutant):
    """A leaf cannot be changed in place, even by its post-accumulate hook."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.is_leaf(tensor):
            raise RuntimeError("a leaf cannot be changed in place")
        return super().mul_(tensor, factor)


class GradientRestoredAfterPostAccumulate(PostAccumulateHooks):
    """Changes that a post-accumulate hook makes to the leaf's .grad are undone."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def restoring(param: Any) -> None:
            grad = self.grad_of(param)
            hook(param)
            self.set_grad(param, grad)

        return restoring
