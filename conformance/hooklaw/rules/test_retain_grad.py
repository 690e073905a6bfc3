"""retain_grad: which gradient of a non-leaf it keeps."""

import weakref
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import NUMBERS

RETAIN_GRAD = docstring("torch.Tensor.retain_grad")
IS_LEAF = docstring("torch.Tensor.is_leaf")
ORDER = notes("autograd", "the-order-in-which-the-different-hooks-are-fired")
RETAINS_GRAD = docstring("torch.Tensor.retains_grad")


@rule(
    "retain-grad.populates",
    level=Level.MUST,
    sources=[RETAIN_GRAD.sentence(2), IS_LEAF.sentence(5)],
    needs=[Capability.RETAIN_GRAD],
    mutants=[
        "retain-grad-lost",
        "retained-gradient-of-the-root-lost",
        "retain-grad-after-use-has-no-effect",
        "retained-gradient-is-the-grad-of-a-leaf",
    ],
)
def test_populates(backend: Backend, trace: Trace) -> None:
    """After retain_grad, backward puts the whole gradient of a non-leaf tensor, be it the root, into its .grad."""

    def forward(y):
        z = y * 2
        backend.retain_grad(z)
        loss = backend.sum(z * 3 + z * 4)
        backend.retain_grad(loss)
        return loss, z

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x + 1, x)
    loss, z = backend.call(forward, y)
    backend.retain_grad(y)
    backend.backward(loss)

    trace.expect_value("loss.grad", 1.0, backend.grad_of(loss))
    trace.expect_value("z.grad", [7.0, 7.0], backend.grad_of(z))
    trace.expect_value("y.grad", [14.0, 14.0], backend.grad_of(y))
    trace.expect_value("x.grad", [14.0, 14.0], backend.grad_of(x))

    backend.backward(backend.call(lambda x: backend.sum(x * 5), x))
    trace.expect_value("y.grad after a backward without y", [14.0, 14.0], backend.grad_of(y))

    for numbers in NUMBERS:
        y = backend.call(lambda x: x * 1, backend.tensor(numbers, requires_grad=True))
        backend.retain_grad(y)
        backend.backward(backend.call(lambda y, weight: backend.sum(y * weight), y, backend.tensor(numbers)))
        trace.expect_value("y.grad that is 0-d, zero or empty", numbers, backend.grad_of(y))

    copy = backend.call(backend.clone, x)
    backend.retain_grad(copy)
    backend.backward(backend.call(lambda copy: backend.sum(copy * 3), copy))
    trace.expect_value("gradient of a clone", [3.0, 3.0], backend.grad_of(copy))


@rule(
    "retain-grad.several-roots",
    level=Level.MUST,
    sources=[RETAIN_GRAD.sentence(2), IS_LEAF.sentence(5)],
    needs=[Capability.RETAIN_GRAD, Capability.SEVERAL_ROOTS],
    mutants=["retained-gradient-of-a-root-is-the-given-one", "retained-gradients-of-later-roots-lost"],
)
def test_several_roots(backend: Backend, trace: Trace) -> None:
    """The retained gradient of each of several roots is whole: what is given for it, and what comes from the others."""
    for order in ((0, 1), (1, 0)):
        y = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True))
        z = backend.call(lambda y: y * 3, y)
        for root in (y, z):
            backend.retain_grad(root)
        given = [(y, backend.tensor([1.0, 1.0])), (z, backend.tensor([10.0, 50.0]))]
        backend.backward_from_all(*map(list, zip(*(given[place] for place in order), strict=True)))

        trace.expect_value("y.grad", [31.0, 151.0], backend.grad_of(y))
        trace.expect_value("z.grad", [10.0, 50.0], backend.grad_of(z))


@rule(
    "retain-grad.default-none",
    level=Level.MUST,
    sources=[IS_LEAF.sentence(4, 5)],
    needs=[Capability.RETAIN_GRAD, Capability.MULTI_OUTPUT],
    mutants=["every-intermediate-gradient-retained", "root-gets-its-gradient", "retain-grad-shared-by-the-node"],
)
def test_default_none(backend: Backend, trace: Trace) -> None:
    """Without retain_grad a non-leaf tensor has no .grad after backward."""

    def forward(x):
        output, other = backend.split(x * 2, 1)
        backend.retain_grad(other)
        y = output * 3
        return backend.sum(y + other), y, output

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, y, output = backend.call(forward, x)
    backend.backward(loss)

    with catch_warnings(action="ignore"):  # torch warns when it is read
        trace.expect_value("y.grad", None, backend.grad_of(y))
        trace.expect_value("loss.grad", None, backend.grad_of(loss))
        trace.expect_value("gradient of one output of two", None, backend.grad_of(output))


@rule(
    "retain-grad.leaf-noop",
    level=Level.MUST,
    sources=[RETAIN_GRAD.sentence(3)],
    needs=[Capability.RETAIN_GRAD, Capability.AUTOGRAD_GRAD, Capability.TENSOR_HOOKS],
    mutants=[
        "retain-grad-on-leaf-raises",
        "retain-grad-counts-leaf-twice",
        "retain-grad-overwrites-the-grad-of-a-leaf",
        "retain-grad-on-a-leaf-resets-its-grad",
        "retain-grad-on-a-leaf-with-a-gradient-raises",
        "autograd-grad-fills-a-leaf-that-retains",
        "hooks-after-retain-grad-on-a-leaf-lost",
        "hooks-after-retain-grad-on-a-leaf-ignored",
    ],
)
def test_leaf_is_left_alone(backend: Backend, trace: Trace) -> None:
    """On a leaf retain_grad has no effect: backward accumulates the gradient as without it."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for expected in ([3.0, 3.0], [6.0, 6.0], [9.0, 9.0]):
        backend.retain_grad(x)
        backend.backward(backend.call(lambda x: backend.sum(x * 3), x))

        trace.expect_value("x.grad", expected, backend.grad_of(x))

    grads = backend.grad(backend.call(lambda x: backend.sum(x * 5), x), [x])
    trace.expect_value("gradient, and x.grad", [[5.0, 5.0], [9.0, 9.0]], [*grads, backend.grad_of(x)])
    loss = backend.call(lambda x: backend.sum(x * 3), x)
    backend.register_hook(x, trace.saw("hook", lambda grad: grad * 10))
    backend.backward(loss)
    trace.expect(("hook", [3.0, 3.0]))
    trace.expect_value("x.grad with a hook", [39.0, 39.0], backend.grad_of(x))


@rule(
    "retain-grad.flag",
    level=Level.MUST,
    sources=[RETAINS_GRAD.sentence(1)],
    needs=[Capability.RETAIN_GRAD, Capability.RETAINS_GRAD, Capability.MULTI_OUTPUT],
    mutants=[
        "retains-grad-true-for-leaf",
        "retains-grad-false",
        "retains-grad-false-after-backward",
        "retains-grad-of-one-true-for-all",
        "retains-grad-of-a-detached-tensor-is-that-of-its-source",
        "retains-grad-of-one-output-true-for-the-others",
    ],
)
def test_flag(backend: Backend, trace: Trace) -> None:
    """retains_grad is true exactly for a non-leaf on which retain_grad was called."""

    def forward(x):
        y = x * 2
        trace.log("non-leaf", backend.retains_grad(y))
        backend.retain_grad(y)
        trace.log("non-leaf after retain_grad", backend.retains_grad(y))
        z = y * 3
        trace.log("another non-leaf", backend.retains_grad(z))
        return y, backend.sum(z)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.retain_grad(x)
    trace.log("leaf after retain_grad", backend.retains_grad(x))
    y, loss = backend.call(forward, x)
    trace.expect(
        ("leaf after retain_grad", False),
        ("non-leaf", False),
        ("non-leaf after retain_grad", True),
        ("another non-leaf", False),
    )
    backend.backward(loss)

    for _ in range(3):
        others = [backend.detach(y), backend.detach(x)]
        flags = [backend.retains_grad(each) for each in (y, x, *others)]
        trace.expect_value("after backward, and detached", [True, False, False, False], flags)

    for nr in range(2):
        outputs = backend.call(lambda x: backend.split(x * 2, 1), x)
        backend.retain_grad(outputs[nr])
        trace.expect_value(f"of output {nr} of two", [nr == 0, nr == 1], [*map(backend.retains_grad, outputs)])


@rule(
    "retain-grad.flag.detached",
    level=Level.MUST,
    sources=[RETAINS_GRAD.sentence(1), docstring("torch.Tensor.detach_").sentence(1)],
    needs=[Capability.RETAIN_GRAD, Capability.RETAINS_GRAD, Capability.DETACH_IN_PLACE],
    mutants=["detached-in-place-retains"],
)
def test_flag_of_a_detached_tensor(backend: Backend, trace: Trace) -> None:
    """retains_grad is false after detach_, which makes the tensor a leaf, even if it was true before."""
    y = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True))
    backend.retain_grad(y)
    trace.expect_value("retains_grad before", expected=True, observed=backend.retains_grad(y))
    backend.detach_(y)

    trace.expect_value("is a leaf", expected=True, observed=backend.is_leaf(y))
    trace.expect_value("retains_grad", expected=False, observed=backend.retains_grad(y))


@rule(
    "retain-grad.requires-grad-error",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("retain_grad refuses a tensor that does not require grad")],
    needs=[Capability.RETAIN_GRAD],
    mutants=["retain-grad-without-gradient-ignored"],
)
def test_needs_requires_grad(backend: Backend, trace: Trace) -> None:
    """retain_grad on a tensor that does not require grad may be an error.

    Such a tensor is a leaf by convention, and the documentation calls retain_grad on leaves a no-op, so an engine that
    does nothing is right too.
    """
    x = backend.tensor([1.0, 2.0])

    with trace.raises(ErrorKind.NO_GRADIENT):
        backend.retain_grad(x)


@rule(
    "retain-grad.after-tensor-hooks",
    level=Level.MUST,
    sources=[ORDER.sentence(2, 4)],
    needs=[Capability.RETAIN_GRAD, Capability.TENSOR_HOOKS],
    mutants=[
        "retain-grad-is-an-ordinary-tensor-hook",
        "retain-grad-before-tensor-hooks",
        "retained-gradient-lost-with-a-removed-hook",
    ],
)
def test_after_tensor_hooks(backend: Backend, trace: Trace) -> None:
    """The retained gradient is what all tensor hooks of its tensor left, whenever retain_grad was called."""

    def forward(x):
        early, between, late = x * 2, x * 2, x * 2
        backend.retain_grad(early)
        for y in (early, between, late):
            backend.register_hook(y, lambda grad: grad * 4)
        backend.retain_grad(between)
        for y in (early, between, late):
            backend.register_hook(y, lambda grad: grad * 5)
            backend.register_hook(y, lambda grad: grad * 7).remove()
        backend.retain_grad(late)
        return backend.sum(early + between + late), early, between, late

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, *retained = backend.call(forward, x)
    backend.backward(loss)

    for when, y in zip(("before the hooks", "between the hooks", "after the hooks"), retained, strict=True):
        trace.expect_value(f"grad, retained {when}", [20.0, 20.0], backend.grad_of(y))


@rule(
    "retain-grad.vs-node-prehook",
    level=Level.MUST,
    sources=[ORDER.sentence(3, 4)],
    needs=[Capability.RETAIN_GRAD, Capability.NODES, Capability.NODE_HOOKS],
    mutants=[
        "retain-grad-before-node-pre-hook",
        "retained-gradient-is-what-the-first-pre-hook-left",
        "retain-grad-misses-earlier-pre-hooks",
    ],
)
def test_sees_node_prehook(backend: Backend, trace: Trace) -> None:
    """The retained gradient is what the pre-hooks of the tensor's Node left.

    This rule is about the value; that it is not set before the pre-hooks run is the rule
    order.retain-grad-before-node-prehook.
    """

    def forward(x, early):
        y = x * 3
        if early:
            backend.retain_grad(y)
        for factor in (4, 0.5):
            backend.node_register_prehook(backend.grad_fn(y), lambda grads, factor=factor: (grads[0] * factor,))
        if not early:
            backend.retain_grad(y)
        return backend.sum(y), y

    for early in (True, False):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        loss, y = backend.call(lambda x, early=early: forward(x, early), x)
        backend.backward(loss)

        trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))
        trace.expect_value("y.grad", [2.0, 2.0], backend.grad_of(y))


@rule(
    "retain-grad.repeat",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a second retain_grad changes nothing")],
    needs=[Capability.RETAIN_GRAD, Capability.RETAIN_GRAPH],
    mutants=[
        "repeated-retain-grad-adds-up",
        "retain-grad-again-resets-grad",
        "retain-grad-again-after-a-backward-adds-up",
    ],
)
def test_repeat(backend: Backend, trace: Trace) -> None:
    """Calling retain_grad again on the same tensor has no effect."""

    def forward(x):
        again, once = x * 2, x * 2
        for tensor in (again, again, once):
            backend.retain_grad(tensor)
        return backend.sum((again + once) * 3), again, once

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, again, once = backend.call(forward, x)
    backend.backward(loss, retain_graph=True)
    trace.expect_value("gradient", [3.0, 3.0], backend.grad_of(again))
    backend.retain_grad(again)
    trace.expect_value("gradient after retain_grad", [3.0, 3.0], backend.grad_of(again))
    backend.backward(loss)
    trace.expect_value("gradient as without it", backend.grad_of(once), backend.grad_of(again))


@rule(
    "retain-grad.accumulate-or-overwrite",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.grad").sentence(2)],
    needs=[Capability.RETAIN_GRAD, Capability.RETAIN_GRAPH],
    mutants=[
        "retained-gradient-overwritten",
        "retained-gradient-kept-aside-of-grad",
        "retained-gradient-of-the-root-overwritten",
    ],
)
def test_accumulates(backend: Backend, trace: Trace) -> None:
    """A retained gradient adds up over several backward passes.

    The docstring of .grad says that later calls of backward add to it, and excepts no tensor.
    """

    def forward(x):
        y = x * 2
        backend.retain_grad(y)
        loss = backend.sum(y * 3)
        backend.retain_grad(loss)
        return loss, y

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, y = backend.call(forward, x)
    for _ in range(2):
        backend.backward(loss, retain_graph=True)
    trace.expect_value("y.grad", [6.0, 6.0], backend.grad_of(y))
    trace.expect_value("loss.grad", 2.0, backend.grad_of(loss))

    backend.set_grad(y, None)
    backend.backward(loss)
    trace.expect_value("y.grad after it was set to None", [3.0, 3.0], backend.grad_of(y))


@rule(
    "retain-grad.every-root",
    level=Level.MUST,
    sources=[RETAIN_GRAD.sentence(2)],
    needs=[
        Capability.RETAIN_GRAD,
        Capability.SEED_GRADIENT,
        Capability.SEVERAL_ROOTS,
        Capability.GRADIENT_EDGES,
        Capability.EDGE_ROOTS,
    ],
    mutants=[
        "several-roots-retain-no-gradients",
        "edges-retain-no-gradients",
        "passes-with-a-gradient-retain-no-gradients",
    ],
)
def test_every_root(backend: Backend, trace: Trace) -> None:
    """A non-leaf that retains its gradient gets it whatever a backward starts from, and so does the root.

    From a root with a gradient, from the first and last of two roots, and from a gradient edge.
    """
    one, other = backend.tensor(1.0), backend.tensor(1.0, requires_grad=True)
    for start in (
        lambda root: backend.backward(root, one),
        lambda root: backend.backward_from_all([root, other]),
        lambda root: backend.backward_from_all([other, root], [one, one]),
        lambda root: backend.backward_from_edge(backend.get_gradient_edge(root), one),
    ):
        y = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True))
        root = backend.call(lambda y: backend.sum(y * 3), y)
        for tensor in (y, root):
            backend.retain_grad(tensor)
        start(root)

        trace.expect_value("gradients", [[3.0, 3.0], 1.0], [backend.grad_of(y), backend.grad_of(root)])


@rule(
    "retain-grad.views",
    level=Level.MUST,
    sources=[RETAIN_GRAD.sentence(2)],
    needs=[Capability.RETAIN_GRAD, Capability.VIEWS, Capability.MULTI_OUTPUT],
    mutants=["views-retain-no-gradient", "later-outputs-retain-no-gradient"],
)
def test_views(backend: Backend, trace: Trace) -> None:
    """Each view, and each of several outputs of an operation, retains its own gradient, and so does their base."""

    def forward(x):
        base = x * 1
        tensors = base, backend.view(base, 3, 1), *backend.split(base, 1)
        for tensor in tensors:
            backend.retain_grad(tensor)
        _, view, first, second, third = tensors
        return *tensors, backend.sum(view * 2) + backend.sum(first * 3 + second * 5 + third * 7)

    x = backend.tensor([1.0, 2.0, 3.0], requires_grad=True)
    *tensors, loss = backend.call(forward, x)
    backend.backward(loss)

    expected = [[5.0, 7.0, 9.0], [[2.0]] * 3, [3.0], [5.0], [7.0]]
    trace.expect_value("base, view and parts", expected, [backend.grad_of(tensor) for tensor in tensors])


@rule(
    "retain-grad.autograd-grad",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("autograd.grad sets it too; the docstring of retain_grad speaks of backward alone")],
    needs=[Capability.RETAIN_GRAD, Capability.AUTOGRAD_GRAD],
    mutants=["retain-grad-only-in-backward"],
)
def test_autograd_grad(backend: Backend, trace: Trace) -> None:
    """autograd.grad may set a retained gradient too, although only backward must."""

    def forward(x):
        y = x * 2
        backend.retain_grad(y)
        return backend.sum(y * 3), y

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, y = backend.call(forward, x)
    backend.grad(loss, [x])

    trace.expect_value("y.grad", [3.0, 3.0], backend.grad_of(y))


@rule(
    "retain-grad.inplace.follows-tensor",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("retain_grad moves on to the Node of an in-place operation, unlike tensor hooks")],
    needs=[Capability.RETAIN_GRAD, Capability.IN_PLACE],
    mutants=["retain-grad-is-an-ordinary-tensor-hook", "retained-gradient-lost-on-rebase"],
)
def test_follows_in_place(backend: Backend, trace: Trace) -> None:
    """After an in-place operation the retained gradient may be that of the tensor's last value."""

    def forward(x):
        y = x * 2
        backend.retain_grad(y)
        backend.mul_(y, 5)
        return backend.sum(y * 3), y

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, y = backend.call(forward, x)
    backend.backward(loss)

    trace.expect_value("y.grad", [3.0, 3.0], backend.grad_of(y))


@rule(
    "retain-grad.inplace.several-outputs",
    level=Level.MUST,
    sources=[RETAIN_GRAD.sentence(2)],
    needs=[Capability.RETAIN_GRAD, Capability.IN_PLACE, Capability.CUSTOM_FUNCTION],
    mutants=["retained-gradients-are-mixed-up"],
)
def test_in_place_on_one_of_several(backend: Backend, trace: Trace) -> None:
    """An in-place operation on one output of a Node does not change which gradient another output retains.

    Which gradient the changed output retains is the rule retain-grad.inplace.follows-tensor.
    """
    both = backend.custom_function(lambda _ctx, x: (x * 2, x * 3), lambda _ctx, first, second: first * 2 + second * 3)

    def forward(x, changed):
        outputs = both(x)
        for output in outputs:
            backend.retain_grad(output)
        backend.mul_(outputs[changed], 5)
        return outputs[1 - changed], backend.sum(outputs[0] + outputs[1] * 2)

    for changed, other_grad in ((0, [2.0, 2.0]), (1, [1.0, 1.0])):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        other, loss = backend.call(lambda x, changed=changed: forward(x, changed), x)
        backend.backward(loss)

        trace.expect_value(f".grad of the other output than {changed}", other_grad, backend.grad_of(other))


@rule(
    "retain-grad.lifetime",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the graph does not keep a tensor whose gradient it retains")],
    needs=[Capability.RETAIN_GRAD, Capability.WEAK_REFERENCES],
    mutants=["node-keeps-the-tensor-that-retains"],
)
def test_lifetime(backend: Backend, trace: Trace) -> None:
    """A tensor that retains its gradient may be freed with its last reference, even if its graph lives on."""

    def forward(x):
        y = x * 2
        backend.retain_grad(y)
        return backend.sum(y * 3), y

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, y = backend.call(forward, x)
    alive = weakref.ref(y)
    del y

    trace.expect_value("is freed", expected=True, observed=alive() is None)
    backend.backward(loss)
    trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))


@rule(
    "retain-grad.inplace.views",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("each view retains the gradient of its own uses, and the base that of its last value")],
    needs=[Capability.RETAIN_GRAD, Capability.IN_PLACE, Capability.VIEWS],
    mutants=["retained-gradient-lost-on-rebase"],
)
def test_in_place_on_a_view(backend: Backend, trace: Trace) -> None:
    """After one of two views is changed in place each may retain the gradient of its own uses, and the base the sum."""

    def forward(x):
        base = x * 1
        changed, other = backend.view(base, 2, 1), backend.view(base, 1, 2)
        for tensor in (base, changed, other):
            backend.retain_grad(tensor)
        backend.mul_(changed, 3)
        return base, changed, other, backend.sum(changed * 2) + backend.sum(other * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    *tensors, loss = backend.call(forward, x)
    backend.backward(loss)

    gradients = [backend.grad_of(tensor) for tensor in tensors]
    trace.expect_value("base, changed, other", [[7.0, 7.0], [[2.0], [2.0]], [[5.0, 5.0]]], gradients)
    trace.expect_value("x.grad", [21.0, 21.0], backend.grad_of(x))
