"""The reference engine: its derivatives are right, it keeps every documented rule, and it keeps nothing alive."""

import gc
import weakref
from pathlib import Path

import pytest

import hooklaw.model
from hooklaw.backend.capabilities import SEVERAL_PROCESSES, Capability
from hooklaw.model.adapter import backend

ENGINE = Path(hooklaw.model.__file__).parent
R = backend()
DATA = [[0.5, 1.0, 1.5], [2.0, 2.5, 3.0]]


def changed_through_view(x):
    """Change a row of a tensor in place, and use the tensor and another view."""
    base = x * 2
    other = R.view(base, 6)
    R.mul_(R.split(base, 1)[1], R.split(R.exp(x), 1)[0])
    return base * base + R.view(other * 3, 2, 3)


def changed_under_view(x):
    """Change a tensor in place that has a view and a view of that view."""
    base = R.sin(x)
    view = R.transpose(R.view(base, 3, 2), 0, 1)
    R.cos_(base)
    return view * view


FUNCTIONS = {
    "add": lambda x: x + x * 3 + 1,
    "sub": lambda x: 2 - x - x * x,
    "mul": lambda x: x * x * x,
    "exp": R.exp,
    "sin": R.sin,
    "cos": R.cos,
    "clone": lambda x: R.clone(x) * x,
    "view": lambda x: R.view(x, 3, 2) * R.view(x, 3, 2),
    "transpose": lambda x: R.clone(R.transpose(x, 0, 1)) * R.view(x, 3, 2),
    "expand": lambda x: R.expand(R.view(x, 1, 2, 3), 4, 2, 3) * x,
    "split": lambda x: R.split(x, 1)[0] * R.split(x, 1)[1],
    "broadcast": lambda x: x * R.split(x, 1)[1],
    "in place": lambda x: R.mul_(x * 2, R.exp(x)),
    "in place on a view": changed_through_view,
    "in place on the base of a view": changed_under_view,
    "cast": lambda x: x * R.tensor(DATA, dtype="float32"),
}


def leaf(data):
    """Make a leaf of float64."""
    return R.tensor(data, requires_grad=True, dtype="float64")


def nudged(place, step):
    """Return the data with one element changed."""
    row, column = divmod(place, 3)
    data = [list(one) for one in DATA]
    data[row][column] += step
    return data


def flat(tensor):
    """Return the values in one list."""
    return R.tolist(R.view(R.clone(R.detach(tensor)), 6))


def slopes(value, step=1e-5):
    """Return the numerical derivative with respect to each element."""
    return [(value(nudged(i, step)) - value(nudged(i, -step))) / (2 * step) for i in range(6)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_derivative(name):
    """The gradient of an operation equals its numerical derivative."""
    function = FUNCTIONS[name]
    x = leaf(DATA)
    R.backward(R.sum(function(x)))

    assert flat(R.grad_of(x)) == pytest.approx(slopes(lambda data: R.tolist(R.sum(function(leaf(data))))), rel=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivative(name):
    """The second derivative, with create_graph, equals the numerical derivative of the first."""
    function = FUNCTIONS[name]

    def of_first(x):
        (first,) = R.grad(R.sum(function(x) * function(x)), [x], create_graph=True)
        return R.sum(first * first)

    x = leaf(DATA)
    (second,) = R.grad(of_first(x), [x])

    assert flat(second) == pytest.approx(slopes(lambda data: R.tolist(of_first(leaf(data)))), rel=1e-4)


def test_declares_the_core():
    """It lacks only what needs hardware, several processes, lazy views or hidden dimensions: nothing about hooks."""
    lacks = {Capability.ACCELERATOR, Capability.LAZY_BITS, Capability.VMAP, *SEVERAL_PROCESSES}

    assert lacks == set(Capability) - R.capabilities


def test_node_made_last_runs_first():
    """Of the ready Nodes the newest is executed first, and a leaf's AccumulateGrad before all others."""
    seen = []
    leaves = [leaf(DATA) for _ in range(3)]
    products = []
    for nr, one in enumerate(leaves):
        R.register_hook(one, lambda _, nr=nr: seen.append(f"leaf {nr}"))
        products.append(one * 2)
        R.register_hook(products[-1], lambda _, nr=nr: seen.append(f"product {nr}"))
    R.backward(R.sum(products[1] + products[0] + products[2]))

    assert seen == ["product 2", "leaf 2", "product 1", "leaf 1", "product 0", "leaf 0"]


@pytest.mark.parametrize("with_input", [False, True])
def test_grad_returns_what_hooks_left(with_input):
    """The engine captures a tensor's gradient after its hooks, even if its Node is executed for another input."""
    x = leaf([1.0, 2.0])
    y = x * 2
    R.register_hook(y, lambda grad: grad * 3)
    of_y = R.grad(R.sum(y * 5), [y, x] if with_input else [y])[0]

    assert R.tolist(of_y) == [15.0, 15.0]


def test_missing_gradients_become_zeros_in_a_custom_function():
    """A custom backward gets zeros for an unused output; its Node's pre-hook gets None."""
    seen = []

    def execution(_ctx, first, second):
        seen.append([R.tolist(first), R.tolist(second)])
        return first * 2

    x = leaf([1.0, 2.0])
    first, _second = R.custom_function(lambda _ctx, x: (x * 2, x * 3), execution)(x)
    R.node_register_prehook(R.grad_fn(first), lambda grads: seen.append(grads[1]))
    R.backward(R.sum(first))

    assert seen == [None, [[1.0, 1.0], [0.0, 0.0]]]


def test_module_hooks():
    """Forward hooks may replace arguments and output; a backward hook gets the gradients of both."""
    seen = []
    module = R.module({"weight": R.tensor([2.0])}, lambda module, x: x * module.weight)
    R.register_forward_pre_hook(module, lambda _module, inputs: (inputs[0] + 1,))
    R.register_forward_hook(module, lambda _module, _inputs, output: output * 10)
    R.register_full_backward_hook(module, lambda _module, *grads: seen.append([R.tolist(one) for (one,) in grads]))
    x = leaf([3.0])
    y = module(x)
    R.backward(R.sum(y * 7))

    assert R.tolist(y) == [80.0]
    assert seen == [[[140.0], [7.0]]]
    assert R.tolist(R.grad_of(x)) == [140.0]
    assert R.tolist(R.grad_of(module.weight)) == [280.0]


def test_graph_is_freed_without_the_collector():
    """A graph with views, in-place changes, saved outputs and every kind of hook is freed with its last reference."""
    x = leaf(DATA)
    gc.disable()
    try:
        y = changed_through_view(R.exp(x))
        loss = R.sum(R.custom_function(lambda _ctx, x: x * 2, lambda _ctx, grad: grad * 2)(y))
        R.register_hook(y, lambda grad: grad * 2)
        R.node_register_hook(R.grad_fn(y), lambda *_: None)
        R.retain_grad(y)
        R.backward(loss, retain_graph=True)
        alive = [weakref.ref(y), weakref.ref(loss), weakref.ref(R.grad_fn(y)), weakref.ref(R.grad_fn(loss))]
        del y, loss

        assert [one() for one in alive] == [None] * 4
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda x: R.backward(x * 2), "not a scalar"),
        (lambda x: R.backward(x * 2, R.tensor([1.0])), "shape (1,)"),
        (lambda x: R.backward(R.detach(x)), "does not require grad"),
        (lambda x: R.grad(R.sum(x), [leaf(DATA)]), "allow_unused"),
        (lambda x: R.mul_(x, 2), "a leaf"),
        (lambda x: R.mul_(R.view(x, 6), 2), "leaf"),
        (lambda x: R.view(R.transpose(x, 0, 1), 6), "cannot be viewed"),
        (lambda x: R.expand(x, 3, 3), "cannot be repeated"),
        (lambda x: R.backward(R.sum(R.custom_function(lambda _, x: x * 2, lambda _, g: (g, g))(x))), "2 gradients"),
    ],
)
def test_refuses(act, says):
    """An invalid call raises an error with one sentence."""
    with pytest.raises(RuntimeError, match=says.replace("(", r"\(").replace(")", r"\)")):
        act(leaf(DATA))
