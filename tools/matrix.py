"""Judge every backend that these interpreters can, publish the records, and renew the pages made of them.

    python tools/matrix.py [PYTHON ...]          # this interpreter, and others with other frameworks or versions
    python tools/matrix.py --only tinygrad       # these backends alone; the other records stay as they are
    python tools/matrix.py --pages               # renew the pages from the records that are published

A PYTHON needs hooklaw's dependencies and a framework; hooklaw itself is this tree. torch-eager and paddle are
judged in every version that is found, other backends of torch in the version that the rules document, and Paddle's
compiled mode in the newest of Paddle.
Exits with the worst exit code of the runs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from compatibility import FOLDER, RECORD, renew, slug

from hooklaw.errors import RecordFileError
from hooklaw.results import records
from hooklaw.results.summary import sentence

ROOT = Path(__file__).parent.parent
DOCUMENTED = "2.13.0"
"""The version of torch that the rules document."""
EAGER = "torch-eager"
BACKENDS = {
    EAGER: "torch",
    "torch-mode:single-threaded": "torch",
    "torch-mode:anomaly": "torch",
    "torch-mode:deterministic": "torch",
    "torch-mode:float64": "torch",
    "torch-mode:checkpoint": "torch",
    "torch-mode:subclass": "torch",
    "torch-mode:wrapper-subclass": "torch",
    "torch-compile:eager": "torch",
    "torch-compile:aot_eager": "torch",
    "torch-compile:inductor": "torch",
    "torch-compile:eager+compiled-autograd": "torch",
    "torch-compile:eager+compiled-autograd+forward": "torch",
    "torch-eager:xla": "torch_xla",
    "torch-eager:npy": "torch",
    "paddle": "paddlepaddle",
    "paddle:to_static": "paddlepaddle",
    "mindspore": "mindspore",
    "tensorplay": "tensorplay",
    "tinygrad": "tinygrad",
    "hips-autograd": "autograd",
    "reference": "",
}
"""The package that each backend judges; none: hooklaw itself."""
USUAL = {EAGER: DOCUMENTED, "paddle": "3.3.1"}
"""The version that is meant where none is named, of each backend that is judged in several."""
NEWEST = {"torch": DOCUMENTED, "paddlepaddle": USUAL["paddle"]}
"""The one version in which the other backends of a package are judged."""
IMPORTS = {"torch-eager:xla": "torch_xla", "torch-eager:npy": "hooklaw_backends.npy_device"}
"""The module that brings the device of a backend."""
COMPILERS = ("torch-compile", "paddle:to_static")
"""Backends that compile each function, which a busy machine does slowly."""
HOURS = 3600
PACKAGES = """
import json, importlib.metadata as m
print(json.dumps({name: m.version(name).partition("+")[0] for name in %r if [*m.distributions(name=name)]}))
"""


class Column(NamedTuple):
    """One run: an interpreter, a backend, and the version of the package that it judges."""

    python: str
    backend: str
    version: str

    @property
    def stem(self) -> str:
        """The name of its record, without the date: a version other than the usual one is part of it."""
        usual = self.version == USUAL.get(self.backend, self.version)
        return slug(self.backend) if usual else f"{slug(self.backend)}-{self.version}"


def main(argv: Sequence[str] | None = None) -> int:
    """Judge, publish, and renew the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", default=[sys.executable])
    parser.add_argument("--only", action="append", default=[], metavar="BACKEND", help="judge this backend alone")
    parser.add_argument("--pages", action="store_true", help="judge nothing: renew the pages")
    args = parser.parse_args(argv)
    if unknown := [name for name in args.only if name not in BACKENDS]:
        parser.error(f"no backend of the matrix is named {unknown[0]!r}: there are {', '.join(BACKENDS)}")
    wanted = [] if args.pages else [*columns(args.pythons, args.only)]
    codes = [publish(column) for column in wanted]
    renew()
    return max(codes, default=0)


def columns(pythons: Sequence[str], only: Sequence[str]) -> Iterator[Column]:
    """Yield what the interpreters can judge, each backend and version once."""
    seen: set[str] = set()
    for python in (str(Path(shutil.which(each) or each).absolute()) for each in pythons):
        installed = packages(python)
        for backend, package in BACKENDS.items():
            column = Column(python, backend, installed.get(package, ""))
            wanted = (not only or backend in only) and (not package or package in installed)
            other = backend not in USUAL and column.version != NEWEST.get(package, column.version)
            if wanted and not other and column.stem not in seen:
                seen.add(column.stem)
                yield column


def packages(python: str) -> dict[str, str]:
    """Return the versions of the frameworks that an interpreter has."""
    names = sorted({name for name in BACKENDS.values() if name})
    try:
        done = subprocess.run([python, "-c", PACKAGES % names], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{python} cannot be asked for its packages: {error}")
    return json.loads(done.stdout)


def publish(column: Column) -> int:
    """Judge a column and put its record in the place of the one before; return the exit code of the run."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("conformance", "backends", "reports"))
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.jsonl")
        more = ["--limit", "120"] if column.backend.startswith(COMPILERS) else []
        more += ["--import", IMPORTS[column.backend]] if column.backend in IMPORTS else []
        command = [column.python, "-m", "hooklaw", "run", "--backend", column.backend, f"--results={results}", "-q"]
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(  # noqa: S603 - the user's own interpreters
            [*command, *more], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=HOURS
        )
        if not results.exists():
            said = (done.stderr or "it said nothing").strip().splitlines()[-1]
            sys.stdout.write(f"{column.stem}: not judged, {said}\n")
            return done.returncode
        return _keep(column, results, done.returncode)


def _keep(column: Column, results: Path, code: int) -> int:
    """Publish a whole record in which something was judged, instead of those before it."""
    try:
        (run,) = records.read(results)
    except RecordFileError as error:
        sys.stdout.write(f"{column.stem}: not published, {error}\n")
        return max(code, 3)
    sys.stdout.write(f"{column.stem}: {sentence(run)}; exit code {code}\n")
    sys.stdout.flush()
    if not run.header.not_run:
        for path in FOLDER.glob("*.jsonl"):
            if (found := RECORD.fullmatch(path.stem)) and found["stem"] == column.stem:
                path.unlink()
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        Path(FOLDER, f"{day}-{column.stem}.jsonl").write_bytes(results.read_bytes())
    return code


if __name__ == "__main__":
    raise SystemExit(main())
