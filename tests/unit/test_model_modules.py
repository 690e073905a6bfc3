"""Module hooks and multi-grad hooks: the engine does what torch does, except for torch's departures."""

import gc
import weakref
from copy import deepcopy
from importlib import import_module
from typing import NamedTuple

import pytest

from hooklaw.model import errors, flags
from hooklaw.model.adapter import backend
from programs import PROGRAMS, played

R = backend()
VERBS = [("forward_pre_hook", 1), ("forward_hook", 2), ("full_backward_pre_hook", 1), ("full_backward_hook", 2)]
"""What registers hooks of modules, and how many arguments those take besides the module."""


class Departure(NamedTuple):
    """A program with its documented log, its log on torch, and the flag that makes the difference."""

    flag: str
    documented: list


def both(first, second):
    """Return the gradients as lists."""
    return ("list", first, second)


ONES, TWOS = [1.0, 1.0], [2.0, 2.0]
DEPARTURES = {
    "always_called_global_hook_with_kwargs": Departure(
        "global-hooks-after-a-failure-get-no-kwargs",
        [("global", ("tuple", 1), {"factor": 2}, None), ("raised", "forward")],
    ),
    "pre_hook_of_backward_returns_a_tensor": Departure(
        "backward-pre-hooks-return-no-tensor",
        [("accepted",), ("grad", [10.0, 14.0])],
    ),
    "a_backward_inside_of_a_backward": Departure(
        "passes-share-the-gradients-of-a-module",
        [
            ("full", ("tuple", TWOS), ("tuple", ONES)),
            ("inner is done",),
            ("full", ("tuple", [6.0, 6.0]), ("tuple", [3.0, 3.0])),
            ("grad", [8.0, 8.0]),
        ],
    ),
    "gradients_of_the_weights_and_then_past_the_outputs": Departure(
        "passes-share-the-gradients-of-a-module",
        [("asked", ("tuple", [3.0])), ("grad", [3.0, 3.0])],
    ),
    "multi_grad_on_a_leaf_that_is_asked_for": Departure(
        "multi-grad-hooks-take-no-leaf-in-grad",
        [("all", both(TWOS, ONES)), ("asked", ("tuple", TWOS)), ("accepted",)],
    ),
    "multi_grad_on_what_requires_no_grad": Departure(
        "multi-grad-hooks-take-no-constants",
        [("accepted",), ("all", both(None, [3.0, 4.0])), ("accepted",), ("any", [3.0, 4.0])],
    ),
    "multi_grad_on_the_root": Departure(
        "multi-grad-hooks-miss-a-lone-root",
        [("root", ("list", 1.0)), ("any", 1.0), ("all", both(TWOS, 1.0))],
    ),
    "any_with_an_unused_part": Departure("the-first-gradient-may-be-none", [("any", [1.0])]),
    "multi_grad_in_a_backward_inside_of_a_backward": Departure(
        "passes-share-the-count-of-a-multi-grad-hook",
        [("any", ONES), ("all", both(ONES, None)), ("any", ONES), ("all", both(ONES, ONES))],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_torch(name):
    """The engine with all flags logs what torch logs; without flags it does so too, except for the known departures."""
    pytest.importorskip("torch")
    on_torch = played(name, import_module("hooklaw_backends.torch_eager").backend())

    assert on_torch
    assert played(name, backend("torch")) == on_torch
    assert (played(name, backend()) == on_torch) == (name not in DEPARTURES)


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures(name):
    """For a departure of torch the engine does what is documented, and with the departure's flag what torch does."""
    assert played(name, backend()) == DEPARTURES[name].documented
    assert played(name, backend(DEPARTURES[name].flag)) == played(name, backend("torch"))


def test_departures_are_flags():
    """Each of the flags exists and names the rule that it breaks."""
    assert all(flags.TORCH[one.flag].why != flags.SILENT for one in DEPARTURES.values())


def test_all_arguments_of_every_hook():
    """A hook gets its module first; global hooks run before the module's own, even prepended ones."""
    seen = []
    module = R.module({"weight": R.tensor([2.0])}, lambda module, x, plus: x * module.weight + plus)

    def logs(name):
        return lambda given, *rest: seen.append((name, given is module, len(rest)))

    handles = [getattr(R, f"register_module_{verb}")(logs(f"every {verb}")) for verb, _ in VERBS]
    handles += [getattr(R, f"register_{verb}")(module, logs(f"own {verb}"), prepend=True) for verb, _ in VERBS]
    x = R.tensor([3.0], requires_grad=True)
    R.backward(module(x, plus=1))
    for handle in handles:
        handle.remove()
    R.backward(module(x, plus=1))

    assert seen == [(f"{where} {verb}", True, count) for verb, count in VERBS for where in ("every", "own")]


def hooked(kind, hook, **options):
    """Return a module that multiplies by a parameter, with a hook."""
    module = R.module({"weight": R.tensor([2.0])}, lambda module, x: x * module.weight)
    getattr(R, f"register_{kind}")(module, hook, **options)
    return module


WRONG = {
    "a number for gradients": (errors.HookTypeError, "full_backward_hook", lambda *_: 5, True),
    "a tensor for gradients": (errors.HookCountError, "full_backward_hook", lambda _module, grads, _: grads[0], True),
    "too many gradients": (errors.HookCountError, "full_backward_hook", lambda *_: (None, None), True),
    "too few gradients": (errors.HookCountError, "full_backward_pre_hook", lambda *_: (), True),
    "a gradient of nothing": (errors.ModuleHookError, "full_backward_hook", lambda _module, _, grads: grads, False),
}


@pytest.mark.filterwarnings("ignore:backward hooks are called")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_returns(name):
    """A forbidden result of a backward hook raises the error of its kind."""
    error, kind, hook, requires_grad = WRONG[name]
    y = hooked(kind, hook)(R.tensor([3.0], requires_grad=requires_grad))

    with pytest.raises(error):
        R.backward(y)


def test_refuses():
    """Malformed arguments, in-place changes and unknown modes raise the errors of their kind."""
    x = R.tensor([3.0], requires_grad=True)
    module = hooked("forward_pre_hook", lambda *_: 5, with_kwargs=True)

    with pytest.raises(errors.ModuleHookError, match="pair"):
        module(x)
    with pytest.raises(errors.ModuleInPlaceError, match="in place"):
        R.mul_(hooked("full_backward_hook", lambda *_: None)(x), 2)
    with pytest.raises(ValueError, match="'some'"):
        R.register_multi_grad_hook([x], lambda _: None, mode="some")


def test_reset_removes_global_hooks():
    """Global hooks that a failed rule left behind are removed for the next rule."""
    seen = []
    R.register_module_forward_hook(lambda *_: seen.append("forward"))
    R.register_module_full_backward_hook(lambda *_: seen.append("backward"))
    R.reset()
    R.backward(R.sum(R.module({}, lambda _module, x: x * 2)(R.tensor([1.0], requires_grad=True))))

    assert seen == []


def test_the_hook_of_a_pass_needs_a_pass():
    """A multi-grad hook called outside of backward raises an error that says so."""
    y = R.tensor([1.0], requires_grad=True) * 2
    R.register_multi_grad_hook([y], lambda _: None)
    (hook,) = R.grad_fn(y).hooks_of(0).now()

    with pytest.raises(RuntimeError, match="outside"):
        hook(None)


def test_nothing_is_kept_alive():
    """Modules, their graphs and multi-grad hooks are freed with their last reference, without the garbage collector."""
    x = R.tensor([1.0], requires_grad=True)
    module = R.module({"weight": R.tensor([2.0])}, lambda module, x: x * module.weight)
    R.register_full_backward_hook(module, lambda *_: None)
    R.register_full_backward_pre_hook(module, lambda *_: None)
    gc.disable()
    try:
        y = module(x)
        leaf = R.tensor([1.0], requires_grad=True)
        total = R.sum(y * leaf)
        for mode in ("all", "any"):
            R.register_multi_grad_hook([y, leaf, x, total], lambda _: None, mode=mode)
        R.backward(total, retain_graph=True)
        R.grad(total, [module.weight], retain_graph=True)
        alive = [weakref.ref(one) for one in (y, total, leaf, module, R.grad_fn(y), R.grad_fn(total))]
        del y, total, leaf, module

        assert [one() for one in alive] == [None] * len(alive)
    finally:
        gc.enable()


def test_hooks_of_the_older_kind():
    """Legacy hooks belong to the Node that made the first tensor of the output, and stay there after their removal."""
    seen = []
    module = R.module({}, lambda _, x: {"first": (x * 2) * 3, "second": x * 5})
    handle = R.register_backward_hook(module, lambda given, grads, outputs: seen.append((given, grads, outputs)))
    x = R.tensor([1.0, 2.0], requires_grad=True)
    with pytest.warns(FutureWarning, match="will not get the gradients"):
        output = module(x)
    handle.remove()
    R.backward(R.sum(output["first"] + output["second"]))
    R.backward(R.sum(module(x)["first"]))

    ((given, grads, outputs),) = seen
    assert given is module
    assert (R.tolist(grads[0]), grads[1], [R.tolist(one) for one in outputs]) == ([3.0, 3.0], None, [[1.0, 1.0]])


def test_hooks_of_the_older_kind_replace_what_the_last_node_returns():
    """A legacy hook is a hook of the Node: what it returns replaces the Node's gradients."""
    module = R.module({}, lambda _, x: (x * 2) * 3)
    R.register_backward_hook(module, lambda _, grads, _outputs: (grads[0] * 10, None))
    x = R.tensor([1.0, 2.0], requires_grad=True)
    with pytest.warns(FutureWarning, match="will not get the gradients"):
        R.backward(R.sum(module(x)))

    assert R.tolist(R.grad_of(x)) == [60.0, 60.0]


def test_kinds_exclude_each_other_for_good():
    """A module with backward hooks of one kind refuses the other kind; a reset clears the global kind."""
    module = R.module({}, lambda _, x: x)
    R.register_backward_hook(module, lambda *_: None).remove()
    R.register_module_backward_hook(lambda *_: None).remove()

    with pytest.raises(errors.HookKindsError):
        R.register_full_backward_hook(module, lambda *_: None)
    with pytest.raises(errors.HookKindsError):
        R.register_module_full_backward_hook(lambda *_: None)
    R.reset()
    R.register_module_full_backward_hook(lambda *_: None).remove()


def test_a_copy_has_the_hooks_and_parameters_of_its_own():
    """A deep copy has parameters of its own; hooks on parameters, and hooks registered later, are not copied."""
    seen = []
    module = R.module({"weight": R.tensor([2.0])}, lambda module, x: x * module.weight)
    R.register_forward_hook(module, lambda given, *_: seen.append(given))
    R.register_hook(module.weight, seen.append)
    copy = deepcopy(module)
    R.register_forward_hook(module, lambda *_: seen.append("later"))
    R.backward(copy(R.tensor([3.0])))

    assert seen == [copy]
    assert (R.tolist(copy.weight), R.tolist(R.grad_of(copy.weight)), R.grad_of(module.weight)) == ([2.0], [3.0], None)
