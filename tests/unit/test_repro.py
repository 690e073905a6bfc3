"""Scripts of rules: each verb is written as what the adapter does for it."""

import pytest
from listed import Listed

from hooklaw.errors import ScriptError
from hooklaw.law.collection import find_rule
from hooklaw.repro import script_of


def body_of(rule: str, backend=None) -> str:
    """Return what stands behind the last definition of a script."""
    return script_of(find_rule(rule), backend or Listed()).rpartition("\n\n\n")[2]


def test_verbs_are_written_as_the_adapter_carries_them_out():
    """A verb of one expression stands in place, without what is not given; a longer one is called by its name."""
    body = body_of("tensor-hook.fire.every-graph")

    assert body == (
        "x = Tensor([1.0, 2.0], grad=True)\n"
        "before = (x * 2).sum()\n"
        'register_hook(x, saw("hook"))\n'
        "after = (x * 3).sum()\n"
        "\n"
        "after.backward()\n"
        "before.backward()\n"
        "\n"
        'expect(("hook", [3.0, 3.0]), ("hook", [2.0, 2.0]))\n'
    )


def test_it_includes_what_it_uses():
    """Functions and classes that it needs stand before it, each once and without annotations; nothing is of hooklaw."""
    script = script_of(find_rule("tensor-hook.fire.every-graph"), Listed())

    assert script.startswith("# A leaf's hook fires in the backward of every graph")
    assert script.count("def register_hook(tensor, hook):\n    handle = tensor.hooks\n") == 1
    assert script.count("def saw(label, action=None):") == 1
    assert "class Tensor(list):" in script
    assert "hooklaw" not in script


def test_a_verb_that_is_not_written_down():
    """A verb that no class defines is named in the refusal."""
    with pytest.raises(ScriptError, match="listed has no verb grad_of"):
        body_of("leaf.only-leaf-grad")
