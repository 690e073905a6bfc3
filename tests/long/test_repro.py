"""The script of every rule, executed in its framework alone, ends as the rule itself does."""

from contextlib import suppress

import pytest

from hooklaw.backend.loading import load
from hooklaw.errors import NotRunError
from scripted import SHIPPED, Forks, expect_endings, specs


@pytest.fixture(scope="module", name="forks")
def _forks():
    with Forks(PYTHONMALLOC="malloc") as forks:  # so that Python's own objects lie in huge pages, too
        yield forks


@pytest.mark.parametrize("spec", [spec for spec in specs() if not spec.startswith("torch-compile")])
def test_every_script_ends_as_its_rule(spec, hooklaw, forks, tmp_path, whole_run):
    """A script runs to its end where the rule holds, and fails or dies where the rule does: the recorded one too."""
    expect_endings(spec, hooklaw, forks, tmp_path, whole_run(spec) if spec == "torch-eager" else None)


def test_every_shipped_backend_is_among_them():
    """Each expectation file belongs to a backend that uses it."""
    found = [*specs()]

    assert {"torch-eager", "torch-compile:aot_eager", "paddle"} <= set(found)
    for spec in found:
        with suppress(NotRunError):
            assert load(spec).expectations.parent == SHIPPED
            assert spec.replace(":", "-") == load(spec).expectations.stem
