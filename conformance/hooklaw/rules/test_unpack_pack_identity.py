"""The identity of unpack and pack: under a pair that gives back what it got nothing changes, whatever the tensor is."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import inf, nan, prod
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hooklaw.backend import Backend, Capability
from hooklaw.spec import Basis, Level, docstring, observed, rule, tutorial
from hooklaw.trace import Trace

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
SOURCES = [HOOKS, tutorial("intermediate/autograd_saved_tensors_hooks_tutorial")]
NEEDS = [Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION]

SHARING = ["detached", "index of a list", "in a tuple"]
COPYING = ["cloned", "rebuilt"]
pairs = st.sampled_from(SHARING + COPYING)
sharing_pairs = st.sampled_from(SHARING)


def pair_of(backend: Backend, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a pack and an unpack that together give back the tensor; those of SHARING keep its very data."""
    kept: list[Any] = []

    def into_list(tensor):
        kept.append(backend.detach(tensor))
        return len(kept) - 1

    return {
        "detached": (backend.detach, lambda packed: packed),
        "index of a list": (into_list, kept.__getitem__),
        "in a tuple": (lambda t: (backend.detach(t), "note"), lambda packed: packed[0]),
        "cloned": (lambda t: backend.clone(backend.detach(t)), lambda packed: packed),
        "rebuilt": (
            lambda t: (backend.tolist(t), backend.dtype(t)),
            lambda packed: backend.tensor(packed[0], dtype=packed[1]),
        ),
        "scaled": (lambda t: backend.detach(t) * 4, lambda packed: packed * 0.25),
    }[name]


def numbers(shape: Sequence[int], first: float = 0.5) -> Any:
    """Return nested lists of that shape, holding 0.5, 1.0, 1.5 and so on."""
    if not shape:
        return first
    step = 0.5 * prod(shape[1:])
    return [numbers(shape[1:], first + step * place) for place in range(shape[0])]


class Trial:
    """Saves one tensor, laid out in some way, with and without a pair, and compares all that can be seen of it."""

    def __init__(self, backend: Backend, trace: Trace, pair: str, *look: Callable[[Any], Any]) -> None:
        trace.clear()
        self.backend, self.trace, self.pair = backend, trace, pair
        self.look = (lambda t: str(backend.tolist(t)), *look)
        self.received: list[Any] = []
        self.read: list[Any] = []

    def describe(self, tensor: Any) -> list[Any]:
        """Return the exact value, what else is looked at, shape, dtype and device."""
        backend = self.backend
        seen = [look(tensor) for look in self.look]
        return [*seen, backend.shape(tensor), backend.dtype(tensor), backend.device(tensor)]

    def reader(self) -> Callable[..., Any]:
        """Return a custom Function that saves its last input and notes what its backward reads."""

        def save(ctx, *inputs):
            ctx.save_for_backward(inputs[-1])
            return inputs[0] * 2

        def read(ctx, grad):
            (saved,) = ctx.saved_tensors
            self.read.append(self.describe(saved))
            return (grad * saved, None)[: self.inputs] if self.inputs > 1 else grad * saved

        return self.backend.custom_function(save, read)
