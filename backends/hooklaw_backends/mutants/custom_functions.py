"""Mutants whose custom Functions mix up saved tensors, gradients, inputs, marks or options."""

import weakref
from contextlib import nullcontext
from functools import wraps
from operator import and_
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, calling, overriding
from hooklaw_backends.mutants.shared import Handle
from hooklaw_backends.mutants.situations import Knowing


class Context:
    """The ctx of a custom Function, with some attributes replaced."""

    def __init__(self, own: Any, **instead: Any) -> None:
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "instead", instead)

    def __getattr__(self, name: str) -> Any:
        return self.instead[name]() if name in self.instead else getattr(self.own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.own, name, value)


@calling("custom_function")
def every_input_of_a_function_needs_a_gradient(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """ctx.needs_input_grad is True for every input of a custom Function."""
    return backward(Context(ctx, needs_input_grad=lambda: (True,) * len(ctx.needs_input_grad)), *grads)


@calling("custom_function")
def needs_input_grad_is_true_of_the_first_alone(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """Of several inputs that need a gradient ctx.needs_input_grad is True for the first alone."""
    needed = ctx.needs_input_grad
    first = tuple(flag and not any(needed[:nr]) for nr, flag in enumerate(needed))
    return backward(Context(ctx, needs_input_grad=lambda: first), *grads)


@calling("custom_function")
def needs_input_grad_is_true_of_the_last_alone(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """Of several inputs that need a gradient ctx.needs_input_grad is True for the last alone."""
    needed = ctx.needs_input_grad
    last = tuple(flag and not any(needed[nr + 1 :]) for nr, flag in enumerate(needed))
    return backward(Context(ctx, needs_input_grad=lambda: last), *grads)


@overriding("custom_function")
def needs_input_grad_is_true_of_leaves_alone(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """ctx.needs_input_grad is False for an input that is no leaf."""

    def apply(*inputs: Any) -> Any:
        leaves = [self.is_tensor(each) and self.is_leaf(each) for each in inputs]

        def reading(ctx: Any, *grads: Any) -> Any:
            needed = lambda: tuple(map(and_, ctx.needs_input_grad, leaves))  # noqa: E731 - a def is no shorter
            return backward(Context(ctx, needs_input_grad=needed), *grads)

        return old(forward, reading, **options)(*inputs)

    return apply


@overriding("custom_function")
def needs_input_grad_leaves_out_other_inputs(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """ctx.needs_input_grad begins with the values for tensors; those for other inputs follow."""

    def noting(ctx: Any, *inputs: Any) -> Any:
        ctx.places = sorted(range(len(inputs)), key=lambda place: not self.is_tensor(inputs[place]))
        return forward(ctx, *inputs)

    def reading(ctx: Any, *grads: Any) -> Any:
        needed = lambda: tuple(ctx.needs_input_grad[place] for place in ctx.places)  # noqa: E731 - a def is no shorter
        return backward(Context(ctx, needs_input_grad=needed), *grads)

    return old(noting, reading, **options)


@calling("custom_function")
def wrong_number_of_gradients_accepted(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A custom Function's backward may return too few gradients; the missing ones count as None."""
    results = backward(ctx, *grads)
    results = results if isinstance(results, tuple) else (results,)
    return results + (None,) * (len(ctx.needs_input_grad) - len(results))


@calling("custom_function")
def trailing_nones_refused(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A custom Function's backward that returns surplus None values at the end is an error."""
    results = backward(ctx, *grads)
    if isinstance(results, tuple) and len(results) != len(ctx.needs_input_grad):
        raise RuntimeError("a backward returned a different number of gradients than there are inputs")
    return results


@overriding("custom_function")
def tensors_in_lists_are_inputs(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """Tensors inside a list argument of a custom Function count as its inputs."""

    def apply(*inputs: Any) -> Any:
        sizes = [len(value) if isinstance(value, list) else None for value in inputs]
        flat = [part for value in inputs for part in (value if isinstance(value, list) else [value])]
        made = old(lambda ctx, *given: forward(ctx, *_gathered(given, sizes)), backward, **options)
        return made(*flat)

    return apply


def _gathered(given: tuple[Any, ...], sizes: list[int | None]) -> list[Any]:
    """Restore the lists that were flattened."""
    rest = list(given)
    return [rest.pop(0) if size is None else [rest.pop(0) for _ in range(size)] for size in sizes]


def _with_parts(kind: type) -> Hook:
    """Return a verb that makes custom Functions of which the tensors in arguments of a kind are inputs, too."""

    def made(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def parts(value: Any) -> list[Any]:
            found = [*(value.values() if isinstance(value, dict) else value)] if isinstance(value, kind) else []
            return found if found and all(map(self.is_tensor, found)) else [value]

        def apply(*inputs: Any) -> Any:
            flat = [part for value in inputs for part in parts(value)]
            return old(lambda ctx, *_: forward(ctx, *inputs), backward, **options)(*flat)

        return apply

    return made


@overriding("custom_function")
def tensors_in_tuples_are_inputs(self: Mutant, old: Hook, *given: Any, **options: bool) -> Hook:
    """Tensors inside a tuple argument of a custom Function count as its inputs."""
    return _with_parts(tuple)(self, old, *given, **options)


@overriding("custom_function")
def tensors_in_dicts_are_inputs(self: Mutant, old: Hook, *given: Any, **options: bool) -> Hook:
    """Tensors inside a dict argument of a custom Function count as its inputs."""
    return _with_parts(dict)(self, old, *given, **options)


class HooksPassOverTheFirstOfSeveralOutputs(Mutant):
    """A tensor hook on the first of several outputs of a custom Function never runs."""

    passed_over = slice(1)

    def custom_function(self, *given: Any, **options: bool) -> Hook:
        function = super().custom_function(*given, **options)

        def apply(*inputs: Any) -> Any:
            results = function(*inputs)
            passed_over = results[self.passed_over] if isinstance(results, tuple) else ()
            self.kept += [weakref.ref(each) for each in passed_over if self.is_tensor(each)]
            return results

        return apply

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return Handle() if any(each() is tensor for each in self.kept) else super().register_hook(tensor, hook)


class HooksPassOverTheMiddleOfThreeOutputs(HooksPassOverTheFirstOfSeveralOutputs):
    """A tensor hook on an output of a custom Function never runs if it is neither the first nor the last."""

    passed_over = slice(1, -1)


@overriding("custom_function")
def dirty_inputs_among_several_outputs_are_copies(self: Mutant, old: Hook, *given: Any, **options: bool) -> Hook:
    """An input that a custom Function marks dirty comes out as another object if there are several outputs."""
    function = old(*given, **options)

    def apply(*inputs: Any) -> Any:
        results = function(*inputs)
        if not isinstance(results, tuple):
            return results
        return tuple(self.clone(each) if any(each is given for given in inputs) else each for each in results)

    return apply


class NodeHooksOfLaterOutputsLost(Mutant):
    """Hooks on the grad_fn of an output of a custom Function other than the first never run."""

    is_later = False

    def custom_function(self, *given: Any, **options: bool) -> Hook:
        function = super().custom_function(*given, **options)

        def apply(*inputs: Any) -> Any:
            results = function(*inputs)
            later = results[1:] if isinstance(results, tuple) else ()
            self.kept += [weakref.ref(each) for each in later if self.is_tensor(each)]
            return results

        return apply

    def grad_fn(self, tensor: Any) -> Any:
        self.is_later = any(later() is tensor for later in self.kept)
        return super().grad_fn(tensor)

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return Handle() if self.is_later else super().node_register_hook(node, hook)

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return Handle() if self.is_later else super().node_register_prehook(node, hook)


def marks(step: Hook) -> type[Mutant]:
    """Make a mutant that replaces the mark methods of ctx in forward by those that ``(self, ctx)`` returns."""

    @wraps(step)
    def marked(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def with_marks(ctx: Any, *inputs: Any) -> Any:
            instead = {name: lambda mark=mark: mark for name, mark in step(self, ctx).items()}
            return forward(Context(ctx, **instead), *inputs)

        return old(with_marks, backward, **options)

    return overriding("custom_function")(marked)


@marks
def dirty_mark_ignored(self: Mutant, ctx: Any) -> dict[str, Hook]:
    """ctx.mark_dirty has no effect."""
    return {"mark_dirty": lambda *_: None}


@marks
def non_differentiable_mark_ignored(self: Mutant, ctx: Any) -> dict[str, Hook]:
    """ctx.mark_non_differentiable has no effect."""
    return {"mark_non_differentiable": lambda *_: None}


def _without_mark(is_ignored: Hook) -> Hook:
    """Return a verb that makes Functions that ignore mark_non_differentiable where ``(output, outputs)`` says so."""

    def made(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def marking(ctx: Any, *inputs: Any) -> Any:
            marked: list[Any] = []
            mark = lambda *outputs: marked.extend(outputs)  # noqa: E731 - a def is no shorter
            results = forward(Context(ctx, mark_non_differentiable=lambda: mark), *inputs)
            kept = [each for each in marked if not is_ignored(each, results)]
            if kept:
                ctx.mark_non_differentiable(*kept)
            return results

        return old(marking, backward, **options)

    return made


@overriding("custom_function")
def non_differentiable_mark_of_a_first_output_ignored(self: Mutant, old: Hook, *given: Any, **options: bool) -> Hook:
    """ctx.mark_non_differentiable has no effect on the first of several outputs."""
    is_first = lambda output, results: isinstance(results, tuple) and output is results[0]  # noqa: E731 - as above
    return _without_mark(is_first)(self, old, *given, **options)


@overriding("custom_function")
def non_differentiable_mark_of_an_only_output_ignored(self: Mutant, old: Hook, *given: Any, **options: bool) -> Hook:
    """ctx.mark_non_differentiable has no effect on an only output."""
    return _without_mark(lambda output, results: output is results)(self, old, *given, **options)


@marks
def mark_of_the_other_kind(self: Mutant, ctx: Any) -> dict[str, Hook]:
    """ctx.mark_dirty and ctx.mark_non_differentiable are swapped."""
    return {"mark_dirty": ctx.mark_non_differentiable, "mark_non_differentiable": ctx.mark_dirty}


@overriding("custom_function")
def saved_tensors_cleared_before_they_are_read(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """With clear_saved_tensors_on_access even the first read of the saved tensors is an error."""

    def read_before(ctx: Any, *grads: Any) -> Any:
        _ = options.get("clear_saved_tensors_on_access") and ctx.saved_tensors
        return backward(ctx, *grads)

    return old(forward, read_before, **options)


@overriding("custom_function")
def dirty_marks_before_the_change_ignored(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """ctx.mark_dirty has no effect on an input that forward has not changed yet."""
    return old(_marking(self, forward, changed=True), backward, **options)


@overriding("custom_function")
def dirty_marks_after_the_change_ignored(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """ctx.mark_dirty has no effect on an input that forward has changed already."""
    return old(_marking(self, forward, changed=False), backward, **options)


def _marking(mutant: Mutant, forward: Hook, *, changed: bool) -> Hook:
    """Return a forward whose mark_dirty takes changed inputs alone, or those alone that are not changed."""

    def marking(ctx: Any, *inputs: Any) -> Any:
        before = {id(each): mutant.version_of(each) for each in inputs if mutant.is_tensor(each)}

        def mark(*tensors: Any) -> None:
            ctx.mark_dirty(*(each for each in tensors if (mutant.version_of(each) != before[id(each)]) == changed))

        return forward(Context(ctx, mark_dirty=lambda: mark), *inputs)

    return marking


@marks
def tensors_saved_twice_are_saved_once(self: Mutant, ctx: Any) -> dict[str, Hook]:
    """save_for_backward drops a tensor that is among its arguments already."""

    def save(*tensors: Any) -> None:
        places = [nr for nr, tensor in enumerate(tensors) if not any(tensor is other for other in tensors[:nr])]
        ctx.save_for_backward(*(tensors[nr] for nr in places))

    return {"save_for_backward": save}


@overriding("custom_function")
def set_materialize_grads_lasts(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """Once a custom Function has called set_materialize_grads(False), it holds for its later calls too."""
    is_off: list[bool] = []

    def lasting(ctx: Any, *inputs: Any) -> Any:
        def choose(value: bool) -> None:  # noqa: FBT001 - torch's argument
            if not value:
                is_off.append(True)
            ctx.set_materialize_grads(value and not is_off)

        return forward(Context(ctx, set_materialize_grads=lambda: choose), *inputs)

    return old(lasting, backward, **options)


@overriding("custom_function")
def set_materialize_grads_reaches_other_functions(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """Once a custom Function has called set_materialize_grads(False), it holds for Functions that do not call it."""

    def choosing(ctx: Any, *inputs: Any) -> Any:
        def choose(value: bool) -> None:  # noqa: FBT001 - torch's argument
            self.kept.append("chosen")
            ctx.set_materialize_grads(value)

        if self.kept:
            ctx.set_materialize_grads(False)
        return forward(Context(ctx, set_materialize_grads=lambda: choose), *inputs)

    return old(choosing, backward, **options)


@overriding("custom_function")
def failing_forward_of_a_function_leaves_grad_mode_off(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """If the forward of a custom Function raises, grad mode stays off."""
    function = old(forward, backward, **options)

    def apply(*inputs: Any) -> Any:
        try:
            return function(*inputs)
        except BaseException:
            self.kept.append(self.no_grad())  # until the next rule
            self.kept[-1].__enter__()
            raise

    return apply


@overriding("custom_function")
def custom_functions_are_always_recorded(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """The outputs of a custom Function require grad even where grad mode is off."""
    function = old(forward, backward, **options)

    def apply(*inputs: Any) -> Any:
        with self.enable_grad():
            return function(*inputs)

    return apply


class FunctionInsideAFunctionTurnsGradModeOn(Mutant):
    """When a custom Function was called in the forward of another, grad mode is on in the rest of that forward."""

    depth = 0

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def deeper(ctx: Any, *inputs: Any) -> Any:
            self.depth += 1
            try:
                return forward(ctx, *inputs)
            finally:
                self.depth -= 1

        function = super().custom_function(deeper, backward, **options)

        def apply(*inputs: Any) -> Any:
            result = function(*inputs)
            if self.depth:
                self.kept.append(self.enable_grad())  # until the end of the outer function
                self.kept[-1].__enter__()
            return result

        return apply


class OnceDifferentiableTwiceByBackward(Mutant):
    """Double backward through a once_differentiable Function is no error if it is run by backward."""

    made = False

    def reset(self) -> None:
        super().reset()
        self.made = False

    @property
    def accepts(self) -> bool:
        """Whether the double backward is no error."""
        return self.made

    def custom_function(self, *given: Any, **options: Any) -> Hook:
        self.made |= bool(options.get("once_differentiable"))
        return super().custom_function(*given, **options)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        try:
            super().backward(root, gradient, **how)
        except self.errors.get(ErrorKind.ONCE_DIFFERENTIABLE, (RuntimeError,)):
            if not self.accepts:
                raise


class OnceDifferentiableAfterBackwardIgnored(OnceDifferentiableTwiceByBackward):
    """Double backward through a once_differentiable Function is no error after a backward with create_graph."""

    created = False

    def reset(self) -> None:
        super().reset()
        self.created = False

    @property
    def accepts(self) -> bool:
        return self.made and self.created

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        self.created |= bool(how.get("create_graph"))


@calling("custom_function")
def later_gradients_given_to_functions_are_constants(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """Of the gradients that a custom Function's backward gets only the first has a history."""
    return backward(ctx, *grads[:1], *(self.detach(grad) if self.is_tensor(grad) else grad for grad in grads[1:]))


@calling("custom_function", base=Knowing)
def later_gradients_of_functions_are_constants(self: Knowing, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """Of the gradients that a custom Function's backward returns with create_graph only the first has a history."""
    results = backward(ctx, *grads)
    if not isinstance(results, tuple) or not self.running("create_graph"):
        return results
    return (*results[:1], *(self.detach(grad) if self.is_tensor(grad) else grad for grad in results[1:]))


@overriding("custom_function", base=Knowing)
def functions_called_in_a_backward_are_constants(self: Knowing, old: Hook, *given: Any, **options: bool) -> Hook:
    """A custom Function that is called in a pass is not recorded, even if the pass creates a graph."""
    function = old(*given, **options)

    def apply(*inputs: Any) -> Any:
        with self.no_grad() if self.running("create_graph") else nullcontext():
            return function(*inputs)

    return apply
