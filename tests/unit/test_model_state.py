"""Registration, states and optimizers: the engine does what torch does, error by error."""

from copy import deepcopy
from importlib import import_module

import pytest

from hooklaw.model import errors
from hooklaw.model.adapter import backend

R = backend()


def module(b, *values):
    """Make a module with a weight."""
    return b.module({"weight": b.tensor([*values])}, lambda module, x: x * module.weight)


def nested(b):
    """Make a module with a buffer, and with another one inside."""
    outer, inner = module(b, 1.0, 2.0), module(b, 3.0)
    b.add_module(outer, "inner", inner)
    b.register_buffer(outer, "mean", b.tensor([4.0]))
    return outer, inner


def plainly(b, state):
    """Return a state with lists for its tensors."""
    return [(key, b.tolist(one) if b.is_tensor(one) else one) for key, one in state.items()]


def refusal(act):
    """Return the built-in type of the error that an action raises."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def keys_and_order(b):
    """Take the state of a module with a buffer, and with another module inside."""
    return plainly(b, b.state_dict(nested(b)[0]))


def a_state_is_no_copy(b):
    """Change a parameter after its state was taken."""
    one = module(b, 1.0)
    state = b.state_dict(one)
    with b.no_grad():
        b.mul_(one.weight, 5)
    return plainly(b, state)


def loading_counts_as_a_change(b):
    """Load between a forward that saves the weight and its backward."""
    one = module(b, 1.0)
    y = one(b.tensor([3.0], requires_grad=True))
    b.load_state_dict(one, {"weight": b.tensor([7.0])})
    return b.tolist(one.weight), refusal(lambda: b.backward(y))


def what_does_not_fit(b):
    """Load states that do not match, which copies the matching values."""
    outer, inner = nested(b)
    good = {"weight": b.tensor([8.0, 9.0]), "mean": b.tensor([7.0]), "inner.weight": b.tensor([6.0])}
    states = [
        {**good, "inner.more": b.tensor([1.0])},
        {**good, "other.weight": b.tensor([1.0])},
        {**good, "weight": b.tensor([1.0, 2.0, 3.0])},
        {**good, "mean": 5},
        {key: good[key] for key in ("weight", "mean")},
    ]
    seen = [refusal(lambda state=state: b.load_state_dict(outer, state)) for state in states]
    return seen, b.tolist(outer.weight), b.tolist(inner.weight)


def names_in_use(b):
    """Register under existing names, as another kind and as the same kind."""
    outer, inner = nested(b)
    acts = (
        lambda: b.register_buffer(outer, "weight", b.tensor([1.0])),
        lambda: b.add_module(outer, "mean", inner),
        lambda: b.register_buffer(outer, "inner", b.tensor([1.0])),
        lambda: b.register_buffer(outer, "mean", b.tensor([1.0])),
    )
    return [refusal(act) for act in acts], b.tolist(outer.mean), refusal(lambda: outer.nothing)


def each_module_has_its_own_part(b):
    """Log and change what the load hooks of the inner and the outer module get."""
    seen = []
    outer, inner = nested(b)

    def hook(given, state, prefix, *_):
        seen.append((given is inner, prefix, sorted(state)))
        state.pop(f"{prefix}weight")

    for one in (inner, outer):
        b.register_load_state_dict_pre_hook(one, hook)
    b.register_load_state_dict_post_hook(outer, lambda _, keys: seen.append(sorted(keys.missing_keys)))
    state = b.state_dict(outer)
    return refusal(lambda: b.load_state_dict(outer, state)), seen, sorted(state)


def steps(b):
    """Step with a gradient, without a gradient, with a gradient of zeros, and with weight decay."""
    x, y = (b.tensor([4.0], requires_grad=True) for _ in range(2))
    optimizer = b.sgd([x, y], lr=0.5, weight_decay=0.5)
    b.backward(x * 3)
    b.step(optimizer)
    b.zero_grad(optimizer, set_to_none=False)
    b.step(optimizer)
    return b.tolist(x), b.tolist(y), b.tolist(b.grad_of(x)), b.grad_of(y)


def zeros_without_history(b):
    """Write zeros over a gradient that has a history."""
    x = b.tensor([2.0], requires_grad=True)
    b.backward(x * x * x, create_graph=True)
    grad = b.grad_of(x)
    b.zero_grad(b.sgd([x], lr=1.0), set_to_none=False)
    return b.grad_of(x) is grad, b.tolist(grad), b.requires_grad(grad), b.is_leaf(grad)


def what_an_optimizer_takes(b):
    """Make optimizers of no tensor, of a non-leaf, and of a non-leaf that retains its gradient."""
    y = b.tensor([2.0], requires_grad=True) * 1
    first = refusal(lambda: b.sgd([y], lr=1.0))
    b.retain_grad(y)
    return refusal(lambda: b.sgd([], lr=1.0)), first, refusal(lambda: b.sgd([y], lr=1.0))


def a_step_between_forward_and_backward(b):
    """Step after a product has saved the parameter."""
    x = b.tensor([2.0], requires_grad=True)
    optimizer = b.sgd([x], lr=1.0)
    y, z = x * x, x * 3
    b.backward(z)
    b.step(optimizer)
    return refusal(lambda: b.backward(y))


def a_step_with_a_closure(b):
    """Give the step a closure; the hooks get it among the keyword arguments."""
    optimizer, seen = b.sgd([b.tensor([1.0], requires_grad=True)], lr=1.0), []

    def closure():
        seen.append("closure")
        return b.tensor(0.0)

    b.register_step_pre_hook(optimizer, lambda _, args, kwargs: seen.append((len(args), kwargs["closure"] is closure)))
    b.step(optimizer, closure=closure)
    return seen


def a_closure_records(b):
    """Let a hook give the step a closure that runs a backward; the hooks run in the mode of the caller."""
    seen = []
    x = b.tensor([2.0], requires_grad=True)
    optimizer = b.sgd([x], lr=1.0)

    def closure():
        seen.append(b.is_grad_enabled())
        b.backward(x * x)

    b.register_step_pre_hook(optimizer, lambda _, args, kwargs: (args, {**kwargs, "closure": closure}))
    b.register_step_post_hook(optimizer, lambda *_: seen.append(b.is_grad_enabled()))
    with b.no_grad():
        b.step(optimizer)
    return seen, b.tolist(x)


def the_outermost_hooks(b):
    """Put hooks around the steps of one optimizer and of all."""
    seen = []
    optimizer = b.sgd([b.tensor([2.0], requires_grad=True)], lr=1.0)
    for kind in ("pre", "post"):
        getattr(b, f"register_step_{kind}_hook")(optimizer, lambda *_, kind=kind: seen.append(f"own {kind}"))
        getattr(b, f"register_optimizer_step_{kind}_hook")(lambda *_, kind=kind: seen.append(f"every {kind}"))
    b.step(optimizer)
    b.reset()
    return seen


def another_optimizers_state(b):
    """Load the state of an optimizer into one with another rate, and into one with more parameters."""
    x, y = (b.tensor([2.0], requires_grad=True) for _ in range(2))
    state = b.state_dict(b.sgd([x], lr=0.25))
    one, two = b.sgd([y], lr=1.0), b.sgd([x, y], lr=1.0)
    b.load_state_dict(one, state)
    taken = b.state_dict(one)["param_groups"][0]
    return taken["lr"], taken["params"], refusal(lambda: b.load_state_dict(two, state))


PROGRAMS = [
    keys_and_order,
    a_state_is_no_copy,
    loading_counts_as_a_change,
    what_does_not_fit,
    names_in_use,
    each_module_has_its_own_part,
    steps,
    zeros_without_history,
    what_an_optimizer_takes,
    a_step_between_forward_and_backward,
    a_closure_records,
    a_step_with_a_closure,
    the_outermost_hooks,
    another_optimizers_state,
]


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_like_torch(program):
    """The engine shows what torch shows, with its flags and without."""
    pytest.importorskip("torch")
    on_torch = program(import_module("hooklaw_backends.torch_eager").backend())

    assert on_torch is not None
    assert program(backend()) == program(backend("torch")) == on_torch


def test_what_is_in_a_state():
    """A state has parameters first, then buffers, then submodules."""
    expected = [("weight", [1.0, 2.0]), ("mean", [4.0]), ("inner.weight", [3.0])]

    assert keys_and_order(R) == expected


def test_an_optimizer_descends():
    """A step with weight decay shrinks a parameter that has a gradient, even a gradient of zeros."""
    assert steps(R) == ([1.125], [4.0], [0.0], None)


def test_refuses_by_name():
    """A state that does not match is refused in one sentence."""
    with pytest.raises(errors.StateKeysError, match="missing weight; unexpected other"):
        R.load_state_dict(module(R, 1.0), {"other": R.tensor([1.0])})
    optimizer = R.sgd([R.tensor([1.0], requires_grad=True)], lr=1.0)
    R.register_step_pre_hook(optimizer, lambda *_: (1, 2, 3))
    with pytest.raises(errors.StepHookError, match="a pair"):
        R.step(optimizer)


def test_a_copy_has_its_own_registry():
    """A copy of a module has its own registry."""
    outer, _ = nested(R)
    copied = deepcopy(outer)
    R.register_buffer(copied, "late", R.tensor([1.0]))

    assert [key for key, _ in plainly(R, R.state_dict(copied))] == ["weight", "mean", "late", "inner.weight"]
    assert "late" not in R.state_dict(outer)


def test_reset_removes_hooks_on_everything():
    """Global registration and step hooks that a failed rule left behind are removed for the next rule."""
    seen = []
    R.register_module_buffer_registration_hook(lambda *_: seen.append("buffer"))
    R.register_optimizer_step_post_hook(lambda *_: seen.append("step"))
    R.reset()
    R.register_buffer(module(R, 1.0), "mean", R.tensor([1.0]))
    R.step(R.sgd([R.tensor([1.0], requires_grad=True)], lr=1.0))

    assert seen == []
