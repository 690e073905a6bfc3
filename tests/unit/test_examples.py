"""Every verb shows how it is used: its docstring, which is its help, ends in examples."""

import pytest

from helpers import examples
from hooklaw.cli import VERBS


@pytest.mark.parametrize("name", VERBS)
def test_verb_has_an_example(name):
    """A verb's docstring has a line Example: or Examples:, and beneath it commands, one of which is the verb's own."""
    lines = examples(name)

    assert lines, "write Example: at the end of the docstring, and a command beneath it"
    assert any(line.startswith(f"hooklaw {name}") for line in lines)
