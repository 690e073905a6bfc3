"""`hooklaw explain` of a property: its statement, and its program as a script."""

import json
import subprocess
import sys

import pytest

from helpers import complaint
from hooklaw.packing import _law
from hooklaw.packing.example import shown

torch = pytest.importorskip("torch", reason="packers are torch's")


def test_explain_property(verb):
    """The answer has statement, level, sources, wrong packers and the program."""
    done = verb("explain", "packer.in-place.leaf")

    assert (done.returncode, done.stderr) == (0, "")
    head = (
        "packer.in-place.leaf  (MUST, documented, chapter packer-in-place)\n\n  After an in-place change of a parameter"
    )
    assert done.stdout.startswith(head)
    for part in (
        "stated in",
        "  notes autograd, section",
        "needs",
        "catches",
        "  live-tensor-given-back",
        "as a program",
    ):
        assert f"\n  {part}" in done.stdout
    assert "\n    from torch.autograd.graph import save_on_cpu as packer\n" in done.stdout
    assert "core verbs" not in done.stdout


def test_explain_property_json(verb):
    """As JSON the answer has the keys of a rule, and the program."""
    found = json.loads(verb("explain", "packer.medium.reached", "--format", "json").stdout)

    assert (found["level"], found["needs"]) == ("SHOULD", ["disk"])
    assert found["program"].startswith("import torch\n")


def test_program_of_the_explanation_runs(tmp_path):
    """The printed program is a script that shows what save_on_cpu does."""
    _, program = shown("packer.in-place.leaf")
    (tmp_path / "shown.py").write_text(program)
    done = subprocess.run([sys.executable, "shown.py"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "AssertionError: the gradient, of a parameter changed after it was saved, is [15.0]" in done.stderr


@pytest.mark.parametrize("property_id", list(_law.properties()))
def test_every_property_can_be_shown(property_id):
    """Every property has a valid Python program for its simplest case."""
    rule, program = shown(property_id)

    assert rule.id == property_id
    compile(program, property_id, "exec")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["packer.in-place.lief"],
            "no property of packers has the id 'packer.in-place.lief': did you mean packer.in-p",
        ),
        (["packer." + "q" * 30], "qqq': `hooklaw packer --list` shows all ids"),
        (["packer.hooks", "--backend", "paddle"], "packer.hooks is a property of packers: leave --backend out"),
    ],
)
def test_explain_what_is_no_property(verb, arguments, said):
    """A wrong id, or a backend where none is expected, is one sentence."""
    done = verb("explain", *arguments)

    assert (done.returncode, done.stdout) == (3, "")
    assert said in complaint(done)


def test_explain_without_torch(hooklaw, tmp_path):
    """Without torch the verb says so in one sentence."""
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')")
    done = hooklaw("explain", "packer.hooks", path=[tmp_path], apart=True)

    assert done.returncode == 3
    assert "packers are judged with torch, which does not import: there is no torch" in complaint(done)
