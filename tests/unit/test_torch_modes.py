"""Modes of eager torch: a rule runs inside the mode, its script too, and nothing of it is left afterwards."""

import pytest

from hooklaw import judge
from hooklaw.backend.loading import load
from hooklaw.errors import BackendImportError
from hooklaw.law.collection import load_rules
from hooklaw.repro import script_of

torch = pytest.importorskip("torch")
modes = pytest.importorskip("hooklaw_backends.torch_modes")

STATE = {
    "anomaly": torch.is_anomaly_enabled,
    "deterministic": torch.are_deterministic_algorithms_enabled,
    "float64": lambda: torch.get_default_dtype() == torch.float64,
    "single-threaded": lambda: not torch._C._is_multithreading_enabled(),
}
RULE = "tensor-hook.replace.propagates"


@pytest.mark.parametrize("mode", STATE)
def test_on_for_the_rule_alone(mode, monkeypatch):
    """A mode of the process is on while a rule runs, and off before and after it."""
    seen = []
    monkeypatch.setattr(modes.TorchMode, "call", lambda _self, fn, *given: (seen.append(STATE[mode]()), fn(*given))[1])
    judged = judge(load(f"torch-mode:{mode}"), [RULE])

    assert judged.ok
    assert set(seen) == {True}
    assert not STATE[mode]()


@pytest.mark.parametrize("mode", modes.MODES)
def test_script(mode):
    """The script of a rule is in the mode, and runs in torch alone."""
    text = script_of(load_rules()[RULE], load(f"torch-mode:{mode}"))
    exec(compile(text, mode, "exec"), {"__name__": "__main__"})  # noqa: S102 - it is our own

    assert any(word in text for word in ("\nwith ", "use_reentrant=False", "Tensor(torch.Tensor):"))


@pytest.mark.parametrize(
    ("argument", "hint"), [("", "choose from single-threaded"), ("anomly", "did you mean anomaly")]
)
def test_no_such_mode(argument, hint):
    """A word that is no mode is refused, with the modes or the one that was meant."""
    with pytest.raises(BackendImportError, match=f"torch-mode has no mode '{argument}': {hint}"):
        load(f"torch-mode:{argument}")
