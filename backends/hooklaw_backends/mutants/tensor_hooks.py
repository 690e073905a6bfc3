"""Mutants whose tensor hooks run at the wrong time, too often or never, or get the wrong argument."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import (
    EveryHook,
    Handle,
    Hook,
    InBackward,
    InGrad,
    Mutant,
    OwnDispatch,
    TensorHooks,
    chained,
    once,
    within,
)


class TensorHookFiresOnlyInTheFirstBackward(TensorHooks):
    """A tensor hook runs only in the first backward."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return once(hook)


class TensorHookFiresPerEdge(TensorHooks):
    """A tensor hook runs once for each part of the gradient instead of once for the sum."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def in_halves(grad: Any) -> Any:
            halves = [hook(grad * 0.5) for _ in range(2)]
            return None if halves[0] is None else halves[0] + halves[1]

        return in_halves


class TensorHookReceivesTheValue(TensorHooks):
    """A tensor hook gets the tensor's value instead of its gradient."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        value = self.detach(tensor)
        return lambda _: hook(value)


class RootHookSkipped(TensorHooks, InBackward):
    """The hooks of a backward's root do not run."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        return lambda grad: None if self.root is tensor else hook(grad)


class RootHookSeesOnes(TensorHooks, InBackward):
    """The hooks of a backward's root get ones instead of the given gradient."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        return lambda grad: hook(grad * 0 + 1 if self.root is tensor else grad)


class TensorHooksOfTheWholeGraphFire(TensorHooks):
    """A tensor hook that did not run is called with zeros after the backward."""

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


class _GradInputHooks(TensorHooks, InGrad):
    """A mutant that knows whether the running autograd.grad has a tensor among its inputs."""

    def asks_for(self, tensor: Any) -> bool:
        return any(tensor is asked for asked in self.inputs)


class HooksOfGradInputsSkipped(_GradInputHooks):
    """The hooks of the inputs of autograd.grad do not run."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        return lambda grad: None if self.asks_for(tensor) else hook(grad)


class GradientCapturedBeforeHooks(_GradInputHooks):
    """autograd.grad returns the gradient of an input without the changes by its hooks."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        def without_result(grad: Any) -> Any:
            result = hook(grad)
            return None if self.asks_for(tensor) else result

        return without_result


class TensorHooksSharedByTheNode(Mutant):
    """A hook on one output of a Node also runs for its other outputs."""

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
    """After the loss is computed, hooks on non-leaf tensors can be neither registered nor removed."""

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
    """A leaf's tensor hooks run after its gradient was accumulated."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if self.is_leaf(tensor) and self.requires_grad(tensor):
            return super().register_post_accumulate_grad_hook(tensor, lambda leaf: hook(self.grad_of(leaf)))
        return super().register_hook(tensor, hook)


class HooksRunInReverseOrder(OwnDispatch):
    """Hooks in the same place run in reverse order of registration."""

    def run(self, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:  # noqa: ARG002 - part of the method
        return chained(hooks[::-1], *arguments)


class SameHookRegisteredOnce(OwnDispatch):
    """A hook that is registered twice in the same place runs once."""

    def run(self, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:  # noqa: ARG002 - part of the method
        return chained(dict.fromkeys(hooks), *arguments)


class HooksOfTheGraphRunFromTheLeaves(EveryHook):
    """Hooks run after the whole backward, in reverse order."""

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
    """Registering a hook on a tensor that does not require grad is not an error."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, hook) if self.requires_grad(tensor) else Handle()


class HooksRunWithGradModeOn(TensorHooks):
    """Grad mode is on while a tensor hook runs."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return within(self.enable_grad, hook)


class HooksRunWithGradModeOff(TensorHooks):
    """Grad mode is off while a tensor hook runs, even with create_graph=True."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return within(self.no_grad, hook)


class ExceptionPoisonsTheEngine(Mutant):
    """After an exception in a hook every later backward fails."""

    poisoned = False

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if self.poisoned:
            raise RuntimeError("the engine is in an invalid state")
        try:
            super().backward(root, gradient, **how)
        except Exception:
            self.poisoned = True
            raise
