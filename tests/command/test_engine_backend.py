"""The reference engine as a backend: it keeps the law, and with its flags it does what torch does."""

import subprocess
import sys
from pathlib import Path

import pytest

import hooklaw.model
from hooklaw.model import flags

ENGINE = Path(hooklaw.model.__file__).parent


UNSAID = {
    "detach.in-place.saved",
    "detect-anomaly.traceback",
    "func.vjp.saved-tensor-hooks",
    "leaf.only-leaf-grad.warns",
}
"""MAY rules of what torch warns of, prints or refuses, and the engine does not."""


@pytest.fixture(scope="module")
def outcomes(whole_run):
    """Return a function that runs all rules on a backend, and returns the outcome of each."""
    return lambda name: {rule: result.outcome for rule, result in whole_run(name).results.items()}


def test_plays_the_law(outcomes):
    """Every rule whose capabilities are declared holds; only MAY rules may differ."""
    unmet = {rule for rule, outcome in outcomes("reference").items() if outcome not in ("pass", "unsupported")}

    assert unmet == {"tensor-hook.inplace.view-old-grad-fn", *UNSAID}  # at odds with tensor-hook.inplace.view-before


def test_why_is_a_rule_or_silence(outcomes):
    """A flag names an existing rule that it breaks, or a page, or says that the documentation is silent."""
    rules = outcomes("reference").keys()
    families = {rule.partition(".")[0] for rule in rules}
    named = {flag.why for flag in flags.TORCH.values() if flag.why.partition(".")[0] in families}

    assert named <= rules


def test_plays_torch(outcomes):
    """Every rule that both can run has the same outcome with all flags as on torch, except a crash and a leak."""
    pytest.importorskip("torch", reason="the engine is compared with torch, which is not installed")
    played, real = outcomes("reference:torch"), outcomes("torch-eager")
    both = [rule for rule in played if "unsupported" not in (played[rule], real[rule])]

    assert len(both) > 200
    # what torch does there is to read memory that is not its own, and to hide a cycle from Python's collector
    other = {rule for rule in both if played[rule] != real[rule]}
    assert other == {"tensor-hook.inplace.view-after-alias", "save-on-cpu.no-leak", *UNSAID}


@pytest.mark.parametrize(("name", "says"), [("pinning-copy", "did you mean pinning-copies"), ("cpu", "known are")])
def test_unknown_flag(hooklaw_command, name, says):
    """An unknown flag is refused in one sentence."""
    done = hooklaw_command("run", "--backend", f"reference:{name}")

    assert done.returncode == 3
    assert f"the reference engine has no flag {name!r}: {says}" in done.stderr


def test_imports_no_framework():
    """The engine is plain Python: it imports neither torch nor numpy."""
    check = "import sys, hooklaw.model.adapter; print({'torch', 'paddle', 'numpy'} & set(sys.modules))"
    path = f"import sys; sys.path[:0] = {[str(ENGINE.parents[1]), str(ENGINE.parents[2] / 'backends')]}; {check}"
    done = subprocess.run([sys.executable, "-c", path], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
