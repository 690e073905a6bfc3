"""States and optimizers in programs: each vice is seen in a few instructions, and code shows what a replay shows."""

import sys
from itertools import product

import pytest

from helpers import shows_the_vice
from hooklaw.backend import loading
from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.campaign.process import Target
from hooklaw.fuzz.emit import _state as emit_state
from hooklaw.fuzz.emit import code
from hooklaw.fuzz.emit.run_script import events_of
from hooklaw.fuzz.judge.compare import same
from hooklaw.fuzz.judge.judge import engine
from hooklaw.fuzz.program import Instruction as Do
from hooklaw.fuzz.program import text
from hooklaw.fuzz.replay import _optimizers, state
from hooklaw.fuzz.replay.run import replay
from hooklaw.model.flags import TORCH

torch = pytest.importorskip("torch")

X = Do("leaf", ("x1",), (), ((2,), "float64", True))
INNER = Do("module", ("m1", "p1"), ("x1",), ("weighted",))
OUTER = Do("module", ("m2", "p2"), ("x1",), ("weighted",))
INSIDE = Do("add_module", (), ("m2", "m1"), ("inner",))
BUFFER = Do("register_buffer", (), ("m1", "x1"), ("mean",))
SGD = Do("sgd", ("o1",), ("x1",), (0.5, 0.5))
STEP, ZERO = Do("step", (), ("o1",)), Do("zero_grad", (), ("o1",))
SQUARE = Do("mul", ("v1",), ("x1", "x1"))
BACKWARD = Do("backward", (), ("v1",), (1.0, True, False))
NOTHING = ("nothing",)


def on_registration(kind: str, *action, used: tuple[str, ...] = ()) -> Do:
    """Put a hook on the registrations of a kind."""
    return Do("registration_hook", ("h1",), used, (kind, action))


def on_state(owner: str, kind: str, *action, name: str = "h1", options: tuple[str, ...] = ()) -> Do:
    """Put a hook around the state of a module or an optimizer."""
    return Do("state_hook", (name,), (owner,), (kind, action, options))


def around_step(kind: str, *action, name: str = "h1") -> Do:
    """Put a hook around the steps of the optimizer."""
    return Do("step_hook", (name,), ("o1",), (kind, action))


def saved(owner: str) -> Do:
    """Take a state."""
    return Do("state_dict", ("s1",), (owner,))


def loaded(owner: str) -> Do:
    """Load it again."""
    return Do("load_state_dict", (), (owner, "s1"))


MODULE, PAIR, OPTIMIZER = (X, INNER), (X, INNER, OUTER, INSIDE), (X, SQUARE, SGD)
SEEN = {
    "buffer-registration-hook-lost": (*MODULE, on_registration("buffer", "nothing"), BUFFER),
    "buffer-registration-hook-ignored": (*MODULE, on_registration("buffer", "scale", 2), BUFFER),
    "state-dict-pre-hook-after-the-dict": (
        *PAIR,
        on_state("m2", "state_dict_pre", "nothing"),
        on_state("m1", "state_dict_post", "nothing", name="h2"),
        saved("m2"),
    ),
    "state-dict-post-hook-given-a-copy": (*MODULE, on_state("m1", "state_dict_post", "add"), saved("m1")),
    "state-dict-post-hook-ignored": (*MODULE, on_state("m1", "state_dict_post", "same"), saved("m1")),
    "state-hooks-of-the-outermost-module-alone": (*PAIR, on_state("m1", "state_dict_post", "nothing"), saved("m2")),
    "load-pre-hook-given-a-copy": (
        *MODULE,
        saved("m1"),
        on_state("m1", "load_state_dict_pre", "clear"),
        loaded("m1"),
    ),
    "load-post-hook-given-a-copy": (*MODULE, saved("m1"), on_state("m1", "load_state_dict_post", "add"), loaded("m1")),
    "step-hooks-change-places": (*OPTIMIZER, BACKWARD, around_step("pre", "nothing"), STEP),
    "step-pre-hook-ignored": (*OPTIMIZER, around_step("pre", "closure"), STEP),
    "global-step-post-hook-lost": (*OPTIMIZER, Do("global_step_hook", ("h1",), (), ("post", NOTHING)), STEP),
    "step-pre-hook-handle-removes-nothing": (
        *OPTIMIZER,
        around_step("pre", "nothing"),
        Do("remove", (), ("h1",)),
        STEP,
    ),
    "step-hooks-in-reverse": (*OPTIMIZER, *(around_step("pre", "nothing", name=name) for name in ("h1", "h2")), STEP),
    "state-dict-post-hook-ignored of an optimizer": (
        *OPTIMIZER,
        on_state("o1", "state_dict_post", "another"),
        saved("o1"),
    ),
    "state-dict-pre-hook-prepend-ignored": (
        *OPTIMIZER,
        on_state("o1", "state_dict_pre", "nothing"),
        on_state("o1", "state_dict_pre", "nothing", name="h2", options=("prepend",)),
        saved("o1"),
    ),
    "load-hook-given-the-callers-dict": (
        *OPTIMIZER,
        saved("o1"),
        on_state("o1", "load_state_dict_pre", "add"),
        loaded("o1"),
    ),
    "zero-grad-set-to-none-set-by-its-absence": (*OPTIMIZER, BACKWARD, ZERO),
    "step-takes-none-for-zero": (*OPTIMIZER, STEP),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_vice_is_seen(name):
    """The engine with the vice shows something else than the engine without it."""
    assert shows_the_vice(SEEN[name], name.partition(" ")[0]), text(SEEN[name])


pytestmark = pytest.mark.filterwarnings("ignore")  # of .grad of a non-leaf, and of create_graph


@pytest.fixture(scope="module")
def torch_eager():
    """Give the adapter that replays."""
    return loading.load("torch-eager")


def agrees(program, backend) -> None:
    """Fail unless torch, the engine that plays it and the code of the program show the same."""
    expected = replay(program, backend)
    for events in (expected, None):
        script = code.code(program, events, log=True)
        assert same(events_of(script, program, backend), expected), f"{text(program)}\n\n{script}"

    assert same(replay(program, engine(TORCH)), expected), text(program)


EVERYWHERE = {**dict.fromkeys(("nothing", "raise", "register", "same"), ()), "remove": ("h1",)}
ON_STATES = {**EVERYWHERE, **dict.fromkeys(state.ACTIONS, ())}
AROUND_STEPS = {**EVERYWHERE, "wrong": (), "backward": ("v1",), "peek": ("x1",), "closure": ()}


@pytest.mark.parametrize(("kind", "action"), list(product(state.STATE_HOOKS, ON_STATES)))
def test_each_hook_around_a_state(torch_eager, kind, action):
    """Every hook around the state of a module, of one inside another and of an optimizer shows the same."""
    for owner in ("m1", "m2", "o1"):
        hook = on_state(owner, kind, action, *ON_STATES[action])
        other = on_state(owner, kind, "nothing", name="h2", options=("prepend",) if owner == "o1" else ())
        top = "o1" if owner == "o1" else "m2"
        agrees((*PAIR, SGD, hook, other, saved(top), loaded(top), saved(top), STEP), torch_eager)


@pytest.mark.parametrize(("kind", "action"), list(product(("pre", "post"), AROUND_STEPS)))
def test_each_hook_around_a_step(torch_eager, kind, action):
    """Every hook around the steps of one optimizer, or of all, shows the same."""
    hook = around_step(kind, action, *AROUND_STEPS[action])
    everywhere = Do("global_step_hook", ("h1",), (), hook.how)
    for one in (hook, everywhere):
        agrees((*OPTIMIZER, BACKWARD, one, around_step(kind, "nothing", name="h2"), STEP, STEP), torch_eager)


@pytest.mark.parametrize("action", ["nothing", "scale", "raise", "register", "remove", "instead"])
@pytest.mark.parametrize("kind", ["parameter", "buffer", "module"])
def test_each_hook_on_registrations(torch_eager, kind, action):
    """Every hook on registrations shows the same, what is registered in the place of something else too."""
    another = Do("module", ("m3", "p3"), ("x1",), ("unweighted",))
    used = ("m3" if kind == "module" else "p3",) if action == "instead" else ()
    hook = on_registration(kind, action, *((2,) if action == "scale" else ()), used=used)

    agrees((X, another, hook, hook._replace(made=("h2",)), INNER, OUTER, INSIDE, BUFFER, saved("m2")), torch_eager)


@pytest.mark.parametrize("how", [(), (True,), (False,)])
def test_gradients_that_are_reset(torch_eager, how):
    """A gradient that has a name is changed by writing zeros over it, and not by being dropped."""
    take = Do("take", ("g1",), ("x1",))

    agrees((*OPTIMIZER, BACKWARD, take, ZERO._replace(how=how), STEP, BACKWARD._replace(used=("x1",))), torch_eager)


def test_a_step_in_backward(torch_eager):
    """A step made as soon as a gradient is there changes a leaf that the graph has saved."""
    hook = Do("post_accumulate", ("h1",), ("x1",), (("step", "o1"),))
    gone = Do("post_accumulate", ("h2",), ("x1",), (("step", "o9"),))

    agrees(
        (*OPTIMIZER, hook, gone, Do("exp", ("v2",), ("v1",)), BACKWARD._replace(used=("v2",)), BACKWARD), torch_eager
    )


def test_in_another_thread(torch_eager):
    """What is registered, saved, loaded and changed in another thread shows the same, whatever is recorded here."""
    there = (BUFFER, SGD, STEP, saved("m2"), loaded("m2"), saved("o1"), loaded("o1"))

    agrees((*PAIR, SQUARE, Do("no_grad"), *(one._replace(thread=1) for one in there)), torch_eager)


@pytest.mark.parametrize(
    "one",
    [
        Do("add_module", (), ("m1", "m2"), ("inner",)),
        Do("sgd", ("o2",), ("v2",), (0.5, 0.0)),
        Do("load_state_dict", (), ("m1", "s1")),
        on_registration("parameter", "instead", used=("v2",)),
    ],
    ids=str,
)
def test_what_is_left_out(torch_eager, one):
    """No module is put inside itself, no optimizer and no hook is given a view, and each state goes where it may."""
    view = Do("view", ("v2",), ("x1",), (2, 1))
    program = (*PAIR, view, SGD, saved("o1"), one, Do("view", ("v3",), ("x1",), (3,)))
    without = (*program[:-2], Do("mode"), program[-1])

    assert [event for event in replay(without, torch_eager) if event[0] != "mode"] == replay(program, torch_eager)
    agrees(program, torch_eager)


def test_a_module_that_takes_its_own_place():
    """Nothing is registered in a module that a hook would put there instead: its state would have no end."""
    itself = on_registration("module", "instead", used=("m2",))

    assert replay((X, INNER, OUTER, itself, INSIDE), engine(())) == []


def test_what_programs_import_late_is_imported_once(monkeypatch):
    """What a backend imports at the first call of a verb is imported early, if a program calls one of these."""
    held = Target("reference")
    late = dict.fromkeys([Capability.OPTIMIZERS, Capability.PROCESSES], "xml.dom.pulldom")
    monkeypatch.setattr(held.backend, "imports_late", late, raising=False)
    monkeypatch.delitem(sys.modules, "xml.dom.pulldom", raising=False)

    held.import_early([(X, BACKWARD)])
    assert "xml.dom.pulldom" not in sys.modules
    programs = iter([(X, BACKWARD), (X, SGD, STEP), (X, BACKWARD), (X, BACKWARD)])
    held.import_early(programs)
    assert "xml.dom.pulldom" in sys.modules
    assert [*programs] == [(X, BACKWARD)]


def test_every_action_has_a_form():
    """Each action of hooks around states and steps that a replay knows has its code."""
    assert set(state.ACTIONS) == set(emit_state.ACTIONS_ON_STATES)
    assert set(_optimizers.ACTIONS) == {"closure"}
