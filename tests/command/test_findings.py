"""The programs of the findings do what the page says, on the versions it speaks of."""

import importlib.metadata
import re
from pathlib import Path

import pytest

from forked import run

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text()
VERSIONS = {
    "python": ("torch", "2.13.0"),
    "paddle": ("paddlepaddle", "3.3.1"),
    "tensorplay": ("tensorplay", "1.0.0"),
}


def programs():
    """Find each program, its language and its heading."""
    block = re.compile(rf"```({'|'.join(VERSIONS)})\n(.*?)```", re.DOTALL)
    for part in PAGE.split("\n### ")[1:]:
        for number, (language, program) in enumerate(block.findall(part)):
            yield pytest.param(language, program, id=part.splitlines()[0] + f", {number + 1}" * (number > 0))


def installed(package):
    """Return the version that is installed, without its local part."""
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "none"


@pytest.mark.parametrize(("language", "program"), list(programs()))
def test_program_does_what_the_page_says(language, program, tmp_path):
    """Each program prints what its comments say, or dies where they say so."""
    package, version = VERSIONS[language]
    if installed(package) != version:
        pytest.skip(f"the page speaks of {package} {version}, here is {installed(package)}")
    exit_code, stdout, stderr = run(program, tmp_path)
    printed = re.findall(r"# prints (.+?);", program)
    dies = "# dies of" in program

    assert dies == (exit_code < 0), stderr
    assert dies or stdout.splitlines() == printed
