"""The rules under plain pytest, without the `hooklaw run` around it."""

import shutil
import subprocess
import sys

import pytest

import forked
from helpers import DATA, TOY_RULES, entry
from hooklaw.results import records
from hooklaw.results.verdict import Exit


@pytest.fixture
def plain(tmp_path, environment):
    """Return `pytest -p hooklaw.plugin` as a function, on a copy of the toy's rules that is the root of the session.

    It is a fork that loads no other installed plugin, or, where it is told to load them, a process of its own.
    """
    root = tmp_path / "root"
    shutil.copytree(TOY_RULES, root / "rules", ignore=shutil.ignore_patterns("__pycache__"))

    def run(*args, backend=("--backend", "toy:backend"), rules="rules", others=False):
        # the options that take a path are written with =, or pytest would take them for tests
        words = ["-p", "hooklaw.plugin", "--import-mode=importlib", "--noconftest", "-c", "/dev/null"]
        words += [f"--rootdir={root}", "-rA", *rules.split(), *backend, *args]
        if not others:
            alone = environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            return forked.session(*words, cwd=root, environment=alone)
        command = [sys.executable, "-m", "pytest", *words]
        return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)

    return run


def test_a_rule_that_does_not_hold_fails(plain):
    """A regression is a failed test; what is unsupported or allowed to differ is none."""
    done = plain(others=True)

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 2 passed, 1 xfailed, 1 unsupported" in done.stdout


def test_a_known_divergence_is_an_expected_failure(plain, tmp_path):
    """What the expectation file lists is an expected failure with the file's reason."""
    (tmp_path / "root" / "toy.toml").write_text(entry(saw="was [1.0, 1.0]"))
    done = plain("--expectations=toy.toml")

    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "the toy is a toy" in done.stdout


def test_another_failure_than_the_known_one_fails(plain, tmp_path):
    """A rule that fails in another way than it is known to is a failed test that says both."""
    (tmp_path / "root" / "toy.toml").write_text(entry(saw="sum raised KeyError"))
    done = plain("--expectations=toy.toml")

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "[fail] x.grad should be [100.0, 100.0], was [1.0, 1.0]" in done.stdout
    assert "known: fail with 'sum raised KeyError', because the toy is a toy" in done.stdout


def test_a_backend_that_is_absent(plain):
    """A backend that cannot be judged here is a failure and exit code 3, unless its absence is allowed."""
    backend = ("--backend", "toy:backend:absent")
    done = plain(backend=backend)

    assert done.returncode == Exit.BROKEN.code
    assert "hooklaw: toy:backend:absent cannot be judged here: no toy box on this machine" in done.stdout
    assert "1 failed, 5 not-run" in done.stdout
    assert plain("--allow-not-run", backend=backend).returncode == pytest.ExitCode.OK


def test_a_fixed_divergence_fails(plain, tmp_path):
    """A rule that was expected to fail and passes is a failed test that says so."""
    (tmp_path / "root" / "toy.toml").write_text(entry() + entry(rule="toy.order"))
    done = plain("--expectations=toy.toml")

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "[fixed] expected to fail, and passes: drop the entry" in done.stdout


def test_records_are_written(plain, tmp_path):
    """The records are those of `hooklaw run`."""
    plain("--results=toy.jsonl")
    (run,) = records.read(tmp_path / "root" / "toy.jsonl")

    assert run.complete
    assert run.header.command.startswith("pytest") or "pytest" in run.header.command


def test_two_backends_in_one_session(plain, tmp_path):
    """Each backend of a session has a run of its own."""
    plain("--results=toy.jsonl", "--backend", "toy:backend:again")
    runs = records.read(tmp_path / "root" / "toy.jsonl")

    assert [run.header.backend for run in runs] == ["toy:backend", "toy:backend:again"]
    assert all(run.complete for run in runs)


def test_no_backend_is_named(plain):
    """Rules without a backend are a usage error that says how to name one."""
    done = plain(backend=())

    assert "name one with --backend" in done.stdout + done.stderr


def test_node_ids_bear_the_ids_of_rules(plain):
    """A rule is listed by its id and the backend, and listing loads no backend."""
    done = plain("--collect-only", "-q", backend=("--backend", "nowhere:backend"))

    assert "rules/test_first.py::toy.order[nowhere:backend]" in done.stdout.splitlines()
    assert "5 tests collected" in done.stdout


def test_words(plain):
    """-k knows a rule by its id, chapter, level, function and module; the folder must not have these in its name."""
    wanted = {"toy.order or toy.free": 2, "MAY": 1, "first and not order": 2, "test_gradient": 1}
    listed = {words: plain("-k", words, "--collect-only", "-q").stdout for words in wanted}

    assert [words for words, rules in wanted.items() if f"{rules}/5 tests collected" not in listed[words]] == []


def test_one_item(plain):
    """A rule can be named by its node id."""
    done = plain(rules="rules/test_first.py::toy.order[toy:backend]")

    assert "1 passed in" in done.stdout


def test_last_failed(plain, tmp_path):
    """--lf runs what failed, and records that alone."""
    plain()
    done = plain("--lf", "--results=toy.jsonl")
    (run,) = records.read(tmp_path / "root" / "toy.jsonl")

    assert "= 1 failed in" in done.stdout
    assert (list(run.results), run.complete) == (["toy.broken"], True)


def test_stop_at_the_first(plain, tmp_path):
    """-x stops, and no reader takes the record for a whole run."""
    done = plain("-x", "--results=toy.jsonl")
    (run,) = records.read(tmp_path / "root" / "toy.jsonl", incomplete=True)

    assert "stopping after 1 failures" in done.stdout
    assert ("toy.broken" in run.results, run.header.collected, run.complete) == (True, 5, False)


def test_in_process(plain, tmp_path):
    """Without a worker the traceback is the rule's own, and the records are the same."""
    done = plain("--in-process", "--results=toy.jsonl")
    (run,) = records.read(tmp_path / "root" / "toy.jsonl")

    assert "1 failed, 2 passed, 1 xfailed, 1 unsupported" in done.stdout
    assert 'trace.expect_value("x.grad", [100.0, 100.0], backend.grad_of(x))' in done.stdout
    assert run.complete


def test_two_workers_of_xdist(plain, tmp_path):
    """Under xdist each of its workers has a worker of ours, and one process records."""
    pytest.importorskip("xdist")
    done = plain("-p", "xdist", "-n", "2", "--results=toy.jsonl")
    (run,) = records.read(tmp_path / "root" / "toy.jsonl")

    assert "1 failed, 2 passed, 1 xfailed, 1 unsupported" in done.stdout
    assert (len(run.results), run.complete) == (5, True)


def test_a_backend_that_does_not_load(plain):
    """A backend that does not load is one sentence and exit code 3, and no rule is run."""
    done = plain(backend=("--backend", "nowhere:backend"))

    assert done.returncode == Exit.BROKEN.code
    assert "hooklaw: backend 'nowhere:backend': cannot import module nowhere" in done.stdout
    assert "= 1 failed in" in done.stdout


@pytest.mark.parametrize("spec", ["nowhere:backend", "toy:backend:absent"])
@pytest.mark.parametrize(
    "how", [(), ("--in-process",), ("-p", "xdist", "-n", "2")], ids=["contained", "in process", "xdist"]
)
def test_a_backend_that_costs_its_own_results_alone(plain, tmp_path, spec, how):
    """The other backends of the session are judged and recorded, and the exit code is that of `hooklaw run`."""
    if "-n" in how:
        pytest.importorskip("xdist")
    done = plain("--backend", spec, "--results=toy.jsonl", "--junitxml=junit.xml", *how)
    toy, *_ = sorted(records.read(tmp_path / "root" / "toy.jsonl"), key=lambda run: run.header.backend)

    assert done.returncode == Exit.BROKEN.code
    assert "2 failed, 2 passed, 1 xfailed" in done.stdout
    assert (toy.header.backend, len(toy.results), toy.complete) == ("toy:backend", 5, True)
    assert f'name="hooklaw[{spec}]"' in (tmp_path / "root" / "junit.xml").read_text()


def test_a_name_that_no_backend_has(plain):
    """A mistyped name is refused before anything runs."""
    done = plain("--backend", "torch-eagr")

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "hooklaw: no backend has the name 'torch-eagr': did you mean torch-eager?" in done.stderr
    assert "passed" not in done.stdout


def test_pytest_imports_no_framework(plain, tmp_path):
    """The process that records does not import what is judged."""
    (tmp_path / "root" / "spy.py").write_text("import sys\ndef pytest_unconfigure(): print('toy' in sys.modules)")
    done = plain("-p", "spy", "-s")

    assert done.stdout.splitlines()[-1] == "False"


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
    stale = "PROBED   tensor-hooks: stale: denied, yet each rule that lacks nothing else holds: toy.order"
    assert (stale in done.stdout) is named


def test_a_probed_rule_that_ends_the_process_is_unsupported(hooklaw, tmp_path):
    """A backend that denies what kills its process is right to deny it: that is no regression."""
    aborts = "    lacks = {}\n\n    def register_hook(self, *given):\n        __import__('os').abort()\n"
    (tmp_path / "denying.py").write_text(DENYING.replace("    lacks = {}\n", aborts))
    what = ["--backend", "denying:backend", "--rules", TOY_RULES, "-k", "toy.order", "--probe-unsupported"]
    done = hooklaw("run", *what, "--results", tmp_path / "r.jsonl", path=[DATA, tmp_path])

    assert "0 regressions, 1 unsupported and not counted" in done.stdout, done.stdout + done.stderr
    assert '"detail":"denied, and it does not hold: ' in (tmp_path / "r.jsonl").read_text()


def test_stale_expectations_are_listed(plain, tmp_path):
    """Plain pytest lists the entries that no longer say anything, and keeps its own exit code."""
    (tmp_path / "root" / "toy.toml").write_text(entry(saw="was [1.0, 1.0]") + entry(rule="no.such-rule", saw="it"))
    done = plain("--expectations=toy.toml")

    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "stale expectations, for which `hooklaw run` exits with 2" in done.stdout
    assert "the entry for 'no.such-rule' matches no rule" in done.stdout
