"""TorchLike: verbs that are written once for adapters of frameworks with PyTorch's names."""

import sys
from types import SimpleNamespace

import pytest

from hooklaw import TorchLike
from hooklaw.backend.protocol import Backend
from hooklaw.backend.torchlike import attribute, everywhere, function, method, remove_global_hooks
from hooklaw.results.verdict import Outcome
from hooklaw.runner._classify import classify

VERBS = {name: verb for name, verb in vars(TorchLike).items() if callable(verb)}


class Adapter(TorchLike):
    """An adapter of a framework of one function."""

    name = "small"
    framework = SimpleNamespace(enable=SimpleNamespace(twice=lambda value: 2 * value))
    twice = function("twice", "enable")
    shout = method("shout", "upper")
    real = attribute("real")


def test_verbs_are_in_the_protocol():
    """Each shared verb is a verb of the protocol."""
    assert VERBS.keys() <= {*dir(Backend)}


@pytest.mark.parametrize("name", VERBS)
def test_verbs_have_their_names(name):
    """A traceback shows the verb's name, since a result is about the verb that raised."""
    assert (VERBS[name].__name__, VERBS[name].__code__.co_name) == (name, name)


def test_kinds_of_verbs():
    """A verb calls a method, reads an attribute, or calls a function of the framework."""
    made = Adapter()

    assert (made.shout("a"), made.real(3), made.twice(4), made.shape(SimpleNamespace(shape=[2]))) == ("A", 3, 8, (2,))


def test_hooks_for_all_modules(monkeypatch):
    """A hook for all modules is registered by the framework's function, and removed with all others, the last first."""
    removed = []
    module = SimpleNamespace(hook=lambda label: SimpleNamespace(remove=lambda: removed.append(label)))
    monkeypatch.setitem(sys.modules, "small.nn.modules.module", module)
    framework = SimpleNamespace(__name__="small", nn=SimpleNamespace(modules=SimpleNamespace(module=module)))
    made = type("Global", (TorchLike,), {"framework": framework, "hook": everywhere("hook")})()

    made.hook("first")
    made.hook("second")
    remove_global_hooks(made)
    remove_global_hooks(made)

    assert removed == ["second", "first"]


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (TypeError, Outcome.FAIL, "exp raised TypeError: "),
        (RuntimeError, Outcome.FAIL, "exp raised RuntimeError: "),
        (AttributeError, Outcome.ERROR, "backend 'small': verb 'exp' raised AttributeError: "),
    ],
)
def test_an_error_in_a_shared_verb(error, outcome, said):
    """An error in a shared verb is judged as if the adapter had the verb itself."""
    tensor = {TypeError: SimpleNamespace(exp=len), RuntimeError: SimpleNamespace(exp=_fails), AttributeError: None}
    made = type("Elsewhere", (TorchLike,), {"name": "small", "__module__": TorchLike.__module__})()
    with pytest.raises(error) as caught:
        made.exp(tensor[error])

    found = classify(caught.value, made)
    assert (found[0], found[1][: len(said)]) == (outcome, said)


def _fails():
    raise RuntimeError("no")
