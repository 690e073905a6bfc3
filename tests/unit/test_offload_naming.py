"""How offload strategies are named: shipped ones, parts, a user's own, and names of which nothing can be made."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402 - needs torch

from hooklaw.errors import HooklawError  # noqa: E402 - idem
from hooklaw.offload.steps import Strategy  # noqa: E402 - idem
from hooklaw_backends.offload import STRATEGIES, StrategyError, find  # noqa: E402 - idem
from offload_models import Blocks, mlp, same, step  # noqa: E402 - idem


def test_every_shipped_name_makes_a_new_strategy_with_a_line_of_text():
    """What the benchmark lists can be made, and keeps to the protocol."""
    for name, shipped in STRATEGIES.items():
        first, second = shipped(), shipped()

        assert isinstance(first, Strategy)
        assert first is not second
        assert (first.name, bool(shipped.text)) == (name, True)
        assert first.lossless == ("LOSSY" not in shipped.text)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("disk-row", "no strategy is called 'disk-row': did you mean disk-raw"),
        ("zzz", "known are none, hook-only"),
        ("", "no strategy is called ''"),
        ("checkpoint:0", "checkpoint takes a number of segments"),
        ("checkpoint+checkpoint", "checkpoint takes a number"),
        ("fraction:2+disk-raw", "a fraction is between 0 and 1"),
        ("fraction:x+disk-raw", "a fraction is between 0 and 1"),
        ("fraction:0.5", "add one of them"),
        ("bf16+save-on-cpu", "are for disk-raw, disk-save and async"),
        ("bf16+int8", "one codec"),
        ("sizes:1XiB+disk-raw", "'1XiB' is not a size"),
        ("modules:layer", "add one, as in modules:layer+disk-raw"),
        ("modules:+disk-raw", "modules takes one pattern"),
        ("disk-raw+async", "name one packer"),
        ("async:speed=3", "async has no option 'speed'"),
        ("none:3", "'3' is too much"),
        ("no_such_module:Packer", "no_such_module does not import: ModuleNotFoundError"),
        ("math:tan_", "module math has no attribute 'tan_'"),
        ("math:sin", "calling it without arguments raised TypeError"),
        ("math:pi", "must give a context manager"),
    ],
)
def test_wrong_name_is_one_sentence(spec, said):
    """A name of which nothing can be made is a ValueError that says how to mend it."""
    with pytest.raises(StrategyError, match="(?s)^[^\n]+$") as caught:
        find(spec)

    assert said in str(caught.value)
    assert isinstance(caught.value, (ValueError, HooklawError))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("checkpoint:2,2", "hold 4 modules, the model has 6"),
        ("modules:zzz*+disk-raw", "selects nothing in Sequential"),
    ],
)
def test_strategy_that_does_not_fit_the_model(spec, said):
    """A strategy that finds nothing to work on in the model says so."""
    model, _ = mlp()
    with pytest.raises(StrategyError, match=said):
        find(spec).wrap(model)


def test_models_without_a_container_cannot_be_cut():
    """A model that holds no sequence of blocks is refused, and a ModuleList is not cut by number."""
    with pytest.raises(StrategyError, match="Linear cannot be checkpointed by segments"):
        find("checkpoint").wrap(nn.Linear(2, 2))
    with pytest.raises(StrategyError, match="block by block"):
        find("checkpoint:2").wrap(Blocks())


USERS = """
import contextlib, torch
entered = []
class Plain:
    tolerance = 0.001
    def __enter__(self):
        entered.append(self)
    def __exit__(self, *error):
        pass
@contextlib.contextmanager
def generator():
    entered.append("generator")
    yield
instance = Plain()
class Whole:
    name, lossless, tolerance, medium, backward_inside = "whole", True, 0.0, "memory", False
    def wrap(self, model): return model
    def context(self): return contextlib.nullcontext()
    def counters(self): return {}
    def close(self): pass
"""


def test_users_own(tmp_path, monkeypatch):
    """A user's class, instance, generator or whole strategy is named as module:attribute, alone or with other parts."""
    (tmp_path / "users_own.py").write_text(USERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    for spec in ("users_own:Plain", "users_own:instance", "users_own:generator", "checkpoint:2+users_own:Plain"):
        model, x = mlp()
        strategy = find(spec)
        for _ in range(2):
            assert same(step(model, x)[0], step(model, x, strategy)[0])
        strategy.close()
    import users_own

    assert len(users_own.entered) == 8
    assert find("users_own:Plain").tolerance == 0.025
    assert not find("users_own:Plain").lossless
    assert find("users_own:Whole").name == "whole"
    with pytest.raises(StrategyError, match="a whole strategy takes no other parts"):
        find("checkpoint+users_own:Whole")
