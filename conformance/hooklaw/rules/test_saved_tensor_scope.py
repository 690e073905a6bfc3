"""The scope of saved-tensor hooks: contexts, nesting and exceptions."""

from contextlib import AbstractContextManager, nullcontext, suppress
from warnings import catch_warnings

from hooklaw import Backend, Capability, Level, Trace, docstring, notes, rule
from hooklaw.rules.lifetimes import kinds_of_node

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
DEFAULT_HOOKS = notes("autograd", "registering-default-hooks-for-saved-tensors")


class LeavingError(Exception):
    """An exception that leaves a context."""


def pair(backend: Backend, trace: Trace, name: str) -> AbstractContextManager[object]:
    """Return a context whose pair logs ``pack NAME`` and ``unpack NAME``."""
    return backend.saved_tensors_hooks(
        trace.saw(f"pack {name}", backend.detach),
        trace.saw(f"unpack {name}", lambda packed: packed),
    )


@rule(
    "saved-tensor.scope.context",
    level=Level.MUST,
    sources=[HOOKS.sentence(3, 5), DEFAULT_HOOKS.sentence(1)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["saved-tensors-hooks-lasts", "hooks-dropped-at-context-exit"],
)
def test_context(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks apply to tensors saved inside their context, and unpack them also after its end."""

    def forward(x):
        before = backend.exp(x)
        with pair(backend, trace, "inside"):
            inside = backend.exp(before * 2)
        return backend.sum(backend.exp(inside * 3))

    x = backend.tensor([0.0], requires_grad=True)
    loss = backend.call(forward, x)
    trace.expect("pack inside")

    backend.backward(loss)
    trace.expect("unpack inside")


@rule(
    "saved-tensor.unpack.own-pair",
    level=Level.MUST,
    sources=[HOOKS.sentence(6)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["pair-of-the-reader-unpacks"],
)
def test_own_pair(backend: Backend, trace: Trace) -> None:
    """A saved tensor is unpacked by the pair that packed it, whichever pair is active when it is read."""

    def forward(x):
        with pair(backend, trace, "saved"):
            y = backend.exp(x)
        return backend.sum(y)  # outside: a sum may save its input

    loss = backend.call(forward, backend.tensor([0.0], requires_grad=True))
    with pair(backend, trace, "read"):
        backend.backward(loss)

    trace.expect("pack saved", "unpack saved")


@rule(
    "saved-tensor.scope.exception",
    level=Level.MUST,
    sources=[HOOKS.sentence(1, 3)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=[
        "saved-tensors-hooks-lasts-after-an-error",
        "exception-leaves-a-mode-behind",
        "hooks-outlive-an-exception-of-pack",
        "exception-of-pack-leaves-grad-mode-off",
        "exception-of-unpack-leaves-grad-mode-off",
    ],
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks no longer apply after an exception has left their context."""
    x = backend.tensor([0.0], requires_grad=True)

    def fail(_tensor):
        raise LeavingError

    def from_inside():
        with pair(backend, trace, "left"):
            raise LeavingError

    def from_pack():
        with backend.saved_tensors_hooks(fail, fail):
            backend.call(backend.exp, x)

    def from_unpack():
        with backend.saved_tensors_hooks(backend.detach, fail):
            backend.backward(backend.call(backend.exp, x))

    for leave in (from_inside, from_pack, from_unpack):
        with suppress(Exception):  # from a hook it may come as another exception
            leave()
        backend.backward(backend.call(lambda x: backend.sum(backend.exp(x)), x))

        trace.expect()


@rule(
    "saved-tensor.nesting.innermost",
    level=Level.MUST,
    sources=[HOOKS.sentence(13, 14)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=[
        "outermost-pair-wins",
        "nested-pairs-composed",
        "nesting-is-an-error",
        "pairs-inside-two-others-ignored",
    ],
)
def test_innermost(backend: Backend, trace: Trace) -> None:
    """If pairs of saved-tensor hooks are nested, only the innermost pair applies.

    The docstring's "Only one pair of hooks is allowed at a time" is explained by its next sentence, which is this law.
    """

    def forward(x):
        with pair(backend, trace, "outer"), pair(backend, trace, "inner"):
            y = backend.exp(x)
            with pair(backend, trace, "innermost"):
                z = backend.exp(y)
        return backend.sum(z)

    backend.backward(backend.call(forward, backend.tensor([0.0], requires_grad=True)))

    trace.expect("pack inner", "pack innermost", "unpack innermost", "unpack inner")


@rule(
    "saved-tensor.nesting.restored",
    level=Level.MUST,
    sources=[HOOKS.sentence(3, 14)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["saved-tensors-hooks-ends-the-outer", "outer-pair-lost-after-a-failing-inner"],
)
def test_restored(backend: Backend, trace: Trace) -> None:
    """After the inner of two nested contexts of saved-tensor hooks, the outer pair applies again."""

    def forward(x):
        with pair(backend, trace, "outer"):
            with pair(backend, trace, "inner"):
                y = backend.exp(x)
            made = [backend.exp(y)]
            with suppress(LeavingError), pair(backend, trace, "inner"):
                with suppress(LeavingError), pair(backend, trace, "innermost"):
                    raise LeavingError
                made.append(backend.exp(made[0]))
                raise LeavingError
            square = made[-1] * made[-1]
        return backend.sum(square)

    backend.backward(backend.call(forward, backend.tensor([0.0], requires_grad=True)))

    packed = ["pack inner", "pack outer", "pack inner", "pack outer", "pack outer"]
    trace.expect(*packed, *[f"un{label}" for label in reversed(packed)])


@rule(
    "saved-tensor.create-graph.inner-saves",
    level=Level.MUST,
    sources=[HOOKS.sentence(3)],
    needs=[
        Capability.SAVED_TENSOR_HOOKS,
        Capability.AUTOGRAD_GRAD,
        Capability.RETAIN_GRAPH,
        Capability.CREATE_GRAPH,
    ],
    mutants=[
        "hooks-inherited-from-the-forward-pass",
        "hooks-ignored-during-backward",
        "only-the-first-save-of-autograd-grad-packed",
        "pairs-ignored-in-later-passes-that-create-a-graph",
    ],
)
def test_saves_of_backward(backend: Backend, trace: Trace) -> None:
    """What a backward with create_graph saves is packed by the pair active around it, if any, not by forward's pair."""

    def forward(x, y):
        with pair(backend, trace, "forward"):
            return backend.sum(x * x * x + y * y * y)

    leaves = [backend.tensor([number], requires_grad=True) for number in (2.0, 3.0)]
    loss = backend.call(forward, *leaves)
    packed = trace.count("pack forward")

    backend.grad(loss, leaves, retain_graph=True, create_graph=True)
    trace.expect_value("packed by forward's pair", packed, trace.count("pack forward"))

    for each in ("first", "second", "third"):
        with pair(backend, trace, each):
            firsts = backend.grad(loss, leaves, retain_graph=True, create_graph=True)
        trace.expect_value("packed by forward's pair", packed, trace.count("pack forward"))
        said, found = f"{each}: both packed by backward's pair", trace.count(f"pack {each}")
        trace.expect_value(said, expected=True, observed=found > 1)
        trace.expect_value("first derivatives", [[12.0], [27.0]], firsts)

        seconds = backend.grad(backend.sum(firsts[0] + firsts[1]), leaves, retain_graph=True)
        said, found = f"{each}: both unpacked by backward's pair", trace.count(f"unpack {each}")
        trace.expect_value(said, expected=True, observed=found > 1)
        trace.expect_value("second derivatives", [[12.0], [18.0]], seconds)


@rule(
    "saved-tensor.create-graph.inner-saves.accumulated",
    level=Level.MUST,
    sources=[HOOKS.sentence(3)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.BACKWARD_CREATE_GRAPH],
    mutants=[
        "hooks-ignored-during-backward-itself",
        "backward-itself-packs-as-forward-did",
        "only-the-first-save-of-backward-itself-packed",
    ],
)
def test_saves_of_accumulating_backward(backend: Backend, trace: Trace) -> None:
    """What is saved by a backward with create_graph that accumulates into .grad is packed by the pair active around it.

    A pair that was active in forward alone packs none of it.
    """

    def forward(x, y):
        with pair(backend, trace, "forward"):
            return backend.sum(x * x * x + y * y * y)

    def passed(around):
        """Return what a backward in this context gives two leaves, and the leaves."""
        leaves = [backend.tensor([number], requires_grad=True) for number in (2.0, 3.0)]
        loss = backend.call(forward, *leaves)
        packed = trace.count("pack forward")
        with around, catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
            backend.backward(loss, create_graph=True)
        firsts = [backend.grad_of(leaf) for leaf in leaves]
        for leaf in leaves:
            backend.set_grad(leaf, None)
        trace.expect_value("packed by forward's pair", packed, trace.count("pack forward"))
        trace.expect_value("first derivatives", [[12.0], [27.0]], firsts)
        return firsts, leaves

    passed(nullcontext())
    firsts, leaves = passed(pair(backend, trace, "backward"))
    trace.expect_value("both packed by backward's pair", expected=True, observed=trace.count("pack backward") > 1)

    backend.backward(backend.sum(firsts[0] + firsts[1]))
    trace.expect_value("both unpacked by backward's pair", expected=True, observed=trace.count("unpack backward") > 1)
    trace.expect_value("second derivatives", [[12.0], [18.0]], [backend.grad_of(leaf) for leaf in leaves])


@rule(
    "saved-tensor.create-graph.inner-saves.custom-function",
    level=Level.MUST,
    sources=[HOOKS.sentence(3)],
    needs=[
        Capability.SAVED_TENSOR_HOOKS,
        Capability.AUTOGRAD_GRAD,
        Capability.CREATE_GRAPH,
        Capability.CUSTOM_FUNCTION,
    ],
    mutants=["hooks-ignored-in-the-backward-of-functions"],
)
def test_saves_of_function_backward(backend: Backend, trace: Trace) -> None:
    """What a custom Function's backward computes with create_graph is packed by the pair active around the pass."""
    function, x = kinds_of_node(backend)["custom Function"], backend.tensor([3.0], requires_grad=True)
    root = backend.call(lambda x: backend.sum(function(x)), x)
    with pair(backend, trace, "around"):
        (first,) = backend.grad(root, [x], create_graph=True)
    trace.expect_value("is packed", expected=True, observed=trace.count("pack around") > 0)
    trace.expect_value("first derivative", [6.0], first)

    (second,) = backend.grad(backend.sum(first), [x])
    trace.expect_value("is unpacked", expected=True, observed=trace.count("unpack around") > 0)
    trace.expect_value("second derivative", [2.0], second)
