"""Print which programs of docs/findings.md do something else elsewhere: `python tools/torch_versions.py PYTHON ...`.

Each PYTHON is an interpreter that has some version of torch. Each one runs the programs, whose comments say what they
print on the version that the page describes. The tables of rules are made by tools/matrix.py.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from compatibility import spans, table

FINDINGS = Path(__file__).parent.parent / "docs" / "findings.md"
SECONDS = 120
"""The time limit of a program."""


class Program(NamedTuple):
    """A program of docs/findings.md, with its heading."""

    name: str
    text: str

    def does_the_same(self, python: str) -> bool:
        """Whether the program does with this interpreter what its comments say."""
        command = [python, "-W", "ignore", "-c", self.text]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)  # noqa: S603
        except subprocess.TimeoutExpired:
            return False
        if "# dies of" in self.text or done.returncode < 0:
            return "# dies of" in self.text and done.returncode < 0
        return done.stdout.splitlines() == re.findall(r"# prints (.+?);", self.text)


def programs(page: str) -> Iterator[Program]:
    """Yield the page's programs for torch."""
    for part in page.split("\n### ")[1:]:
        found = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
        yield from (Program(part.splitlines()[0] + f" ({at + 1})" * (at > 0), text) for at, text in enumerate(found))


def version(python: str) -> str:
    """Return the version of an interpreter's torch, without its local part."""
    command = [python, "-c", "from importlib.metadata import version; print(version('torch').partition('+')[0])"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except OSError as error:
        sys.exit(f"{python} cannot be started: {error.strerror}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{python} has no torch: {(error.stderr or 'it said nothing').splitlines()[-1]}")


def otherwise(pythons: Sequence[str], versions: Sequence[str]) -> Iterator[list[str]]:
    """Yield a row for each program of the page that does something else on at least one version."""
    yield ["program", "does what the page says"]
    with ThreadPoolExecutor(2) as pool:
        for program in programs(FINDINGS.read_text()):
            same = [*pool.map(program.does_the_same, pythons)]
            if not all(same):
                yield [program.name, spans(["yes" if each else "no" for each in same], versions)]


def main(pythons: Sequence[str]) -> None:
    """Print the table."""
    if not pythons:
        sys.exit("name at least one Python that has torch: python tools/torch_versions.py PYTHON ...")
    head, *rows = otherwise(pythons, [*map(version, pythons)])
    sys.stdout.write(table(head, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
