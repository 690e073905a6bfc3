"""Hooks and checkpoints: on tensors, Nodes and modules inside, on inputs, outputs and parameters."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.checkpoints import CHECKPOINT, KINDS, NEEDS, WITH_OPTIONS, leaf, region

TENSOR_HOOK = docstring("torch.Tensor.register_hook")


@rule(
    "checkpoint.forward-hooks-recomputed",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(5, 17, 52)],
    needs=[*WITH_OPTIONS, Capability.MODULES],
    mutants=[
        "checkpoint-recomputes-nothing",
        "forward-hook-lost-recomputation",
        "forward-pre-hook-lost-recomputation",
        "forward-hooks-of-later-modules-lost-in-recomputation",
        "forward-pre-hooks-of-later-modules-lost-in-recomputation",
        "forward-hooks-of-inner-modules-lost-in-recomputation",
    ],
)
def test_forward_hooks(backend: Backend, trace: Trace) -> None:
    """Forward hooks in a checkpoint run again in backward, if it is reentrant or made with early_stop=False.

    So do forward pre-hooks.
    """
    for kind, use_reentrant in KINDS.items():
        first, second = (backend.module({}, lambda _module, x: x * x) for _ in range(2))
        for name, module in (("first", first), ("second", second)):
            backend.register_forward_pre_hook(module, lambda *_, said=f"{name}, {kind}": trace.log(f"pre-hook, {said}"))
            backend.register_forward_hook(module, lambda *_, said=f"{name}, {kind}": trace.log(f"hook, {said}"))
        how = {} if use_reentrant else {"early_stop": False}
        outer = backend.module({}, lambda _module, x, one=first, two=second: two(one(x)))
        forward = region(backend, outer, use_reentrant=use_reentrant, **how)
        labels = [f"{hook}, {name}, {kind}" for name in ("first", "second") for hook in ("pre-hook", "hook")]

        loss = backend.call(forward, leaf(backend))
        trace.expect(*labels)
        backend.backward(loss)
        trace.expect(*labels)


@rule(
    "checkpoint.forward-hooks-recomputed.early-stop",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(15)],
    needs=[*WITH_OPTIONS, Capability.MODULES],
    mutants=["checkpoint-early-stop-set-always"],
)
def test_forward_hook_of_the_last_module(backend: Backend, trace: Trace) -> None:
    """With early stop, a forward hook that runs after all needed tensors are recomputed does not run again.

    The docstring says that the recomputation stops as soon as they are, so it does not come to the hook.
    """
    module = backend.module({}, lambda _module, x: x * x)
    backend.register_forward_hook(module, lambda *_: trace.log("hook"))

    backend.backward(backend.call(region(backend, module, use_reentrant=False), leaf(backend)))

    trace.expect("hook")


@rule(
    "checkpoint.forward-hooks-replace",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(5), docstring("torch.nn.Module.register_forward_hook").sentence(2, 5)],
    needs=[*NEEDS, Capability.MODULES],
    mutants=["forward-hook-lost-recomputation"],
    except_under={"float16": "its numbers have more digits than float16 holds"},
)
def test_forward_hook_replaces(backend: Backend, trace: Trace) -> None:
    """A forward hook that replaces the output of a module in a checkpoint does so in the recomputation too.

    Backward re-invokes the function, so it calls the module and with it the hook; the gradient shows the new output.
    """
    for kind, use_reentrant in KINDS.items():
        module = backend.module({}, lambda _module, x: x * x)
        backend.register_forward_hook(module, lambda _module, _args, output: output * 10)

        x = leaf(backend)
        how = {"use_reentrant": use_reentrant}
        backend.backward(backend.call(region(backend, lambda x, m=module: backend.exp(m(x) * 0.1), **how), x))
        plain = leaf(backend)
        backend.backward(backend.sum(backend.exp(plain * plain)))

        trace.expect_value(f"x.grad, {kind}", backend.grad_of(plain), backend.grad_of(x))


@rule(
    "checkpoint.full-backward-hook",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(5), docstring("torch.nn.Module.register_full_backward_hook").sentence(2)],
    needs=[*NEEDS, Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS],
    mutants=[
        "backward-hooks-silent-in-a-checkpoint",
        "backward-hooks-doubled-in-a-checkpoint",
        "backward-hooks-in-a-checkpoint-run-in-the-first-pass-only",
        "backward-hooks-of-later-modules-silent-in-a-checkpoint",
        "backward-hooks-of-inner-modules-silent-in-a-checkpoint",
    ],
)
def test_backward_hook_inside(backend: Backend, trace: Trace) -> None:
    """A full backward hook of a module in a checkpoint, reentrant or not, runs once, with the module's gradients.

    It is called every time these gradients are computed, and a backward computes them once, though forward ran twice.
    """
    for use_reentrant in KINDS.values():
        first, second = (backend.module({}, lambda _module, x: x * x) for _ in range(2))
        for name, module in (("first", first), ("second", second)):
            backend.register_full_backward_hook(module, lambda _module, *grads, name=name: trace.log(name, grads))
        outer = backend.module({}, lambda _module, x, one=first, two=second: two(one(x) * x))
        forward = region(backend, outer, use_reentrant=use_reentrant)
        for _ in range(2):
            backend.backward(backend.call(forward, leaf(backend)))

            trace.expect(("second", [[[2.0, 16.0]], [[1.0, 1.0]]]), ("first", [[[4.0, 128.0]], [[2.0, 32.0]]]))


@rule(
    "checkpoint.nonreentrant.tensor-hooks-inside",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(19), TENSOR_HOOK.sentence(2, 4)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=[
        "tensor-hook-lost-made-in-a-checkpoint",
        "tensor-hook-ignored-made-in-a-checkpoint",
        "hooks-that-a-checkpoint-registers-on-its-inputs-lost",
        "hooks-that-a-checkpoint-registers-on-its-output-lost",
        "hooks-that-a-checkpoint-registers-on-captured-leaves-lost",
    ],
)
def test_tensor_hook_of_forward(backend: Backend, trace: Trace) -> None:
    """A tensor hook that a non-reentrant checkpoint's forward registers runs in backward, and can replace the gradient.

    The docstring says that this kind records the graph in forward, so it is this tensor whose gradient is computed: a
    result, an input, the output or a captured leaf.
    """
    runs: list[Any] = []

    def fn(x):
        y = x * x
        z = y * x * weight
        if not runs:
            for label, tensor in (("result", y), ("input", x), ("output", z), ("captured leaf", weight)):
                backend.register_hook(tensor, trace.saw(label, lambda grad: grad * 2))
        runs.append(y)
        return z

    x, weight = leaf(backend), leaf(backend, 1.0, 1.0)
    backend.backward(backend.call(region(backend, fn, use_reentrant=False), x))

    seen = {"output": [1.0, 1.0], "captured leaf": [2.0, 16.0], "result": [2.0, 4.0], "input": [10.0, 40.0]}
    trace.expect_in_any_order(*seen)
    for label, grad in seen.items():
        trace.expect_value(f"hook of {label}", [grad], trace.values(label))
    gradients = [backend.grad_of(x), backend.grad_of(weight)]
    trace.expect_value("gradients", [[20.0, 80.0], [4.0, 32.0]], gradients)


@rule(
    "checkpoint.tensor-hooks-inside",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the graph of the recomputation is not used, so a hook on it does not run")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["checkpoint-use-reentrant-always-true"],
)
def test_tensor_hook_of_recomputation(backend: Backend, trace: Trace) -> None:
    """A tensor hook that the recomputation of a non-reentrant checkpoint registers may not run in that backward."""
    runs: list[int] = []

    def fn(x):
        runs.append(len(runs) + 1)
        y = x * x
        if len(runs) > 1:
            trace.log("registered in the recomputation")
            backend.register_hook(y, trace.saw("hook"))
        return y * x

    backend.backward(backend.call(region(backend, fn, use_reentrant=False), leaf(backend)))

    trace.expect("registered in the recomputation")


@rule(
    "checkpoint.reentrant.tensor-hooks-inside",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("gradients flow through the graph of the recomputation, so a hook on it runs")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["checkpoint-use-reentrant-always-false", "tensor-hook-lost-made-in-a-checkpoint"],
)
def test_tensor_hook_in_reentrant(backend: Backend, trace: Trace) -> None:
    """A tensor hook that the recomputation of a reentrant checkpoint registers runs, and can replace the gradient."""
    runs: list[Any] = []

    def fn(x):
        y = x * x
        if runs:
            backend.register_hook(y, trace.saw("hook", lambda grad: grad * 10))
        runs.append(y)
        return y * x

    x = leaf(backend)
    backend.backward(backend.call(region(backend, fn, use_reentrant=True), x))

    trace.expect(("hook", [1.0, 2.0]))
    trace.expect_value("x.grad", [21.0, 84.0], backend.grad_of(x))


@rule(
    "checkpoint.nonreentrant.retain-grad-inside",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(19), docstring("torch.Tensor.retain_grad").sentence(2)],
    needs=[*NEEDS, Capability.RETAIN_GRAD],
    mutants=[
        "retain-grad-lost-in-a-checkpoint",
        "later-retain-grad-lost-in-a-checkpoint",
        "gradient-that-a-checkpoint-retains-of-its-output-lost",
    ],
)
def test_retain_grad(backend: Backend, trace: Trace) -> None:
    """A tensor whose gradient the forward of a non-reentrant checkpoint retains has it in .grad after backward.

    The docstring says that this kind records the graph in forward, so it is this tensor whose gradient is computed.
    """
    made: list[Any] = []

    def fn(x):
        y = x * x
        z = y * x
        if not made:
            for tensor in (y, z):
                backend.retain_grad(tensor)
        made.extend((y, z))
        return z

    backend.backward(backend.call(region(backend, fn, use_reentrant=False), leaf(backend)))

    trace.expect_value("gradients", [[1.0, 2.0], [1.0, 1.0]], [backend.grad_of(tensor) for tensor in made[:2]])


@rule(
    "checkpoint.nonreentrant.node-hooks-inside",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(19), notes("autograd", "whether-a-particular-hook-will-be-fired").sentence(8)],
    needs=[*NEEDS, Capability.NODES, Capability.NODE_HOOKS],
    mutants=[
        "node-pre-hook-lost-made-in-a-checkpoint",
        "node-hook-lost-made-in-a-checkpoint",
        "node-hooks-dropped-in-inner-checkpoints",
    ],
)
def test_node_hooks(backend: Backend, trace: Trace) -> None:
    """Hooks on a Node that the forward of a non-reentrant checkpoint made run when that Node is executed.

    The docstring says that this kind records the graph in forward, so it is this graph that backward executes.
    """
    runs: list[Any] = []

    def fn(x):
        y = x * x
        if not runs:
            backend.node_register_prehook(backend.grad_fn(y), trace.saw("pre-hook"))
            backend.node_register_hook(backend.grad_fn(y), trace.saw("post-hook"))
        runs.append(y)
        return y * x

    for each in (fn, lambda x: backend.checkpoint(fn, x, use_reentrant=False)):
        runs.clear()
        backend.backward(backend.call(region(backend, each, use_reentrant=False), leaf(backend)))

        trace.expect(("pre-hook", [[1.0, 2.0]]), "post-hook")


@rule(
    "checkpoint.hooks-around",
    level=Level.MUST,
    sources=[
        CHECKPOINT.sentence(6),
        TENSOR_HOOK.sentence(2, 4),
        notes("autograd", "the-order-in-which-the-different-hooks-are-fired").sentence(2, 4),
    ],
    needs=[*NEEDS, Capability.TENSOR_HOOKS, Capability.RETAIN_GRAD, Capability.POST_ACCUMULATE],
    mutants=[
        "input-hooks-of-a-checkpoint-run-twice",
        "tensor-hook-on-checkpoint-lost",
        "retain-grad-on-checkpoint-lost",
        "hooks-of-an-input-see-the-checkpoint-alone",
        "hooks-on-leaves-that-a-checkpoint-is-given-lost",
    ],
)
def test_hooks_around(backend: Backend, trace: Trace) -> None:
    """Tensor hooks and retain_grad on the input and the output of a checkpoint, reentrant or not, work as without it.

    Each gets the whole gradient, once, and what a hook returns is used: the checkpoint is one part of a model.
    """

    def run(checkpointed):
        x = leaf(backend)
        backend.register_post_accumulate_grad_hook(x, trace.saw("accumulated"))

        def forward(x):
            y = x * 1
            backend.register_hook(y, trace.saw("hook of the input", lambda grad: grad * 10))
            backend.retain_grad(y)
            z = checkpointed(y)
            backend.register_hook(z, trace.saw("hook of the output", lambda grad: grad * 2))
            backend.retain_grad(z)
            return backend.sum(z + y), z, y

        loss, z, y = backend.call(forward, x)
        backend.backward(loss)
        trace.expect(("hook of the output", [1.0, 1.0]), ("hook of the input", [5.0, 9.0]), ("accumulated", [1.0, 2.0]))
        gradients = [backend.grad_of(tensor) for tensor in (z, y, x)]
        trace.expect_value("gradients", [[2.0, 2.0], [50.0, 90.0], [50.0, 90.0]], gradients)

    run(lambda y: y * y)
    for use_reentrant in KINDS.values():
        run(lambda y, kind=use_reentrant: backend.checkpoint(lambda x: x * x, y, use_reentrant=kind))
        given = leaf(backend)
        backend.register_hook(given, trace.saw("hook of a leaf", lambda grad: grad * 10))
        backend.backward(backend.call(region(backend, lambda x: x * x, use_reentrant=use_reentrant), given))
        trace.expect(("hook of a leaf", [2.0, 4.0]))
        trace.expect_value("gradient of a leaf", [20.0, 40.0], backend.grad_of(given))


def gradients_of_a_parameter(backend: Backend, trace: Trace, *, use_reentrant: bool) -> Any:
    """Log the gradients of a leaf that is used inside a checkpoint and after it; return its .grad."""
    x, weight = leaf(backend), leaf(backend, 3.0, 5.0)
    backend.register_hook(weight, trace.saw("hook of the parameter"))

    def forward(x):
        return backend.sum(backend.checkpoint(lambda x: x * weight, x, use_reentrant=use_reentrant) * weight)

    backend.backward(backend.call(forward, x))
    return backend.grad_of(weight)


@rule(
    "checkpoint.nonreentrant.parameter-hooks",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(19), TENSOR_HOOK.sentence(2)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["checkpoint-use-reentrant-always-true"],
)
def test_parameter_hooks(backend: Backend, trace: Trace) -> None:
    """A hook on a leaf used both inside and outside a non-reentrant checkpoint runs once, with the whole gradient.

    The gradient of the leaf is computed once: forward's graph, which this kind records, has both uses in it.
    """
    gradient = gradients_of_a_parameter(backend, trace, use_reentrant=False)

    trace.expect(("hook of the parameter", [6.0, 20.0]))
    trace.expect_value("gradient", [6.0, 20.0], gradient)


@rule(
    "checkpoint.nonreentrant.multi-grad",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(19), docstring("torch.autograd.graph.register_multi_grad_hook").sentence(3, 5)],
    needs=[*NEEDS, Capability.MULTI_GRAD],
    mutants=["checkpoint-use-reentrant-always-true"],
)
def test_multi_grad(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook on the input and a captured leaf of a non-reentrant checkpoint runs once, with both gradients.

    Both gradients are computed by the backward through forward's graph, which this kind records.
    """
    x, weight = leaf(backend), leaf(backend, 3.0, 5.0)
    backend.register_multi_grad_hook([x, weight], trace.saw("hook"))

    backend.backward(backend.call(region(backend, lambda x: x * weight, use_reentrant=False), x))

    trace.expect(("hook", [[3.0, 5.0], [1.0, 2.0]]))


@rule(
    "checkpoint.reentrant.parameter-hooks",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the backward inside the checkpoint and the one around it each run the hook")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["checkpoint-use-reentrant-always-false"],
)
def test_parameter_hooks_in_reentrant(backend: Backend, trace: Trace) -> None:
    """A hook on a leaf used both inside and outside a reentrant checkpoint may run for each use, with its part."""
    gradients_of_a_parameter(backend, trace, use_reentrant=True)

    trace.expect(("hook of the parameter", [3.0, 10.0]), ("hook of the parameter", [3.0, 10.0]))
