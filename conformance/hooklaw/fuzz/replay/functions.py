"""Operations that call custom Functions: plain ones, and ones that mark their tensors or have options."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.operations import operation
from hooklaw.fuzz.replay.run import PlannedError, Replay, skip_if
from hooklaw.fuzz.replay.values import about_to_change

Forward = Callable[..., Any]


class Function(NamedTuple):
    """A custom Function, which may mark its tensors or have an option."""

    forward: Forward
    """Given the backend, the ctx, and the inputs."""
    backward: Callable[..., Any]
    inputs: int = 1
    outputs: int = 1
    changes: int | None = None
    """Which input it changes in place."""
    option: str = ""
    wraps: Callable[[list[Any]], Any] | None = None
    """The container that its first input is put into, so that autograd does not see that input."""


def _double(_backend: Any, _ctx: Any, x: Any) -> Any:
    return x * 2


def _square(_backend: Any, ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x * x


def _square_backward(ctx: Any, grad: Any) -> Any:
    return grad * ctx.saved_tensors[0] * 2


def _product(_backend: Any, ctx: Any, a: Any, b: Any) -> Any:
    ctx.save_for_backward(a, b)
    return a * b


def _product_backward(ctx: Any, grad: Any) -> Any:
    a, b = ctx.saved_tensors
    return grad * b, grad * a


def _tripled_output(_backend: Any, ctx: Any, x: Any) -> Any:
    out = x * 3
    ctx.save_for_backward(out)
    return out


def _tripled_output_backward(ctx: Any, grad: Any) -> Any:
    out = ctx.saved_tensors[0]
    return grad * 3 + out - out


def _raise(_ctx: Any, _grad: Any) -> Any:
    raise PlannedError


def _held(_backend: Any, ctx: Any, x: Any) -> Any:
    ctx.held = x
    return x * x


PLAIN: dict[str, Function] = {
    "double": Function(_double, lambda _, grad: grad * 2),
    "square": Function(_square, _square_backward),
    "attribute": Function(_held, lambda ctx, grad: grad * ctx.held * 2),
    "product": Function(_product, _product_backward),
    "output": Function(_tripled_output, _tripled_output_backward),
    "trailing": Function(_double, lambda _, grad: (grad * 2, None)),
    "surplus": Function(_double, lambda _, grad: (grad * 2, grad)),
    "pair": Function(lambda _, _ctx, x: (x * 2, x * 3), lambda _, first, second: first * 2 + second * 3),
    "nothing": Function(_double, lambda _, _grad: None),
    "raise": Function(_double, _raise),
}
"""Custom Functions of the operation `custom`."""
SAVING = ("square", "product", "output")
"""Those that save tensors."""


@operation(needs=(Capability.CUSTOM_FUNCTION,), simplifies_to="scale")
def custom(run: Replay, instruction: Instruction) -> None:
    """Call a custom Function, whose backward logs what it is given."""
    (kind,), name = instruction.how, instruction.made[0]
    skip_if(kind == "nothing" and run.changed)  # whether nodes of in-place operations on views then run is unspecified
    _note_results(run, instruction, apply_of(run, name, PLAIN[kind])(*run.inputs(instruction)))
    if kind in SAVING:
        run.savers.add(name)


def apply_of(run: Replay, label: str, kind: Function, *, needs: bool = False) -> Callable[..., Any]:
    """Return the `apply` of a custom Function whose backward logs what it is given and what is needed."""

    def backward(ctx: Any, *grads: Any) -> Any:
        if needs:
            run.log((f"{label}.needs", *ctx.needs_input_grad, run.backend.is_grad_enabled()))
        run.log((f"{label}.backward", run.seen(grads), run.backend.is_grad_enabled()))
        return kind.backward(ctx, *grads)

    options = {kind.option: True} if kind.option else {}
    return run.backend.custom_function(partial(kind.forward, run.backend), backward, **options)


def _note_results(run: Replay, instruction: Instruction, results: Any) -> tuple[Any, ...]:
    made = results if isinstance(results, tuple) else (results,)
    run.tensors.update(zip(instruction.made, made, strict=True))
    return made


def _tripled(backend: Any, ctx: Any, x: Any) -> Any:
    backend.mul_(x, 3)
    ctx.mark_dirty(x)
    return x


def _tripled_and_saved(backend: Any, ctx: Any, x: Any) -> Any:
    backend.mul_(x, 3)
    ctx.mark_dirty(x)
    ctx.save_for_backward(x)
    return x


def _tripled_of_two(backend: Any, ctx: Any, x: Any) -> Any:
    backend.mul_(x, 3)
    ctx.mark_dirty(x)
    return x, x * 2


def _tripled_and_lost(backend: Any, ctx: Any, x: Any) -> Any:
    backend.mul_(x, 3)
    ctx.mark_dirty(x)
    return x * 2


def _first_multiplied(backend: Any, ctx: Any, a: Any, b: Any) -> Any:
    ctx.save_for_backward(backend.clone(a), b)
    ctx.mark_dirty(a)
    return backend.mul_(a, b)


def _second_multiplied(backend: Any, ctx: Any, a: Any, b: Any) -> Any:
    ctx.save_for_backward(a, backend.clone(b))
    ctx.mark_dirty(b)
    return backend.mul_(b, a)


def _needed_backward(ctx: Any, grad: Any) -> Any:
    a, b = ctx.saved_tensors
    first, second = ctx.needs_input_grad
    return grad * b if first else None, grad * a if second else None


def _constant(_backend: Any, ctx: Any, x: Any) -> Any:
    marked = x * 5
    ctx.mark_non_differentiable(marked)
    return marked


def _constant_second(_backend: Any, ctx: Any, x: Any) -> Any:
    marked = x * 5
    ctx.mark_non_differentiable(marked)
    return x * 2, marked


def _constant_first(_backend: Any, ctx: Any, x: Any) -> Any:
    marked = x * 5
    ctx.mark_non_differentiable(marked)
    return marked, x * 2


def _reading_twice(ctx: Any, grad: Any) -> Any:
    return grad * ctx.saved_tensors[0] + grad * ctx.saved_tensors[0]


def _wrapped(_backend: Any, _ctx: Any, many: Any, x: Any) -> Any:
    return many[0] * 2 + x


MARKED: dict[str, Function] = {
    "dirty": Function(_tripled, lambda _, grad: grad * 3, changes=0),
    "dirty-saved": Function(_tripled_and_saved, lambda ctx, grad: grad * 3 + ctx.saved_tensors[0] * 0, changes=0),
    "dirty-of-two": Function(_tripled_of_two, lambda _, first, second: first * 3 + second * 6, outputs=2, changes=0),
    "dirty-lost": Function(_tripled_and_lost, lambda _, grad: grad * 6, changes=0),
    "dirty-first": Function(_first_multiplied, _product_backward, inputs=2, changes=0),
    "dirty-second": Function(_second_multiplied, _product_backward, inputs=2, changes=1),
    "constant-second": Function(_constant_second, lambda _, first, _second: first * 2, outputs=2),
    "constant-first": Function(_constant_first, lambda _, _first, second: second * 2, outputs=2),
    "constant": Function(_constant, lambda _, grad: grad),
    "once": Function(_square, _square_backward, option="once_differentiable"),
    "cleared": Function(_square, _square_backward, option="clear_saved_tensors_on_access"),
    "read-twice": Function(_square, _reading_twice, option="clear_saved_tensors_on_access"),
    "boxed": Function(
        lambda _, _ctx, a, b: (a * 2, b * 3),
        lambda _, grads: (grads[0] * 2, grads[1] * 3),
        inputs=2,
        outputs=2,
        option="boxed_grads_call",
    ),
    "needed": Function(_product, _needed_backward, inputs=2),
    "few": Function(_product, lambda _, grad: grad, inputs=2),
    "listed": Function(_wrapped, lambda _, grad: (None, grad), inputs=2, wraps=list),
    "tupled": Function(_wrapped, lambda _, grad: (None, grad), inputs=2, wraps=tuple),
    "listed-alone": Function(lambda _, _ctx, many: many[0] * 2, lambda _, grad: grad * 2, wraps=list),
    "nan": Function(_double, lambda _, grad: grad * float("nan")),
}
"""Custom Functions of the operation `function`, which mark their tensors or have options."""


def _of_function(instruction: Instruction) -> Iterator[Capability]:
    word = instruction.how[0]
    kind = MARKED[word]
    if kind.option:
        yield Capability.FUNCTION_OPTIONS
    if kind.changes is not None:
        yield from (Capability.IN_PLACE, Capability.MARK_DIRTY)
    if "constant" in word:
        yield Capability.FUNCTION_MARKS


@operation(
    needs=(Capability.CUSTOM_FUNCTION, Capability.NEEDS_INPUT_GRAD), also_needs=_of_function, simplifies_to="scale"
)
def function(run: Replay, instruction: Instruction) -> None:
    """Call a custom Function; log which results require grad, which are inputs, and what backward is given."""
    kind, label, backend = MARKED[instruction.how[0]], instruction.made[0], run.backend
    tensors = run.inputs(instruction)
    if kind.changes is not None:
        _about_to_change(run, instruction, kind.changes)

    apply = apply_of(run, label, kind, needs=True)
    results = apply(*([kind.wraps(tensors[:1]), *tensors[1:]] if kind.wraps else tensors))
    made = _note_results(run, instruction, results)
    if kind.changes is not None:
        _note_change(run, instruction.used[kind.changes], label)
    facts = [fact for tensor in made for fact in (backend.requires_grad(tensor), *(tensor is x for x in tensors))]
    run.log((f"{label}.made", *facts))


def _about_to_change(run: Replay, instruction: Instruction, place: int) -> None:
    """Skip what other in-place changes skip, outputs of modules, and two inputs that are unlike or share storage."""
    name, backend = instruction.used[place], run.backend
    tensor = about_to_change(run, name, *run.inputs(instruction))
    skip_if(name in run.handed)
    for other in {*instruction.used} - {name}:
        beside = run.tensors[other]
        unlike = backend.shape(beside) != backend.shape(tensor) or backend.dtype(beside) != backend.dtype(tensor)
        skip_if(unlike or run.where(beside) == run.where(tensor))
    skip_if(len({*instruction.used}) < len(instruction.used))


def _note_change(run: Replay, before: str, after: str) -> None:
    """Note that the changed tensor has another name now, or that the result shares its storage."""
    if run.tensors[after] is not run.tensors[before]:
        run.shared.add(after)
    elif before in run.views:
        run.views.add(after)
