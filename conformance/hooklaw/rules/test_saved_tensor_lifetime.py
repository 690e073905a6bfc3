"""The lifetime of saved tensors and packed objects."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, notes, page, rule, tutorial
from hooklaw.rules.hooks import NUMBERS
from hooklaw.rules.lifetimes import kinds_of_node, without_collector

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
SECTION = notes("autograd", "hooks-for-saved-tensors")
DEFAULT_HOOKS = notes("autograd", "registering-default-hooks-for-saved-tensors")
TUTORIAL = tutorial("intermediate/autograd_saved_tensors_hooks_tutorial")
SAVED = notes("autograd", "saved-tensors")


class Packed:
    """A packed object whose deletion is logged."""

    def __init__(self, trace: Trace, tensor: object) -> None:
        self.tensor = tensor
        weakref.finalize(self, trace.log, "released").atexit = False


@rule(
    "saved-tensor.identity.no-cycle",
    level=Level.MUST,
    sources=[SAVED.sentence(10)],
    needs=[Capability.WEAK_REFERENCES],
    mutants=["saved-output-is-itself", "saved-output-keeps-itself"],
    except_under={"packed": "the law is of tensors that no hook packs"},
)
def test_no_cycle(backend: Backend, trace: Trace) -> None:
    """An output that its own operation saved is freed with the last reference to it, without the garbage collector."""
    x = backend.tensor([0.0], requires_grad=True)
    with without_collector():
        y = backend.call(backend.exp, x)
        alive = weakref.ref(y)
        del y

        trace.expect_value("is freed", expected=True, observed=alive() is None)


@rule(
    "saved-tensor.cycle.identity-pack",
    level=Level.MUST,
    sources=[HOOKS.sentence(15, 16), DEFAULT_HOOKS.sentence(6), page("autograd", "autograd-graph").sentence(9)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.WEAK_REFERENCES],
    mutants=["packed-tensor-keeps-the-saved-one"],
)
def test_detach_makes_no_cycle(backend: Backend, trace: Trace) -> None:
    """An output that a pack hook packed as a detached tensor is freed with its last reference.

    The notes say that detaching breaks the cycle that the identity as a pack hook would make.
    """

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed):
            return backend.exp(x)

    x = backend.tensor([0.0], requires_grad=True)
    with without_collector():
        y = backend.call(forward, x)
        alive = weakref.ref(y)
        del y

        trace.expect_value("is freed", expected=True, observed=alive() is None)


@rule(
    "saved-tensor.cycle.fresh-tensor",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(8), HOOKS.sentence(4), TUTORIAL.sentence(27)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.WEAK_REFERENCES],
    mutants=["packed-tensor-keeps-the-saved-one", "computed-pack-results-keep-the-saved-tensor"],
)
def test_fresh_tensor_makes_no_cycle(backend: Backend, trace: Trace) -> None:
    """A saved tensor, input or output, is not kept alive if the pack hook returns a tensor that it computed."""

    def forward(x):
        with backend.saved_tensors_hooks(lambda t: t * 1, lambda packed: packed):
            y = backend.exp(x)
            return backend.exp(y * y), y

    x = backend.tensor([0.0], requires_grad=True)
    with without_collector():
        z, y = backend.call(forward, x)
        alive = [weakref.ref(y), weakref.ref(z)]
        del y
        trace.expect_value("the intermediate is freed", expected=True, observed=alive[0]() is None)
        del z
        trace.expect_value("the output is freed", expected=True, observed=alive[1]() is None)


@rule(
    "saved-tensor.cycle.custom-function",
    level=Level.MUST,
    sources=[HOOKS.sentence(15, 16), DEFAULT_HOOKS.sentence(6, 8), HOOKS.sentence(4)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.WEAK_REFERENCES, Capability.CUSTOM_FUNCTION],
    mutants=["saved-output-of-a-function-kept-by-its-context-under-hooks"],
)
def test_function_makes_no_cycle(backend: Backend, trace: Trace) -> None:
    """An output that a custom Function saved is freed with its last reference if pack detached or computed a tensor."""

    def save(ctx, x):
        y = backend.exp(x)
        ctx.save_for_backward(x, y)
        return y

    function = backend.custom_function(save, lambda ctx, grad: grad * ctx.saved_tensors[1])

    def forward(x, pack):
        with backend.saved_tensors_hooks(pack, lambda packed: packed):
            return function(x)

    x = backend.tensor([0.0], requires_grad=True)
    for label, pack in (("detached", backend.detach), ("computed", lambda t: t * 1)):
        with without_collector():
            y = backend.call(lambda x, pack=pack: forward(x, pack), x)
            alive = weakref.ref(y)
            del y

            trace.expect_value(f"is freed, {label}", expected=True, observed=alive() is None)


@rule(
    "saved-tensor.cycle.identity-pack.leak",
    level=Level.MAY,
    sources=[HOOKS.sentence(15), DEFAULT_HOOKS.sentence(3, 5)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.WEAK_REFERENCES],
    mutants=["identity-pack-makes-no-cycle"],
)
def test_identity_makes_a_cycle(backend: Backend, trace: Trace) -> None:
    """A pack hook that returns its input may keep an output and its graph alive without any reference left."""

    def forward(x):
        with backend.saved_tensors_hooks(lambda t: t, lambda packed: packed):
            return backend.exp(x)

    x = backend.tensor([0.0], requires_grad=True)
    with without_collector():
        y = backend.call(forward, x)
        alive = weakref.ref(y)
        del y
        y = alive()

        trace.expect_value("is freed", expected=False, observed=y is None)
    backend.backward(backend.sum(y))


@rule(
    "saved-tensor.cycle.identity-pack.gradients",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(4)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["live-packed-tensors-doubled"],
)
def test_identity_is_right(backend: Backend, trace: Trace) -> None:
    """A pack hook that returns its input, be it a leaf, an intermediate or an output, changes no gradient."""

    def forward(x):
        with backend.saved_tensors_hooks(lambda t: t, lambda packed: packed):
            y = x * x
            return backend.sum(backend.exp(y) * y)

    x = backend.tensor([0.0, 1.0], requires_grad=True)
    plain = backend.tensor([0.0, 1.0], requires_grad=True)
    backend.backward(backend.call(forward, x))
    backend.backward(backend.call(lambda x: backend.sum(backend.exp(x * x) * (x * x)), plain))

    trace.expect_value("x.grad", backend.grad_of(plain), backend.grad_of(x))


@rule(
    "saved-tensor.cycle.broken-by-backward",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(5)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.WEAK_REFERENCES, Capability.GRAPH_FREEING],
    mutants=["backward-retains"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_backward_breaks_the_cycle(backend: Backend, trace: Trace) -> None:
    """Backward without retain_graph breaks the cycle that a pack hook made by returning its input."""

    def forward(x):
        with backend.saved_tensors_hooks(lambda t: t, lambda packed: packed):
            y = backend.exp(x)
        return backend.sum(y), y

    x = backend.tensor([0.0], requires_grad=True)
    with without_collector():
        loss, y = backend.call(forward, x)
        backend.backward(loss)
        alive = weakref.ref(y)
        del loss, y

        trace.expect_value("is freed", expected=True, observed=alive() is None)


@rule(
    "saved-tensor.cycle.broken-by-backward.retained",
    level=Level.MAY,
    sources=[DEFAULT_HOOKS.sentence(5)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.RETAIN_GRAPH, Capability.WEAK_REFERENCES],
    mutants=["backward-frees"],
)
def test_retaining_backward_keeps_the_cycle(backend: Backend, trace: Trace) -> None:
    """Backward with retain_graph may keep the cycle that a pack hook made by returning its input."""

    def forward(x):
        with backend.saved_tensors_hooks(lambda t: t, lambda packed: packed):
            y = backend.exp(x)
        return backend.sum(y), y

    x = backend.tensor([0.0], requires_grad=True)
    with without_collector():
        loss, y = backend.call(forward, x)
        backend.backward(loss, retain_graph=True)
        alive = weakref.ref(y)
        del loss, y
        y = alive()

        trace.expect_value("is freed", expected=False, observed=y is None)
    backend.backward(backend.sum(y))


@rule(
    "saved-tensor.release.after-backward",
    level=Level.MUST,
    sources=[SECTION.sentence(8), TUTORIAL.sentence(51, 52)],
    needs=[
        Capability.SAVED_TENSOR_HOOKS,
        Capability.RETAIN_GRAPH,
        Capability.WEAK_REFERENCES,
        Capability.GRAPH_FREEING,
    ],
    mutants=["unpacked-during-forward", "backward-retains", "backward-frees", "packed-objects-kept-after-release"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_released_by_backward(backend: Backend, trace: Trace) -> None:
    """A packed object lives until a backward without retain_graph has used it, and no longer."""
    lives_until(backend, trace, lambda loss, _, **how: backend.backward(loss, **how))


@rule(
    "saved-tensor.release.after-grad",
    level=Level.MUST,
    sources=[SECTION.sentence(8), docstring("torch.autograd.grad").sentence(15)],
    needs=[
        Capability.SAVED_TENSOR_HOOKS,
        Capability.AUTOGRAD_GRAD,
        Capability.RETAIN_GRAPH,
        Capability.WEAK_REFERENCES,
        Capability.GRAPH_FREEING,
    ],
    mutants=["packed-objects-outlive-autograd-grad"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_released_by_grad(backend: Backend, trace: Trace) -> None:
    """A packed object lives until an autograd.grad without retain_graph has used it, and no longer."""
    lives_until(backend, trace, backend.grad)


def lives_until(backend: Backend, trace: Trace, run_pass: Callable[..., Any]) -> None:
    """Expect what operations have packed to live until ``run_pass(loss, leaves)``, and longer with retain_graph."""

    def run(operation, count):
        def forward(a, b):
            with backend.saved_tensors_hooks(
                lambda t: Packed(trace, backend.detach(t)),
                lambda packed: trace.log("unpack") or packed.tensor,
            ):
                y = operation(a, b)
            return backend.sum(y)  # outside: a sum may save its input

        leaves, unpacked = [backend.tensor([0.0], requires_grad=True) for _ in range(2)], ["unpack"] * count
        loss = backend.call(forward, *leaves)
        trace.log("forward done")
        run_pass(loss, leaves[:count], retain_graph=True)
        trace.log("retaining backward done")
        trace.expect("forward done", *unpacked, "retaining backward done")

        run_pass(loss, leaves[:count])
        trace.expect_in_any_order(*unpacked, *["released"] * count)

    for operation, count in ((lambda a, _: backend.exp(a), 1), (lambda a, b: a * b, 2)):
        with without_collector():
            run(operation, count)


@rule(
    "saved-tensor.release.graph-dropped",
    level=Level.MUST,
    sources=[SECTION.sentence(8), TUTORIAL.sentence(51)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.WEAK_REFERENCES],
    mutants=[
        "unpacked-during-forward",
        "packed-objects-outlive-the-graph",
        "packed-objects-of-later-pairs-outlive-the-graph",
        "later-packed-objects-of-a-pair-outlive-the-graph",
        "packed-scalars-outlive-the-graph",
    ],
)
def test_released_with_the_graph(backend: Backend, trace: Trace) -> None:
    """A packed object is deleted with its graph if no backward runs."""

    def run(operation, numbers):
        packs = list[None]()

        def pack(tensor):
            packs.append(None)
            return Packed(trace, backend.detach(tensor))

        def forward(a, b):
            with backend.saved_tensors_hooks(pack, lambda packed: packed.tensor):
                return operation(a, b)

        leaves = [backend.tensor(numbers, requires_grad=True) for _ in range(2)]
        y = backend.call(forward, *leaves)
        trace.log("forward done")
        del y
        return len(packs)

    for numbers in (*NUMBERS, [0.0]):
        for operation in (
            lambda a, _: backend.exp(a),
            lambda a, b: a * b,
            lambda a, _: backend.exp(backend.exp(backend.exp(a))),
        ):
            with without_collector():
                count = run(operation, numbers)

                trace.expect("forward done", *["released"] * count)
                trace.expect_value("is packed", expected=True, observed=count > 0)


@rule(
    "saved-tensor.release.nested",
    level=Level.MUST,
    sources=[SECTION.sentence(8), TUTORIAL.sentence(51, 52)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.WEAK_REFERENCES, Capability.GRAPH_FREEING],
    mutants=[
        "packed-objects-of-inner-pairs-outlive-the-graph",
        "packed-objects-after-an-inner-pair-outlive-the-graph",
    ],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_nested_pairs(backend: Backend, trace: Trace) -> None:
    """What nested pairs of hooks packed is released with the graph, or by a backward that does not retain it."""

    def nested(x, pair):
        with pair():
            y = backend.exp(x)
            with pair():
                y = backend.exp(y)
                with pair():
                    y = backend.exp(y)
            y = backend.exp(y)
        return backend.sum(y)

    def forward(x, _, pair):
        return backend.call(lambda x: nested(x, pair), x)

    releases(backend, trace, forward)


@rule(
    "saved-tensor.release.constants",
    level=Level.MUST,
    sources=[SECTION.sentence(8), TUTORIAL.sentence(51, 52)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.WEAK_REFERENCES, Capability.GRAPH_FREEING],
    mutants=["packed-constants-outlive-the-graph"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_constants(backend: Backend, trace: Trace) -> None:
    """What was packed of a tensor that does not require grad is released like what was packed of any other."""

    def forward(x, constant, pair):
        with pair():
            y = backend.call(lambda x, constant: x * constant, x, constant)
        return backend.sum(y)

    releases(backend, trace, forward)


@rule(
    "saved-tensor.release.custom-function",
    level=Level.MUST,
    sources=[SECTION.sentence(8), TUTORIAL.sentence(51, 52)],
    needs=[
        Capability.SAVED_TENSOR_HOOKS,
        Capability.WEAK_REFERENCES,
        Capability.GRAPH_FREEING,
        Capability.CUSTOM_FUNCTION,
    ],
    mutants=["packed-for-a-function-released-by-its-backward-alone"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_of_custom_function(backend: Backend, trace: Trace) -> None:
    """What was packed for a custom Function is released with the graph, or by a backward that does not retain it."""

    def save(ctx, x):
        output = x * x
        ctx.save_for_backward(x, output, x * 5)
        return output

    function = backend.custom_function(save, lambda ctx, grad: grad * ctx.saved_tensors[0] * 2)

    def forward(x, _, pair):
        with pair():
            y = backend.call(function, x)
        return backend.sum(y)

    releases(backend, trace, forward)


def releases(backend: Backend, trace: Trace, forward: Callable[..., Any]) -> None:
    """Expect all that a forward packs to be released, by a backward and without one."""

    def pack(tensor):
        packs.append(None)
        return Packed(trace, backend.detach(tensor))

    def run(runs_backward):
        x, constant = backend.tensor([0.0], requires_grad=True), backend.tensor([3.0])
        loss = forward(x, constant, lambda: backend.saved_tensors_hooks(pack, lambda packed: packed.tensor))
        trace.log("forward done")
        if runs_backward:
            backend.backward(loss)
        else:
            del loss
        trace.expect("forward done", *["released"] * len(packs))

    for runs_backward in (True, False, True):
        packs = list[None]()
        with without_collector():
            run(runs_backward)
        trace.expect_value("is packed", expected=True, observed=bool(packs))


@rule(
    "custom-function.saved-cleared-on-completion",
    level=Level.MUST,
    sources=[notes("extending", "how-to-use").sentence(29)],
    needs=[
        Capability.CUSTOM_FUNCTION,
        Capability.SAVED_TENSOR_HOOKS,
        Capability.TENSOR_HOOKS,
        Capability.WEAK_REFERENCES,
        Capability.GRAPH_FREEING,
    ],
    mutants=[
        "saved-tensors-released-at-the-end-of-the-pass",
        "later-saved-tensors-of-functions-released-late",
        "saved-outputs-of-functions-released-late",
        "packed-objects-outlive-the-graph",
        "saved-tensors-of-functions-released-late-without-hooks",
    ],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_custom_function(backend: Backend, trace: Trace) -> None:
    """A custom Function's saved tensors are freed after its backward, before anything upstream is executed.

    So it is with saved-tensor hooks and without.
    """
    alive = list[Any]()

    def square(ctx, x):
        output, other = x * x, x * 5
        ctx.save_for_backward(x, x, output, other)
        alive.append(weakref.ref(other))
        return output

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("upstream"))
        with backend.saved_tensors_hooks(lambda t: Packed(trace, t), lambda packed: packed.tensor):
            z = function(y)
        return backend.sum(z)

    function = backend.custom_function(square, lambda ctx, grad: grad * ctx.saved_tensors[0] * 2)
    loss = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))
    with without_collector():
        backend.backward(loss)

    trace.expect(*["released"] * 4, "upstream")

    def without_hooks(x):
        y = x * 2
        backend.register_hook(y, lambda _: trace.log("freed", alive[-1]() is None))
        return backend.sum(function(y))

    loss = backend.call(without_hooks, backend.tensor([1.0, 2.0], requires_grad=True))
    trace.expect_value("is alive", expected=True, observed=alive[-1]() is not None)
    with without_collector():
        backend.backward(loss)

    trace.expect(("freed", True))


@rule(
    "saved-tensor.lifetime.graph-dropped",
    level=Level.MUST,
    sources=[SAVED.sentence(10), TUTORIAL.sentence(11, 17, 51)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.WEAK_REFERENCES],
    mutants=["saved-tensors-outlive-the-graph", "saved-constants-outlive-the-graph"],
)
def test_without_hooks(backend: Backend, trace: Trace) -> None:
    """Without hooks, a saved tensor that only its graph refers to is freed with the graph.

    The tutorial says that saved data is deleted when it is no longer needed; without its graph nothing needs it.
    """
    for kind, make in savings(backend).items():
        with without_collector():
            _, saved, z = make()
            alive = weakref.ref(saved)
            del saved, z

            trace.expect_value(f"is freed, {kind}", expected=True, observed=alive() is None)


def savings(backend: Backend) -> dict[str, Callable[[], tuple[Any, Any, Any]]]:
    """Return functions that save a tensor: they return a leaf, the tensor, and what was computed of both."""

    def intermediate(compute: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        y = backend.call(lambda x: x * 2, x)
        return x, y, backend.call(compute, y)

    def constant() -> tuple[Any, Any, Any]:
        x, factor = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 5.0])
        return x, factor, backend.call(lambda x, factor: x * factor, x, factor)

    kinds = {kind: partial(intermediate, compute) for kind, compute in kinds_of_node(backend).items()}
    return {**kinds, "constant": constant}


@rule(
    "saved-tensor.lifetime.after-backward",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.backward").sentence(14), TUTORIAL.sentence(51)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.RETAIN_GRAPH, Capability.WEAK_REFERENCES, Capability.GRAPH_FREEING],
    mutants=["saved-tensors-outlive-the-graph", "saved-tensors-of-functions-outlive-the-graph", "backward-retains"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_without_hooks_backward(backend: Backend, trace: Trace) -> None:
    """Without hooks, a saved tensor that only its graph refers to is freed by a backward that does not retain it."""
    freed_by(backend, trace, lambda loss, _, **how: backend.backward(loss, **how))


@rule(
    "saved-tensor.lifetime.after-grad",
    level=Level.MUST,
    sources=[docstring("torch.autograd.grad").sentence(15), TUTORIAL.sentence(51)],
    needs=[
        Capability.CUSTOM_FUNCTION,
        Capability.AUTOGRAD_GRAD,
        Capability.RETAIN_GRAPH,
        Capability.WEAK_REFERENCES,
        Capability.GRAPH_FREEING,
    ],
    mutants=["saved-tensors-of-functions-outlive-autograd-grad"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_without_hooks_grad(backend: Backend, trace: Trace) -> None:
    """Without hooks, a saved tensor that only its graph refers to is freed by autograd.grad without retain_graph."""
    freed_by(backend, trace, lambda loss, x, **how: backend.grad(loss, [x], **how))


def freed_by(backend: Backend, trace: Trace, run_pass: Callable[..., Any]) -> None:
    """Expect saved tensors to be freed by ``run_pass(loss, leaf)`` after one with retain_graph."""
    for kind, make in savings(backend).items():
        with without_collector():
            x, saved, z = make()
            alive = weakref.ref(saved)
            loss = backend.sum(z)
            del saved
            run_pass(loss, x, retain_graph=True)
            run_pass(loss, x)

            trace.expect_value(f"is freed, {kind}", expected=True, observed=alive() is None)
