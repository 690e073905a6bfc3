"""Mutants whose post-accumulate hooks run at the wrong time, with the wrong thing, or with too much power."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant, PostAccumulateHooks, move_to_front, within


class PostAccumulateBeforeAccumulation(Mutant):
    """A post-accumulate hook runs as a tensor hook, before .grad is updated."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, lambda _: (hook(tensor), None)[1])


class PostAccumulateBeforeTensorHooks(Mutant):
    """A post-accumulate hook runs before every hook of the leaf."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, lambda _: (hook(tensor), None)[1])
        move_to_front(self.hooks_of(tensor), handle.id)
        return handle


class PostAccumulateGetsTheGradient(PostAccumulateHooks):
    """A post-accumulate hook is given the gradient instead of the leaf."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda param: hook(self.grad_of(param))


class PostAccumulateGetsADetachedAlias(PostAccumulateHooks):
    """A post-accumulate hook is given a detached alias of the leaf."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda param: hook(self.detach(param))


class PostAccumulateAcceptedOnNonLeaf(Mutant):
    """A post-accumulate hook on a non-leaf is taken, and never called."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_post_accumulate_grad_hook(tensor, hook) if self.is_leaf(tensor) else Handle()


class PostAccumulateAcceptedWithoutGradient(Mutant):
    """A post-accumulate hook on a tensor that does not require grad is taken, and never called."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_post_accumulate_grad_hook(tensor, hook) if self.requires_grad(tensor) else Handle()


class PostAccumulateOncePerUse(PostAccumulateHooks):
    """A post-accumulate hook runs for each use of the leaf."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda param: [hook(param) for _ in range(3)][-1]


class PostAccumulateDeferredToTheEnd(PostAccumulateHooks):
    """Post-accumulate hooks wait for the end of the whole backward."""

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
    """Post-accumulate hooks run in autograd.grad too, which accumulates nothing."""

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


class BackwardInputsIgnored(Mutant):
    """backward goes to every leaf, whichever it was limited to."""

    def backward(self, root: Any, gradient: Any = None, *, inputs: Sequence[Any] | None = None, **how: Any) -> None:  # noqa: ARG002 - that is the vice
        super().backward(root, gradient, **how)


class PostAccumulateReturnRefused(PostAccumulateHooks):
    """A post-accumulate hook that returns anything makes the backward fail."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def strict(param: Any) -> None:
            if hook(param) is not None:
                raise RuntimeError("a post-accumulate hook returns None")

        return strict


class PostAccumulateReturnReplacesGradient(PostAccumulateHooks):
    """What a post-accumulate hook returns becomes the leaf's .grad."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def replacing(param: Any) -> None:
            result = hook(param)
            if result is not None:
                self.set_grad(param, self.clone(self.detach(result)))

        return replacing


class PostAccumulateAlwaysRecorded(PostAccumulateHooks):
    """Recording is on in every post-accumulate hook."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return within(self.enable_grad, hook)


class PostAccumulateNeverRecorded(PostAccumulateHooks):
    """Recording is off in every post-accumulate hook."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return within(self.no_grad, hook)


class GradModeLockedInHooks(Mutant):
    """enable_grad switches nothing on."""

    def enable_grad(self) -> AbstractContextManager[Any]:
        return nullcontext()


class PostAccumulateInPlaceRefused(Mutant):
    """A leaf cannot be changed in place, not even by its post-accumulate hook."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.is_leaf(tensor):
            raise RuntimeError("a leaf cannot be changed in place")
        return super().mul_(tensor, factor)


class GradientRestoredAfterPostAccumulate(PostAccumulateHooks):
    """After a post-accumulate hook the leaf has the .grad from before it."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def restoring(param: Any) -> None:
            grad = self.grad_of(param)
            hook(param)
            self.set_grad(param, grad)

        return restoring
