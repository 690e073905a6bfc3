"""Hooks of each kind in a pass that a hook runs during another pass: once, with what they return, and their errors."""

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
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
    Kind,
    hooked,
    leaf,
)
from hooklaw.rules.passes import (
    INNER,
    INNER_BACKWARDS,
    THRICE,
    Run,
    fails_in,
    inner_backwards,
    inside_a_pass,
    modes_in,
    runs_in,
)

DURING_BACKWARD = docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(10)
REACHES = observed("the error of a hook in an inner pass reaches the caller of the outer one")
KINDS = (
    TENSOR,
    TENSOR_ON_LEAF,
    POST_ACCUMULATE,
    NODE_PRE,
    NODE_PRE_OF_LEAF,
    NODE,
    NODE_OF_LEAF,
    MULTI_GRAD,
    MULTI_GRAD_ON_LEAF,
    MULTI_GRAD_ANY,
    MULTI_GRAD_ANY_ON_LEAF,
    BACKWARD_PRE,
    BACKWARD,
    GLOBAL_BACKWARD_PRE,
    GLOBAL_BACKWARD,
)


def runs_inside(backend: Backend, trace: Trace, kind: Kind, runs: dict[str, Run]) -> None:
    """Expect a hook to run once in each of these inner passes, none of which creates a graph, with grad mode off."""
    runs_in(backend, trace, kind, runs, times=THRICE)
    modes_in(backend, trace, kind, runs)


@rule(
    "reentrant.backward-in-hook.every-kind",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a hook of any kind can run a backward of its own")],
    needs=[
        Capability.TENSOR_HOOKS,
        Capability.POST_ACCUMULATE,
        Capability.NODES,
        Capability.NODE_HOOKS,
        Capability.MULTI_GRAD,
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
    ],
    mutants=[
        "backward-inside-post-accumulate-hooks-refused",
        "backward-inside-node-hooks-refused",
        "backward-inside-multi-grad-hooks-refused",
        "backward-inside-module-hooks-refused",
    ],
)
def test_backward_in_every_hook(backend: Backend, trace: Trace) -> None:
    """A hook of any kind can run a backward through another graph, which is complete when that call returns."""

    def run(*_: object) -> None:
        other, inner = others.pop()
        backend.backward(inner)
        trace.log("inner", backend.grad_of(other))

    for kind in KINDS:
        other = leaf(backend)
        others = [(other, backend.call(lambda x: backend.sum(x * 7), other))]
        with hooked(backend, kind, run) as (root, x):
            backend.backward(root)
        trace.expect(("inner", [7.0, 7.0]))
        trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))


@rule(
    "tensor-hook.fire.inside-a-pass",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.register_hook").sentence(2, 4), DURING_BACKWARD],
    needs=[Capability.TENSOR_HOOKS, *INNER],
    mutants=[
        "tensor-hook-lost-inner-pass",
        "tensor-hook-lost-inner-grad",
        "tensor-hook-twice-inner-pass",
        "tensor-hook-in-wrong-mode-inner-pass",
        "tensor-hook-ignored-inner-pass",
    ],
)
def test_tensor(backend: Backend, trace: Trace) -> None:
    """In an inner pass a tensor hook runs once, by default with grad mode off, and its result counts."""
    runs_inside(backend, trace, TENSOR, inside_a_pass(backend))
    runs_inside(backend, trace, TENSOR_ON_LEAF, inside_a_pass(backend))


@rule(
    "tensor-hook.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.TENSOR_HOOKS, *INNER],
    mutants=["tensor-hook-swallowed-inner-pass", "tensor-hook-swallowed-inner-grad"],
)
def test_error_of_tensor(backend: Backend, trace: Trace) -> None:
    """An error of a tensor hook in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, TENSOR, inside_a_pass(backend))
    fails_in(backend, trace, TENSOR_ON_LEAF, inside_a_pass(backend))


@rule(
    "post-acc.fire.inside-a-pass",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(2), DURING_BACKWARD],
    needs=[Capability.POST_ACCUMULATE, *INNER_BACKWARDS],
    mutants=[
        "post-accumulate-hook-lost-inner-pass",
        "post-accumulate-hook-twice-inner-pass",
        "post-accumulate-hook-in-wrong-mode-inner-pass",
    ],
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """In an inner pass a post-accumulate-grad hook runs once, by default with grad mode off."""
    runs_inside(backend, trace, POST_ACCUMULATE, inner_backwards(backend))


@rule(
    "post-acc.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.POST_ACCUMULATE, *INNER_BACKWARDS],
    mutants=["post-accumulate-hook-swallowed-inner-pass"],
)
def test_error_of_post_accumulate(backend: Backend, trace: Trace) -> None:
    """An error of a post-accumulate-grad hook in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, POST_ACCUMULATE, inner_backwards(backend))


@rule(
    "node-prehook.fire.inside-a-pass",
    level=Level.MUST,
    sources=[docstring("torch.autograd.graph.Node.register_prehook").sentence(2, 4), DURING_BACKWARD],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *INNER],
    mutants=[
        "node-pre-hook-lost-inner-pass",
        "node-pre-hook-lost-inner-grad",
        "node-pre-hook-twice-inner-pass",
        "node-pre-hook-in-wrong-mode-inner-pass",
        "node-pre-hook-ignored-inner-pass",
    ],
)
def test_node_pre(backend: Backend, trace: Trace) -> None:
    """In an inner pass a Node pre-hook runs once, by default with grad mode off, and its result counts."""
    runs_inside(backend, trace, NODE_PRE, inside_a_pass(backend))
    runs_inside(backend, trace, NODE_PRE_OF_LEAF, inner_backwards(backend))


@rule(
    "node-prehook.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *INNER],
    mutants=["node-pre-hook-swallowed-inner-pass", "node-pre-hook-swallowed-inner-grad"],
)
def test_error_of_node_pre(backend: Backend, trace: Trace) -> None:
    """An error of a Node pre-hook in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, NODE_PRE, inside_a_pass(backend))
    fails_in(backend, trace, NODE_PRE_OF_LEAF, inner_backwards(backend))


@rule(
    "node-hook.fire.inside-a-pass",
    level=Level.MUST,
    sources=[docstring("torch.autograd.graph.Node.register_hook").sentence(2, 4), DURING_BACKWARD],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *INNER],
    mutants=[
        "node-hook-lost-inner-pass",
        "node-hook-lost-inner-grad",
        "node-hook-twice-inner-pass",
        "node-hook-in-wrong-mode-inner-pass",
        "node-hook-ignored-inner-pass",
    ],
)
def test_node(backend: Backend, trace: Trace) -> None:
    """In an inner pass a Node hook runs once, by default with grad mode off, and its result counts."""
    runs_inside(backend, trace, NODE, inside_a_pass(backend))
    runs_inside(backend, trace, NODE_OF_LEAF, inner_backwards(backend))


@rule(
    "node-hook.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *INNER],
    mutants=["node-hook-swallowed-inner-pass", "node-hook-swallowed-inner-grad"],
)
def test_error_of_node(backend: Backend, trace: Trace) -> None:
    """An error of a Node hook in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, NODE, inside_a_pass(backend))
    fails_in(backend, trace, NODE_OF_LEAF, inner_backwards(backend))


@rule(
    "multi-grad.all.fire.inside-a-pass",
    level=Level.MUST,
    sources=[docstring("torch.autograd.graph.register_multi_grad_hook").sentence(3, 5), DURING_BACKWARD],
    needs=[Capability.MULTI_GRAD, *INNER],
    mutants=[
        "multi-grad-hook-lost-inner-pass",
        "multi-grad-hook-lost-inner-grad",
        "multi-grad-hook-twice-inner-pass",
        "multi-grad-hook-in-wrong-mode-inner-pass",
    ],
)
def test_multi_grad(backend: Backend, trace: Trace) -> None:
    """In an inner pass a multi-grad hook runs once, by default with grad mode off."""
    runs_inside(backend, trace, MULTI_GRAD, inside_a_pass(backend))
    runs_inside(backend, trace, MULTI_GRAD_ON_LEAF, inner_backwards(backend))


@rule(
    "multi-grad.all.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MULTI_GRAD, *INNER],
    mutants=["multi-grad-hook-swallowed-inner-pass", "multi-grad-hook-swallowed-inner-grad"],
)
def test_error_of_multi_grad(backend: Backend, trace: Trace) -> None:
    """An error of a multi-grad hook in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, MULTI_GRAD, inside_a_pass(backend))
    fails_in(backend, trace, MULTI_GRAD_ON_LEAF, inner_backwards(backend))


@rule(
    "multi-grad.any.fire.inside-a-pass",
    level=Level.MUST,
    sources=[docstring("torch.autograd.graph.register_multi_grad_hook").sentence(7, 8), DURING_BACKWARD],
    needs=[Capability.MULTI_GRAD, *INNER],
    mutants=[
        "any-grad-hook-lost-inner-pass",
        "any-grad-hook-lost-inner-grad",
        "any-grad-hook-twice-inner-pass",
        "any-grad-hook-in-wrong-mode-inner-pass",
    ],
)
def test_multi_grad_any(backend: Backend, trace: Trace) -> None:
    """In an inner pass a multi-grad hook in mode any runs once, by default with grad mode off."""
    runs_inside(backend, trace, MULTI_GRAD_ANY, inside_a_pass(backend))
    runs_inside(backend, trace, MULTI_GRAD_ANY_ON_LEAF, inside_a_pass(backend))


@rule(
    "multi-grad.any.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MULTI_GRAD, *INNER],
    mutants=["any-grad-hook-swallowed-inner-pass", "any-grad-hook-swallowed-inner-grad"],
)
def test_error_of_multi_grad_any(backend: Backend, trace: Trace) -> None:
    """An error of a multi-grad hook in mode any in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, MULTI_GRAD_ANY, inside_a_pass(backend))
    fails_in(backend, trace, MULTI_GRAD_ANY_ON_LEAF, inside_a_pass(backend))


@rule(
    "module.full-backward-pre.fire.inside-a-pass",
    level=Level.MUST,
    sources=[docstring("torch.nn.Module.register_full_backward_pre_hook").sentence(2, 5), DURING_BACKWARD],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, *INNER],
    mutants=[
        "backward-pre-hook-lost-inner-pass",
        "backward-pre-hook-lost-inner-grad",
        "backward-pre-hook-twice-inner-pass",
        "backward-pre-hook-in-wrong-mode-inner-pass",
        "backward-pre-hook-ignored-inner-pass",
    ],
)
def test_backward_pre(backend: Backend, trace: Trace) -> None:
    """In an inner pass a module's backward pre-hook runs once, by default with grad mode off, and its result counts."""
    runs_inside(backend, trace, BACKWARD_PRE, inside_a_pass(backend))


@rule(
    "module.full-backward-pre.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, *INNER],
    mutants=["backward-pre-hook-swallowed-inner-pass", "backward-pre-hook-swallowed-inner-grad"],
)
def test_error_of_backward_pre(backend: Backend, trace: Trace) -> None:
    """An error of a module's backward pre-hook in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, BACKWARD_PRE, inside_a_pass(backend))


@rule(
    "module.full-backward.fire.inside-a-pass",
    level=Level.MUST,
    sources=[docstring("torch.nn.Module.register_full_backward_hook").sentence(2, 8), DURING_BACKWARD],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, *INNER],
    mutants=[
        "backward-hook-lost-inner-pass",
        "backward-hook-lost-inner-grad",
        "backward-hook-twice-inner-pass",
        "backward-hook-in-wrong-mode-inner-pass",
        "backward-hook-ignored-inner-pass",
    ],
)
def test_backward(backend: Backend, trace: Trace) -> None:
    """In an inner pass a module's backward hook runs once, by default with grad mode off, and its result counts."""
    runs_inside(backend, trace, BACKWARD, inside_a_pass(backend))


@rule(
    "module.full-backward.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, *INNER],
    mutants=["backward-hook-swallowed-inner-pass", "backward-hook-swallowed-inner-grad"],
)
def test_error_of_backward(backend: Backend, trace: Trace) -> None:
    """An error of a module's backward hook in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, BACKWARD, inside_a_pass(backend))


@rule(
    "module.global-full-backward-pre.fire.inside-a-pass",
    level=Level.MUST,
    sources=[
        docstring("torch.nn.modules.module.register_module_full_backward_pre_hook").sentence(1, 3),
        DURING_BACKWARD,
    ],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, Capability.GLOBAL_MODULE_HOOKS, *INNER],
    mutants=[
        "global-backward-pre-hook-lost-inner-pass",
        "global-backward-pre-hook-lost-inner-grad",
        "global-backward-pre-hook-twice-inner-pass",
        "global-backward-pre-hook-in-wrong-mode-inner-pass",
        "global-backward-pre-hook-ignored-inner-pass",
    ],
)
def test_global_backward_pre(backend: Backend, trace: Trace) -> None:
    """In an inner pass a global backward pre-hook runs once, by default with grad mode off, and its result counts."""
    runs_inside(backend, trace, GLOBAL_BACKWARD_PRE, inside_a_pass(backend))


@rule(
    "module.global-full-backward-pre.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, Capability.GLOBAL_MODULE_HOOKS, *INNER],
    mutants=["global-backward-pre-hook-swallowed-inner-pass", "global-backward-pre-hook-swallowed-inner-grad"],
)
def test_error_of_global_backward_pre(backend: Backend, trace: Trace) -> None:
    """An error of a backward pre-hook on all modules in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, GLOBAL_BACKWARD_PRE, inside_a_pass(backend))


@rule(
    "module.global-full-backward.fire.inside-a-pass",
    level=Level.MUST,
    sources=[docstring("torch.nn.modules.module.register_module_full_backward_hook").sentence(1, 3), DURING_BACKWARD],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, Capability.GLOBAL_MODULE_HOOKS, *INNER],
    mutants=[
        "global-backward-hook-lost-inner-pass",
        "global-backward-hook-lost-inner-grad",
        "global-backward-hook-twice-inner-pass",
        "global-backward-hook-in-wrong-mode-inner-pass",
        "global-backward-hook-ignored-inner-pass",
    ],
)
def test_global_backward(backend: Backend, trace: Trace) -> None:
    """In an inner pass a global backward hook runs once, by default with grad mode off, and its result counts."""
    runs_inside(backend, trace, GLOBAL_BACKWARD, inside_a_pass(backend))


@rule(
    "module.global-full-backward.exception.inside-a-pass",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, Capability.GLOBAL_MODULE_HOOKS, *INNER],
    mutants=["global-backward-hook-swallowed-inner-pass", "global-backward-hook-swallowed-inner-grad"],
)
def test_error_of_global_backward(backend: Backend, trace: Trace) -> None:
    """An error of a backward hook on all modules in an inner pass reaches the caller of the outer pass."""
    fails_in(backend, trace, GLOBAL_BACKWARD, inside_a_pass(backend))
