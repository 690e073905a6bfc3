"""The grad mode in which hooks of each kind run."""

from warnings import catch_warnings

from hooklaw import Backend, Capability, Level, Trace, docstring, rule
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
    leaf,
    weighted,
)
from hooklaw.rules.passes import (
    BACKWARDS,
    EVERY_PASS,
    ROOTS,
    backwards,
    every_pass,
    in_thread,
    modes_after_error,
    modes_in,
    roots,
)

DURING_BACKWARD = docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(10)


def modes_without_input_gradients(backend: Backend, trace: Trace, kind: Kind) -> None:
    """Expect a hook of a module whose input does not require grad to run in the right grad mode in each pass."""
    for label, run in every_pass(backend).items():
        module = weighted(backend)
        kind.register(backend, module, lambda *_: trace.log("grad mode", backend.is_grad_enabled()))
        with catch_warnings(action="ignore"):
            run(backend.sum(backend.call(module, backend.tensor([1.0, 2.0]))), module.weight)
        trace.log(label)
        trace.expect(("grad mode", "creates a graph" in label), label)


@rule(
    "tensor-hook.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.TENSOR_HOOKS, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=[
        "tensor-hook-in-wrong-mode-create-graph",
        "tensor-hook-in-wrong-mode-no-grad-pass",
        "tensor-hook-in-wrong-mode-several-roots",
        "tensor-hook-in-wrong-mode-later",
        "tensor-hook-in-wrong-mode-second-call",
        "hooks-of-a-root-run-with-grad-mode-on",
    ],
)
def test_tensor(backend: Backend, trace: Trace) -> None:
    """A tensor hook runs with grad mode off, or on in a pass that creates a graph.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass.
    """
    modes_in(backend, trace, TENSOR, {**every_pass(backend), **roots(backend), **in_thread(backend)})
    modes_in(backend, trace, TENSOR_ON_LEAF, {**every_pass(backend), **roots(backend)})
    for label, run in every_pass(backend).items():
        x = leaf(backend)
        root = backend.call(lambda x: backend.sum(x * 3), x)
        backend.register_hook(root, lambda _: trace.log("grad mode of the root", backend.is_grad_enabled()))
        run(root, x)
        trace.log(label)
        trace.expect(("grad mode of the root", "creates a graph" in label), label)


@rule(
    "post-acc.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.POST_ACCUMULATE, *BACKWARDS, *ROOTS, Capability.THREADS],
    mutants=[
        "post-accumulate-hook-in-wrong-mode-create-graph",
        "post-accumulate-hook-in-wrong-mode-no-grad-pass",
        "post-accumulate-hook-in-wrong-mode-several-roots",
    ],
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook runs with grad mode off, or on in a pass that creates a graph.

    In no_grad, with inputs, from several roots, from an edge, in another thread.
    """
    modes_in(backend, trace, POST_ACCUMULATE, {**backwards(backend), **roots(backend), **in_thread(backend)})


@rule(
    "node-prehook.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=[
        "node-pre-hook-in-wrong-mode-create-graph",
        "node-pre-hook-in-wrong-mode-backward-creating",
        "node-pre-hook-in-wrong-mode-no-grad-pass",
        "node-pre-hook-in-wrong-mode-several-roots",
        "hooks-of-accumulation-in-wrong-mode",
    ],
)
def test_node_pre(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook runs with grad mode off, or on in a pass that creates a graph.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass.
    """
    modes_in(backend, trace, NODE_PRE, {**every_pass(backend), **roots(backend), **in_thread(backend)})
    modes_in(backend, trace, NODE_PRE_OF_LEAF, {**backwards(backend), **roots(backend)})


@rule(
    "node-hook.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=[
        "node-hook-in-wrong-mode-create-graph",
        "node-hook-in-wrong-mode-backward-creating",
        "node-hook-in-wrong-mode-no-grad-pass",
        "node-hook-in-wrong-mode-several-roots",
        "hooks-of-accumulation-in-wrong-mode",
    ],
)
def test_node(backend: Backend, trace: Trace) -> None:
    """A Node hook runs with grad mode off, or on in a pass that creates a graph.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass.
    """
    modes_in(backend, trace, NODE, {**every_pass(backend), **roots(backend), **in_thread(backend)})
    modes_in(backend, trace, NODE_OF_LEAF, {**backwards(backend), **roots(backend)})


@rule(
    "multi-grad.all.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.MULTI_GRAD, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=[
        "multi-grad-hook-in-wrong-mode-create-graph",
        "multi-grad-hook-in-wrong-mode-backward-creating",
        "multi-grad-hook-in-wrong-mode-no-grad-pass",
        "multi-grad-hook-in-wrong-mode-several-roots",
        "multi-grad-hooks-of-leaves-in-wrong-mode",
    ],
)
def test_multi_grad(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook runs with grad mode off, or on in a pass that creates a graph.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass.
    """
    modes_in(backend, trace, MULTI_GRAD, {**every_pass(backend), **roots(backend), **in_thread(backend)})
    modes_in(backend, trace, MULTI_GRAD_ON_LEAF, {**backwards(backend), **roots(backend)})


@rule(
    "multi-grad.any.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.MULTI_GRAD, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=[
        "any-grad-hook-in-wrong-mode-create-graph",
        "any-grad-hook-in-wrong-mode-backward-creating",
        "any-grad-hook-in-wrong-mode-no-grad-pass",
        "any-grad-hook-in-wrong-mode-several-roots",
        "multi-grad-hooks-of-leaves-in-wrong-mode",
    ],
)
def test_multi_grad_any(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode any runs with grad mode off, or on in a pass that creates a graph.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass.
    """
    modes_in(backend, trace, MULTI_GRAD_ANY, {**every_pass(backend), **roots(backend), **in_thread(backend)})
    modes_in(backend, trace, MULTI_GRAD_ANY_ON_LEAF, {**every_pass(backend), **roots(backend)})


@rule(
    "module.full-backward-pre.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=[
        "backward-pre-hook-in-wrong-mode-create-graph",
        "backward-pre-hook-in-wrong-mode-backward-creating",
        "backward-pre-hook-in-wrong-mode-no-grad-pass",
        "backward-pre-hook-in-wrong-mode-several-roots",
        "backward-pre-hook-in-wrong-mode-without-input-gradients",
    ],
)
def test_backward_pre(backend: Backend, trace: Trace) -> None:
    """A module's backward pre-hook runs with grad mode off, or on in a pass that creates a graph.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass. An input of the
    module may require grad or not.
    """
    modes_in(backend, trace, BACKWARD_PRE, {**every_pass(backend), **roots(backend), **in_thread(backend)})
    modes_without_input_gradients(backend, trace, BACKWARD_PRE)


@rule(
    "module.full-backward.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, *EVERY_PASS, *ROOTS, Capability.THREADS],
    mutants=[
        "backward-hook-in-wrong-mode-create-graph",
        "backward-hook-in-wrong-mode-backward-creating",
        "backward-hook-in-wrong-mode-no-grad-pass",
        "backward-hook-in-wrong-mode-several-roots",
        "backward-hook-in-wrong-mode-later",
        "backward-hook-in-wrong-mode-second-call",
        "full-backward-hook-in-wrong-mode-without-input-gradients",
    ],
)
def test_backward(backend: Backend, trace: Trace) -> None:
    """A module's backward hook runs with grad mode off, or on in a pass that creates a graph.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass. An input of the
    module may require grad or not.
    """
    modes_in(backend, trace, BACKWARD, {**every_pass(backend), **roots(backend), **in_thread(backend)})
    modes_without_input_gradients(backend, trace, BACKWARD)


@rule(
    "module.global-full-backward-pre.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
        *EVERY_PASS,
        *ROOTS,
        Capability.THREADS,
    ],
    mutants=[
        "global-backward-pre-hook-in-wrong-mode-create-graph",
        "global-backward-pre-hook-in-wrong-mode-backward-creating",
        "global-backward-pre-hook-in-wrong-mode-no-grad-pass",
        "global-backward-pre-hook-in-wrong-mode-several-roots",
    ],
)
def test_global_backward_pre(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook on all modules runs with grad mode off, or on in a pass that creates a graph.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass.
    """
    modes_in(backend, trace, GLOBAL_BACKWARD_PRE, {**every_pass(backend), **roots(backend), **in_thread(backend)})


@rule(
    "module.global-full-backward.mode.every-pass",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
        *EVERY_PASS,
        *ROOTS,
        Capability.THREADS,
    ],
    mutants=[
        "global-backward-hook-in-wrong-mode-create-graph",
        "global-backward-hook-in-wrong-mode-backward-creating",
        "global-backward-hook-in-wrong-mode-no-grad-pass",
        "global-backward-hook-in-wrong-mode-several-roots",
    ],
)
def test_global_backward(backend: Backend, trace: Trace) -> None:
    """A backward hook on all modules runs with grad mode off, or on in a pass that creates a graph.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass.
    """
    modes_in(backend, trace, GLOBAL_BACKWARD, {**every_pass(backend), **roots(backend), **in_thread(backend)})


@rule(
    "tensor-hook.mode.outputs",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.TENSOR_HOOKS, Capability.MULTI_OUTPUT, *EVERY_PASS],
    mutants=["hooks-of-later-outputs-in-wrong-mode", "hooks-of-later-outputs-in-wrong-mode-in-later-passes"],
)
def test_outputs(backend: Backend, trace: Trace) -> None:
    """A hook on any output of an operation runs with grad mode off, or on in a pass that creates a graph."""
    for label, run in every_pass(backend).items():
        x = leaf(backend)
        outputs = backend.call(lambda x: backend.split(x * 2, 1), x)
        for output in outputs:
            backend.register_hook(output, lambda _: trace.log("grad mode", backend.is_grad_enabled()))
        root = backend.call(lambda first, second: backend.sum(first * 3 + second), *outputs)
        for _ in range(3):
            run(root, x)
            trace.log(label)
            trace.expect(*[("grad mode", "creates a graph" in label)] * 2, label)


@rule(
    "tensor-hook.mode.outputs.custom-function",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.TENSOR_HOOKS, Capability.CUSTOM_FUNCTION, *EVERY_PASS],
    mutants=["hooks-of-function-outputs-in-wrong-mode"],
)
def test_function_outputs(backend: Backend, trace: Trace) -> None:
    """A hook on an output of a custom Function runs with grad mode off, or on in a pass that creates a graph."""
    function = backend.custom_function(
        lambda _ctx, x: (x * 2, x * 3), lambda _ctx, first, second: first * 2 + second * 3
    )
    for label, run in every_pass(backend).items():
        x = leaf(backend)
        outputs = backend.call(function, x)
        for output in outputs:
            backend.register_hook(output, lambda _: trace.log("grad mode", backend.is_grad_enabled()))
        root = backend.call(lambda first, second: backend.sum(first * 3 + second), *outputs)
        for _ in range(3):
            run(root, x)
            trace.log(label)
            trace.expect(*[("grad mode", "creates a graph" in label)] * 2, label)


@rule(
    "tensor-hook.mode.after-error",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.TENSOR_HOOKS, *EVERY_PASS],
    mutants=["tensor-hook-in-wrong-mode-after-a-failure"],
)
def test_tensor_after_error(backend: Backend, trace: Trace) -> None:
    """After a pass that failed a tensor hook runs with grad mode off, or on in a pass that creates a graph."""
    modes_after_error(backend, trace, TENSOR, TENSOR_ON_LEAF)


@rule(
    "post-acc.mode.after-error",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.POST_ACCUMULATE, *BACKWARDS],
    mutants=[
        "post-accumulate-hook-in-wrong-mode-after-a-failure",
        "post-accumulate-hooks-stay-in-the-mode-of-a-failed-pass",
    ],
)
def test_post_accumulate_after_error(backend: Backend, trace: Trace) -> None:
    """After a pass that failed a post-accumulate-grad hook runs with grad mode off, or on if a graph is created."""
    modes_after_error(backend, trace, POST_ACCUMULATE, runs=backwards(backend))


@rule(
    "node-hook.mode.after-error",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.NODES, Capability.NODE_HOOKS, *EVERY_PASS],
    mutants=[
        "node-pre-hook-in-wrong-mode-after-a-failure",
        "node-hook-in-wrong-mode-after-a-failure",
        "node-pre-hooks-stay-in-the-mode-of-a-failed-pass",
    ],
)
def test_node_after_error(backend: Backend, trace: Trace) -> None:
    """After a pass that failed, hooks on Nodes run with grad mode off, or on in a pass that creates a graph."""
    modes_after_error(backend, trace, NODE_PRE, NODE)


@rule(
    "multi-grad.mode.after-error",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.MULTI_GRAD, *EVERY_PASS],
    mutants=[
        "multi-grad-hook-in-wrong-mode-after-a-failure",
        "any-grad-hook-in-wrong-mode-after-a-failure",
    ],
)
def test_multi_grad_after_error(backend: Backend, trace: Trace) -> None:
    """After a pass that failed a multi-grad hook runs with grad mode off, or on in a pass that creates a graph."""
    modes_after_error(backend, trace, MULTI_GRAD, MULTI_GRAD_ANY)


@rule(
    "module.full-backward.mode.after-error",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, Capability.MODULE_BACKWARD_HOOKS, *EVERY_PASS],
    mutants=[
        "backward-pre-hook-in-wrong-mode-after-a-failure",
        "backward-hook-in-wrong-mode-after-a-failure",
    ],
)
def test_module_after_error(backend: Backend, trace: Trace) -> None:
    """After a pass that failed, a module's backward hooks run with grad mode off, or on if a graph is created."""
    modes_after_error(backend, trace, BACKWARD_PRE, BACKWARD)


@rule(
    "module.global-full-backward.mode.after-error",
    level=Level.MUST,
    sources=[DURING_BACKWARD],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.GLOBAL_MODULE_HOOKS,
        *EVERY_PASS,
    ],
    mutants=[
        "global-backward-pre-hook-in-wrong-mode-after-a-failure",
        "global-backward-hook-in-wrong-mode-after-a-failure",
    ],
)
def test_global_after_error(backend: Backend, trace: Trace) -> None:
    """After a pass that failed, backward hooks on all modules run with grad mode off, or on if a graph is created."""
    modes_after_error(backend, trace, GLOBAL_BACKWARD_PRE, GLOBAL_BACKWARD)
