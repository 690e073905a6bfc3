"""Identity of unpack(pack(t)) for views and other layouts."""

from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule, tutorial
from hooklaw.rules.identity import NEEDS, Trial, numbers, pairs, sharing_pairs

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
TUTORIAL = tutorial("intermediate/autograd_saved_tensors_hooks_tutorial")
SOURCES = [HOOKS.sentence(6, 11), TUTORIAL.sentence(28, 29)]
CONTIGUOUS = "saved-views-read-as-their-base"
BITS_DROPPED = "pending-bits-dropped"

swaps = st.sampled_from([[(0, 1)], [(0, 2)], [(1, 2)], [(0, 1), (1, 2)], [(0, 2), (0, 1)]])
bits = st.sampled_from([["conj"], ["negate"], ["conj", "negate"], ["negate", "conj", "negate"]])


def swapped(backend: Backend, tensor: Any, dimensions: list[tuple[int, int]]) -> Any:
    """Return a view of the tensor with these pairs of dimensions swapped in turn."""
    return reduce(lambda t, pair: backend.transpose(t, *pair), dimensions, tensor)


def step(backend: Backend, tensor: Any, name: str) -> Any:
    """Return the tensor in another layout."""
    shape = backend.shape(tensor)
    steps = {
        "transpose": lambda: backend.transpose(tensor, 0, len(shape) - 1),
        "unsqueeze": lambda: backend.view(tensor, 1, *shape),
        "expand": lambda: backend.expand(tensor, 2, *shape),
        "conj": lambda: backend.conj(tensor),
        "negate": lambda: backend.neg_view(tensor),
        "clone": lambda: backend.clone(tensor),
        "double": lambda: tensor * 2,
    }
    return steps[name]()


@rule(
    "saved-tensor.identity.views",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.VIEWS],
    mutants=[CONTIGUOUS],
)
@given(pair=pairs, swap=swaps, factor=st.sampled_from([None, 2.0]))
def test_views(backend: Backend, trace: Trace, pair: str, swap: list[tuple[int, int]], factor: float | None) -> None:
    """A saved view, contiguous or not, of a leaf or of an intermediate, is read back with its values and shape."""

    def lay_out(x):
        return swapped(backend, x if factor is None else x * factor, swap)

    Trial(backend, trace, pair).holds(lambda: backend.tensor(numbers([1, 2, 3]), requires_grad=True), lay_out)


@rule(
    "saved-tensor.identity.views.reshaped",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.VIEWS],
    mutants=[CONTIGUOUS],
)
@given(pair=pairs, shape=st.sampled_from([[2, 3], [3, 2], [1, 6], [3, 1, 2]]))
def test_reshaped(backend: Backend, trace: Trace, pair: str, shape: list[int]) -> None:
    """A saved view with another shape than its base is read back with the values and the shape of the view."""
    Trial(backend, trace, pair).holds(
        lambda: backend.tensor(numbers([6]), requires_grad=True),
        lambda x: backend.view(x, *shape),
    )


@rule(
    "saved-tensor.identity.expanded",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.VIEWS],
    mutants=["expanded-tensors-saved-unexpanded"],
)
@given(pair=pairs, rows=st.sampled_from([1, 4]), columns=st.sampled_from([1, 3]))
def test_expanded(backend: Backend, trace: Trace, pair: str, rows: int, columns: int) -> None:
    """A saved expanded tensor (stride 0) is read back with all its elements."""
    Trial(backend, trace, pair).holds(
        lambda: backend.tensor(numbers([1, columns]), requires_grad=True),
        lambda x: backend.expand(x, rows, columns),
    )


@rule(
    "saved-tensor.identity.strides",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[
        observed("strides survive a pair that keeps them; value, size, dtype and device are all that is documented")
    ],
    needs=[*NEEDS, Capability.VIEWS, Capability.STRIDES],
    mutants=["saved-tensors-made-contiguous"],
)
@given(pair=sharing_pairs, repeats=st.sampled_from([1, 3]), swap=swaps)
def test_strides(backend: Backend, trace: Trace, pair: str, repeats: int, swap: list[tuple[int, int]]) -> None:
    """Under a pair that keeps the tensor's data, its strides reach pack and backward unchanged, including stride 0."""
    Trial(backend, trace, pair, look=backend.stride).holds(
        lambda: backend.tensor(numbers([1, 2, 3]), requires_grad=True),
        lambda x: swapped(backend, backend.expand(x, repeats, 2, 3), swap),
    )


@rule(
    "saved-tensor.identity.channels-last",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.CHANNELS_LAST],
    mutants=["channels-last-read-as-contiguous"],
    except_under={"extra-dimension": "channels-last needs four dimensions"},
)
@given(pair=pairs, shape=st.sampled_from([[1, 1, 1, 1], [1, 3, 2, 2], [2, 2, 1, 3], [2, 1, 2, 2]]))
def test_channels_last(backend: Backend, trace: Trace, pair: str, shape: list[int]) -> None:
    """A saved channels-last tensor is read back with every element in its place."""
    Trial(backend, trace, pair).holds(
        lambda: backend.tensor(numbers(shape), requires_grad=True),
        backend.channels_last,
    )


@rule(
    "saved-tensor.identity.lazy-bits",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.LAZY_BITS, Capability.COMPLEX, Capability.SEED_GRADIENT],
    mutants=[BITS_DROPPED],
    except_under={"complex64": "it asks for complex64 by name"},
)
@given(pair=pairs, names=bits)
def test_lazy_bits(backend: Backend, trace: Trace, pair: str, names: list[str]) -> None:
    """A saved tensor whose conjugation or negation is pending is read back as conjugated and negated."""
    Trial(backend, trace, pair, seed=backend.tensor(1 + 0j, dtype="complex64")).holds(
        lambda: backend.tensor([1 + 3j, 2j], requires_grad=True, dtype="complex64"),
        lambda x: reduce(lambda t, name: step(backend, t, name), names, x),
    )


@rule(
    "saved-tensor.identity.lazy-bits.kept",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the pending bits survive a pair that keeps them")],
    needs=[*NEEDS, Capability.LAZY_BITS, Capability.COMPLEX, Capability.SEED_GRADIENT],
    mutants=[BITS_DROPPED, "pending-bits-resolved"],
    except_under={"complex64": "it asks for complex64 by name"},
)
@given(pair=sharing_pairs, names=bits)
def test_lazy_bits_kept(backend: Backend, trace: Trace, pair: str, names: list[str]) -> None:
    """Under a pair that keeps the tensor's data, a pending conjugation or negation stays pending up to backward."""
    seed = backend.tensor(1 + 0j, dtype="complex64")
    Trial(backend, trace, pair, seed=seed, look=lambda t: [backend.is_conj(t), backend.is_neg(t)]).holds(
        lambda: backend.tensor([1 + 3j, 2j], requires_grad=True, dtype="complex64"),
        lambda x: reduce(lambda t, name: step(backend, t, name), names, x),
    )


@rule(
    "saved-tensor.identity.composed",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.VIEWS, Capability.LAZY_BITS, Capability.FLOAT64],
    mutants=[CONTIGUOUS, BITS_DROPPED, "saved-tensors-cast-to-float32"],
)
@given(
    pair=pairs,
    dtype=st.sampled_from(["float32", "float64"]),
    chain=st.lists(
        st.sampled_from(["transpose", "unsqueeze", "expand", "negate", "clone", "double"]), min_size=1, max_size=4
    ),
)
def test_composed(backend: Backend, trace: Trace, pair: str, dtype: str, chain: list[str]) -> None:
    """A saved tensor made by any chain of views and operations is read back with equal value, shape and dtype."""
    Trial(backend, trace, pair).holds(
        lambda: backend.tensor(numbers([2, 3]), requires_grad=True, dtype=dtype),
        lambda x: reduce(lambda t, name: step(backend, t, name), chain, x),
    )
