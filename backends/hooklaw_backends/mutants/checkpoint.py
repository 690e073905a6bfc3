"""Mutants that recompute a checkpointed region too often, too little, or wrongly."""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, overriding


class EarlyStopStaysOff(Mutant):
    """After a checkpoint with early_stop=False every later one is recomputed to the end too."""

    is_off = False

    def reset(self) -> None:
        super().reset()
        self.is_off = False

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:
        self.is_off = self.is_off or how.get("early_stop") is False
        later = {"early_stop": False} if self.is_off and not how.get("use_reentrant") else {}
        return super().checkpoint(fn, *tensors, **{**how, **later})


class _InRegion(Mutant):
    """A mutant that knows whether a checkpointed region runs."""

    in_region = False

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:
        def marked(*given: Any) -> Any:
            self.in_region = True
            try:
                return fn(*given)
            finally:
                self.in_region = False

        return super().checkpoint(marked, *tensors, **how)


class PairsIgnoredInARegion(_InRegion):
    """Saved-tensor hooks that are entered inside a checkpointed region have no effect."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        return nullcontext() if self.in_region else super().saved_tensors_hooks(pack, unpack)


class ReentrantCheckpointNeedsAGradientForEachOutput(Mutant):
    """A reentrant checkpoint of which one output gets no gradient has no gradients at all."""

    needed = slice(None)

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        outputs = super().checkpoint(fn, *inputs, **how)
        if not how.get("use_reentrant") or not isinstance(outputs, tuple):
            return outputs

        def forward(ctx: Any, *outputs: Any) -> Any:
            ctx.set_materialize_grads(False)
            return tuple(each * 1 if self.is_tensor(each) else each for each in outputs)

        def backward(_ctx: Any, *grads: Any) -> Any:
            own = [grad for grad, each in zip(grads, outputs, strict=True) if self.is_tensor(each)]
            return (None,) * len(grads) if any(grad is None for grad in own[self.needed]) else grads

        return self.custom_function(forward, backward)(*outputs)


class ReentrantCheckpointNeedsAGradientForItsFirstOutput(ReentrantCheckpointNeedsAGradientForEachOutput):
    """A reentrant checkpoint whose first output gets no gradient has no gradients at all."""

    needed = slice(1)


@overriding("checkpoint")
def checkpoint_overlooks_a_repeated_input(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A tensor that is given twice to a checkpoint gets the first of its gradients alone."""
    seen: list[Any] = []
    once: list[Any] = []
    for value in inputs:
        repeated = self.is_tensor(value) and any(value is other for other in seen)
        once.append(self.detach(value) if repeated else value)
        seen.append(value)
    return old(fn, *once, **how)


class _KeepsItsInputs(Mutant):
    """A mutant that keeps the inputs of non-reentrant checkpoints."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        self.kept += inputs if how.get("use_reentrant") is False else ()
        return super().checkpoint(fn, *inputs, **how)

    def asks_for_others_alone(self, inputs: Sequence[Any]) -> bool:
        """Whether a checkpoint was made, and none of its inputs is among these."""
        return bool(self.kept) and not any(map(self.keeps, inputs))


class CapturedLeafAloneHasNoGradient(_KeepsItsInputs):
    """A non-reentrant checkpoint has no gradients for captured leaves, unless an input's is asked for too."""

    def grad(self, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, *given, **how)
        return (None,) * len(grads) if self.asks_for_others_alone(inputs) else grads

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if how.get("inputs") is None or not self.asks_for_others_alone(how["inputs"]):
            super().backward(root, gradient, **how)


class CapturedLeafLostInDoubleBackward(_KeepsItsInputs):
    """The gradient through a non-reentrant checkpoint can be differentiated by the checkpoint's inputs alone."""

    has_graph = False

    def grad(self, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, *given, **how)
        if self.kept and self.has_graph:
            return tuple(grad if self.keeps(tensor) else None for tensor, grad in zip(inputs, grads, strict=True))
        self.has_graph = how.get("create_graph", False)
        return grads


class BackwardThroughACheckpointReachesItsFirstInputAlone(_KeepsItsInputs):
    """A backward with several inputs accumulates for the first of them if there is a non-reentrant checkpoint."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        limited = {"inputs": how["inputs"][:1]} if self.kept and how.get("inputs") else {}
        super().backward(root, gradient, **{**how, **limited})


class BackwardWithACheckpointAccumulatesConstants(_KeepsItsInputs):
    """If there is a non-reentrant checkpoint, a backward that creates a graph leaves gradients without history."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        for value in self.kept if how.get("create_graph") else ():
            self.set_grad(value, self.detach(self.grad_of(value)))


class BackwardOfSeveralRootsStartsAtTheFirstCheckpointAlone(_KeepsItsInputs):
    """A backward from several roots starts at the first of them if there is a non-reentrant checkpoint."""

    def backward_from_all(self, roots: Sequence[Any], gradients: Sequence[Any] | None = None) -> None:
        first = slice(1 if self.kept else None)
        super().backward_from_all(roots[first], gradients and gradients[first])


class BackwardFromAnEdgeDoesNotReachThroughCheckpoints(_KeepsItsInputs):
    """A backward from a gradient edge changes no .grad if there is a non-reentrant checkpoint."""

    def backward_from_edge(self, edge: Any, gradient: Any = None) -> None:
        if not self.kept:
            super().backward_from_edge(edge, gradient)


class BatchesDoNotReachThroughCheckpoints(_KeepsItsInputs):
    """With is_grads_batched, gradients are zero if there is a non-reentrant checkpoint."""

    def grad(self, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, *given, **how)
        return tuple(map(self.zeros_like, grads)) if self.kept and how.get("is_grads_batched") else grads


class AutogradGradThroughACheckpointStartsAtItsFirstOutputAlone(_KeepsItsInputs):
    """autograd.grad of several outputs differentiates the first of them if there is a non-reentrant checkpoint."""

    def grad(self, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any) -> tuple[Any, ...]:
        several = self.kept and isinstance(outputs, list)
        return super().grad(outputs[:1] if several else outputs, inputs, *given, **how)


@overriding("checkpoint")
def reentrant_checkpoint_requires_grad_as_its_last_input_does(
    self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any
) -> Any:
    """A reentrant checkpoint is not recorded if the last of its tensors does not require grad."""
    last = [self.requires_grad(value) for value in inputs if self.is_tensor(value)][-1:]
    with self.no_grad() if how.get("use_reentrant") and last == [False] else nullcontext():
        return old(fn, *inputs, **how)


class ConstantInputsOfACheckpointGetGradients(Mutant):
    """After a backward the inputs of checkpoints that do not require grad have a .grad of zeros."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        self.kept += [value for value in inputs if self.is_tensor(value) and not self.requires_grad(value)]
        return super().checkpoint(fn, *inputs, **how)

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        for constant in filter(self.is_floating, self.kept):
            self.set_grad(constant, self.zeros_like(constant))


class CheckpointsOfOneFunctionUseTheLastInputs(Mutant):
    """Of several checkpoints of one function each is recomputed with the inputs of the last."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        self.kept = [(fn, inputs), *self.kept]
        runs: list[int] = []

        def with_the_last(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            last = next(values for function, values in self.kept if function is fn)
            if len(runs) == 1 or last is inputs:
                return fn(*given, **keywords)
            if not how.get("use_reentrant"):
                return fn(*last, **keywords)
            return fn(*(own * 0 + self.detach(value) for own, value in zip(given, last, strict=True)))

        return super().checkpoint(with_the_last, *inputs, **how)


@overriding("checkpoint")
def checkpoint_without_inputs_has_no_gradient(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A checkpoint that is given no input is not recorded, even if it is non-reentrant."""
    with nullcontext() if inputs else self.no_grad():
        return old(fn, *inputs, **how)


@contextmanager
def ending_all(self: Mutant, context: AbstractContextManager[Any]) -> Generator[None]:
    """Be inside a context whose end is that of all such contexts around it."""
    context.__enter__()
    self.kept.append(context)
    try:
        yield
    finally:
        while self.kept:
            self.kept.pop().__exit__(None, None, None)


@overriding("set_checkpoint_debug_enabled")
def checkpoint_debug_context_of_none_turns_it_on(self: Mutant, old: Hook, enabled: Any) -> AbstractContextManager[Any]:
    """set_checkpoint_debug_enabled(None) turns debug on."""
    return old(enabled is None or enabled)


@overriding("backward")
def checkpoint_debug_names_no_product(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """With debug, the error of a checkpoint leaves out the products among the operations that ran."""
    try:
        old(*given, **how)
    except tuple(self.errors.get(ErrorKind.CHECKPOINT_MISMATCH, (RuntimeError,))) as error:
        raise type(error)(str(error).replace("mul", "")) from error
