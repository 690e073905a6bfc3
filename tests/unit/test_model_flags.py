"""The engine's flags: each is one departure of PyTorch, and with all of them the engine does what PyTorch does."""

import re
import tomllib
import warnings
import weakref
from functools import partial
from pathlib import Path

import pytest

import hooklaw.model
from hooklaw.backend.loading import load
from hooklaw.model import flags
from hooklaw.model.adapter import FOR_TORCH, backend

ROOT = Path(__file__).parents[2]
ENGINE = Path(hooklaw.model.__file__).parent


def leaf(b):
    """Make the leaf that every program begins with."""
    return b.tensor([1.0, 2.0], requires_grad=True)


def outcome(act):
    """Return the result of an action, or the text "refused"."""
    try:
        return act()
    except RuntimeError:
        return "refused"


def retained(b):
    """Replace the gradient of a Node whose output retains it."""
    y = leaf(b) * 3
    b.retain_grad(y)
    b.node_register_prehook(b.grad_fn(y), lambda grads: (grads[0] * 2,))
    b.backward(b.sum(y))
    return b.tolist(b.grad_of(y))


def retained_on_the_way(b):
    """Run backward with inputs; a tensor on the way retains its gradient."""
    x = leaf(b)
    y = x * 3
    b.retain_grad(y)
    b.backward(b.sum(y), inputs=[x])
    return None if b.grad_of(y) is None else b.tolist(b.grad_of(y))


def constant_among_outputs(b):
    """Call grad for two outputs, one of which does not require grad."""
    x, constant = leaf(b), b.tensor([5.0])
    return outcome(lambda: b.tolist(b.grad([x * 3, constant], [x], [b.tensor([1.0, 1.0]), None])[0]))


def detached_in_place(b):
    """Detach a tensor that retains its gradient in place."""
    y = leaf(b) * 3
    b.retain_grad(y)
    b.detach_(y)
    return b.retains_grad(y)


def captured(b):
    """Call grad for a tensor with a hook, and for a tensor behind it."""
    x = leaf(b)
    y = x * 2
    b.register_hook(y, lambda grad: grad * 10)
    return b.tolist(b.grad(b.sum(y), [y, x])[0])


def root_alone(b):
    """Call grad for a tensor that is not behind the root, which has a hook."""
    seen = []
    y = b.sum(leaf(b))
    b.register_hook(y, lambda _: seen.append("root"))
    b.grad(y, [leaf(b)], allow_unused=True)
    return seen


def unneeded(b):
    """Call grad for one factor, and log what the Node computes."""
    seen = []
    x, other = leaf(b), leaf(b)
    y = x * other
    b.node_register_hook(b.grad_fn(y), lambda grads, _: seen.append([grad is None for grad in grads]))
    b.grad(b.sum(y), [x])
    return seen


def nothing_arrives(b):
    """Let no gradient arrive at a leaf with a post-accumulate hook."""
    seen = []
    x = leaf(b)
    b.register_post_accumulate_grad_hook(x, lambda leaf: seen.append(b.grad_of(leaf)))
    b.backward(b.sum(b.custom_function(lambda _, x: x * 2, lambda *_: None)(x)))
    return seen


def saved_with_a_hook(b):
    """Serialize a leaf that has a post-accumulate hook, and count the warnings."""
    x = leaf(b)
    b.register_post_accumulate_grad_hook(x, lambda leaf: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        b.save(x)
    return len(caught)


def something_returned(b):
    """Return something from a post-accumulate hook."""
    x = leaf(b)
    b.register_post_accumulate_grad_hook(x, lambda leaf: b.grad_of(leaf) * 2)
    return outcome(lambda: b.backward(b.sum(x)))


def through_a_view(b):
    """Change the gradient of a leaf that is used through a view, before another leaf gets its gradient."""
    x, w = leaf(b), leaf(b)
    b.register_post_accumulate_grad_hook(x, lambda one: (b.mul_(b.grad_of(one), 10), None)[1])
    product = w * 2
    b.backward(b.sum((product + b.view(x, 2)) * 3))
    return b.tolist(b.grad_of(w))


def outlived(b):
    """Drop a leaf that has a multi-grad hook, and return whether it is still alive."""
    x = leaf(b)
    b.register_multi_grad_hook([x], lambda _: None)
    alive = weakref.ref(x)
    del x
    return alive() is not None


def view_with_hook(b):
    """Change a view with a hook in place, with grad mode on and off."""
    seen = []
    for mode in (b.enable_grad, b.no_grad):
        y = b.view(leaf(b) * 1, 2, 1)
        b.register_hook(y, lambda _, mode=mode: seen.append(mode == b.enable_grad))
        with mode():
            b.mul_(y, 5)
        b.backward(b.sum(y))
    return seen


def second_hook(b):
    """Put a second hook on a view whose base was changed since the first."""
    seen = []
    y = leaf(b) * 1
    view = b.view(y, 2, 1)
    b.register_hook(view, lambda _: seen.append("first"))
    b.mul_(y, 3)
    b.register_hook(view, lambda _: seen.append("second"))
    b.backward(b.sum(view))
    return seen


def removed_after_failure(b):
    """Let a hook with always_call=True remove itself, after an exception and before another hook."""
    module = b.module({"w": b.tensor([1.0])}, lambda module, x: 1 / 0)
    handle = b.register_forward_hook(module, lambda *_: handle.remove(), always_call=True)
    b.register_forward_hook(module, lambda *_: None)
    return outcome_of_type(lambda: module(leaf(b)))


def removed_meanwhile(b):
    """Let a hook remove the next one, which takes keyword arguments."""
    seen = []
    module = b.module({"w": b.tensor([1.0])}, lambda module, x: x * 2)
    b.register_forward_pre_hook(module, lambda *_: handle.remove())
    handle = b.register_forward_pre_hook(module, lambda *given: seen.append(len(given)), with_kwargs=True)
    module(leaf(b))
    return seen


def removed_before_another(b):
    """Let a hook before a step remove itself, before another one."""
    seen = []
    optimizer = b.sgd([leaf(b)], lr=1.0)
    handle = b.register_step_pre_hook(optimizer, lambda *_: handle.remove())
    b.register_step_pre_hook(optimizer, lambda *_: seen.append("second"))
    return outcome(lambda: b.step(optimizer) or seen)


def retained_second(b):
    """Change the second output of a Node, which retains its gradient, in place."""
    _, y = b.custom_function(lambda _, x: (x * 2, x * 3), lambda _, first, second: first * 2 + second * 3)(leaf(b))
    b.retain_grad(y)
    return outcome(lambda: b.tolist(b.mul_(y, 2)))


def part(b):
    """Change an output of split in place."""
    return outcome(lambda: b.tolist(b.mul_(b.split(leaf(b) * 1, 1)[0], 3)))


def view_given_second(b):
    """Let a Function change its second input, a view, in place."""

    def forward(ctx, factor, x):
        ctx.mark_dirty(x)
        return b.mul_(x, factor)

    x = leaf(b)
    y = x * 1
    b.custom_function(forward, lambda _, grad: (grad * 5, grad * 7))(b.tensor([7.0, 7.0]), b.view(y, 2))
    b.backward(b.sum(y))
    return b.tolist(b.grad_of(x))


def retained_before(b):
    """Retain a gradient, then change its tensor in place by a Function."""

    def forward(ctx, x):
        ctx.mark_dirty(x)
        return b.mul_(x, 2)

    y = leaf(b) * 1
    b.retain_grad(y)
    b.backward(b.sum(y))
    b.custom_function(forward, lambda _, grad: grad * 2)(y)
    return b.grad_of(y) is None


def part_of_a_gradient(b):
    """Differentiate a gradient only part of which came from a once_differentiable backward."""
    x = leaf(b)
    once = b.custom_function(lambda _, x: x * x, lambda _, grad: grad * 2, once_differentiable=True)
    (grad,) = b.grad(b.sum(once(x) + x * x), [x], create_graph=True)
    return outcome(lambda: b.tolist(b.grad(b.sum(grad), [x])[0]))


def refused_change(b):
    """Change an inference tensor in place."""
    with b.inference_mode():
        made = leaf(b) * 1
    return outcome(lambda: b.mul_(made, 3)), b.tolist(made)


def detached_change(b):
    """Change a tensor detached from an inference tensor."""
    with b.inference_mode():
        made = leaf(b) * 1
    return outcome(lambda: b.tolist(b.mul_(b.detach(made), 3)))


def view_under_no_grad(b):
    """Make a view under no_grad, and change it in place."""
    y = leaf(b) * 1
    with b.no_grad():
        view = b.view(y, 2, 1)
    return b.requires_grad(view), outcome(lambda: b.tolist(b.mul_(view, 3)))


def failing_pair(b):
    """Register a pair whose pack raises on a saved tensor, then run backward."""
    y = b.exp(leaf(b))
    try:
        b.saved_tensor_register_hooks(b.raw_saved_tensors(b.grad_fn(y))[0], lambda _: 1 / 0, lambda packed: packed)
    except ZeroDivisionError:
        return outcome_of_type(lambda: b.backward(b.sum(y)))


def outcome_of_type(act):
    """Return None, or the name of the error."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return type(error).__name__


def product(b):
    """Execute the Node of a product with a number twice."""
    y = leaf(b) * 2
    b.backward(b.sum(y))
    return outcome(lambda: b.backward(b.sum(y)))


def copied(b):
    """Execute the Node of an in-place operation on a view twice."""
    y = leaf(b) + 1
    b.mul_(b.view(y, 2, 1), 3)
    b.backward(b.sum(y))
    return outcome(lambda: b.backward(b.sum(y)))


def pinned(b):
    """Save a tensor that is on the CPU into pinned memory."""
    x = leaf(b)
    with b.save_on_cpu(pin_memory=True):
        y = x * x
    return b.data_ptr(b.saved_tensors(b.grad_fn(y))[0]) == b.data_ptr(x)


def untold(b):
    """Call a checkpoint without use_reentrant, and log whether its operations are recorded in forward."""
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it may do as documented one day
        values = outcome(lambda: b.tolist(b.checkpoint(lambda x: seen.append(b.is_grad_enabled()) or x * x, leaf(b))))
    return values, seen


def offloaded(b):
    """Recompute a checkpoint in which exp, with another input then, has the policy of an offload."""
    x, added = leaf(b), iter((0.0, 1.0))

    def policy(_ctx, name):
        return "MUST_CPU_OFFLOAD" if name == "exp" else "PREFER_RECOMPUTE"

    def fn(x):
        return x * b.exp(b.tensor([next(added)]))

    contexts = partial(b.create_selective_checkpoint_contexts, policy)
    b.backward(b.sum(b.checkpoint(fn, x, use_reentrant=False, context_fn=contexts)))
    return [round(number, 3) for number in b.tolist(b.grad_of(x))]


def whole_inside_grad(b):
    """Run a backward without inputs, through a reentrant checkpoint, inside autograd.grad."""
    x = leaf(b)
    inner, y = b.sum(b.checkpoint(lambda x: x * x * 0.5, x, use_reentrant=True)), x * 2
    b.register_hook(y, lambda _: b.backward(inner))
    return outcome(lambda: b.grad(b.sum(y), [x]) and b.tolist(b.grad_of(x)))


def changed_elsewhere(b):
    """Change the second half of a saved tensor inside allow_mutation_on_saved_tensors."""
    x = leaf(b)
    with b.allow_mutation_on_saved_tensors():
        y = x * 1
        loss = b.sum(y * y)
        b.mul_(b.split(b.detach(y), 1)[1], 10)
        b.backward(loss)
    return b.tolist(b.grad_of(x))


def refused_inside(b):
    """Enter the context inside itself, which is an error, and run a backward in the outer context."""
    x = leaf(b)
    with b.allow_mutation_on_saved_tensors():
        loss = b.sum(b.exp(x * 0))
        outcome(b.allow_mutation_on_saved_tensors().__enter__)
        try:
            return b.backward(loss)
        except AssertionError:
            return "refused"


PROGRAMS = [
    ("retain-grad-before-pre-hooks", retained, [2.0, 2.0], [1.0, 1.0]),
    ("passes-with-inputs-retain-everything", retained_on_the_way, None, [1.0, 1.0]),
    ("constant-outputs-are-an-error", constant_among_outputs, [3.0, 3.0], "refused"),
    ("a-detached-tensor-still-retains", detached_in_place, False, True),
    ("capture-before-tensor-hooks", captured, [10.0, 10.0], [1.0, 1.0]),
    ("one-root-is-reached", root_alone, [], ["root"]),
    ("unneeded-gradients-are-none", unneeded, [[False, False]], [[False, True]]),
    ("post-accumulate-without-gradient", nothing_arrives, [], [None]),
    ("post-accumulate-returns-none", something_returned, None, "refused"),
    ("post-accumulate-hooks-are-lost-in-silence", saved_with_a_hook, 1, 0),
    ("views-of-gradients-become-grad", through_a_view, [6.0, 6.0], [60.0, 60.0]),
    ("views-leave-their-node", view_with_hook, [True, False], []),
    ("hooks-on-a-view-join-the-first", second_hook, ["second"], []),
    ("retained-gradients-are-mixed-up", retained_second, [6.0, 12.0], "refused"),
    ("split-parts-stay-as-they-are", part, [3.0], "refused"),
    ("a-function-changes-the-view-it-is-given-first", view_given_second, [7.0, 7.0], [12.0, 12.0]),
    ("changed-by-a-function-loses-its-gradient", retained_before, False, True),
    ("once-differentiable-gradients-are-constants", part_of_a_gradient, "refused", [2.0, 2.0]),
    (
        "refused-changes-of-inference-tensors-are-made",
        refused_change,
        ("refused", [1.0, 2.0]),
        ("refused", [3.0, 6.0]),
    ),
    ("detached-inference-tensors-may-be-changed", detached_change, "refused", [3.0, 6.0]),
    ("views-under-no-grad-require-grad", view_under_no_grad, (False, [[3.0], [6.0]]), (True, "refused")),
    ("a-pair-that-fails-to-pack-stays", failing_pair, None, "TypeError"),
    ("numbers-are-freed", product, None, "refused"),
    ("copies-into-a-base-are-freed", copied, None, "refused"),
    ("pinning-copies", pinned, True, False),
    ("regions-are-reentrant-unless-told", untold, ("refused", []), ([1.0, 4.0], [False])),
    ("offloaded-operations-run-again", offloaded, [1.0, 1.0], [2.718, 2.718]),
    ("passes-inside-limited-ones-are-limited", whole_inside_grad, [1.0, 2.0], "refused"),
    ("changes-through-another-look-are-missed", changed_elsewhere, [2.0, 4.0], [2.0, 40.0]),
    ("a-refused-context-ends-the-outer-one", refused_inside, None, "refused"),
    ("hooks-after-a-failure-stay-as-they-are", removed_after_failure, "ZeroDivisionError", "RuntimeError"),
    ("a-hook-removed-meanwhile-gets-no-kwargs", removed_meanwhile, [3], [2]),
    ("hooks-of-states-and-steps-stay-as-they-are", removed_before_another, ["second"], "refused"),
    ("multi-grad-hooks-keep-their-nodes", outlived, False, True),
]
"""The flag, a program, what it returns as documented, and what it returns in PyTorch."""
each_flag = pytest.mark.parametrize(
    ("flag", "program", "documented", "departs"), PROGRAMS, ids=[flag for flag, *_ in PROGRAMS]
)


@each_flag
def test_engine_departs(flag, program, documented, departs):
    """Without flags a program does what is documented, with its own flag what PyTorch does."""
    assert program(backend()) == documented
    assert program(backend(flag)) == departs
    assert program(backend()) == documented


@each_flag
def test_torch_departs(flag, program, documented, departs):
    """PyTorch does what the flag says, and so does the engine with all flags."""
    pytest.importorskip("torch", reason=f"{flag} is about torch, which is not installed")

    assert program(load("torch-eager")) == departs != documented
    assert program(backend("torch")) == departs


def test_every_flag_has_a_program():
    """Each flag has a program, here or in test_model_modules, and the engine asks for it."""
    asked = {
        name
        for path in ENGINE.glob("*.py")
        if path.name != "flags.py"
        for name in re.findall(r'"(\w+(?:-\w+)+)"', path.read_text())
    }

    elsewhere = Path(__file__).with_name("test_model_modules.py").read_text()

    assert [flag for flag in flags.TORCH if f'"{flag}"' not in elsewhere] == [flag for flag, *_ in PROGRAMS]
    assert set(flags.TORCH) <= asked


def test_expectations_are_the_flags():
    """An expectation of the engine with all flags has the words of the flag that causes it."""
    entries = tomllib.loads(FOR_TORCH.read_text())["expect"]

    for one in entries:
        name, _, says = one["reason"].partition(": ")
        assert (says, one.get("issue", "")) == (flags.TORCH[name].says, flags.TORCH[name].issue)


def test_the_page_names_the_flags():
    """The table in the documentation of the engine has a row for each flag, in the same order."""
    page = (ROOT / "docs" / "the-engine.md").read_text()

    rows = re.findall(r"^\| `([\w-]+)` \| (.+?) \|", page, re.MULTILINE)
    assert rows == [(flag.name, flag.says) for flag in flags.TORCH.values()]


@pytest.mark.parametrize(
    ("name", "gradient"), [("reference", [1.0, 1.0]), ("reference:torch", [2.0, 2.0]), ("torch-eager", [2.0, 2.0])]
)
def test_a_post_hook_may_hold_what_became_grad(name, gradient):
    """In PyTorch the gradient that a post-hook of a leaf's Node gets changes together with .grad."""
    if name == "torch-eager":
        pytest.importorskip("torch", reason="it is about torch, which is not installed")
    b = load(name)
    x, given = leaf(b), []
    y = b.sum(x * 1)
    node = b.accumulate_grad(x)
    b.node_register_hook(node, lambda _, grads: given.append(grads[0]))
    b.backward(y, retain_graph=True)
    b.backward(y)

    assert b.tolist(given[0]) == gradient


@each_flag
def test_met_flags_are_those_that_matter(flag, program, documented, departs):
    """With only the flags that a program met, it shows the same as with all flags."""
    every = backend("torch")
    assert program(every) == departs
    met = flags.met()

    assert flag in met
    assert len(met) < len(flags.TORCH) / 2
    assert program(backend(",".join(sorted(met)))) == departs


def test_no_flag_is_met_by_what_none_can_change():
    """A program may meet no flag; the met flags are forgotten with the next program."""
    every = backend("torch")
    captured(every)
    every.reset()

    assert flags.met() == frozenset()


def test_playing_ends():
    """The flags of a block are on only inside it, also after an exception."""
    flags.use(["pinning-copies"])
    with flags.playing(["numbers-are-freed"]):
        inside = [flags.on("numbers-are-freed"), flags.on("pinning-copies")]
    with pytest.raises(ZeroDivisionError), flags.playing(["numbers-are-freed"]):
        _ = 1 / 0

    assert inside == [True, False]
    assert [flags.on("numbers-are-freed"), flags.on("pinning-copies")] == [False, True]


def test_reset_turns_on_the_backends_own():
    """After a reset a backend has its own flags, whatever was on before, and its name lists them."""
    one, all_of_them = backend("pinning-copies,numbers-are-freed"), backend("torch")
    one.reset()

    assert (one.name, all_of_them.name) == ("reference:numbers-are-freed,pinning-copies", "reference:torch")
    assert flags.on("pinning-copies")
    assert not flags.on("views-leave-their-node")


def test_order_of_ties():
    """Leaves that are ready at once are executed in the order of PyTorch's heap."""
    b, seen = backend(), []

    def four(_, *inputs):
        return inputs[0] * 2

    leaves = [leaf(b) for _ in range(4)]
    for nr, one in enumerate(leaves):
        b.register_hook(one, lambda _, nr=nr: seen.append(nr))
    b.backward(b.sum(b.custom_function(four, lambda _, grad: (grad,) * 4)(*leaves)))

    assert seen == [0, 2, 1, 3]


def test_nothing_is_freed_before_the_post_hooks():
    """A Node whose post-hook raised keeps its saved tensors, and gradients accumulated before stay."""

    def fail(*_):
        raise KeyError

    b = backend()
    x, other = leaf(b), leaf(b)
    y = b.exp(x)
    b.node_register_hook(b.grad_fn(y), fail)
    with pytest.raises(KeyError):
        b.backward(b.sum(y + other))

    assert len(b.saved_tensors(b.grad_fn(y))) == 1
    assert (b.grad_of(x), b.tolist(b.grad_of(other))) == (None, [1.0, 1.0])
