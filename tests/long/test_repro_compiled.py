"""The script of a rule that a compiler breaks shows so in torch alone."""

import pytest

from scripted import Forks, expect_endings, specs

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module", name="forks")
def _forks():
    with Forks() as forks:
        yield forks


@pytest.mark.parametrize("spec", [spec for spec in specs() if spec.startswith("torch-compile")])
def test_every_script_ends_as_its_rule(spec, hooklaw, forks, tmp_path):
    """A script ends as its rule does, of every rule that the compiler itself breaks and of some that it keeps."""
    expect_endings(spec, hooklaw, forks, tmp_path)
