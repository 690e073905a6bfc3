"""Conditions that change the dtype of a rule's tensors; values that it reads are turned back."""

from cmath import isnan
from collections.abc import Sequence
from functools import partial
from typing import Any

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.conditions._condition import Condition, Wrapper
from hooklaw.backend.protocol import Backend

PLAIN = "float32"


class OfDtype(Wrapper):
    """Tensors are of another dtype where a rule has float32, and the other way round."""

    def __init__(self, dtype: str, backend: Backend) -> None:
        super().__init__(backend)
        self._names = {PLAIN: dtype, dtype: PLAIN}

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = PLAIN) -> Any:
        """Make a leaf of the condition's dtype."""
        return self.inner.tensor(data, requires_grad=requires_grad, dtype=self._names.get(dtype, dtype))

    def dtype(self, tensor: Any) -> str:
        """Return the name of the dtype that the rule asked for."""
        name: str = self.inner.dtype(tensor)
        return self._names.get(name, name)


class Complex(OfDtype):
    """Tensors are complex; a root of one element is given the gradient that a real root would not need."""

    def tolist(self, tensor: Any) -> Any:
        """Return real numbers where no imaginary part is left."""
        values = self.inner.tolist(tensor)
        return values if _imaginary(values) else _real(values)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        """Run backward from a root with a given gradient."""
        self.inner.backward(root, self._seed(root) if gradient is None else gradient, **how)

    def backward_from_all(self, roots: Sequence[Any], gradients: Sequence[Any] | None = None) -> None:
        """Run one backward from several roots with given gradients."""
        self.inner.backward_from_all(roots, self._seeds(roots, gradients))

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        """Return gradients of outputs with given gradients."""
        return self.inner.grad(outputs, inputs, self._seeds(outputs, grad_outputs), **how)

    def _seeds(self, outputs: Any, given: Any) -> Any:
        if type(outputs) not in (list, tuple):  # a gradient edge is a tuple of its own kind
            return self._seed(outputs) if given is None else given
        pairs = zip(outputs, given or [None] * len(outputs), strict=False)
        seeds = [self._seed(root) if seed is None else seed for root, seed in pairs]
        return seeds if any(seed is not None for seed in seeds) else None

    def _seed(self, root: Any) -> Any:
        """Return the gradient of a complex root of one element that requires grad, else None."""
        inner = self.inner
        if not inner.is_tensor(root) or not inner.requires_grad(root) or not inner.dtype(root).startswith("complex"):
            return None
        shape = inner.shape(root)
        return inner.tensor(_ones(shape), dtype=inner.dtype(root)) if set(shape) <= {1} else None


def _ones(shape: Sequence[int]) -> Any:
    return [_ones(shape[1:])] if shape else 1.0


def _imaginary(values: Any) -> bool:
    if isinstance(values, list):
        return any(map(_imaginary, values))
    return isinstance(values, complex) and values.imag != 0 and not isnan(values)


def _real(values: Any) -> Any:
    if isinstance(values, list):
        return [*map(_real, values)]
    return values.real if isinstance(values, complex) else values


def _dtype(name: str, *needs: Capability, kind: type[OfDtype] = OfDtype) -> Condition:
    return Condition(name, f"Tensors are of dtype {name}.", needs, partial(kind, name))


DTYPES = (
    _dtype("float64", Capability.FLOAT64),
    _dtype("float16", Capability.FLOAT16),
    _dtype("bfloat16", Capability.BFLOAT16),
    _dtype("complex64", Capability.COMPLEX, Capability.SEED_GRADIENT, kind=Complex),
)
