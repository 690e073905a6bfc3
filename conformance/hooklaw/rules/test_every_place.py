"""Hooks of each kind, wherever they are registered: in no_grad, during a pass, in a checkpointed function."""

from hooklaw import Backend, Capability, Level, Trace, docstring, notes, rule
from hooklaw.rules.hooks import (
    BACKWARD,
    BACKWARD_PRE,
    GLOBAL_BACKWARD,
    GLOBAL_BACKWARD_PRE,
    MULTI_GRAD,
    MULTI_GRAD_ANY,
    NODE,
    NODE_PRE,
    POST_ACCUMULATE,
    TENSOR,
)
from hooklaw.rules.passes import PLACES, runs_from

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
ONCE_OUTSIDE_OF_MODULES = [
    "hooks-made-in-no-grad-run-once",
    "hooks-made-in-a-pass-run-once",
    "hooks-made-in-a-checkpoint-run-once",
    "hooks-made-with-pairs-run-once",
]
ONCE = [*ONCE_OUTSIDE_OF_MODULES, "hooks-made-in-a-module-run-once"]
"""Mutants whose hooks run in the first pass alone if they were registered there."""


@rule(
    "tensor-hook.fire.every-place",
    level=Level.MUST,
    sources=[TENSOR_HOOK.sentence(2, 4), ORDER],
    needs=[Capability.TENSOR_HOOKS, Capability.MODULES, *PLACES, Capability.RETAIN_GRAPH],
    mutants=[
        "tensor-hook-lost-made-in-no-grad",
        "tensor-hook-lost-made-in-a-pass",
        "tensor-hook-lost-made-in-a-checkpoint",
        "tensor-hook-twice-made-with-pairs",
        "tensor-hook-ignored-made-in-no-grad",
        *ONCE,
    ],
)
def test_tensor(backend: Backend, trace: Trace) -> None:
    """A tensor hook runs no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks.
    Three hooks that were registered before it run before it, in order.
    """
    runs_from(backend, trace, TENSOR)


@rule(
    "post-acc.fire.every-place",
    level=Level.MUST,
    sources=[POST_ACCUMULATE_HOOK.sentence(2), ORDER],
    needs=[Capability.POST_ACCUMULATE, Capability.MODULES, *PLACES, Capability.RETAIN_GRAPH],
    mutants=[
        "post-accumulate-hook-lost-made-in-no-grad",
        "post-accumulate-hook-lost-made-in-a-pass",
        "post-accumulate-hook-lost-made-in-a-checkpoint",
        "post-accumulate-hook-twice-made-with-pairs",
        *ONCE,
    ],
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook runs no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks.
    Three hooks that were registered before it run before it, in order.
    """
    runs_from(backend, trace, POST_ACCUMULATE)


@rule(
    "node-prehook.fire.every-place",
    level=Level.MUST,
    sources=[NODE_PRE_HOOK.sentence(2, 4), ORDER],
    needs=[Capability.NODES, Capability.NODE_HOOKS, Capability.MODULES, *PLACES, Capability.RETAIN_GRAPH],
    mutants=[
        "node-pre-hook-lost-made-in-no-grad",
        "node-pre-hook-lost-made-in-a-pass",
        "node-pre-hook-lost-made-in-a-checkpoint",
        "node-pre-hook-twice-made-with-pairs",
        "node-pre-hook-ignored-made-in-no-grad",
        *ONCE,
    ],
)
def test_node_pre(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook runs no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks.
    Three hooks that were registered before it run before it, in order.
    """
    runs_from(backend, trace, NODE_PRE)


@rule(
    "node-hook.fire.every-place",
    level=Level.MUST,
    sources=[NODE_HOOK.sentence(2, 3, 4), ORDER],
    needs=[Capability.NODES, Capability.NODE_HOOKS, Capability.MODULES, *PLACES, Capability.RETAIN_GRAPH],
    mutants=[
        "node-hook-lost-made-in-no-grad",
        "node-hook-lost-made-in-a-pass",
        "node-hook-lost-made-in-a-checkpoint",
        "node-hook-twice-made-with-pairs",
        "node-hook-ignored-made-in-no-grad",
        *ONCE,
    ],
)
def test_node(backend: Backend, trace: Trace) -> None:
    """A Node hook runs no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks.
    Three hooks that were registered before it run before it, in order.
    """
    runs_from(backend, trace, NODE)


@rule(
    "multi-grad.all.fire.every-place",
    level=Level.MUST,
    sources=[MULTI_GRAD_HOOK.sentence(3, 5)],
    needs=[Capability.MULTI_GRAD, Capability.MODULES, *PLACES, Capability.RETAIN_GRAPH],
    mutants=[
        "multi-grad-hook-lost-made-in-no-grad",
        "multi-grad-hook-lost-made-in-a-pass",
        "multi-grad-hook-lost-made-in-a-checkpoint",
        "multi-grad-hook-twice-made-with-pairs",
        *ONCE,
    ],
)
def test_multi_grad(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook runs no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks.
    """
    runs_from(backend, trace, MULTI_GRAD)


@rule(
    "multi-grad.any.fire.every-place",
    level=Level.MUST,
    sources=[MULTI_GRAD_ANY_HOOK.sentence(7, 8)],
    needs=[Capability.MULTI_GRAD, Capability.MODULES, *PLACES, Capability.RETAIN_GRAPH],
    mutants=[
        "any-grad-hook-lost-made-in-no-grad",
        "any-grad-hook-lost-made-in-a-pass",
        "any-grad-hook-lost-made-in-a-checkpoint",
        "any-grad-hook-twice-made-with-pairs",
        *ONCE,
    ],
)
def test_multi_grad_any(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode any runs no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks.
    """
    runs_from(backend, trace, MULTI_GRAD_ANY)


@rule(
    "module.full-backward-pre.fire.every-place",
    level=Level.MUST,
    sources=[BACKWARD_PRE_HOOK.sentence(2, 3, 5, 12)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, *PLACES, Capability.RETAIN_GRAPH],
    mutants=[
        "backward-pre-hook-lost-made-in-no-grad",
        "backward-pre-hook-lost-made-in-a-pass",
        "backward-pre-hook-lost-made-in-a-checkpoint",
        "backward-pre-hook-twice-made-with-pairs",
        "backward-pre-hook-ignored-made-in-no-grad",
        *ONCE,
    ],
)
def test_backward_pre(backend: Backend, trace: Trace) -> None:
    """A module's backward pre-hook runs for later calls, no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, in the forward of another module, under saved-tensor
    hooks. Three hooks that were registered before it run before it, in order.
    """
    runs_from(backend, trace, BACKWARD_PRE)


@rule(
    "module.full-backward.fire.every-place",
    level=Level.MUST,
    sources=[BACKWARD_HOOK.sentence(2, 6, 7, 8, 16)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, *PLACES, Capability.RETAIN_GRAPH],
    mutants=[
        "backward-hook-lost-made-in-no-grad",
        "backward-hook-lost-made-in-a-pass",
        "backward-hook-lost-made-in-a-checkpoint",
        "backward-hook-twice-made-with-pairs",
        "backward-hook-ignored-made-in-no-grad",
        *ONCE,
    ],
)
def test_backward(backend: Backend, trace: Trace) -> None:
    """A module's backward hook runs for later calls, no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, in the forward of another module, under saved-tensor
    hooks. Three hooks that were registered before it run before it, in order.
    """
    runs_from(backend, trace, BACKWARD)


@rule(
    "module.global-full-backward-pre.fire.every-place",
    level=Level.MUST,
    sources=[GLOBAL_BACKWARD_PRE_HOOK.sentence(1, 3)],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
        *PLACES,
        Capability.RETAIN_GRAPH,
    ],
    mutants=[
        "global-backward-pre-hook-lost-made-in-no-grad",
        "global-backward-pre-hook-lost-made-in-a-pass",
        "global-backward-pre-hook-lost-made-in-a-checkpoint",
        "global-backward-pre-hook-twice-made-with-pairs",
        "global-backward-pre-hook-ignored-made-in-no-grad",
        *ONCE_OUTSIDE_OF_MODULES,
    ],
)
def test_global_backward_pre(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook on all modules runs for later calls, no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, under saved-tensor hooks.
    """
    runs_from(backend, trace, GLOBAL_BACKWARD_PRE)


@rule(
    "module.global-full-backward.fire.every-place",
    level=Level.MUST,
    sources=[GLOBAL_BACKWARD_HOOK.sentence(1, 3)],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
        *PLACES,
        Capability.RETAIN_GRAPH,
    ],
    mutants=[
        "global-backward-hook-lost-made-in-no-grad",
        "global-backward-hook-lost-made-in-a-pass",
        "global-backward-hook-lost-made-in-a-checkpoint",
        "global-backward-hook-twice-made-with-pairs",
        "global-backward-hook-ignored-made-in-no-grad",
        *ONCE_OUTSIDE_OF_MODULES,
    ],
)
def test_global_backward(backend: Backend, trace: Trace) -> None:
    """A backward hook on all modules runs for later calls, no matter what was under way when it was registered.

    In no_grad, during another pass, in a checkpointed function, under saved-tensor hooks.
    """
    runs_from(backend, trace, GLOBAL_BACKWARD)
