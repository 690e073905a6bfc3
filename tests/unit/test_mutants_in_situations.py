"""Mutants of one kind of hook in one situation: they are wrong there, and nowhere else."""

import pytest

pytest.importorskip("torch", reason="mutants of torch need torch, which is not installed")

from hooklaw.backend.loading import load
from hooklaw.backend.protocol import VERBS
from hooklaw.mutation._service import altered
from hooklaw_backends.mutants import of_reference
from hooklaw_backends.mutants.kinds import KINDS


def calls_of(name, run):
    """Return how often a tensor hook runs in a run with a mutant."""
    mutant, calls = of_reference(name), []
    mutant.reset()
    x = mutant.tensor([1.0, 2.0], requires_grad=True)
    mutant.register_hook(x, calls.append)
    RUNS[run](mutant, mutant.sum(x * 2), x)
    return len(calls)


def in_no_grad(mutant, root, _):
    """Run a backward in no_grad."""
    with mutant.no_grad():
        mutant.backward(root)


RUNS = {
    "backward": lambda mutant, root, _: mutant.backward(root),
    "two passes": lambda mutant, root, _: [mutant.backward(root, retain_graph=True) for _ in range(2)],
    "grad": lambda mutant, root, x: mutant.grad(root, [x]),
    "limited": lambda mutant, root, x: mutant.backward(root, inputs=[x]),
    "in no_grad": in_no_grad,
}


@pytest.mark.parametrize(
    ("situation", "there", "plain"),
    [
        ("second-pass", "two passes", 1),
        ("second-pass-alone", "two passes", 1),
        ("second-call", "two passes", 1),
        ("autograd-grad", "grad", 0),
        ("inputs", "limited", 0),
        ("no-grad-pass", "in no_grad", 0),
    ],
)
def test_lost_there_alone(situation, there, plain):
    """A hook is lost in the situation of the mutant, and runs elsewhere."""
    name = f"tensor-hook-lost-{situation}"

    assert calls_of(name, there) == plain
    assert calls_of(name, "backward") == 1


def test_twice():
    """A hook is called twice in the situation of the mutant, and once elsewhere."""
    name = "tensor-hook-twice-autograd-grad"

    assert (calls_of(name, "grad"), calls_of(name, "backward")) == (2, 1)


def test_given_another():
    """A hook gets twice its value in the situation of the mutant, and the right one elsewhere."""
    mutant = of_reference("tensor-hook-given-another-second-call")
    mutant.reset()
    x, seen = mutant.tensor([1.0, 2.0], requires_grad=True), []
    mutant.register_hook(x, lambda grad: seen.append(mutant.tolist(grad)))

    RUNS["two passes"](mutant, mutant.sum(x * 2), x)

    assert seen == [[2.0, 2.0], [4.0, 4.0]]


def test_given_another_beside():
    """A hook gets twice what it gets beside the value that it may replace, and the value as it is."""
    mutant = of_reference("node-hook-given-another-beside-second-call")
    mutant.reset()
    x, seen = mutant.tensor([1.0], requires_grad=True), []
    y = x * 2
    mutant.node_register_hook(mutant.grad_fn(y), lambda *grads: seen.append([mutant.tolist(each[0]) for each in grads]))

    RUNS["two passes"](mutant, mutant.sum(y), x)

    assert seen == [[[2.0], [1.0]], [[2.0], [2.0]]]


def test_in_wrong_order():
    """The hooks of one owner run in reverse order in the situation of the mutant, and in order elsewhere."""
    mutant = of_reference("node-hook-in-wrong-order-second-pass")
    mutant.reset()
    x, seen = mutant.tensor([1.0, 2.0], requires_grad=True), []
    y = x * 2
    handles = [mutant.node_register_hook(mutant.grad_fn(y), lambda *_, nr=nr: seen.append(nr)) for nr in range(4)]
    handles[1].remove()

    RUNS["two passes"](mutant, mutant.sum(y), x)

    assert seen == [0, 2, 3, 3, 2, 0]


def test_only_those_in_the_situation_run_in_wrong_order():
    """Of several hooks, those that are not in the situation keep their places."""
    mutant = of_reference("forward-hook-in-wrong-order-later")
    mutant.reset()
    module, seen = mutant.module({}, lambda _, x: x), []
    for nr in range(3):
        mutant.register_forward_hook(module, lambda *_, nr=nr: seen.append(nr))

    module(mutant.tensor([1.0]))

    assert seen == [0, 2, 1]


def verbs_altered_by(name):
    """Return the verbs in which a mutant of the engine is said to differ from it."""
    return altered(of_reference(name), load("reference")) & {*VERBS}


@pytest.mark.parametrize(("of", "verbs"), [(of, set(kind.verbs)) for of, kind in KINDS.items()])
def test_only_its_verbs_count_as_altered(of, verbs):
    """Verbs that a mutant overrides only to know what is under way are not among those that it alters."""
    assert verbs_altered_by(f"{of}-lost-later") == verbs


def test_a_watched_verb_that_is_altered_too():
    """A verb that the base of a mutant watches is altered where the mutant itself is wrong in it."""
    assert verbs_altered_by("pack-hook-lost-later") == {"saved_tensors_hooks"}


def test_a_pass_that_is_wrong_there_alone():
    """A pass accumulates nothing in the situation of the mutant, and the right gradient elsewhere."""
    mutant = of_reference("backward-accumulates-nothing-in-no-grad")
    mutant.reset()
    x = mutant.tensor([1.0, 2.0], requires_grad=True)

    RUNS["in no_grad"](mutant, mutant.sum(x * 2), x)
    assert mutant.grad_of(x) is None

    mutant.backward(mutant.sum(x * 2))
    assert mutant.tolist(mutant.grad_of(x)) == [2.0, 2.0]


def test_an_error_that_is_not_raised_there_alone():
    """A second backward of a freed graph is no error in the situation of the mutant, and one elsewhere."""
    mutant = of_reference("backward-freed-accepted-in-no-grad")
    mutant.reset()
    x = mutant.tensor([1.0, 2.0], requires_grad=True)
    root = mutant.sum(x * x)
    mutant.backward(root)

    RUNS["in no_grad"](mutant, root, x)
    with pytest.raises(RuntimeError):
        mutant.backward(root)


def test_a_verb_that_reaches_the_object_before():
    """A verb acts on the object before, too, in the situation of the mutant."""
    mutant = of_reference("set-requires-grad-reaches-the-one-before-third-call")
    mutant.reset()
    first, second, third = (mutant.tensor([1.0]) for _ in range(3))

    mutant.set_requires_grad(first, requires_grad=False)
    mutant.set_requires_grad(second, requires_grad=False)
    mutant.set_requires_grad(third, requires_grad=True)

    assert [mutant.requires_grad(each) for each in (first, second, third)] == [False, True, True]


def test_a_mode_that_lasts_until_the_next_rule():
    """A grad mode that lasts does so until the mutant is reset."""
    mutant = of_reference("no-grad-lasts-second-call")
    mutant.reset()
    recorded = []
    for _ in range(2):
        with mutant.no_grad():
            pass
        recorded.append(mutant.is_grad_enabled())
    mutant.reset()

    assert recorded == [True, False]
    assert mutant.is_grad_enabled()


def test_a_context_inside_two_others():
    """A context that ends the one around it does so inside two others of its kind, and not inside one."""
    mutant = of_reference("enable-grad-ends-the-outer-inside-two-others")
    mutant.reset()
    recorded = []
    for outer in (mutant.enable_grad, mutant.no_grad):
        with outer(), mutant.no_grad(), mutant.enable_grad():
            with mutant.enable_grad():
                pass
            recorded.append(mutant.is_grad_enabled())

    assert recorded == [False, True]


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("tensor-hook-stays-that-has-not-run", [0, 1, 2]),
        ("tensor-hook-removed-with-the-one-before-later", [2]),
        ("tensor-hook-removed-with-the-one-after-later", [0]),
        ("tensor-hook-stays-that-has-run", [0, 2]),
    ],
)
def test_handles(name, left):
    """A handle removes nothing, or the hook beside its own too, in the situation of the mutant."""
    mutant, seen = of_reference(name), []
    mutant.reset()
    x = mutant.tensor([1.0, 2.0], requires_grad=True)
    handles = [mutant.register_hook(x, lambda _, nr=nr: seen.append(nr)) for nr in range(3)]

    handles[1].remove()
    mutant.backward(mutant.sum(x * 2))

    assert seen == left


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        ("oldest", [[1, 2, 2, 3], [1, 2, 2, 3]]),
        ("newest", [[0, 1, 2, 2], [0, 1, 2, 2]]),
        ("all", [[], []]),
        ("first-equal", [[0, 1, 2, 3], [0, 1, 2, 3]]),
        ("all-equal", [[0, 1, 3], [0, 1, 3]]),
    ],
)
def test_handles_that_remove_others(fault, left):
    """Of hooks 0, 1, 2, 2 again and 3, the handles of both hooks 2, first the later one, remove others."""
    mutant, seen, rests = of_reference(f"tensor-hook-handle-removes-the-{fault}".replace("the-all", "all")), [], []
    mutant.reset()
    x = mutant.tensor([1.0, 2.0], requires_grad=True)
    hooks = [lambda _, nr=nr: seen.append(nr) for nr in range(4)]
    handles = [mutant.register_hook(x, hook) for hook in (*hooks[:3], *hooks[2:])]
    for handle in (handles[3], handles[2]):
        handle.remove()
        mutant.backward(mutant.sum(x * 2))
        rests.append([*seen])
        seen.clear()

    assert rests == left


def test_only_the_verb_itself_counts_as_altered():
    """A pass that a mutant overrides only to know which graphs were freed is not among the verbs that it alters."""
    assert verbs_altered_by("autograd-grad-freed-accepted-in-no-grad") == {"grad"}
