"""Mutants that misread the outputs of a custom Function, what it saves, or the gradients that it returns."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import wraps
from itertools import count
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, calling, overriding
from hooklaw_backends.mutants.custom_functions import Context
from hooklaw_backends.mutants.situations import Knowing


def forwarding(step: Hook) -> type[Mutant]:
    """Make a mutant that gives each forward the ctx that ``(self, ctx)`` returns."""

    @wraps(step)
    def made(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
        return old(lambda ctx, *inputs: forward(step(self, ctx), *inputs), backward, **options)

    return overriding("custom_function")(made)


def applying(step: Hook) -> type[Mutant]:
    """Make a mutant whose custom Functions return ``(self, result)`` for each tensor among several results."""

    @wraps(step)
    def made(self: Mutant, old: Hook, *given: Any, **options: bool) -> Hook:
        apply = old(*given, **options)

        def changed(*inputs: Any) -> Any:
            results = apply(*inputs)
            return tuple(step(self, nr, result) for nr, result in enumerate(results)) if _is_tuple(results) else results

        return changed

    return overriding("custom_function")(made)


def _is_tuple(results: Any) -> bool:
    return isinstance(results, tuple)


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if _is_tuple(results) else (results,)


@forwarding
def set_materialize_grads_ignored(self: Mutant, ctx: Any) -> Any:
    """set_materialize_grads(False) has no effect: backward gets zeros."""
    return Context(ctx, set_materialize_grads=lambda: lambda _: None)


def materializing(step: Hook) -> type[Mutant]:
    """Make a mutant whose custom Functions get zeros in place of a None if ``(self, nr, zeros, nones, call)`` says so.

    It gets the number of the output, its zeros, the numbers of all outputs that have no gradient, and the number of the
    Function's call, from 1.
    """

    @wraps(step)
    def made(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
        calls = count(1)

        def noting(ctx: Any, *inputs: Any) -> Any:
            results = forward(ctx, *inputs)
            ctx.of_outputs = [self.zeros_like(each) if self.is_tensor(each) else None for each in _as_tuple(results)]
            ctx.call = next(calls)
            return results

        def reading(ctx: Any, *grads: Any) -> Any:
            nones = [nr for nr, grad in enumerate(grads) if grad is None]
            instead = {nr: ctx.of_outputs[nr] for nr in nones if step(self, nr, ctx.of_outputs[nr], nones, ctx.call)}
            return backward(ctx, *(instead.get(nr, grad) for nr, grad in enumerate(grads)))

        return old(noting, reading, **options)

    return overriding("custom_function")(made)


@materializing
def set_materialize_grads_ignored_for_vectors(
    self: Mutant, _nr: int, zeros: Any, _nones: Sequence[int], _call: int
) -> bool:
    """set_materialize_grads(False) has no effect on the gradients of vectors."""
    return zeros is not None and self.shape(zeros) != ()


@materializing
def set_materialize_grads_ignored_for_the_first_output(
    self: Mutant, nr: int, _zeros: Any, _nones: Sequence[int], _call: int
) -> bool:
    """set_materialize_grads(False) has no effect on the gradient of the first output."""
    return nr == 0


@materializing
def set_materialize_grads_ignored_for_the_later_of_unused_outputs(
    self: Mutant, nr: int, _zeros: Any, nones: Sequence[int], _call: int
) -> bool:
    """set_materialize_grads(False) has an effect on the first of several unused outputs alone."""
    return nr != nones[0]


@materializing
def set_materialize_grads_ignored_from_the_third_call_on(
    self: Mutant, _nr: int, _zeros: Any, _nones: Sequence[int], call: int
) -> bool:
    """set_materialize_grads(False) has no effect from the third call of a Function on."""
    return call > 2  # noqa: PLR2004 - the third


@forwarding
def none_cannot_be_saved(self: Mutant, ctx: Any) -> Any:
    """save_for_backward refuses None."""

    def save(*tensors: Any) -> None:
        if None in [tensor if tensor is None else 0 for tensor in tensors]:
            raise RuntimeError("only tensors can be saved for backward")
        ctx.save_for_backward(*tensors)

    return Context(ctx, save_for_backward=lambda: save)


@forwarding
def none_can_be_saved_between_tensors_alone(self: Mutant, ctx: Any) -> Any:
    """save_for_backward refuses None as its first or last argument."""

    def save(*tensors: Any) -> None:
        if tensors and (tensors[0] is None or tensors[-1] is None):
            raise RuntimeError("a tensor must be first and last")
        ctx.save_for_backward(*tensors)

    return Context(ctx, save_for_backward=lambda: save)


@forwarding
def none_alone_cannot_be_saved(self: Mutant, ctx: Any) -> Any:
    """save_for_backward refuses None if it is given no tensor."""

    def save(*tensors: Any) -> None:
        if tensors and not any(map(self.is_tensor, tensors)):
            raise RuntimeError("no tensor was given")
        ctx.save_for_backward(*tensors)

    return Context(ctx, save_for_backward=lambda: save)


@calling("custom_function")
def saved_none_is_not_read(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """ctx.saved_tensors leaves out each None that was saved."""
    saved = lambda: tuple(each for each in ctx.saved_tensors if each is not None)  # noqa: E731 - a def is no shorter
    return backward(Context(ctx, saved_tensors=saved), *grads)


@overriding("custom_function")
def saved_inputs_of_a_function_come_first(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """ctx.saved_tensors returns the inputs that were saved, in their own order, and then what else was saved."""

    def saving(ctx: Any, *inputs: Any) -> Any:
        places = {id(value): place for place, value in enumerate(inputs)}

        def save(*tensors: Any) -> None:
            ctx.save_for_backward(*sorted(tensors, key=lambda tensor: places.get(id(tensor), len(places))))

        return forward(Context(ctx, save_for_backward=lambda: save), *inputs)

    return old(saving, backward, **options)


@calling("custom_function")
def zeros_for_outputs_that_are_no_tensors(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """The backward of a custom Function gets zeros for an output that is not a tensor."""
    return backward(ctx, *(self.tensor(0.0) if grad is None else grad for grad in grads))


def _instead_of_none(gradient_of: Hook) -> Hook:
    """Return a verb that makes custom Functions whose backward gets ``(output)`` where it should get None."""

    def made(_: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def noting(ctx: Any, *inputs: Any) -> Any:
            results = forward(ctx, *inputs)
            ctx.instead = [*map(gradient_of, _as_tuple(results))]
            return results

        def reading(ctx: Any, *grads: Any) -> Any:
            return backward(ctx, *(ctx.instead[nr] if grad is None else grad for nr, grad in enumerate(grads)))

        return old(noting, reading, **options)

    return made


@overriding("custom_function")
def zeros_for_outputs_that_are_floats(self: Mutant, old: Hook, *given: Any, **options: bool) -> Hook:
    """The backward of a custom Function gets 0.0 for an output that is a float."""
    return _instead_of_none(lambda output: 0.0 if isinstance(output, float) else None)(self, old, *given, **options)


@overriding("custom_function")
def containers_for_outputs_that_are_containers(self: Mutant, old: Hook, *given: Any, **options: bool) -> Hook:
    """The backward of a custom Function gets a list or dict of Nones for an output that is a list or a dict."""

    def like(output: Any) -> Any:
        if isinstance(output, list | dict):
            return [None] * len(output) if isinstance(output, list) else dict.fromkeys(output)
        return None

    return _instead_of_none(like)(self, old, *given, **options)


@overriding("custom_function")
def outputs_after_the_last_tensor_have_no_gradient(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """The backward of a custom Function gets nothing, not even None, for what follows the last tensor it returned."""
    ends: list[int] = []

    def noting(ctx: Any, *inputs: Any) -> Any:
        results = forward(ctx, *inputs)
        ends[:] = [1 + max(nr for nr, result in enumerate(_as_tuple(results)) if self.is_tensor(result))]
        return results

    return old(noting, lambda ctx, *grads: backward(ctx, *grads[: ends[0]]), **options)


@overriding("custom_function")
def outputs_of_functions_require_grad_as_the_last_input_does(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """The outputs of a custom Function require grad exactly if its last tensor does."""
    apply = old(forward, backward, **options)

    def changed(*inputs: Any) -> Any:
        results = apply(*inputs)
        tensors = [each for each in inputs if self.is_tensor(each)]
        if not tensors or self.requires_grad(tensors[-1]):
            return results
        cut = tuple(self.detach(each) if self.is_tensor(each) else each for each in _as_tuple(results))
        return cut if _is_tuple(results) else cut[0]

    return changed


@applying
def outputs_of_functions_always_require_grad(self: Mutant, nr: int, result: Any) -> Any:
    """Several outputs of a custom Function require grad even if no input does."""
    constant = self.is_tensor(result) and self.is_floating(result) and not self.requires_grad(result)
    return self.requires_grad_(result) if constant else result


class IntegerOutputsOfFunctionsRequireGrad(Mutant):
    """An integer output of a custom Function requires grad."""

    start = 0

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        apply = super().custom_function(forward, backward, **options)

        def noted(*inputs: Any) -> Any:
            results = apply(*inputs)
            tensors = [each for each in _as_tuple(results)[self.start :] if self.is_tensor(each)]
            self.kept += [each for each in tensors if not self.is_floating(each)]
            return results

        return noted

    def requires_grad(self, tensor: Any) -> bool:
        return super().requires_grad(tensor) or self.keeps(tensor)


class LaterIntegerOutputsOfFunctionsRequireGrad(IntegerOutputsOfFunctionsRequireGrad):
    """An integer output of a custom Function requires grad if it is not the first output."""

    start = 1


@calling("custom_function")
def custom_functions_are_always_freed(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A custom Function can be executed only once, even if its graph was retained."""
    if self.keeps(ctx):
        raise self.errors.get(ErrorKind.GRAPH_FREED, (RuntimeError,))[0]("freed: pass retain_graph=True")
    self.kept.append(ctx)
    return backward(ctx, *grads)


@calling("custom_function")
def saved_tensors_of_a_function_detached(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """The saved tensors of a custom Function have no history, so a second derivative misses what flows through them."""
    saved = lambda: tuple(tensor if tensor is None else self.detach(tensor) for tensor in ctx.saved_tensors)  # noqa: E731 - a def is no shorter
    return backward(Context(ctx, saved_tensors=saved), *grads)


@calling("custom_function", base=Knowing)
def functions_are_constant_in_a_backward_that_creates_a_graph(
    self: Knowing, backward: Hook, ctx: Any, *grads: Any
) -> Any:
    """In backward with create_graph=True what the backward of a custom Function computes has no history."""
    creates = self.running("verb") == "backward" and self.running("create_graph")
    with self.no_grad() if creates else nullcontext():
        return backward(ctx, *grads)


@calling("custom_function")
def missing_gradients_of_a_function_padded(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A tuple of too few gradients that a custom Function's backward returns is filled up with None."""
    results = backward(ctx, *grads)
    return results + (None,) * (len(ctx.needs_input_grad) - len(results)) if _is_tuple(results) else results


@calling("custom_function")
def missing_gradients_of_constants_padded(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """Gradients that a custom Function's backward does not return count as None if their inputs need none."""
    results = _as_tuple(backward(ctx, *grads))
    missing = ctx.needs_input_grad[len(results) :]
    return results if any(missing) else results + (None,) * len(missing)


@calling("custom_function")
def functions_that_return_nothing_accepted(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A custom Function's backward may return nothing, however many inputs it has."""
    results = backward(ctx, *grads)
    return (None,) * len(ctx.needs_input_grad) if results is None or results == () else results


@calling("custom_function")
def surplus_nones_stripped_with_those_of_inputs(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """If a custom Function's backward returns surplus None values, those of its last inputs are dropped too."""
    results = backward(ctx, *grads)
    if not _is_tuple(results) or len(results) <= len(ctx.needs_input_grad):
        return results
    while results and results[-1] is None:
        results = results[:-1]
    return results


@calling("custom_function")
def surplus_gradients_dropped_after_a_none(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """Of the surplus gradients that a custom Function's backward returns, only the first must be None."""
    results, count = backward(ctx, *grads), len(ctx.needs_input_grad)
    return results[:count] if _is_tuple(results) and None in [*results[count : count + 1]] else results


@calling("custom_function")
def surplus_gradients_of_one_input_dropped(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """Gradients that the backward of a custom Function of one input returns beyond the first are ignored."""
    results = backward(ctx, *grads)
    return results[:1] if _is_tuple(results) and len(ctx.needs_input_grad) == 1 else results


@calling("custom_function")
def surplus_gradients_dropped(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """Gradients that a custom Function's backward returns beyond the number of inputs are ignored."""
    results = backward(ctx, *grads)
    return results[: len(ctx.needs_input_grad)] if _is_tuple(results) else results


@calling("custom_function")
def functions_must_return_every_gradient(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A custom Function's backward that returns None for an input is an error."""
    results = backward(ctx, *grads)
    if None in [result if result is None else 0 for result in _as_tuple(results)[: len(ctx.needs_input_grad)]]:
        raise RuntimeError("backward returned no gradient for an input")
    return results


@calling("custom_function")
def gradients_for_constants_refused(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A custom Function's backward that returns a gradient for an input that does not require grad is an error."""
    return _refusing_surplus(_as_tuple(backward(ctx, *grads)), ctx.needs_input_grad, first=0)


@calling("custom_function")
def gradients_for_later_constants_refused(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A custom Function's backward that returns a gradient for a constant other than the first input is an error."""
    return _refusing_surplus(_as_tuple(backward(ctx, *grads)), ctx.needs_input_grad, first=1)


@calling("custom_function")
def gradients_for_non_tensors_ignored(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A gradient that a custom Function's backward returns for an input that is not a tensor is ignored."""
    results, needed = backward(ctx, *grads), ctx.needs_input_grad
    if not _is_tuple(results):
        return results
    kept = (result if need else None for result, need in zip(results, needed, strict=False))
    return (*kept, *results[len(needed) :])


def _refusing_surplus(results: tuple[Any, ...], needed: Sequence[bool], *, first: int) -> tuple[Any, ...]:
    """Return the results, or raise an error if one of them, from the first on, is a gradient that is not needed."""
    if any(result is not None and not need for result, need in [*zip(results, needed, strict=False)][first:]):
        raise RuntimeError("backward returned a gradient for an input that does not require grad")
    return results


@overriding("custom_function")
def gradients_for_constants_accumulated(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """A gradient that a custom Function returns for an input that does not require grad becomes its .grad."""

    def apply(*inputs: Any) -> Any:
        def noting(ctx: Any, *grads: Any) -> Any:
            results = backward(ctx, *grads)
            for tensor, grad in zip(inputs, _as_tuple(results), strict=False):
                if grad is not None and self.is_tensor(tensor) and not self.requires_grad(tensor):
                    self.set_grad(tensor, grad)
            return results

        return old(forward, noting, **options)(*inputs)

    return apply


@overriding("custom_function")
def boxed_gradients_are_a_tuple(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """With boxed_grads_call backward gets the gradients in a tuple, which it cannot change."""
    boxed = options.get("boxed_grads_call")
    return old(forward, (lambda ctx, grads: backward(ctx, tuple(grads))) if boxed else backward, **options)


@overriding("custom_function")
def single_boxed_gradient_is_bare(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """With boxed_grads_call backward gets a list only if the Function has several outputs."""

    def unboxed(ctx: Any, grads: Any) -> Any:
        return backward(ctx, grads[0] if len(grads) == 1 else grads)

    return old(forward, unboxed if options.get("boxed_grads_call") else backward, **options)


@calling("custom_function")
def gradients_of_a_function_close_up(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """The gradients that a custom Function's backward returns go to its first inputs; a None before them is skipped."""
    results = backward(ctx, *grads)
    return tuple(sorted(results, key=lambda result: result is None)) if _is_tuple(results) else results


@overriding("custom_function")
def boxed_gradients_kept_until_the_end(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """With boxed_grads_call the gradients stay alive until backward has returned."""

    def keeping(ctx: Any, grads: Any) -> Any:
        kept = tuple(grads)
        results = backward(ctx, grads)
        del kept
        return results

    return old(forward, keeping if options.get("boxed_grads_call") else backward, **options)


@overriding("custom_function")
def later_saved_tensors_outlive_their_read(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """With clear_saved_tensors_on_access all saved tensors but the first live until backward has returned."""

    def keeping(ctx: Any, *grads: Any) -> Any:
        kept: list[Any] = []

        def read() -> Any:
            saved = ctx.saved_tensors
            kept.extend(saved[1:])
            return saved

        return backward(Context(ctx, saved_tensors=read), *grads)

    return old(forward, keeping if options.get("clear_saved_tensors_on_access") else backward, **options)


@overriding("custom_function")
def functions_get_tensors_and_numbers_alone(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """The forward of a custom Function gets None for an argument that is neither a tensor nor a number."""

    def filtered(ctx: Any, *inputs: Any) -> Any:
        return forward(
            ctx, *(each if self.is_tensor(each) or isinstance(each, int | float) else None for each in inputs)
        )

    return old(filtered, backward, **options)


@overriding("custom_function")
def functions_get_lists_of_detached_tensors(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """The forward of a custom Function gets a list of tensors as a list of detached ones."""

    def detached(value: Any) -> Any:
        if isinstance(value, list) and any(map(self.is_tensor, value)):
            return [self.detach(each) if self.is_tensor(each) else each for each in value]
        return value

    return old(lambda ctx, *inputs: forward(ctx, *map(detached, inputs)), backward, **options)


@overriding("custom_function")
def functions_get_tuples_as_lists(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """The forward of a custom Function gets a list for a tuple that is not empty."""

    def listed(ctx: Any, *inputs: Any) -> Any:
        return forward(ctx, *([*each] if type(each) is tuple and each else each for each in inputs))

    return old(listed, backward, **options)


@overriding("custom_function")
def functions_get_no_callables(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """The forward of a custom Function gets None for a function."""

    def filtered(ctx: Any, *inputs: Any) -> Any:
        return forward(ctx, *(None if type(each) in {type(len), type(filtered)} else each for each in inputs))

    return old(filtered, backward, **options)


@overriding("custom_function")
def forward_of_a_function_is_recorded(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """The forward of a custom Function runs with grad mode on."""

    def recorded(ctx: Any, *inputs: Any) -> Any:
        with self.enable_grad():
            return forward(ctx, *inputs)

    return old(recorded, backward, **options)


@overriding("custom_function", base=Knowing)
def forward_of_a_function_is_recorded_in_a_pass(
    self: Knowing, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """The forward of a custom Function runs with grad mode on if it is called during a pass."""

    def recorded(ctx: Any, *inputs: Any) -> Any:
        with self.enable_grad() if self.under_way else nullcontext():
            return forward(ctx, *inputs)

    return old(recorded, backward, **options)


@overriding("custom_function")
def saved_output_of_a_function_kept_by_its_context(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """An output that a custom Function saved is kept alive by the Function's Node."""
    outputs: list[Any] = []

    def apply(*inputs: Any) -> Any:
        result = made(*inputs)
        outputs.append(result)
        return result

    made = old(forward, lambda ctx, *grads: (outputs, backward(ctx, *grads))[1], **options)
    return apply


@overriding("custom_function")
def saved_output_among_several_kept_by_its_context(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """An output that a custom Function saved is kept alive by the Function's Node if it has several outputs."""
    outputs: list[Any] = []

    def apply(*inputs: Any) -> Any:
        result = made(*inputs)
        outputs.extend(result if isinstance(result, tuple) else ())
        return result

    made = old(forward, lambda ctx, *grads: (outputs, backward(ctx, *grads))[1], **options)
    return apply
