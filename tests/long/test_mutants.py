"""`hooklaw mutants`: which rules kill which mutants, what survives, which rules kill nothing, and what it prints."""

import json
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from helpers import DATA, complaint
from hooklaw.backend import loading
from hooklaw.errors import RuleDefinitionError
from hooklaw.law.rule import Level, Rule, docstring
from hooklaw.mutation import _service, matrix
from hooklaw.mutation.matrix import Matrices, Matrix, choose_by
from hooklaw.mutation.report import report
from hooklaw.results.verdict import Exit, Outcome
from hooklaw_backends.mutants.kinds import KINDS

pytest.importorskip("torch", reason="mutants are torch's, and torch is not installed")
JSON = ("--of", "reference", "--format", "json")
HANDFUL = ("root-hook-skipped", "gradient-always-contiguous", "unpacked-tensor-cached", "hooks-must-be-functions")


@pytest.fixture(scope="module")
def shipped(hooklaw_command):
    """Run a handful of the mutants."""
    chosen = [word for name in HANDFUL for word in ("-k", name)]
    return hooklaw_command("mutants", "--of", "torch-eager", "--format", "json", *chosen)


@pytest.fixture(scope="module")
def of_reference(hooklaw_command):
    """Run two mutants of the engine, one of which replaces a step of it, and one of which is torch's too."""
    chosen = ["-k", "retain-grad-before-node-pre-hook", "-k", "root-hook-skipped"]
    return hooklaw_command("mutants", "--of", "reference", "--format", "json", *chosen)


@pytest.fixture(scope="module")
def docile(hooklaw_command):
    """Run mutants of our own, one of which does nothing wrong and one of which hangs."""
    of = ("--of", "torch-eager")
    return hooklaw_command("mutants", "--mutants", "docile", *of, "--limit", "8", path=[DATA])


@pytest.fixture(scope="module")
def both(hooklaw_command):
    """Run a mutant of each backend that does nothing wrong."""
    return hooklaw_command("mutants", "--mutants", "docile", "-k", "does-nothing-wrong", path=[DATA])


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
    assert (row["of"], row["verdict"]) == ("torch-eager", "killed")
    assert row["vice"] == "The hooks of a backward's root do not run."


def test_every_rule(hooklaw_command, shipped):
    """Rules that do not name a mutant are tried on it if none that names it kills it, or with `--every-rule`."""
    row = next(row for row in json.loads(shipped.stdout) if row["mutant"] == "root-hook-skipped")
    chosen = ["--of", "torch-eager", "--format", "json", "-k", "root-hook-skipped"]
    done = hooklaw_command("mutants", *chosen, "--every-rule")

    assert row["killed_by"] == row["breaks"]
    assert set(json.loads(done.stdout)[0]["killed_by"]) > set(row["breaks"])


def test_mutants_that_know_where_they_are_change_nothing_elsewhere(hooklaw_command):
    """No rule kills what the mutants of each kind of hook do to know their situation, so what it kills is the fault."""
    chosen = ["--of", "reference", "--mutants", "never_wrong", "--format", "json"]
    done = hooklaw_command("mutants", *chosen, path=[DATA], timeout=600)
    verdicts = {row["mutant"]: (row["verdict"], row["killed_by"]) for row in json.loads(done.stdout)}
    tried = {name for names in verdicts for name in names.split()}
    errors = {rule for row in json.loads(done.stdout) for rule in row["errors"]}

    tables = {"backward", "no-grad", "handle-of-node-hook", "several-roots", "option-check-nan", "kept-grad-of"}
    assert tried >= {*KINDS, *tables, "pack-hook", "unpack-hook", "order-of-node-hook", "contexts-swapped"}
    assert verdicts == dict.fromkeys(verdicts, ("survived", []))
    assert errors <= {"checkpoint-sequential.one-input"}  # its TypeError passes through lines of the mutant


def test_survivor(docile):
    """A mutant that no rule kills survives, and the exit code is 1."""
    assert docile.returncode == 1
    assert "survived: does-nothing-wrong of torch-eager is killed by no rule" in docile.stdout


def test_rule_that_kills_nothing(docile):
    """A MUST rule that kills none of the mutants that it names is listed, and so is a mutant that is missing."""
    assert "kills nothing it names: made-up.toothless names does-nothing-wrong, never-built" in docile.stdout
    assert "kills nothing it names: tensor-hook.handle.remove " not in docile.stdout
    assert "missing: never-built" in docile.stdout  # its module does not say what it does not build


def test_hanging_mutant(docile):
    """A mutant that hangs is killed by the rule that hangs, and the other mutants have their results."""
    assert "hangs of torch-eager  [killed by an undeclared rule]" in docile.stdout
    assert "tensor-hook-handle-removes-nothing of torch-eager  [killed]" in docile.stdout


def test_mutant_with_a_bug(docile):
    """A mutant whose own code is wrong survives, whatever rules end in the error: it shows nothing of the rules."""
    assert "survived: has-a-bug of torch-eager is killed by no rule, but ends in an error in " in docile.stdout


def test_not_applicable(docile):
    """MUST rules that torch itself breaks or does not support are listed as not applicable."""
    assert "not applicable: retain-grad.vs-node-prehook is fail on torch-eager" in docile.stdout
    assert "not applicable: save-on-cpu.cuda.moves is unsupported on torch-eager" in docile.stdout


def test_dying_mutant(hooklaw_command):
    """A mutant that ends its process is killed by the rule that was running."""
    done = hooklaw_command("mutants", "--mutants", "lingering", "-k", "ends-the-process", *JSON, path=[DATA])
    (mutant,) = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert (len(mutant["killed_by"]), [*mutant["outcomes"].values()]) == (1, ["crash"])


def test_mutant_that_leaves_something_behind(hooklaw_command):
    """If the original breaks rules after the mutants have run in its process, the run is void."""
    done = hooklaw_command("mutants", "--mutants", "lingering", "-k", "stays-in-the-process", *JSON, path=[DATA])

    assert (done.returncode, done.stdout) == (3, "")
    assert "a mutant left something behind in its process that breaks " in complaint(done)
    assert "tensor-hook.fire.root" in complaint(done)


def test_unknown_mutant(verb):
    """A name that no mutant has is a mistake, said in one sentence."""
    done = verb("mutants", "--mutants", "docile", "-k", "no-such")

    assert done.returncode == 3
    assert "no mutant matches 'no-such': " in complaint(done)


def test_module_that_does_not_import(verb):
    """So is a module that cannot be imported."""
    done = verb("mutants", "--mutants", "nowhere.to.be.found")

    assert done.returncode == 3
    assert "the mutants in nowhere.to.be.found do not import" in complaint(done)


def test_what_a_mutant_alters(monkeypatch):
    """A rule may be left out only where it is known in which verbs the mutant differs from torch-eager."""
    monkeypatch.setattr("hooklaw.law.rule._registry", {})  # that module makes a rule up
    import docile
    from toy import Toy

    original = loading.load("torch-eager")

    assert _service.altered(docile.RemoveDoesNothing(), original) == {"register_hook"}
    assert _service.altered(docile.DoesNothingWrong(), original) == set()
    assert _service.altered(Toy(), original) is None


def made_rule(name, *mutants):
    """Return a MUST rule."""
    sources = [docstring("torch.Tensor.sum")]
    return Rule(name, "made-up", "It is so.", Level.MUST, "documented", sources, [], list(mutants))


def made(results, *, vices=("a", "b"), broken=(), of="torch-eager"):
    """Return a matrix of two rules: made.one names mutant a, made.two names mutant b."""
    rules = [made_rule("made.one", "a"), made_rule("made.two", "b")]
    original = {rule.id: Outcome.FAIL if rule.id in broken else Outcome.PASS for rule in rules}
    failed = {name: dict.fromkeys(killers, Outcome.FAIL) for name, killers in results.items()}
    return Matrix(of, rules, dict.fromkeys(vices, "A vice."), original, failed)


def test_rules_that_name_a_mutant_are_tried_first():
    """A rule that does not name a mutant may end the worker, so those that name it come before."""
    found = made({}, vices=["a", "b"])
    original = {rule.id: _service.Attempt(Outcome.PASS, {"backward"}) for rule in found.rules}

    tried = matrix._tried(found, "b", original, {"backward"})

    assert [rule.id for rule in tried] == ["made.two", "made.one"]


@pytest.mark.parametrize(
    ("first", "ends", "killers"),
    [(["made.two"], [], []), (["made"], ["two"], []), (["made.one"], ["one"], ["made.two"])],
    ids=["its chapters", "of those of its chapters by their ends", "what its namesake dies by"],
)
def test_what_is_tried_before_others(first, ends, killers):
    """Of rules that do not name a mutant, those come first that are likely to kill it."""
    found = made({}, vices=["c"])
    found.first, found.ends = {"c": first}, {"c": ends}
    original = {rule.id: _service.Attempt(Outcome.PASS, {"backward"}) for rule in found.rules}

    tried = matrix._tried(found, "c", original, {"backward"}, killers)

    assert [rule.id for rule in tried] == ["made.two", "made.one"]


def test_mutants_of_one_backend_lead_those_of_another():
    """A mutant waits for its namesake of the first backend, but for none that is not judged or that does not exist."""
    first, second = made({"a": [], "b": []}), made({"a": [], "b": [], "c": []}, of="reference")
    lead = matrix._Lead(first)
    with ThreadPoolExecutor() as others:
        waits = {mutant: others.submit(lead.killers, second, mutant) for mutant in "abc"}

        assert waits["c"].result() == lead.killers(first, "a") == ()
        assert not waits["a"].done()
        first.results["a"]["made.two"] = Outcome.FAIL
        lead.tell(first, "a")
        assert [*waits["a"].result()] == ["made.two"]
        assert not waits["b"].done()
        lead.end(first)
        assert [*waits["b"].result()] == []


def test_a_selection_begins_with_its_own_rules():
    """Of a selection the rules that name it, or that its table begins with, are tried first, of all mutants all."""
    some, table, whole = made({"a": []}), made({"a": []}), made({"a": [], "b": []})
    table.first = {"a": ["made.two"]}

    def ids(found, **how):
        return [rule.id for rule in matrix._rules_at_first(found, **how)]

    assert ids(some, every_rule=False) == ["made.one"]
    assert ids(table, every_rule=False) == ["made.one", "made.two"]
    assert ids(some, every_rule=True) == ids(whole, every_rule=False) == ["made.one", "made.two"]
    assert ids(made({"a": []}, of="toy:backend"), every_rule=False) == ["made.one", "made.two"]


def judged(*found):
    """Return what is found in some matrices."""
    return report(Matrices(list(found), {}))


def test_all_is_well():
    """Where every mutant is killed by the rule that names it, nothing is wrong."""
    found = judged(made({"a": ["made.one"], "b": ["made.two"]}))

    assert (found.exit, found.judged, found.kill_nothing) == (Exit.OK, 2, [])
    assert [each.verdict for each in found.mutants] == ["killed", "killed"]


def test_killed_by_an_undeclared_rule():
    """If only a rule that does not name a mutant kills it, the report says so, and the rule that names it fails."""
    found = judged(made({"a": ["made.two"], "b": ["made.two"]}))

    assert [each.mutant for each in found.having("killed by an undeclared rule")] == ["a"]
    assert [rule.id for rule in found.kill_nothing] == ["made.one"]
    assert found.mutants[0].not_killed_by == ["made.one"]
    assert found.exit is Exit.REGRESSION


def test_a_corner_needs_no_name():
    """A mutant that is tried under a condition is killed by any rule, but it must be killed."""
    corners = {"a": "float16", "b": "thread"}
    found = judged(msgspec.structs.replace(made({"a": ["made.two"], "b": []}), under=corners))

    assert [each.verdict for each in found.mutants] == ["killed", "survived"]
    assert [each.under for each in found.mutants] == ["float16", "thread"]


def test_selection_judges_what_it_can():
    """Of a selection only those rules are judged all of whose mutants were run."""
    found = judged(made({"a": ["made.one"]}))

    assert (found.exit, found.judged) == (Exit.OK, 1)


def test_rule_that_torch_breaks():
    """A rule that torch-eager breaks is not applicable."""
    found = judged(made({"a": [], "b": ["made.two"]}, broken=["made.one"]))

    assert found.not_applicable == {"made.one": "fail on torch-eager"}
    assert found.kill_nothing == []
    assert [each.mutant for each in found.having("survived")] == ["a"]


def test_rule_that_another_backend_keeps():
    """A rule that torch-eager breaks is judged on the engine, if the engine keeps it."""
    torch = made({"a": [], "b": ["made.two"]}, broken=["made.one"])
    idle = judged(torch, made({"a": [], "b": ["made.two"]}, of="reference"))
    found = judged(torch, made({"a": ["made.one"], "b": ["made.two"]}, of="reference"))

    assert [rule.id for rule in idle.kill_nothing] == ["made.one"]
    assert (found.not_applicable, found.judged, found.kill_nothing) == ({}, 2, [])
    assert found.counts == {"torch-eager": 2, "reference": 2}


def test_one_backend_is_enough():
    """A rule need kill a mutant of one backend only, and a mutant of one backend only is not missing."""
    one, other = made({"a": ["made.one"]}, vices=["a"]), made({"b": ["made.two"]}, vices=["b"], of="reference")

    assert (judged(one, other).kill_nothing, judged(one, other).missing) == ([], [])
    assert judged(one).missing == ["b"]


def test_choice():
    """Without parts of names all mutants are chosen, with some those that contain one."""
    assert choose_by([])(["ab", "bc"]) == ["ab", "bc"]
    assert choose_by(["c"])(["ab", "bc"]) == ["bc"]


def test_of_reference(of_reference):
    """A mutant of the engine is killed by the rule that torch itself breaks, and says whose mutant it is."""
    rows = {row["mutant"]: row for row in json.loads(of_reference.stdout)}
    inside = rows["retain-grad-before-node-pre-hook"]

    assert of_reference.returncode == 0, of_reference.stderr
    assert {row["of"] for row in rows.values()} == {"reference"}
    assert {"order.retain-grad-before-node-prehook", "retain-grad.vs-node-prehook"} <= set(inside["killed_by"])
    assert "tensor-hook.fire.root" in rows["root-hook-skipped"]["killed_by"]


def test_both(both):
    """Without --of the mutants of both backends run."""
    assert "survived: does-nothing-wrong of torch-eager" in both.stdout
    assert "survived: does-nothing-wrong of reference" in both.stdout
    assert "1 mutant of torch-eager, 1 mutant of reference: 0 killed, 2 survived" in both.stdout


def test_without_torch(hooklaw_command, tmp_path):
    """Where torch is not installed the engine's mutants run alone, and a line says so; to ask for torch's is wrong."""
    (tmp_path / "torch.py").write_text("raise ImportError('not here')")
    left = hooklaw_command("mutants", "-k", "tensor-hook-handle-removes-all", path=[tmp_path], apart=True)
    asked = hooklaw_command("mutants", "--of", "torch-eager", path=[tmp_path], apart=True)

    assert left.returncode == 0, left.stderr
    assert "skipped: mutants of torch-eager: torch is not installed" in left.stdout
    assert "tensor-hook-handle-removes-all of reference  [killed]" in left.stdout
    assert asked.returncode == 3
    assert "no mutants of torch-eager: torch is not installed" in complaint(asked)


def of_reference_named(name):
    """Return one mutant of the engine."""
    return loading.load(f"hooklaw_backends.mutants:of_reference:{name}")


def test_step_of_the_engine_is_put_back():
    """A mutant that replaces a step of the engine does so from its reset to its end, or to the reset of another."""
    from hooklaw.model import engine

    retain, around = engine._retain, engine.Pass._around
    one, other = of_reference_named("retain-grad-before-node-pre-hook"), of_reference_named("released-though-retained")
    one.reset()
    of_one = engine._retain
    other.reset()
    of_other = engine._retain, engine.Pass._around
    other.close()

    assert of_one is not retain
    assert of_other[0] is retain
    assert of_other[1] is not around
    assert engine.Pass._around is around
    assert _service.altered(one, loading.load("reference")) is None


def test_step_that_is_no_more():
    """A mutant that replaces what the engine does not have is refused where it is defined."""
    from hooklaw.model import engine
    from hooklaw_backends.mutants.inside import instead_of

    with pytest.raises(LookupError, match="hooklaw.model.engine no longer has _forgotten"):
        instead_of(engine, "_forgotten")(print)


def test_step_with_other_arguments():
    """So is one that does not take what the engine gives: it would fail everywhere, and every rule seem to catch it."""
    from hooklaw.model import engine
    from hooklaw_backends.mutants.inside import instead_of

    with pytest.raises(TypeError, match="hooklaw.model.engine._retain takes other arguments than the mutant's"):
        instead_of(engine, "_retain")(lambda _mutant, _old, _node: None)


def test_replaced_steps_hide_no_verb():
    """The methods of a mutant inside the engine have names of their own, or they would be the backend's verbs."""
    from hooklaw_backends.mutants import mutants
    from hooklaw_backends.mutants.inside import Swap
    from hooklaw_backends.mutants.over_reference import OverReference

    classes = {made for one in mutants("reference").values() for made in one.__mro__}
    steps = {name for made in classes for name, value in vars(made).items() if isinstance(value, Swap)}

    assert len(steps) > 25
    assert not steps & set(dir(OverReference))


def test_made_over_both():
    """Most mutants are made over both backends, with the same name and the same vice."""
    from hooklaw_backends.mutants import mutants

    shared = mutants("torch-eager").keys() & mutants("reference").keys()

    assert len(shared) > 150
    assert all(mutants("torch-eager")[name].__doc__ == mutants("reference")[name].__doc__ for name in shared)


def loaded(*, names, not_built):
    """Return what workers say of backends with these mutants, one each."""
    made_up = [made_rule("made.one", "a"), made_rule("made.two", "b")]
    return [_service.LoadedMutants({name: "A fault."}, {}, made_up, {}, {}, not_built) for name in names]


def test_mutant_that_does_not_exist():
    """A rule that names a mutant that no backend has, and that is not declared, is an error that says what is meant."""
    matrix._refuse_unknown(loaded(names=["a"], not_built={"b": "it needs a device"}))
    matrix._refuse_unknown(loaded(names=["a"], not_built=None))
    with pytest.raises(RuleDefinitionError, match="rule 'made.two' names the mutant 'b', which does not exist: write"):
        matrix._refuse_unknown(loaded(names=["a", "c"], not_built={}))


def test_of_any_backend(hooklaw_command):
    """`hooklaw mutants --backend` names what was killed, and each mutant that does not apply with the reason."""
    chosen = ["-k", "root-hook-skipped", "-k", "node-hook-lost-float64", "-k", "hooks-of-grad-inputs-skipped"]
    done = hooklaw_command("mutants", "--backend", "toy:backend", "--format", "json", *chosen, path=[DATA])
    rows = {row["mutant"]: row for row in json.loads(done.stdout)}

    assert done.returncode == 0, done.stderr
    assert "tensor-hook.fire.root" in rows["root-hook-skipped"]["killed_by"]
    assert rows["node-hook-lost-float64"]["why_not"] == "what it changes belongs to node-hooks"
    assert rows["hooks-of-grad-inputs-skipped"]["verdict"] == "not applicable"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["toy:backend", "-k", "node-hook-lost-float64"], "1 mutant of toy:backend: 0 killed"),
        (["toy:backend:absent"], "no mutants of toy:backend:absent: no toy box on this machine"),
        (["toy:bakend"], "backend 'toy:bakend': module toy has no attribute 'bakend' (did you mean backend?)"),
        (["torch-eagr"], "no backend has the name 'torch-eagr': did you mean torch-eager?"),
        (["toy:backend", "--import", "nowhere"], "--import nowhere: cannot import the module"),
        (["toy:backend", "--mutants", "lingering"], "the module lingering has mutants of torch-eager and reference"),
    ],
)
def test_of_any_backend_with_nothing_to_show(hooklaw_command, words, said):
    """A backend that cannot be judged here, a name that is wrong, or no mutant that applies: exit code 3."""
    done = hooklaw_command("mutants", "--backend", *words, path=[DATA])

    assert done.returncode == 3
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
