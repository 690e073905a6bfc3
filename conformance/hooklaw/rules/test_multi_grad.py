"""Multi-grad hooks: for which gradients they wait, and which they get."""

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import MULTI_GRAD, MULTI_GRAD_ANY, gets_each_value

HOOK = docstring("torch.autograd.graph.register_multi_grad_hook")


@rule(
    "multi-grad.all.once",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 5)],
    needs=[Capability.MULTI_GRAD],
    mutants=["multi-grad-hook-once-a-tensor"],
)
def test_once(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode all runs once in a backward pass, when all its tensors' gradients are computed."""
    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([3.0, 4.0], requires_grad=True)
    for _ in range(3):
        backend.register_multi_grad_hook([a, b], trace.saw("hook"))

    backend.backward(backend.call(lambda a, b: backend.sum(a * 2 + b * 3), a, b))

    trace.expect(*[("hook", [[2.0, 2.0], [3.0, 3.0]])] * 3)

    c = backend.tensor([1.0, 2.0], requires_grad=True)
    copy = backend.call(backend.clone, c)
    backend.register_multi_grad_hook([copy, c], trace.saw("hook with a clone"))
    backend.backward(backend.call(lambda copy, c: backend.sum(copy * 5 + c * 7), copy, c))
    trace.expect(("hook with a clone", [[5.0, 5.0], [12.0, 12.0]]))


@rule(
    "multi-grad.all.root",
    level=Level.MUST,
    sources=[HOOK.sentence(3)],
    needs=[Capability.MULTI_GRAD],
    mutants=[
        "multi-grad-hook-misses-the-root",
        "multi-grad-hook-misses-a-lone-root",
        "multi-grad-hook-misses-a-root-that-is-a-leaf",
    ],
)
def test_root(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook gets the gradient of a tensor that is the root of backward like any other."""

    def forward(x):
        y = backend.sum(x * 2)
        backend.register_multi_grad_hook([x, y], trace.saw("both"))
        return y

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("both", [[2.0, 2.0], 1.0]))

    for make in (lambda leaf: leaf * 2, lambda leaf: leaf):
        root = backend.call(make, backend.tensor(5.0, requires_grad=True))
        backend.register_multi_grad_hook([root], trace.saw("the root alone"))
        backend.backward(root)
        trace.expect(("the root alone", [1.0]))


@rule(
    "multi-grad.all.root.gradient",
    level=Level.MUST,
    sources=[HOOK.sentence(3)],
    needs=[Capability.MULTI_GRAD, Capability.SEED_GRADIENT],
    mutants=[
        "multi-grad-hook-gets-ones-for-the-root",
        "multi-grad-hook-gets-one-for-a-scalar-root",
        "multi-grad-hook-any-gets-ones-for-the-root",
    ],
)
def test_gradient_of_a_root(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook gets the gradient that backward was given for a root."""

    def forward(x):
        y = x * 2
        backend.register_multi_grad_hook([x, y], trace.saw("both"))
        return y

    for numbers, given, doubled in (([1.0, 2.0], [3.0, 5.0], [6.0, 10.0]), (1.0, 3.0, 6.0)):
        x = backend.tensor(numbers, requires_grad=True)
        backend.backward(backend.call(forward, x), backend.tensor(given))

        trace.expect(("both", [doubled, given]))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)
    backend.register_multi_grad_hook([x, y], trace.saw("any"), mode="any")
    backend.backward(y, backend.tensor([3.0, 5.0]))
    trace.expect(("any", [3.0, 5.0]))


@rule(
    "multi-grad.all.doc-example",
    level=Level.MUST,
    sources=[HOOK.sentence(4, 6)],
    needs=[Capability.MULTI_GRAD, Capability.BACKWARD_INPUTS],
    mutants=[
        "multi-grad-hook-waits-for-every-tensor",
        "multi-grad-hook-gets-zeros-for-none",
        "multi-grad-hook-takes-lists-alone",
    ],
)
def test_documented_example(backend: Backend, trace: Trace) -> None:
    """In a backward with inputs a multi-grad hook gets None for a tensor whose gradient these inputs do not need."""

    def forward(a, b):
        c, d = a * b, a * b
        backend.register_multi_grad_hook((a, b, c, d), trace.saw("hook"))
        return backend.sum(c)

    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([3.0, 4.0], requires_grad=True)
    backend.backward(backend.call(forward, a, b), inputs=[a])

    trace.expect(("hook", [[3.0, 4.0], None, [1.0, 1.0], None]))


@rule(
    "multi-grad.all.order-of-args",
    level=Level.MUST,
    sources=[HOOK.sentence(5, 6)],
    needs=[Capability.MULTI_GRAD],
    mutants=["multi-grad-tensors-reversed", "multi-grad-gradients-from-the-leaves"],
)
def test_order_of_arguments(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook gets the gradients in the order of its tensors, not in the order of their computation.

    None stands for a tensor whose gradient was not computed, so only the place of a gradient says whose it is.
    """

    def forward(x, w, order):
        y = x * 2
        backend.register_multi_grad_hook([(x, y, w)[nr] for nr in order], trace.saw("hook"))
        return backend.sum(y * 3 + w * 5)

    for order in ((0, 1), (1, 0), (2, 0, 1)):
        x, w = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        backend.backward(backend.call(lambda x, w, order=order: forward(x, w, order), x, w))

        trace.expect(("hook", [([6.0, 6.0], [3.0, 3.0], [5.0, 5.0])[nr] for nr in order]))


@rule(
    "multi-grad.all.ignored",
    level=Level.MUST,
    sources=[HOOK.sentence(4, 6)],
    needs=[Capability.MULTI_GRAD, Capability.MULTI_OUTPUT],
    mutants=[
        "multi-grad-hook-waits-for-every-tensor",
        "multi-grad-hook-waits-for-unused-outputs",
        "multi-grad-hook-gets-zeros-for-none",
        "multi-grad-gradients-without-gaps",
        "multi-grad-hook-waits-once-for-each-node",
    ],
)
def test_ignored(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook does not wait for a tensor that gets no gradient, and gets None for one outside the graph."""
    a, b, elsewhere = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(3))
    backend.register_multi_grad_hook([a, elsewhere, b], trace.saw("hook"))

    backend.backward(backend.call(lambda a, b: backend.sum(a * 2 + b * 3), a, b))

    trace.expect(("hook", [[2.0, 2.0], None, [3.0, 3.0]]))

    def forward(x):
        unused, used, last = backend.split(x, 1)
        backend.register_multi_grad_hook([unused, used, last], lambda grads: trace.log("hook on outputs", grads[1:]))
        return backend.sum(used * 3 + last * 5)

    backend.backward(backend.call(forward, backend.tensor([1.0, 2.0, 3.0], requires_grad=True)))

    trace.expect(("hook on outputs", [[3.0], [5.0]]))


@rule(
    "multi-grad.all.every-backward",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4)],
    needs=[Capability.MULTI_GRAD, Capability.RETAIN_GRAPH],
    mutants=["multi-grad-hook-lost-second-call", "multi-grad-hook-once-a-graph"],
)
def test_every_backward(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode all runs in each backward pass that computes the gradient of any of its tensors."""
    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([3.0, 4.0], requires_grad=True)
    backend.register_multi_grad_hook([a, b], trace.saw("hook"))

    both = backend.call(lambda a, b: backend.sum(a * 2 + b * 3), a, b)
    backend.backward(both, retain_graph=True)
    backend.backward(backend.call(lambda b: backend.sum(b * 4), b))
    backend.backward(both)

    trace.expect(
        ("hook", [[2.0, 2.0], [3.0, 3.0]]),
        ("hook", [None, [4.0, 4.0]]),
        ("hook", [[2.0, 2.0], [3.0, 3.0]]),
    )

    gets_each_value(backend, trace, MULTI_GRAD)


@rule(
    "multi-grad.all.autograd-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(4)],
    needs=[Capability.MULTI_GRAD, Capability.AUTOGRAD_GRAD],
    mutants=["multi-grad-hook-lost-autograd-grad"],
)
def test_autograd_grad(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook runs in autograd.grad too, which computes only gradients that its inputs need."""

    def forward(a, b):
        y, z = a * 2, b * 3
        backend.register_multi_grad_hook([y, z], trace.saw("hook"))
        return backend.sum((y + z) * 5)

    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([3.0, 4.0], requires_grad=True)
    backend.grad(backend.call(forward, a, b), [a])

    trace.expect(("hook", [[5.0, 5.0], None]))


@rule(
    "multi-grad.all.autograd-grad-leaf",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4)],
    needs=[Capability.MULTI_GRAD, Capability.AUTOGRAD_GRAD],
    mutants=["multi-grad-hook-lost-autograd-grad"],
)
def test_autograd_grad_of_leaves(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook runs in autograd.grad even if its tensors are the leaves in the inputs of autograd.grad."""
    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([3.0, 4.0], requires_grad=True)
    backend.register_multi_grad_hook([a, b], trace.saw("hook"))

    backend.grad(backend.call(lambda a, b: backend.sum(a * 2 + b * 3), a, b), [a, b])

    trace.expect(("hook", [[2.0, 2.0], [3.0, 3.0]]))


@rule(
    "multi-grad.all.none-participating",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[HOOK, observed("the hook is not called with None for every tensor")],
    needs=[Capability.MULTI_GRAD, Capability.BACKWARD_INPUTS],
    mutants=["multi-grad-hook-called-for-nothing", "multi-grad-hook-called-for-other-inputs"],
)
def test_none_takes_part(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode all is not called in a pass that computes the gradient of none of its tensors."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    others = [backend.tensor([3.0, 4.0], requires_grad=True) for _ in range(2)]
    backend.register_multi_grad_hook(others, trace.saw("all"))

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    backend.backward(backend.call(lambda x, a, b: backend.sum(x * a + b), x, *others), inputs=[x])

    trace.expect()


@rule(
    "multi-grad.any.none-participating",
    level=Level.MUST,
    sources=[HOOK.sentence(7)],
    needs=[Capability.MULTI_GRAD, Capability.BACKWARD_INPUTS],
    mutants=["multi-grad-hook-called-for-nothing", "multi-grad-hook-called-for-other-inputs"],
)
def test_none_takes_part_in_mode_any(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode any is not called in a pass that computes the gradient of none of its tensors.

    It is called after the first gradient, and there is none.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    others = [backend.tensor([3.0, 4.0], requires_grad=True) for _ in range(2)]
    backend.register_multi_grad_hook(others, trace.saw("any"), mode="any")

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    backend.backward(backend.call(lambda x, a, b: backend.sum(x * a + b), x, *others), inputs=[x])

    trace.expect()


@rule(
    "multi-grad.any.first-only",
    level=Level.MUST,
    sources=[HOOK.sentence(7, 8)],
    needs=[Capability.MULTI_GRAD, Capability.RETAIN_GRAPH],
    mutants=[
        "multi-grad-hook-once-a-tensor",
        "multi-grad-hook-any-gets-a-list",
        "any-grad-hook-lost-second-call",
        "multi-grad-hook-any-waits-for-the-last-tensor",
        "multi-grad-hook-any-misses-the-root",
        "multi-grad-hook-any-misses-a-lone-root",
        "multi-grad-hook-any-misses-a-root-that-is-a-leaf",
    ],
)
def test_first_only(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode any runs once in a backward pass, with the first computed gradient, not a list."""

    def forward(x, order):
        y = x * 2
        tensors = x, y, backend.tensor([5.0], requires_grad=True)
        for _ in range(3):
            backend.register_multi_grad_hook([tensors[nr] for nr in order], trace.saw("hook"), mode="any")
        return backend.sum(y * 3)

    for order in ((0, 1), (1, 0), (0, 1, 2)):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        loss = backend.call(lambda x, order=order: forward(x, order), x)
        backend.backward(loss, retain_graph=True)
        trace.expect(*[("hook", [3.0, 3.0])] * 3)

        backend.backward(loss)
        trace.expect(*[("hook", [3.0, 3.0])] * 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(lambda x: backend.sum(x * 2), x)
    backend.register_multi_grad_hook([x, loss], trace.saw("hook with the root"), mode="any")
    backend.backward(loss)
    trace.expect(("hook with the root", 1.0))

    for make in (lambda leaf: leaf * 2, lambda leaf: leaf):
        root = backend.call(make, backend.tensor(5.0, requires_grad=True))
        backend.register_multi_grad_hook([root], trace.saw("the root alone"), mode="any")
        backend.backward(root)
        trace.expect(("the root alone", 1.0))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)
    tensors = [y, backend.call(lambda y: y * 3, y)]
    for label, how in (("any", {"mode": "any"}), ("by default", {})):
        backend.register_multi_grad_hook(tensors, trace.saw(label), **how)
    backend.backward(backend.sum(tensors[1]))
    trace.expect(("any", [1.0, 1.0]), ("by default", [[3.0, 3.0], [1.0, 1.0]]))

    gets_each_value(backend, trace, MULTI_GRAD_ANY)


@rule(
    "multi-grad.any.autograd-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(4, 7), notes("autograd", "special-hooks").sentence(1)],
    needs=[Capability.MULTI_GRAD, Capability.AUTOGRAD_GRAD],
    mutants=[
        "any-grad-hook-lost-autograd-grad",
        "multi-grad-hook-any-waits-for-the-last-tensor",
        "multi-grad-hook-any-lost-on-the-inputs-of-autograd-grad",
    ],
)
def test_any_in_autograd_grad(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode any runs in autograd.grad too, once, with the first computed gradient.

    The docstring names ``.backward()`` and ``.grad()`` alike, and special hooks are tensor hooks, which run in both.
    """

    def forward(x, order):
        y = x * 2
        backend.register_multi_grad_hook([(x, y)[nr] for nr in order], trace.saw("hook"), mode="any")
        return backend.sum(y * 3)

    for order, first in (((0, 1), [3.0, 3.0]), ((1, 0), [3.0, 3.0]), ((0,), [6.0, 6.0])):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.grad(backend.call(lambda x, order=order: forward(x, order), x), [x])

        trace.expect(("hook", first))


@rule(
    "multi-grad.any.first-only.unused-output",
    level=Level.MUST,
    sources=[HOOK.sentence(7)],
    needs=[Capability.MULTI_GRAD, Capability.MULTI_OUTPUT],
    mutants=[
        "multi-grad-hook-any-takes-none-for-a-gradient",
        "multi-grad-hook-any-takes-a-second-none-for-a-gradient",
    ],
)
def test_first_is_a_gradient(backend: Backend, trace: Trace) -> None:
    """For a multi-grad hook in mode any an unused output, which has no gradient, does not count as the first."""

    def forward(x, used):
        parts = backend.split(x, 1)
        backend.register_multi_grad_hook(parts, trace.saw("hook"), mode="any")
        return backend.sum(parts[used] * 3)

    for used in (2, 1, 0):
        x = backend.tensor([1.0, 2.0, 3.0], requires_grad=True)
        backend.backward(backend.call(lambda x, used=used: forward(x, used), x))

        trace.expect(("hook", [3.0]))


@rule(
    "multi-grad.mode.invalid",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[HOOK, observed("the modes are documented, the error for another one is not")],
    needs=[Capability.MULTI_GRAD],
    mutants=["multi-grad-mode-unchecked", "multi-grad-mode-empty", "multi-grad-mode-in-capitals"],
)
def test_unknown_mode(backend: Backend, trace: Trace) -> None:
    """Registering a multi-grad hook in a mode other than all or any is an error."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)

    for mode in ("some", "", "ALL", "Any"):
        with trace.raises(ErrorKind.MULTI_GRAD_MODE):
            backend.register_multi_grad_hook([x], trace.saw("hook"), mode=mode)


@rule(
    "multi-grad.requires-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(4, 6)],
    needs=[Capability.MULTI_GRAD],
    mutants=[
        "multi-grad-hook-refuses-constants",
        "multi-grad-hook-refuses-later-constants",
        "multi-grad-hook-waits-for-every-tensor",
    ],
)
def test_constants(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode all ignores a tensor that does not require grad, and gets None for it.

    The docstring says so of a tensor that is not part of the graph, and such a tensor is part of none.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    constant = backend.tensor([3.0, 4.0])
    for tensors in ([constant, x], [x, constant]):
        handle = backend.register_multi_grad_hook(tensors, trace.saw("all"))
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
        handle.remove()

    trace.expect(("all", [None, [2.0, 2.0]]), ("all", [[2.0, 2.0], None]))


@rule(
    "multi-grad.any.requires-grad",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[HOOK, observed("the hook is registered on the other tensors")],
    needs=[Capability.MULTI_GRAD],
    mutants=["multi-grad-hook-in-mode-any-refuses-constants", "multi-grad-hook-in-mode-any-refuses-later-constants"],
)
def test_constants_in_mode_any(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in mode any ignores a tensor that does not require grad."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    constant = backend.tensor([3.0, 4.0])
    for tensors in ([constant, x], [x, constant]):
        backend.register_multi_grad_hook(tensors, trace.saw("any"), mode="any")

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

    trace.expect(("any", [2.0, 2.0]), ("any", [2.0, 2.0]))


@rule(
    "multi-grad.return-ignored",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[HOOK, observed("the docstring says nothing of a returned value, and the hook returns None to the engine")],
    needs=[Capability.MULTI_GRAD],
    mutants=["multi-grad-hook-replaces-the-gradient", "multi-grad-hook-replaces-the-last-gradient"],
)
def test_return_is_ignored(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook in either mode may return a tensor, which replaces no gradient."""
    for several in (False, True):
        x, w = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        tensors = [x, w] if several else [x]
        backend.register_multi_grad_hook(tensors, trace.saw("all", lambda grads: grads[0] * 10))
        backend.register_multi_grad_hook(tensors, trace.saw("any", lambda grad: grad * 10), mode="any")

        backend.backward(backend.call(lambda x, w: backend.sum(x * 2 + w * 3), x, w))

        trace.expect_in_any_order("all", "any")
        trace.expect_value("gradients", [[2.0, 2.0], [3.0, 3.0]], [backend.grad_of(leaf) for leaf in (x, w)])


@rule(
    "multi-grad.handle.remove",
    level=Level.MUST,
    sources=[HOOK.sentence(10)],
    needs=[Capability.MULTI_GRAD],
    mutants=[
        "multi-grad-handle-of-the-first-tensor",
        "multi-grad-handle-of-the-last-tensor",
        "multi-grad-hook-handle-removes-the-oldest",
        "multi-grad-hook-stays-that-has-run",
        "any-grad-hook-stays-that-has-run",
        "removal-waits-for-the-end-of-the-pass",
        "multi-grad-handle-forgets-the-second-tensor",
        "multi-grad-handle-forgets-the-third-tensor",
    ],
)
def test_handle(backend: Backend, trace: Trace) -> None:
    """The handle of a multi-grad hook removes it from all of its tensors, whether or not it has run."""
    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([3.0, 4.0], requires_grad=True)

    def passes():
        for each in (a, b):
            backend.backward(backend.call(lambda each: backend.sum(each * 3), each))
        backend.backward(backend.call(lambda a, b: backend.sum(a * 2 + b * 3), a, b))

    def forward(a):
        y = a * 2
        backend.register_multi_grad_hook([y], lambda _: handle.remove(), mode="any")
        return backend.sum(y)

    backend.register_multi_grad_hook([a, b], trace.saw("older"))
    for mode in ("all", "any"):
        backend.register_multi_grad_hook([a, b], trace.saw(mode), mode=mode).remove()
        passes()
        trace.expect("older", "older", "older")

        hook = trace.saw(mode)
        handles = [backend.register_multi_grad_hook([a, b], hook, mode=mode) for _ in range(2)]
        passes()
        trace.expect_in_any_order(*["older", mode, mode] * 3)
        for left in (["older", mode], ["older"]):
            handles.pop().remove()
            passes()
            trace.expect_in_any_order(*left * 3)

        handle = backend.register_multi_grad_hook([a, b], trace.saw(mode), mode=mode)
        backend.backward(backend.call(forward, a))
        trace.expect("older")

        c = backend.tensor([5.0, 6.0], requires_grad=True)
        backend.register_multi_grad_hook([a, b, c], trace.saw(mode), mode=mode).remove()
        for each in (a, b, c):
            backend.backward(backend.call(lambda each: backend.sum(each * 3), each))
        trace.expect("older", "older")


@rule(
    "multi-grad.parameters",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 5, 7, 8)],
    needs=[Capability.MULTI_GRAD, Capability.MODULES],
    mutants=[
        "multi-grad-hook-on-parameter-lost",
        "multi-grad-hook-on-parameters-gets-the-first-gradient-for-all",
        "multi-grad-hook-on-parameters-gets-its-gradients-in-reverse",
    ],
)
def test_parameters(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook on the parameters of a module runs once with their gradients, or in mode any with the first."""

    def adding(factor):
        return backend.module(
            {"first": backend.tensor([3.0, 5.0]), "second": backend.tensor([7.0, 9.0])},
            lambda module, x: x * module.first + x * factor * module.second,
        )

    def run():
        backend.backward(backend.call(lambda: backend.sum(module(backend.tensor([1.0, 2.0])))))

    module = adding(1)
    parameters = [module.first, module.second]
    backend.register_multi_grad_hook(parameters, trace.saw("all"))
    backend.register_multi_grad_hook(parameters, trace.saw("any"), mode="any")
    for _ in range(2):
        run()
        trace.expect(("any", [1.0, 2.0]), ("all", [[1.0, 2.0], [1.0, 2.0]]))

    module, alone, found = adding(3), [], []
    parameters = [module.first, module.second]
    for parameter in parameters:
        backend.register_multi_grad_hook([parameter], lambda grads: alone.append(trace.snapshot(grads[0])))
    backend.register_multi_grad_hook(parameters, trace.saw("all"))
    backend.register_multi_grad_hook(parameters, lambda grad: found.append(trace.snapshot(grad)), mode="any")
    for passes in (1, 2):
        run()
        trace.expect(("all", [[1.0, 2.0], [3.0, 6.0]]))
        trace.expect_value("what each mode any ran with", alone[::2], found)
        trace.expect_value("passes", passes, len(found))
