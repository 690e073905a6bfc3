"""The rules under plain pytest, without the `hooklaw run` around it."""

import subprocess
import sys

import pytest

from helpers import DATA, TOY_RULES, entry
from hooklaw.results import records


@pytest.fixture
def plain(tmp_path, environment):
    """Return `pytest -p hooklaw.plugin` on the toy's rules as a function."""

    def run(*args, backend=("--backend", "toy:backend")):
        # the options that take a path are written with =, or pytest would take them for tests
        command = [sys.executable, "-m", "pytest", "-p", "hooklaw.plugin", "--import-mode=importlib", "--noconftest"]
        own = ["-c", "/dev/null", f"--rootdir={tmp_path}", "-rA", "-p", "no:cacheprovider", str(TOY_RULES)]
        return subprocess.run(
            [*command, *own, *backend, *args],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_rule_that_does_not_hold_fails(plain):
    """A regression is a failed test; what is unsupported or allowed to differ is none."""
    done = plain()

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 2 passed, 1 xfailed, 1 unsupported" in done.stdout


def test_a_known_divergence_is_an_expected_failure(plain, tmp_path):
    """What the expectation file lists is an expected failure with the file's reason."""
    (tmp_path / "toy.toml").write_text(entry())
    done = plain("--expectations=toy.toml")

    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "the toy is a toy" in done.stdout


def test_a_fixed_divergence_fails(plain, tmp_path):
    """A rule that was expected to fail and passes is a failed test that says so."""
    (tmp_path / "toy.toml").write_text(entry() + entry(rule="toy.order"))
    done = plain("--expectations=toy.toml")

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "[fixed] expected to fail, and passes: drop the entry" in done.stdout


def test_records_are_written(plain, tmp_path):
    """The records are those of `hooklaw run`."""
    plain("--results=toy.jsonl")
    (run,) = records.read(tmp_path / "toy.jsonl")

    assert run.complete
    assert run.header.command.startswith("pytest") or "pytest" in run.header.command


def test_two_backends_in_one_session(plain, tmp_path):
    """Each backend of a session has a run of its own."""
    plain("--results=toy.jsonl", "--backend", "toy:backend:again")
    runs = records.read(tmp_path / "toy.jsonl")

    assert [run.header.backend for run in runs] == ["toy:backend", "toy:backend:again"]
    assert all(run.complete for run in runs)


def test_no_backend_is_named(plain):
    """Rules without a backend are a usage error that says how to name one."""
    done = plain(backend=())

    assert "name one with --backend" in done.stdout + done.stderr


DENYING = """
import toy

class Denying(toy.Toy):
    capabilities = frozenset()
    lacks = {}

def backend(argument=""):
    return Denying()
"""


@pytest.mark.parametrize(("probe", "named"), [((), False), (("--probe-unsupported",), True)])
def test_probing_names_what_holds_though_denied(hooklaw, tmp_path, probe, named):
    """What a backend denies is run only when asked to, named where it holds, and unsupported all the same."""
    (tmp_path / "denying.py").write_text(DENYING)
    what = ["--backend", "denying:backend", "--rules", TOY_RULES, "-k", "toy.order", "--in-process"]
    done = hooklaw("run", *what, *probe, path=[DATA, tmp_path])

    assert "0 of 0 rules hold" in done.stdout
    assert "1 unsupported and not counted" in done.stdout
    assert ("PROBED   toy.order: denied, yet it holds: tensor-hooks" in done.stdout) is named
