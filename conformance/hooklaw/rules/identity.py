"""Trial, which compares a run under identity saved-tensor hooks with a run without hooks."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

from hypothesis import strategies as st

from hooklaw import Backend, Capability, Trace

NEEDS = [Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION]
SHARING = ["detached", "in an object"]
"""Pairs that keep the tensor's very data, and so its layout."""
COPYING = ["cloned", "rebuilt"]
"""Pairs that keep its value, shape, dtype and device."""
OTHERS = ["index of a list", "scaled"]
"""More pairs that keep those of a tensor of small floats."""

INTEGERS = ["bool", "uint8", "int8", "int16", "int32", "int64"]
pairs = st.sampled_from(SHARING + COPYING)
sharing_pairs = st.sampled_from(SHARING)
Hook = Callable[[Any], Any]
Look = Callable[[Any], Any]
LayOut = Callable[[Any], Any]


class Packed:
    """A packed object that is neither a tensor nor a container of tensors."""

    def __init__(self, content: Any) -> None:
        self.content = content


def pair_of(backend: Backend, name: str) -> tuple[Hook, Hook]:
    """Return the pack and unpack hooks of that name."""
    kept: list[Any] = []

    def into_list(tensor: Any) -> int:
        kept.append(backend.detach(tensor))
        return len(kept) - 1

    return {
        "detached": (backend.detach, lambda packed: packed),
        "index of a list": (into_list, kept.__getitem__),
        "in an object": (lambda t: Packed(backend.detach(t)), lambda packed: packed.content),
        "cloned": (lambda t: backend.clone(backend.detach(t)), lambda packed: packed),
        "rebuilt": (
            lambda t: Packed((backend.tolist(t), backend.dtype(t))),
            lambda packed: backend.tensor(packed.content[0], dtype=packed.content[1]),
        ),
        "scaled": (lambda t: backend.detach(t) * 4, lambda packed: packed * 0.25),
    }[name]


def numbers(shape: Sequence[int], first: float = 0.5) -> Any:
    """Return nested lists of this shape with the numbers 0.5, 1.0, 1.5 and so on."""
    if not shape:
        return first
    step = 0.5 * prod(shape[1:])
    return [numbers(shape[1:], first + step * place) for place in range(shape[0])]


class Trial:
    """Compares a run under a pair, through the backend's `call`, with a plain run without hooks."""

    def __init__(
        self,
        backend: Backend,
        trace: Trace,
        pair: str = "detached",
        *,
        look: Look | None = None,
        seed: Any = None,
    ) -> None:
        trace.clear()
        self._backend, self._trace, self._seed = backend, trace, seed
        self._look = look or (lambda tensor: str(backend.tolist(tensor)))
        self._pack, self._unpack = pair_of(backend, pair)

    def describe(self, tensor: Any) -> list[Any]:
        """Return what must be equal: the result of `look` (the value, to the last bit), shape, dtype and device."""
        backend = self._backend
        return [self._look(tensor), backend.shape(tensor), backend.dtype(tensor), backend.device(tensor)]

    def holds(self, leaf: Callable[[], Any], lay_out: LayOut | None = None) -> None:
        """Expect ``lay_out(leaf())`` to be packed, read in backward and differentiated as without hooks.

        Without `lay_out` expect it of the leaf itself and of an intermediate, which is a copy of it.
        """
        for each in self._ways(lay_out):
            self._is_packed(leaf, each)

    def _is_packed(self, leaf: Callable[[], Any], lay_out: LayOut) -> None:
        packed: list[Any] = []

        def pack(tensor: Any) -> Any:
            packed.append(self.describe(tensor))
            return self._pack(tensor)

        plain = self._is_read(self._backend.saved_tensors_hooks(pack, self._unpack), leaf, lay_out)
        self._trace.expect_value("received by pack", [plain], _distinct(packed))

    def holds_under(
        self,
        hooks: Callable[[], AbstractContextManager[Any]],
        leaf: Callable[[], Any],
        lay_out: LayOut | None = None,
    ) -> None:
        """Expect what `holds` expects, except of pack, under the hooks that are active in a context."""
        for each in self._ways(lay_out):
            self._is_read(hooks(), leaf, each)

    def _ways(self, lay_out: LayOut | None) -> list[LayOut]:
        return [lay_out] if lay_out else [lambda leaf: leaf, self._backend.clone]

    def _is_read(self, hooks: AbstractContextManager[Any], leaf: Callable[[], Any], lay_out: LayOut) -> Any:
        plain, plain_gradient = self._run(leaf(), lay_out, nullcontext(), run=lambda forward, x: forward(x))
        read, gradient = self._run(leaf(), lay_out, hooks, run=self._backend.call)

        self._trace.expect_value("read in backward", plain, read)
        self._trace.expect_value("gradient", plain_gradient, gradient)
        return plain

    def is_kept(self, constant: Any, hooks: AbstractContextManager[Any]) -> None:
        """Expect a tensor without gradient that a custom Function saves under these hooks to be read as it was."""
        backend, seen = self._backend, []

        def save(ctx: Any, x: Any, saved: Any) -> Any:
            ctx.save_for_backward(saved)
            return x * 2

        def read(ctx: Any, grad: Any) -> Any:
            seen.append(self.describe(ctx.saved_tensors[0]))
            return grad * 2, None

        function = backend.custom_function(save, read)

        def forward(x: Any, saved: Any) -> Any:
            with hooks:
                output = function(x, saved)
            return backend.sum(output)  # outside: a sum may save its input

        backend.backward(backend.call(forward, backend.tensor([1.0], requires_grad=True), constant))
        self._trace.expect_value("read in backward", [self.describe(constant)], seen)

    def multiplies(self, data: list[Any], dtype: str, hooks: AbstractContextManager[Any] | None = None) -> None:
        """Expect a constant that a product saves, under these hooks or the pair, to be used to the last bit.

        The gradient of the other factor is the constant, or its conjugate, and no operation rounds it.
        """
        hooks = hooks or self._backend.saved_tensors_hooks(self._pack, self._unpack)
        plain = self._gradient_of_product(data, dtype, nullcontext(), run=lambda forward, *tensors: forward(*tensors))
        used = self._gradient_of_product(data, dtype, hooks, run=self._backend.call)
        self._trace.expect_value("gradient of a product", plain, used)

    def _gradient_of_product(
        self, data: list[Any], dtype: str, hooks: AbstractContextManager[Any], run: Callable[..., Any]
    ) -> list[Any]:
        backend = self._backend

        def forward(x: Any, constant: Any) -> Any:
            with hooks:
                return backend.sum(x * constant)

        x = backend.tensor([1.0] * len(data), requires_grad=True, dtype=dtype)
        backend.backward(run(forward, x, backend.tensor(data, dtype=dtype)), self._seed)
        return self.describe(backend.grad_of(x))

    def _run(
        self,
        x: Any,
        lay_out: Callable[[Any], Any],
        hooks: AbstractContextManager[Any],
        run: Callable[..., Any],
    ) -> tuple[Any, Any]:
        backend, seen = self._backend, []

        def save(ctx: Any, tensor: Any) -> Any:
            ctx.save_for_backward(tensor)
            return tensor * tensor

        def read(ctx: Any, grad: Any) -> Any:
            (saved,) = ctx.saved_tensors
            seen.append(self.describe(saved))
            return grad * saved

        square = backend.custom_function(save, read)

        def forward(x: Any) -> Any:
            tensor = lay_out(x)
            with hooks:
                squares = square(tensor), tensor * tensor
            return backend.sum(squares[0] + squares[1])

        backend.backward(run(forward, x), self._seed)
        return seen[0], backend.grad_of(x)


def _distinct(values: list[Any]) -> list[Any]:
    return [value for place, value in enumerate(values) if value not in values[:place]]


def extremes(dtype: str) -> list[int]:
    """Return 0, 1 and the largest number of an integer dtype or bool; if it is signed, also -1 and the smallest."""
    if dtype == "bool":
        return [0, 1]
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    if dtype.startswith("u"):
        return [0, 1, 2**bits - 1]
    return [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
