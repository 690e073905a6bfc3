"""Mutants of a checkpoint that takes part in too little, or is recomputed in another way than it was told."""

import weakref
from contextlib import nullcontext
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.shared import KnowsDepth

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


class ReentrantCheckpointReachesOneCapturedLeaf(Mutant):
    """A reentrant checkpoint has gradients for its inputs and for one of the leaves that it captured."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def noting(*given: Any) -> Any:
            output = fn(*given)
            if self.is_tensor(output) and self.requires_grad(output):  # so it is run again
                captured = [leaf for leaf in self.leaves_of(output) if not any(leaf is value for value in given)]
                self.kept += [(leaf, self.grad_of(leaf)) for leaf in captured[1:]]
            return output

        return super().checkpoint(noting if how.get("use_reentrant") else fn, *inputs, **how)

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        while self.kept:
            self.set_grad(*self.kept.pop())


class DetachedCheckpointHasZeroGradients(_RunsItself):
    """A reentrant checkpoint whose output is detached has gradients of zeros instead of an error."""

    def differentiated(self, output: Any, x: Any, grad: Any) -> Any:
        return super().differentiated(output, x, grad) if self.requires_grad(output) else self.detach(x) * 0


class CheckpointCutOffInDoubleBackward(_RunsItself):
    """The gradient through a non-reentrant checkpoint is a constant."""

    use_reentrant = False


@overriding("backward")
def reentrant_checkpoint_ignores_inputs(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """A backward with inputs through a reentrant checkpoint does nothing, and is no error."""
    refused = tuple(self.errors.get(ErrorKind.CHECKPOINT_REENTRANT, (RuntimeError,)))
    try:
        old(*given, **how)
    except refused:
        if how.get("inputs") is None:
            raise


class _CountsItsRuns(Mutant):
    """A mutant that runs the function of a checkpoint in its own way, and knows how often it ran before."""

    def run(self, fn: Hook, before: int, *given: Any, **keywords: Any) -> Any:
        raise NotImplementedError

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        runs: list[int] = []

        def counted(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            return self.run(fn, len(runs) - 1, *given, **keywords)

        return super().checkpoint(counted, *inputs, **how)


class CheckpointRecomputedOnlyOnce(_CountsItsRuns):
    """A checkpoint can be recomputed once; the next backward uses twice its input."""

    def run(self, fn: Hook, before: int, *given: Any, **keywords: Any) -> Any:
        return fn(given[0] * 2 if before > 1 else given[0], *given[1:], **keywords)


class LaterInputsOfACheckpointRecomputedOnlyOnce(_CountsItsRuns):
    """A checkpoint can be recomputed once; the next backward uses twice its second input and those after it."""

    def run(self, fn: Hook, before: int, *given: Any, **keywords: Any) -> Any:
        return fn(*given[:1], *(value * 2 if before > 1 else value for value in given[1:]), **keywords)


class KeywordArgumentsLostInRecomputation(_CountsItsRuns):
    """The function of a checkpoint is run again without its keyword arguments."""

    def run(self, fn: Hook, before: int, *given: Any, **keywords: Any) -> Any:
        return fn(*given) if before else fn(*given, **keywords)


class CheckpointRecomputedWithoutGrad(_CountsItsRuns):
    """The function of a checkpoint is run again with grad mode off."""

    def run(self, fn: Hook, before: int, *given: Any, **keywords: Any) -> Any:
        with self.no_grad() if before else nullcontext():
            return fn(*given, **keywords)


class RecomputationGetsItsTensorsFirst(_CountsItsRuns):
    """The function of a checkpoint is run again with its tensors before its other arguments."""

    def run(self, fn: Hook, before: int, *given: Any, **keywords: Any) -> Any:
        return fn(*(sorted(given, key=lambda value: not self.is_tensor(value)) if before else given), **keywords)


@overriding("checkpoint")
def reentrant_checkpoint_only_detaches_its_inputs(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A reentrant checkpoint records in forward what it computes from captured leaves."""
    runs: list[int] = []

    def recorded(*given: Any) -> Any:
        runs.append(0)
        if len(runs) > 1:
            return fn(*given)
        with self.enable_grad():
            return fn(*(_detached(self, value) for value in given))

    return old(recorded if how.get("use_reentrant") else fn, *inputs, **how)


class InnerCheckpointDetached(KnowsDepth):
    """A checkpoint inside another has no gradient."""

    least = 1
    """Inside how many others a checkpoint has no gradient."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        result = super().checkpoint(fn, *inputs, **how)
        return self.detach(result) if self.depth >= self.least else result


class CheckpointInsideTwoDetached(InnerCheckpointDetached):
    """A checkpoint inside two others has no gradient."""

    least = 2


class SecondCheckpointInsideDetached(Mutant):
    """Of several checkpoints inside another only the first has a gradient."""

    inner = fresh(list[int])
    """How many checkpoints each one under way has had inside."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        if self.inner:
            self.inner[-1] += 1

        def region(*given: Any, **keywords: Any) -> Any:
            self.inner.append(0)
            try:
                return fn(*given, **keywords)
            finally:
                self.inner.pop()

        result = super().checkpoint(region, *inputs, **how)
        return self.detach(result) if self.inner and self.inner[-1] > 1 else result


@overriding("checkpoint")
def gradients_for_a_checkpoint_turned_round(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """The outputs of a checkpoint get each other's gradients."""
    outputs = old(*given, **how)
    if not isinstance(outputs, tuple) or not all(map(self.is_tensor, outputs)):
        return outputs
    copies = self.custom_function(lambda _, *values: tuple(map(self.clone, values)), lambda _, *grads: grads[::-1])
    return copies(*outputs)


@overriding("checkpoint")
def gradients_that_reach_a_checkpoint_are_constants(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """The gradient that a checkpoint passes on has no history that leads beyond its output."""
    output = old(*given, **how)
    if not self.is_tensor(output):
        return output
    return self.custom_function(lambda _, value: self.clone(value), lambda _, grad: self.detach(grad))(output)


@overriding("checkpoint")
def checkpoint_needs_an_input_that_requires_grad(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A checkpoint none of whose inputs requires grad is not recorded, even if it is non-reentrant."""
    if any(self.is_tensor(value) and self.requires_grad(value) for value in inputs):
        return old(fn, *inputs, **how)
    with self.no_grad():
        return fn(*inputs)


@overriding("checkpoint")
def checkpoint_overlooks_tensors_in_lists(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A checkpoint takes tensors inside lists and dicts for constants, even if it is non-reentrant."""
    return old(fn, *(value if self.is_tensor(value) else _detached(self, value) for value in inputs), **how)


def _detached(self: Mutant, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _detached(self, inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_detached(self, inside) for inside in value]
    return self.detach(value) if self.is_tensor(value) else value


@overriding("checkpoint")
def checkpoint_drops_keyword_arguments(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint passes no keyword arguments on to its function."""
    return old(*given, **{name: value for name, value in how.items() if name in OPTIONS})


@overriding("checkpoint")
def later_keyword_tensors_of_a_checkpoint_are_constants(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """Of the tensors that a checkpoint is given by keyword the first alone gets a gradient."""
    _, *later = [name for name, value in how.items() if self.is_tensor(value)] or [""]
    return old(*given, **{name: self.detach(value) if name in later else value for name, value in how.items()})


@overriding("checkpoint")
def checkpoint_overlooks_tensors_in_lists_by_keyword(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint takes the tensors inside a list that it is given by keyword for constants."""

    def constants(value: Any) -> Any:
        return [self.detach(each) if self.is_tensor(each) else each for each in value]

    return old(*given, **{name: constants(value) if type(value) is list else value for name, value in how.items()})


@overriding("checkpoint")
def keyword_tensors_alone_of_a_checkpoint_are_constants(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """The keyword arguments of a checkpoint get no gradients if no positional argument requires grad."""
    if not any(self.is_tensor(value) and self.requires_grad(value) for value in given):
        how = {name: self.detach(value) if self.is_tensor(value) else value for name, value in how.items()}
    return old(*given, **how)


@overriding("checkpoint")
def context_fn_swapped(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint runs forward in the second context of context_fn, and is recomputed in the first."""
    contexts = how.get("context_fn")
    return old(*given, **how) if contexts is None else old(*given, **{**how, "context_fn": lambda: contexts()[::-1]})


@overriding("checkpoint")
def early_stop_argument_overrides_the_context(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """early_stop of a checkpoint wins over set_checkpoint_early_stop."""
    with self.set_checkpoint_early_stop(how["early_stop"]) if "early_stop" in how else nullcontext():
        return old(*given, **how)


@overriding("checkpoint")
def checkpoint_keeps_its_later_products(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A checkpoint keeps the products that its function computes, except for the first."""

    def kept(*given: Any, **named: Any) -> Any:
        made: list[Any] = []

        def keeping(multiply: Hook, left: Any, right: Any) -> Any:
            made.append(multiply(left, right))
            self.kept += made[1:][-1:]
            return made[-1]

        with self.products_by(keeping):
            return fn(*given, **named)

    return old(kept, *inputs, **how)


@overriding("checkpoint")
def recomputed_tensors_outlive_their_use(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A checkpoint keeps all products that its function computes, in forward and again."""

    def kept(*given: Any, **named: Any) -> Any:
        with self.products_by(keeping):
            return fn(*given, **named)

    def keeping(multiply: Hook, left: Any, right: Any) -> Any:
        self.kept.append(multiply(left, right))
        return self.kept[-1]

    return old(kept, *inputs, **how)


class TensorsRecomputedAgainOutliveTheirUse(_CountsItsRuns):
    """A checkpoint keeps all products that its function computes when it is recomputed for a second backward."""

    def run(self, fn: Hook, before: int, *given: Any, **keywords: Any) -> Any:
        def keeping(multiply: Hook, left: Any, right: Any) -> Any:
            self.kept.append(multiply(left, right))
            return self.kept[-1]

        with self.products_by(keeping) if before > 1 else nullcontext():
            return fn(*given, **keywords)


class LastRecomputedTensorOutlivesItsUse(_CountsItsRuns):
    """A checkpoint keeps the last product that its function computes again, if that is not the first."""

    def run(self, fn: Hook, before: int, *given: Any, **keywords: Any) -> Any:
        made: list[Any] = []

        def keeping(multiply: Hook, left: Any, right: Any) -> Any:
            made.append(multiply(left, right))
            self.kept = made[1:][-1:]
            return made[-1]

        with self.products_by(keeping) if before else nullcontext():
            return fn(*given, **keywords)


class AutogradGradRecomputesWhatItDoesNotReach(Mutant):
    """autograd.grad runs the functions of all earlier checkpoints again, even of those beyond its inputs."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        if not how.get("use_reentrant"):
            self.kept.append(lambda: fn(*inputs))
        return super().checkpoint(fn, *inputs, **how)

    def grad(self, *given: Any, **how: Any) -> tuple[Any, ...]:
        while self.kept:
            self.kept.pop()()
        return super().grad(*given, **how)


class CheckpointsEndWithTheNextAutogradGrad(Mutant):
    """After autograd.grad no non-reentrant checkpoint that was made before is recomputed: it is an error."""

    ended = 0

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        made = self.ended

        def run(*given: Any, **named: Any) -> Any:
            if self.ended > made:
                raise RuntimeError("the checkpoint was freed")
            return fn(*given, **named)

        return super().checkpoint(fn if how.get("use_reentrant") else run, *inputs, **how)

    def grad(self, *given: Any, **how: Any) -> tuple[Any, ...]:
        found = super().grad(*given, **how)
        self.ended += not (how.get("retain_graph") or how.get("create_graph"))
        return found


class _Later:
    """A context that is another one, which is chosen when it is entered; or that swallows the error of leaving it."""

    def __init__(self, choose: Hook, *, swallows: bool = False) -> None:
        self.choose, self.swallows, self.entered = choose, swallows, list[Any]()

    def __enter__(self) -> Any:
        self.entered.append(self.choose())
        return self.entered[-1].__enter__()

    def __exit__(self, *error: object) -> Any:
        try:
            return self.entered.pop().__exit__(*error)
        except Exception:
            if not self.swallows:
                raise
            return None


class CheckpointsSideBySideAreRecomputedInTheLatestContext(Mutant):
    """A checkpoint is recomputed in the second context of the latest one, if it is not inside another."""

    regions = 0
    latest: Any = staticmethod(lambda: None)

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        context_fn: Any = how.get("context_fn")

        def region(*given: Any, **keywords: Any) -> Any:
            self.regions += 1
            try:
                return fn(*given, **keywords)
            finally:
                self.regions -= 1

        def contexts() -> Any:
            first, second = context_fn()
            if self.regions:
                return first, second
            self.latest = weakref.ref(second)
            return first, _Later(lambda: self.latest() or second)

        return super().checkpoint(region, *inputs, **(how if context_fn is None else how | {"context_fn": contexts}))


def _context(old: Hook, *given: Any, made: Hook, **how: Any) -> Any:
    context_fn: Any = how.get("context_fn")
    return old(*given, **(how if context_fn is None else how | {"context_fn": lambda: made(*context_fn())}))


@overriding("checkpoint")
def error_of_leaving_the_first_context_swallowed(_self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """An error that the first context of a checkpoint raises when it is left is swallowed."""
    return _context(old, *given, made=lambda one, two: (_Later(lambda: one, swallows=True), two), **how)


@overriding("checkpoint")
def error_of_leaving_the_second_context_swallowed(_self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """An error that the second context of a checkpoint raises when it is left is swallowed."""
    return _context(old, *given, made=lambda one, two: (one, _Later(lambda: two, swallows=True)), **how)
