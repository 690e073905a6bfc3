"""Hooks on the AccumulateGrad Node of a leaf: when they run, what they see, and how long they live."""

from hooklaw import Backend, Basis, Capability, Level, Trace, notes, observed, rule

FIRED = notes("autograd", "whether-a-particular-hook-will-be-fired")
NODE_HOOKS = [Capability.NODES, Capability.NODE_HOOKS]
EVERY_LEAF_HOOK = [*NODE_HOOKS, Capability.TENSOR_HOOKS, Capability.POST_ACCUMULATE]


def _put_every_hook(backend, trace, leaf):
    """Register a hook of each kind on a leaf, and return its Node, which keeps the Node hooks alive."""
    node = backend.accumulate_grad(leaf)
    backend.node_register_hook(node, trace.saw("node post-hook"))
    backend.register_post_accumulate_grad_hook(leaf, trace.saw("post-accumulate hook"))
    backend.node_register_prehook(node, trace.saw("node pre-hook"))
    backend.register_hook(leaf, trace.saw("tensor hook"))
    return node


@rule(
    "node-hook.fire.backward-inputs-leaf",
    level=Level.MUST,
    sources=[FIRED.sentence(11, 12)],
    needs=[*EVERY_LEAF_HOOK, Capability.BACKWARD_INPUTS],
    mutants=[
        "backward-inputs-skip-accumulate-grad-hooks",
        "backward-with-inputs-runs-every-tensor-hook",
        "limited-backward-spares-other-leaves-alone",
        "node-hooks-of-later-backward-inputs-lost",
        "node-hooks-of-earlier-backward-inputs-lost",
    ],
)
def test_backward_limited_to_leaf(backend: Backend, trace: Trace) -> None:
    """When a leaf is in the inputs of backward, its AccumulateGrad Node is executed and hooks of every kind run.

    The note says that executing the Nodes of inputs is unnecessary and may change; for a leaf the Node is what
    accumulates, so without it backward could not do what it must.
    """
    x, w, other = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(3))
    _nodes = [_put_every_hook(backend, trace, leaf) for leaf in (x, w)]
    backend.register_hook(other, trace.saw("tensor hook of a leaf that is no input"))

    def forward(x, w, other):
        doubled = other * 2
        backend.register_hook(doubled, trace.saw("tensor hook of a non-leaf that no input needs"))
        return backend.sum(x * w * doubled)

    for inputs in ([x], [x, w]):
        backend.backward(backend.call(forward, x, w, other), inputs=inputs)

        every = ["tensor hook", "node pre-hook", "post-accumulate hook", "node post-hook"]
        trace.expect_in_any_order(*every * len(inputs))


@rule(
    "node-hook.fire.leaf-autograd-grad",
    level=Level.MUST,
    sources=[FIRED.sentence(3, 15)],
    needs=[*EVERY_LEAF_HOOK, Capability.AUTOGRAD_GRAD],
    mutants=[
        "autograd-grad-executes-the-nodes-of-its-inputs",
        "autograd-grad-executes-the-nodes-of-several-inputs",
        "post-accumulate-fires-in-autograd-grad",
        "autograd-grad-executes-the-nodes-of-later-inputs",
    ],
)
def test_autograd_grad_of_leaf(backend: Backend, trace: Trace) -> None:
    """When a leaf is an input of autograd.grad, its AccumulateGrad Node is not executed; only its tensor hooks run."""
    x, w = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    _node = _put_every_hook(backend, trace, x)

    for inputs in ([x], [x, w], [w, x]):
        backend.grad(backend.call(lambda x, w: backend.sum(x * w), x, w), inputs)

        trace.expect("tensor hook")


@rule(
    "node-hook.accumulate-grad",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("AccumulateGrad has no grad_inputs; its grad_outputs is the gradient of the pass")],
    needs=NODE_HOOKS,
    mutants=["accumulate-grad-passes-the-sum-on", "accumulate-grad-made-anew-for-each-use"],
)
def test_accumulate_grad_arguments(backend: Backend, trace: Trace) -> None:
    """A post-hook on an AccumulateGrad Node may get no grad_inputs, and as grad_outputs only this pass's gradient."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.set_grad(x, backend.tensor([9.0, 9.0]))
    node = backend.accumulate_grad(x)
    backend.node_register_hook(node, trace.saw("node post-hook"))

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

    trace.expect(("node post-hook", [[], [[2.0, 2.0]]]))


@rule(
    "node-hook.accumulate-grad-lifetime",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("hooks on AccumulateGrad vanish with the last reference to it")],
    needs=[*NODE_HOOKS, Capability.WEAK_REFERENCES],
    mutants=["accumulate-grad-lives-with-its-leaf"],
)
def test_accumulate_grad_lifetime(backend: Backend, trace: Trace) -> None:
    """Hooks on a leaf's AccumulateGrad Node may be lost once neither the user nor a graph refers to the Node."""
    x, y = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    kept = backend.accumulate_grad(x)
    backend.node_register_hook(kept, trace.saw("node kept"))
    backend.node_register_hook(backend.accumulate_grad(y), trace.saw("node dropped"))

    backend.backward(backend.call(lambda x, y: backend.sum(x * 2 + y * 3), x, y))

    trace.expect("node kept")
