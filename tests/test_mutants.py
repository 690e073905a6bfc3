"""`hooklaw mutants`: what kills, what survives, what is toothless, and how it says so."""

import json

import pytest

from helpers import DATA, complaint
from hooklaw import loading, matrix
from hooklaw.cli.mutants import findings
from hooklaw.killing import Matrix, choose_by
from hooklaw.outcome import Exit, Outcome
from hooklaw.spec import Level, Rule, docstring

pytest.importorskip("torch", reason="mutants are torch's, and torch is not installed")
HANDFUL = ("root-hook-skipped", "gradient-starts-as-zeros", "unpacked-tensor-cached", "no-grad-reaches-other-threads")


@pytest.fixture(scope="module")
def shipped(hooklaw_command):
    """Run a handful of the mutants."""
    chosen = [word for name in HANDFUL for word in ("-k", name)]
    return hooklaw_command("mutants", "--format", "json", *chosen)


@pytest.fixture(scope="module")
def docile(hooklaw_command):
    """Run mutants of our own, one of which does nothing wrong and one of which hangs."""
    return hooklaw_command("mutants", "--mutants", "docile", "--limit", "3", path=[DATA])


def test_handful_is_killed(shipped):
    """Each of a handful of mutants is killed by a rule that names it, and the exit code is 0."""
    rows = json.loads(shipped.stdout)

    assert shipped.returncode == 0, shipped.stderr
    assert sorted(HANDFUL) == sorted(row["mutant"] for row in rows)
    assert all(set(row["breaks"]) & set(row["killed_by"]) for row in rows)


def test_contract(shipped):
    """An object of the JSON names the mutant, what it breaks by declaration, and what killed it."""
    row = next(row for row in json.loads(shipped.stdout) if row["mutant"] == "root-hook-skipped")

    assert row["breaks"] == ["tensor-hook.fire.root", "tensor-hook.fire.root-given-gradient"]
    assert set(row["breaks"]) <= set(row["killed_by"])
    assert row["outcomes"] == dict.fromkeys(row["killed_by"], "fail")
    assert row["verdict"] == "killed"
    assert row["vice"] == "The hooks of a backward's root do not run."


def test_survivor(docile):
    """A mutant that no rule kills is called a survivor, and the exit code is 1."""
    assert docile.returncode == 1
    assert "survivor: does-nothing-wrong is killed by no rule" in docile.stdout


def test_toothless(docile):
    """A MUST rule that kills none of the mutants that it names is called toothless."""
    assert "toothless: made-up.toothless kills none of does-nothing-wrong, never-built" in docile.stdout
    assert "toothless: tensor-hook.handle.remove " not in docile.stdout
    assert "not built: never-built" in docile.stdout


def test_hanging_mutant(docile):
    """A mutant that hangs is killed by the rule that it hangs in, and costs no other its result."""
    assert "hangs  [hole]" in docile.stdout
    assert "remove-does-nothing  [killed]" in docile.stdout


def test_exempt(docile):
    """MUST rules that torch itself breaks, or does not support, are named as such."""
    assert "exempt: retain-grad.vs-node-prehook is fail on torch-eager itself" in docile.stdout
    assert "exempt: save-on-cpu.cuda.moves is unsupported on torch-eager itself" in docile.stdout


def test_unknown_mutant(verb):
    """A name that no mutant has is a mistake, said in one sentence."""
    done = verb("mutants", "--mutants", "docile", "-k", "no-such")

    assert done.returncode == 3
    assert "no mutant has 'no-such' in its name" in complaint(done)


def test_module_that_does_not_import(verb):
    """So is a module that cannot be imported."""
    done = verb("mutants", "--mutants", "nowhere.to.be.found")

    assert done.returncode == 3
    assert "the mutants in nowhere.to.be.found do not import" in complaint(done)


def test_what_a_mutant_alters():
    """A rule may be left out only where it is known in which verbs the mutant differs from torch-eager."""
    import docile
    from toy import Toy

    original = loading.load("torch-eager")

    assert matrix.altered(docile.RemoveDoesNothing(), original) == {"register_hook"}
    assert matrix.altered(docile.DoesNothingWrong(), original) == set()
    assert matrix.altered(Toy(), original) is None


def made_rule(name, *mutants):
    """Return a MUST rule."""
    sources = [docstring("torch.Tensor.sum")]
    return Rule(name, "made-up", "It is so.", Level.MUST, "documented", sources, [], list(mutants))


def made(results, *, vices=("a", "b"), broken=()):
    """Return a matrix of two rules: made.one names mutant a, made.two names mutant b."""
    rules = [made_rule("made.one", "a"), made_rule("made.two", "b")]
    original = {rule.id: Outcome.FAIL if rule.id in broken else Outcome.PASS for rule in rules}
    failed = {name: {one: matrix.Done(one, Outcome.FAIL, "") for one in killers} for name, killers in results.items()}
    return Matrix(matrix.Hello(dict.fromkeys(vices, "A vice."), rules, original), failed)


def test_all_is_well():
    """Where every mutant is killed by the rule that names it, nothing is wrong."""
    found = findings(made({"a": ["made.one"], "b": ["made.two"]}))

    assert (found.exit, found.judged, found.toothless) == (Exit.OK, 2, [])
    assert [row.verdict for row in found.rows] == ["killed", "killed"]


def test_hole():
    """A mutant that is caught only by a rule that does not name it is in a hole, and its own rule is toothless."""
    found = findings(made({"a": ["made.two"], "b": ["made.two"]}))

    assert [row.mutant for row in found.having("hole")] == ["a"]
    assert [rule.id for rule in found.toothless] == ["made.one"]
    assert found.rows[0].spared_by == ["made.one"]
    assert found.exit is Exit.REGRESSION


def test_selection_judges_what_it_can():
    """Of a selection only those rules are judged all of whose mutants were run."""
    found = findings(made({"a": ["made.one"]}))

    assert (found.exit, found.judged) == (Exit.OK, 1)


def test_rule_that_torch_breaks():
    """A rule that torch-eager breaks is exempt."""
    found = findings(made({"a": [], "b": ["made.two"]}, broken=["made.one"]))

    assert found.exempt == {"made.one": "fail"}
    assert found.toothless == []
    assert [row.mutant for row in found.having("survivor")] == ["a"]


def test_choice():
    """Without parts of names all mutants are chosen, with some those that contain one."""
    assert choose_by([])(["ab", "bc"]) == ["ab", "bc"]
    assert choose_by(["c"])(["ab", "bc"]) == ["bc"]
