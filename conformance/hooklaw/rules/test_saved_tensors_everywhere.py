"""Saved-tensor hooks in each kind of pass and wherever their context is entered, and errors of pack hooks there."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import UserError, zeros
from hooklaw.rules.passes import (
    EVERYWHERE,
    INNER,
    PASSES,
    ROOTS,
    THRICE,
    Run,
    creating,
    everywhere,
    in_thread,
    inside_a_pass,
    passes,
    roots,
)

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
Save = Callable[[], Any]


def unpacks_in(backend: Backend, trace: Trace, runs: dict[str, Run], times: int = 1) -> None:
    """Expect each of these passes to unpack a tensor once, and to use what unpack returns."""
    for label, run in runs.items():
        x = zeros(backend)
        with backend.saved_tensors_hooks(backend.detach, trace.saw("unpack", lambda packed: packed * 10)):
            y = backend.call(backend.exp, x)
        root = backend.call(backend.sum, y)
        for _ in range(times):
            trace.log(label, run(root, x))
            trace.expect("unpack", (label, [10.0, 10.0]))


@rule(
    "saved-tensor.unpack.every-pass",
    level=Level.MUST,
    sources=[HOOKS.sentence(5, 6)],
    needs=[Capability.SAVED_TENSOR_HOOKS, *PASSES],
    mutants=[
        "unpack-hook-doubled-no-grad-pass",
        "unpack-hook-twice-no-grad-pass",
        "unpacked-tensor-ignored-in-autograd-grad",
    ],
)
def test_every_pass(backend: Backend, trace: Trace) -> None:
    """Each pass calls unpack once for a saved tensor that it needs once, and uses what it returns.

    In backward and autograd.grad, again on the same graph, in no_grad, and with create_graph.
    """
    unpacks_in(backend, trace, passes(backend), times=THRICE)


@rule(
    "saved-tensor.unpack.backward-create-graph",
    level=Level.MUST,
    sources=[HOOKS.sentence(5, 6)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.BACKWARD_CREATE_GRAPH],
    mutants=["unpack-hook-twice-backward-creating"],
)
def test_backward_that_creates(backend: Backend, trace: Trace) -> None:
    """A backward that creates a graph calls unpack once for a tensor that it needs once, and uses what it returns."""
    unpacks_in(backend, trace, creating(backend), times=THRICE)


@rule(
    "saved-tensor.unpack.inside-a-pass",
    level=Level.MUST,
    sources=[HOOKS.sentence(5, 6)],
    needs=[Capability.SAVED_TENSOR_HOOKS, *INNER],
    mutants=["unpack-hook-doubled-inner-pass", "unpack-hook-twice-inner-pass"],
)
def test_inside_a_pass(backend: Backend, trace: Trace) -> None:
    """Inside another pass unpack is called once for a saved tensor that is needed once, and what it returns is used."""
    unpacks_in(backend, trace, inside_a_pass(backend), times=THRICE)


@rule(
    "saved-tensor.unpack.every-root",
    level=Level.MUST,
    sources=[HOOKS.sentence(5, 6)],
    needs=[Capability.SAVED_TENSOR_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "unpack-hook-doubled-inputs",
        "unpack-hook-doubled-several-roots",
        "unpack-hook-twice-edge-root",
        "unpacked-tensor-ignored-for-some-inputs",
    ],
)
def test_every_root(backend: Backend, trace: Trace) -> None:
    """A backward calls unpack once for a tensor that it needs once, whatever it starts from, in any thread.

    A backward with inputs, from the first and last of two roots, from a gradient edge, and in another thread.
    """
    unpacks_in(backend, trace, {**roots(backend), **in_thread(backend)})


@rule(
    "saved-tensor.pack.every-place",
    level=Level.MUST,
    sources=[HOOKS.sentence(3, 5)],
    needs=EVERYWHERE,
    mutants=[
        "pack-hook-lost-made-in-a-pass",
        "pack-hook-twice-made-in-no-grad",
        "unpack-hook-doubled-made-in-no-grad",
        "unpacked-tensor-ignored-if-the-pair-was-made-in-a-module",
    ],
)
def test_every_place(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks pack and unpack a tensor no matter what was under way when their context was entered.

    In no_grad, during a pass, in a checkpointed function, in the forward of a module, under other saved-tensor hooks,
    and in another thread.
    """
    for label, place in everywhere(backend).items():
        x, saved = zeros(backend), list[Any]()

        def save(x: Any = x, saved: list[Any] = saved) -> None:
            pair = trace.saw("pack", backend.detach), trace.saw("unpack", lambda packed: packed * 10)
            with backend.saved_tensors_hooks(*pair), backend.enable_grad():
                saved.append(backend.exp(x))

        place(save)
        backend.backward(backend.sum(saved[0]))

        trace.log(label, backend.grad_of(x))
        trace.expect(("pack", [1.0, 1.0]), ("unpack", [1.0, 1.0]), (label, [10.0, 10.0]))


@rule(
    "saved-tensor.pack.exception.every-place",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the error of a pack hook reaches the caller of the operation, and the next operation is right")],
    needs=EVERYWHERE,
    mutants=[
        "pack-hook-swallowed-in-a-module",
        "pack-hook-swallowed-in-a-checkpoint",
        "pack-hook-swallowed-recomputation",
        "pack-hook-twice-after-a-failure",
        "unpack-hook-doubled-after-a-failure",
        "pack-lost-once-raised",
    ],
)
def test_errors(backend: Backend, trace: Trace) -> None:
    """An error of a pack hook reaches the caller of the operation, and the next operation is right.

    In each place and in a recomputation, also for the third tensor in a context. The next operation may be in it, too.
    """

    def failing(right: int, packed: list[None]) -> Callable[[Any], Any]:
        def pack(tensor: Any) -> Any:
            packed.append(None)
            if len(packed) > right:
                raise UserError("from pack")
            return backend.detach(tensor)

        return pack

    def save(x: Any, pack: Callable[[Any], Any], times: int = 1) -> Any:
        with backend.saved_tensors_hooks(pack, unpack), backend.enable_grad():
            return [backend.exp(x) for _ in range(times)][-1]

    def region(x: Any) -> Any:
        y = save(x, pack)
        return y * y

    unpack = trace.saw("unpack", lambda packed: packed)
    for right in (0, 2):
        for label, place in everywhere(backend).items():
            packed = list[None]()
            with trace.raises_type(UserError, "from pack"):
                place(partial(save, zeros(backend), failing(right, packed), right + 1))
            trace.expect_value(f"packed {label}", right + 1, len(packed))
    pack = failing(1, [])
    recomputed = backend.checkpoint(region, zeros(backend), use_reentrant=False)
    with trace.raises_type(UserError, "from pack"):
        backend.backward(backend.sum(recomputed))

    x = zeros(backend)
    backend.backward(backend.sum(save(x, trace.saw("pack", backend.detach))))
    trace.log("gradient", backend.grad_of(x))
    trace.expect("pack", "unpack", ("gradient", [1.0, 1.0]))

    failures = [None]

    def failing_first(tensor: Any) -> Any:
        if failures:
            failures.pop()
            raise UserError("from pack")
        trace.log("pack")
        return backend.detach(tensor)

    x = zeros(backend)
    with backend.saved_tensors_hooks(failing_first, unpack):
        with trace.raises_type(UserError, "from pack"):
            backend.exp(x)
        y = backend.exp(x)
    backend.backward(backend.sum(y))
    trace.log("gradient", backend.grad_of(x))
    trace.expect("pack", "unpack", ("gradient", [1.0, 1.0]))
