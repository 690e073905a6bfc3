"""Errors of hooks of each kind, in each kind of pass: they reach its caller, and the next pass is right."""

from hooklaw import Backend, Basis, Capability, Level, Trace, observed, rule
from hooklaw.rules.hooks import (
    BACKWARD,
    BACKWARD_PRE,
    GLOBAL_BACKWARD,
    GLOBAL_BACKWARD_PRE,
    MULTI_GRAD,
    MULTI_GRAD_ANY,
    MULTI_GRAD_ANY_ON_LEAF,
    MULTI_GRAD_ON_LEAF,
    NODE,
    NODE_OF_LEAF,
    NODE_PRE,
    NODE_PRE_OF_LEAF,
    POST_ACCUMULATE,
    TENSOR,
    TENSOR_ON_LEAF,
)
from hooklaw.rules.passes import (
    BACKWARDS,
    EVERY_PASS,
    PASSES,
    ROOTS,
    backwards,
    creating,
    every_pass,
    fails_in,
    fails_late,
    in_thread,
    passes,
    recovers_in,
    roots,
)

REACHES = observed("the error of a hook reaches the caller of the pass as it is, and the next pass is like any other")


@rule(
    "tensor-hook.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.TENSOR_HOOKS, *PASSES],
    mutants=[
        "tensor-hook-swallowed-no-grad-pass",
        "tensor-hook-swallowed-create-graph",
        "tensor-hook-swallowed-third",
        "tensor-hook-swallowed-third-call",
        "tensor-hook-twice-after-a-failure",
    ],
)
def test_tensor(backend: Backend, trace: Trace) -> None:
    """An error of a tensor hook reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, TENSOR, passes(backend))
    fails_in(backend, trace, TENSOR_ON_LEAF, passes(backend))
    recovers_in(backend, trace, TENSOR, passes(backend))
    fails_late(backend, trace, TENSOR)


@rule(
    "tensor-hook.exception.backward-create-graph",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.TENSOR_HOOKS, Capability.BACKWARD_CREATE_GRAPH],
    mutants=["tensor-hook-swallowed-backward-creating"],
)
def test_tensor_in_backward_that_creates(backend: Backend, trace: Trace) -> None:
    """An error of a tensor hook reaches the caller of a backward that creates a graph, and the next pass is right."""
    fails_in(backend, trace, TENSOR, creating(backend))
    fails_in(backend, trace, TENSOR_ON_LEAF, creating(backend))
    recovers_in(backend, trace, TENSOR, creating(backend))


@rule(
    "tensor-hook.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.TENSOR_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "tensor-hook-swallowed-inputs",
        "tensor-hook-swallowed-several-roots",
        "tensor-hook-swallowed-edge-root",
        "tensor-hook-swallowed-another-thread",
    ],
)
def test_tensor_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a tensor hook reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, TENSOR, {**roots(backend), **in_thread(backend)})
    fails_in(backend, trace, TENSOR_ON_LEAF, roots(backend))


@rule(
    "post-acc.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.POST_ACCUMULATE, *BACKWARDS],
    mutants=[
        "post-accumulate-hook-swallowed-no-grad-pass",
        "post-accumulate-hook-swallowed-create-graph",
        "post-accumulate-hook-swallowed-third",
        "post-accumulate-hook-swallowed-third-call",
        "post-accumulate-hook-twice-after-a-failure",
    ],
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """An error of a post-accumulate-grad hook reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, POST_ACCUMULATE, backwards(backend))
    recovers_in(backend, trace, POST_ACCUMULATE, backwards(backend))
    fails_late(backend, trace, POST_ACCUMULATE)


@rule(
    "post-acc.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.POST_ACCUMULATE, *ROOTS, Capability.THREADS],
    mutants=[
        "post-accumulate-hook-swallowed-inputs",
        "post-accumulate-hook-swallowed-several-roots",
        "post-accumulate-hook-swallowed-edge-root",
        "post-accumulate-hook-swallowed-another-thread",
    ],
)
def test_post_accumulate_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a post-accumulate-grad hook reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, POST_ACCUMULATE, {**roots(backend), **in_thread(backend)})


@rule(
    "node-prehook.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *EVERY_PASS],
    mutants=[
        "node-pre-hook-swallowed-no-grad-pass",
        "node-pre-hook-swallowed-create-graph",
        "node-pre-hook-swallowed-backward-creating",
        "node-pre-hook-swallowed-third",
        "node-pre-hook-swallowed-third-call",
        "node-pre-hook-twice-after-a-failure",
    ],
)
def test_node_pre(backend: Backend, trace: Trace) -> None:
    """An error of a Node pre-hook reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, NODE_PRE, every_pass(backend))
    fails_in(backend, trace, NODE_PRE_OF_LEAF, backwards(backend))
    recovers_in(backend, trace, NODE_PRE, every_pass(backend))
    fails_late(backend, trace, NODE_PRE)


@rule(
    "node-prehook.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "node-pre-hook-swallowed-inputs",
        "node-pre-hook-swallowed-several-roots",
        "node-pre-hook-swallowed-edge-root",
        "node-pre-hook-swallowed-another-thread",
    ],
)
def test_node_pre_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a Node pre-hook reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, NODE_PRE, {**roots(backend), **in_thread(backend)})
    fails_in(backend, trace, NODE_PRE_OF_LEAF, roots(backend))


@rule(
    "node-hook.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *EVERY_PASS],
    mutants=[
        "node-hook-swallowed-no-grad-pass",
        "node-hook-swallowed-create-graph",
        "node-hook-swallowed-backward-creating",
        "node-hook-swallowed-third",
        "node-hook-swallowed-third-call",
        "node-hook-twice-after-a-failure",
    ],
)
def test_node(backend: Backend, trace: Trace) -> None:
    """An error of a Node hook reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, NODE, every_pass(backend))
    fails_in(backend, trace, NODE_OF_LEAF, backwards(backend))
    recovers_in(backend, trace, NODE, every_pass(backend))
    fails_late(backend, trace, NODE)


@rule(
    "node-hook.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "node-hook-swallowed-inputs",
        "node-hook-swallowed-several-roots",
        "node-hook-swallowed-edge-root",
        "node-hook-swallowed-another-thread",
    ],
)
def test_node_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a Node hook reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, NODE, {**roots(backend), **in_thread(backend)})
    fails_in(backend, trace, NODE_OF_LEAF, roots(backend))


@rule(
    "multi-grad.all.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MULTI_GRAD, *EVERY_PASS],
    mutants=[
        "multi-grad-hook-swallowed-no-grad-pass",
        "multi-grad-hook-swallowed-create-graph",
        "multi-grad-hook-swallowed-backward-creating",
        "multi-grad-hook-swallowed-third",
        "multi-grad-hook-swallowed-third-call",
        "multi-grad-hook-twice-after-a-failure",
    ],
)
def test_multi_grad(backend: Backend, trace: Trace) -> None:
    """An error of a multi-grad hook reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, MULTI_GRAD, every_pass(backend))
    fails_in(backend, trace, MULTI_GRAD_ON_LEAF, backwards(backend))
    recovers_in(backend, trace, MULTI_GRAD, every_pass(backend))
    fails_late(backend, trace, MULTI_GRAD)


@rule(
    "multi-grad.all.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MULTI_GRAD, *ROOTS, Capability.THREADS],
    mutants=[
        "multi-grad-hook-swallowed-inputs",
        "multi-grad-hook-swallowed-several-roots",
        "multi-grad-hook-swallowed-edge-root",
        "multi-grad-hook-swallowed-another-thread",
    ],
)
def test_multi_grad_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a multi-grad hook reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, MULTI_GRAD, {**roots(backend), **in_thread(backend)})
    fails_in(backend, trace, MULTI_GRAD_ON_LEAF, roots(backend))


@rule(
    "multi-grad.any.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MULTI_GRAD, *EVERY_PASS],
    mutants=[
        "any-grad-hook-swallowed-no-grad-pass",
        "any-grad-hook-swallowed-create-graph",
        "any-grad-hook-swallowed-backward-creating",
        "any-grad-hook-swallowed-third",
        "any-grad-hook-swallowed-third-call",
        "any-grad-hook-twice-after-a-failure",
        "any-grad-hook-lost-once-raised",
    ],
)
def test_multi_grad_any(backend: Backend, trace: Trace) -> None:
    """An error of a multi-grad hook in mode any reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, MULTI_GRAD_ANY, every_pass(backend))
    fails_in(backend, trace, MULTI_GRAD_ANY_ON_LEAF, every_pass(backend))
    recovers_in(backend, trace, MULTI_GRAD_ANY, every_pass(backend))
    fails_late(backend, trace, MULTI_GRAD_ANY)


@rule(
    "multi-grad.any.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MULTI_GRAD, *ROOTS, Capability.THREADS],
    mutants=[
        "any-grad-hook-swallowed-inputs",
        "any-grad-hook-swallowed-several-roots",
        "any-grad-hook-swallowed-edge-root",
        "any-grad-hook-swallowed-another-thread",
    ],
)
def test_multi_grad_any_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a multi-grad hook in mode any reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, MULTI_GRAD_ANY, {**roots(backend), **in_thread(backend)})
    fails_in(backend, trace, MULTI_GRAD_ANY_ON_LEAF, roots(backend))


@rule(
    "module.full-backward-pre.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, *EVERY_PASS],
    mutants=[
        "backward-pre-hook-swallowed-no-grad-pass",
        "backward-pre-hook-swallowed-create-graph",
        "backward-pre-hook-swallowed-backward-creating",
        "backward-pre-hook-swallowed-third",
        "backward-pre-hook-swallowed-third-call",
        "backward-pre-hook-twice-after-a-failure",
    ],
)
def test_backward_pre(backend: Backend, trace: Trace) -> None:
    """An error of a module's backward pre-hook reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, BACKWARD_PRE, every_pass(backend))
    recovers_in(backend, trace, BACKWARD_PRE, every_pass(backend))
    fails_late(backend, trace, BACKWARD_PRE)


@rule(
    "module.full-backward-pre.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "backward-pre-hook-swallowed-inputs",
        "backward-pre-hook-swallowed-several-roots",
        "backward-pre-hook-swallowed-edge-root",
        "backward-pre-hook-swallowed-another-thread",
    ],
)
def test_backward_pre_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a module's backward pre-hook reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, BACKWARD_PRE, {**roots(backend), **in_thread(backend)})


@rule(
    "module.full-backward.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, *EVERY_PASS],
    mutants=[
        "backward-hook-swallowed-no-grad-pass",
        "backward-hook-swallowed-create-graph",
        "backward-hook-swallowed-backward-creating",
        "backward-hook-swallowed-third",
        "backward-hook-swallowed-third-call",
        "backward-hook-twice-after-a-failure",
    ],
)
def test_backward(backend: Backend, trace: Trace) -> None:
    """An error of a module's backward hook reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, BACKWARD, every_pass(backend))
    fails_late(backend, trace, BACKWARD)


@rule(
    "module.full-backward.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "backward-hook-swallowed-inputs",
        "backward-hook-swallowed-several-roots",
        "backward-hook-swallowed-edge-root",
        "backward-hook-swallowed-another-thread",
    ],
)
def test_backward_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a module's backward hook reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, BACKWARD, {**roots(backend), **in_thread(backend)})


@rule(
    "module.global-full-backward-pre.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, Capability.GLOBAL_MODULE_HOOKS, *EVERY_PASS],
    mutants=[
        "global-backward-pre-hook-swallowed-no-grad-pass",
        "global-backward-pre-hook-swallowed-create-graph",
        "global-backward-pre-hook-swallowed-backward-creating",
        "global-backward-pre-hook-swallowed-third",
        "global-backward-pre-hook-swallowed-third-call",
        "global-backward-pre-hook-twice-after-a-failure",
    ],
)
def test_global_backward_pre(backend: Backend, trace: Trace) -> None:
    """An error of a backward pre-hook on all modules reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, GLOBAL_BACKWARD_PRE, every_pass(backend))
    recovers_in(backend, trace, GLOBAL_BACKWARD_PRE, every_pass(backend))
    fails_late(backend, trace, GLOBAL_BACKWARD_PRE)


@rule(
    "module.global-full-backward-pre.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
        *ROOTS,
        Capability.THREADS,
    ],
    mutants=[
        "global-backward-pre-hook-swallowed-inputs",
        "global-backward-pre-hook-swallowed-several-roots",
        "global-backward-pre-hook-swallowed-edge-root",
        "global-backward-pre-hook-swallowed-another-thread",
    ],
)
def test_global_backward_pre_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a backward pre-hook on all modules reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, GLOBAL_BACKWARD_PRE, {**roots(backend), **in_thread(backend)})


@rule(
    "module.global-full-backward.exception.every-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, Capability.GLOBAL_MODULE_HOOKS, *EVERY_PASS],
    mutants=[
        "global-backward-hook-swallowed-no-grad-pass",
        "global-backward-hook-swallowed-create-graph",
        "global-backward-hook-swallowed-backward-creating",
        "global-backward-hook-swallowed-third",
        "global-backward-hook-swallowed-third-call",
        "global-backward-hook-twice-after-a-failure",
    ],
)
def test_global_backward(backend: Backend, trace: Trace) -> None:
    """An error of a backward hook on all modules reaches the caller of the pass, and the next pass is right.

    In each kind of pass; an error of the third hook in its third call too.
    """
    fails_in(backend, trace, GLOBAL_BACKWARD, every_pass(backend))
    recovers_in(backend, trace, GLOBAL_BACKWARD, every_pass(backend))
    fails_late(backend, trace, GLOBAL_BACKWARD)


@rule(
    "module.global-full-backward.exception.every-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
        *ROOTS,
        Capability.THREADS,
    ],
    mutants=[
        "global-backward-hook-swallowed-inputs",
        "global-backward-hook-swallowed-several-roots",
        "global-backward-hook-swallowed-edge-root",
        "global-backward-hook-swallowed-another-thread",
    ],
)
def test_global_backward_in_every_root(backend: Backend, trace: Trace) -> None:
    """An error of a backward hook on all modules reaches the caller of backward wherever it starts, in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    fails_in(backend, trace, GLOBAL_BACKWARD, {**roots(backend), **in_thread(backend)})
