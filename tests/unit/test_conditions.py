"""Conditions: each changes what it says, hides the change from the rule, and leaves the engine's verdicts alone."""

import threading
from pathlib import Path

import pytest

from hooklaw.backend.conditions import CONDITIONS, find_condition
from hooklaw.errors import UnknownConditionError
from hooklaw.law.trace import Trace
from hooklaw.model.adapter import backend

R = backend()


def under(name, function):
    """Run a function of a backend under a condition, and return what it returns."""
    condition = find_condition(name)
    wrapped, returned = condition.wrap(R), []
    R.reset()

    condition.around(R, Trace(wrapped), lambda: returned.append(function(wrapped)))

    return returned[-1]


def squares(backend, data=(1.0, 2.0)):
    """Return a leaf after backward of the sum of its squares."""
    x = backend.tensor([*data], requires_grad=True)
    backend.backward(backend.sum(x * x))
    return x


@pytest.mark.parametrize("name", CONDITIONS)
def test_same_result(name):
    """A program reads the same values, dtype, shape and gradient under every condition that applies."""
    if find_condition(name).why_not(R):
        pytest.skip("does not apply to the engine")

    def read(backend):
        x = squares(backend, ([1.0, 2.0], [3.0, 4.0]))
        return (
            backend.tolist(x),
            backend.dtype(x),
            backend.shape(x),
            backend.tolist(backend.grad_of(x)),
            backend.is_leaf(x),
        )

    assert under(name, read) == (
        [[1.0, 2.0], [3.0, 4.0]],
        "float32",
        (2, 2),
        [[2.0, 4.0], [6.0, 8.0]],
        True,
    )


@pytest.mark.parametrize("name", ["float64", "float16", "bfloat16", "complex64"])
def test_dtype(name):
    """The tensors and their gradients have the condition's dtype."""
    x = under(name, squares)

    assert (R.dtype(x), R.dtype(R.grad_of(x))) == (name, name)


def test_dtypes_are_exchanged():
    """A rule that asks for the condition's dtype gets float32, so that the two still differ."""
    exchanged = find_condition("float64").wrap(R)
    wide = exchanged.tensor([1.0], dtype="float64")

    assert (R.dtype(wide), exchanged.dtype(wide)) == ("float32", "float64")


@pytest.mark.parametrize(("name", "strides"), [("strided", (4, 2)), ("offset", (2, 1)), ("extra-dimension", (2, 1, 1))])
def test_layout(name, strides):
    """Leaves lie in memory as the condition says."""
    x = under(name, lambda backend: squares(backend, ([1.0, 2.0], [3.0, 4.0])))

    assert R.stride(x) == strides
    assert x.data.offset == (4 if name == "offset" else 0)


def test_empty_and_0d_tensors_have_no_gaps():
    """Where there is nothing to lay out, a tensor is made as it is."""
    for data in ([], [[], []], 3.0):
        made = under("strided", lambda backend, data=data: backend.tensor(data))

        assert R.tolist(made) == data


def test_thread():
    """The rule runs in another thread, with its own grad mode and saved-tensor hooks."""
    seen = under("thread", lambda backend: (threading.current_thread(), backend.is_grad_enabled(), squares(backend)))

    assert seen[0] is not threading.main_thread()
    assert seen[1]
    assert R.tolist(R.grad_of(seen[2])) == [2.0, 4.0]


def test_inside_a_pass():
    """The rule runs while another backward does, in grad mode."""
    assert under("inside-pass", lambda backend: backend.is_grad_enabled())


def test_retained():
    """A graph whose pass says nothing of retaining it can be used again; one that is to be freed is freed."""

    def twice(backend, *, retain_graph):
        x = backend.tensor([1.0], requires_grad=True)
        root = backend.sum(x * x)
        backend.backward(root, retain_graph=retain_graph)
        backend.backward(root)

    under("retained", lambda backend: twice(backend, retain_graph=None))
    with pytest.raises(RuntimeError):
        under("retained", lambda backend: twice(backend, retain_graph=False))


def test_hooked():
    """A leaf that requires grad has a hook before the rule sees it; a constant has none."""
    counts = under(
        "hooked", lambda backend: [len(backend.tensor([1.0], requires_grad=flag).hooks.now()) for flag in (True, False)]
    )

    assert counts == [1, 0]


def test_packed():
    """Saved-tensor hooks are active, as forbidding them shows."""
    with pytest.raises(RuntimeError, match="none here"):
        under("packed", lambda backend: backend.disable_saved_tensors_hooks("none here").__enter__())


def test_again():
    """The rule runs three times, and the trace keeps the last run."""
    trace, runs = Trace(R), []

    def body():
        runs.append(1)
        trace.log("ran")

    find_condition("again").around(R, trace, body)

    assert (len(runs), trace.count("ran")) == (3, 1)


@pytest.mark.parametrize("name", ["thread", "inside-pass"])
def test_errors_come_out(name):
    """What the rule raises in a thread or a hook is raised to the runner as it is."""

    def fails(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        under(name, fails)


def test_needs():
    """A backend that lacks what a condition needs is told so."""
    poor = type("Poor", (), {"name": "poor", "capabilities": frozenset()})()

    assert find_condition("subclass").why_not(poor) == (
        "the condition subclass needs views, the verb as_subclass, which poor lacks"
    )


def test_not_under():
    """What a backend says of a condition is passed on."""
    picky = type("Picky", (), {"name": "picky", "not_under": {"subclass": "it has no classes"}})()

    assert find_condition("subclass").why_not(picky) == "picky cannot be judged under subclass: it has no classes"


def test_page():
    """The page of conditions describes each of them in its own words, in their order."""
    page = Path(__file__).parents[2].joinpath("docs", "conditions.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]

    assert [f"| `{made.name}` | {made.what} |" for made in CONDITIONS.values()] == rows


def test_unknown():
    """A name that is mistyped gets a suggestion."""
    with pytest.raises(UnknownConditionError, match=r"'float61': did you mean float64 or float16\?"):
        find_condition("float61")
