"""The page on packers names every argument of what judges a packer in a test."""

import re
from inspect import signature
from pathlib import Path

import pytest

from hooklaw.packing.fixture import check, each_property

PAGE = (Path(__file__).parents[2] / "docs" / "check-a-packer.md").read_text()


@pytest.mark.parametrize("function", [check, each_property])
def test_every_argument_is_documented(function):
    """The table has a row for each argument but the packer, and the function takes no other."""
    _, *arguments = signature(function).parameters

    assert set(arguments) == set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
