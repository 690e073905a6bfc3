"""Selective checkpoints: a policy chooses which operations are not run again in backward."""

import weakref
from functools import partial
from itertools import cycle, product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.checkpoints import leaf
from hooklaw.rules.lifetimes import without_collector

CONTEXTS = docstring("torch.utils.checkpoint.create_selective_checkpoint_contexts")
POLICY = docstring("torch.utils.checkpoint.CheckpointPolicy")
CONTEXT = docstring("torch.utils.checkpoint.SelectiveCheckpointContext")
NEEDS = [Capability.CHECKPOINT, Capability.SELECTIVE_CHECKPOINT]


def selective(backend: Backend, fn: Any, policy: Any, **options: bool) -> Any:
    """Return a forward that sums the result of a selective checkpoint."""
    contexts = partial(backend.create_selective_checkpoint_contexts, policy, **options)
    return lambda *inputs: backend.sum(backend.checkpoint(fn, *inputs, use_reentrant=False, context_fn=contexts))


def gradient_after_change(backend: Backend, policy: Any, *, times: int = 1) -> Any:
    """Return the gradient of x * exp(weight) if exp gives 1 at first, and e after the weight was changed.

    It is that of x * exp(weight) * exp(weight) for 2 times. There is another checkpoint with the same policy.
    """
    x, weight = leaf(backend, 1.0, 1.0), backend.tensor([0.0, 0.0])
    changes = iter((0.0, 1.0))

    def fn(x: Any) -> Any:
        change = next(changes)
        for _ in range(times):
            x = x * backend.exp(weight + change)
        return x

    loss = backend.call(selective(backend, fn, policy), x)
    backend.call(selective(backend, lambda x: x * backend.exp(weight + 2.0), policy), x)
    backend.backward(loss)
    return backend.grad_of(x)


def gradient_of_product(backend: Backend, policy: Any) -> Any:
    """Return the gradient of x * (weight * 2) if the product in brackets is 2 at first, and 4 after a change."""
    x, weight, factor = leaf(backend, 1.0, 1.0), backend.tensor([1.0, 1.0]), backend.tensor([2.0, 2.0])
    changes = iter((0.0, 1.0))
    fn = lambda x: x * ((weight + next(changes)) * factor)  # noqa: E731 - a def is no shorter
    backend.backward(backend.call(selective(backend, fn, policy), x))
    return backend.grad_of(x)


def only_exp(policy: str) -> Any:
    """Return a policy function with this policy for the exponential, and PREFER_RECOMPUTE for everything else."""
    return lambda _ctx, operation: policy if operation == "exp" else "PREFER_RECOMPUTE"


def exp_in_turn(*policies: str) -> Any:
    """Return a policy function with these policies for calls of the exponential, in turn, else PREFER_RECOMPUTE."""
    turn = cycle(policies)
    return lambda _ctx, operation: next(turn) if operation == "exp" else "PREFER_RECOMPUTE"


@rule(
    "checkpoint.selective.saved",
    level=Level.MUST,
    sources=[POLICY.sentence(3), CONTEXTS.sentence(1, 2, 4)],
    needs=NEEDS,
    mutants=[
        "selective-checkpoint-saves-nothing",
        "policy-for-the-first-call-of-an-operation-for-all",
        "operations-of-two-inputs-run-again",
        "selective-checkpoints-of-one-policy-share-what-they-saved",
        "of-the-calls-of-an-operation-the-first-alone-is-saved",
    ],
)
def test_saved(backend: Backend, trace: Trace) -> None:
    """An operation whose policy is MUST_SAVE or PREFER_SAVE is not run again: backward uses its output of forward."""
    for policy, times in product(("MUST_SAVE", "PREFER_SAVE"), (1, 2)):
        gradient = gradient_after_change(backend, only_exp(policy), times=times)
        trace.expect_value(f"x.grad, {policy} for {times} exp", [1.0, 1.0], gradient)

        choose = lambda _, name, policy=policy: policy if name == "mul" else "PREFER_RECOMPUTE"  # noqa: E731 - short
        trace.expect_value(f"x.grad, {policy} for products", [2.0, 2.0], gradient_of_product(backend, choose))

    e = backend.exp(backend.tensor([1.0, 1.0]))
    gradient = gradient_after_change(backend, exp_in_turn("MUST_RECOMPUTE", "MUST_SAVE"), times=2)
    trace.expect_value("x.grad, MUST_SAVE for the second exp alone", e, gradient)


@rule(
    "checkpoint.selective.offloaded",
    level=Level.MUST,
    sources=[POLICY.sentence(5)],
    needs=[*NEEDS, Capability.SELECTIVE_OFFLOAD],
    mutants=["selective-checkpoint-saves-nothing"],
)
def test_offloaded(backend: Backend, trace: Trace) -> None:
    """An operation whose policy is MUST_CPU_OFFLOAD or PREFER_CPU_OFFLOAD is not run again in backward.

    Its output is saved, offloaded and reloaded, so that of forward is used.
    """
    for policy in ("MUST_CPU_OFFLOAD", "PREFER_CPU_OFFLOAD"):
        trace.expect_value(f"x.grad, {policy}", [1.0, 1.0], gradient_after_change(backend, only_exp(policy)))


@rule(
    "checkpoint.selective.recomputed",
    level=Level.MUST,
    sources=[POLICY.sentence(4), CONTEXTS.sentence(2, 4)],
    needs=NEEDS,
    mutants=["selective-checkpoint-saves-everything", "operation-that-was-saved-once-is-saved-always"],
)
def test_recomputed(backend: Backend, trace: Trace) -> None:
    """An operation whose policy is MUST_RECOMPUTE or PREFER_RECOMPUTE is run again: backward uses the second output."""
    e = backend.exp(backend.tensor([1.0, 1.0]))
    for policy in ("MUST_RECOMPUTE", "PREFER_RECOMPUTE"):
        trace.expect_value(f"x.grad, {policy}", e, gradient_after_change(backend, only_exp(policy)))
        gradient = gradient_after_change(backend, exp_in_turn("MUST_SAVE", policy), times=2)
        trace.expect_value(f"x.grad, {policy} for the second exp alone", e, gradient)


@rule(
    "checkpoint.selective.list",
    level=Level.MUST,
    sources=[CONTEXTS.sentence(5)],
    needs=NEEDS,
    mutants=[
        "selective-checkpoint-saves-nothing",
        "selective-checkpoint-saves-everything",
        "policy-operations-first-alone",
        "after-an-operation-of-the-list-all-are-saved",
        "of-the-calls-of-an-operation-the-first-alone-is-saved",
    ],
)
def test_list(backend: Backend, trace: Trace) -> None:
    """A list of operations in place of a policy function saves these operations, and recomputes all others."""
    e = backend.exp(backend.tensor([1.0, 1.0]))
    for operations in 2 * (["exp"], ["sin", "exp"], ["exp", "sin"], ["sin", "exp", "cos"]):
        trace.expect_value("exp in the list", [1.0, 1.0], gradient_after_change(backend, operations))
    trace.expect_value("exp twice", [1.0, 1.0], gradient_after_change(backend, ["exp"], times=2))
    trace.expect_value("another operation in the list", e, gradient_after_change(backend, ["sin"]))

    zero = backend.tensor([0.0, 0.0])

    def fn(x: Any, changes: Any) -> Any:
        weight = zero + next(changes)
        return x * backend.exp(weight) * backend.clone(weight + 1.0)

    for operations, expected in ((["exp"], [2.0, 2.0]), (["clone"], e)):
        x, changes = leaf(backend, 1.0, 1.0), iter((0.0, 1.0))
        backend.backward(backend.call(selective(backend, partial(fn, changes=changes), operations), x))
        trace.expect_value(f"x.grad, {operations}", expected, backend.grad_of(x))


@rule(
    "checkpoint.selective.list.operations",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[CONTEXTS, observed("the error names what is not an operation")],
    needs=NEEDS,
    mutants=["selective-checkpoint-accepts-any-list", "policy-operations-first-alone"],
)
def test_bad_list(backend: Backend, trace: Trace) -> None:
    """A list with something else than an operation is an error."""
    for operations in (["no such operation"], ["exp", "no such operation"]):
        with trace.raises(ErrorKind.CHECKPOINT_POLICY):
            backend.create_selective_checkpoint_contexts(operations)


@rule(
    "checkpoint.selective.grads",
    level=Level.MUST,
    sources=[CONTEXTS.sentence(2)],
    needs=[*NEEDS, Capability.SIN_COS, Capability.MULTI_OUTPUT],
    mutants=["selective-checkpoint-detaches", "selective-checkpoint-does-not-reach-captured-leaves"],
)
def test_gradients(backend: Backend, trace: Trace) -> None:
    """Whatever a selective checkpoint saves, the gradients are those without a checkpoint.

    It only chooses what is recomputed; the operations may have several outputs, and the function other results.
    """

    def fn(x, weight, note):
        first, second = backend.split(backend.exp(backend.exp(x * 0.1)) * x, 1)
        return first * second * backend.cos(x) * weight, note

    def forward(x, weight, policy):
        contexts = partial(backend.create_selective_checkpoint_contexts, policy)
        how = {"use_reentrant": False, "context_fn": contexts}
        y, note = backend.checkpoint(lambda x, note: fn(x, weight, note), x, "note", **how)
        return backend.sum(y), note

    plain, factor = leaf(backend, 3.0, 5.0), leaf(backend)
    backend.backward(backend.sum(fn(plain, factor, "note")[0]))
    without = [backend.grad_of(plain), backend.grad_of(factor)]
    policies = {name: lambda _ctx, _operation, name=name: name for name in ("MUST_SAVE", "PREFER_RECOMPUTE")}
    for name, policy in {**policies, "only exp": only_exp("MUST_SAVE")}.items():
        x, weight = leaf(backend, 3.0, 5.0), leaf(backend)
        loss, note = backend.call(lambda x, weight=weight, policy=policy: forward(x, weight, policy), x)
        trace.expect_value("the other result", "note", note)
        backend.backward(loss)
        trace.expect_value(f"gradients, {name}", without, [backend.grad_of(x), backend.grad_of(weight)])


@rule(
    "checkpoint.selective.policy-calls",
    level=Level.MUST,
    sources=[CONTEXT.sentence(3)],
    needs=NEEDS,
    mutants=["selective-checkpoint-asks-again", "policy-asked-in-its-first-forward-alone"],
)
def test_policy_calls(backend: Backend, trace: Trace) -> None:
    """The policy function is called for each operation of forward, and not in the recomputation.

    A policy with a state, e.g. a counter, therefore sees each operation once.
    """

    def policy(_ctx, operation):
        trace.log(operation)
        return "PREFER_RECOMPUTE"

    forward = selective(backend, lambda x: backend.exp(x) * x * x, policy)
    for _ in range(3):
        loss = backend.call(forward, leaf(backend))
        trace.expect("exp", "mul", "mul")
        backend.backward(loss)
        trace.expect()


@rule(
    "checkpoint.selective.is-recompute",
    level=Level.MUST,
    sources=[CONTEXT.sentence(4)],
    needs=NEEDS,
    mutants=["selective-context-says-recompute"],
)
def test_is_recompute(backend: Backend, trace: Trace) -> None:
    """The context that a policy function gets says in each call that is_recompute is False."""

    def policy(ctx, _operation):
        trace.log("is_recompute", ctx.is_recompute)
        return "MUST_SAVE"

    loss = backend.call(selective(backend, lambda x: backend.exp(x) * x, policy), leaf(backend))
    backend.backward(loss)

    trace.expect(("is_recompute", False), ("is_recompute", False))


@rule(
    "checkpoint.selective.changed",
    level=Level.MUST,
    sources=[CONTEXTS.sentence(6, 7)],
    needs=[*NEEDS, Capability.IN_PLACE, Capability.GRAD_MODE, Capability.SIN_COS],
    mutants=[
        "selective-allow-cache-entry-mutation-set-always",
        "selective-allow-cache-entry-mutation-ignored",
        "changes-of-later-selected-tensors-undetected",
        "changes-of-selected-tensors-after-forward-undetected",
        "what-a-policy-function-saves-may-be-changed",
    ],
)
def test_changed(backend: Backend, trace: Trace) -> None:
    """Changing a saved output in place is an error in backward, unless allow_cache_entry_mutation is True."""

    def change(tensor):
        with backend.no_grad():
            backend.mul_(tensor, 2)

    def inside(place, policy, **options: bool):
        """Change one of two saved outputs in the checkpoint's function."""

        def fn(x):
            saved = backend.exp(x), backend.sin(x)
            z = saved[0] * saved[1]
            change(saved[place])
            return z

        return backend.call(selective(backend, fn, policy, **options), leaf(backend))

    def after(**options: bool):
        """Change a saved output that the checkpoint's function has returned."""
        contexts = partial(backend.create_selective_checkpoint_contexts, ["exp"], **options)
        forward = partial(backend.checkpoint, backend.exp, use_reentrant=False, context_fn=contexts)
        y = backend.call(lambda x: forward(x), leaf(backend))  # noqa: PLW0108 - a compiler traces functions
        loss = backend.sum(y)
        change(y)
        return loss

    policies = ["exp", "sin"], lambda _ctx, name: "PREFER_SAVE" if name in {"exp", "sin"} else "PREFER_RECOMPUTE"
    for compute in (*(partial(inside, *each) for each in product(range(2), policies)), after):
        for options in ({}, {"allow_cache_entry_mutation": False}):
            loss = compute(**options)
            with trace.raises(ErrorKind.CHECKPOINT_SELECTIVE):
                backend.backward(loss)
        backend.backward(compute(allow_cache_entry_mutation=True))


@rule(
    "checkpoint.selective.once",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the cache is emptied by the first recomputation, and the error says so")],
    needs=[*NEEDS, Capability.RETAIN_GRAPH],
    mutants=["selective-checkpoint-works-twice"],
)
def test_once(backend: Backend, trace: Trace) -> None:
    """A second backward through a retained selective checkpoint may be an error."""
    loss = backend.call(selective(backend, lambda x: backend.exp(x) * x, ["exp"]), leaf(backend))
    backend.backward(loss, retain_graph=True)

    with trace.raises(ErrorKind.CHECKPOINT_SELECTIVE):
        backend.backward(loss)


@rule(
    "checkpoint.selective.reentrant",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[CONTEXTS, docstring("torch.utils.checkpoint.checkpoint"), observed("an error, as for any context_fn")],
    needs=NEEDS,
    mutants=["context-fn-of-a-reentrant-checkpoint-ignored"],
)
def test_reentrant(backend: Backend, trace: Trace) -> None:
    """A selective checkpoint that is reentrant is an error."""
    contexts = partial(backend.create_selective_checkpoint_contexts, ["exp"])

    with trace.raises(ErrorKind.CHECKPOINT_OPTION):
        backend.checkpoint(backend.exp, leaf(backend), use_reentrant=True, context_fn=contexts)


@rule(
    "checkpoint.selective.lifetime",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the cache belongs to the checkpoint's frame, which the graph owns")],
    needs=[*NEEDS, Capability.WEAK_REFERENCES],
    mutants=["selective-checkpoint-is-never-freed"],
)
def test_lifetime(backend: Backend, trace: Trace) -> None:
    """What a selective checkpoint's policy function holds is freed with the graph, whether backward ran or not."""
    for runs in (False, True):
        held = HoldsNothing()
        alive = weakref.ref(held)
        with without_collector():
            loss = backend.call(selective(backend, lambda x: backend.exp(x) * x, held), leaf(backend))
            del held
            if runs:
                backend.backward(loss)
            del loss

        trace.expect_value("is freed", expected=True, observed=alive() is None)


class HoldsNothing:
    """A policy that saves everything."""

    def __call__(self, _ctx: Any, _operation: str) -> str:
        """Return the policy."""
        return "MUST_SAVE"
