"""A program's forward is parted from the rest, and both can be compiled; the committed corpus has everything in it."""

import json
import warnings
from collections import Counter
from pathlib import Path

import pytest

import hooklaw.fuzz
from helpers import complaint, diverges
from hooklaw.fuzz.emit.compiled import compiled, parted
from hooklaw.fuzz.judge.compare import by_name, same, streams
from hooklaw.fuzz.judge.judge import engine
from hooklaw.fuzz.program import Instruction as Do
from hooklaw.fuzz.program import action_of, parse
from hooklaw.fuzz.replay.hooks import ACTIONS
from hooklaw.fuzz.replay.operations import OPERATIONS
from hooklaw.fuzz.replay.run import replay

pytest.importorskip("torch")

from hooklaw_backends.compiled_programs import NotCompiledError, replay_compiled
from hooklaw_backends.torch_eager import TorchEager

CORPUS = Path(hooklaw.fuzz.__file__).with_name("corpus.jsonl")
X = Do("leaf", ("x1",), (), ((2,), "float64", True))
SQUARE = Do("mul", ("v2",), ("x1", "x1"))
HOOK = Do("hook", ("h3",), ("v2",), (("scale", 2),))
ON_LEAF = Do("hook", ("h4",), ("x1",), (("nothing",),))
BACKWARD = Do("backward", (), ("v2",), (1.0, None, False))
PROGRAM = (X, SQUARE, HOOK, ON_LEAF, BACKWARD)


def test_what_is_set_up_comes_before_the_forward():
    """Leaves and the hooks on them come first, what makes tensors and the hooks on those is the forward."""
    parts = parted(PROGRAM)

    assert parts == ((X, ON_LEAF), (SQUARE, HOOK), (BACKWARD,))


def test_a_context_that_stays_open_ends_the_forward():
    """A forward function cannot leave a context open, so it ends before that; one that is left is a part of it."""
    enter, leave = Do("no_grad"), Do("leave")

    assert parted((X, SQUARE, enter, HOOK)).rest == (enter, HOOK)
    assert parted((X, SQUARE, enter, leave, HOOK)).forward == (SQUARE, enter, leave, HOOK)
    assert parted((X, SQUARE, leave, HOOK)).rest == (leave, HOOK)


def test_what_fails_ends_the_forward():
    """An instruction that fails is none of the forward."""
    assert parted((X, SQUARE, HOOK), failed=[2]).rest == (HOOK,)


def test_the_code_calls_a_compiled_function():
    """The forward is a function of the leaves that is compiled, and the backward runs under compiled autograd."""
    script = compiled(parted(PROGRAM), [], "eager", ["forward", "backward"])

    assert "def forward(x1):\n    v2 = x1 * x1\n    v2.register_hook(h3)\n    return v2\n" in script
    assert 'v2 = torch.compile(forward, backend="eager")(x1)' in script
    assert 'with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):' in script


@pytest.mark.parametrize(("forward", "backward"), [(True, False), (False, True), (True, True)])
def test_a_plain_program_shows_the_same_compiled(forward, backward):
    """Where nothing special is in a program, each name shows the same whatever is compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program, observed = replay_compiled(PROGRAM, "eager", forward=forward, compiled_autograd=backward)
    expected = streams(replay(program, TorchEager()))

    assert expected.keys() == streams(observed).keys()
    assert all(same(expected[name], seen) for name, seen in streams(observed).items())


def test_what_has_no_forward_is_not_compiled():
    """A program without a forward is said to be not compiled, and why."""
    with pytest.raises(NotCompiledError, match="no forward"):
        replay_compiled((X, BACKWARD._replace(used=("x1",))), "eager")


def test_streams_leave_out_what_a_compiler_may_choose():
    """Events go by their names, errors by their steps; what is saved is left out."""
    events = [("h1", 1.0), ("c2.pack", 2.0), ("error", 3, "backward", "planned"), ("h1", 4.0)]

    assert streams(events) == {"h1": [events[0], events[3]], "error 3": [events[2]]}


def test_order_between_names_is_free():
    """Compared by streams, events of two names may be swapped, and those of one name not."""
    program = (*PROGRAM[:4], BACKWARD._replace(how=(1.0, True, False)), BACKWARD)
    law = engine(())
    trace = replay(program, law)
    assert [event[0] for event in trace[:2]] == ["h3", "h4"]

    swapped = [trace[1], trace[0], *trace[2:]]
    assert diverges(program, law, swapped) is not None
    assert diverges(program, law, swapped, stream=by_name) is None
    other = [trace[0], ("h4", [9.0, 9.0], False), *trace[2:]]
    assert diverges(program, law, other, stream=by_name) is not None
    assert diverges(program, law, trace[:-1], stream=by_name) is not None


KNOWN = (4, 27, 30, 33, 36, 155)
AS_EAGER = (5, 10, 24, 114)
NOT_COMPILED = (9, 51)


def test_the_corpus_holds_no_surprise(verb, tmp_path):
    """Programs of the corpus that are compiled differ in known ways only, and what is not compiled is said."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(lines[number - 1] for number in (*KNOWN, *AS_EAGER, *NOT_COMPILED)))
    done = verb("fuzz", "--backend", "torch-compile:aot_eager", "--replay", few, "--format", "json")
    found = json.loads(done.stdout)

    assert done.returncode == 0, done.stdout
    assert (found["programs"], found["skipped"], sum(found["not_replayed"].values())) == (10, 2, 2)
    assert sum(one["count"] for one in found["findings"] if one["kind"] == "differs") == len(KNOWN)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("eager+autograd", "unknown mode 'autograd' after the +: use compiled-autograd or compiled-autograd+forward"),
        ("eagre+compiled-autograd", "torch.compile has no backend 'eagre': did you mean eager"),
    ],
)
def test_wrong_mode(verb, argument, says):
    """A mode that does not exist is refused in one sentence."""
    done = verb("fuzz", "--backend", f"torch-compile:{argument}")

    assert done.returncode == 3
    assert says in complaint(done)


def test_the_corpus_has_everything():
    """Each operation and each action is in several programs of the corpus, all of 4 to 10 instructions."""
    programs = [parse(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    operations = Counter(one.op for program in programs for one in program)
    actions = Counter((action_of(one) or ("nothing",))[0] for program in programs for one in program)

    assert len(programs) == 277
    assert {len(program) for program in programs} <= set(range(4, 11))
    assert all(operations[name] >= 2 for name in OPERATIONS), operations
    assert all(actions[name] >= 2 for name in ACTIONS), actions
