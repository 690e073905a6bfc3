"""Every mutant that a rule names exists, or is declared as one that cannot be built."""

import pytest

from helpers import shipped_rules

pytest.importorskip("torch", reason="mutants of torch need torch, which is not installed")


def test_every_mutant_that_a_rule_names_exists():
    """A name that no backend has is a mistake, and so is a declaration that no rule needs."""
    from hooklaw_backends.mutants import NOT_BUILT, mutants

    built = {name for of in ("torch-eager", "reference") for name in mutants(of)}
    named = {name for found in shipped_rules().values() for name in found.rule.mutants}

    assert named - built == NOT_BUILT.keys()
