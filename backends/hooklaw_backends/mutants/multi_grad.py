"""Mutants whose hook on several tensors waits for the wrong gradients, gets wrong ones, or runs at the wrong time."""

from collections.abc import Callable, Sequence
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant, Passes, move_to_front


class _MultiGradHooks(Mutant):
    """Puts another multi-grad hook than it was given."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:
        raise NotImplementedError

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        return super().register_multi_grad_hook(tensors, self.altered(tensors, hook, mode), mode=mode)


class MultiGradHookOnceATensor(Mutant):
    """A multi-grad hook runs for each of its tensors."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        handles = [
            super(MultiGradHookOnceATensor, self).register_multi_grad_hook([one], hook, mode=mode) for one in tensors
        ]
        return Handle(lambda: [handle.remove() for handle in handles])


class MultiGradHookWaitsForEveryTensor(_MultiGradHooks):
    """A multi-grad hook does not run where one of its tensors takes no part."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grads: hook(grads) if mode == "any" or all(one is not None for one in grads) else None


class MultiGradHookGetsZerosForNone(_MultiGradHooks):
    """A multi-grad hook is given zeros for the gradient of a tensor that takes no part."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:
        def filled(grads: Sequence[Any]) -> Any:
            return hook(
                [self.detach(one) * 0 if grad is None else grad for one, grad in zip(tensors, grads, strict=True)]
            )

        return hook if mode == "any" else filled


class MultiGradGradientsInReverse(_MultiGradHooks):
    """A multi-grad hook is given the gradients from the last tensor to the first."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return hook if mode == "any" else lambda grads: hook(grads[::-1])


class MultiGradHookFiresOnceEver(_MultiGradHooks):
    """A multi-grad hook runs in the first backward only."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        fired: list[bool] = []
        return lambda given: None if fired else (fired.append(True), hook(given))[1]


class MultiGradHookSkippedInAutogradGrad(_MultiGradHooks):
    """A multi-grad hook does not run in autograd.grad."""

    asked = False

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self.asked = True
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self.asked = False

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda given: None if self.asked else hook(given)


class MultiGradHookCalledForNothing(_MultiGradHooks, Passes):
    """A multi-grad hook none of whose tensors takes part is called with nothing in the end."""

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
    """In mode any the gradient comes in a list."""

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return (lambda grad: hook([grad])) if mode == "any" else hook


class MultiGradModeUnchecked(Mutant):
    """A mode of a multi-grad hook that does not exist is taken for all."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        return super().register_multi_grad_hook(tensors, hook, mode="any" if mode == "any" else "all")


class MultiGradHookReplacesTheGradient(Mutant):
    """What a multi-grad hook on one tensor returns takes the place of its gradient."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        if len(tensors) > 1 or mode not in ("all", "any"):
            return super().register_multi_grad_hook(tensors, hook, mode=mode)
        return self.register_hook(tensors[0], hook if mode == "any" else lambda grad: hook([grad]))


class MultiGradHandleOfTheFirstTensor(Mutant):
    """The handle of a multi-grad hook takes it away from the first tensor only."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        handle = super().register_multi_grad_hook(tensors, hook, mode=mode)
        return getattr(handle, "handles", handle)[0]


class MultiGradHookDeferredToTheEnd(_MultiGradHooks, Passes):
    """A multi-grad hook runs when the backward is over."""

    def __init__(self) -> None:
        super().__init__()
        self._deferred: list[Callable[[], object]] = []

    def around(self, run: Callable[[], Any]) -> Any:
        result = run()
        while self._deferred:
            self._deferred.pop(0)()
        return result

    def altered(self, tensors: Sequence[Any], hook: Hook, mode: str) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda given: self._deferred.append(lambda: hook(given))


class MultiGradHookBeforeEarlierTensorHooks(Mutant):
    """A multi-grad hook runs before the hooks that its tensors have already."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        handle = super().register_multi_grad_hook(tensors, hook, mode=mode)
        for one, each in zip(filter(self.requires_grad, tensors), getattr(handle, "handles", handle), strict=True):
            move_to_front(self.hooks_of(one), each.id)
        return handle


class ThreadsShareTheGradientsOfAMultiGradHook(Mutant):
    """A multi-grad hook in mode all collects gradients of whichever backward they come from."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: Hook, *, mode: str = "all") -> Any:
        if mode != "all" or not all(map(self.requires_grad, tensors)):
            return super().register_multi_grad_hook(tensors, hook, mode=mode)
        grads: dict[int, Any] = {}

        def arrive(nr: int, grad: Any) -> None:
            grads[nr] = grad
            if len(grads) == len(tensors):
                hook([grads.pop(nr) for nr in range(len(tensors))])

        handles = [self.register_hook(one, lambda grad, nr=nr: arrive(nr, grad)) for nr, one in enumerate(tensors)]
        return Handle(lambda: [handle.remove() for handle in handles])
