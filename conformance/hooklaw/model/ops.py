"""The operations, and Tensor's operators. Derivatives are made of operations, so gradients can be differentiated."""

import cmath
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from hooklaw.model._numbers import WIDTH, is_complex
from hooklaw.model.modes import generator
from hooklaw.model.record import record
from hooklaw.model.strided import Shape, Strided, contiguous, filled, offsets
from hooklaw.model.tensor import Tensor


def add(a: Tensor, b: Any) -> Tensor:
    """Add a tensor or a number."""
    return record("AddBackward0", (a, b), _combined(operator.add, a, b), lambda grad: (grad, grad))


def sub(a: Tensor, b: Any) -> Tensor:
    """Subtract a tensor or a number."""
    return record("SubBackward0", (a, b), _combined(operator.sub, a, b), lambda grad: (grad, -grad))


def mul(a: Tensor, b: Any) -> Tensor:
    """Multiply by a tensor or a number; save each factor if the other factor requires grad."""
    if not isinstance(b, Tensor):
        data, other = _combined(operator.mul, a, b), b.conjugate()
        product = record("MulBackward0", (a, b), data, lambda grad: (grad * other, None))
        if product.made_by:
            product.made_by.node.frees = "numbers-are-freed"
        return product

    def derivative(grad: Tensor, b: Tensor | None, a: Tensor | None) -> tuple[Tensor | None, ...]:
        of_second = a and grad * conj(a)
        return (b and grad * conj(b), of_second)

    def save(_: Tensor) -> tuple[Tensor | None, ...]:
        return (b if a.edge() else None, a if b.edge() else None)

    product = record("MulBackward0", (a, b), _combined(operator.mul, a, b), derivative, save)
    if product.made_by:
        product.made_by.node.saves_by_input = True
    return product


def rsub(a: Tensor, b: Any) -> Tensor:
    """Subtract from a number."""
    data = filled([b - value for value in a.data.values()], a.shape, a.dtype)
    return record("RsubBackward1", (a,), data, lambda grad: (-grad,))


def neg(x: Tensor) -> Tensor:
    """Negate."""
    return record("NegBackward0", (x,), _combined(operator.mul, x, -1), lambda grad: (-grad,))


def exp(x: Tensor) -> Tensor:
    """Raise e to each element; saves its output."""
    return record("ExpBackward0", (x,), _mapped("exp", x), lambda grad, out: (grad * conj(out),), lambda out: (out,))


def sin(x: Tensor) -> Tensor:
    """Return the sine."""
    return record("SinBackward0", (x,), _mapped("sin", x), lambda grad, x: (grad * conj(cos(x)),), lambda _: (x,))


def cos(x: Tensor) -> Tensor:
    """Return the cosine."""
    return record("CosBackward0", (x,), _mapped("cos", x), lambda grad, x: (grad * conj(-sin(x)),), lambda _: (x,))


def conj(x: Tensor) -> Tensor:
    """Conjugate a complex tensor; return a real one itself."""
    if not is_complex(x.dtype):
        return x
    data = filled([value.conjugate() for value in x.data.values()], x.shape, x.dtype, x.data.layout())
    return record("ConjBackward0", (x,), data, lambda grad: (conj(grad),))


def clone(x: Tensor, strides: Shape | None = None) -> Tensor:
    """Copy, with the same layout unless `strides` are given."""
    data = filled(x.data.values(), x.shape, x.dtype, strides or x.data.layout())
    return record("CloneBackward0", (x,), data, lambda grad: (grad,))


def cast(x: Tensor, dtype: str) -> Tensor:
    """Convert to another dtype."""
    if x.dtype == dtype:
        return x
    values = x.data.values()
    if is_complex(x.dtype) and not is_complex(dtype):
        values = [value.real for value in values]
    before, data = x.dtype, filled(values, x.shape, dtype)
    return record("ToCopyBackward0", (x,), data, lambda grad: (cast(grad, before),))


def sum_to(x: Tensor, shape: Shape) -> Tensor:
    """Sum x to a shape that broadcasts to the shape of x."""
    return x if shape == x.shape else summed(x, shape)


def summed(x: Tensor, shape: Shape = ()) -> Tensor:
    """Sum all elements, or the dimensions in which `shape` has none or 1."""
    before, totals = x.shape, [0] * math.prod(shape)
    places = offsets(before, repeating(shape, before, contiguous(shape)))
    for place, value in zip(places, x.data.values(), strict=True):
        totals[place] += value
    return record("SumBackward0", (x,), filled(totals, shape, x.dtype), lambda grad: (repeated(grad, before),))


def repeated(x: Tensor, shape: Shape) -> Tensor:
    """Expand x to a shape, without a copy: repeated dimensions get stride 0."""
    before, data = x.shape, x.data.view(shape, repeating(x.shape, shape, x.data.strides))
    return record("ExpandBackward0", (x,), data, lambda grad: (sum_to(grad, before),))


def repeating(before: Shape, shape: Shape, strides: Shape) -> Shape:
    """Return the strides that expand shape `before` to `shape`."""
    missing = len(shape) - len(before)
    kept = [st if then == now else 0 for st, then, now in zip(strides, before, shape[missing:], strict=True)]
    if any(then not in (1, now) for then, now in zip(before, shape[missing:], strict=True)):
        raise RuntimeError(f"shape {before} cannot be repeated to {shape}")
    return (*[0] * missing, *kept)


def rand_like(x: Tensor) -> Tensor:
    """Draw random numbers in a tensor's shape and dtype."""
    drawn = [generator().random() for _ in range(x.data.size)]
    return record("Rand_like", (), filled(drawn, x.shape, x.dtype, x.data.layout()), tuple)


def gather(x: Tensor, places: Sequence[int], shape: Shape) -> Tensor:
    """Pick elements by their row-major indices."""
    values, before = x.data.values(), x.shape
    picked = filled([values[place] for place in places], shape, x.dtype)
    return record("GatherBackward", (x,), picked, lambda grad: (scatter(grad, places, before),))


def scatter(x: Tensor, places: Sequence[int], shape: Shape) -> Tensor:
    """Put elements at row-major indices among zeros: the derivative of `gather`."""
    values: list[Any] = [0] * math.prod(shape)
    for place, value in zip(places, x.data.values(), strict=True):
        values[place] += value
    before = x.shape
    return record("ScatterBackward", (x,), filled(values, shape, x.dtype), lambda grad: (gather(grad, places, before),))


def without(x: Tensor, places: Sequence[int]) -> Tensor:
    """Set elements to zero, by their row-major indices."""
    values = list(x.data.values())
    for place in places:
        values[place] = 0
    return record("MaskBackward", (x,), filled(values, x.shape, x.dtype), lambda grad: (without(grad, places),))


def _combined(function: Callable[[Any, Any], Any], a: Tensor, b: Any) -> Strided:
    """Compute element by element, with broadcasting; the engine sums gradients back to the operands' shapes."""
    if not isinstance(b, Tensor):
        return filled([function(value, b) for value in a.data.values()], a.shape, a.dtype, a.data.layout())
    if a.shape == b.shape and a.dtype == b.dtype:
        return filled(map(function, a.data.values(), b.data.values()), a.shape, a.dtype, a.data.layout())
    shape, dtype = _common(a.shape, b.shape), max(a.dtype, b.dtype, key=WIDTH.__getitem__)
    first, second = (repeated(cast(operand.detach(), dtype), shape).data.values() for operand in (a, b))
    layout = next((operand.data.layout() for operand in (a, b) if operand.shape == shape), None)
    return filled(map(function, first, second), shape, dtype, layout)


def _common(a: Shape, b: Shape) -> Shape:
    if a == b:
        return a
    length = max(len(a), len(b))
    padded = [(1,) * (length - len(shape)) + shape for shape in (a, b)]
    return tuple(second if first == 1 else first for first, second in zip(*padded, strict=True))


def _mapped(name: str, x: Tensor) -> Strided:
    function = getattr(cmath if is_complex(x.dtype) else math, name)

    def total(value: Any) -> Any:
        try:
            return function(value)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return filled(map(total, x.data.values()), x.shape, x.dtype, x.data.layout())


Tensor.__add__ = Tensor.__radd__ = add
Tensor.__mul__ = Tensor.__rmul__ = mul
Tensor.__sub__, Tensor.__rsub__, Tensor.__neg__ = sub, rsub, neg
