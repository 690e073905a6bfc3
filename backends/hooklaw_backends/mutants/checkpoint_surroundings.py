"""Mutants of what a checkpoint passes on and restores, and of what its recomputation is shared by."""

from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.custom_functions import Context


@overriding("checkpoint")
def checkpoint_drops_what_is_no_tensor(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """The function of a checkpoint gets None in place of an argument that is not a tensor."""
    return old(fn, *(value if _has_tensors(self, value) else None for value in inputs), **how)


def _has_tensors(self: Mutant, value: Any) -> bool:
    return self.is_tensor(value) or not isinstance(value, int | float | str)


@overriding("checkpoint")
def checkpoint_returns_none_for_what_is_false(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint returns None for a result that is 0, empty or False."""
    result = old(*given, **how)
    return result if self.is_tensor(result) else result or None


@overriding("checkpoint")
def checkpoint_passes_tensors_alone_by_keyword(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A non-reentrant checkpoint does not pass a number on that it is given by keyword."""
    if how.get("use_reentrant") is False:
        how = {name: value for name, value in how.items() if not isinstance(value, float)}
    return old(*given, **how)


@overriding("checkpoint")
def checkpoint_returns_tensors_only(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint returns None in place of an output that is not a tensor."""
    output = old(*given, **how)
    if not isinstance(output, tuple):
        return output
    return tuple(value if self.is_tensor(value) else None for value in output)


@overriding("checkpoint")
def checkpoint_overlooks_tensors_in_objects(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A checkpoint takes the tensors inside a user's object for constants."""
    return old(fn, *(_detached(self, value) for value in inputs), **how)


def _detached(self: Mutant, value: Any) -> Any:
    if self.is_tensor(value) or not hasattr(value, "__dataclass_fields__"):
        return value
    return type(value)(*(self.detach(inside) for inside in vars(value).values()))


@overriding("checkpoint")
def reentrant_checkpoint_returns_structures_with_history(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A reentrant checkpoint that returns a structure of tensors is not reentrant."""
    output = old(*given, **how)
    if self.is_tensor(output) or isinstance(output, tuple):
        return output
    return old(*given, **{**how, "use_reentrant": False})


class _RunsAgain(Mutant):
    """A mutant that runs a checkpoint's function in its own way when it is recomputed."""

    def again(self, fn: Hook, *given: Any, **keywords: Any) -> Any:
        raise NotImplementedError

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        runs: list[int] = []

        def counted(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            return fn(*given, **keywords) if len(runs) == 1 else self.again(fn, *given, **keywords)

        return super().checkpoint(counted, *inputs, **how)


class _KnowsTheLatest(Mutant):
    """A mutant in which a function runs again with some arguments of its latest checkpoint."""

    latest = fresh(list[tuple[Hook, Any]])

    def noted(self, inputs: tuple[Any, ...], how: dict[str, Any]) -> Any:
        """Return those of the arguments of a checkpoint that its function will get in a recomputation."""
        raise NotImplementedError

    def with_latest(self, latest: Any, given: Any, keywords: Any) -> tuple[Any, Any]:
        """Return the arguments of a recomputation."""
        raise NotImplementedError

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        runs: list[int] = []
        self.latest = [(fn, self.noted(inputs, how)), *(each for each in self.latest if each[0] is not fn)]

        def region(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            if runs[1:]:
                latest = next(found for function, found in self.latest if function is fn)
                given, keywords = self.with_latest(latest, given, keywords)
            return fn(*given, **keywords)

        return super().checkpoint(region, *inputs, **how)


class RecomputationGetsTheKeywordsOfTheLatest(_KnowsTheLatest):
    """A function runs again with the keyword arguments of its latest checkpoint."""

    def noted(self, inputs: tuple[Any, ...], how: dict[str, Any]) -> Any:
        return how

    def with_latest(self, latest: Any, given: Any, keywords: Any) -> tuple[Any, Any]:
        return given, {name: latest.get(name) for name in keywords}


class RecomputationGetsTheNumbersOfTheLatest(_KnowsTheLatest):
    """A function runs again with the positional arguments of its latest checkpoint that are not tensors."""

    def noted(self, inputs: tuple[Any, ...], how: dict[str, Any]) -> Any:
        return [None if self.is_tensor(value) else value for value in inputs]

    def with_latest(self, latest: Any, given: Any, keywords: Any) -> tuple[Any, Any]:
        return [own if self.is_tensor(own) else other for own, other in zip(given, latest, strict=True)], keywords


class RecomputationLeavesTheGeneratorBehind(Mutant):
    """After a backward the generator is where it was in the last recomputation."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def noted(*given: Any, **keywords: Any) -> Any:
            self.kept.append(True)
            return fn(*given, **keywords)

        return super().checkpoint(noted, *inputs, **how)

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        if self.kept:
            self.manual_seed(0)


class LaterRecomputationsLeaveTheGeneratorBehind(RecomputationLeavesTheGeneratorBehind):
    """After a backward through several checkpoints the generator is where it was in the last recomputation."""

    def backward(self, *given: Any, **how: Any) -> None:
        before = len(self.kept)
        super(RecomputationLeavesTheGeneratorBehind, self).backward(*given, **how)
        if self.kept[before + 1 :]:
            self.manual_seed(0)


class RecomputationRewindsTheGenerator(Mutant):
    """After a backward the generator is where the last checkpoint to be recomputed had ended in forward."""

    seed = 0
    draws = fresh(list[Any])
    ends: int | None = None

    def reset(self) -> None:
        super().reset()
        self.draws, self.ends = [], None

    def manual_seed(self, seed: int) -> None:
        super().manual_seed(seed)
        self.seed, self.draws, self.ends = seed, [], None

    def rand_like(self, tensor: Any) -> Any:
        self.draws.append(tensor)
        draw: Any = super().rand_like
        return draw(tensor)

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        output = super().checkpoint(fn, *inputs, **how)
        self.ends = len(self.draws) if self.ends is None else self.ends
        return output

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        if self.ends is not None:
            again = self.draws[: self.ends]
            self.manual_seed(self.seed)
            for tensor in again:
                self.rand_like(tensor)


class CheckpointsRestoreTheRandomStateOfTheLast(Mutant):
    """Every recomputation restores the state that the generator had at the last checkpoint's begin."""

    count = 0

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        self.count += 1

        def seeded(*given: Any, **keywords: Any) -> Any:
            self.manual_seed(self.count)
            return fn(*given, **keywords)

        return super().checkpoint(seeded, *inputs, **how)


class RandomStateOfACheckpointRestoredOnce(Mutant):
    """The second recomputation of a checkpoint draws new random numbers."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        runs: list[int] = []
        draw: Hook = self.rand_like

        def counted(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            if runs[2:]:
                draw(given[0])
            return fn(*given, **keywords)

        return super().checkpoint(counted, *inputs, **how)


class RandomStateRestoredBeforeEachDraw(_RunsAgain):
    """In a recomputation each draw finds the generator as it was when the checkpoint began."""

    is_again = False

    def rand_like(self, tensor: Any) -> Any:
        if self.is_again:
            self.manual_seed(0)
        draw: Hook = super().rand_like
        return draw(tensor)

    def again(self, fn: Hook, *given: Any, **keywords: Any) -> Any:
        self.is_again = True
        try:
            return fn(*given, **keywords)
        finally:
            self.is_again = False

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        if how.get("preserve_rng_state") is not False:
            self.manual_seed(0)
        return super().checkpoint(fn, *inputs, **how)


class _KnowsItsRecomputation(_RunsAgain):
    """A mutant that knows whether a checkpoint's function runs again."""

    is_again = False

    def again(self, fn: Hook, *given: Any, **keywords: Any) -> Any:
        self.is_again = True
        try:
            return fn(*given, **keywords)
        finally:
            self.is_again = False


class RecomputationWithoutAutocast(_KnowsItsRecomputation):
    """The recomputation of a checkpoint finds autocast as it was never on."""

    def is_autocast_enabled(self) -> bool:
        return not self.is_again and super().is_autocast_enabled()


class RecomputationFindsAutocastOfTheLatest(_KnowsItsRecomputation):
    """The recomputation of a checkpoint finds autocast as it was when the latest one was made."""

    latest = False

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        self.latest = self.is_autocast_enabled()
        return super().checkpoint(fn, *inputs, **how)

    def is_autocast_enabled(self) -> bool:
        return self.latest if self.is_again else super().is_autocast_enabled()


class SavedTensorsOfARecomputedFunctionOutliveThePass(_KnowsItsRecomputation):
    """What a custom Function saved in the recomputation of a checkpoint is never freed."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def keeping(ctx: Any, *inputs: Any) -> Any:
            save = lambda: lambda *saved: (self.kept.append(saved), ctx.save_for_backward(*saved))  # noqa: E731 - a def is no shorter
            return forward(Context(ctx, save_for_backward=save) if self.is_again else ctx, *inputs)

        return super().custom_function(keeping, backward, **options)


@overriding("graph_exec_group")
def graph_exec_group_ignored(self: Mutant, old: Hook) -> AbstractContextManager[Any]:
    """A GraphExecGroup has no effect."""
    return nullcontext()


class _EachTimeAnew(AbstractContextManager[None]):
    """A context that makes another one each time that it is entered."""

    def __init__(self, make: Hook) -> None:
        self.make, self.stack = make, ExitStack()

    def __enter__(self) -> None:
        self.stack.enter_context(self.make())

    def __exit__(self, *_: object) -> None:
        self.stack.close()


@overriding("graph_exec_group")
def graph_exec_group_forgets_when_it_is_left(self: Mutant, old: Hook) -> AbstractContextManager[Any]:
    """A GraphExecGroup that is entered again is a new one."""
    return _EachTimeAnew(old)


@overriding("graph_exec_group")
@contextmanager
def graph_exec_groups_share(self: Mutant, old: Hook) -> Generator[None]:
    """What one GraphExecGroup recomputed is used in the next one too: each backward in the next adds nothing."""
    if self.kept:
        raise RuntimeError("the group's tensors were used before")
    self.kept.append(True)
    with old():
        yield


class CheckpointsInAGroupAreNotReentrant(Mutant):
    """A checkpoint that is made inside a GraphExecGroup is not reentrant, even with use_reentrant=True."""

    is_inside = False

    def graph_exec_group(self) -> AbstractContextManager[Any]:
        group = super().graph_exec_group()
        return _EachTimeAnew(lambda: self._noted(group))

    @contextmanager
    def _noted(self, group: AbstractContextManager[Any]) -> Generator[None]:
        self.is_inside = True
        try:
            with group:
                yield
        finally:
            self.is_inside = False

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        return super().checkpoint(fn, *inputs, **({**how, "use_reentrant": False} if self.is_inside else how))


class CheckpointIsRecomputedByTheOuterPassOnly(Mutant):
    """autograd.grad inside a hook is an error if the backward around it runs through a checkpoint."""

    depth = 0
    has_checkpoint = False

    def checkpoint(self, *given: Any, **how: Any) -> Any:
        self.has_checkpoint = True
        return super().checkpoint(*given, **how)

    def backward(self, *given: Any, **how: Any) -> None:
        self.depth += 1
        try:
            super().backward(*given, **how)
        finally:
            self.depth -= 1

    def grad(self, *given: Any, **how: Any) -> Any:
        if self.depth and self.has_checkpoint:
            raise RuntimeError("the checkpoint is being recomputed")
        return super().grad(*given, **how)


@overriding("checkpoint")
def reentrant_checkpoint_of_several_constants_is_recorded(
    self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any
) -> Any:
    """A reentrant checkpoint of several inputs none of which requires grad is recorded."""
    constant = not any(self.is_tensor(each) and self.requires_grad(each) for each in inputs)
    return fn(*inputs) if how.get("use_reentrant") and constant and len(inputs) > 1 else old(fn, *inputs, **how)


def _one_beside_detached(self: Mutant, place: int, outputs: Any) -> Any:
    """Return outputs of which one that requires grad still does, if another does not."""
    some = [each for each in outputs if self.requires_grad(each)] if isinstance(outputs, tuple) else []
    if not some or len(some) == len(outputs):
        return outputs
    return tuple(each if each is some[place] else self.detach(each) for each in outputs)


@overriding("checkpoint")
def checkpoint_with_a_detached_output_keeps_the_first(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """Of a checkpoint with a detached output the first of the other outputs alone requires grad."""
    return _one_beside_detached(self, 0, old(*given, **how))


@overriding("checkpoint")
def checkpoint_with_a_detached_output_keeps_the_last(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """Of a checkpoint with a detached output the last of the other outputs alone requires grad."""
    return _one_beside_detached(self, -1, old(*given, **how))


class AutogradGradInAGroupRecomputesForItself(Mutant):
    """autograd.grad inside a GraphExecGroup recomputes as it does outside."""

    groups = fresh(list[Any])

    def graph_exec_group(self) -> AbstractContextManager[Any]:
        group = super().graph_exec_group()
        return _EachTimeAnew(lambda: self._noted(group))

    @contextmanager
    def _noted(self, group: AbstractContextManager[Any]) -> Generator[None]:
        self.groups.append(group)
        try:
            with group:
                yield
        finally:
            self.groups.pop()

    def grad(self, *given: Any, **how: Any) -> Any:
        for group in self.groups[::-1]:
            group.__exit__(None, None, None)
        try:
            return super().grad(*given, **how)
        finally:
            for group in self.groups:
                group.__enter__()
