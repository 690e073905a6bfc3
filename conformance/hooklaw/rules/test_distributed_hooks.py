"""Hooks under distributed data parallel: on parameters, on modules and around forward, in each rank."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.ranks import RANKS, mean, number, own_input, reducing, run, two_weights, weighted

DDP = docstring("torch.nn.parallel.DistributedDataParallel")
REGISTER_HOOK = docstring("torch.Tensor.register_hook")
POST_ACCUMULATE = docstring("torch.Tensor.register_post_accumulate_grad_hook")
MODULE = "torch.nn.Module"
NEEDS = [Capability.DISTRIBUTED_DATA_PARALLEL, Capability.MODULES]


@rule(
    "ddp.tensor-hooks.fire",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=[
        "ddp-loses-earlier-parameter-hooks",
        "ddp-ignores-later-parameter-hooks",
        "ddp-ignores-parameter-hooks-after-its-first-pass",
    ],
    processes=RANKS,
)
def test_tensor_hooks_fire(backend: Backend, trace: Trace) -> None:
    """Hooks on a distributed module's parameter run once in each pass, registered before or after it was distributed.

    A hook runs whenever a gradient of its tensor is computed, which is once in each pass of a rank.
    """
    said = [f"registered {when}, on {name}" for name in ("weight", "other") for when in ("before", "after")]
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * module.other)
        for name in ("weight", "other"):
            backend.register_hook(getattr(module, name), trace.saw(f"registered before, on {name}"))
        parallel = backend.distributed_data_parallel(module)
        for name in ("weight", "other"):
            backend.register_hook(getattr(module, name), trace.saw(f"registered after, on {name}"))
        for _ in range(3):
            run(backend, parallel)
            trace.expect_in_any_order(*said)
        for name in ("weight", "other"):
            backend.register_hook(getattr(module, name), trace.saw(f"registered between passes, on {name}"))
        run(backend, parallel)
        between = [f"registered between passes, on {name}" for name in ("weight", "other")]
        trace.expect_in_any_order(*said, *between)


@rule(
    "ddp.tensor-hooks",
    level=Level.MAY,
    sources=[observed("the mean is taken of what has accumulated, after the hooks")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_tensor_hooks(backend: Backend, trace: Trace) -> None:
    """A hook on a distributed module's parameter sees the gradient of its own rank."""
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * module.other)
        backend.register_hook(module.weight, trace.saw("hook of weight"))
        backend.register_hook(module.other, trace.saw("hook of other"))
        parallel = backend.distributed_data_parallel(module)
        for _ in range(3):
            run(backend, parallel)

            for label in ("hook of weight", "hook of other"):
                trace.expect_value(f"what the {label} saw", [[number(backend)]], trace.values(label))
            trace.clear()


@rule(
    "ddp.tensor-hooks.replace",
    level=Level.SHOULD,
    sources=[observed("the mean is taken of what the hooks return")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    basis=Basis.OBSERVED,
    mutants=[
        "ddp-loses-earlier-parameter-hooks",
        "ddp-ignores-later-parameter-hooks",
    ],
    processes=RANKS,
)
def test_tensor_hooks_replace(backend: Backend, trace: Trace) -> None:
    """The gradients that hooks on a distributed module's parameter return are averaged over the ranks."""
    factor = number(backend)
    (share,) = mean(backend, lambda own: 10 * own * own)
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * module.other)
        parameters = {"weight": module.weight, "other": module.other}
        for parameter in parameters.values():
            backend.register_hook(parameter, lambda grad: grad * factor)
        parallel = backend.distributed_data_parallel(module)
        for parameter in parameters.values():
            backend.register_hook(parameter, lambda grad: grad * 10)
        for passes in (1, 2, 3):
            run(backend, parallel)
            for name, parameter in parameters.items():
                trace.expect_value(f"{name}.grad after pass {passes}", [passes * share], backend.grad_of(parameter))


@rule(
    "ddp.post-accumulate-hooks.fire",
    level=Level.MUST,
    sources=[POST_ACCUMULATE.sentence(2)],
    needs=[*NEEDS, Capability.POST_ACCUMULATE],
    mutants=[
        "ddp-loses-earlier-post-accumulate-hooks",
        "ddp-ignores-later-post-accumulate-hooks",
        "ddp-runs-post-accumulate-hooks-early",
    ],
    processes=RANKS,
)
def test_post_accumulate_hooks_fire(backend: Backend, trace: Trace) -> None:
    """Post-accumulate-grad hooks on a distributed module's parameter run once in each pass.

    They run after the gradients of a parameter have accumulated in .grad, which happens once in each pass of a rank.
    """

    def register(module, when):
        for name in ("weight", "other"):
            backend.register_post_accumulate_grad_hook(getattr(module, name), hook(module, name, when))

    def hook(module, name, when):
        def called(parameter):
            got = "the parameter" if parameter is getattr(module, name) else "another tensor"
            having = "without .grad" if backend.grad_of(parameter) is None else "with .grad"
            trace.log(f"registered {when}, on {name}, {got} {having}")

        return called

    said = "the parameter with .grad"
    known = [f"registered {when}, on {name}, {said}" for name in ("weight", "other") for when in ("before", "after")]
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * module.other)
        register(module, "before")
        parallel = backend.distributed_data_parallel(module)
        register(module, "after")
        for _ in range(3):
            for parameter in (module.weight, module.other):
                backend.set_grad(parameter, None)
            run(backend, parallel)
            trace.expect_in_any_order(*known)


@rule(
    "ddp.post-accumulate-hooks.own-gradient",
    level=Level.MAY,
    sources=[observed("DDP's own hook on the accumulator runs after them, and the mean is there when backward ends")],
    needs=[*NEEDS, Capability.POST_ACCUMULATE],
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_post_accumulate_hooks(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook sees in .grad of a distributed module's parameter the gradient of its own rank."""
    for _ in range(2):
        module = weighted(backend)
        parallel = backend.distributed_data_parallel(module)
        backend.register_post_accumulate_grad_hook(
            module.weight, lambda parameter: trace.log("hook", backend.grad_of(parameter))
        )
        for _ in range(3):
            backend.set_grad(module.weight, None)
            run(backend, parallel)

            trace.expect(("hook", [number(backend)]))


@rule(
    "ddp.hooks.before-comm-hook",
    level=Level.MAY,
    sources=[observed("parameter hooks, then post-accumulate hooks, then the bucket")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS, Capability.POST_ACCUMULATE, Capability.COMM_HOOKS],
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_before_comm_hook(backend: Backend, trace: Trace) -> None:
    """A parameter's hook and its post-accumulate-grad hook run before the communication hook of its bucket."""
    for _ in range(2):
        module = weighted(backend)
        parallel = backend.distributed_data_parallel(module)
        backend.register_comm_hook(parallel, None, reducing(backend, trace))
        backend.register_hook(module.weight, trace.saw("parameter hook"))
        backend.register_post_accumulate_grad_hook(module.weight, lambda _: trace.log("post-accumulate hook"))
        for _ in range(3):
            run(backend, parallel)

            trace.expect("parameter hook", "post-accumulate hook", "comm hook")


@rule(
    "ddp.multi-grad-hook.fire",
    level=Level.MUST,
    sources=[docstring("torch.autograd.graph.register_multi_grad_hook").sentence(3, 5)],
    needs=[*NEEDS, Capability.MULTI_GRAD],
    mutants=[
        "ddp-ignores-multi-grad-hooks",
        "ddp-multi-grad-hooks-get-no-gradients",
        "ddp-loses-earlier-parameter-hooks",
        "ddp-multi-grad-hooks-get-gradients-in-reverse-order",
    ],
    processes=RANKS,
)
def test_multi_grad_hooks_fire(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook on all parameters of a distributed module runs once in each pass, with a gradient of each.

    Whether it is the rank's own or the mean is not said, so both are accepted.
    """
    own, share = number(backend), mean(backend)[0]
    known = [[[own], [share]], [[10 * own], [10 * share]]]

    def hook(grads):
        passed = [each is not None and backend.tolist(each) in of_it for each, of_it in zip(grads, known, strict=True)]
        trace.log("hook", passed)

    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * 10 * module.other)
        backend.register_multi_grad_hook([module.weight, module.other], hook)
        parallel = backend.distributed_data_parallel(module)
        backend.register_multi_grad_hook([module.weight, module.other], hook)
        for _ in range(3):
            run(backend, parallel)
            trace.expect(*[("hook", [True, True])] * 2)


@rule(
    "ddp.module-hooks.forward",
    level=Level.MUST,
    sources=[
        docstring(f"{MODULE}.register_forward_pre_hook").sentence(2, 5),
        docstring(f"{MODULE}.register_forward_hook").sentence(2, 5),
    ],
    needs=NEEDS,
    mutants=[
        "ddp-calls-forward-without-hooks",
        "forward-hook-before-forward",
        "ddp-ignores-later-module-hooks",
        "ddp-ignores-what-forward-pre-hooks-return",
        "ddp-ignores-what-forward-hooks-return",
        "ddp-drops-keyword-arguments",
    ],
    processes=RANKS,
)
def test_module_hooks_forward(backend: Backend, trace: Trace) -> None:
    """In each call of a distributed module its forward pre-hooks run before its forward, its forward hooks after it.

    The hooks are those of the module, wherever it is called: what they return takes the place of inputs and outputs.
    """

    def forward(module, x, offset):
        trace.log("forward")
        return x * module.weight + offset

    def register(module):
        def pre_hook(owner, inputs):
            trace.log("forward pre-hook", [owner is module, backend.tolist(inputs[0])[0]])
            return inputs[0] * 2

        def hook(owner, inputs, output):
            trace.log("forward hook", [owner is module, inputs[0], output])
            return None if output is None else output * 3

        backend.register_forward_pre_hook(module, pre_hook)
        backend.register_forward_hook(module, hook)

    own = number(backend)
    result = 8 * own + 1
    for _ in range(2):
        module = weighted(backend, forward)
        register(module)
        parallel = backend.distributed_data_parallel(module)
        register(module)
        for _ in range(3):
            outputs = backend.call(lambda x, called=parallel: called(x, offset=1.0), own_input(backend))
            backend.backward(backend.sum(outputs))
            trace.expect(
                *[("forward pre-hook", [True, factor * own]) for factor in (1, 2)],
                "forward",
                *[("forward hook", [True, [4 * own], [factor * result]]) for factor in (1, 3)],
            )
            trace.expect_value("outputs", [9 * result], backend.detach(outputs))


@rule(
    "ddp.module-hooks.of-the-wrapper",
    level=Level.SHOULD,
    sources=[observed("the wrapper is a module itself")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=["ddp-wrapper-has-no-hooks"],
    processes=RANKS,
)
def test_hooks_of_the_wrapper(backend: Backend, trace: Trace) -> None:
    """Forward hooks on the wrapper of a distributed module run around those of the module."""
    for _ in range(2):
        module = weighted(backend)
        parallel = backend.distributed_data_parallel(module)
        for label, owner in (("outer", parallel), ("inner", module)):
            backend.register_forward_pre_hook(owner, lambda *_, label=label: trace.log(f"{label} pre-hook"))
            backend.register_forward_hook(owner, lambda *_, label=label: trace.log(f"{label} hook"))
        for _ in range(3):
            run(backend, parallel)

            trace.expect("outer pre-hook", "inner pre-hook", "inner hook", "outer hook")


@rule(
    "ddp.module-hooks.backward",
    level=Level.MUST,
    sources=[
        docstring(f"{MODULE}.register_full_backward_pre_hook").sentence(2, 5),
        docstring(f"{MODULE}.register_full_backward_hook").sentence(2, 8),
    ],
    needs=[*NEEDS, Capability.MODULE_BACKWARD_HOOKS, Capability.MODULE_BACKWARD_PRE_HOOKS],
    mutants=[
        "ddp-calls-forward-without-hooks",
        "ddp-drops-backward-hooks",
        "ddp-ignores-later-module-hooks",
        "ddp-ignores-what-backward-hooks-return",
    ],
    processes=RANKS,
)
def test_module_hooks_backward(backend: Backend, trace: Trace) -> None:
    """The full backward pre-hooks and hooks of a distributed module run once in each pass, with the rank's gradients.

    They run when the gradients of the module's outputs and inputs are computed. Those are never averaged: only the
    gradients of parameters are. What a hook returns takes the place of the gradients.
    """

    def register(module):
        def pre_hook(owner, grads):
            trace.log("pre-hook", [owner is module, backend.tolist(grads[0])[0]])
            return (grads[0] * 2,)

        def hook(owner, grads, of_outputs):
            trace.log("hook", [owner is module, backend.tolist(grads[0])[0], backend.tolist(of_outputs[0])[0]])
            return (grads[0] * 2,)

        backend.register_full_backward_pre_hook(module, pre_hook)
        backend.register_full_backward_hook(module, hook)

    own = number(backend)
    for _ in range(2):
        module = weighted(backend)
        register(module)
        parallel = backend.distributed_data_parallel(module)
        register(module)
        for _ in range(3):
            x = backend.tensor([own], requires_grad=True)
            outputs = backend.call(parallel, x)
            backend.backward(backend.sum(outputs * own))
            trace.expect(
                *[("pre-hook", [True, factor * own]) for factor in (1, 2)],
                *[("hook", [True, factor * own, 4 * own]) for factor in (8, 16)],
            )
            trace.expect_value("x.grad", [32 * own], backend.grad_of(x))


@rule(
    "ddp.saved-tensors",
    level=Level.MUST,
    sources=[docstring("torch.autograd.graph.saved_tensors_hooks").sentence(3, 5)],
    needs=[*NEEDS, Capability.SAVED_TENSOR_HOOKS],
    mutants=[
        "ddp-packs-nothing",
        "ddp-packs-the-first-saved-tensor-alone",
        "ddp-packs-nothing-from-the-third-context-on",
    ],
    processes=RANKS,
)
def test_saved_tensors(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks around the call of a distributed module pack what its forward saves, and unpack it.

    The operations of the forward run inside the context.
    """
    pack, unpack = trace.saw("pack", backend.detach), trace.saw("unpack", lambda kept: kept * 3)
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight * module.other)
        parallel = backend.distributed_data_parallel(module)
        for passes in (1, 2, 3):
            with backend.saved_tensors_hooks(pack, unpack):
                outputs = backend.call(parallel, own_input(backend))
            trace.expect_value("packed", True, trace.count("pack") > 0)  # noqa: FBT003 - the expected value

            backend.backward(backend.sum(outputs))
            trace.expect_value("weight.grad", [passes * 3 * 3 * 3 * mean(backend)[0]], backend.grad_of(module.weight))
            trace.expect_value("other.grad", [passes * 3 * 2 * mean(backend)[0]], backend.grad_of(module.other))


@rule(
    "ddp.checkpoint.non-reentrant",
    level=Level.MUST,
    sources=[DDP.sentence(33)],
    needs=[*NEEDS, Capability.CHECKPOINT],
    mutants=["ddp-reduces-nothing", "ddp-reduces-the-first-parameter-only"],
    processes=RANKS,
)
def test_checkpoint_non_reentrant(backend: Backend, trace: Trace) -> None:
    """A distributed module whose layers are checkpointed with use_reentrant=False averages gradients in each pass.

    It has no limitations: a layer may be checkpointed twice, and parameters may be unused.
    """
    weights = {"weight": [2.0], "other": [3.0], "unused": [5.0]}
    for _ in range(2):
        module = backend.module(
            {name: backend.tensor(values) for name, values in weights.items()},
            checkpointed_layers(backend, "weight", "other", "weight", "other", use_reentrant=False),
        )
        parallel = backend.distributed_data_parallel(module, find_unused_parameters=True)
        for each in ("first", "second", "third"):
            backend.set_grad(module.weight, None)
            backend.set_grad(module.other, None)
            run(backend, parallel)
            for name, factor in (("weight", 36.0), ("other", 24.0)):
                expected = mean(backend, lambda own, factor=factor: factor * own)
                said = f"{name}.grad after the {each} pass"
                trace.expect_value(said, expected, backend.grad_of(getattr(module, name)))


def checkpointed_layers(backend: Backend, *names: str, use_reentrant: bool) -> Any:
    """Return a forward that checkpoints the layers with these weights, one after the other."""

    def forward(module, x):
        for name in names:
            x = backend.checkpoint(lambda y, name=name: y * getattr(module, name), x, use_reentrant=use_reentrant)
        return x

    return forward


@rule(
    "ddp.checkpoint.reentrant",
    level=Level.MUST,
    sources=[DDP.sentence(34)],
    needs=[*NEEDS, Capability.CHECKPOINT],
    mutants=["ddp-reduces-nothing", "ddp-reduces-the-first-parameter-only"],
    processes=RANKS,
)
def test_checkpoint_reentrant(backend: Backend, trace: Trace) -> None:
    """If all layers of a distributed module are used and checkpointed once, reentrantly, gradients are averaged."""
    for _ in range(2):
        module = two_weights(backend, checkpointed_layers(backend, "weight", "other", use_reentrant=True))
        parallel = backend.distributed_data_parallel(module)
        for each in ("first", "second", "third"):
            backend.set_grad(module.weight, None)
            backend.set_grad(module.other, None)
            run(backend, parallel, backend.tensor([number(backend)], requires_grad=True))
            for name, other in (("weight", 3.0), ("other", 2.0)):
                expected = mean(backend, lambda own, other=other: other * own)
                said = f"{name}.grad after the {each} pass"
                trace.expect_value(said, expected, backend.grad_of(getattr(module, name)))


@rule(
    "ddp.checkpoint.reentrant-twice",
    level=Level.MAY,
    sources=[observed("the documentation does not support it, and nothing is said when it happens")],
    needs=[*NEEDS, Capability.CHECKPOINT],
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_checkpoint_reentrant_twice(backend: Backend, trace: Trace) -> None:
    """If a layer of a distributed module is checkpointed twice, reentrantly, only its first gradient is averaged."""
    module = weighted(backend, checkpointed_layers(backend, "weight", "weight", use_reentrant=True))
    run(backend, backend.distributed_data_parallel(module), backend.tensor([number(backend)], requires_grad=True))

    first, second = mean(backend, lambda own: 2 * own)[0], 2 * number(backend)
    trace.expect_value("weight.grad", [first + second], backend.grad_of(module.weight))


@rule(
    "ddp.second-backward",
    level=Level.MAY,
    sources=[observed("forward makes ready for one backward; the next one is the rank's own, and nothing is said")],
    needs=[*NEEDS, Capability.RETAIN_GRAPH],
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_second_backward(backend: Backend, trace: Trace) -> None:
    """A second backward through one forward of a distributed module adds the gradient of the rank alone."""
    module = weighted(backend)
    parallel = backend.distributed_data_parallel(module)
    root = backend.sum(backend.call(parallel, own_input(backend)))
    backend.backward(root, retain_graph=True)
    backend.backward(root)

    trace.expect_value("weight.grad", [mean(backend)[0] + number(backend)], backend.grad_of(module.weight))
