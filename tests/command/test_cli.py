"""The command line: one verb a file, stable JSON, exit codes, and a summary that names only what needs a look."""

import json
import subprocess
import sys

import pytest

import made_records as made
from helpers import DATA, TOY_RULES, complaint, entry
from hooklaw import __version__
from hooklaw.backend.conditions import CONDITIONS
from hooklaw.cli import VERBS, summary
from hooklaw.errors import OutputError
from hooklaw.law.collection import load_rules
from hooklaw.results import records
from hooklaw.results.verdict import Outcome

RULE_KEYS = {"id", "chapter", "statement", "level", "basis", "sources", "needs", "mutants", "except_under"}
IN_PROCESS = ["--in-process"]


def test_list_json_is_a_contract(verb):
    """Scripts read these keys, and no other order of things."""
    rules = json.loads(verb("list", "--format", "json").stdout)

    assert [set(keys) for keys in {frozenset(one) for one in rules}] == [RULE_KEYS]
    assert list(load_rules()) == [one["id"] for one in rules]
    assert {"kind", "name", "section"} == set(rules[0]["sources"][0])


def test_list_text(verb):
    """Every rule is a line under its chapter, and the sums stand last."""
    done = verb("list")
    lines = done.stdout.splitlines()
    rules = load_rules()

    assert (done.returncode, done.stderr) == (0, "")
    assert f"{len(rules)} rules in {len({one.rule.chapter for one in rules.values()})} chapters" == lines[-1]
    assert any(line.startswith("  MUST   order.six-steps.leaf ") for line in lines)


def test_list_markdown(verb):
    """The table has one row a rule, and a bar in a statement does not break it."""
    lines = verb("list", "--format", "markdown").stdout.splitlines()

    assert 2 + len(load_rules()) == len(lines)
    assert {4} == {line.count("|") for line in lines}


def test_list_one_chapter(verb):
    """A chapter can be listed alone."""
    rules = json.loads(verb("list", "--format", "json", "--chapter", "order").stdout)

    assert {"order"} == {one["chapter"] for one in rules}


def test_list_unknown_chapter(verb):
    """A chapter that is none is answered with those that are."""
    done = verb("list", "--chapter", "disorder")

    assert done.returncode == 3
    assert complaint(done).startswith("hooklaw: no chapter has the name 'disorder': choose from ")


def test_explain_unknown_rule(verb):
    """A mistaken id is answered with ids like it."""
    done = verb("explain", "order.six-steps.leav")

    assert done.returncode == 3
    assert complaint(done).startswith("hooklaw: no rule has the id 'order.six-steps.leav': did you mean order.six")


@pytest.fixture
def explained(hooklaw, tmp_path):
    """Return `hooklaw explain` of one rule on the toy."""
    toy_path = TOY_RULES.parent

    def run(*args, rule="tensor-hook.order.registration", backend="toy:backend"):
        return hooklaw("explain", rule, "--backend", backend, *args, path=[toy_path])

    return run


def test_explain(explained):
    """The law, its sources, the program, and what really happened stand in one answer."""
    done = explained(rule=some_rule_that_the_toy_keeps())

    assert (done.returncode, done.stderr) == (0, "")
    for heading in ("stated in", "needs", "as a program", "on toy:backend (toy 1.0.0+plain)", "  pass"):
        assert f"\n  {heading}" in done.stdout


def test_explain_json(explained):
    """The same as data: the rule's keys and the results by backend."""
    rule = some_rule_that_the_toy_keeps()
    found = json.loads(explained("--format", "json", rule=rule).stdout)

    assert RULE_KEYS | {"results"} == set(found)
    assert found["results"]["toy:backend"]["outcome"] == "pass"


def some_rule_that_the_toy_keeps():
    """Find a rule of the law that needs hooks on tensors and nothing else."""
    chapter = [one.rule for one in load_rules().values() if one.rule.chapter == "tensor-hooks"]
    return next(rule.id for rule in chapter if rule.needs == ["tensor-hooks"] and "fire" in rule.id)


def test_explain_a_backend_that_is_none(explained):
    """A backend that cannot be imported is one sentence, and the law is still explained."""
    done = explained(backend="nowhere:backend")

    assert done.returncode == 3
    assert "cannot import module nowhere" in complaint(done)
    assert "as a program" in done.stdout


def test_unknown_verb(verb):
    """A mistaken verb is answered with those that are."""
    done = verb("rum")

    assert done.returncode == 3
    assert complaint(done).startswith("hooklaw: argument VERB: invalid choice: 'rum'")
    assert complaint(done).endswith("`hooklaw --help` shows how it is used")


def test_no_verb(verb):
    """No verb at all is wrong use, answered with the help."""
    done = verb()

    assert (done.returncode, complaint(done)) == (3, "hooklaw: no verb is named; `hooklaw --help` shows how it is used")
    assert "exit codes: 0 as expected" in done.stdout.lower()


def test_help(verb):
    """The help names every verb."""
    done = verb("--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"  {name} " in done.stdout for name in VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_verb(verb, name):
    """Every verb says what it does and how it is used."""
    done = verb(name, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: hooklaw {name} ")


def test_version(verb):
    """The version is the package's."""
    assert f"hooklaw {__version__}\n" == verb("--version").stdout


@pytest.mark.parametrize(
    "words",
    [("run", "--no-such-option"), ("run", "--limit", "soon"), ("expect",), ("report",), ("list", "--format", "xml")],
)
def test_wrong_arguments(verb, words):
    """Wrong arguments are one sentence that names the verb's help."""
    done = verb(*words)

    assert done.returncode == 3
    assert f"`hooklaw {words[0]} --help` shows how it is used" in complaint(done)


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "1e12"])
def test_limit_is_a_time(verb, limit):
    """A limit is a number of seconds above zero."""
    done = verb("run", "--limit", limit)

    assert done.returncode == 3
    assert f"hooklaw: argument --limit: invalid seconds value: '{limit}'" in complaint(done)


def piped(judge_env, *words):
    """Run a command whose reader has gone."""
    command = [sys.executable, "-m", "hooklaw", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=judge_env) as run:
        run.stdout.close()
        error = run.stderr.read()
    return run.returncode, error


@pytest.mark.parametrize("words", [("list",), ("list", "--chapter", "order")])
def test_broken_pipe(environment, words):
    """A reader such as `head` that has had enough is no fault, whether the text is long or short."""
    assert piped(environment, *words) == (0, "")


def test_broken_pipe_changes_no_verdict(environment):
    """A run whose reader has gone still ends with its exit code."""
    code, error = piped(environment, "run", "--backend", "toy:backend", "--rules", TOY_RULES, "--in-process")

    assert (code, "Error" in error) == (1, False)


@pytest.fixture(scope="module")
def contained(tmp_path_factory, hooklaw_command):
    """Run the toy once, as it comes: in a worker."""
    folder = tmp_path_factory.mktemp("contained")
    words = ("run", "--backend", "toy:backend", "--rules", TOY_RULES, "--results=r.jsonl")
    return hooklaw_command(*words, cwd=folder, path=[DATA]), folder


def test_run_says_what_holds(contained):
    """The summary has the counts with their denominator, and only the cells that need a look."""
    done, _ = contained
    first, *cells = done.stdout.splitlines()

    assert done.returncode == 1
    assert "toy:backend (toy 1.0.0+plain, python 3" in first
    assert "2 of 4 rules hold" in first
    assert (cells[0], len(cells)) == ("  FAIL     toy.broken (MUST)", 2)


def test_run_names_the_line(contained):
    """A failing cell names the line of its rule."""
    done, _ = contained
    text = TOY_RULES.joinpath("test_first.py").read_text().partition("[100.0, 100.0]")[0]

    assert f"was [1.0, 1.0]  [{TOY_RULES}/test_first.py:{text.count(chr(10)) + 1}]" in done.stdout


def test_run_leaves_the_results_and_nothing_else(contained):
    """A run leaves what it was asked for."""
    _, folder = contained

    assert [one.name for one in folder.iterdir()] == ["r.jsonl"]


def test_run_isolated_and_in_process_agree(judge, contained, tmp_path):
    """The same rules give the same results with and without a worker."""
    judge("--results=r.jsonl", "--in-process")
    files = (contained[1] / "r.jsonl", tmp_path / "r.jsonl")
    seen = [
        {rule: (result.outcome, result.detail) for rule, result in run.results.items()}
        for file in files
        for run in records.read(file)
    ]

    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("written", "code", "said"),
    [
        (entry(), 0, "1 known divergence"),
        (entry() + entry(rule="toy.order"), 2, "1 fixed"),
        (entry() + entry(rule="toy.gone"), 2, "STALE"),
        (entry(expires="2020-01-01"), 1, "expired on 2020-01-01"),
        (entry(when="toy<1"), 1, "1 regression"),
        (entry(when="toy==1.0.0"), 0, "1 known divergence"),
    ],
)
def test_run_with_expectations(judge, tmp_path, written, code, said):
    """What is expected is no regression; what is expected no more is said."""
    (tmp_path / "expect.toml").write_text(written)
    done = judge("--in-process", "--expectations", "expect.toml")

    assert code == done.returncode
    assert said in done.stdout


def test_run_with_another_outcome_expected(judge, tmp_path):
    """A rule that was expected to crash and fails is a regression."""
    (tmp_path / "expect.toml").write_text(entry(outcome="crash"))
    done = judge("--expectations", "expect.toml")

    assert done.returncode == 1
    assert "1 regression" in done.stdout


def test_run_json(judge):
    """The summary as data has counts, cells and stale entries for each backend."""
    (found,) = json.loads(judge("--in-process", "--format", "json").stdout)

    assert {"backend", "versions", "complete", "counts", "cells", "stale"} <= set(found)
    assert tuple(found["counts"][name] for name in ("passed", "judged", "regressions")) == (2, 4, 1)


def test_run_markdown(judge):
    """The summary as markdown names the failing cell below the table."""
    done = judge("--in-process", "--format", "markdown")

    assert "| toy:backend | 2 | 4 | " in done.stdout
    assert "- **fail** `toy.broken` on toy:backend: " in done.stdout


def test_run_of_what_this_machine_lacks(judge, tmp_path):
    """A backend that this machine cannot make is not run, with the reason, and is no failure."""
    done = judge("--in-process", "--results=r.jsonl", backend="toy:backend:absent")
    (run,) = records.read(tmp_path / "r.jsonl")

    assert done.returncode == 0
    assert "not run: no toy box on this machine" in done.stdout
    assert ({Outcome.NOT_RUN}, 5) == ({one.outcome for one in run.results.values()}, len(run.results))


def test_run_under_conditions(judge, tmp_path):
    """Each condition is a run of its own; what the backend cannot do for one is said, and is no failure."""
    done = judge("--in-process", "--condition", "hooked", "--condition", "thread", "--results=r.jsonl")
    runs = records.read(tmp_path / "r.jsonl")

    assert done.returncode == 1
    assert [run.header.title for run in runs] == ["toy:backend under hooked", "toy:backend under thread"]
    assert "toy:backend under hooked (toy 1.0.0+plain, " in done.stdout
    assert "not run: the condition thread needs threads, which toy lacks" in done.stdout


def test_run_of_what_dies_under_a_condition_alone(judge, tmp_path):
    """A rule that is known to end the process under a condition alone is run there, unless nothing contains it."""
    (tmp_path / "expect.toml").write_text(entry() + entry(rule="toy.order", outcome="crash", condition="hooked"))
    contained, bare = (
        judge("--condition", "hooked", "--expectations", "expect.toml", *how) for how in ([], IN_PROCESS)
    )

    assert (contained.returncode, bare.returncode) == (2, 0)
    assert "1 fixed" in contained.stdout
    assert "1 not run" in bare.stdout


def test_run_under_all_conditions(judge, tmp_path):
    """All conditions come after a run without one."""
    judge("--in-process", "--condition", "all", "--results=r.jsonl")

    assert ["", *CONDITIONS] == [run.header.condition for run in records.read(tmp_path / "r.jsonl")]


def test_run_leaves_out_what_a_condition_changes(judge):
    """A rule that says that its law is another one under a condition is not run under it."""
    assert "toy:backend under again: 4 rules in" in judge("--in-process", "--condition", "again").stderr


def test_run_under_an_unknown_condition(judge):
    """A condition that does not exist is answered with those like it."""
    done = judge("--condition", "float61")

    assert done.returncode == 3
    assert complaint(done) == "hooklaw: no condition has the name 'float61': did you mean float64 or float16?"


def test_run_several_backends(judge, tmp_path):
    """Several backends are judged one after the other into one file."""
    done = judge("--backend", "toy:backend:absent", "--in-process", "--results=r.jsonl")

    assert done.returncode == 1
    assert [one.header.backend for one in records.read(tmp_path / "r.jsonl")] == ["toy:backend", "toy:backend:absent"]


@pytest.mark.parametrize(("expression", "rules"), [("toy.order", 1), ("MAY", 1), ("first and not order", 2)])
def test_run_selects(judge, expression, rules):
    """Rules are selected by id, chapter and level."""
    assert f"toy:backend: {rules} rules in 1 chapters" in judge("--in-process", "-k", expression).stderr


def test_run_leaves_nothing_behind(judge, tmp_path):
    """A run that nobody asked to keep leaves no file."""
    judge("--in-process")

    assert [one for one in tmp_path.iterdir() if one.name != "__pycache__"] == []


def test_run_with_a_report(judge, tmp_path):
    """Results and report are left where they were asked for, in folders that did not exist."""
    done = judge("--in-process", "--results=a/r.jsonl", "--report=b/r.html")

    assert done.returncode == 1
    assert [one.name for name in "ab" for one in (tmp_path / name).iterdir()] == ["r.jsonl", "r.html"]


def test_summary_of_a_lost_result():
    """A lost result is named, and makes the run incomplete."""
    run = made.three()[1]
    del run.results["order.second"]
    text = summary.render([run], "text")

    assert "  LOST     order.second\n" in text


def test_worst_cells_come_first():
    """Crashes stand above fails, and what is fixed stands last."""
    crash, fail, fixed = (made.rule(f"a.{name}") for name in ("crash", "fail", "fixed"))
    found = [
        made.passed("a.fixed", expectation=made.known("a.fixed")),
        made.failed("a.fail"),
        made.failed("a.crash", Outcome.CRASH),
    ]
    run = made.run("toy", [fixed, fail, crash], found)

    assert [what for what, _, _ in summary.needing_a_look(run)] == ["crash", "fail", "fixed"]


def test_every_error_is_of_one_family():
    """Whatever a person can get wrong is caught in one place."""
    from hooklaw import errors

    kinds = [one for one in vars(errors).values() if isinstance(one, type) and one is not errors.NotRunError]

    assert all(issubclass(one, errors.HooklawError) for one in kinds)
    assert OutputError in kinds


def test_reports_import_no_backend():
    """Making a report loads no framework, no backend and no plugin."""
    code = "import sys, hooklaw_reports.cli; print(*sys.modules)"
    folders = ":".join(str(DATA.parents[1] / part) for part in ("conformance", "reports"))
    command, environment = [sys.executable, "-c", code], {"PYTHONPATH": folders}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    loaded = set(done.stdout.split())
    assert not loaded & {"torch", "paddle", "numpy", "hooklaw.backend.loading", "hooklaw.plugin", "hooklaw_backends"}
