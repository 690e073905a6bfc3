"""Hooks of each kind, in each kind of pass: once, with what they return."""

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
from hooklaw.rules.passes import BACKWARDS, EVERY_PASS, PASSES, THRICE, backwards, creating, every_pass, passes, runs_in

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
    "tensor-hook.fire.every-pass",
    level=Level.MUST,
    sources=[TENSOR_HOOK.sentence(2, 4), ORDER],
    needs=[Capability.TENSOR_HOOKS, *PASSES],
    mutants=[
        "tensor-hook-lost-second-pass",
        "tensor-hook-lost-create-graph",
        "tensor-hook-lost-no-grad-pass",
        "tensor-hook-lost-autograd-grad",
        "tensor-hook-ignored-no-grad-pass",
    ],
)
def test_tensor(backend: Backend, trace: Trace) -> None:
    """A tensor hook runs once in each pass that reaches it, and what it returns is used.

    In backward and autograd.grad, also of two outputs, again on the same graph, in no_grad, and with create_graph.
    Three hooks that were registered before it run before it, in order.
    """
    for kind in (TENSOR, TENSOR_ON_LEAF):
        runs_in(backend, trace, kind, passes(backend), times=THRICE)


@rule(
    "tensor-hook.fire.backward-create-graph",
    level=Level.MUST,
    sources=[TENSOR_HOOK.sentence(2, 4), ORDER],
    needs=[Capability.TENSOR_HOOKS, Capability.BACKWARD_CREATE_GRAPH],
    mutants=["tensor-hook-in-wrong-order-backward-creating"],
)
def test_tensor_in_backward_that_creates(backend: Backend, trace: Trace) -> None:
    """A tensor hook runs once in each backward that creates a graph, and what it returns is used.

    Three hooks that were registered before it run before it, in order.
    """
    for kind in (TENSOR, TENSOR_ON_LEAF):
        runs_in(backend, trace, kind, creating(backend), times=THRICE)


@rule(
    "post-acc.fire.every-pass",
    level=Level.MUST,
    sources=[POST_ACCUMULATE_HOOK.sentence(2), ORDER],
    needs=[Capability.POST_ACCUMULATE, *BACKWARDS],
    mutants=[
        "post-accumulate-hook-lost-second-pass",
        "post-accumulate-hook-lost-create-graph",
        "post-accumulate-hook-lost-no-grad-pass",
    ],
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook runs once in each backward.

    Again on the same graph, in no_grad, and with create_graph.
    Three hooks that were registered before it run before it, in order.
    """
    runs_in(backend, trace, POST_ACCUMULATE, backwards(backend), times=THRICE)


@rule(
    "node-prehook.fire.every-pass",
    level=Level.MUST,
    sources=[NODE_PRE_HOOK.sentence(2, 4), ORDER],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *EVERY_PASS],
    mutants=[
        "node-pre-hook-lost-second-pass",
        "node-pre-hook-lost-create-graph",
        "node-pre-hook-lost-backward-creating",
        "node-pre-hook-lost-no-grad-pass",
        "node-pre-hook-lost-autograd-grad",
        "node-pre-hook-ignored-no-grad-pass",
    ],
)
def test_node_pre(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook runs once in each pass that reaches it, and what it returns is used.

    In backward and autograd.grad, also of two outputs, again on the same graph, in no_grad, and with create_graph.
    Three hooks that were registered before it run before it, in order.
    """
    runs_in(backend, trace, NODE_PRE, every_pass(backend), times=THRICE)
    runs_in(backend, trace, NODE_PRE_OF_LEAF, backwards(backend), times=THRICE)


@rule(
    "node-hook.fire.every-pass",
    level=Level.MUST,
    sources=[NODE_HOOK.sentence(2, 3, 4), ORDER],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *EVERY_PASS],
    mutants=[
        "node-hook-lost-second-pass",
        "node-hook-lost-create-graph",
        "node-hook-lost-backward-creating",
        "node-hook-lost-no-grad-pass",
        "node-hook-lost-autograd-grad",
        "node-hook-ignored-no-grad-pass",
    ],
)
def test_node(backend: Backend, trace: Trace) -> None:
    """A Node hook runs once in each pass that reaches it, and what it returns is used.

    In backward and autograd.grad, also of two outputs, again on the same graph, in no_grad, and with create_graph.
    Three hooks that were registered before it run before it, in order.
    """
    runs_in(backend, trace, NODE, every_pass(backend), times=THRICE)
    runs_in(backend, trace, NODE_OF_LEAF, backwards(backend), times=THRICE)


@rule(
    "multi-grad.all.fire.every-pass",
    level=Level.MUST,
    sources=[MULTI_GRAD_HOOK.sentence(3, 5)],
    needs=[Capability.MULTI_GRAD, *EVERY_PASS],
    mutants=[
        "multi-grad-hook-lost-second-pass",
        "multi-grad-hook-lost-create-graph",
        "multi-grad-hook-lost-backward-creating",
        "multi-grad-hook-lost-no-grad-pass",
        "multi-grad-hook-lost-autograd-grad",
    ],
)
def test_multi_grad(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook runs once in each pass that reaches it.

    In backward and autograd.grad, also of two outputs, again on the same graph, in no_grad, and with create_graph.
    """
    runs_in(backend, trace, MULTI_GRAD, every_pass(backend), times=THRICE)
    runs_in(backend, trace, MULTI_GRAD_ON_LEAF, backwards(backend), times=THRICE)


@rule(
    "multi-grad.any.fire.every-pass",
    level=Level.MUST,
    sources=[MULTI_GRAD_ANY_HOOK.sentence(7, 8)],
    needs=[Capability.MULTI_GRAD, *EVERY_PASS],
    mutants=[
        "any-grad-hook-lost-second-pass",
        "any-grad-hook-lost-create-graph",
        "any-grad-hook-lost-backward-creating",
        "any-grad-hook-lost-no-grad-pass",
        "any-grad-hook-lost-autograd-grad",
    ],
)
def test_multi_grad_any(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode any runs once in each pass that reaches it.

    In backward and autograd.grad, also of two outputs, again on the same graph, in no_grad, and with create_graph.
    """
    runs_in(backend, trace, MULTI_GRAD_ANY, every_pass(backend), times=THRICE)
    runs_in(backend, trace, MULTI_GRAD_ANY_ON_LEAF, backwards(backend), times=THRICE)


@rule(
    "module.full-backward-pre.fire.every-pass",
    level=Level.MUST,
    sources=[BACKWARD_PRE_HOOK.sentence(2, 3, 5, 12)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, *EVERY_PASS],
    mutants=[
        "backward-pre-hook-lost-second-pass",
        "backward-pre-hook-lost-create-graph",
        "backward-pre-hook-lost-backward-creating",
        "backward-pre-hook-lost-no-grad-pass",
        "backward-pre-hook-lost-autograd-grad",
        "backward-pre-hook-ignored-no-grad-pass",
    ],
)
def test_backward_pre(backend: Backend, trace: Trace) -> None:
    """A module's backward pre-hook runs once in each pass that reaches it, and what it returns is used.

    In backward and autograd.grad, also of two outputs, again on the same graph, in no_grad, and with create_graph.
    Three hooks that were registered before it run before it, in order.
    """
    runs_in(backend, trace, BACKWARD_PRE, every_pass(backend), times=THRICE)


@rule(
    "module.full-backward.fire.every-pass",
    level=Level.MUST,
    sources=[BACKWARD_HOOK.sentence(2, 6, 7, 8, 16)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, *EVERY_PASS],
    mutants=[
        "backward-hook-lost-second-pass",
        "backward-hook-lost-create-graph",
        "backward-hook-lost-backward-creating",
        "backward-hook-lost-no-grad-pass",
        "backward-hook-lost-autograd-grad",
        "backward-hook-ignored-no-grad-pass",
    ],
)
def test_backward(backend: Backend, trace: Trace) -> None:
    """A module's backward hook runs once in each pass that reaches it, and what it returns is used.

    In backward and autograd.grad, also of two outputs, again on the same graph, in no_grad, and with create_graph.
    Three hooks that were registered before it run before it, in order.
    """
    runs_in(backend, trace, BACKWARD, every_pass(backend), times=THRICE)


@rule(
    "module.global-full-backward-pre.fire.every-pass",
    level=Level.MUST,
    sources=[GLOBAL_BACKWARD_PRE_HOOK.sentence(1, 3)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, Capability.GLOBAL_MODULE_HOOKS, *EVERY_PASS],
    mutants=[
        "global-backward-pre-hook-lost-second-pass",
        "global-backward-pre-hook-lost-create-graph",
        "global-backward-pre-hook-lost-backward-creating",
        "global-backward-pre-hook-lost-no-grad-pass",
        "global-backward-pre-hook-lost-autograd-grad",
        "global-backward-pre-hook-ignored-no-grad-pass",
    ],
)
def test_global_backward_pre(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook on all modules runs once in each pass that reaches it, and what it returns is used.

    In backward and autograd.grad, also of two outputs, again on the same graph, in no_grad, and with create_graph.
    """
    runs_in(backend, trace, GLOBAL_BACKWARD_PRE, every_pass(backend), times=THRICE)


@rule(
    "module.global-full-backward.fire.every-pass",
    level=Level.MUST,
    sources=[GLOBAL_BACKWARD_HOOK.sentence(1, 3)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, Capability.GLOBAL_MODULE_HOOKS, *EVERY_PASS],
    mutants=[
        "global-backward-hook-lost-second-pass",
        "global-backward-hook-lost-create-graph",
        "global-backward-hook-lost-backward-creating",
        "global-backward-hook-lost-no-grad-pass",
        "global-backward-hook-lost-autograd-grad",
        "global-backward-hook-ignored-no-grad-pass",
    ],
)
def test_global_backward(backend: Backend, trace: Trace) -> None:
    """A backward hook on all modules runs once in each pass that reaches it, and what it returns is used.

    In backward and autograd.grad, also of two outputs, again on the same graph, in no_grad, and with create_graph.
    """
    runs_in(backend, trace, GLOBAL_BACKWARD, every_pass(backend), times=THRICE)
