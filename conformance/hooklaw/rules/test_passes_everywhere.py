"""Passes of each kind, with all options, wherever they run: what they accumulate and free, and their errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress, product
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import Place, here, leaf
from hooklaw.rules.passes import EVERYWHERE, ROOTS, places, whenever

METHOD = docstring("torch.Tensor.backward")
BACKWARD = docstring("torch.autograd.backward")
GRAD = docstring("torch.autograd.grad")
ATTRIBUTE = docstring("torch.Tensor.grad")
NEEDS = [*EVERYWHERE, Capability.AUTOGRAD_GRAD, Capability.RETAIN_GRAPH]
CREATING = [Capability.CREATE_GRAPH, Capability.BACKWARD_CREATE_GRAPH]
Run = Callable[..., Any]


def accumulating(backend: Backend) -> dict[str, Callable[[Any], Any]]:
    """Return the ways to run a backward from a root."""
    return {
        "backward": backend.backward,
        "backward from several roots": lambda root: backend.backward_from_all([root]),
        "backward from several roots with gradients": lambda root: backend.backward_from_all(
            [root], [backend.tensor(1.0)]
        ),
        "backward from an edge": lambda root: backend.backward_from_edge(
            backend.get_gradient_edge(root), backend.tensor(1.0)
        ),
    }


def accumulates(backend: Backend, trace: Trace, label: str, place: Place, run: Callable[[Any], Any]) -> None:
    """Expect two passes in a place to add up, and a third to begin anew where .grad was reset, and that of no other."""
    x, other = leaf(backend), leaf(backend)
    roots = [backend.call(lambda x: backend.sum(x * 3), x) for _ in range(3)]

    def begin_anew() -> None:
        for each, grad in ((x, [5.0, 5.0]), (other, [7.0, 7.0])):
            backend.set_grad(each, backend.tensor(grad))
        backend.set_grad(x, None)
        run(roots[2])

    place(lambda: [run(root) for root in roots[:2]])
    trace.expect_value(f"x.grad, {label}", [6.0, 6.0], backend.grad_of(x))
    place(begin_anew)
    trace.expect_value(f"x.grad once reset, {label}", [3.0, 3.0], backend.grad_of(x))
    trace.expect_value(f".grad of another leaf, {label}", [7.0, 7.0], backend.grad_of(other))


@rule(
    "backward.every-place",
    level=Level.MUST,
    sources=[METHOD.sentence(5), BACKWARD.sentence(5, 14), ATTRIBUTE.sentence(2), GRAD.sentence(1)],
    needs=[*NEEDS, *ROOTS],
    mutants=[
        "backward-lost-in-a-module",
        "backward-overwrites-another-thread",
        "backward-from-all-lost-in-no-grad",
        "backward-from-edge-overwrites-in-a-pass",
        "set-grad-reaches-the-one-before-with-pairs",
    ],
)
def test_accumulates(backend: Backend, trace: Trace) -> None:
    """A backward adds to the .grad of a leaf no matter what is under way when it runs, and autograd.grad returns it.

    In no_grad, during another pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks,
    in another thread, and after a backward that failed.
    """
    for label, place in whenever(backend).items():
        for verb, run in accumulating(backend).items():
            accumulates(backend, trace, f"{verb} {label}", place, run)
        x, found = leaf(backend), list[Any]()
        root = backend.call(lambda x: backend.sum(x * 3), x)
        place(lambda root=root, x=x, found=found: found.extend(backend.grad(root, [x])))
        trace.expect_value(f"autograd.grad {label}", [[3.0, 3.0]], found)


@rule(
    "retain-grad.backward.every-place",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.retain_grad").sentence(2)],
    needs=[*EVERYWHERE, *ROOTS, Capability.RETAIN_GRAD],
    mutants=[
        "backward-retains-no-gradient-in-a-pass",
        "backward-retains-no-gradient-another-thread",
        "backward-from-all-retains-no-gradient-in-no-grad",
        "backward-from-edge-retains-no-gradient-third-call",
    ],
)
def test_retains(backend: Backend, trace: Trace) -> None:
    """A non-leaf that retains its gradient gets it no matter what is under way when backward runs."""
    for label, place in whenever(backend).items():
        for verb, run in accumulating(backend).items():
            y = backend.call(lambda x: x * 2, leaf(backend))
            backend.retain_grad(y)
            root = backend.call(lambda y: backend.sum(y * 3), y)
            place(lambda run=run, root=root: run(root))
            trace.expect_value(f"y.grad, {verb} {label}", [3.0, 3.0], backend.grad_of(y))


def differentiable_in(backend: Backend, trace: Trace, label: str, place: Place) -> None:
    """Expect the gradients of two passes that create a graph in a place to be differentiable.

    A checkpoint runs these passes again when their gradients are differentiated, so that retains the graph.
    """
    x, found = leaf(backend), list[Any]()
    roots = [backend.call(lambda x: backend.sum(x * x * x), x) for _ in range(2)]

    def run() -> None:
        found.extend(backend.grad(roots[0], [x], create_graph=True))
        with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
            backend.backward(roots[1], create_graph=True)
        found.append(backend.grad_of(x))
        backend.set_grad(x, None)  # breaks the cycle

    place(run)
    derivatives = [backend.grad(backend.sum(first), [x], retain_graph=True)[0] for first in found[:2]]
    trace.expect_value(f"second derivatives, {label}", [[6.0, 12.0]] * 2, derivatives)


WITHOUT_GRAD_MODE = ("in no_grad", "in no_grad inside two others", "during a pass")
"""The places where grad mode is off."""


@rule(
    "create-graph.every-place",
    level=Level.MUST,
    sources=[METHOD.sentence(17), BACKWARD.sentence(21), GRAD.sentence(18)],
    needs=[*NEEDS, *CREATING],
    mutants=[
        "backward-creates-no-graph-another-thread",
        "backward-creates-no-graph-in-a-checkpoint",
        "backward-creates-no-graph-after-a-failure",
        "autograd-grad-creates-no-graph-in-a-module",
        "autograd-grad-creates-no-graph-another-thread",
    ],
)
def test_creates(backend: Backend, trace: Trace) -> None:
    """A gradient computed with create_graph=True can be differentiated no matter what is under way in its pass.

    Of the places where grad mode is off speaks the rule create-graph.every-place.no-grad.
    """
    for label, place in whenever(backend).items():
        if label not in WITHOUT_GRAD_MODE:
            differentiable_in(backend, trace, label, place)


@rule(
    "create-graph.every-place.no-grad",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[GRAD, observed("create_graph decides, not the grad mode of the caller")],
    needs=[*NEEDS, *CREATING],
    mutants=["backward-creates-no-graph-in-no-grad", "backward-creates-no-graph-in-a-pass"],
)
def test_creates_without_grad_mode(backend: Backend, trace: Trace) -> None:
    """A gradient computed with create_graph=True can be differentiated even if grad mode is off around its pass.

    In no_grad, or during another pass.
    """
    for label, place in places(backend).items():
        if label in WITHOUT_GRAD_MODE:
            differentiable_in(backend, trace, label, place)


def passes_of(backend: Backend, roots: Sequence[Any], leaves: Sequence[Any]) -> dict[str, Run]:
    """Return passes from the first of two roots, or both; each takes the options of its verb."""
    root, ones = roots[0], [backend.tensor(1.0)] * len(roots)

    def backward(**how: Any) -> None:
        with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
            backend.backward(root, **how)

    def grad(outputs: Any, *seeds: Any) -> Run:
        return lambda **how: backend.grad(outputs, leaves[:1], *seeds, **how)

    return {
        "backward": backward,
        "backward that creates a graph": lambda **how: backward(create_graph=True, **how),
        "backward with inputs": lambda **how: backward(inputs=leaves, **how),
        "backward with a gradient": lambda **how: backward(gradient=backend.tensor(1.0), **how),
        "autograd.grad": grad(root),
        "autograd.grad that creates a graph": lambda **how: grad(root)(create_graph=True, **how),
        "autograd.grad for several inputs": lambda **how: backend.grad(root, leaves, **how),
        "autograd.grad of several outputs": grad(roots),
        "autograd.grad with gradients": grad(roots, ones),
    }


def freed_by(backend: Backend, roots: Sequence[Any]) -> dict[str, Callable[[], Any]]:
    """Return passes that have no retain_graph."""
    edge = backend.get_gradient_edge(roots[0])
    return {
        "backward from several roots": lambda: backend.backward_from_all([*roots]),
        "backward from several roots with gradients": lambda: backend.backward_from_all(
            [*roots], [None, backend.tensor(1.0)]
        ),
        "backward from an edge": lambda: backend.backward_from_edge(edge, backend.tensor(1.0)),
    }


def graph(backend: Backend) -> tuple[list[Any], list[Any]]:
    """Return two roots whose graph has saved what their leaves are multiplied by, and the leaves."""
    leaves = [leaf(backend), leaf(backend)]

    def forward(x: Any, y: Any) -> Any:
        product = x * y
        return backend.sum(product), backend.sum(product * y)

    return list(backend.call(forward, *leaves)), leaves


def refused(trace: Trace, kind: ErrorKind, place: Place, run: Callable[[], Any], times: int = 2) -> None:
    """Expect a call in a place to be an error, several times."""

    def refuse() -> None:
        for _ in range(times):
            with trace.raises(kind):
                run()

    place(refuse)


@rule(
    "retain-graph.every-place",
    level=Level.MUST,
    sources=[METHOD.sentence(14), BACKWARD.sentence(18), GRAD.sentence(15)],
    needs=[*NEEDS, *ROOTS, *CREATING, Capability.SEED_GRADIENT, Capability.GRAPH_FREEING],
    mutants=[
        "backward-frees-another-thread",
        "backward-retains-in-a-module",
        "backward-freed-accepted-in-no-grad",
        "autograd-grad-retains-several-outputs",
        "autograd-grad-freed-accepted-create-graph",
        "backward-from-edge-freed-accepted-in-a-pass",
    ],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_frees(backend: Backend, trace: Trace) -> None:
    """A pass frees its graph, so that a second one is an error, exactly if retain_graph is not true.

    No matter with which options it runs, or what is under way when it does.
    """
    for label in passes_of(backend, *graph(backend)):
        frees_in(backend, trace, here, label)
    for place in whenever(backend).values():
        for label in ("backward", "autograd.grad"):
            frees_in(backend, trace, place, label)
        for label in freed_by(backend, graph(backend)[0]):
            both = graph(backend)[0]
            of_one, of_other = (freed_by(backend, roots)[label] for roots in (both, both[::-1]))
            place(of_one)
            for run in (of_one, of_other):
                refused(trace, ErrorKind.GRAPH_FREED, place, run)


def frees_in(backend: Backend, trace: Trace, place: Place, label: str) -> None:
    """Expect a kind of pass to free a graph in a place, for each of its roots, exactly if it does not retain it."""
    for times in (0, 2):
        roots, leaves = graph(backend)
        run, of_other = (passes_of(backend, each, leaves)[label] for each in (roots, roots[::-1]))
        for _ in range(times):
            place(lambda run=run: run(retain_graph=True))
        place(lambda run=run: run(retain_graph=False))
        again = run if times else of_other
        for retain in (False, True):
            refused(trace, ErrorKind.GRAPH_FREED, place, lambda run=again, how=retain: run(retain_graph=how), times=1)


@rule(
    "backward.errors.every-place",
    level=Level.MUST,
    sources=[METHOD.sentence(3), BACKWARD.sentence(3, 16), GRAD.sentence(12, 20)],
    needs=[*NEEDS, *ROOTS, *CREATING, Capability.MISUSE_ERRORS, Capability.SEED_GRADIENT],
    mutants=[
        "backward-unseeded-accepted-in-no-grad",
        "backward-from-all-unseeded-accepted-seeded",
        "autograd-grad-unseeded-accepted-another-thread",
        "autograd-grad-unused-accepted-in-a-pass",
    ],
)
def test_errors(backend: Backend, trace: Trace) -> None:
    """A pass without the gradient of a root that is not a scalar, or for an input that was not used, is an error.

    No matter with which options it runs, and what is under way when it does.
    """
    one = backend.tensor(1.0)
    for place in whenever(backend).values():
        x, unused = leaf(backend), leaf(backend)
        vector, root = backend.call(lambda x: (x * 2, backend.sum(x * 3)), x)
        unseeded = passes_of(backend, [vector, root], [x, x])
        for label in ("backward with a gradient", "autograd.grad with gradients"):
            del unseeded[label]
        for run in unseeded.values():
            for retain in (False, True):
                refused(trace, ErrorKind.ROOT_GRADIENT, place, lambda run=run, how=retain: run(retain_graph=how))
        for seeds in ([], [[None, one]]):
            for run in (
                lambda roots, seeds=seeds: backend.backward_from_all(roots, *seeds),
                lambda roots, seeds=seeds, x=x: backend.grad(roots, [x], *seeds),
            ):
                refused(trace, ErrorKind.ROOT_GRADIENT, place, lambda run=run, roots=[vector, root]: run(roots))
        for how in ({"retain_graph": True}, {}):
            for label, run in passes_of(backend, [root, root], [unused, x]).items():
                if label.startswith("autograd.grad"):
                    refused(trace, ErrorKind.UNUSED_INPUT, place, lambda run=run, how=how: run(**how), times=1)


@rule(
    "backward.inputs.nonleaf.every-place",
    level=Level.MUST,
    sources=[METHOD.sentence(14, 17, 19), BACKWARD.sentence(18, 21, 23)],
    needs=[*EVERYWHERE, Capability.RETAIN_GRAPH, Capability.BACKWARD_CREATE_GRAPH, Capability.BACKWARD_INPUTS],
    mutants=[
        "non-leaf-inputs-lost-in-no-grad",
        "non-leaf-inputs-lost-in-another-thread",
        "non-leaf-inputs-lost-in-a-pass",
        "non-leaf-inputs-lost-by-create-graph",
    ],
)
def test_non_leaf_inputs(backend: Backend, trace: Trace) -> None:
    """A backward accumulates gradients into a non-leaf among its inputs no matter what is under way when it runs.

    Whether it retains or creates a graph, too.
    """
    for label, place in whenever(backend).items():
        for how in ({}, {"retain_graph": True}, {"create_graph": True}):
            y = backend.call(lambda x: x * 2, leaf(backend))
            root = backend.call(lambda y: backend.sum(y * 3), y)
            with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
                place(lambda y=y, root=root, how=how: backend.backward(root, inputs=[y], **how))
            trace.expect_value(f"y.grad, {label}, {how}", [3.0, 3.0], backend.grad_of(y))


@rule(
    "backward.inputs.nonleaf.views",
    level=Level.MUST,
    sources=[METHOD.sentence(19), BACKWARD.sentence(23)],
    needs=[Capability.BACKWARD_INPUTS, Capability.VIEWS, Capability.MULTI_OUTPUT],
    mutants=[
        "views-among-backward-inputs-lost",
        "later-outputs-among-backward-inputs-lost",
        "backward-overwrites-views-among-its-inputs",
        "backward-overwrites-later-outputs-among-its-inputs",
        "outputs-in-between-among-backward-inputs-lost",
    ],
)
def test_views_as_inputs(backend: Backend, trace: Trace) -> None:
    """A backward accumulates gradients into a view among its inputs, and into each output of an operation.

    Of a leaf and of a result.
    """
    for make, had in product((lambda x: x, lambda x: x * 5), (None, 10.0)):
        view = backend.call(lambda x, make=make: backend.view(make(x), 2, 1), leaf(backend))
        backend.set_grad(view, had and backend.tensor([[had], [had]]))
        backend.backward(backend.call(lambda view: backend.sum(view * 3), view), inputs=[view])
        trace.expect_value("gradient of a view", [[3.0 + (had or 0.0)]] * 2, backend.grad_of(view))

        for asked in ([0, 1, 2], [2, 1, 0], [1], [2]):
            x = backend.tensor([1.0, 2.0, 3.0], requires_grad=True)
            outputs = backend.call(lambda x, make=make: backend.split(make(x), 1), x)
            for nr in asked:
                backend.set_grad(outputs[nr], had and backend.tensor([had]))
            root = backend.call(lambda a, b, c: backend.sum(a * 3 + b * 7 + c * 9), *outputs)
            backend.backward(root, inputs=[outputs[nr] for nr in asked])
            gradients = [[weight + (had or 0.0)] for weight in (3.0, 7.0, 9.0)]
            expected = [gradient if nr in asked else None for nr, gradient in enumerate(gradients)]
            trace.expect_value(f"gradients of outputs {asked}", expected, [*map(backend.grad_of, outputs)])


def combined(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of some options."""
    for chosen in product((False, True), repeat=len(options)):
        yield dict(compress(options.items(), chosen))


@rule(
    "backward.options",
    level=Level.MUST,
    sources=[METHOD.sentence(4, 14, 17, 19, 20)],
    needs=[
        Capability.SEED_GRADIENT,
        Capability.RETAIN_GRAPH,
        Capability.BACKWARD_CREATE_GRAPH,
        Capability.BACKWARD_INPUTS,
    ],
    mutants=[
        "backward-gradient-ignored-beside-inputs",
        "backward-create-graph-ignored-beside-retain-graph",
        "backward-inputs-option-ignored-beside-gradient",
        "backward-that-creates-a-graph-takes-other-leaves-too",
    ],
)
def test_options_of_backward(backend: Backend, trace: Trace) -> None:
    """Each of gradient, retain_graph, create_graph and inputs counts in a backward, whichever others are given."""
    x, other = leaves = [leaf(backend), leaf(backend)]
    options = {"gradient": backend.tensor([3.0, 5.0]), "retain_graph": True, "create_graph": True, "inputs": [x]}
    for how in combined(options):
        first, second = (3.0, 5.0) if "gradient" in how else (1.0, 1.0)
        total = (lambda y: y) if "gradient" in how else backend.sum
        root = backend.call(lambda x, other, total=total: total(x * x + other), x, other)
        expected = [[2 * first, 4 * second], None if "inputs" in how else [first, second]]
        label = f"with {', '.join(how)}"
        for _ in range(2 if "retain_graph" in how else 1):
            reset(backend, leaves)
            with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
                backend.backward(root, **how)
            grad = backend.grad_of(x)
            trace.expect_value(f"gradients {label}", expected, [grad, backend.grad_of(other)])
            trace.expect_value(f"requires grad {label}", "create_graph" in how, backend.requires_grad(grad))
        reset(backend, leaves)  # also breaks the cycle
        if "create_graph" in how:
            backend.backward(backend.sum(grad))
            trace.expect_value(f"second derivative {label}", [2 * first, 2 * second], backend.grad_of(x))


def reset(backend: Backend, leaves: Sequence[Any]) -> None:
    """Set the .grad of leaves to None."""
    for each in leaves:
        backend.set_grad(each, None)


def combines(backend: Backend, trace: Trace, options: Mapping[str, Any], **always: Any) -> None:
    """Expect each option of autograd.grad to count in every combination of them, beside those that are given always."""
    leaves = [leaf(backend), leaf(backend)]
    for chosen in combined(options):
        how = always | chosen
        first, second = (3.0, 5.0) if "grad_outputs" in how else (1.0, 1.0)
        gradient = [2 * first, 4 * second]
        expected: list[Any] = [[[gradient[0], 0.0], [0.0, gradient[1]]] if "is_grads_batched" in how else gradient]
        if "allow_unused" in how or "materialize_grads" in how:
            expected.append([0.0, 0.0] if "materialize_grads" in how else None)
        total = (lambda y: y) if "grad_outputs" in how else backend.sum
        output = backend.call(lambda x, total=total: total(x * x), leaves[0])
        label = f"with {', '.join(how)}"
        for _ in range(2 if "retain_graph" in how else 1):
            grads = backend.grad(output, leaves[: len(expected)], **how)
            trace.expect_value(f"gradients {label}", expected, grads)
            trace.expect_value(f"requires grad {label}", "create_graph" in how, backend.requires_grad(grads[0]))
        if "create_graph" in how:
            derivatives = backend.grad(backend.sum(grads[0]), leaves[:1])
            trace.expect_value(f"second derivative {label}", [[2 * first, 2 * second]], derivatives)
        trace.expect_value(f".grad {label}", [None, None], [*map(backend.grad_of, leaves)])


OF_GRAD = [Capability.AUTOGRAD_GRAD, Capability.SEED_GRADIENT, Capability.RETAIN_GRAPH, Capability.CREATE_GRAPH]
FLAGS = {"retain_graph": True, "create_graph": True, "allow_unused": True}


@rule(
    "grad.options",
    level=Level.MUST,
    sources=[GRAD.sentence(2, 8, 15, 18, 20)],
    needs=OF_GRAD,
    mutants=[
        "grad-retain-graph-ignored-beside-allow-unused",
        "grad-create-graph-ignored-beside-allow-unused",
        "grad-allow-unused-ignored-beside-create-graph",
        "grad-grad-outputs-ignored-beside-allow-unused",
    ],
)
def test_options_of_grad(backend: Backend, trace: Trace) -> None:
    """Each of grad_outputs, retain_graph, create_graph and allow_unused counts in autograd.grad, whichever others do.

    None of them makes it accumulate anything.
    """
    combines(backend, trace, {"grad_outputs": backend.tensor([3.0, 5.0]), **FLAGS})


@rule(
    "grad.options.materialize-grads",
    level=Level.MUST,
    sources=[GRAD.sentence(2, 8, 15, 18, 29)],
    needs=[*OF_GRAD, Capability.MATERIALIZE_GRADS],
    mutants=[
        "grad-retain-graph-ignored-beside-materialize-grads",
        "grad-create-graph-ignored-beside-materialize-grads",
        "grad-grad-outputs-ignored-beside-materialize-grads",
        "grad-materialize-grads-ignored-beside-create-graph",
        "grad-materialize-grads-ignored-beside-retain-graph",
    ],
)
def test_options_beside_materialize_grads(backend: Backend, trace: Trace) -> None:
    """materialize_grads=True and each other option count in autograd.grad, whichever are given with it.

    None of them makes it accumulate anything.
    """
    combines(backend, trace, {"grad_outputs": backend.tensor([3.0, 5.0]), **FLAGS}, materialize_grads=True)


@rule(
    "grad.options.is-grads-batched",
    level=Level.MUST,
    sources=[GRAD.sentence(8, 15, 18, 20, 22, 23)],
    needs=[*OF_GRAD, Capability.BATCHED_GRADIENTS],
    mutants=[
        "grad-retain-graph-ignored-beside-is-grads-batched",
        "grad-create-graph-ignored-beside-is-grads-batched",
        "grad-allow-unused-ignored-beside-is-grads-batched",
        "grad-is-grads-batched-ignored-beside-create-graph",
        "autograd-grad-of-a-batch-accumulates",
    ],
)
def test_options_beside_batches(backend: Backend, trace: Trace) -> None:
    """is_grads_batched=True, retain_graph, create_graph and allow_unused each count in autograd.grad beside the others.

    None of them makes it accumulate anything.
    """
    batch = backend.tensor([[3.0, 0.0], [0.0, 5.0]])
    combines(backend, trace, FLAGS, grad_outputs=batch, is_grads_batched=True)
