"""The law for packers: each wrong packer breaks the properties that name it, and a right packer breaks none."""

import gc
import inspect
import json
import pickle
import re
import subprocess
import sys
from importlib import metadata

import pytest

from helpers import DATA, complaint, entry
from hooklaw.errors import PackerError, RuleDefinitionError
from hooklaw.law.rule import Level, Rule, observed
from hooklaw.packing import _law, _service
from hooklaw.packing._check import Checker, clean
from hooklaw.packing._law import Property
from hooklaw.packing._packer import examine, lines_of, resolve
from hooklaw.packing._source import program
from hooklaw.results import records
from hooklaw.results.verdict import Outcome

torch = pytest.importorskip("torch", reason="packers are torch's")
sharing = pytest.importorskip("hooklaw.packing.properties.sharing")
wrong_tensors, wrong_packers = map(pytest.importorskip, ("wrong_tensors", "wrong_packers"))
NO_VICE = {"Copies", "Stores", "Disk", "File", "Crashes", "Hangs"}
RIGHT = "hooklaw.packing.control:Right"


def kebab(name):
    """Return a class's name as properties name it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


WRONG = {
    kebab(name): f"{module.__name__}:{name}"
    for module in (wrong_tensors, wrong_packers)
    for name, found in vars(module).items()
    if inspect.isclass(found) and found.__module__ == module.__name__ and name not in NO_VICE
}
PAIRS = [(vice, one.rule.id) for one in _law.properties().values() for vice in one.rule.mutants]


@pytest.fixture(scope="module", autouse=True)
def _frozen():
    """Freeze the garbage collector's objects, as a worker does, so that programs that collect garbage are fast."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _as_it_was():
    """Remove what a wrong packer leaves behind: its hooks, and a changed grad mode."""
    yield
    while not clean():
        torch.set_grad_enabled(True)
        torch._C._autograd._pop_saved_tensors_default_hooks()


def checker(spec, device="cpu", examples=15):
    """Return a checker of the packer in this process."""
    return Checker(examine(resolve(spec), lines_of(spec), device, spec), examples)


def judge(spec, property_id, **how):
    """Return the result of one property."""
    return checker(spec, **how).check(_law.properties()[property_id])


@pytest.mark.parametrize(("vice", "property_id"), PAIRS, ids=[f"{vice} by {one}" for vice, one in PAIRS])
def test_wrong_packer_is_caught(vice, property_id):
    """A wrong packer breaks the property that names it, and the printed program fails when it is run."""
    tried = judge(WRONG[vice], property_id)
    if tried.outcome is Outcome.UNSUPPORTED:
        pytest.skip(tried.detail)

    assert (tried.outcome, bool(tried.detail)) == (Outcome.FAIL, True)
    with pytest.raises(BaseException):  # noqa: B017 - whatever the packer makes of it
        exec(tried.program, {"__name__": "program"})  # noqa: S102 - it is ours


@pytest.mark.parametrize(("old", "place"), [((7, 9), 7), ((), 0)])
def test_an_address_is_made_to_come_back(monkeypatch, old, place):
    """`at_an_old_address` picks a tensor at an old address, at any place."""
    given = [torch.empty(3) for _ in range(50)]
    rest = iter(given)
    monkeypatch.setattr(torch, "empty_like", lambda _: next(rest))

    assert sharing.at_an_old_address({given[one].data_ptr() for one in old}, given[0]) is given[place]


def test_every_wrong_packer_is_named():
    """Every wrong packer is named by a property, every name is that of a wrong packer, and there are at least 20."""
    assert {vice for vice, _ in PAIRS} == set(WRONG)
    assert len(WRONG) >= 20


def test_right_packer(hooklaw):
    """A right packer keeps every property that applies to it."""
    done = hooklaw("packer", RIGHT, "--examples", "5", "--device", "cpu")

    assert done.returncode == 0, done.stdout
    assert ": safe\n" in done.stdout
    assert re.search(r"^(\d+) of \1 properties hold, \d+ not applicable and not counted", done.stdout, re.MULTILINE)


def test_disk(hooklaw):
    """A packer that writes to disk as it claims, and removes its files, has the properties of the medium."""
    done = hooklaw("packer", "wrong_packers:Disk", "-k", "medium", "-k", "lifetime", "--format", "json", path=[DATA])
    outcomes = {row["property"]: row["outcome"] for row in json.loads(done.stdout)}

    assert done.returncode == 0, done.stdout
    assert {outcomes[f"packer.medium.{one}"] for one in ("reached", "released", "given-back")} == {"pass"}


def test_save_on_cpu(hooklaw):
    """The properties that save_on_cpu breaks on the CPU are known, each with a program that imports only torch."""
    done = hooklaw(
        "packer", "torch.autograd.graph:save_on_cpu", "-k", "in-place", "-k", "no-cycle", "-k", "identity.value",
        "--device", "cpu", "--format", "json",
    )  # fmt: skip
    rows = {row["property"]: row for row in json.loads(done.stdout)}
    broken = {one for one, row in rows.items() if row["outcome"] == "fail"}

    assert done.returncode == 1
    assert broken == {
        *(f"packer.in-place.{one}" for one in ("output", "intermediate", "leaf", "view")),
        "packer.lifetime.no-cycle",
    }
    assert rows["packer.identity.value"]["outcome"] == "pass"
    assert "from torch.autograd.graph import save_on_cpu as packer" in rows["packer.lifetime.no-cycle"]["program"]
    assert "hooklaw" not in rows["packer.lifetime.no-cycle"]["program"]


def test_program_runs_by_itself(tmp_path, environment):
    """The printed program is a script that raises the error of the verdict."""
    tried = judge("torch.autograd.graph:save_on_cpu", "packer.lifetime.no-cycle")
    (tmp_path / "shown.py").write_text(tried.program)
    done = subprocess.run([sys.executable, "shown.py"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"AssertionError: {tried.detail}" in done.stderr


def test_broken_should_is_safe_except(hooklaw):
    """A packer that breaks only a SHOULD is safe except for it, and the exit code is 0."""
    done = hooklaw(
        "packer", "wrong_tensors:StridesLost", "-k", "packer.layout.strides", "-k", "packer.identity.value", path=[DATA]
    )

    assert done.returncode == 0
    assert ": safe except for packer.layout.strides\n" in done.stdout
    assert "FAIL  packer.layout.strides (SHOULD): A tensor whose dimensions are permuted" in done.stdout
    assert "1 of 2 properties hold" in done.stdout


def test_crash_and_hang_are_contained(verb, monkeypatch):
    """A packer that ends the process loses one property's result; the program and the tail of stderr are shown."""
    monkeypatch.syspath_prepend(DATA)
    chosen = ("-k", "layout.strides", "-k", "identity.empty", "-k", "identity.scalar", "--examples", "3")
    found = {}
    for name in ("Crashes", "Hangs"):
        done = verb("packer", f"wrong_packers:{name}", *chosen, "--limit", "5", "--format", "json")
        assert done.returncode == 1
        found[name] = {row["property"]: row for row in json.loads(done.stdout)}

    assert found["Crashes"]["packer.layout.strides"]["outcome"] == "crash"
    assert found["Crashes"]["packer.layout.strides"]["detail"] == "the process died: Aborted"
    assert ".permute(" in found["Crashes"]["packer.layout.strides"]["program"]
    assert found["Crashes"]["packer.layout.strides"]["stderr"] == "no third dimension"
    assert found["Hangs"]["packer.identity.empty"]["outcome"] == "timeout"
    assert "shape = [0" in found["Hangs"]["packer.identity.empty"]["program"]
    assert {rows["packer.identity.scalar"]["outcome"] for rows in found.values()} == {"pass"}


def test_what_a_packer_leaves_behind_concerns_no_other_property(hooklaw):
    """After a packer left hooks on the stack, a new worker checks the next property."""
    chosen = ("-k", "context.innermost", "-k", "context.results")
    done = hooklaw("packer", "wrong_packers:HooksLeftOnTheStack", *chosen, "--format", "json", path=[DATA])
    outcomes = {row["property"]: row["outcome"] for row in json.loads(done.stdout)}

    assert outcomes == {"packer.context.innermost": "pass", "packer.context.results": "pass"}


def test_wrong_gradient_is_told_before_an_error():
    """If a packer returns another graph's tensors, the detail is the wrong gradient, not a later error."""
    tried = judge("wrong_packers:NumbersBeginAgainWithEachEntry", "packer.context.entered-again")

    assert tried.detail.startswith("the gradient of the first graph is [5.")


def test_reading_outside_backward_is_a_property_of_its_own():
    """A packer that cannot unpack outside of backward breaks only the properties about that."""

    class OnlyInBackward(wrong_tensors.Copies):
        def unpack(self, packed):
            if torch._C._current_graph_task_id() == -1:
                raise RuntimeError("there is no backward")
            return packed

    found = Checker(examine(OnlyInBackward, "", "cpu", "mine:it"), 5, given_packer=OnlyInBackward)
    outcomes = [
        found.check(_law.properties()[f"packer.{each}"]).outcome
        for each in ("in-place.unpacked", "lifetime.read-again")
    ]

    assert outcomes == [Outcome.PASS, Outcome.FAIL]


def test_tolerance_is_kept_to():
    """A lossy packer must keep its declared tolerance, and must return indices exactly."""
    assert judge("wrong_tensors:IntegersMadeFloats", "packer.identity.value").outcome is Outcome.PASS
    tried = judge("wrong_tensors:ExceedsItsTolerance", "packer.identity.value")

    assert tried.outcome is Outcome.FAIL
    assert "close = partial(within, 1e-06)" in tried.program


def test_smallest_case_is_shown():
    """Hypothesis shrinks the case before it is shown."""
    tried = judge("wrong_tensors:DtypeLost", "packer.identity.value")

    assert "shape = [1]\n" in tried.program
    assert "seed = 0\n" in tried.program


def never(packer, device):
    """Nothing is ever right."""
    with packer():
        pass
    assert device == "moon", "it is no moon"


def test_property_that_a_right_packer_breaks_is_our_fault():
    """A property that a right packer breaks too is an error of the suite, not a failure of the packer."""
    rule = Rule("packer.never", "packer", "Nothing.", Level.SHOULD, "observed", [observed("it")], [], ["any"])
    tried = checker("wrong_tensors:Copies").check(Property(rule, never, {}))

    assert tried.outcome is Outcome.ERROR
    assert tried.detail.endswith("so it says nothing here: it is no moon")


def test_program_that_cannot_be_written_is_our_fault():
    """A failure before a program runs is an error of the suite."""
    rule = Rule("packer.never", "packer", "Nothing.", Level.SHOULD, "observed", [observed("it")], [], ["any"])
    tried = checker("wrong_tensors:Copies").check(Property(rule, lambda packer, unknown: None, {}))

    assert tried.outcome is Outcome.ERROR
    assert "the suite itself raised KeyError" in tried.detail


@pytest.mark.parametrize(
    ("spec", "device", "said"),
    [
        ("nonsense", "cpu", "'nonsense' is not a packer: write module:attribute"),
        ("no_such:thing", "cpu", "cannot import module no_such: ModuleNotFoundError"),
        ("torch:no_such", "cpu", "module torch has no attribute 'no_such'"),
        ("torch:pi", "cpu", "is float, which cannot be called"),
        ("torch.autograd.graph:saved_tensors_hooks", "cpu", "raised when called without arguments, TypeError"),
        ("torch:get_num_threads", "cpu", "returned int, which is not a context manager"),
        (RIGHT, "warp", "--device warp: "),
    ],
)
def test_no_packer(spec, device, said):
    """An object that is not a packer is refused in one sentence that says why."""
    with pytest.raises(PackerError) as refused:
        _service.load(spec, device)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_packer_that_cannot_be_made_here(monkeypatch):
    """For a packer that raises because a device is missing, the message says so, and does not blame arguments."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    made_for_a_gpu = {"__init__": lambda self: torch.accelerator.no_such_thing}

    with pytest.raises(PackerError, match="AttributeError: .*: if it needs a GPU, this machine has none; name"):
        examine(type("ForAGpu", (), made_for_a_gpu), "", "cpu", "mine:ForAGpu")


FOREIGN = """
from hooklaw.packing.control import Right

class Foreign(Right):
    __module__ = "hypothesis.packers"

def made():
    return Foreign()
"""


def test_versions_of_what_is_judged(hooklaw, tmp_path):
    """The version of a packer's package is recorded, also if a user's own function makes the packer."""
    (tmp_path / "mine.py").write_text(FOREIGN)
    done = hooklaw("packer", "mine:made", "-k", "scalar", "--device", "cpu", "--results", "r.jsonl", path=[tmp_path])
    (run,) = records.read(tmp_path / "r.jsonl")

    assert run.header.versions["hypothesis"] == metadata.version("hypothesis")
    assert next(iter(run.header.versions)) == "torch"
    assert f", hypothesis {metadata.version('hypothesis')}): safe\n" in done.stdout
    assert checker(RIGHT)._packer.versions == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no packer is named"),
        (["torch:pi", "--results", "run.jsonl"], "is float, which cannot be called"),
        ([RIGHT, "-k", "zzz", "--results", "run.jsonl"], "no property matches 'zzz': `hooklaw packer --list`"),
        ([RIGHT, "-k", "identty"], "no property matches 'identty': did you mean identity?"),
        (["torch.autograd.graph:save_on_cpuu"], "has no attribute 'save_on_cpuu' (did you mean save_on_cpu?)"),
        (["torch.autograd.grap:save_on_cpu"], "No module named 'torch.autograd.grap' (did you mean graph?)"),
        ([RIGHT, "--device", "cpu", "--device", "cpu"], "a device is named twice"),
        ([RIGHT, "--examples", "0"], "argument --examples: invalid examples value: '0'"),
        ([RIGHT, "--expectations", "no.toml"], "cannot read the expectation file no.toml"),
        ([RIGHT, "--results", "/proc/none/here"], "cannot write the results to /proc/none/here"),
    ],
)
def test_bad_input(hooklaw, tmp_path, arguments, said):
    """An error on the command line is one sentence and exit code 3, and leaves no file behind."""
    done = hooklaw("packer", *arguments)

    assert done.returncode == 3
    assert said in complaint(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("declared", "said"),
    [({"tolerance": 2}, "its tolerance is 2: declare a number"), ({"medium": 3}, "its medium is 3: declare a text")],
)
def test_bad_declaration(declared, said):
    """A malformed declaration is refused."""
    packer = type("Declares", (wrong_tensors.Copies,), declared)

    with pytest.raises(PackerError, match=said):
        examine(packer, "", "cpu", "mine:Declares")


def test_torch_is_missing(hooklaw, tmp_path):
    """Without torch the verb says so in one sentence."""
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')")
    done = hooklaw("packer", "mine:Packer", path=[tmp_path], apart=True)

    assert done.returncode == 3
    assert "packers are judged with torch, which does not import: there is no torch" in complaint(done)


def test_verb_imports_no_torch(environment):
    """Only workers import torch."""
    check = "import sys, hooklaw.cli.packer, hooklaw.packing.fixture; raise SystemExit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], env=environment, check=False)

    assert done.returncode == 0


def test_records_make_a_report(hooklaw, tmp_path):
    """A packer's results are an ordinary run, which can be read back and reported."""
    arguments = ("-k", "no-cycle", "-k", "layout.strides", "--results", "packer.jsonl")
    hooklaw("packer", "torch.autograd.graph:save_on_cpu", *arguments)
    (run,) = records.read(tmp_path / "packer.jsonl")
    made = hooklaw("report", "packer.jsonl")

    assert run.header.title == "packer:torch.autograd.graph:save_on_cpu"
    assert run.outcome("packer.lifetime.no-cycle") is Outcome.FAIL
    assert run.results["packer.lifetime.no-cycle"].program.startswith("import torch\n")
    assert made.returncode == 0
    assert "packer.lifetime.no-cycle" in (tmp_path / "report.html").read_text()


def test_known_fault(hooklaw, tmp_path):
    """A failure in the expectation file is known, with exit code 0; a fixed one has exit code 2."""
    known = entry(rule="packer.lifetime.no-cycle", reason="it keeps the tensor", saw="outlives its last reference")
    (tmp_path / "known.toml").write_text(known)
    arguments = ("-k", "no-cycle", "--expectations", "known.toml")
    known, mended = (hooklaw("packer", spec, *arguments) for spec in ("torch.autograd.graph:save_on_cpu", RIGHT))

    assert (known.returncode, mended.returncode) == (0, 2)
    assert "KNOWN FAIL  packer.lifetime.no-cycle" in known.stdout
    assert "known: it keeps the tensor" in known.stdout


def test_markdown_and_list(hooklaw):
    """The verdict can be put into an issue, and the properties can be listed."""
    done = hooklaw("packer", "torch.autograd.graph:save_on_cpu", "-k", "no-cycle", "--format", "markdown")
    listed = hooklaw("packer", "--list")

    assert done.stdout.startswith("**torch.autograd.graph:save_on_cpu on cpu (torch ")
    assert "```python\nimport torch\n" in done.stdout
    assert listed.stdout.count("\nMUST ") + listed.stdout.count("\nSHOULD ") + 1 == len(_law.properties())


FIXTURE = """
from hooklaw.packing.fixture import each_property
from wrong_packers import DeleteOnUnpack
from wrong_tensors import Copies, StridesLost

def test_right(check_packer):
    rows = check_packer("hooklaw.packing.control:Right", only=["identity.scalar"])
    assert [row.outcome for row in rows] == ["pass"]

def test_should(check_packer):
    check_packer(StridesLost, only=["layout.strides"])

def test_strict(check_packer):
    check_packer(StridesLost, only=["layout.strides"], strict=True)

def test_known(check_packer):
    check_packer(DeleteOnUnpack, only=["retain-graph"], known=["packer.lifetime.retain-graph"])

def test_fixed(check_packer):
    check_packer(Copies, only=["retain-graph"], known=["packer.lifetime.retain-graph"])

def test_mistyped(check_packer):
    check_packer("wrong_tensors:Copies", known=["packer.lifetime.retain-grahp"])

def test_wrong(check_packer):
    class Mine(DeleteOnUnpack): pass
    check_packer(Mine, only=["retain-graph"])

@each_property("wrong_packers:DeleteOnUnpack", only=["retain-graph", "layout.strides", "medium.reached"])
def test_each(holds):
    holds()

@each_property(StridesLost, only=["layout.strides"], known=["packer.layout.strides"])
def test_each_known(holds):
    holds()

@each_property(Copies, only=["layout.strides"], known=["packer.layout.strides"])
def test_each_fixed(holds):
    holds()
"""


def test_fixture(tmp_path, environment):
    """In an author's own tests an unsafe packer fails its test, with a program that shows why."""
    (tmp_path / "test_mine.py").write_text(FIXTURE)
    command = [sys.executable, "-m", "pytest", "-p", "hooklaw.packing.fixture", "-c", "/dev/null", "test_mine.py", "-q"]
    alone = environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)

    failed = set(re.findall(r"^FAILED test_mine.py::(\S+)", done.stdout, re.MULTILINE))
    assert failed == {
        "test_strict",
        "test_fixed",
        "test_mistyped",
        "test_wrong",
        "test_each[packer.lifetime.retain-graph]",
        "test_each_fixed[packer.layout.strides]",
    }, done.stdout + done.stderr
    assert "BrokenShouldWarning: packer.layout.strides (SHOULD) does not hold: " in done.stdout
    assert "known to fail, and holds now: packer.lifetime.retain-graph; remove it from `known`" in done.stdout
    assert (
        "no property has the id 'packer.lifetime.retain-grahp': did you mean packer.lifetime.retain-graph"
        in done.stdout
    )
    assert "# packer is what the test handed over" in done.stdout
    assert "from wrong_tensors import StridesLost as packer" in done.stdout


@pytest.mark.parametrize("parts", [{"property_id": "packer.identity.value"}, {"wrong": []}, {"level": Level.MUST}])
def test_registry_refuses(parts):
    """A property with a taken id, without a wrong packer, or that is a MUST but only observed is refused."""
    whole = {"property_id": "packer.new", "wrong": ["any"], "level": Level.SHOULD, "sources": [observed("it")]}
    whole |= parts

    with pytest.raises(RuleDefinitionError):
        _law.law(whole.pop("property_id"), **whole)(never)


def test_program_holds_what_it_uses():
    """A program has its imports first, then helpers, then its case, then its body."""
    case = {"device": "'cpu'", "close": "identical", "tensor": "numbers(2, 2, device=device)"}
    text = program(_law.properties()["packer.layout.views"].program, "from mine import Mine as packer", case)
    places = [text.index(one) for one in ("import torch", "from mine", "def numbers", "close = ", "back = saved(")]

    assert places == sorted(places)
    assert "def within" not in text


DEDUPLICATES = """
from torch.autograd.graph import saved_tensors_hooks

KNOWN = {}

class ByAddress(saved_tensors_hooks):
    "Takes a tensor at an address that it has seen for the one that it has seen."

    def __init__(self):
        def pack(tensor):
            return KNOWN.setdefault((tensor.data_ptr(), tensor.shape), tensor.detach().clone())

        super().__init__(pack, lambda packed: packed)
"""


def test_an_address_keyed_packer_breaks_the_same_properties_in_every_run(verb, tmp_path, monkeypatch):
    """Whatever ran before, and however memory lies, a packer that keys by address breaks the same properties."""
    (tmp_path / "mine.py").write_text(DEDUPLICATES)
    monkeypatch.syspath_prepend(tmp_path)
    choices = (["-kidentity", "-kcheckpoint", "-kgraph", "-ksharing"], ["-kgraph", "-ksharing"], ["-ksharing"])
    runs = [verb("packer", "mine:ByAddress", *choice, "--format", "json") for choice in choices]
    broken = [{row["property"] for row in json.loads(done.stdout) if row["outcome"] == "fail"} for done in runs]

    names = ("same-address", "reused-address", "changed-between")
    assert broken[2] == {f"packer.sharing.{name}" for name in names}
    assert broken[1] == broken[0] == broken[2] | {"packer.graph.training"}


class Pickles(wrong_tensors.Copies):
    """Keeps each tensor as bytes."""

    def pack(self, tensor):
        """Return the tensor's bytes."""
        return pickle.dumps(tensor.detach())

    def unpack(self, packed):
        """Return the tensor."""
        return pickle.loads(packed)  # noqa: S301 - it is ours


def test_a_packer_may_pickle():
    """A packer that pickles tensors finds the class of the suite's own subclass."""
    pickles = Checker(examine(Pickles, "", "cpu", "it"), 5, given_packer=Pickles)
    properties = _law.properties()
    outcomes = {name: pickles.check(properties[f"packer.layout.{name}"]).outcome for name in ("subclass", "strides")}

    assert outcomes == {"subclass": Outcome.PASS, "strides": Outcome.PASS}


def test_a_sparse_tensor_left_alive_is_no_fault():
    """A property that adds up the memory of live tensors passes over a sparse tensor that something else keeps."""
    kept = torch.eye(2).to_sparse()

    assert judge(RIGHT, "packer.lifetime.dropped").outcome is Outcome.PASS
    assert kept.layout is not torch.strided
