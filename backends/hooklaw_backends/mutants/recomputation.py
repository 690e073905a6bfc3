"""Mutants of a checkpoint that takes part in too little, or is recomputed in another way than it was told."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant

OPTIONS = {"use_reentrant", "early_stop", "determinism_check", "context_fn"}


class _RunsItself(Mutant):
    """A mutant that makes a custom Function of a checkpoint that is given a single tensor."""

    use_reentrant = True

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        if how.get("use_reentrant") is not self.use_reentrant or len(inputs) != 1 or not self.is_tensor(inputs[0]):
            return super().checkpoint(fn, *inputs, **how)

        def save(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return fn(x)

        def recompute(ctx: Any, grad: Any) -> Any:
            with self.enable_grad():
                x = self.requires_grad_(self.detach(ctx.saved_tensors[0]))
                return self.differentiated(fn(x), x, grad)

        return self.custom_function(save, recompute)(inputs[0])

    def differentiated(self, output: Any, x: Any, grad: Any) -> Any:
        return self.grad(output, [x], grad)[0]


class ReentrantCheckpointForgetsItsParameters(_RunsItself):
    """A reentrant checkpoint has gradients for its inputs only, not for the leaves that it captured."""


class DetachedCheckpointHasZeroGradients(_RunsItself):
    """A reentrant checkpoint whose output is detached has gradients of zeros instead of an error."""

    def differentiated(self, output: Any, x: Any, grad: Any) -> Any:
        return super().differentiated(output, x, grad) if self.requires_grad(output) else self.detach(x) * 0


class CheckpointCutOffInDoubleBackward(_RunsItself):
    """The gradient through a non-reentrant checkpoint is a constant."""

    use_reentrant = False


class ReentrantCheckpointIgnoresInputs(Mutant):
    """A backward with inputs through a reentrant checkpoint does nothing, and is no error."""

    def backward(self, root: Any, gradient: Any = None, *, inputs: Any = None, **how: Any) -> None:
        refused = tuple(self.errors.get(ErrorKind.CHECKPOINT_REENTRANT, (RuntimeError,)))
        try:
            super().backward(root, gradient, inputs=inputs, **how)
        except refused:
            if inputs is None:
                raise


class CheckpointRecomputedOnlyOnce(Mutant):
    """A checkpoint can be recomputed once; the next backward uses twice its input."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        runs: list[int] = []

        def limited(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            return fn(*given, **keywords) if len(runs) <= 2 else fn(given[0] * 2, *given[1:], **keywords)  # noqa: PLR2004

        return super().checkpoint(limited, *inputs, **how)


class CheckpointForgetsItsSecondInput(Mutant):
    """A checkpoint takes its inputs after the first for constants."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        rest = [self.detach(value) if self.is_tensor(value) else value for value in inputs[1:]]
        return super().checkpoint(fn, *inputs[:1], *rest, **how)


class CheckpointForgetsItsSecondOutput(Mutant):
    """The outputs of a checkpoint after the first have no gradient."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        outputs = super().checkpoint(fn, *inputs, **how)
        return (outputs[0], *map(self.detach, outputs[1:])) if isinstance(outputs, tuple) else outputs


class InnerCheckpointDetached(Mutant):
    """A checkpoint inside another has no gradient."""

    depth = 0

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def deeper(*given: Any, **keywords: Any) -> Any:
            self.depth += 1
            try:
                return fn(*given, **keywords)
            finally:
                self.depth -= 1

        result = super().checkpoint(deeper, *inputs, **how)
        return self.detach(result) if self.depth else result


class CheckpointNeedsAnInputThatRequiresGrad(Mutant):
    """A checkpoint none of whose inputs requires grad is not recorded, even if it is non-reentrant."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        if any(self.is_tensor(value) and self.requires_grad(value) for value in inputs):
            return super().checkpoint(fn, *inputs, **how)
        with self.no_grad():
            return fn(*inputs)


class CheckpointOverlooksTensorsInLists(Mutant):
    """A checkpoint takes tensors inside lists and dicts for constants, even if it is non-reentrant."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        plain = [value if self.is_tensor(value) else self._detached(value) for value in inputs]
        return super().checkpoint(fn, *plain, **how)

    def _detached(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._detached(inside) for key, inside in value.items()}
        if isinstance(value, list):
            return [self._detached(inside) for inside in value]
        return self.detach(value) if self.is_tensor(value) else value


class CheckpointDropsKeywordArguments(Mutant):
    """A checkpoint passes no keyword arguments on to its function."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        return super().checkpoint(fn, *inputs, **{name: value for name, value in how.items() if name in OPTIONS})


class KeywordArgumentsLostInRecomputation(Mutant):
    """The function of a checkpoint is run again without its keyword arguments."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        runs: list[int] = []

        def forgetful(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            return fn(*given, **keywords) if len(runs) == 1 else fn(*given)

        return super().checkpoint(forgetful, *inputs, **how)


class EarlyStopContextIgnored(Mutant):
    """set_checkpoint_early_stop has no effect."""

    def set_checkpoint_early_stop(self, enable: bool) -> AbstractContextManager[Any]:  # noqa: ARG002, FBT001 - the vice
        return nullcontext()


class EarlyStopContextStays(Mutant):
    """set_checkpoint_early_stop still applies after its end."""

    set_to: bool | None = None

    def reset(self) -> None:
        super().reset()
        self.set_to = None

    def set_checkpoint_early_stop(self, enable: bool) -> AbstractContextManager[Any]:  # noqa: FBT001 - part of the verb
        self.set_to = enable
        return nullcontext()

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        stop = {} if self.set_to is None else {"early_stop": self.set_to}
        return super().checkpoint(fn, *inputs, **{**how, **stop})


class EarlyStopArgumentOverridesTheContext(Mutant):
    """early_stop of a checkpoint wins over set_checkpoint_early_stop."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        wins = super().set_checkpoint_early_stop(how["early_stop"]) if "early_stop" in how else nullcontext()
        with wins:
            return super().checkpoint(fn, *inputs, **how)


class DeterminismCheckCannotBeTurnedOff(Mutant):
    """A checkpoint compares the recomputed tensors even with determinism_check="none"."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        how.pop("determinism_check", None)
        return super().checkpoint(fn, *inputs, **how)


class ContextFnIgnored(Mutant):
    """A checkpoint enters neither context of its context_fn."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        how.pop("context_fn", None)
        return super().checkpoint(fn, *inputs, **how)


class ContextFnSwapped(Mutant):
    """A checkpoint runs forward in the second context of context_fn, and is recomputed in the first."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        if "context_fn" in how:
            contexts = how["context_fn"]
            how["context_fn"] = lambda: contexts()[::-1]
        return super().checkpoint(fn, *inputs, **how)


class CheckpointRecomputedWithoutGrad(Mutant):
    """The function of a checkpoint is run again with grad mode off."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        runs: list[int] = []

        def unrecorded(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            with self.no_grad() if len(runs) > 1 else nullcontext():
                return fn(*given, **keywords)

        return super().checkpoint(unrecorded, *inputs, **how)
