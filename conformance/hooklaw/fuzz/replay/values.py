"""Instructions that make and change tensors."""

import warnings
import weakref
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, cast

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import PlannedError, Run, UnknownNameError, operation

NUMBERS = (0.5, -1.0, 1.5, 2.0, -0.5, 1.0, -1.5)
"""Values of leaves: sums and products of a few are exact."""


def evenly(shape: tuple[int, ...], number: float) -> Any:
    """Return nested lists of this shape with one number everywhere."""
    return [evenly(shape[1:], number) for _ in range(shape[0])] if shape else number


SAVERS = {"mul", "sin", "cos", "exp"}
"""Operations that save tensors."""
PERIODIC = {"sin", "cos"}
LARGE = 100.0
VIEWS = {"view", "transpose", "expand"}
LOOKS = VIEWS | {"split", "detach"}
"""What shares the numbers of a tensor."""


def filled(name: str, shape: tuple[int, ...], dtype: str = "float64") -> Any:
    """Return the values of a leaf, which depend on its name alone."""
    start = sum(map(ord, name))
    values: list[Any] = [NUMBERS[(start + 3 * place) % len(NUMBERS)] for place in range(prod(shape))]
    values = [int(2 * one) for one in values] if dtype.startswith("int") else values
    for size in reversed(shape[1:]):
        values = [values[at : at + size] for at in range(0, len(values), size)]
    return values if shape else values[0]


@operation
def leaf(run: Run, one: Instruction) -> None:
    """Make a leaf: shape, dtype, whether it requires grad."""
    shape, dtype, requires_grad = one.how
    name = one.made[0]
    if one.thread in run.inferring and requires_grad:
        raise UnknownNameError(name)  # which operations then record outside is not said
    run.tensors[name] = run.backend.tensor(filled(name, shape, dtype), dtype=dtype, requires_grad=requires_grad)
    _note_inferred(run, one)


def _note_inferred(run: Run, one: Instruction) -> None:
    if (one.thread in run.inferring and one.op not in VIEWS) or (one.op in LOOKS and one.used[0] in run.inferred):
        run.inferred.update(one.made)


def _unary(compute: Callable[..., Any]) -> Callable[[Run, Instruction], None]:
    def run_it(run: Run, one: Instruction) -> None:
        tensors = [run.tensors[name] for name in one.used]
        if one.op in PERIODIC:
            _must_be_small(run, one.used[0], *tensors)
        if one.op in VIEWS and one.thread in run.inferring and one.used[0] not in run.inferred:
            raise UnknownNameError(one.used[0])  # of what is no tensor of inference mode, as under no_grad
        run.tensors[one.made[0]] = run.backend.call(lambda *given: compute(run.backend, *given, *one.how), *tensors)
        _note_inferred(run, one)
        if one.op in VIEWS:
            _note_views(run, one)
        if one.op in SAVERS and all(map(run.backend.requires_grad, tensors)):
            run.savers.add(one.made[0])

    return run_it


def _must_be_small(run: Run, name: str, tensor: Any) -> None:
    """Leave alone large numbers of single precision: the sine of one depends on its last bit."""
    if run.backend.dtype(tensor) == "float32" and any(
        abs(number) > LARGE for number in _flat(run.backend.tolist(tensor))
    ):
        raise UnknownNameError(name)


def _flat(values: Any) -> Iterator[float]:
    if isinstance(values, list):
        for one in cast("list[Any]", values):
            yield from _flat(one)
    else:
        yield values


def _note_views(run: Run, one: Instruction) -> None:
    run.views.update(one.made)
    if one.used[0] in run.shared or not run.backend.requires_grad(run.tensors[one.used[0]]):
        run.shared.update(one.made)


_COMPUTED: dict[str, Callable[..., Any]] = {
    "add": lambda _, a, b: a + b,
    "sub": lambda _, a, b: a - b,
    "mul": lambda _, a, b: a * b,
    "scale": lambda _, a, number: a * number,
    "shift": lambda _, a, number: a + number,
    "sin": lambda backend, a: backend.sin(a),
    "cos": lambda backend, a: backend.cos(a),
    "exp": lambda backend, a: backend.exp(a),
    "sum": lambda backend, a: backend.sum(a),
    "clone": lambda backend, a: backend.clone(a),
    "detach": lambda backend, a: backend.detach(a),
    "view": lambda backend, a, *shape: backend.view(a, *shape),
    "transpose": lambda backend, a: backend.transpose(a, 0, 1),
    "expand": lambda backend, a, *shape: backend.expand(a, *shape),
    "channels_last": lambda backend, a: backend.channels_last(a),
}
for _name, _compute in _COMPUTED.items():
    _made = _unary(_compute)
    _made.__name__ = _name
    operation(_made)


@operation
def split(run: Run, one: Instruction) -> None:
    """Split a tensor in two: one Node with two outputs."""
    tensor = run.tensors[one.used[0]]
    half = run.backend.shape(tensor)[0] // 2
    run.tensors.update(zip(one.made, run.backend.split(tensor, half), strict=True))
    _note_inferred(run, one)
    _note_views(run, one)


def about_to_change(run: Run, name: str, *operands: Any) -> Any:
    """Return a tensor that is about to be changed in place, after which nobody knows what its Node has saved.

    Some are left alone, since it is said nowhere what becomes of them: gradients and what else may share its numbers
    with others unseen; what shares its numbers with what a module returned; views, while nothing is recorded; a leaf
    that was in a graph and was told not to require grad, which would become a part of that graph's results.
    """
    tensor = run.tensors[name]
    if name in run.views | run.handed | run.frozen and (run.frozen or not run.backend.is_grad_enabled()):
        raise UnknownNameError(name)
    where = run.where(tensor)
    for other in (run.handed - {name} | run.shared) & {*run.tensors}:
        if run.where(run.tensors[other]) == where:
            raise UnknownNameError(name)
    if name in run.inferred and run.backend.is_grad_enabled() and any(map(run.backend.requires_grad, operands)):
        raise UnknownNameError(name)  # which operations then record is not said
    run.savers.clear()
    run.changed = True
    return tensor


@operation
def scale_(run: Run, one: Instruction) -> None:
    """Multiply by a number in place."""
    run.backend.mul_(about_to_change(run, one.used[0]), *one.how)


@operation
def mul_(run: Run, one: Instruction) -> None:
    """Multiply by a tensor in place, unless by itself: what is saved of it then is an implementation's affair."""
    factor = run.tensors[one.used[1]]
    tensor = about_to_change(run, one.used[0], factor)
    if run.where(tensor) == run.where(factor):
        raise UnknownNameError(one.used[1])
    run.backend.mul_(tensor, factor)


@operation
def cos_(run: Run, one: Instruction) -> None:
    """Replace by the cosine in place."""
    _must_be_small(run, one.used[0], run.tensors[one.used[0]])
    run.backend.cos_(about_to_change(run, one.used[0]))


@operation
def zero(run: Run, one: Instruction) -> None:
    """Set the accumulated gradient to None."""
    run.backend.set_grad(run.tensors[one.used[0]], None)


@operation
def flag(run: Run, one: Instruction) -> None:
    """Switch requires_grad on or off.

    What has it by its history cannot be told so, and nothing is said of views, or of graphs that a tensor was in before
    it required grad.
    """
    name = one.used[0]
    tensor = run.tensors[name]
    if (one.how[0] and name in run.consumed) or name in run.views or (one.how[0] and not run.backend.is_leaf(tensor)):
        raise UnknownNameError(name)
    run.backend.set_requires_grad(tensor, requires_grad=one.how[0])
    if name in run.consumed:
        run.frozen.add(name)


@operation
def bump(run: Run, one: Instruction) -> None:
    """Count a change in place that was not made, where there are no views that would follow it."""
    if run.views | run.handed or one.used[0] in run.shared:
        raise UnknownNameError(one.used[0])
    run.savers.clear()
    run.backend.increment_version(run.tensors[one.used[0]])


@operation
def edge(run: Run, one: Instruction) -> None:
    """Take the gradient edge of a tensor, in whose place it can be asked for a gradient."""
    run.edges[one.made[0]] = run.backend.get_gradient_edge(run.tensors[one.used[0]])


@operation
def give(run: Run, one: Instruction) -> None:
    """Give a leaf a gradient, a copy of another tensor that is laid out as that is."""
    leaf, other = (run.tensors[name] for name in one.used)
    backend = run.backend
    alike = backend.shape(leaf) == backend.shape(other) and backend.dtype(leaf) == backend.dtype(other)
    if not alike or not backend.is_leaf(leaf):
        raise UnknownNameError(one.used[1])
    run.owned.add(one.used[0])
    backend.set_grad(leaf, backend.clone(backend.detach(other)))


@operation
def forget(run: Run, one: Instruction) -> None:
    """Let go of a tensor, and note whether the graph keeps it; one that is a view, or beside a module, may be kept."""
    name = one.used[0]
    if run.modules or name in run.views | run.inferred or run.mutable:
        raise UnknownNameError(name)
    reference = weakref.ref(run.tensors[name])
    del run.tensors[name]
    run.log(("forget", name, reference() is not None))


@operation
def save(run: Run, one: Instruction) -> None:
    """Serialize a leaf, note whether that warns and what is read back, and go on with that."""
    tensor = run.tensors[one.used[0]]
    if not run.backend.is_leaf(tensor) or one.used[0] in run.parameters:
        raise UnknownNameError(one.used[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = run.backend.save(tensor)
    loaded = run.backend.load(data)
    run.log(("save", bool(caught), run.seen(loaded), run.backend.requires_grad(loaded)))
    run.tensors.update(dict.fromkeys(one.made, loaded))


@operation
def value(run: Run, one: Instruction) -> None:
    """Note the values of a tensor."""
    name = one.used[0]
    if name in run.shared and name not in run.taken:
        raise UnknownNameError(name)
    run.log((f"{name}.value", run.seen(run.tensors[name])))


@operation
def own(run: Run, one: Instruction) -> None:
    """Make a leaf of a tensor's numbers, laid out as they are."""
    run.owned.add(one.made[0])
    run.shared.add(one.made[0])
    run.tensors[one.made[0]] = run.backend.requires_grad_(run.backend.detach(run.tensors[one.used[0]]))


@operation
def take(run: Run, one: Instruction) -> None:
    """Make a tensor of the gradient that a leaf has accumulated, which the next backward may change in place."""
    tensor = run.tensors[one.used[0]]
    grad = run.backend.grad_of(tensor) if run.backend.is_leaf(tensor) else None
    if grad is None:
        raise UnknownNameError(one.used[0])
    run.tensors[one.made[0]] = grad
    run.shared.add(one.made[0])
    run.taken.add(one.made[0])


@operation
def inspect(run: Run, one: Instruction) -> None:
    """Note what a tensor and its Node say of themselves, and count the looks in the Node's metadata."""
    tensor, backend = run.tensors[one.used[0]], run.backend
    node = backend.grad_fn(tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of who looks for the gradient of a tensor that has none
        has_grad = backend.grad_of(tensor) is not None
    said = (backend.requires_grad(tensor), backend.is_leaf(tensor), backend.retains_grad(tensor), node is None)
    run.log(("inspect", *said, has_grad))
    if node is not None:
        metadata = backend.node_metadata(node)
        metadata["looks"] = metadata.get("looks", 0) + 1
        run.log(("node", any(one is not None for one in backend.node_next(node)), metadata["looks"]))


@operation
def custom(run: Run, one: Instruction) -> None:
    """Call a custom Function, whose backward notes what it is given."""
    forward, derivative = FUNCTIONS[one.how[0]]
    name = one.made[0]
    if one.how[0] == "nothing" and run.changed:
        raise UnknownNameError(name)  # the Nodes of in-place operations on views may then not be executed

    def backward(ctx: Any, *grads: Any) -> Any:
        run.log((f"{name}.backward", run.seen(grads), run.backend.is_grad_enabled()))
        return derivative(ctx, *grads)

    apply = run.backend.custom_function(forward, backward)
    results = apply(*[run.tensors[used] for used in one.used])
    run.tensors.update(zip(one.made, results if isinstance(results, tuple) else (results,), strict=True))
    if one.how[0] in ("square", "product", "output"):
        run.savers.add(name)


def _square(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x * x


def product(ctx: Any, a: Any, b: Any) -> Any:
    """Multiply, as the forward of a custom Function."""
    ctx.save_for_backward(a, b)
    return a * b


def product_backward(ctx: Any, grad: Any) -> Any:
    """Return the gradients of both factors."""
    a, b = ctx.saved_tensors
    return grad * b, grad * a


def _tripled(ctx: Any, x: Any) -> Any:
    out = x * 3
    ctx.save_for_backward(out)
    return out


def _tripled_backward(ctx: Any, grad: Any) -> Any:
    (out,) = ctx.saved_tensors
    return grad * 3 + out - out


def _raise(*_: Any) -> Any:
    raise PlannedError


def _held(ctx: Any, x: Any) -> Any:
    ctx.held = x
    return x * x


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "double": (lambda _, x: x * 2, lambda _, grad: grad * 2),
    "square": (_square, lambda ctx, grad: grad * ctx.saved_tensors[0] * 2),
    "attribute": (_held, lambda ctx, grad: grad * ctx.held * 2),
    "product": (product, product_backward),
    "output": (_tripled, _tripled_backward),
    "trailing": (lambda _, x: x * 2, lambda _, grad: (grad * 2, None)),
    "surplus": (lambda _, x: x * 2, lambda _, grad: (grad * 2, grad)),
    "pair": (lambda _, x: (x * 2, x * 3), lambda _, first, second: first * 2 + second * 3),
    "nothing": (lambda _, x: x * 2, lambda *_: None),
    "raise": (lambda _, x: x * 2, _raise),
}
"""Custom Functions: forward and backward."""
