"""Pairs of single saved tensors and errors of unpack in each kind of pass; grad mode of pack in each place."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, notes, observed, rule
from hooklaw.rules.hooks import UserError, zeros
from hooklaw.rules.passes import (
    EVERY_PASS,
    EVERYWHERE,
    RETAINING,
    ROOTS,
    THRICE,
    Run,
    every_pass,
    everywhere,
    in_thread,
    roots,
)

ONE_SAVED_TENSOR = notes("autograd", "registering-hooks-for-a-saved-tensor")
DEFAULT_HOOKS = notes("autograd", "registering-default-hooks-for-saved-tensors")
REGISTER = [Capability.NODES, Capability.SAVED_TENSOR_REGISTER]


def fail(_: Any) -> None:
    """Be an unpack hook that raises."""
    raise UserError("from unpack")


def failing_once(trace: Trace) -> Callable[[Any], Any]:
    """Return an unpack hook that raises in its first call; later it logs, and makes what was packed tenfold."""
    failures = [None]
    unpack = trace.saw("unpack", lambda packed: packed * 10)

    def fail_first(packed: Any) -> Any:
        if failures:
            failures.pop()
            raise UserError("from unpack")
        return unpack(packed)

    return fail_first


def fails_and_goes_on(trace: Trace, label: str, run: Callable[[], Any]) -> None:
    """Expect a pass to raise the error of unpack, and the next pass to use what unpack returns if it can run again."""
    with trace.raises_type(UserError, "from unpack"):
        run()
    if label in RETAINING:
        trace.log(label, run())
        trace.expect("unpack", (label, [10.0, 10.0]))


def give_pair(backend: Backend, y: Any, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
    """Register a pair of hooks on what the operation that made a tensor has saved."""
    (saved,) = backend.raw_saved_tensors(backend.grad_fn(y))
    backend.saved_tensor_register_hooks(saved, pack, unpack)


@rule(
    "saved-tensor.per-tensor.every-pass",
    level=Level.MUST,
    sources=[ONE_SAVED_TENSOR.sentence(4)],
    needs=[*REGISTER, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=["per-tensor-hooks-ignored-by-autograd-grad"],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_own_pair_in_every_pass(backend: Backend, trace: Trace) -> None:
    """Each pass calls unpack of a saved tensor's own pair once if it needs the tensor once, and uses what it returns.

    In backward and autograd.grad, again on the same graph, in no_grad, with create_graph, with
    inputs, from two roots, from a gradient edge, and in another thread.
    """

    def unpacks_in(runs: dict[str, Run], times: int) -> None:
        for label, run in runs.items():
            x = zeros(backend)
            y = backend.call(backend.exp, x)
            give_pair(backend, y, backend.detach, trace.saw("unpack", lambda packed: packed * 10))
            root = backend.call(backend.sum, y)
            for _ in range(times):
                trace.log(label, run(root, x))
                trace.expect("unpack", (label, [10.0, 10.0]))

    unpacks_in(every_pass(backend), THRICE)
    unpacks_in({**roots(backend), **in_thread(backend)}, 1)


@rule(
    "saved-tensor.per-tensor.every-place",
    level=Level.MUST,
    sources=[ONE_SAVED_TENSOR.sentence(3, 4)],
    needs=[*REGISTER, *EVERYWHERE],
    mutants=["per-tensor-hooks-registered-in-a-pass-ignored"],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_own_pair_in_every_place(backend: Backend, trace: Trace) -> None:
    """A saved tensor's own pair packs and unpacks it no matter what was under way when the pair was registered.

    In no_grad, during a pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks, in
    another thread, and after a backward whose unpack hook raised.
    """

    def fails(register: Callable[[], Any]) -> None:
        y = backend.exp(zeros(backend))
        give_pair(backend, y, backend.detach, fail)
        with suppress(Exception):
            backend.backward(backend.sum(y))
        register()

    for label, place in {**everywhere(backend), "after an error": fails}.items():
        x = zeros(backend)
        y = backend.call(backend.exp, x)
        pair = trace.saw("pack", backend.detach), trace.saw("unpack", lambda packed: packed * 10)
        place(lambda y=y, pair=pair: give_pair(backend, y, *pair) or True)
        backend.backward(backend.sum(y))

        trace.log(label, backend.grad_of(x))
        trace.expect(("pack", [1.0, 1.0]), ("unpack", [1.0, 1.0]), (label, [10.0, 10.0]))


@rule(
    "saved-tensor.pack.no-grad.every-place",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(8)],
    needs=EVERYWHERE,
    mutants=["pack-runs-with-grad-in-a-pass"],
)
def test_no_grad_in_every_place(backend: Backend, trace: Trace) -> None:
    """A pack hook runs with grad mode off no matter what was under way when its context was entered.

    In no_grad, during a pass, in a checkpointed function and its recomputation, in the forward of a module, under other
    saved-tensor hooks, in another thread, and after a backward whose unpack hook raised.
    """
    other = backend.tensor([3.0], requires_grad=True)

    def pack(tensor: Any) -> Any:
        trace.log("pack", backend.requires_grad(other * 4))
        return backend.detach(tensor)

    def save(x: Any) -> Any:
        with backend.saved_tensors_hooks(pack, lambda packed: packed), backend.enable_grad():
            return backend.exp(x)

    def region(x: Any) -> Any:
        y = save(x)
        return y * y

    for place in everywhere(backend).values():
        place(lambda: save(zeros(backend)))
        trace.expect(("pack", False))
    root = backend.checkpoint(region, zeros(backend), use_reentrant=False)
    trace.expect(("pack", False))
    backend.backward(backend.sum(root))
    trace.expect(("pack", False))
    with backend.saved_tensors_hooks(backend.detach, fail):
        failing = backend.exp(zeros(backend))
    with suppress(Exception):
        backend.backward(backend.sum(failing))
    save(zeros(backend))
    trace.expect(("pack", False))


@rule(
    "saved-tensor.pack.no-grad.create-graph",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(8)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["pack-runs-with-grad-in-a-pass-that-creates-a-graph"],
)
def test_no_grad_in_creating_pass(backend: Backend, trace: Trace) -> None:
    """A pack hook runs with grad mode off for what a pass that creates a graph saves, too."""
    other = backend.tensor([3.0], requires_grad=True)

    def pack(tensor: Any) -> Any:
        trace.log("pack", backend.requires_grad(other * 4))
        return backend.detach(tensor)

    x = backend.tensor([2.0], requires_grad=True)
    root = backend.call(lambda x: backend.sum(x * x * x), x)
    with backend.saved_tensors_hooks(pack, lambda packed: packed):
        backend.grad(root, [x], create_graph=True)

    trace.expect_value("require grad in pack", [False], sorted(set(trace.values("pack"))))


@rule(
    "saved-tensor.unpack.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the error of an unpack hook reaches the caller of any pass")],
    needs=[Capability.SAVED_TENSOR_HOOKS, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=[
        "exceptions-of-unpack-in-autograd-grad-swallowed",
        "unpack-lost-once-raised",
    ],
)
def test_errors_in_every_pass(backend: Backend, trace: Trace) -> None:
    """An error of an unpack hook reaches the caller of the pass, whatever the pass is and wherever it starts.

    In backward and autograd.grad, in no_grad, with create_graph, with inputs, from two roots,
    from a gradient edge, and in another thread. If the graph is retained, the next pass calls the hook again.
    """
    for label, run in {**every_pass(backend), **roots(backend), **in_thread(backend)}.items():
        x = zeros(backend)
        with backend.saved_tensors_hooks(backend.detach, failing_once(trace)):
            y = backend.call(backend.exp, x)
        root = backend.call(backend.sum, y)
        fails_and_goes_on(trace, label, lambda run=run, root=root, x=x: run(root, x))


@rule(
    "saved-tensor.per-tensor.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error of a saved tensor's own pair reaches the caller of the registration or of the pass")],
    needs=[*REGISTER, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=[
        "exceptions-of-per-tensor-hooks-swallowed",
        "unpack-lost-once-raised",
    ],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_errors_of_own_pair(backend: Backend, trace: Trace) -> None:
    """An error of a saved tensor's own pack hook reaches who registers it, and one of unpack the caller of the pass.

    In each kind of pass, from each kind of root, and in another thread. If the graph is retained, the next pass calls
    the hook again.
    """
    for label, run in {**every_pass(backend), **roots(backend), **in_thread(backend)}.items():
        x = zeros(backend)
        y = backend.call(backend.exp, x)
        with trace.raises_type(UserError, "from unpack"):
            give_pair(backend, backend.exp(x), fail, fail)
        give_pair(backend, y, backend.detach, failing_once(trace))
        root = backend.call(backend.sum, y)
        fails_and_goes_on(trace, label, lambda run=run, root=root, x=x: run(root, x))
