"""The fuzzer's parts: programs, their generator, the comparison with the engine, and shrinking."""

import gc
import weakref
from collections import Counter
from random import Random

import pytest

from helpers import diverges
from hooklaw.errors import ProgramError
from hooklaw.fuzz.draw.builder import RandomChoices
from hooklaw.fuzz.draw.random_programs import from_seed, wide
from hooklaw.fuzz.judge.compare import SCHEDULES, follow, same
from hooklaw.fuzz.judge.judge import Judge, alike, engine
from hooklaw.fuzz.program import Instruction, dump, parse, text
from hooklaw.fuzz.replay import functions, hooks, modules, passes
from hooklaw.fuzz.replay.operations import OPERATIONS
from hooklaw.fuzz.replay.run import Replay, replay
from hooklaw.fuzz.shrink import renamed, shrink, skeleton
from hooklaw.model.schedule import chosen_by

X = Instruction("leaf", ("x",), (), ((2,), "float64", True))
Y = Instruction("scale", ("y",), ("x",), (2,))
HOOK = Instruction("hook", ("h",), ("y",), (("scale", 2),))
BACKWARD = Instruction("backward", (), ("y",), (1.0, None, False))
MANY, RARE = 3000, 30_000


@pytest.fixture(scope="module")
def programs():
    """Draw some programs once."""
    return [from_seed(11, number) for number in range(MANY)]


def test_same_seed_same_programs(programs):
    """A seed and a number give one program, another number another one."""
    assert from_seed(11, 7) == programs[7]
    assert len(set(programs)) > MANY * 0.99
    assert from_seed(12, 7) != programs[7]


def test_program_survives_being_written(programs):
    """A program is read back as it was."""
    assert all(parse(dump(program)) == program for program in programs)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[1]",
        "[[1,[],[],[],0]]",
        '[["leaf",["x"],[],[]]]',
        '[["leaf",[1],[],[],0]]',
        '[["leaf",[],[],[],"0"]]',
    ],
)
def test_bad_program_is_refused_in_one_sentence(line):
    """A line that is not a program is refused by a sentence that says what a program is."""
    with pytest.raises(ProgramError, match="not a program: .*write a JSON list"):
        parse(line)


@pytest.mark.parametrize(
    ("how", "shown"),
    [
        (((2, 2), "float64", True), "leaf((2, 2), float64, True)"),
        (((2,), "float64", False), "leaf((2,), float64, False)"),
        (((), "float32", False), "leaf((), float32, False)"),
        ((("nothing",), "all"), "leaf(nothing, all)"),
        ((("scale", 2),), "leaf(scale(2))"),
    ],
)
def test_arguments_are_printed_as_what_they_are(how, shown):
    """A shape is printed as a tuple, an action as its word or as a call."""
    assert text([X._replace(how=how)]) == f"x = {shown}"


def test_everything_is_drawn(programs):
    """Every instruction, action, pair, custom Function and module kind turns up."""
    drawn = Counter(one.op for program in programs for one in program)
    words = Counter(
        word
        for program in programs
        for one in program
        for part in one.how
        for word in (part if isinstance(part, tuple) else (part,))
        if isinstance(word, str)
    )

    assert set(OPERATIONS) == set(drawn)
    assert set(hooks.ACTIONS) | set(passes.PACKERS) | set(functions.PLAIN) | set(modules.FORWARDS) <= set(words)
    assert set(functions.MARKED) <= set(words)


def test_most_programs_do_something(programs):
    """Most programs run a backward, gradients arrive in most of these, and few instructions are refused."""
    judge = engine(())
    traces = [replay(program, judge) for program in programs[:500]]
    passes = [any(one.op == "backward" for one in program) for program in programs[:500]]
    arrived = [any(event[0].endswith(".grad") for event in trace) for trace in traces]

    assert sum(passes) > 400
    assert sum(arrived) > 0.75 * sum(passes)
    assert sum(event[0] == "error" for trace in traces for event in trace) < 500


def test_instruction_with_an_unknown_name_is_skipped():
    """What uses a name that nothing has made does nothing, so that any instruction can be left out."""
    assert replay([Y, HOOK, BACKWARD], engine(())) == []


def test_run_goes_on_after_an_error():
    """An error is an event, and the rest is run."""
    broken = HOOK._replace(made=("i",), how=(("raise",),))
    trace = replay([X, Y, broken, BACKWARD, Instruction("remove", (), ("i",)), BACKWARD], engine(()))

    assert trace == [
        ("i", [1.0, 1.0], False),
        ("error", 3, "backward", "planned"),
        ("x.grad", [2.0, 2.0]),
        ("x.grad", [2.0, 2.0]),
    ]


def test_nothing_is_left_behind():
    """A context that a program does not leave is left, and a hook on all modules removed."""
    judge = engine(())
    entered = [Instruction("saved_hooks", ("c",), (), ("raise",)), Instruction("no_grad", thread=1)]
    everywhere = Instruction("global_hook", ("h",), (), ("forward", ("raise",), ()))
    replay([*entered, everywhere], judge)

    module = Instruction("module", ("m", "p"), ("x",), ("weighted",))
    seen = replay([X, module, Instruction("call", ("v",), ("m", "x"))], judge)

    assert not any(event[0] == "error" for event in seen)


def test_run_leaves_no_cycles():
    """What a program made goes with the run, hooks that hold the run included, without a collection of garbage."""
    made = []
    run = Replay(engine(()), lambda _: made.append(weakref.ref(run.tensors["y"])))
    gc.disable()
    try:
        run.all((X, Y, HOOK, BACKWARD))
        left = [one() for one in made]
    finally:
        gc.enable()

    assert left
    assert not any(one is not None for one in left)


def test_legal_orders_are_no_difference():
    """What the engine shows in a random order of ready Nodes is found again, whatever that order shows."""
    judge, differing = engine(()), 0
    for number in range(600):
        program, events = wide(RandomChoices(11, number)), []
        judge.reset()
        with chosen_by(Random(number).randrange):  # noqa: S311 - it is no secret
            Replay(judge, events.append).all(program)
        differing += events != replay(program, judge)
        assert follow(program, judge, events, SCHEDULES).fits, text(program)

    assert differing > 300  # or the orders were all the usual one


def test_order_within_a_tensor_is_a_difference():
    """Two hooks of one tensor that swap are no legal order."""
    program = [X, Y, HOOK, HOOK._replace(made=("i",)), BACKWARD]
    trace = replay(program, engine(()))
    parted = diverges(program, engine(()), [trace[1], trace[0], *trace[2:]])

    assert parted is not None
    assert parted.exhausted
    assert parted.matched == 0
    assert parted.expected == trace


def test_missing_and_surplus_events_differ():
    """A trace that ends early differs, and so does one that goes on."""
    program = [X, Y, HOOK, BACKWARD]
    trace = replay(program, engine(()))

    assert diverges(program, engine(()), trace) is None
    assert diverges(program, engine(()), trace[:-1]) is not None
    assert diverges(program, engine(()), [*trace, trace[-1]]) is not None


def test_numbers_are_alike_up_to_rounding():
    """Rounding of the dtype is let pass, more is not."""
    assert same(("v", [1.0, 2.0]), ("v", [1.0, 2.0 + 1e-9]))
    assert not same(("v", [1.0, 2.0]), ("v", [1.0, 2.001]))
    assert same(("v", ("float32", [1.0])), ("v", ("float32", [1.00001])))
    assert not same(("v", ("float32", [1.0])), ("v", [1.0]))
    assert same([float("nan"), 0.0], [float("nan"), -0.0])
    assert not same([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    "flag",
    [
        "retain-grad-before-pre-hooks",
        "one-root-is-reached",
        "unneeded-gradients-are-none",
        "post-accumulate-returns-none",
        "multi-grad-hooks-take-no-leaf-in-grad",
        "split-parts-stay-as-they-are",
        "numbers-are-freed",
        "multi-grad-hooks-take-no-constants",
        "the-first-gradient-may-be-none",
    ],
)
def test_departures_are_told_apart(flag):
    """A backend that is the engine with one departure is soon found, and the difference explained by that one."""
    judge = Judge(engine([flag]))
    many = RARE if flag in ("one-root-is-reached", "post-accumulate-returns-none") else MANY
    programs = (from_seed(11, number) for number in range(many))
    found = next(difference for program in programs if (difference := judge(program)) is not None)

    assert found.flags == {flag}


def test_shrinks_to_what_matters(programs):
    """A long program that shows a departure comes down to a few instructions, and still shows it."""
    judge = Judge(engine(["retain-grad-before-pre-hooks"]))
    program = next(program for program in programs if len(program) > 8 and judge(program))
    still = alike(judge, frozenset({"retain-grad-before-pre-hooks"}))
    small = shrink(program, still)

    assert still(small)
    assert len(small) <= 6
    assert shrink(small, still) == small


def test_names_are_numbered_in_order():
    """Programs that differ in names alone are one after renaming."""
    other = [one._replace(made=tuple(f"{name}9" for name in one.made)) for one in (X, Y)]
    other[1] = other[1]._replace(used=("x9",))

    assert renamed((X, Y)) == renamed(tuple(other))
    assert skeleton((X, Y, HOOK, BACKWARD)) == "leaf scale hook(scale) backward"
