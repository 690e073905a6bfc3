"""Custom Functions that mark their tensors, or have options: how they are called, and what is noted of them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import Run, UnknownNameError, operation
from hooklaw.fuzz.replay.values import about_to_change, product, product_backward

Forward = Callable[..., Any]


class Kind(NamedTuple):
    """A custom Function."""

    forward: Forward
    """Given the backend, the ctx, and the inputs."""
    backward: Callable[..., Any]
    inputs: int = 1
    outputs: int = 1
    changes: int | None = None
    """Which input it changes in place."""
    option: str = ""
    wraps: Callable[[list[Any]], Any] | None = None
    """What its first input is put into: tensors in there are none of its inputs."""


def _tripled(backend: Any, ctx: Any, x: Any) -> Any:
    backend.mul_(x, 3)
    ctx.mark_dirty(x)
    return x


def _tripled_and_saved(backend: Any, ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(_tripled(backend, ctx, x))
    return x


def _tripled_of_two(backend: Any, ctx: Any, x: Any) -> Any:
    return _tripled(backend, ctx, x), x * 2


def _tripled_and_lost(backend: Any, ctx: Any, x: Any) -> Any:
    return _tripled(backend, ctx, x) * 2


def _first_multiplied(backend: Any, ctx: Any, a: Any, b: Any) -> Any:
    ctx.save_for_backward(backend.clone(a), b)
    ctx.mark_dirty(a)
    return backend.mul_(a, b)


def _second_multiplied(backend: Any, ctx: Any, a: Any, b: Any) -> Any:
    ctx.save_for_backward(a, backend.clone(b))
    ctx.mark_dirty(b)
    return backend.mul_(b, a)


def _product(_: Any, ctx: Any, a: Any, b: Any) -> Any:
    return product(ctx, a, b)


def _needed_backward(ctx: Any, grad: Any) -> Any:
    a, b = ctx.saved_tensors
    first, second = ctx.needs_input_grad
    return grad * b if first else None, grad * a if second else None


def _constant_second(_: Any, ctx: Any, x: Any) -> Any:
    marked = x * 5
    ctx.mark_non_differentiable(marked)
    return x * 2, marked


def _constant_first(_: Any, ctx: Any, x: Any) -> Any:
    marked = x * 5
    ctx.mark_non_differentiable(marked)
    return marked, x * 2


def _constant(_: Any, ctx: Any, x: Any) -> Any:
    marked = x * 5
    ctx.mark_non_differentiable(marked)
    return marked


def _square(_: Any, ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x * x


def _square_backward(ctx: Any, grad: Any) -> Any:
    return grad * ctx.saved_tensors[0] * 2


def _reading_twice(ctx: Any, grad: Any) -> Any:
    return grad * ctx.saved_tensors[0] + grad * ctx.saved_tensors[0]


KINDS: dict[str, Kind] = {
    "dirty": Kind(_tripled, lambda _, grad: grad * 3, changes=0),
    "dirty-saved": Kind(_tripled_and_saved, lambda ctx, grad: grad * 3 + ctx.saved_tensors[0] * 0, changes=0),
    "dirty-of-two": Kind(_tripled_of_two, lambda _, first, second: first * 3 + second * 6, outputs=2, changes=0),
    "dirty-lost": Kind(_tripled_and_lost, lambda _, grad: grad * 6, changes=0),
    "dirty-first": Kind(_first_multiplied, product_backward, inputs=2, changes=0),
    "dirty-second": Kind(_second_multiplied, product_backward, inputs=2, changes=1),
    "constant-second": Kind(_constant_second, lambda _, first, __: first * 2, outputs=2),
    "constant-first": Kind(_constant_first, lambda _, __, second: second * 2, outputs=2),
    "constant": Kind(_constant, lambda _, grad: grad),
    "once": Kind(_square, _square_backward, option="once_differentiable"),
    "cleared": Kind(_square, _square_backward, option="clear_saved_tensors_on_access"),
    "read-twice": Kind(_square, _reading_twice, option="clear_saved_tensors_on_access"),
    "boxed": Kind(
        lambda *given: (given[2] * 2, given[3] * 3),
        lambda _, grads: (grads[0] * 2, grads[1] * 3),
        inputs=2,
        outputs=2,
        option="boxed_grads_call",
    ),
    "needed": Kind(_product, _needed_backward, inputs=2),
    "few": Kind(_product, lambda _, grad: grad, inputs=2),
    "listed": Kind(lambda *given: given[2][0] * 2 + given[3], lambda _, grad: (None, grad), inputs=2, wraps=list),
    "tupled": Kind(lambda *given: given[2][0] * 2 + given[3], lambda _, grad: (None, grad), inputs=2, wraps=tuple),
    "listed-alone": Kind(lambda *given: given[2][0] * 2, lambda _, grad: grad * 2, wraps=list),
    "nan": Kind(lambda *given: given[2] * 2, lambda _, grad: grad * float("nan")),
}
"""By name; `values` has plainer ones."""


def needs(word: str) -> Iterator[Capability]:
    """Return what a custom Function needs of a backend."""
    if KINDS[word].option:
        yield Capability.FUNCTION_OPTIONS
    if KINDS[word].changes is not None:
        yield Capability.IN_PLACE
    if KINDS[word].changes is not None or "constant" in word:
        yield Capability.FUNCTION_MARKS


@operation
def function(run: Run, one: Instruction) -> None:
    """Call a custom Function; note which of its results require grad and are inputs, and what backward is told."""
    kind, label, backend = KINDS[one.how[0]], one.made[0], run.backend
    tensors = [run.tensors[name] for name in one.used]
    if kind.changes is not None:
        _about_to_change(run, one, kind.changes)

    def backward(ctx: Any, *grads: Any) -> Any:
        run.log((f"{label}.needs", *ctx.needs_input_grad, backend.is_grad_enabled()))
        run.log((f"{label}.backward", run.seen(grads), backend.is_grad_enabled()))
        return kind.backward(ctx, *grads)

    options = {kind.option: True} if kind.option else {}
    apply = backend.custom_function(lambda ctx, *given: kind.forward(backend, ctx, *given), backward, **options)
    results = apply(*([kind.wraps(tensors[:1]), *tensors[1:]] if kind.wraps else tensors))
    made = results if isinstance(results, tuple) else (results,)
    run.tensors.update(zip(one.made, made, strict=True))
    if kind.changes is not None:
        _note_change(run, one, kind.changes)
    said = [fact for tensor in made for fact in (backend.requires_grad(tensor), *(tensor is x for x in tensors))]
    run.log((f"{label}.made", *said))


def _about_to_change(run: Run, one: Instruction, place: int) -> None:
    """Leave alone what other changes in place leave alone, and what modules returned; of two inputs, if unlike."""
    tensor = about_to_change(run, one.used[place], *(run.tensors[name] for name in one.used))
    backend = run.backend
    if one.used[place] in run.handed:
        raise UnknownNameError(one.used[place])
    for other in {*one.used} - {one.used[place]}:
        beside = run.tensors[other]
        unlike = backend.shape(beside) != backend.shape(tensor) or backend.dtype(beside) != backend.dtype(tensor)
        if unlike or run.where(beside) == run.where(tensor):
            raise UnknownNameError(other)
    if len({*one.used}) < len(one.used):
        raise UnknownNameError(one.used[place])


def _note_change(run: Run, one: Instruction, place: int) -> None:
    """Note that what was changed has another name now, or that somebody else has its numbers."""
    before, after = one.used[place], one.made[0]
    if run.tensors[after] is not run.tensors[before]:
        run.shared.add(after)
    elif before in run.views:
        run.views.add(after)
