"""How long hooks, and what they hold, stay alive: as long as their graph or leaf, and no longer."""

from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, observed, rule
from hooklaw.rules.lifetimes import Mark, collect, holding, kinds_of_node, without_collector

WITH_THE_GRAPH = observed("the graph owns the hooks of its tensors and Nodes; programs rely on it to free memory")
BY_THE_COLLECTOR = observed("a cycle through a hook is visible to Python's garbage collector")
FREED = [Capability.WEAK_REFERENCES, Capability.CUSTOM_FUNCTION]


def leaf(backend: Backend) -> Any:
    """Make a leaf."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "tensor-hook.lifetime.graph",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[WITH_THE_GRAPH],
    needs=[*FREED, Capability.TENSOR_HOOKS, Capability.VIEWS, Capability.MULTI_OUTPUT],
    mutants=[
        "hooks-outlive-the-graph",
        "hooks-outlive-a-graph-that-ran",
        "hooks-of-views-outlive-the-graph",
        "hooks-of-parts-outlive-the-graph",
    ],
)
def test_tensor_hook(backend: Backend, trace: Trace) -> None:
    """A hook of a non-leaf, and what it holds, is freed with the last reference to the graph, used or not."""
    of_views = {"view": lambda x: backend.view(x, 2, 1), "part": lambda x: backend.split(x, 1)[1]}
    for compute in {**kinds_of_node(backend), **of_views}.values():
        for runs in (False, True):
            with without_collector():
                y = backend.call(compute, leaf(backend))
                backend.register_hook(y, holding(trace, "freed"))
                if runs:
                    backend.backward(backend.sum(y))
                trace.log("last reference")
                del y

            trace.expect("last reference", "freed")


@rule(
    "node-hook.lifetime.graph",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[WITH_THE_GRAPH],
    needs=[*FREED, Capability.NODES, Capability.NODE_HOOKS],
    mutants=["hooks-outlive-the-graph", "hooks-outlive-a-graph-that-ran"],
)
def test_node_hook(backend: Backend, trace: Trace) -> None:
    """A pre-hook and a hook of a Node are freed with the last reference to the graph, used or not."""
    for compute in kinds_of_node(backend).values():
        for runs in (False, True):
            with without_collector():
                y = backend.call(compute, leaf(backend))
                backend.node_register_prehook(backend.grad_fn(y), holding(trace, "freed"))
                backend.node_register_hook(backend.grad_fn(y), holding(trace, "freed"))
                if runs:
                    backend.backward(backend.sum(y))
                trace.log("last reference")
                del y

            trace.expect("last reference", "freed", "freed")


@rule(
    "tensor-hook.lifetime.leaf",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[WITH_THE_GRAPH],
    needs=[Capability.WEAK_REFERENCES, Capability.TENSOR_HOOKS],
    mutants=[
        "hooks-outlive-the-graph",
        "hooks-outlive-a-graph-that-ran",
        "hooks-of-leaves-that-never-ran-are-kept",
    ],
)
def test_leaf(backend: Backend, trace: Trace) -> None:
    """A tensor hook of a leaf lives as long as the leaf, whatever becomes of its graphs, and is freed with it."""
    for runs in (False, True):
        with without_collector():
            x = leaf(backend)
            backend.register_hook(x, holding(trace, "freed"))
            loss = backend.call(lambda x: backend.sum(x * x), x)
            if runs:
                backend.backward(loss)
            del loss
            trace.log("last reference")
            del x

        trace.expect("last reference", "freed")


@rule(
    "post-acc.lifetime.leaf",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[WITH_THE_GRAPH],
    needs=[Capability.WEAK_REFERENCES, Capability.POST_ACCUMULATE],
    mutants=[
        "hooks-outlive-the-graph",
        "hooks-outlive-a-graph-that-ran",
        "post-accumulate-hooks-that-never-ran-are-kept",
    ],
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook lives as long as its leaf, whatever becomes of the graphs, and is freed with it."""
    for runs in (False, True):
        with without_collector():
            x = leaf(backend)
            backend.register_post_accumulate_grad_hook(x, holding(trace, "freed"))
            loss = backend.call(lambda x: backend.sum(x * x), x)
            if runs:
                backend.backward(loss)
            del loss
            trace.log("last reference")
            del x

        trace.expect("last reference", "freed")


@rule(
    "tensor-hook.lifetime.cycle",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[BY_THE_COLLECTOR],
    needs=[*FREED, Capability.NODES, Capability.TENSOR_HOOKS],
    mutants=["hooks-outlive-the-graph", "hooks-outlive-a-graph-that-ran"],
)
def test_tensor_hook_cycle(backend: Backend, trace: Trace) -> None:
    """The garbage collector frees a tensor hook that refers to its tensor's Node, once nothing else refers to it."""
    for compute in kinds_of_node(backend).values():
        for runs in (False, True):
            y = backend.call(compute, leaf(backend))
            backend.register_hook(y, holding(trace, "freed", backend.grad_fn(y)))
            if runs:
                backend.backward(backend.sum(y))
            trace.log("last reference")
            del y
            collect()

            trace.expect("last reference", "freed")


@rule(
    "node-hook.lifetime.cycle",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[BY_THE_COLLECTOR],
    needs=[*FREED, Capability.NODES, Capability.NODE_HOOKS, Capability.MULTI_OUTPUT],
    mutants=["hooks-outlive-the-graph", "hooks-outlive-a-graph-that-ran", "node-pre-hooks-in-a-cycle-are-kept"],
)
def test_node_hook_cycle(backend: Backend, trace: Trace) -> None:
    """The garbage collector frees a pre-hook or hook that refers to its Node, also to one of several outputs."""
    kinds = {**kinds_of_node(backend), "several outputs": lambda x: backend.split(x, 1)[0]}
    registers = (backend.node_register_prehook, backend.node_register_hook)
    cases, held = [*product(kinds.values(), registers, (False, True))], list[Any]()
    for compute, register, runs in cases:
        y = backend.call(compute, leaf(backend))
        node = backend.grad_fn(y)
        register(node, holding(trace, "freed", node))
        if runs:
            backend.backward(backend.sum(y))
        held.append((y, node))
    del y, node
    trace.log("last reference")
    held.clear()
    collect()  # once, since it looks at every object of the process

    trace.expect("last reference", *["freed"] * len(cases))


@rule(
    "tensor-hook.lifetime.cycle.alive",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[BY_THE_COLLECTOR],
    needs=[*FREED, Capability.NODES, Capability.NODE_HOOKS, Capability.TENSOR_HOOKS],
    mutants=["hooks-lost-with-their-tensor"],
)
def test_cycle_survives(backend: Backend, trace: Trace) -> None:
    """Hooks that refer to their own Node survive the garbage collector while a later tensor holds the graph."""

    def forward(x, compute):
        y = compute(x * 2)
        node = backend.grad_fn(y)
        backend.register_hook(y, lambda grad: trace.log("tensor hook", [grad, node is None]))
        backend.node_register_hook(node, lambda *_: trace.log("Node hook", node is None))
        return backend.sum(y * 3)

    for compute in kinds_of_node(backend).values():
        loss = backend.call(forward, leaf(backend), compute)
        collect()
        backend.backward(loss)

        trace.expect(("tensor hook", [[3.0, 3.0], False]), ("Node hook", False))


@rule(
    "node.lifetime.outputs",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("each output refers to the Node")],
    needs=[*FREED, Capability.NODES, Capability.NODE_HOOKS, Capability.MULTI_OUTPUT],
    mutants=["hooks-outlive-the-graph", "hooks-outlive-a-graph-that-ran", "node-is-freed-with-its-last-output"],
)
def test_several_outputs(backend: Backend, trace: Trace) -> None:
    """A Node of several outputs lives as long as one of them, whether backward ran from one of them or not."""
    function = backend.custom_function(lambda _, x: (x * 2, x * 3), lambda _, first, second: first * 2 + second * 3)
    kinds = (lambda x: backend.split(x, 1), function)
    for compute, runs, dropped_first in product(kinds, (False, True), (0, 1)):
        with without_collector():
            outputs = list(backend.call(compute, leaf(backend)))
            backend.node_register_hook(backend.grad_fn(outputs[0]), holding(trace, "freed"))
            if runs:
                backend.backward(backend.sum(outputs[0]), retain_graph=True)
            del outputs[dropped_first]
            trace.log("last reference")
            outputs.clear()

        trace.expect("last reference", "freed")


@rule(
    "node.lifetime.chain",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a Node refers to those nearer the leaves, and none refers back")],
    needs=[*FREED, Capability.NODES, Capability.NODE_METADATA],
    mutants=["nodes-outlive-the-graph"],
)
def test_chain(backend: Backend, trace: Trace) -> None:
    """Every Node of a chain of operations and custom Functions is freed with the last tensor of the chain."""

    def forward(x):
        for compute in (*kinds_of_node(backend).values(), lambda y: y * 3):
            x = compute(x)
            backend.node_metadata(backend.grad_fn(x))["mark"] = Mark(trace, "freed")
        return x

    with without_collector():
        y = backend.call(forward, leaf(backend))
        trace.log("last reference")
        del y

    trace.expect("last reference", "freed", "freed", "freed")


@rule(
    "module.full-backward.lifetime.create-graph",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[BY_THE_COLLECTOR],
    needs=[
        Capability.WEAK_REFERENCES,
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.BACKWARD_CREATE_GRAPH,
        Capability.NODES,
        Capability.NODE_METADATA,
    ],
    mutants=["nodes-outlive-the-graph"],
    except_under={"packed": "an identity pack may keep an output and its graph alive"},
)
def test_module_create_graph(backend: Backend, trace: Trace) -> None:
    """A module's graph is freed once the gradients that a backward with create_graph made are dropped.

    The module has full backward hooks: one, or several.
    """
    for count in (1, 2):
        x = leaf(backend)
        module = backend.module({}, lambda _module, x: backend.exp(x) * x)
        for _ in range(count):
            backend.register_full_backward_hook(module, lambda *_: None)
        y = backend.call(module, x)
        backend.node_metadata(backend.grad_fn(y))["mark"] = Mark(trace, "freed")
        backend.backward(backend.sum(backend.exp(y)), create_graph=True)
        trace.log("last reference")
        backend.set_grad(x, None)
        del y
        collect()

        trace.expect("last reference", "freed")


@rule(
    "custom-function.lifetime.cycle",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[BY_THE_COLLECTOR],
    needs=[*FREED, Capability.NODES],
    mutants=["contexts-outlive-the-graph"],
)
def test_context_cycle(backend: Backend, trace: Trace) -> None:
    """The garbage collector frees a custom Function's ctx that refers to its own output through an attribute."""
    marks = [Mark(trace, "freed")]
    kept: list[Any] = []

    def square(ctx, x):
        kept.append(ctx)
        return x * x

    function = backend.custom_function(square, lambda _, grad: grad)
    y = backend.call(function, leaf(backend))
    kept[0].mark = marks.pop()
    kept[0].output = y
    trace.log("last reference")
    kept.clear()
    del y
    collect()

    trace.expect("last reference", "freed")


@rule(
    "custom-function.lifetime.dirty",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a saved output does not keep itself alive, be it an input or a view changed in place")],
    needs=[*FREED, Capability.MARK_DIRTY, Capability.IN_PLACE, Capability.VIEWS, Capability.TENSOR_HOOKS],
    mutants=["contexts-outlive-the-graph"],
    except_under={"packed": "an identity pack may keep an output and its graph alive"},
)
def test_dirty(backend: Backend, trace: Trace) -> None:
    """An input, or a view, that a custom Function changed in place, marked dirty and saved is freed with the graph."""

    def double(ctx, x):
        ctx.mark_dirty(x)
        ctx.mark = marks.pop()
        backend.mul_(x, 2)
        ctx.save_for_backward(x)
        return x

    function = backend.custom_function(double, lambda _, grad: grad * 2)
    for view in (lambda y: y, lambda y: backend.view(y, 2)):
        marks = [Mark(trace, "freed")]
        with without_collector():
            y = view(leaf(backend) * 1)
            y = function(y)
            trace.log("last reference")
            del y

        trace.expect("last reference", "freed")
