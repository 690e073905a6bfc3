"""Documentation coverage of the pinned version, in a process of its own: what is imported decides what is counted."""

import json

import pytest

from hooklaw.sources.table import load_table


def test_nothing_is_left_over(hooklaw_command):
    """On the pinned version each sentence has a reading, and each documented rule a sentence.

    `hooklaw coverage` prints what is left over; docs/coverage.md says how to map it.
    """
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.__version__.partition("+")[0] != load_table().torch:
        pytest.skip(f"the rules were written from torch {load_table().torch}")
    done = hooklaw_command("coverage", "--format", "json", apart=True)
    found = json.loads(done.stdout)
    left = [each for each in found["sentences"] if each["status"] in {"uncovered", "vanished"}]

    assert (done.returncode, left, found["unsourced"], found["complaints"]) == (0, [], [], [])
