"""Print the tables of docs/torch-versions.md: `python tools/torch_versions.py PYTHON ...`.

Each PYTHON is an interpreter that has hooklaw and some version of torch. Each one judges torch-eager by all rules, and
runs the programs of docs/findings.md, whose comments say what they print on the version that the page describes.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from hooklaw.results.records import Run, read
from hooklaw.results.summary import count

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


def judged(python: str) -> Run:
    """Return the results of all rules with this interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.jsonl")
        command = [python, "-m", "hooklaw", "run", "--backend", "torch-eager", f"--results={results}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the user's own interpreter
        except OSError as error:
            sys.exit(f"{python} cannot be started: {error.strerror}")
        if not results.exists():
            sys.exit(f"{python} cannot judge torch-eager: {(done.stderr or 'it said nothing').splitlines()[-1]}")
        return read(results)[0]


def version(run: Run) -> str:
    """Return the judged version of torch, without its local part."""
    return run.header.versions["torch"].partition("+")[0]


def counts(runs: Sequence[Run]) -> Iterator[list[str]]:
    """Yield the rows of the first table."""
    yield ["torch", "hold", "known divergences", "regressions", "MAY rules that differ"]
    for run in runs:
        said = count(run)
        yield [version(run), *map(str, (f"{said.passed} of {said.judged}", said.known, said.regressions, said.differs))]


def changed(runs: Sequence[Run]) -> Iterator[list[str]]:
    """Yield a row for each rule whose outcome differs between versions."""
    yield ["rule", "level", "outcome"]
    for rule in runs[0].header.rules:
        outcomes = [str(run.outcome(rule.id)) for run in runs]
        if len({*outcomes}) > 1:
            yield [f"`{rule.id}`", str(rule.level), spans(outcomes, [*map(version, runs)])]


def otherwise(pythons: Sequence[str], versions: Sequence[str]) -> Iterator[list[str]]:
    """Yield a row for each program of the page that does something else on at least one version."""
    yield ["program", "does what the page says"]
    with ThreadPoolExecutor(2) as pool:
        for program in programs(FINDINGS.read_text()):
            same = [*pool.map(program.does_the_same, pythons)]
            if not all(same):
                yield [program.name, spans(["yes" if each else "no" for each in same], versions)]


def spans(values: Sequence[str], versions: Sequence[str]) -> str:
    """Return each value with its range of versions, e.g. ``fail on 2.4.1 to 2.8.0, pass on 2.9.1``."""
    said: list[str] = []
    for value, its in groupby(zip(values, versions, strict=True), key=itemgetter(0)):
        first, *rest = [name for _, name in its]
        said.append(f"{value} on {first}" + (f" to {rest[-1]}" if rest else ""))
    return ", ".join(said)


def table(rows: Iterator[list[str]]) -> str:
    """Return rows as a Markdown table; the first row is the head."""
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, re.sub(r"[^|]+", "---", head), *rest, ""])


def main(pythons: Sequence[str]) -> None:
    """Print the tables."""
    if not pythons:
        sys.exit("name at least one Python that has hooklaw and torch: python tools/torch_versions.py PYTHON ...")
    runs = [judged(python) for python in pythons]
    for rows in (counts(runs), changed(runs), otherwise(pythons, [version(one) for one in runs])):
        sys.stdout.write(table(rows) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
