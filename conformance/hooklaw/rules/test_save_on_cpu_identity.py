"""What save_on_cpu keeps of a saved tensor: its values to the last bit, its dtype, its shape; in each backward."""

from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.identity import INTEGERS, Trial, extremes, numbers

SAVE_ON_CPU = docstring("torch.autograd.graph.save_on_cpu")
SOURCES = [SAVE_ON_CPU.sentence(2)]
NEEDS = [Capability.SAVE_ON_CPU, Capability.CUSTOM_FUNCTION]
LOSSY = "save-on-cpu-rounds-float64"
FLAT = "save-on-cpu-reads-views-as-their-base"

pinned = st.booleans()


@rule(
    "save-on-cpu.identity.dtypes",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.FLOAT64],
    mutants=[LOSSY, "save-on-cpu-reads-before-the-copy"],
)
@given(pin=pinned, dtype=st.sampled_from(["float32", "float64"]), number=st.floats(-100, 100, allow_subnormal=False))
def test_dtypes(backend: Backend, trace: Trace, *, pin: bool, dtype: str, number: float) -> None:
    """Under save_on_cpu a tensor of float32 or float64 is read back in its dtype, exact to the last bit."""
    trial, data = Trial(backend, trace), [number, 0.1, -0.0, 1e-40]
    trial.holds_under(
        lambda: backend.save_on_cpu(pin_memory=pin), lambda: backend.tensor(data, requires_grad=True, dtype=dtype)
    )
    trial.multiplies(data, dtype, backend.save_on_cpu(pin_memory=pin))


@rule(
    "save-on-cpu.identity.dtypes.half",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.FLOAT16, Capability.BFLOAT16],
    mutants=["save-on-cpu-widens-half-precision"],
)
@given(pin=pinned, dtype=st.sampled_from(["float16", "bfloat16"]))
def test_half(backend: Backend, trace: Trace, *, pin: bool, dtype: str) -> None:
    """Under save_on_cpu a tensor of float16 or bfloat16 is read back in its dtype, exact to the last bit."""
    trial, data = Trial(backend, trace), [0.1, -2.5]
    trial.holds_under(
        lambda: backend.save_on_cpu(pin_memory=pin), lambda: backend.tensor(data, requires_grad=True, dtype=dtype)
    )
    trial.multiplies(data, dtype, backend.save_on_cpu(pin_memory=pin))


@rule(
    "save-on-cpu.identity.dtypes.complex",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.COMPLEX, Capability.SEED_GRADIENT],
    mutants=["save-on-cpu-loses-imaginary-parts"],
    except_under={"complex64": "it asks for complex64 by name"},
)
@given(pin=pinned, dtype=st.sampled_from(["complex64", "complex128"]))
def test_complex(backend: Backend, trace: Trace, *, pin: bool, dtype: str) -> None:
    """Under save_on_cpu a complex tensor is read back in its dtype, both parts exact to the last bit."""
    trial, data = Trial(backend, trace, seed=backend.tensor(1 + 0j, dtype=dtype)), [0.1 - 0.3j, -2j]
    trial.holds_under(
        lambda: backend.save_on_cpu(pin_memory=pin), lambda: backend.tensor(data, requires_grad=True, dtype=dtype)
    )
    trial.multiplies(data, dtype, backend.save_on_cpu(pin_memory=pin))


@rule(
    "save-on-cpu.identity.dtypes.integer",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.INTEGER],
    mutants=["save-on-cpu-turns-integers-into-floats"],
)
@given(pin=pinned, dtype=st.sampled_from(INTEGERS))
def test_integer(backend: Backend, trace: Trace, *, pin: bool, dtype: str) -> None:
    """Under save_on_cpu an integer or bool tensor that a custom Function saves is read back unchanged."""
    Trial(backend, trace).is_kept(backend.tensor(extremes(dtype), dtype=dtype), backend.save_on_cpu(pin_memory=pin))


@rule(
    "save-on-cpu.identity.shapes",
    level=Level.MUST,
    sources=SOURCES,
    needs=NEEDS,
    mutants=["save-on-cpu-turns-scalars-into-vectors", "save-on-cpu-drops-empty-dimensions"],
)
@given(pin=pinned, shape=st.sampled_from([[], [0], [1], [2, 0], [2, 3], [1, 1, 1], [3, 1, 2, 2]]))
def test_shapes(backend: Backend, trace: Trace, *, pin: bool, shape: list[int]) -> None:
    """Under save_on_cpu a tensor of any number of dimensions, also 0-d or empty, is read back in its shape."""
    Trial(backend, trace).holds_under(
        lambda: backend.save_on_cpu(pin_memory=pin), lambda: backend.tensor(numbers(shape), requires_grad=True)
    )


@rule(
    "save-on-cpu.identity.views",
    level=Level.MUST,
    sources=SOURCES,
    needs=[*NEEDS, Capability.VIEWS],
    mutants=[FLAT, "save-on-cpu-unexpands", "save-on-cpu-keeps-one-tensor-for-each-address"],
)
@given(
    pin=pinned,
    chain=st.lists(st.sampled_from(["transpose", "expand", "unsqueeze", "double"]), min_size=1, max_size=3),
)
def test_views(backend: Backend, trace: Trace, *, pin: bool, chain: list[str]) -> None:
    """Under save_on_cpu a view, transposed, expanded or reshaped, is read back with its values and shape."""
    Trial(backend, trace).holds_under(
        lambda: backend.save_on_cpu(pin_memory=pin),
        lambda: backend.tensor(numbers([2, 3]), requires_grad=True),
        lambda x: reduce(lambda tensor, name: laid_out(backend, tensor, name), chain, x),
    )

    def with_view(x):
        turned = backend.transpose(x, 0, 1)
        with backend.save_on_cpu(pin_memory=pin):
            squares = x * x, turned * turned
        return backend.sum(squares[0]) + backend.sum(squares[1])

    x = backend.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    backend.backward(backend.call(with_view, x))
    trace.expect_value("x.grad, saved beside its view", [[4.0, 8.0, 12.0], [16.0, 20.0, 24.0]], backend.grad_of(x))


def laid_out(backend: Backend, tensor: Any, name: str) -> Any:
    """Return the tensor in another layout, or twice its values."""
    shape = backend.shape(tensor)
    if name == "transpose":
        return backend.transpose(tensor, 0, len(shape) - 1)
    if name == "double":
        return tensor * 2
    return backend.view(tensor, 1, *shape) if name == "unsqueeze" else backend.expand(tensor, 2, *shape)


def cubed(backend: Backend, *, pin: bool) -> Any:
    """Return a forward that sums the cubes of a tensor under save_on_cpu."""

    def forward(x):
        with backend.save_on_cpu(pin_memory=pin):
            return backend.sum(x * x * x)

    return forward


@rule(
    "save-on-cpu.every-backward",
    level=Level.MUST,
    sources=SOURCES,
    needs=[Capability.SAVE_ON_CPU, Capability.RETAIN_GRAPH],
    mutants=["save-on-cpu-gives-its-data-away"],
)
def test_every_backward(backend: Backend, trace: Trace) -> None:
    """Under save_on_cpu, with pinned memory or without, each backward through a retained graph is right."""
    for pin in (False, True):
        forward = cubed(backend, pin=pin)
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        loss = backend.call(forward, x)
        for last in (False, False, True):
            backend.backward(loss, retain_graph=not last)

        trace.expect_value(f"x.grad, pin_memory={pin}", [9.0, 36.0], backend.grad_of(x))


@rule(
    "save-on-cpu.create-graph",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("what is retrieved has the place of the saved tensor in the graph")],
    needs=[Capability.SAVE_ON_CPU, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["autograd-metadata-of-the-unpacked-tensor-kept"],
)
def test_create_graph(backend: Backend, trace: Trace) -> None:
    """A gradient through tensors that save_on_cpu kept can itself be differentiated."""
    for pin in (False, True):
        forward = cubed(backend, pin=pin)
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        (first,) = backend.grad(backend.call(forward, x), [x], create_graph=True)
        (second,) = backend.grad(backend.sum(first), [x])

        trace.expect_value(f"second derivative, pin_memory={pin}", [6.0, 12.0], second)
