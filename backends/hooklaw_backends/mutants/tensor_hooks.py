"""Mutants in which the hooks of a tensor fire at the wrong time, too often or not at all, or see the wrong thing."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import EveryHook, Handle, Hook, Mutant, OwnDispatch, TensorHooks, chained, within


class TensorHookFiresOnlyInTheFirstBackward(TensorHooks):
    """A tensor's hook is used up by the first call."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        fired: list[bool] = []
        return lambda grad: None if fired else (fired.append(True), hook(grad))[1]


class TensorHookFiresPerEdge(TensorHooks):
    """A tensor's hook is called for each part of the gradient, not for the sum."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def in_halves(grad: Any) -> Any:
            halves = [hook(grad * 0.5) for _ in range(2)]
            return None if halves[0] is None else halves[0] + halves[1]

        return in_halves


class TensorHookReceivesTheValue(TensorHooks):
    """A tensor's hook is given the tensor's value instead of its gradient."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        value = self.detach(tensor)
        return lambda _: hook(value)


class _RootHooks(TensorHooks):
    """Knows the root of the backward that is running."""

    root: Any = None

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.root = root
        try:
            super().backward(root, gradient, **how)
        finally:
            self.root = None


class RootHookSkipped(_RootHooks):
    """The hooks of a backward's root do not run."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        return lambda grad: None if self.root is tensor else hook(grad)


class RootHookSeesOnes(_RootHooks):
    """The hooks of a backward's root see ones, whatever gradient was given."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        return lambda grad: hook(grad * 0 + 1 if self.root is tensor else grad)


class TensorHooksOfTheWholeGraphFire(TensorHooks):
    """Every hook fires in every pass, with zeros where no gradient is needed."""

    def __init__(self) -> None:
        super().__init__()
        self._unfired: dict[Hook, Any] = {}

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        self._unfired[hook] = tensor
        return lambda grad: (self._unfired.pop(hook, None), hook(grad))[1]

    def _fire_the_rest(self) -> None:
        for hook, tensor in self._unfired.items():
            hook(self.detach(tensor) * 0)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        self._fire_the_rest()

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        self._fire_the_rest()
        return grads


class _GradInputHooks(TensorHooks):
    """Knows the inputs of the autograd.grad that is running."""

    inputs: Sequence[Any] = ()

    def asks_for(self, tensor: Any) -> bool:
        return any(one is tensor for one in self.inputs)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self.inputs = inputs
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self.inputs = ()


class HooksOfGradInputsSkipped(_GradInputHooks):
    """The hooks of the tensors that autograd.grad was asked for do not run."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        return lambda grad: None if self.asks_for(tensor) else hook(grad)


class GradientCapturedBeforeHooks(_GradInputHooks):
    """What autograd.grad returns for a tensor is without what the tensor's hooks made of it."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        def without_result(grad: Any) -> Any:
            result = hook(grad)
            return None if self.asks_for(tensor) else result

        return without_result


class TensorHooksSharedByTheNode(Mutant):
    """A hook on one output of a Node fires for its other outputs too."""

    outputs: Sequence[Any] = ()

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        self.outputs = super().split(tensor, size)
        return tuple(self.outputs)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        for output in self.outputs:
            if output is not tensor:
                super().register_hook(output, hook)
        return super().register_hook(tensor, hook)


class TensorHooksFrozenAtForward(Mutant):
    """Once a loss was computed, hooks on what led to it can be neither put nor removed."""

    frozen = False

    def sum(self, tensor: Any) -> Any:
        self.frozen = True
        return super().sum(tensor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if self.frozen and not self.is_leaf(tensor):
            return Handle()
        handle = super().register_hook(tensor, hook)
        return Handle(lambda: None if self.frozen else handle.remove())


class TensorHookAfterAccumulation(Mutant):
    """A leaf's hooks run once its gradient was accumulated."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if self.is_leaf(tensor) and self.requires_grad(tensor):
            return super().register_post_accumulate_grad_hook(tensor, lambda leaf: hook(self.grad_of(leaf)))
        return super().register_hook(tensor, hook)


class HooksRunInReverseOrder(OwnDispatch):
    """Of several hooks in one place, the newest runs first."""

    def run(self, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:  # noqa: ARG002 - as declared
        return chained(hooks[::-1], *arguments)


class SameHookRegisteredOnce(OwnDispatch):
    """A function that is registered again in one place runs no more often than before."""

    def run(self, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:  # noqa: ARG002 - as declared
        return chained(dict.fromkeys(hooks), *arguments)


class HooksOfTheGraphRunFromTheLeaves(EveryHook):
    """Hooks wait for the end of the backward, and then the last is called first."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[Hook, tuple[Any, ...]]] = []

    def around(self, hook: Hook) -> Hook:
        return lambda *arguments: self._waiting.append((hook, arguments))

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        while self._waiting:
            hook, arguments = self._waiting.pop()
            hook(*arguments)


class HookAcceptedWithoutRequiresGrad(Mutant):
    """A hook on a tensor that does not require grad is taken, and never called."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, hook) if self.requires_grad(tensor) else Handle()


class HooksRunWithGradModeOn(TensorHooks):
    """Recording is on while a tensor's hook runs."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return within(self.enable_grad, hook)


class HooksRunWithGradModeOff(TensorHooks):
    """Recording is off while a tensor's hook runs, though the backward creates a graph."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return within(self.no_grad, hook)


class ExceptionPoisonsTheEngine(Mutant):
    """After an exception in a hook no backward succeeds any more."""

    poisoned = False

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if self.poisoned:
            raise RuntimeError("the engine is in an invalid state")
        try:
            super().backward(root, gradient, **how)
        except Exception:
            self.poisoned = True
            raise
