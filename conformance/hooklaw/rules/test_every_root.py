"""Hooks of each kind, whatever a backward starts from, what it is for, and which thread runs it."""

from hooklaw import Backend, Capability, Level, Trace, docstring, notes, rule
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
from hooklaw.rules.passes import ROOTS, in_thread, roots, runs_in

TENSOR_HOOK = docstring("torch.Tensor.register_hook")
POST_ACCUMULATE_HOOK = docstring("torch.Tensor.register_post_accumulate_grad_hook")
NODE_PRE_HOOK = docstring("torch.autograd.graph.Node.register_prehook")
NODE_HOOK = docstring("torch.autograd.graph.Node.register_hook")
MULTI_GRAD_HOOK = docstring("torch.autograd.graph.register_multi_grad_hook")
MULTI_GRAD_ANY_HOOK = docstring("torch.autograd.graph.register_multi_grad_hook")
BACKWARD_PRE_HOOK = docstring("torch.nn.Module.register_full_backward_pre_hook")
BACKWARD_HOOK = docstring("torch.nn.Module.register_full_backward_hook")
GLOBAL_BACKWARD_PRE_HOOK = docstring("torch.nn.modules.module.register_module_full_backward_pre_hook")
GLOBAL_BACKWARD_HOOK = docstring("torch.nn.modules.module.register_module_full_backward_hook")
ORDER = notes("autograd", "the-order-in-which-the-different-hooks-are-fired").sentence(8)


@rule(
    "tensor-hook.fire.every-root",
    level=Level.MUST,
    sources=[TENSOR_HOOK.sentence(2, 4), ORDER],
    needs=[Capability.TENSOR_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "tensor-hook-lost-inputs",
        "tensor-hook-lost-several-roots",
        "tensor-hook-twice-edge-root",
        "tensor-hook-lost-another-thread",
        "tensor-hook-ignored-several-roots",
    ],
)
def test_tensor(backend: Backend, trace: Trace) -> None:
    """A tensor hook runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    Three hooks that were registered before it run before it, in order.
    """
    for kind in (TENSOR, TENSOR_ON_LEAF):
        runs_in(backend, trace, kind, {**roots(backend), **in_thread(backend)})


@rule(
    "post-acc.fire.every-root",
    level=Level.MUST,
    sources=[POST_ACCUMULATE_HOOK.sentence(2), ORDER],
    needs=[Capability.POST_ACCUMULATE, *ROOTS, Capability.THREADS],
    mutants=[
        "post-accumulate-hook-lost-inputs",
        "post-accumulate-hook-lost-several-roots",
        "post-accumulate-hook-twice-edge-root",
        "post-accumulate-hook-lost-another-thread",
    ],
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    Three hooks that were registered before it run before it, in order.
    """
    runs_in(backend, trace, POST_ACCUMULATE, {**roots(backend), **in_thread(backend)})


@rule(
    "node-prehook.fire.every-root",
    level=Level.MUST,
    sources=[NODE_PRE_HOOK.sentence(2, 4), ORDER],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "node-pre-hook-lost-inputs",
        "node-pre-hook-lost-several-roots",
        "node-pre-hook-twice-edge-root",
        "node-pre-hook-lost-another-thread",
        "node-pre-hook-ignored-several-roots",
    ],
)
def test_node_pre(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    Three hooks that were registered before it run before it, in order.
    """
    for kind in (NODE_PRE, NODE_PRE_OF_LEAF):
        runs_in(backend, trace, kind, {**roots(backend), **in_thread(backend)})


@rule(
    "node-hook.fire.every-root",
    level=Level.MUST,
    sources=[NODE_HOOK.sentence(2, 3, 4), ORDER],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "node-hook-lost-inputs",
        "node-hook-lost-several-roots",
        "node-hook-twice-edge-root",
        "node-hook-lost-another-thread",
        "node-hook-ignored-several-roots",
    ],
)
def test_node(backend: Backend, trace: Trace) -> None:
    """A Node hook runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    Three hooks that were registered before it run before it, in order.
    """
    for kind in (NODE, NODE_OF_LEAF):
        runs_in(backend, trace, kind, {**roots(backend), **in_thread(backend)})


@rule(
    "multi-grad.all.fire.every-root",
    level=Level.MUST,
    sources=[MULTI_GRAD_HOOK.sentence(3, 5)],
    needs=[Capability.MULTI_GRAD, *ROOTS, Capability.THREADS],
    mutants=[
        "multi-grad-hook-lost-inputs",
        "multi-grad-hook-lost-several-roots",
        "multi-grad-hook-twice-edge-root",
        "multi-grad-hook-lost-another-thread",
    ],
)
def test_multi_grad(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    for kind in (MULTI_GRAD, MULTI_GRAD_ON_LEAF):
        runs_in(backend, trace, kind, {**roots(backend), **in_thread(backend)})


@rule(
    "multi-grad.any.fire.every-root",
    level=Level.MUST,
    sources=[MULTI_GRAD_ANY_HOOK.sentence(7, 8)],
    needs=[Capability.MULTI_GRAD, *ROOTS, Capability.THREADS],
    mutants=[
        "any-grad-hook-lost-inputs",
        "any-grad-hook-lost-several-roots",
        "any-grad-hook-twice-edge-root",
        "any-grad-hook-lost-another-thread",
    ],
)
def test_multi_grad_any(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode any runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    for kind in (MULTI_GRAD_ANY, MULTI_GRAD_ANY_ON_LEAF):
        runs_in(backend, trace, kind, {**roots(backend), **in_thread(backend)})


@rule(
    "module.full-backward-pre.fire.every-root",
    level=Level.MUST,
    sources=[BACKWARD_PRE_HOOK.sentence(2, 3, 5, 12)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "backward-pre-hook-lost-inputs",
        "backward-pre-hook-lost-several-roots",
        "backward-pre-hook-twice-edge-root",
        "backward-pre-hook-lost-another-thread",
        "backward-pre-hook-ignored-several-roots",
    ],
)
def test_backward_pre(backend: Backend, trace: Trace) -> None:
    """A module's backward pre-hook runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    Three hooks that were registered before it run before it, in order.
    """
    runs_in(backend, trace, BACKWARD_PRE, {**roots(backend), **in_thread(backend)})


@rule(
    "module.full-backward.fire.every-root",
    level=Level.MUST,
    sources=[BACKWARD_HOOK.sentence(2, 6, 7, 8, 16)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, *ROOTS, Capability.THREADS],
    mutants=[
        "backward-hook-lost-inputs",
        "backward-hook-lost-several-roots",
        "backward-hook-twice-edge-root",
        "backward-hook-lost-another-thread",
        "backward-hook-ignored-several-roots",
    ],
)
def test_backward(backend: Backend, trace: Trace) -> None:
    """A module's backward hook runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    Three hooks that were registered before it run before it, in order.
    """
    runs_in(backend, trace, BACKWARD, {**roots(backend), **in_thread(backend)})


@rule(
    "module.global-full-backward-pre.fire.every-root",
    level=Level.MUST,
    sources=[GLOBAL_BACKWARD_PRE_HOOK.sentence(1, 3)],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
        *ROOTS,
        Capability.THREADS,
    ],
    mutants=[
        "global-backward-pre-hook-lost-inputs",
        "global-backward-pre-hook-lost-several-roots",
        "global-backward-pre-hook-twice-edge-root",
        "global-backward-pre-hook-lost-another-thread",
        "global-backward-pre-hook-ignored-several-roots",
    ],
)
def test_global_backward_pre(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook on all modules runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    runs_in(backend, trace, GLOBAL_BACKWARD_PRE, {**roots(backend), **in_thread(backend)})


@rule(
    "module.global-full-backward.fire.every-root",
    level=Level.MUST,
    sources=[GLOBAL_BACKWARD_HOOK.sentence(1, 3)],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
        *ROOTS,
        Capability.THREADS,
    ],
    mutants=[
        "global-backward-hook-lost-inputs",
        "global-backward-hook-lost-several-roots",
        "global-backward-hook-twice-edge-root",
        "global-backward-hook-lost-another-thread",
        "global-backward-hook-ignored-several-roots",
    ],
)
def test_global_backward(backend: Backend, trace: Trace) -> None:
    """A backward hook on all modules runs once in a backward that reaches it, from any root and in any thread.

    A backward with inputs or a gradient, from the first and last of two roots, from an edge, and in another thread.
    """
    runs_in(backend, trace, GLOBAL_BACKWARD, {**roots(backend), **in_thread(backend)})
