"""Identity of unpack(pack(t)): a pair that returns what it got changes nothing, whatever is saved."""

from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st

from hooklaw import Backend, Capability, Level, Trace, docstring, notes, rule, tutorial
from hooklaw.rules.identity import (
    COPYING,
    INTEGERS,
    NEEDS,
    OTHERS,
    SHARING,
    Trial,
    extremes,
    numbers,
    pair_of,
    pairs,
)

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
TUTORIAL = tutorial("intermediate/autograd_saved_tensors_hooks_tutorial")
SOURCES = [HOOKS.sentence(6, 11), TUTORIAL.sentence(28, 29)]
ROUNDED = "saved-tensors-rounded"
CAST = "saved-tensors-cast-to-float32"


@rule(
    "saved-tensor.identity.value",
    level=Level.MUST,
    sources=[*SOURCES, notes("autograd", "hooks-for-saved-tensors").sentence(4)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["unpacks-another-save", ROUNDED],
)
@given(
    pair=st.sampled_from(SHARING + COPYING + OTHERS),
    data=st.lists(st.sampled_from([0.0, 0.3, -1.25, 2.0]), min_size=1, max_size=4),
)
def test_value(backend: Backend, trace: Trace, pair: str, data: list[float]) -> None:
    """Under a pair whose unpack returns what pack got, gradients are those of a run without hooks."""
    trace.clear()

    def loss(x):
        return backend.sum(x * backend.exp(x) + backend.exp(x * 2))

    def under_hooks(x):
        with backend.saved_tensors_hooks(*pair_of(backend, pair)):
            return loss(x)

    plain, hooked = [backend.tensor(data, requires_grad=True) for _ in range(2)]
    backend.backward(loss(plain))
    backend.backward(backend.call(under_hooks, hooked))

    trace.expect_value("gradient", backend.grad_of(plain), backend.grad_of(hooked))


@rule(
    "saved-tensor.identity.special-values",
    level=Level.MUST,
    sources=SOURCES,
    needs=NEEDS,
    mutants=["saved-tensors-made-finite"],
    except_under={"anomaly": "its values are NaN, which anomaly detection refuses"},
)
@given(pair=pairs)
def test_special_values(backend: Backend, trace: Trace, pair: str) -> None:
    """Infinities, NaN, signed zeros and subnormal numbers are saved and read back unchanged."""
    data = [0.0, -0.0, 1e-40, inf, -inf, nan]
    Trial(backend, trace, pair).holds(lambda: backend.tensor(data, requires_grad=True))


@rule(
    "saved-tensor.identity.dtypes",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.FLOAT64],
    mutants=[CAST, ROUNDED, "saved-intermediates-rounded"],
)
@given(
    pair=pairs,
    dtype=st.sampled_from(["float32", "float64"]),
    number=st.floats(-100, 100, allow_subnormal=False),
)
def test_dtypes(backend: Backend, trace: Trace, pair: str, dtype: str, number: float) -> None:
    """A saved tensor of float32 or float64 is read back in that dtype, exact to the last bit."""
    trial = Trial(backend, trace, pair)
    trial.holds(lambda: backend.tensor([number, 0.1], requires_grad=True, dtype=dtype))
    trial.multiplies([number, 0.1], dtype)


@rule(
    "saved-tensor.identity.dtypes.float16",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.FLOAT16],
    mutants=[CAST, "saved-intermediates-rounded"],
)
@given(pair=pairs)
def test_float16(backend: Backend, trace: Trace, pair: str) -> None:
    """A saved float16 tensor is read back as float16, exact to the last bit."""
    trial = Trial(backend, trace, pair)
    trial.holds(lambda: backend.tensor([0.1, -2.5], requires_grad=True, dtype="float16"))
    trial.multiplies([0.1, -2.5], "float16")


@rule(
    "saved-tensor.identity.dtypes.bfloat16",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.BFLOAT16],
    mutants=[CAST, "saved-intermediates-rounded"],
)
@given(pair=pairs)
def test_bfloat16(backend: Backend, trace: Trace, pair: str) -> None:
    """A saved bfloat16 tensor is read back as bfloat16, exact to the last bit."""
    trial = Trial(backend, trace, pair)
    trial.holds(lambda: backend.tensor([0.1, -2.5], requires_grad=True, dtype="bfloat16"))
    trial.multiplies([0.1, -2.5], "bfloat16")


@rule(
    "saved-tensor.identity.dtypes.complex",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.COMPLEX, Capability.SEED_GRADIENT],
    mutants=["imaginary-part-lost", "saved-tensors-cast-to-complex64"],
    except_under={"complex64": "it asks for complex64 by name"},
)
@given(pair=pairs, dtype=st.sampled_from(["complex64", "complex128"]))
def test_complex(backend: Backend, trace: Trace, pair: str, dtype: str) -> None:
    """A saved complex tensor is read back in its dtype, both parts exact to the last bit."""
    data, seed = [0.1 - 0.3j, -2j], backend.tensor(1 + 0j, dtype=dtype)
    trial = Trial(backend, trace, pair, seed=seed)
    trial.holds(lambda: backend.tensor(data, requires_grad=True, dtype=dtype))
    trial.multiplies(data, dtype)


@rule(
    "saved-tensor.identity.dtypes.integer",
    level=Level.MUST,
    sources=[HOOKS.sentence(3, 11), TUTORIAL.sentence(29)],
    needs=[*NEEDS, Capability.INTEGER],
    mutants=[
        "integers-not-packed",
        "integers-without-dimensions-not-packed",
        "integers-without-elements-not-packed",
        "matrices-of-integers-not-packed",
        CAST,
        "sign-of-saved-integers-lost",
    ],
)
@given(pair=pairs, dtype=st.sampled_from(INTEGERS))
def test_integer(backend: Backend, trace: Trace, pair: str, dtype: str) -> None:
    """An integer or bool tensor that a custom Function saves is packed, and read back unchanged."""
    trial = Trial(backend, trace, pair)
    pack, unpack = pair_of(backend, pair)

    for data in (extremes(dtype), [extremes(dtype)], 1, []):
        trial.is_kept(backend.tensor(data, dtype=dtype), backend.saved_tensors_hooks(trace.saw("pack", pack), unpack))

        trace.expect("pack")


@rule(
    "saved-tensor.identity.shapes",
    level=Level.MUST,
    sources=SOURCES,
    needs=NEEDS,
    mutants=["saved-scalars-become-vectors", "saved-tensors-squeezed", "pack-hook-given-empty-lost"],
)
@given(pair=pairs, shape=st.sampled_from([[], [0], [1], [3], [2, 0], [2, 3], [1, 1, 1], [3, 1, 2, 2]]))
def test_shapes(backend: Backend, trace: Trace, pair: str, shape: list[int]) -> None:
    """A saved tensor of any number of dimensions, also 0-d or empty, is read back in its shape."""
    Trial(backend, trace, pair).holds(lambda: backend.tensor(numbers(shape), requires_grad=True))


@rule(
    "saved-tensor.identity.large",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.VIEWS],
    mutants=[
        "large-saved-tensors-truncated",
        "large-saved-tensors-rounded",
        "large-saved-tensors-shuffled",
        "large-saved-tensors-scaled",
        "rows-of-large-saved-tensors-repeated",
    ],
)
@given(pair=st.sampled_from(["detached", "cloned"]))
def test_large(backend: Backend, trace: Trace, pair: str) -> None:
    """A saved tensor of a hundred thousand elements is read back whole, exact to the last bit."""
    rows, columns = 400, 250
    factors = backend.expand(backend.tensor([[1 + 0.007 * column for column in range(columns)]]), rows, columns)

    def leaf():
        return backend.tensor([[0.003 * row] for row in range(rows)], requires_grad=True)

    def lay_out(x):
        return backend.expand(x, rows, columns) * factors

    original = backend.detach(lay_out(leaf()))

    def distance(tensor):
        return backend.tolist(backend.sum((tensor - original) * (tensor - original)))

    Trial(backend, trace, pair, look=distance).holds(leaf, lay_out)
