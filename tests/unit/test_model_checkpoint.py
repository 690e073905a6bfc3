"""Checkpoints of the engine: when they are recomputed, how far, on which inputs, and which errors they raise."""

import weakref

import pytest

from hooklaw.model import errors
from hooklaw.model.adapter import backend

R = backend()
KINDS = pytest.mark.parametrize("use_reentrant", [True, False])


@pytest.fixture(autouse=True)
def _reset():
    yield
    R.reset()


def leaf():
    """Make an input of a checkpoint."""
    return R.tensor([1.0, 2.0], requires_grad=True)


class Region:
    """A function that counts its runs, and those that reached its end."""

    def __init__(self, function=lambda x: R.sin(x * x)) -> None:
        self.function, self.modes, self.ends = function, [], 0

    def __call__(self, *tensors):
        """Run it."""
        self.modes.append(R.is_grad_enabled())
        result = self.function(*tensors)
        self.ends += 1
        return result


@KINDS
def test_runs_again_in_each_backward(use_reentrant):
    """Each backward recomputes once, whether or not the graph is retained, and the gradients add up."""
    x, region = leaf(), Region()
    loss = R.sum(R.checkpoint(region, x, use_reentrant=use_reentrant))
    R.backward(loss, retain_graph=True)
    R.backward(loss)

    assert region.modes == [not use_reentrant, True, True]
    assert R.tolist(R.grad_of(x)) == pytest.approx([4 * 0.5403023, 8 * -0.6536436], rel=1e-5)
    with pytest.raises(errors.GraphFreedError):
        R.backward(loss)


def test_two_nodes_share_one_run():
    """A pass recomputes once for all its tensors, and stops at the last tensor that was saved."""
    x, region = leaf(), Region(lambda x: R.exp(R.sin(x)) * 2)
    R.backward(R.sum(R.checkpoint(region, x, use_reentrant=False)))

    assert len(region.modes) == 2
    assert region.ends == 1


def test_a_pass_inside_another_runs_it_anew():
    """Recomputed tensors belong to one pass."""
    x, region = leaf(), Region()
    y = R.checkpoint(region, x, use_reentrant=False)
    loss, once = R.sum(y), [True]
    R.register_hook(y, lambda _: R.backward(loss, retain_graph=True) if once and once.pop() else None)
    R.backward(loss)

    assert len(region.modes) == 3


def test_reading_what_is_saved_runs_it():
    """Outside of a backward each read recomputes."""
    region = Region(R.exp)
    y = R.checkpoint(region, leaf(), use_reentrant=False)
    R.saved_tensors(R.grad_fn(y))
    R.saved_tensors(R.grad_fn(y))

    assert len(region.modes) == 3


def test_unrecorded():
    """With grad mode off a checkpoint is a plain call."""
    region = Region()
    with R.no_grad():
        y = R.checkpoint(region, leaf(), use_reentrant=False)

    assert not R.requires_grad(y)
    assert region.modes == [False]


@pytest.mark.parametrize("early_stop", [True, False])
def test_nested(early_stop):
    """To recompute an inner checkpoint, the outer one is recomputed, which makes a new inner one."""
    inner, x = Region(R.sin), leaf()
    how = {"use_reentrant": False, "early_stop": early_stop}
    outer = Region(lambda x: R.exp(R.checkpoint(inner, R.sin(x), **how)))
    R.backward(R.sum(R.checkpoint(outer, x, **how)))

    assert len(outer.modes) == 2
    assert len(inner.modes) == 3
    assert R.grad_of(x) is not None


def test_a_gradient_inside():
    """A backward inside a checkpoint recomputes as far as it came, and does not touch the graph around it."""

    def function(x):
        R.grad(R.sum(R.sin(x)), [x])
        return R.cos(x)

    region, x = Region(function), leaf()
    R.backward(R.sum(R.checkpoint(region, x, use_reentrant=False, early_stop=False)))

    assert len(region.modes) == 3
    assert R.tolist(R.grad_of(x)) == pytest.approx([-0.8414710, -0.9092974])


@pytest.mark.parametrize(
    ("first", "again", "early_stop", "refused"),
    [
        (1, 2, True, False),
        (1, 2, False, True),
        (2, 1, True, True),
        (2, 1, False, True),
    ],
)
def test_other_numbers_of_tensors(first, again, early_stop, refused):
    """Fewer recomputed tensors are an error; more are an error unless the recomputation stops before them."""
    times = [first, again]

    def function(x):
        for _ in range(times.pop(0)):
            x = R.sin(x)
        return x

    loss = R.sum(R.checkpoint(function, leaf(), use_reentrant=False, early_stop=early_stop))
    if refused:
        with pytest.raises(errors.CheckpointMismatchError):
            R.backward(loss)
    else:
        R.backward(loss)


@pytest.mark.parametrize(("check", "refused"), [("default", True), ("none", False)])
def test_other_shapes(check, refused):
    """Another shape is an error, unless determinism_check is "none"."""
    inner = [lambda x: x * x, lambda x: R.sum(x) * R.sum(x)]
    loss = R.sum(R.checkpoint(lambda x: R.exp(inner.pop(0)(x)), leaf(), use_reentrant=False, determinism_check=check))
    if refused:
        with pytest.raises(errors.CheckpointMismatchError):
            R.backward(loss)
    else:
        R.backward(loss)


def test_read_twice():
    """In one backward each saved tensor of a checkpoint can be read once."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    square = R.custom_function(forward, lambda ctx, grad: grad * ctx.saved_tensors[0] + grad * ctx.saved_tensors[0])
    loss = R.sum(R.checkpoint(square, leaf(), use_reentrant=False))
    with pytest.raises(errors.CheckpointMismatchError, match="read twice"):
        R.backward(loss)


@KINDS
def test_inputs_live_as_long_as_they_are_needed(use_reentrant):
    """The inputs of a checkpoint are freed with the graph's saved tensors."""
    x = leaf()
    y = x * 2
    loss = R.sum(R.checkpoint(Region(), y, use_reentrant=use_reentrant))
    there = weakref.ref(y)
    del y

    assert there() is not None
    R.backward(loss)
    assert there() is None


@pytest.mark.parametrize("limited", ["grad", "inputs"])
def test_reentrant_in_a_limited_pass(limited):
    """A reentrant checkpoint refuses grad, and backward with inputs."""
    x = leaf()
    loss = R.sum(R.checkpoint(Region(), x, use_reentrant=True))
    with pytest.raises(errors.CheckpointReentrantError):
        R.grad(loss, [x]) if limited == "grad" else R.backward(loss, inputs=[x])


def test_reentrant_without_gradients():
    """A reentrant checkpoint without inputs that require grad has no gradient; without such outputs backward fails."""
    constant = R.checkpoint(Region(), R.tensor([1.0]), use_reentrant=True)
    detached = R.checkpoint(R.detach, leaf(), use_reentrant=True)

    assert not R.requires_grad(constant)
    with pytest.raises(RuntimeError, match="requires grad"):
        R.backward(R.sum(detached))


def test_the_reentrant_kind_takes_what_is_no_tensor():
    """Inputs that are not tensors are passed on as they are, in forward and when it runs again."""
    x = leaf()
    loss = R.sum(
        R.checkpoint(lambda factor, x, names: x * factor[names["last"]], [2, 3], x, {"last": 1}, use_reentrant=True)
    )
    R.backward(loss)

    assert R.tolist(R.grad_of(x)) == [3.0, 3.0]


def test_the_early_stop_of_all_is_restored():
    """set_checkpoint_early_stop can be nested, and an exception ends it too."""
    with (
        R.set_checkpoint_early_stop(enable=False),
        pytest.raises(ZeroDivisionError),
        R.set_checkpoint_early_stop(enable=True),
    ):
        raise ZeroDivisionError
    region = Region(lambda x: x * x)
    R.backward(R.sum(R.checkpoint(region, leaf(), use_reentrant=False)))

    assert region.ends == 1
