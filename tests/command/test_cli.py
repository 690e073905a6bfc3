"""The command line: one verb a file, stable JSON, exit codes, and a summary that names only what needs a look."""

import json
import subprocess
import sys

import pytest

import made_records as made
from helpers import DATA, TOY_RULES, complaint, entry, examples
from hooklaw import __version__
from hooklaw.backend.conditions import CONDITIONS
from hooklaw.cli import VERBS, summary
from hooklaw.errors import OutputError
from hooklaw.law.collection import load_rules
from hooklaw.results import records
from hooklaw.results.verdict import Outcome

SEEN = "x.grad should be [100.0, 100.0], was [1.0, 1.0]"
KNOWN = entry(saw=SEEN)
RULE_KEYS = {"id", "chapter", "statement", "level", "basis", "sources", "needs", "mutants", "except_under", "processes"}
IN_PROCESS = ["--in-process"]


def test_list_json_is_a_contract(verb):
    """Scripts read these keys, and no other order of things."""
    rules = json.loads(verb("list", "--format", "json").stdout)

    assert [set(keys) for keys in {frozenset(one) for one in rules}] == [RULE_KEYS]
    assert list(load_rules()) == [one["id"] for one in rules]
    assert {"kind", "name", "section", "sentences"} == set(rules[0]["sources"][0])


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
    """A chapter that does not exist is answered with those like it, or else with those that exist."""
    done = verb("list", "--chapter", "ordr"), verb("list", "--chapter", "xyzzy")

    assert [each.returncode for each in done] == [3, 3]
    assert complaint(done[0]) == "hooklaw: no chapter has the name 'ordr': did you mean order?"
    assert complaint(done[1]).startswith("hooklaw: no chapter has the name 'xyzzy': choose from accumulate-grad-hooks")


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
    """The same as data: the rule's keys, what else is known of it, and the results by backend."""
    rule = some_rule_that_the_toy_keeps()
    found = json.loads(explained("--format", "json", rule=rule).stdout)

    assert RULE_KEYS | {"matters", "why", "neighbours", "divergences", "folklore", "results"} == set(found)
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
    assert complaint(done).startswith("hooklaw: argument VERB: invalid choice: 'rum': did you mean run; ")
    assert complaint(done).endswith("`hooklaw --help` shows how it is used")


MISTAKES = {
    "option": (("run", "--reslts=r.jsonl"), "unrecognized arguments: --reslts=r.jsonl: did you mean --results;"),
    "word without its option": (
        ("run", "order"),
        "unrecognized arguments: order: words are selected with -k, as -k order;",
    ),
    "option of a verb in a verb": (("expect", "check", "--bakend", "x"), "--bakend x: did you mean --backend;"),
    "choice": (("list", "--format", "txt"), "argument --format: invalid choice: 'txt': did you mean text;"),
    "word": (("list", "ordr"), "no rule matches 'ordr': did you mean order"),
    "expression": (("list", "-k", "not ordr"), "no rule matches 'ordr': did you mean order"),
    "question": (("explain", "oder"), "no rule matches 'oder': did you mean order"),
    "property": (
        ("explain", "packer.identity.valu"),
        "has the id 'packer.identity.valu': did you mean packer.identity",
    ),
    "rule of a script": (
        ("repro", "order.six-steps.leav"),
        "has the id 'order.six-steps.leav': did you mean order.six",
    ),
    "condition": (("run", "--condition", "thred"), "no condition has the name 'thred': did you mean thread?"),
    "backend": (("run", "--backend", "torch-eagre"), "no backend has the name 'torch-eagre': did you mean torch-eager"),
    "workload": (("bench", "--workload", "mpl"), "no workload is called 'mpl': did you mean mlp?"),
}


@pytest.mark.parametrize(("words", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistyped_name(verb, words, said):
    """A mistyped name of any kind is answered with the name that was meant."""
    pytest.importorskip("torch", reason="properties of packers need torch, which is not installed")
    done = verb(*words)

    assert done.returncode == 3
    assert said in complaint(done)


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["DataParallel"], {"data-parallel.gradients-summed", "data-parallel.exception-type"}),
        (["order.six-steps.leaf"], {"order.six-steps.leaf"}),
        (["-k", "DataParallel and MUST"], {"data-parallel.gradients-summed"}),
        (["-k", "multi-grad-hooks"], {"checkpoint.nonreentrant.multi-grad", "multi-grad.all.once"}),
        (["hooks", "view"], {"tensor-hook.view-and-base", "module.full-backward.views"}),
        (["tensor-hook-handle-removes-nothing"], {"tensor-hook.handle.remove"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_list_words(verb, words, ids):
    """Words, capabilities, mutants and expressions list the rules that have them."""
    found = {one["id"] for one in json.loads(verb("list", "--format", "json", *words).stdout)}

    assert ids <= found
    assert len(found) < len(load_rules()) / 5


def test_explain_a_chapter(verb):
    """A chapter is explained by all of its rules, though more have its name in their ids."""
    done = verb("explain", "order")

    assert (done.returncode, done.stderr) == (0, "")
    assert "chapter order: 6 rules" in done.stdout
    assert "\n  MUST   order.six-steps.leaf " in done.stdout


def test_explain_a_capability(verb):
    """A capability is explained by its promise and the rules that need it."""
    done = verb("explain", "multi-grad-hooks")

    assert "capability multi-grad-hooks: a hook can wait for the gradients of several tensors" in done.stdout
    assert "more: hooklaw list multi-grad-hooks" in done.stdout


def test_explain_words_as_data(verb):
    """What words find is data too."""
    found = json.loads(verb("explain", "--format", "json", "view", "hook", "fires").stdout)

    assert [page["page"] for page in found["pages"]] == ["views"]
    assert "tensor-hook.fire.view-apart" in [rule["id"] for rule in found["rules"]]


def test_explain_a_question(verb):
    """A question is answered by its page, with the answer, the rules or properties, and where the programs are."""
    order, offloader = verb("explain", "in which order do my hooks fire"), verb("explain", "is my offloader safe")

    assert [(done.returncode, done.stderr) for done in (order, offloader)] == [(0, "")] * 2
    for said in (
        "1  tensor hooks       y.register_hook  ",
        "`hooklaw docs order` prints",
        "MUST   order.six-steps.leaf",
    ):
        assert said in order.stdout
    assert "properties of packers:\n  packer.identity.value\n" in offloader.stdout


def test_explain_a_chapter_on_a_backend(verb):
    """A backend is named for one rule alone."""
    done = verb("explain", "order", "--backend", "reference")

    assert done.returncode == 3
    assert complaint(done) == "hooklaw: 'order' is not one rule: leave --backend out, or name one of its rules"


def test_repro_of_several_rules(verb):
    """A script is of one rule: words that several rules have are answered with their ids."""
    done = verb("repro", "six-steps")

    assert done.returncode == 3
    assert complaint(done).startswith("hooklaw: 2 rules have 'six-steps': name one, as order.six-steps.leaf, ")


def test_no_verb(verb):
    """No verb at all is wrong use, answered with what to do first."""
    done = verb()

    assert (done.returncode, complaint(done)) == (3, "hooklaw: no verb is named; `hooklaw --help` shows how it is used")
    assert "hooklaw run --backend torch-eager" in done.stdout
    assert "hooklaw explain in which order hooks fire" in done.stdout
    assert len(done.stdout.splitlines()) < 10


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
    assert examples(name), "the docstring of the verb ends without an example: write Example: and a command"
    assert all(f"    {line}\n" in done.stdout for line in examples(name))


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
    return hooklaw_command(*words, cwd=folder, path=[DATA], apart=True), folder


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
        (KNOWN, 0, "1 known divergence"),
        (KNOWN + entry(rule="toy.order"), 2, "1 fixed"),
        (KNOWN + entry(rule="toy.gone"), 2, "STALE"),
        (entry(), 2, "would accept any failure: write saw"),
        (entry(saw=SEEN, reason="unexplained: x"), 2, "is unexplained: write its reason"),
        (entry(saw="sum raised"), 1, f"  FAILS DIFFERENTLY toy.broken (MUST)\n           {SEEN}"),
        (entry(saw="sum raised"), 1, "known: fail with 'sum raised', because the toy is a toy  ["),
        (entry(expires="2020-01-01"), 1, "expired on 2020-01-01"),
        (entry(when="toy<1"), 1, "1 regression"),
        (entry(when="toy==1.0.0 and device==toy", saw=SEEN), 0, "1 known divergence"),
        (entry(when="device!=toy", saw=SEEN), 1, "1 regression"),
    ],
)
def test_run_with_expectations(judge, tmp_path, written, code, said):
    """What is expected is no regression; what is expected no more is said."""
    (tmp_path / "expect.toml").write_text(written)
    done = judge("--in-process", "--expectations", "expect.toml")

    assert code == done.returncode
    assert said in done.stdout


@pytest.mark.parametrize("saw", [SEEN, "should be"])
def test_run_with_a_broken_adapter(judge, tmp_path, saw):
    """A known divergence does not hide that the adapter breaks the same rule in another way."""
    head = f"import sys; sys.path.append({str(DATA)!r})\nfrom toy import Toy\nclass Bad(Toy):\n"
    broken = "    def sum(self, tensor): raise KeyError('oops')\n"
    (tmp_path / "bad.py").write_text(f"{head}{broken}made = Bad()\n")
    (tmp_path / "expect.toml").write_text(entry(saw=saw))
    done = judge("--expectations", "expect.toml", "-k", "toy.broken", "--import", "bad", backend="bad:made")

    assert done.returncode in {1, 3}  # the framework's fault or the adapter's, never a known one
    assert "0 known divergences, 1 regression" in done.stdout
    assert "KeyError: 'oops'" in done.stdout


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
    assert "- **fail** `toy.broken` (MUST) on toy:backend: " in done.stdout


def test_run_of_what_this_machine_lacks(judge, tmp_path):
    """A backend that this machine cannot make is not run, with the reason, and that is an error."""
    done = judge("--in-process", "--results=r.jsonl", backend="toy:backend:absent")
    (run,) = records.read(tmp_path / "r.jsonl")

    assert done.returncode == 3
    assert "not run: no toy box on this machine" in done.stdout
    assert complaint(done) == (
        "hooklaw: toy:backend:absent cannot be judged here: no toy box on this machine; "
        "if that is as it should be, say --allow-not-run"
    )
    assert ({Outcome.NOT_RUN}, 5) == ({one.outcome for one in run.results.values()}, len(run.results))


def test_run_of_what_may_be_absent(judge):
    """Where it is said that a backend may be absent, that is no failure."""
    done = judge("--in-process", "--allow-not-run", backend="toy:backend:absent")

    assert (done.returncode, "hooklaw: " in done.stderr) == (0, False)
    assert "not run: no toy box on this machine" in done.stdout


def test_run_that_judges_nothing(judge):
    """A run in which every rule is unsupported is an error, unless that is allowed; a shard of it is not."""
    done = judge("--in-process", "-k", "toy.nodes")

    assert done.returncode == 3
    assert complaint(done).startswith("hooklaw: nothing was judged on toy:backend: unsupported; ")
    assert judge("--in-process", "-k", "toy.nodes", "--shard", "1/2").returncode == 0


def test_explain_what_this_machine_lacks(hooklaw):
    """What cannot be judged here cannot be explained either; a rule that is unsupported is explained."""
    rule = "tensor-hook.order.registration"
    done = hooklaw("explain", rule, "--backend", "toy:backend:absent", path=[DATA])

    assert done.returncode == 3
    assert "not-run: no toy box on this machine" in done.stdout
    assert hooklaw("explain", "node.identity", "--backend", "toy:backend", path=[DATA]).returncode == 0


def test_run_under_conditions(judge, tmp_path):
    """Each condition is a run of its own; one that the backend has no means for is an error, unless that is allowed."""
    both = ("--in-process", "--condition", "hooked", "--condition", "thread")
    done = judge(*both, "--results=r.jsonl")
    runs = records.read(tmp_path / "r.jsonl")

    assert (done.returncode, judge(*both, "--allow-not-run").returncode) == (3, 1)
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
    """All conditions come after a run without one; those that the backend has no means for are no error."""
    done = judge("--in-process", "--condition", "all", "--results=r.jsonl")

    assert done.returncode == 1
    assert ["", *CONDITIONS] == [run.header.condition for run in records.read(tmp_path / "r.jsonl")]


def test_run_leaves_out_what_a_condition_changes(judge):
    """A rule that says that its law is another one under a condition is not run under it."""
    (found,) = json.loads(judge("--in-process", "--condition", "again", "--format", "json").stdout)

    assert len(found["cells"]) == 4


def test_run_under_an_unknown_condition(judge):
    """A condition that does not exist is answered with those like it."""
    done = judge("--condition", "float61")

    assert done.returncode == 3
    assert complaint(done) == "hooklaw: no condition has the name 'float61': did you mean float64 or float16?"


def test_run_several_backends(judge, tmp_path):
    """Several backends are judged one after the other into one file."""
    done = judge("--backend", "toy:backend:absent", "--in-process", "--results=r.jsonl")

    assert done.returncode == 3
    assert [one.header.backend for one in records.read(tmp_path / "r.jsonl")] == ["toy:backend", "toy:backend:absent"]


@pytest.mark.parametrize(("expression", "rules"), [("toy.order", 1), ("MAY", 1), ("first and not order", 2)])
def test_run_selects(judge, expression, rules):
    """Rules are selected by id, chapter and level."""
    (found,) = json.loads(judge("--in-process", "-k", expression, "--format", "json").stdout)

    assert len(found["cells"]) == rules


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

    own = [one for one in vars(errors).values() if getattr(one, "__module__", "") == errors.__name__]
    kinds = [one for one in own if isinstance(one, type) and one is not errors.NotRunError]

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
