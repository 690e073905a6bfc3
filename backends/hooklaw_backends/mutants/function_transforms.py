"""Mutants whose function transforms forget hooks and grad modes inside, or meddle with those outside."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, InTransform, Mutant, altering, overriding
from hooklaw_backends.mutants.shared import Handle, once


@overriding("register_hook", base=InTransform)
def hooks_skipped_in_transforms(self: InTransform, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A tensor hook that a transformed function registers never runs."""
    return Handle() if self.depth else old(tensor, hook)


@overriding("register_multi_grad_hook", base=InTransform)
def multi_grad_hooks_skipped_in_transforms(self: InTransform, old: Hook, *given: Any, **how: Any) -> Any:
    """A multi-grad hook that a transformed function registers never runs."""
    return Handle() if self.depth else old(*given, **how)


@overriding("node_register_prehook", "node_register_hook", base=InTransform)
def node_hooks_skipped_in_transforms(self: InTransform, old: Hook, node: Any, hook: Hook) -> Any:
    """A Node hook that a transformed function registers never runs."""
    return Handle() if self.depth else old(node, hook)


def _same(hook: Hook) -> Hook:
    def call(grad: Any) -> Any:  # a function of its own, which takes the hook's marks
        return hook(grad)

    return call


def _returning_nothing(hook: Hook) -> Hook:
    def call(grad: Any) -> None:
        hook(grad)

    return call


@altering("register_hook", base=InTransform)
def hooks_in_transforms_return_nothing(self: InTransform, _tensor: Any, hook: Hook) -> Hook:
    """What a tensor hook of a transformed function returns is ignored."""
    return _returning_nothing(hook) if self.depth else _same(hook)


class HooksOfATransformRunInItsFirstCallAlone(InTransform):
    """A tensor hook that a function registers does not run when the function is transformed a second time or later."""

    is_silent = False

    def reset(self) -> None:
        super().reset()
        self.is_silent = False

    def func_grad(self, function: Hook) -> Hook:
        differentiate, calls = super().func_grad(function), list[None]()

        def silent_later(*arguments: Any) -> Any:
            outer, self.is_silent = self.is_silent, bool(calls)
            calls.append(None)
            try:
                return differentiate(*arguments)
            finally:
                self.is_silent = outer

        return silent_later

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return Handle() if self.depth and self.is_silent else super().register_hook(tensor, hook)


@altering("register_hook", base=InTransform)
def hooks_in_nested_transforms_return_nothing(self: InTransform, _tensor: Any, hook: Hook) -> Hook:
    """What a tensor hook returns is ignored if one transform is inside another."""
    return _returning_nothing(hook) if self.depth > 1 else _same(hook)


@altering("register_hook", base=InTransform)
def hooks_inside_three_transforms_return_nothing(self: InTransform, _tensor: Any, hook: Hook) -> Hook:
    """What a tensor hook returns is ignored in a transform inside two others."""
    return _returning_nothing(hook) if self.depth > 2 else _same(hook)  # noqa: PLR2004 - two others


@altering("register_hook", base=InTransform)
def hooks_in_nested_transforms_return_constants(self: InTransform, _tensor: Any, hook: Hook) -> Hook:
    """What a tensor hook returns has no history if one transform is inside another."""
    if self.depth <= 1:
        return _same(hook)

    def call(grad: Any) -> Any:
        result = hook(grad)
        return result if result is None else self.detach(result)

    return call


@altering("register_hook", base=InTransform)
def hooks_of_vjp_run_once(self: InTransform, _tensor: Any, hook: Hook) -> Hook:
    """A tensor hook of a transformed function runs in the first call of what vjp returned only."""
    if not self.depth:
        return _same(hook)
    calls: list[int] = []

    def call(grad: Any) -> Any:
        calls.append(0)
        return hook(grad) if len(calls) == 1 else None

    return call


class _CountingVjps(InTransform):
    """A mutant that knows how often vjp was called."""

    calls = 0

    def func_vjp(self, function: Hook, *primals: Any) -> Any:
        self.calls += 1
        return super().func_vjp(function, *primals)


@altering("register_hook", base=_CountingVjps)
def hooks_of_the_latest_vjp_alone(self: _CountingVjps, _tensor: Any, hook: Hook) -> Hook:
    """A tensor hook of a transformed function does not run once vjp was called again."""
    if not self.depth:
        return _same(hook)
    own = self.calls
    return lambda grad: hook(grad) if own == self.calls else None


@overriding("no_grad", base=InTransform)
def no_grad_ignored_in_transforms(self: InTransform, old: Hook) -> Any:
    """no_grad has no effect in a transformed function."""
    return nullcontext() if self.depth else old()


class NoGradInsideAnotherIgnoredInTransforms(InTransform):
    """no_grad has no effect in a transformed function if another no_grad is around the transform."""

    around = False

    @contextmanager
    def no_grad(self) -> Generator[None]:
        if self.depth and self.around:
            yield
            return
        before, self.around = self.around, not self.depth
        try:
            with super().no_grad():
                yield
        finally:
            self.around = before


@overriding("func_grad", "func_vjp")
def transforms_heed_the_no_grad_around(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """Under no_grad a transform takes its function for a constant."""

    def seen(*arguments: Any) -> Any:
        return function(*(arguments if records else map(self.detach, arguments)))

    records = self.is_grad_enabled()
    return old(seen, *primals)


@overriding("func_vjp")
def transforms_run_the_hooks_outside(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """vjp runs the hooks of the tensors that it is given."""
    output, pullback = old(function, *primals)

    def run(*cotangents: Any) -> Sequence[Any]:
        grads = pullback(*cotangents)
        for primal, grad in zip(primals, grads, strict=True):
            for hook in list((self.hooks_of(primal) or {}).values()) if self.is_leaf(primal) else []:
                hook(grad)
        return grads

    return output, run


@overriding("func_vjp")
def results_of_transforms_are_constants(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """The gradients that vjp computes have no history outside."""
    output, pullback = old(function, *primals)
    return output, lambda *cotangents: tuple(map(self.detach, pullback(*cotangents)))


@overriding("func_vjp")
def cotangents_of_vjp_turned_round(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """The first two outputs of a function that vjp differentiates get each other's cotangents."""
    output, pullback = old(function, *primals)
    return output, lambda cotangents: pullback(_turned_round(cotangents))


def _turned_round(cotangents: Any) -> Any:
    if isinstance(cotangents, dict):
        return {key: _turned_round(part) for key, part in cotangents.items()}
    return type(cotangents)(reversed(cotangents)) if isinstance(cotangents, (list, tuple)) else cotangents


@overriding("func_vjp")
def vjp_of_the_first_output_alone(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """vjp differentiates the first output of its function, and ignores the cotangents of the others."""
    output, pullback = old(function, *primals)
    if not isinstance(output, tuple):
        return output, pullback
    return output, lambda cotangents: pullback((cotangents[0], *map(self.zeros_like, cotangents[1:])))


@overriding("func_vjp")
def vjp_of_the_outer_outputs_alone(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """vjp ignores the cotangents of all outputs but the first and the last."""
    output, pullback = old(function, *primals)
    if not isinstance(output, tuple):
        return output, pullback

    def call(cotangents: Any) -> Any:
        return pullback((cotangents[0], *map(self.zeros_like, cotangents[1:-1]), cotangents[-1]))

    return output, call


@overriding("func_vjp")
def vjp_finds_no_output_in_dicts_of_lists(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """vjp takes the outputs inside a dict of a list for constants."""

    def cut(part: Any) -> Any:
        return {key: self.detach(each) for key, each in part.items()} if isinstance(part, dict) else part

    def found(*arguments: Any) -> Any:
        output = function(*arguments)
        return [*map(cut, output)] if isinstance(output, list) else output

    return old(found, *primals)


@overriding("func_vjp")
def vjp_finds_no_output_in_structures(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """vjp takes the outputs inside a list of a dict for constants."""

    def found(*arguments: Any) -> Any:
        output = function(*arguments)
        if not isinstance(output, dict):
            return output
        return {key: [*map(self.detach, part)] if isinstance(part, list) else part for key, part in output.items()}

    return old(found, *primals)


@overriding("func_vjp")
def transforms_fail_after_an_exception(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """After an exception inside a transform every later transform is an error."""
    if self.kept:
        raise RuntimeError("an earlier transform has not ended")
    output, pullback = old(function, *primals)

    def run(*cotangents: Any) -> Any:
        try:
            return pullback(*cotangents)
        except Exception:
            self.kept.append("an exception")
            raise

    return output, run


class HooksInTransformsLostAfterAnException(InTransform):
    """After an exception in a call of what vjp returned, hooks that transformed functions register never run."""

    def func_vjp(self, function: Hook, *primals: Any) -> Any:
        output, pullback = super().func_vjp(function, *primals)

        def run(*cotangents: Any) -> Any:
            try:
                return pullback(*cotangents)
            except Exception:
                self.kept.append("an exception")
                raise

        return output, run

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return Handle() if self.depth and self.kept else super().register_hook(tensor, hook)


@overriding("func_vjp")
def transforms_need_saved_tensor_hooks(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """vjp is an error where saved-tensor hooks are disabled."""
    with self.saved_tensors_hooks(self.detach, lambda packed: packed):
        pass
    return old(function, *primals)


class TransformsEndTheDisabling(Mutant):
    """After a transform saved-tensor hooks are not disabled any more."""

    def disable_saved_tensors_hooks(self, message: str) -> Any:
        context = super().disable_saved_tensors_hooks(message)
        self.kept.append(context)
        return _Ended(self, context)

    def func_vjp(self, function: Hook, *primals: Any) -> Any:
        found = super().func_vjp(function, *primals)
        while self.kept:
            self.kept.pop().__exit__(None, None, None)
        return found


class _Ended:
    """A context that a transform may have left already."""

    def __init__(self, mutant: Mutant, context: Any) -> None:
        self._mutant, self._context = mutant, context

    def __enter__(self) -> Any:
        return self._context.__enter__()

    def __exit__(self, *raised: object) -> None:
        if self._mutant.keeps(self._context):
            self._mutant.kept.remove(self._context)
            self._context.__exit__(*raised)


class LaterHooksInTransformsIgnored(InTransform):
    """Of several hooks that a transformed function registers on a tensor only the first runs."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if not self.depth:
            return super().register_hook(tensor, hook)
        if self.keeps(tensor):
            return Handle()
        self.kept.append(tensor)
        return super().register_hook(tensor, hook)


@altering("register_multi_grad_hook", base=InTransform)
def multi_grad_hooks_of_vjp_run_once(self: InTransform, _tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook of a transformed function runs in the first call of what vjp returned only."""
    alike = once(hook) if self.depth else hook
    return lambda *given: alike(*given)  # noqa: PLW0108 - a function of its own, which takes the hook's marks


@altering(*verbs.NODE, base=InTransform)
def node_hooks_of_vjp_run_once(self: InTransform, _node: Any, hook: Hook) -> Hook:
    """A Node hook of a transformed function runs in the first call of what vjp returned only."""
    alike = once(hook) if self.depth else hook
    return lambda *given: alike(*given)  # noqa: PLW0108 - a function of its own, which takes the hook's marks


@overriding("no_grad", base=InTransform)
def no_grad_ignored_in_nested_transforms(self: InTransform, old: Hook) -> Any:
    """no_grad has no effect in a function that is transformed inside another transform."""
    return nullcontext() if self.depth > 1 else old()


@overriding("func_grad")
def transforms_heed_a_later_no_grad_around(self: Mutant, old: Hook, function: Hook) -> Any:
    """func.grad takes its function for a constant from the second time on that it is under no_grad."""
    if self.is_grad_enabled():
        return old(function)
    self.kept.append("under no_grad")
    return old(function if len(self.kept) == 1 else lambda *given: function(*map(self.detach, given)))


class NoGradInsideAnotherIgnoredByVjp(Mutant):
    """no_grad has no effect in a function of vjp if another no_grad is around."""

    is_inside = False

    def func_vjp(self, function: Hook, *primals: Any) -> Any:
        is_around = not self.is_grad_enabled()

        def run(*given: Any) -> Any:
            before, self.is_inside = self.is_inside, is_around
            try:
                return function(*given)
            finally:
                self.is_inside = before

        return super().func_vjp(run, *primals)

    def no_grad(self) -> Any:
        return nullcontext() if self.is_inside else super().no_grad()


@overriding("func_vjp")
def functions_of_vjp_heed_the_no_grad_around_their_call(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """What vjp has returned outside no_grad gives zeros under no_grad."""
    return _zero_if_modes_differ(self, old(function, *primals), made_in=True)


@overriding("func_vjp")
def vjp_under_no_grad_is_used_there_alone(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
    """What vjp has returned under no_grad gives zeros outside."""
    return _zero_if_modes_differ(self, old(function, *primals), made_in=False)


def _zero_if_modes_differ(mutant: Mutant, made: Any, *, made_in: bool) -> Any:
    """Return what vjp has made, which gives zeros in the other grad mode than it was made in, if that was this one."""
    output, pullback = made
    is_wrong = mutant.is_grad_enabled() == made_in

    def call(*cotangents: Any) -> Any:
        grads = pullback(*cotangents)
        return tuple(map(mutant.zeros_like, grads)) if is_wrong and mutant.is_grad_enabled() != made_in else grads

    return output, call


@overriding("func_grad")
def gradient_functions_heed_the_no_grad_around_their_call(self: Mutant, old: Hook, function: Hook) -> Hook:
    """A function that func.grad has made outside no_grad gives zeros under no_grad."""
    records: list[bool] = []

    def seen(*given: Any) -> Any:
        return function(*(given if records[-1] else map(self.detach, given)))

    def call(*given: Any) -> Any:
        records.append(self.is_grad_enabled())
        try:
            return transformed(*given)
        finally:
            records.pop()

    if not self.is_grad_enabled():
        return old(function)
    transformed = old(seen)
    return call


class NoGradIgnoredInLaterCallsOfAGradientFunction(InTransform):
    """no_grad has no effect in a function that func.grad has transformed, from its second call on."""

    is_later = False

    def func_grad(self, function: Hook) -> Hook:
        transformed, calls = super().func_grad(function), list[None]()

        def call(*given: Any) -> Any:
            calls.append(None)
            before, self.is_later = self.is_later, len(calls) > 1
            try:
                return transformed(*given)
            finally:
                self.is_later = before

        return call

    def no_grad(self) -> Any:
        return nullcontext() if self.depth and self.is_later else super().no_grad()
