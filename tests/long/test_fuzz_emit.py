"""Emitted code is plain PyTorch that shows, event by event, what a replay of its program shows."""

import subprocess
import sys
import warnings
from itertools import product

import pytest

from hooklaw.backend.loading import load
from hooklaw.fuzz.campaign.process import LIMIT, Target, Worker, limit_time
from hooklaw.fuzz.draw._passes import UNUSED
from hooklaw.fuzz.draw.random_programs import from_seed
from hooklaw.fuzz.emit import code
from hooklaw.fuzz.emit._executed import Carried
from hooklaw.fuzz.emit.run_script import events_of
from hooklaw.fuzz.judge.compare import same
from hooklaw.fuzz.program import Instruction as Do
from hooklaw.fuzz.program import Program, text
from hooklaw.fuzz.replay import functions, hooks, modules, passes, regions
from hooklaw.fuzz.replay.operations import OPERATIONS, having
from hooklaw.fuzz.replay.run import replay

torch = pytest.importorskip("torch")

RANDOM = 300
X = Do("leaf", ("x1",), (), ((2, 2), "float64", True))
BACKWARD = Do("backward", (), ("v2",), (1.0, None, False))
WAYS = ("hook", "prehook", "posthook", "post_accumulate", "multi_grad")
KINDS = {"h1": "backward", "h2": "full_backward"}
ACTIONS = {
    "scale": (2,),
    "remove": ("h4",),
    "peek": ("x1",),
    "drop": ("x1",),
    "step": ("o9",),
    "backward": ("x1",),
    "keep": ("k9",),
}
OPERATION = {
    "save": Do("save", (), ("x1",)),
    "save and go on": Do("save", ("x9",), ("x1",)),
    "value": Do("value", (), ("v2",)),
    "own": Do("own", ("x9",), ("v2",)),
    "give": Do("give", (), ("x1", "v2")),
    "take": Do("take", ("g9",), ("x1",)),
    "mode": Do("mode"),
    "anomaly": Do("detect_anomaly"),
    "inference": Do("inference_mode"),
    "flag": Do("flag", (), ("x1",), (False,)),
    "bump": Do("bump", (), ("v2",)),
    "edge": Do("edge", ("e9",), ("v2",)),
    "inspect": Do("inspect", (), ("v2",)),
    "forget": Do("forget", (), ("v2",)),
    "zero": Do("zero", (), ("x1",)),
    "retain_grad": Do("retain_grad", (), ("v2",)),
    "remove": Do("remove", (), ("h4",)),
    "grad": Do("grad", ("g9",), ("v2", "x1"), (1.0, True, True)),
    "scale_": Do("scale_", (), ("v2",), (3,)),
    "mul_": Do("mul_", (), ("v2", "v2")),
    "cos_": Do("cos_", (), ("v2",)),
    "split": Do("split", ("v8", "v9"), ("v2",)),
    "view": Do("view", ("v9",), ("v2",), (4,)),
    "scale": Do("scale", ("v9",), ("v2",), (3,)),
    "shift": Do("shift", ("v9",), ("v2",), (3,)),
}
FEW = (
    *(Do(op, ("v9",), ("v2", "x1")) for op in ("add", "sub", "mul")),
    *(Do(op, ("v9",), ("v2",)) for op in ("sin", "cos", "exp", "sum", "clone", "detach", "transpose")),
    *OPERATION.values(),
)


@pytest.fixture(scope="module")
def torch_eager():
    """Give the adapter that replays."""
    return load("torch-eager")


@pytest.fixture(scope="module")
def held():
    """Give it for processes of their own."""
    return Target("torch-eager")


def agrees(program: Program, backend) -> None:
    """Fail unless the code of a program shows what its replay shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of .grad of a non-leaf, and of create_graph
        expected = replay(program, backend)
        script = code.code(program, expected, log=True)
        shown = events_of(script, program, backend)

    shows_the_same(program, script, expected, shown)


def shows_the_same(program: Program, script: str, expected, shown) -> None:
    """Fail unless code has shown what was expected of its program."""
    expected, shown = map(without_layouts, (expected, shown))

    assert same(expected, shown), f"{text(program)}\n\n{script}\n{expected}\n{shown}"


def without_layouts(events):
    """Leave out how saved tensors are laid out, of which a replay says less than code can."""
    return [without_layout(*event) for event in events]


def without_layout(label: str, *shown):
    """Leave it out of one event."""
    if label.endswith(".saved"):
        return label, shown[0], *(standing[:4] for standing in shown[1:])
    return (label, *shown[:5], shown[6]) if label.endswith(".pack") else (label, *shown)


@pytest.fixture(scope="module")
def replayed(held):
    """Replay random programs once; give them, and what each that did not end the process has shown."""
    programs = [from_seed(1, number) for number in range(RANDOM)]
    return programs, in_a_process(held, replay, list(product(programs, [held.backend])))


@pytest.mark.parametrize("known", [True, False])
def test_random_programs_show_the_same(held, replayed, known):
    """What a random program shows when it is replayed, its code shows too, whether it was told of errors or not."""
    programs, expected = replayed
    alive = [number for number in range(RANDOM) if number in expected]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a module whose output is no tensor
        told = {number: expected[number] if known else None for number in alive}
        scripts = {number: code.code(programs[number], told[number], log=True) for number in alive}
    shown = in_a_process(held, events_of, [(scripts[number], programs[number], held.backend) for number in alive])

    assert len(alive) > 0.9 * RANDOM
    for place, number in enumerate(alive):
        seen = shown.get(place)
        assert seen is not None, f"its code ends the process:\n{scripts[number]}"
        shows_the_same(programs[number], scripts[number], expected[number], seen)


def in_a_process(held, function, calls):
    """Return what each call returns, by its place; those that end the process, as torch does with some, have none."""
    returned, at = {}, 0
    while at < len(calls):
        child = Worker(held, one_by_one, function, calls[at:])
        answers = list(iter(child.answer, None))
        returned.update(enumerate(answers, start=at))
        at += len(answers) + (child.ending() is not None)
    return returned


def one_by_one(_judge, line, function, calls) -> None:
    """Tell what each call returns."""
    for one in calls:
        limit_time(LIMIT)
        line.send(function(*one))


@pytest.mark.parametrize("one", FEW, ids=str)
def test_each_operation_shows_the_same(torch_eager, one):
    """An operation between a forward with a hook and a backward shows the same."""
    hook = Do("hook", ("h4",), ("v2",), (("nothing",),))

    agrees((X, Do("mul", ("v2",), ("x1", "x1")), hook, one, BACKWARD), torch_eager)


@pytest.mark.parametrize(("way", "action"), list(product(WAYS, hooks.ACTIONS)))
def test_each_hook_shows_the_same(torch_eager, way, action):
    """Every action of every kind of hook shows the same, twice over."""
    what = (action, *ACTIONS.get(action, ()))
    if (way, action) == ("multi_grad", "keep"):
        pytest.skip("no program keeps the whole list of gradients")
    how = (what, "all") if way == "multi_grad" else (what,)
    hook = Do(way, ("h3",), ("x1",), how)
    other = Do("hook", ("h4",), ("v2",), (("nothing",),))
    again = BACKWARD._replace(how=(2.0, True, False))

    agrees((X, Do("mul", ("v2",), ("x1", "x1")), other, hook, again, again), torch_eager)


@pytest.mark.parametrize("kind", passes.PACKERS)
def test_each_pair_shows_the_same(torch_eager, kind):
    """Every pair of saved-tensor hooks shows the same: in a context, on one saved tensor, and when that is read."""
    context = Do("saved_hooks", ("c3",), (), (kind,))
    pair = Do("saved_pair", ("c4",), ("v2",), (kind,))
    multiply = Do("mul", ("v2",), ("x1", "x1"))

    agrees((X, context, multiply, Do("leave"), Do("read_saved", (), ("v2",)), BACKWARD), torch_eager)
    agrees((X, multiply, pair, BACKWARD), torch_eager)


@pytest.mark.parametrize("function", functions.PLAIN)
def test_each_function_shows_the_same(torch_eager, function):
    """Every custom Function shows the same."""
    used = ("x1", "x1") if function == "product" else ("x1",)
    made = ("v2", "v3") if function == "pair" else ("v2",)

    agrees((X, Do("custom", made, used, (function,)), Do("read_saved", (), ("v2",)), BACKWARD), torch_eager)


@pytest.mark.parametrize("how", [(False, None), (False, False), (True, None), (None, None)], ids=str)
@pytest.mark.parametrize("region", regions.REGIONS)
def test_each_region_shows_the_same(torch_eager, region, how):
    """Every checkpointed region shows the same: kept by its output, run again in each backward, and when it is read."""
    module = Do("module", ("m3", "p4"), ("x1",), ("weighted",))
    used = {"product": ("x1", "x1"), "outside": ("x1", "p4"), "module": ("m3", "x1")}.get(region, ("x1",))
    checkpoint = Do("checkpoint", ("v2", "v5") if region == "two" else ("v2",), used, (region, *how))
    again = BACKWARD._replace(how=(2.0, True, False))

    agrees((X, module, checkpoint, again, Do("read_saved", (), ("v2",)), BACKWARD), torch_eager)


def test_a_region_keeps_what_it_uses(torch_eager):
    """What a region is given, or uses otherwise, lives as long as its graph."""
    scale, other = (Do("scale", (name,), ("x1",), (2,)) for name in ("v3", "v4"))
    checkpoint = Do("checkpoint", ("v2",), ("v3", "v4"), ("outside", False, None))
    forget = tuple(Do("forget", (), (name,)) for name in ("v3", "v4"))

    agrees((X, scale, other, checkpoint, *forget, BACKWARD), torch_eager)
    agrees((X, scale, other, checkpoint, BACKWARD, *forget), torch_eager)


@pytest.mark.parametrize(
    ("kind", "options", "action"),
    [
        *product(("forward_pre", "forward", "full_backward_pre", "full_backward"), ((), ("prepend",)), hooks.ACTIONS),
        *product(("forward_pre", "forward"), (("with_kwargs",),), ("nothing", "scale", "wrong")),
        *product(("forward",), (("always_call",),), ("nothing", "scale")),
        *product(("backward",), ((),), hooks.ACTIONS),
    ],
)
def test_each_module_hook_shows_the_same(torch_eager, kind, options, action):
    """Every hook of every kind of module shows the same, on one module and on all."""
    what = (action, *ACTIONS.get(action, ()))
    for forward in modules.FORWARDS:
        made = (Do("module", ("m3", "p4"), ("x1",), (forward,)),)
        inputs = ("m3", "x1", "x1") if forward in ("two", "joined") else ("m3", "x1")
        call = Do("call", ("v2", "v5") if forward == "two" else ("v2",), inputs, (2.0,) if forward == "scaled" else ())
        hook = Do("module_hook", ("h6",), ("m3",), (kind, what, options))
        agrees((X, *made, hook, call, BACKWARD), torch_eager)
        if not options:
            everywhere = Do("global_hook", ("h6",), (), (kind, what, ()))
            agrees((X, *made, everywhere, call, BACKWARD), torch_eager)


@pytest.mark.parametrize("thread", [0, 1])
@pytest.mark.parametrize("op", sorted(having("enters")))
def test_each_context_shows_the_same(torch_eager, op, thread):
    """Contexts show the same in blocks, in other threads, one in another, empty, and left open."""
    context = Do(op, ("c3",) if op == "saved_hooks" else (), (), ("detach",) if op == "saved_hooks" else (), thread)
    other = Do("disable_saved_hooks", ("c4",), thread=thread)
    leave, fail = Do("leave", thread=thread), Do("leave", (), (), ("failing",), thread)
    multiply = Do("mul", ("v2",), ("x1", "x1"), (), thread)

    agrees((X, context, multiply, leave, leave, BACKWARD), torch_eager)
    agrees((X, other, context, multiply, leave, BACKWARD), torch_eager)
    agrees((X, context, other, multiply, BACKWARD), torch_eager)
    agrees((X, context, leave, multiply, context), torch_eager)
    agrees((X, context, fail, multiply, BACKWARD), torch_eager)


def test_the_less_usual_operations(torch_eager):
    """Layouts, expansions and several threads show the same."""
    wide = Do("leaf", ("x1",), (), ((1, 2, 2, 2), "float64", True))
    column = Do("leaf", ("x1",), (), ((2, 1), "float32", True))
    last = Do("channels_last", ("v2",), ("x1",))

    agrees((wide, last, Do("mul", ("v3",), ("v2", "v2")), BACKWARD), torch_eager)
    agrees((column, Do("expand", ("v2",), ("x1",), (2, 2)), BACKWARD), torch_eager)
    agrees((wide, last, Do("own", ("x3",), ("v2",)), BACKWARD._replace(used=("x3",))), torch_eager)
    integers = Do("leaf", ("x3",), (), ((2, 2), "int64", False))
    agrees((X, integers, Do("mul", ("v2",), ("x1", "x3")), BACKWARD), torch_eager)
    agrees((column, Do("mul", ("v2",), ("x1", "x1"), (), 2), BACKWARD._replace(thread=1)), torch_eager)


def test_a_gradient_that_was_taken(torch_eager):
    """It is shown at each look from then on, and changes in place."""
    multiply = Do("mul", ("v2",), ("x1", "x1"))
    again = BACKWARD._replace(how=(1.0, True, False))

    agrees((X, multiply, again, Do("take", ("g3",), ("x1",)), again, Do("value", (), ("g3",))), torch_eager)


@pytest.mark.parametrize("word", functions.MARKED)
@pytest.mark.parametrize("used", ["v2", "v3", "x1"])
def test_each_function_with_marks_or_options_shows_the_same(torch_eager, word, used):
    """It shows the same of a tensor, of a view, and of a leaf, which none may change."""
    kind = functions.MARKED[word]
    multiply, view = Do("mul", ("v2",), ("x1", "x1")), Do("view", ("v3",), ("v2",), (2, 2))
    inputs = (used, "x1")[: kind.inputs] if kind.changes != 1 else ("x1", used)
    made = ("v4", "v5")[: kind.outputs]
    call = Do("function", made, inputs, (word,))
    passes = [BACKWARD._replace(used=(name,), how=(1.0, True, True)) for name in (*made, "v2")]

    agrees((X, multiply, view, Do("retain_grad", (), ("v2",)), call, *passes), torch_eager)


@pytest.mark.parametrize("words", [(), *UNUSED])
def test_unused_inputs(torch_eager, words):
    """Whatever is said of unused inputs, the code says it too."""
    other = Do("leaf", ("x2",), (), ((2,), "float64", True))
    grad = Do("grad", ("g3", "g4"), ("v2", "x1", "x2"), (1.0, True, False, *words))

    agrees((X, other, Do("mul", ("v2",), ("x1", "x1")), grad, Do("scale", ("v5",), ("g4",), (2,))), torch_eager)


def test_a_leaf_of_inference_mode_in_a_thread(torch_eager):
    """It is made in the thread that is in inference mode, and refused there alone where it is changed."""
    leaf = Do("leaf", ("x2",), (), ((2, 2), "float64", False), 1)
    inside = (Do("inference_mode", thread=1), leaf, Do("scale_", (), ("x2",), (2,), 1))

    agrees((X, *inside, Do("scale_", (), ("x2",), (2,)), Do("mul", ("v3",), ("x1", "x2"))), torch_eager)


@pytest.mark.parametrize("what", ["type", "dtype", "shape", "count", "bare"])
@pytest.mark.parametrize("way", ["hook", "prehook", "posthook"])
def test_each_wrong_result_shows_the_same(torch_eager, way, what):
    """Whatever is the matter with the result of a hook, the code says so too."""
    hook = Do(way, ("h3",), ("v2",), (("wrong", what),))

    agrees((X, Do("mul", ("v2",), ("x1", "x1")), hook, BACKWARD), torch_eager)


def test_a_gradient_edge_in_the_place_of_its_tensor(torch_eager):
    """It is asked for by autograd.grad, together with a tensor, and with a gradient of the wrong shape."""
    multiply, edge = Do("mul", ("v2",), ("x1", "x1")), Do("edge", ("e3",), ("v2",))
    grad = Do("grad", ("g4", "g5"), ("v2", "e3", "x1"), (2.0, True, False))

    agrees((X, multiply, edge, grad, grad._replace(how=("single", None, False))), torch_eager)


def test_forward_past_the_hooks(torch_eager):
    """The forward of a module is called without its hooks."""
    module = Do("module", ("m2", "p2"), ("x1",), ("two",))
    hook = Do("module_hook", ("h3",), ("m2",), ("forward", ("scale", 2), ()))

    agrees((X, module, hook, Do("forward", ("v2", "v4"), ("m2", "x1", "x1")), BACKWARD), torch_eager)


def test_a_module_in_another(torch_eager):
    """A module that calls another shows the same, and so do hooks on all modules."""
    inner = Do("module", ("m2", "p2"), ("x1",), ("weighted",))
    outer = Do("module", ("m3", "p3"), ("x1", "m2"), ("outer",))
    hook = Do("global_hook", ("h4",), (), ("forward", ("scale", 2), ()))

    agrees((X, inner, outer, hook, Do("call", ("v2",), ("m3", "x1")), BACKWARD), torch_eager)


def test_a_copied_module(torch_eager):
    """A copy of a module, and of that copy, shows the same, whatever it returns, with a hook that scales it."""
    for forward in modules.FORWARDS:
        made = Do("module", ("m2", "p2"), ("x1",), (forward,))
        hook = Do("module_hook", ("h3",), ("m2",), ("forward", ("scale", 2), ()))
        copies = Do("copy", ("m4", "p4"), ("m2",)), Do("copy", ("m5", "p5"), ("m4",))
        inputs = ("m5", "x1", "x1") if forward in ("two", "joined") else ("m5", "x1")
        results = ("v2", "v6") if forward in ("two", "named") else ("v2",)
        agrees((X, made, hook, *copies, Do("call", results, inputs), BACKWARD), torch_eager)


def test_a_module_in_replicas(torch_eager):
    """Each runs in a thread of its own, where a context of this one does not reach; a failure is raised here."""
    context = Do("saved_hooks", ("c3",), (), ("detach",))
    for forward in modules.FORWARDS:
        made = Do("module", ("m2", "p2"), ("x1",), (forward,))
        inputs = ("m2", "x1", "x1") if forward in ("two", "joined") else ("m2", "x1")
        agrees((X, made, context, Do("parallel", ("v2",), inputs), BACKWARD), torch_eager)


def test_a_call_that_warns(torch_eager):
    """It is shown that it warns, also where it fails."""
    module = Do("module", ("m2", "p2"), ("x1",), ("listed",))
    full = Do("module_hook", ("h3",), ("m2",), ("full_backward", ("nothing",), ()))
    always = Do("module_hook", ("h4",), ("m2",), ("forward", ("raise",), ("always_call",)))
    fails = Do("module_hook", ("h5",), ("m2",), ("forward_pre", ("raise",), ()))
    call = Do("call", ("v2",), ("m2", "x1"))

    assert ("warned", "v2") in replay((X, module, full, call), torch_eager)
    agrees((X, module, full, call, BACKWARD), torch_eager)
    agrees((X, module, always, fails, call), torch_eager)


@pytest.mark.parametrize("way", ["prehook", "posthook"])
def test_a_node_that_nobody_keeps(torch_eager, way):
    """A hook on a leaf's Node goes with it; one that puts another there keeps it."""
    multiply = Do("mul", ("v2",), ("x1", "x1"))
    for action in ("nothing", "register"):
        hook = Do(way, ("h3",), ("x1",), ((action,), "loose"))
        agrees((X, hook, multiply, BACKWARD), torch_eager)
        agrees((X, multiply, hook, BACKWARD), torch_eager)


def test_hooks_of_both_kinds(torch_eager):
    """All modules take backward hooks of one kind: the other is refused, and not removed in the end."""
    older, full = (Do("global_hook", (name,), (), (kind, ("nothing",), ())) for name, kind in KINDS.items())

    agrees((older, full), torch_eager)
    agrees((full, older), torch_eager)


def test_a_gradient_that_was_never_given(torch_eager):
    """What nothing has made is given to nobody, so nothing is said of its layout."""
    hook = Do("hook", ("h3",), ("x1",), (("keep", "k4"),))
    multiply = Do("mul", ("v2",), ("x1", "x1"))

    agrees((X, hook, Do("give", (), ("x1", "k4")), multiply, BACKWARD), torch_eager)


def test_everything_has_a_form():
    """Each operation, action and pair that a replay knows has its code; that of the others is read from the replay."""
    assert set(OPERATIONS) == set(code.FORMS)
    assert set(hooks.ACTIONS) == set(code.ACTIONS)
    assert set(passes.PACKERS) == set(code.PACKERS)


def test_lines_are_short_and_plain():
    """No line of the code is too long, and none speaks of this project."""
    for number in range(RANDOM):
        script = code.code(from_seed(2, number))

        assert max(map(len, script.splitlines())) <= 120, script
        assert "hooklaw" not in script


def test_only_what_failed_is_guarded(torch_eager):
    """With the events of a run, a step that went well stands bare; without, whatever may fail is guarded."""
    program = (X, Do("mul", ("v2",), ("x1", "x1")), BACKWARD)

    assert "try" not in code.code(program, replay(program, torch_eager))
    assert "try" in code.code(program)


def test_a_gradient_that_the_law_gives_is_looked_at(torch_eager):
    """Where torch gives no gradient and the law does, the code shows that it is missing."""
    allow = Do("allow_mutation")
    program = (X, allow, Do("cos", ("v2",), ("x1",)), allow, BACKWARD)
    events = replay(program, torch_eager)

    assert "x1.grad" not in {event[0] for event in events}
    assert 'saw("x1.grad", x1.grad)' in code.code(program, events)


SKIPPED = (
    *(Do(op, (), ("v2",)) for op in ("save", "read_saved")),
    Do("saved_pair", ("c9",), ("v2",), ("itself",)),
    Do("mul_", (), ("v2", "v2")),
    Do("leave"),
)


@pytest.mark.parametrize("one", SKIPPED, ids=str)
def test_what_a_replay_skips_is_left_out(torch_eager, one):
    """Whatever a replay skips has no code, and the steps after it keep their numbers."""
    program = (X, Do("clone", ("v2",), ("x1",)), one, Do("view", ("v3",), ("v2",), (3,)))
    without = (*program[:2], program[3])
    script = code.code(program, replay(program, torch_eager))
    shorter = code.code(without, replay(without, torch_eager))

    assert 'saw("error", 2, "view", error)' in shorter
    assert script == shorter.replace('"error", 2, ', '"error", 3, ')


def test_what_lacks_a_name_on_the_engine_alone_has_code():
    """A step is left out for what it would do; that a name is missing is known from the events of torch."""
    leave, lacking = Do("leave"), Do("sin", ("v8",), ("v7",))
    run = Carried((X, leave, lacking))

    assert run.skipped == {1, 2}
    assert run.left_out == {1}


def test_a_hook_that_is_removed_keeps_nothing_alive(torch_eager):
    """A tensor that a hook has held dies with it."""
    hook = Do("hook", ("h3",), ("v2",), (("raise",),))
    program = (X, Do("sin", ("v2",), ("x1",)), hook, Do("remove", (), ("h3",)), Do("forget", (), ("v2",)))

    agrees(program, torch_eager)
    agrees((*program[:3], program[4]), torch_eager)


def test_a_global_hook_that_is_not_given_what_it_asked_for(torch_eager):
    """A hook that torch calls after an error without the keyword arguments that it was to be given shows the same."""
    module, call = Do("module", ("m3", "p4"), ("x1",), ("raises",)), Do("call", ("v2",), ("m3", "x1"))
    hook = Do("global_hook", ("h6",), (), ("forward", ("scale", 2), ("with_kwargs", "always_call")))

    agrees((X, module, hook, call), torch_eager)


def test_a_view_that_is_given_a_new_history(torch_eager):
    """A view learns that its base was changed when it is asked whether it is a leaf; the code asks as a replay does."""
    view, other = (Do("view", (name,), ("v2",), (4,)) for name in ("v3", "v4"))
    retain, change = Do("retain_grad", (), ("v3",)), Do("scale_", (), ("v4",), (3,))
    sum_of, backward = Do("sum", ("v5",), ("v3",)), BACKWARD._replace(used=("v5",), how=(2.0, True, False))

    agrees((X, Do("sin", ("v2",), ("x1",)), view, retain, sum_of, other, change, backward, backward), torch_eager)


def test_a_gradient_under_two_names(torch_eager):
    """Where torch gives one tensor for two gradients, that of the other is shown too."""
    more = Do("clone", ("v3",), ("v2",)), Do("exp", ("v4",), ("v3",))
    grads = Do("grad", ("g5", "g6"), ("v4", "v2", "v3"), (1.0, True, True))
    backward = BACKWARD._replace(used=("g6", "g6"))

    agrees((X, Do("mul", ("v2",), ("x1", "x1")), *more, grads, backward), torch_eager)


def test_a_name_that_nothing_has_made_is_left_out():
    """An instruction that a replay skips has no code."""
    script = code.code((X, Do("sin", ("v2",), ("v7",)), Do("hook", ("h3",), ("v2",), (("nothing",),))), [])

    assert "v7" not in script
    assert "h3" not in script


@pytest.mark.parametrize("number", [3, 4, 6])
def test_it_runs_on_its_own(number):
    """Pasted into a file the code runs, whatever it was told of errors, and prints its events."""
    script = code.code(from_seed(1, number))
    done = subprocess.run([sys.executable, "-Wignore", "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_hook_on_several_that_is_refused_keeps_nothing_alive(torch_eager):
    """The code has no name for tensors that no hook was put on, nor for those of one that is removed."""
    hook = Do("multi_grad", ("h3",), ("v2",), (("register",), "some"))
    multiply, forget = Do("mul", ("v2",), ("x1", "x1")), Do("forget", (), ("v2",))

    agrees((X, multiply, hook, forget), torch_eager)
    agrees((X, multiply, hook._replace(how=(("register",), "all")), Do("remove", (), ("h3",)), forget), torch_eager)
