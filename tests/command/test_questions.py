"""The programs of the question pages print what the pages show."""

import importlib.metadata
import re
from pathlib import Path

import pytest

from forked import run

PAGES = sorted((Path(__file__).parents[2] / "docs" / "questions").glob("*.md"))
TORCH = "2.13.0"


def programs():
    """Find each program with the output that follows it."""
    for page in PAGES:
        found = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page.read_text(), re.DOTALL)
        yield from (pytest.param(*pair, id=page.stem) for pair in found or [("", "a page has a program")])


@pytest.mark.parametrize(("program", "shown"), list(programs()))
def test_program_prints_what_the_page_shows(program, shown, tmp_path):
    """Each page has a program, and under it what it prints."""
    pytest.importorskip("torch", reason="the programs are torch's, and torch is not installed")
    version = importlib.metadata.version("torch").partition("+")[0]
    if version != TORCH:
        pytest.skip(f"the pages speak of torch {TORCH}, here is {version}")
    exit_code, stdout, stderr = run(program, tmp_path)

    assert (exit_code, stdout) == (0, shown), stderr
