"""Conditions that change the layout in memory, the number of dimensions, or the type of a rule's tensors."""

from typing import Any

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.conditions._condition import Condition, Wrapper

FILL = 77.0
"""What lies between a tensor's elements, or before them."""


class _Laid(Wrapper):
    """Tensors lie in a larger storage."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        """Make a leaf that is laid out in the condition's way, if it has elements and a dimension."""
        if not isinstance(data, list | tuple) or not all(self._sizes(data)):
            return self.inner.tensor(data, requires_grad=requires_grad, dtype=dtype)
        laid = self.inner.detach(self.laid(data, dtype))
        return self.inner.requires_grad_(laid) if requires_grad else laid

    @staticmethod
    def _sizes(data: Any) -> list[int]:
        return [len(data), *_Laid._sizes(data[0] if data else 0)] if isinstance(data, list | tuple) else []

    def laid(self, data: Any, dtype: str) -> Any:
        """Return a view of a larger tensor that has these values."""
        raise NotImplementedError


class Strided(_Laid):
    """A foreign element follows each element."""

    def laid(self, data: Any, dtype: str) -> Any:
        """Return the first of two columns of a larger tensor."""
        inner = self.inner
        larger = inner.tensor(_each(data, lambda value: [value, _fill(value)]), dtype=dtype)
        shape = inner.shape(larger)[:-1]
        last = len(shape)
        first, _ = inner.split(inner.transpose(larger, 0, last), 1)
        return inner.view(inner.transpose(first, 0, last), *shape)


class Offset(_Laid):
    """Foreign elements lie before the first element."""

    def laid(self, data: Any, dtype: str) -> Any:
        """Return the second half of a larger tensor."""
        inner = self.inner
        larger = inner.tensor([_each(data, _fill), data], dtype=dtype)
        _, second = inner.split(larger, 1)
        return inner.view(second, *inner.shape(larger)[1:])


def _each(data: Any, make: Any) -> Any:
    return [_each(part, make) for part in data] if isinstance(data, list | tuple) else make(data)


def _fill(value: Any) -> Any:
    """Return a value that is not this one, of its type."""
    return type(value)(0 if value else 1) if isinstance(value, int) else FILL


class Extra(Wrapper):
    """Tensors that have a dimension have one more of size 1, the last."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        """Make a leaf with one more dimension."""
        deeper = _each(data, lambda value: [value]) if isinstance(data, list | tuple) else data
        return self.inner.tensor(deeper, requires_grad=requires_grad, dtype=dtype)

    def tolist(self, tensor: Any) -> Any:
        """Return the values without the dimension."""
        values = self.inner.tolist(tensor)
        return _flat(values) if isinstance(values, list) and 0 not in self.inner.shape(tensor) else values

    def shape(self, tensor: Any) -> tuple[int, ...]:
        """Return the sizes without the dimension's, which a tensor without elements does not have."""
        shape = self.inner.shape(tensor)
        return shape if 0 in shape else shape[:-1]

    def stride(self, tensor: Any) -> tuple[int, ...]:
        """Return the strides without the dimension's."""
        return self.inner.stride(tensor)[:-1]

    def view(self, tensor: Any, *shape: int) -> Any:
        """View with another shape, and the dimension."""
        return self.inner.view(tensor, *shape, 1)

    def expand(self, tensor: Any, *shape: int) -> Any:
        """View with dimensions of size 1 repeated, but for the last one."""
        return self.inner.expand(tensor, *shape, 1)


def _flat(values: list[Any]) -> Any:
    return [_flat(part) for part in values] if isinstance(values[0], list) else values[0]


class Subclass(Wrapper):
    """Tensors that a rule makes are of a subclass without behaviour of its own."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        """Make a leaf of the subclass."""
        made = self.inner.as_subclass(self.inner.tensor(data, dtype=dtype))
        return self.inner.requires_grad_(made) if requires_grad else made


_PARTS = (Capability.VIEWS, Capability.MULTI_OUTPUT)
LAYOUTS = (
    Condition("strided", "A foreign element follows each element of a tensor in memory.", _PARTS, Strided),
    Condition("offset", "Tensors begin inside a larger storage.", _PARTS, Offset),
    Condition("extra-dimension", "Tensors have one more dimension, of size 1.", (Capability.VIEWS,), Extra),
    Condition("subclass", "Tensors are of a plain subclass.", (Capability.VIEWS,), Subclass, verbs=("as_subclass",)),
)
