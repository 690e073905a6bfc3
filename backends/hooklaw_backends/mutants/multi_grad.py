"""Mutants whose multi-grad hooks wait for the wrong gradients, get wrong ones, or run at the wrong time."""

from collections.abc import Callable, Sequence
from typing import Any

from hooklaw_backends.mutants.base import Deferring, Handle, Hook, InGrad, Mutant, Passes, move_to_front, once


class _MultiGradHooks(Mutant):
    """A mutant that replaces each multi-grad hook by an altered one."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:
        raise NotImplementedError

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        return super().register_multi_grad_hook(tensors, self.altered(tensors, hook, mode), mode=mode)


class MultiGradHookOnceATensor(Mutant):
    """A multi-grad hook runs once for each of its tensors."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        handles = [
            super(MultiGradHookOnceATensor, self).register_multi_grad_hook([each], hook, mode=mode) for each in tensors
        ]
        return Handle(lambda: [handle.remove() for handle in handles])


class MultiGradHookWaitsForEveryTensor(_MultiGradHooks):
    """A multi-grad hook in mode all does not run if one of its tensors gets no gradient."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grads: hook(grads) if mode == "any" or all(grad is not None for grad in grads) else None


class MultiGradHookGetsZerosForNone(_MultiGradHooks):
    """A multi-grad hook in mode all gets zeros instead of None for a tensor without gradient."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:
        def filled(grads: Sequence[Any]) -> Any:
            pairs = zip(tensors, grads, strict=True)
            return hook([self.detach(tensor) * 0 if grad is None else grad for tensor, grad in pairs])

        return hook if mode == "any" else filled


class MultiGradGradientsInReverse(_MultiGradHooks):
    """A multi-grad hook in mode all gets the gradients in reverse order."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return hook if mode == "any" else lambda grads: hook(grads[::-1])


class MultiGradHookFiresOnceEver(_MultiGradHooks):
    """A multi-grad hook runs only in the first backward."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return once(hook)


class MultiGradHookSkippedInAutogradGrad(_MultiGradHooks, InGrad):
    """A multi-grad hook does not run in autograd.grad."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda given: None if self.inputs else hook(given)


class MultiGradHookCalledForNothing(_MultiGradHooks, Passes):
    """A multi-grad hook whose tensors got no gradient is called with None after the backward."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[Hook, Any] = {}

    def around(self, run: Callable[[], Any]) -> Any:
        waiting = self._waiting.copy()
        result = run()
        for hook, nothing in waiting.items():
            if hook in self._waiting:
                hook(nothing)
        self._waiting = waiting
        return result

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:
        self._waiting[hook] = None if mode == "any" else [None] * len(tensors)
        return lambda given: (self._waiting.pop(hook, None), hook(given))[1]


class MultiGradHookAnyGetsAList(_MultiGradHooks):
    """A multi-grad hook in mode any gets the gradient in a list."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return (lambda grad: hook([grad])) if mode == "any" else hook


class MultiGradModeUnchecked(Mutant):
    """An unknown mode of a multi-grad hook is taken for mode all instead of raising an error."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        return super().register_multi_grad_hook(tensors, hook, mode="any" if mode == "any" else "all")


class MultiGradHookReplacesTheGradient(Mutant):
    """The return value of a multi-grad hook on a single tensor replaces the gradient."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        if len(tensors) > 1 or mode not in ("all", "any"):
            return super().register_multi_grad_hook(tensors, hook, mode=mode)
        return self.register_hook(tensors[0], hook if mode == "any" else lambda grad: hook([grad]))


class MultiGradHandleOfTheFirstTensor(Mutant):
    """The handle of a multi-grad hook removes it from the first tensor only."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        handle = super().register_multi_grad_hook(tensors, hook, mode=mode)
        return getattr(handle, "handles", handle)[0]


class MultiGradHookDeferredToTheEnd(_MultiGradHooks, Deferring):
    """A multi-grad hook runs only after the whole backward."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return self.later(hook)


class MultiGradHookBeforeEarlierTensorHooks(Mutant):
    """A multi-grad hook runs before tensor hooks that were registered earlier."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        handle = super().register_multi_grad_hook(tensors, hook, mode=mode)
        for tensor, own in zip(filter(self.requires_grad, tensors), getattr(handle, "handles", handle), strict=True):
            move_to_front(self.hooks_of(tensor), own.id)
        return handle


class ThreadsShareTheGradientsOfAMultiGradHook(Mutant):
    """A multi-grad hook in mode all mixes the gradients of concurrent backward passes."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        if mode != "all" or not all(map(self.requires_grad, tensors)):
            return super().register_multi_grad_hook(tensors, hook, mode=mode)
        grads: dict[int, Any] = {}

        def arrive(nr: int, grad: Any) -> None:
            grads[nr] = grad
            if len(grads) == len(tensors):
                hook([grads.pop(nr) for nr in range(len(tensors))])

        handles = [self.register_hook(each, lambda grad, nr=nr: arrive(nr, grad)) for nr, each in enumerate(tensors)]
        return Handle(lambda: [handle.remove() for handle in handles])
