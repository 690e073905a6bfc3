"""Checkpoints of several functions wherever they are called: what is recomputed."""

from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, rule
from hooklaw.rules.hooks import leaf
from hooklaw.rules.passes import EVERYWHERE, whenever

SEQUENTIAL = docstring("torch.utils.checkpoint.checkpoint_sequential")
NEEDS = [*EVERYWHERE, Capability.CHECKPOINT_SEQUENTIAL]


@rule(
    "checkpoint-sequential.every-place",
    level=Level.MUST,
    sources=[SEQUENTIAL.sentence(4, 5)],
    needs=NEEDS,
    mutants=["checkpoint-sequential-in-one-piece-in-a-module", "checkpoint-sequential-in-one-piece-in-a-pass"],
)
def test_sequential(backend: Backend, trace: Trace) -> None:
    """checkpoint_sequential recomputes all segments but the last no matter what was under way when it was called."""

    def squared(label: str) -> Any:
        return lambda x: (trace.log(label), x * x)[1]

    functions, made = [squared("first"), squared("last")], list[Any]()

    def call(x: Any) -> None:
        with backend.enable_grad():
            made.append(backend.sum(backend.checkpoint_sequential(functions, 2, x, use_reentrant=False)))

    for label, place in whenever(backend).items():
        if "checkpoint" in label:  # whether the outer one is recomputed, too, is not said
            continue
        x = leaf(backend)
        place(lambda x=x: call(x))
        trace.expect("first", "last")
        backend.backward(made.pop())
        trace.log(label, backend.grad_of(x))
        trace.expect("first", (label, [4.0, 32.0]))
