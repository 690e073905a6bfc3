"""Post-accumulate-grad hooks of a leaf: when they run, their argument, and what they may do."""

from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, page, rule
from hooklaw.rules.hooks import NUMBERS, POST_ACCUMULATE, gets_each_value

HOOK = docstring("torch.Tensor.register_post_accumulate_grad_hook")
EXECUTION = notes("autograd", "backward-hooks-execution")
FIRED = notes("autograd", "whether-a-particular-hook-will-be-fired")
ORDER = notes("autograd", "the-order-in-which-the-different-hooks-are-fired")


@rule(
    "post-acc.after-accumulate",
    level=Level.MUST,
    sources=[HOOK.sentence(2), FIRED.sentence(4)],
    needs=[Capability.POST_ACCUMULATE],
    mutants=["post-accumulate-before-accumulation", "post-accumulate-skipped-for-a-root"],
)
def test_after_accumulation(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook runs when the leaf's .grad is the old value plus the gradient of this pass.

    Unless an earlier hook of the leaf changed it.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_post_accumulate_grad_hook(x, lambda _: trace.log("post-accumulate", backend.grad_of(x)))

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    backend.backward(backend.call(lambda x: backend.sum(x * 3), x))

    trace.expect(("post-accumulate", [2.0, 2.0]), ("post-accumulate", [5.0, 5.0]))

    root = backend.tensor(5.0, requires_grad=True)
    backend.register_post_accumulate_grad_hook(root, lambda _: trace.log("of a root", backend.grad_of(root)))
    backend.backward(root)

    trace.expect(("of a root", 1.0))

    gets_each_value(backend, trace, POST_ACCUMULATE)


@rule(
    "post-acc.after-accumulate.no-gradient",
    level=Level.MUST,
    sources=[HOOK.sentence(2), FIRED.sentence(5)],
    needs=[Capability.POST_ACCUMULATE, Capability.CUSTOM_FUNCTION],
    mutants=[
        "post-accumulate-without-gradient",
        "post-accumulate-where-a-gradient-is-there",
        "post-accumulate-skipped-if-a-use-gives-none",
    ],
)
def test_nothing_accumulated(backend: Backend, trace: Trace) -> None:
    """If no gradient arrives at the leaf and nothing is accumulated, a post-accumulate-grad hook does not run."""
    dead_end = backend.custom_function(lambda _ctx, x: x * 2, lambda _ctx, _grad: None)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_post_accumulate_grad_hook(x, lambda _: trace.log("post-accumulate", backend.grad_of(x)))

    for before in (None, backend.tensor([9.0, 9.0])):
        backend.set_grad(x, before)
        backend.backward(backend.call(lambda x: backend.sum(dead_end(x)), x))

        trace.expect()
    for use in (lambda x: dead_end(x) + x * 3, lambda x: x * 4 + dead_end(x)):
        backend.backward(backend.call(lambda x, use=use: backend.sum(use(x)), x))

    trace.expect(("post-accumulate", [12.0, 12.0]), ("post-accumulate", [16.0, 16.0]))


@rule(
    "post-acc.arg.param",
    level=Level.MUST,
    sources=[HOOK.sentence(5, 6)],
    needs=[Capability.POST_ACCUMULATE],
    mutants=[
        "post-accumulate-gets-the-gradient",
        "post-accumulate-gets-a-detached-alias",
        "later-post-accumulate-hooks-get-an-alias",
        "post-accumulate-gets-an-alias-where-a-gradient-is-there",
    ],
)
def test_argument_is_the_leaf(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook gets the leaf itself, not its gradient and not a copy."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        backend.register_post_accumulate_grad_hook(x, lambda param: trace.log("argument is the leaf", param is x))

    for _ in range(3):
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

        trace.expect(*[("argument is the leaf", True)] * 3)


@rule(
    "post-acc.leaf-only",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4), FIRED.sentence(6, 7)],
    needs=[Capability.POST_ACCUMULATE, Capability.VIEWS, Capability.CUSTOM_FUNCTION, Capability.RETAIN_GRAD],
    mutants=[
        "post-accumulate-accepted-on-non-leaf",
        "post-accumulate-accepted-on-clones",
        "post-accumulate-accepted-on-views-of-leaves",
        "post-accumulate-accepted-on-outputs-of-custom-functions",
        "post-accumulate-accepted-on-tensors-that-retain",
        "refused-post-accumulate-hook-runs",
    ],
)
def test_leaf_only(backend: Backend, trace: Trace) -> None:
    """Registering a post-accumulate-grad hook on a non-leaf tensor is an error."""
    for numbers in ([1.0, 2.0], *NUMBERS):
        x = backend.tensor(numbers, requires_grad=True)
        for make in (lambda x: x * 2, backend.clone, backend.sum):
            y = backend.call(make, x)

            with trace.raises(ErrorKind.NOT_A_LEAF):
                backend.register_post_accumulate_grad_hook(y, trace.saw("post-accumulate"))
            backend.backward(backend.call(lambda y: backend.sum(y * 3), y))
            trace.expect()

    function = backend.custom_function(lambda _ctx, x: x * 2, lambda _ctx, grad: grad * 2)
    for make in (lambda x: backend.view(x, 2), function, lambda x: (y := x * 2, backend.retain_grad(y))[0]):
        y = backend.call(make, backend.tensor([1.0, 2.0], requires_grad=True))

        with trace.raises(ErrorKind.NOT_A_LEAF):
            backend.register_post_accumulate_grad_hook(y, trace.saw("post-accumulate"))
        backend.backward(backend.call(lambda y: backend.sum(y * 3), y))
        trace.expect()


@rule(
    "post-acc.requires-grad",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the hook is refused on a tensor that does not require grad")],
    needs=[
        Capability.POST_ACCUMULATE,
        Capability.REQUIRES_GRAD_FLAG,
        Capability.GRAD_MODE,
        Capability.DETACH_IN_PLACE,
    ],
    mutants=[
        "post-accumulate-accepted-without-gradient",
        "post-accumulate-accepted-on-what-was-not-recorded",
        "post-accumulate-accepted-on-what-was-detached",
        "post-accumulate-accepted-on-frozen-leaves",
        "post-accumulate-accepted-on-results-of-no-grad",
        "post-accumulate-accepted-after-detach",
    ],
)
def test_needs_requires_grad(backend: Backend, trace: Trace) -> None:
    """Registering a post-accumulate-grad hook on a tensor that does not require grad is an error."""
    x, leaf = backend.tensor([1.0, 2.0]), backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, leaf)
    constants = [x, backend.call(lambda x: x * 2, x), backend.detach(leaf), backend.detach(y)]
    with backend.no_grad():
        constants.append(backend.call(lambda x: x * 2, leaf))
    backend.detach_(y)
    backend.set_requires_grad(leaf, requires_grad=False)
    for tensor in (*constants, y, leaf):
        with trace.raises(ErrorKind.NO_GRADIENT):
            backend.register_post_accumulate_grad_hook(tensor, trace.saw("post-accumulate"))


@rule(
    "post-acc.once-per-backward",
    level=Level.MUST,
    sources=[HOOK.sentence(2), FIRED.sentence(5)],
    needs=[Capability.POST_ACCUMULATE],
    mutants=["post-accumulate-hook-twice", "node-runs-before-all-its-gradients-arrived", "gradients-summed-in-place"],
)
def test_once_per_backward(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook runs once in a pass, after all contributions, however often its leaf is used."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_post_accumulate_grad_hook(x, lambda _: trace.log("post-accumulate", backend.grad_of(x)))

    backend.backward(backend.call(lambda x: backend.sum(x * 2 + x * 3 + x), x))

    trace.expect(("post-accumulate", [6.0, 6.0]))


@rule(
    "post-acc.timing.not-global-end",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[EXECUTION, observed("the hook runs with its leaf's Node, in the midst of the pass")],
    needs=[Capability.POST_ACCUMULATE, Capability.TENSOR_HOOKS],
    mutants=["post-accumulate-deferred-to-the-end"],
)
def test_not_only_at_the_end(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook may run as soon as its leaf is done, before other parts of the graph are executed.

    The notes say that .grad is updated "at the end of the backward pass", and list the hook among the steps of a Node.
    """
    near = backend.tensor([1.0, 2.0], requires_grad=True)
    deep = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_post_accumulate_grad_hook(near, trace.saw("post-accumulate, near the root"))
    backend.register_hook(deep, trace.saw("tensor hook, far from the root"))

    backend.backward(backend.call(lambda near, deep: backend.sum(deep * 2 * 2 + near), near, deep))

    trace.expect("post-accumulate, near the root", "tensor hook, far from the root")


@rule(
    "post-acc.not-on-autograd-grad",
    level=Level.MUST,
    sources=[FIRED.sentence(5), docstring("torch.autograd.grad").sentence(8)],
    needs=[Capability.POST_ACCUMULATE, Capability.AUTOGRAD_GRAD],
    mutants=[
        "post-accumulate-fires-in-autograd-grad",
        "autograd-grad-accumulates",
        "autograd-grad-sets-the-grad-of-non-leaves",
    ],
)
def test_not_on_autograd_grad(backend: Backend, trace: Trace) -> None:
    """autograd.grad accumulates nothing, so post-accumulate-grad hooks do not run."""
    x, w = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    for leaf in (x, w):
        backend.set_grad(leaf, backend.tensor([9.0, 9.0]))
        backend.register_post_accumulate_grad_hook(leaf, trace.saw("post-accumulate"))

    y = backend.call(lambda x: x * 2, x)
    grads = backend.grad(backend.call(lambda y, w: backend.sum(y * 3 + w), y, w), [x, y])

    trace.expect()
    trace.expect_value("gradients", [[6.0, 6.0], [3.0, 3.0]], list(grads))
    trace.expect_value(".grad of the leaves", [[9.0, 9.0], [9.0, 9.0]], [backend.grad_of(x), backend.grad_of(w)])
    with catch_warnings(action="ignore"):  # torch warns when it is read
        trace.expect_value(".grad of a non-leaf", None, backend.grad_of(y))


@rule(
    "post-acc.inputs-excluded",
    level=Level.MUST,
    sources=[FIRED.sentence(5), docstring("torch.autograd.backward").sentence(23, 24)],
    needs=[Capability.POST_ACCUMULATE, Capability.BACKWARD_INPUTS],
    mutants=["backward-inputs-option-ignored", "backward-inputs-first-alone", "limited-pass-executes-the-whole-graph"],
)
def test_excluded_leaf(backend: Backend, trace: Trace) -> None:
    """In a backward with inputs the post-accumulate-grad hooks of these leaves run, and those of others do not."""
    a, b, c = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(3))
    for leaf, label in ((a, "included"), (b, "excluded"), (c, "included too")):
        backend.register_post_accumulate_grad_hook(leaf, trace.saw(label))

    loss = backend.call(lambda a, b, c: backend.sum(a * 2 + b * 3 + c * 4), a, b, c)
    backend.backward(loss, inputs=[a, c])

    trace.expect_in_any_order("included", "included too")
    trace.expect_value("grad of the excluded leaf", None, backend.grad_of(b))


@rule(
    "post-acc.order.registration",
    level=Level.MUST,
    sources=[ORDER.sentence(8)],
    needs=[Capability.POST_ACCUMULATE],
    mutants=["hooks-run-in-reverse-order", "post-accumulate-hook-takes-the-place-of-a-removed-one"],
)
def test_registration_order(backend: Backend, trace: Trace) -> None:
    """Several post-accumulate-grad hooks on one leaf run in order of registration."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    handles = [backend.register_post_accumulate_grad_hook(x, trace.saw(label)) for label in ("removed", "first")]
    handles[0].remove()
    for label in ("second", "third"):
        backend.register_post_accumulate_grad_hook(x, trace.saw(label))

    for _ in range(3):
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

        trace.expect("first", "second", "third")


@rule(
    "post-acc.order.after-tensor-hooks",
    level=Level.MUST,
    sources=[ORDER.sentence(2, 6, 9)],
    needs=[Capability.POST_ACCUMULATE, Capability.TENSOR_HOOKS],
    mutants=["post-accumulate-before-tensor-hooks", "tensor-hook-ignored"],
)
def test_after_tensor_hooks(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook runs after all tensor hooks of its leaf, and sees the gradient they left."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("earlier tensor hook", lambda grad: grad * 5))
    backend.register_post_accumulate_grad_hook(x, lambda _: trace.log("post-accumulate", backend.grad_of(x)))
    backend.register_hook(x, trace.saw("later tensor hook", lambda grad: grad * 4))

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

    trace.expect(
        ("earlier tensor hook", [2.0, 2.0]), ("later tensor hook", [10.0, 10.0]), ("post-accumulate", [40.0, 40.0])
    )


@rule(
    "post-acc.mutate.param",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 7)],
    needs=[Capability.POST_ACCUMULATE, Capability.IN_PLACE],
    mutants=[
        "post-accumulate-hooks-after-one-that-clears-skipped",
        "post-accumulate-in-place-refused",
        "gradient-restored-after-post-accumulate",
        "gradient-restored-before-the-next-backward",
    ],
)
def test_may_change_the_leaf(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook can change its leaf, the leaf's .grad in place, or clear it, and this lasts.

    Later hooks of the leaf still run: a gradient was accumulated.
    """

    def step(param):
        if (grad := backend.grad_of(param)) is not None:  # a hook that runs too early finds none
            backend.mul_(param, grad)
        backend.set_grad(param, None)

    def scale(param):
        if (grad := backend.grad_of(param)) is not None:
            backend.mul_(grad, 10)

    x, w = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    backend.register_post_accumulate_grad_hook(x, step)
    backend.register_post_accumulate_grad_hook(x, lambda leaf: trace.log("later hook", [leaf, backend.grad_of(leaf)]))
    backend.register_post_accumulate_grad_hook(w, scale)
    for changed, scaled in (([3.0, 6.0], [20.0, 20.0]), ([9.0, 18.0], [220.0, 220.0])):
        backend.backward(backend.call(lambda x, w: backend.sum(x * 3 + w * 2), x, w))

        trace.expect(("later hook", [changed, None]))
        trace.expect_value("x", changed, x)
        trace.expect_value("x.grad", None, backend.grad_of(x))
        trace.expect_value("w.grad", scaled, backend.grad_of(w))


@rule(
    "post-acc.in-place-grad.others",
    level=Level.SHOULD,
    sources=[HOOK.sentence(7), page("autograd", "default-gradient-layouts").sentence(3, 4)],
    needs=[Capability.POST_ACCUMULATE, Capability.IN_PLACE, Capability.VIEWS],
    mutants=["first-gradient-kept-as-it-is"],
)
def test_changes_no_other_gradient(backend: Backend, trace: Trace) -> None:
    """If a post-accumulate-grad hook changes its leaf's .grad in place, gradients of other tensors do not change.

    The docstring permits the change, and the section on layouts says that .grad is created; neither says outright that
    .grad shares its data with no other gradient.
    """

    def forward(x, w):
        product = w * 2
        return backend.sum((product + backend.view(x, 2)) * 3)

    def tenfold(leaf):
        grad = backend.grad_of(leaf)
        if grad is not None:
            backend.mul_(grad, 10)

    x, w = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    backend.register_post_accumulate_grad_hook(x, tenfold)
    backend.backward(backend.call(forward, x, w))

    trace.expect_value("x.grad", [30.0, 30.0], backend.grad_of(x))
    trace.expect_value("w.grad", [6.0, 6.0], backend.grad_of(w))


@rule(
    "post-acc.doc-example-returns-tensor",
    level=Level.MUST,
    sources=[HOOK.sentence(5)],
    needs=[Capability.POST_ACCUMULATE],
    mutants=[
        "post-accumulate-return-refused",
        "post-accumulate-return-replaces-gradient",
        "post-accumulate-return-ends-the-hooks",
        "post-accumulate-return-ends-the-hook",
    ],
)
def test_may_return_the_leaf(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook may return the leaf, as the documentation's example does, without any effect.

    The signature asks for None, but the hook of the docstring's own example returns the leaf.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_post_accumulate_grad_hook(x, trace.saw("post-accumulate", lambda param: param))
    backend.register_post_accumulate_grad_hook(x, trace.saw("another"))

    for grad in ([3.0, 3.0], [6.0, 6.0]):
        backend.backward(backend.call(lambda x: backend.sum(x * 3), x))

        trace.expect_in_any_order("post-accumulate", "another")
        trace.expect_value("x", [1.0, 2.0], x)
        trace.expect_value("x.grad", grad, backend.grad_of(x))


@rule(
    "post-acc.mode",
    level=Level.MUST,
    sources=[HOOK.sentence(10)],
    needs=[Capability.POST_ACCUMULATE, Capability.GRAD_MODE, Capability.BACKWARD_CREATE_GRAPH],
    mutants=[
        "post-accumulate-always-recorded",
        "post-accumulate-never-recorded",
        "post-accumulate-before-a-recorded-accumulation",
    ],
)
def test_mode(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook runs with grad mode off, unless the backward has create_graph=True."""

    def hook(_):
        trace.log("grad mode", backend.is_grad_enabled())
        trace.log(".grad", backend.grad_of(x))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_post_accumulate_grad_hook(x, hook)

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
        backend.backward(backend.call(lambda x: backend.sum(x * x), x), create_graph=True)

    trace.expect(("grad mode", False), (".grad", [2.0, 2.0]), ("grad mode", True), (".grad", [4.0, 6.0]))
    backend.set_grad(x, None)


@rule(
    "post-acc.mode.enable-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(11)],
    needs=[Capability.POST_ACCUMULATE, Capability.GRAD_MODE],
    mutants=["enable-grad-not-entered"],
)
def test_enable_grad(backend: Backend, trace: Trace) -> None:
    """Inside a post-accumulate-grad hook enable_grad turns grad mode on."""

    def hook(param):
        trace.log("requires grad", backend.requires_grad(param * 2))
        with backend.enable_grad():
            trace.log("requires grad under enable_grad", backend.requires_grad(param * 2))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_post_accumulate_grad_hook(x, hook)
    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

    trace.expect(("requires grad", False), ("requires grad under enable_grad", True))


@rule(
    "post-acc.handle.remove",
    level=Level.MUST,
    sources=[HOOK.sentence(8)],
    needs=[Capability.POST_ACCUMULATE],
    mutants=[
        "post-accumulate-hook-handle-removes-nothing",
        "post-accumulate-hook-stays-that-has-run",
        "post-accumulate-hook-handle-removes-the-oldest",
        "removal-waits-for-the-end-of-the-pass",
    ],
)
def test_remove(backend: Backend, trace: Trace) -> None:
    """After its handle has removed it, a post-accumulate-grad hook no longer runs, and other hooks still do."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_post_accumulate_grad_hook(x, trace.saw("older"))
    backend.register_post_accumulate_grad_hook(x, trace.saw("removed at once")).remove()
    handle = backend.register_post_accumulate_grad_hook(x, trace.saw("removed later"))
    backend.register_post_accumulate_grad_hook(x, trace.saw("kept"))

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    trace.expect_in_any_order("older", "removed later", "kept")

    handle.remove()
    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    trace.expect_in_any_order("older", "kept")

    handles = []
    leaves = [backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2)]
    for leaf, nr_of_other in zip(leaves, (1, 0), strict=True):
        hook = trace.saw("whichever is first", lambda _, nr=nr_of_other: handles[nr].remove())
        handles.append(backend.register_post_accumulate_grad_hook(leaf, hook))
    backend.backward(backend.call(lambda x, w: backend.sum(x * 2 + w * 3), *leaves))
    trace.expect("whichever is first")


@rule(
    "post-acc.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an exception leaves the hook unchanged, after accumulation")],
    needs=[Capability.POST_ACCUMULATE],
    mutants=[
        "post-accumulate-hook-swallowed",
        "hook-exception-wrapped",
        "hook-exception-without-its-message",
        "post-accumulate-exception-undoes-the-accumulation",
    ],
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An exception raised in a post-accumulate-grad hook reaches backward's caller; the leaf keeps its new .grad."""

    def hook(_param):
        raise KeyError("from the hook")

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_post_accumulate_grad_hook(x, hook)
    for new in ([2.0, 2.0], [4.0, 4.0]):
        loss = backend.call(lambda x: backend.sum(x * 2), x)

        with trace.raises_type(KeyError, "from the hook"):
            backend.backward(loss)
        trace.expect_value("x.grad", new, backend.grad_of(x))
