"""Fully sharded modules: parameters that each rank has a part of, and hooks that put them together."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.ranks import RANKS, number, own_part, part, rows, whole
from hooklaw.rules.sharded import (
    GRADIENTS,
    LAST,
    PARTS,
    VALUES,
    WHOLE,
    add_up_parts,
    gradient,
    is_reduced,
    product,
    run,
    several,
    sharded,
    with_several,
)

FULLY_SHARD = docstring("torch.distributed.fsdp.fully_shard")
MODULE_METHODS = "torch.distributed.fsdp.FSDPModule"
MODULE = "torch.nn.Module"
NEEDS = [Capability.FULLY_SHARD, Capability.MODULES]


class AllReduceHookError(Exception):
    """Raised by an all-reduce hook."""


@rule(
    "fsdp.fully-shard.shards",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(2, 6, 56)],
    needs=NEEDS,
    mutants=[
        "fully-shard-does-nothing",
        "fully-shard-shards-one-parameter",
        "fully-shard-shards-the-last-dimension",
    ],
    processes=RANKS,
)
def test_shards(backend: Backend, trace: Trace) -> None:
    """Sharding a module changes it in place: each rank has its own part of the rows of each parameter."""
    matrix = [[value, 10 * value] for value in VALUES]
    given = {"weight": VALUES, "matrix": matrix, "uneven": [*VALUES, 6.0], "other": [10 * value for value in VALUES]}
    for _ in range(2):
        module = backend.module({name: backend.tensor(values) for name, values in given.items()}, lambda _, x: x)
        backend.fully_shard(module)

        for name, values in given.items():
            parameter = getattr(module, name)
            trace.expect_value(f"{name} is sharded", True, backend.is_sharded(parameter))  # noqa: FBT003
            trace.expect_value(f"all parts of {name}", values, whole(backend, parameter))
        for name in ("weight", "matrix", "other"):
            own = own_part(backend, given[name])
            trace.expect_value(f"the rank's part of {name}", own, part(backend, getattr(module, name)))


@rule(
    "fsdp.fully-shard.hooks",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(3, 4, 7, 37)],
    needs=[*NEEDS, Capability.MODULE_FORWARD],
    mutants=[
        "fully-shard-drops-keyword-arguments",
        "fully-shard-does-nothing",
        "fully-shard-gathers-in-forward-itself",
        "fully-shard-gathers-zeros",
        "fully-shard-gathers-one-parameter",
        "fully-shard-never-reshards",
        "fully-shard-gathers-two-parameters",
    ],
    processes=RANKS,
)
def test_hooks(backend: Backend, trace: Trace) -> None:
    """With reshard_after_forward=True the parameters of a sharded module are whole in its forward, and not after it.

    A forward pre-hook puts the parameters together, so a call of forward alone, which runs no hooks, sees the parts.
    """

    def forward(module, x, when=""):
        for each in several(module):
            trace.log(f"in forward{when}", "a part" if backend.is_sharded(each) else backend.detach(each))
        return x

    for _ in range(2):
        module, expected = with_several(backend, forward, reshard_after_forward=True), VALUES
        for _ in range(3):
            backend.call(lambda x, module=module: module(x, when=" of a call"), rows(backend))
            trace.expect(*[("in forward of a call", values) for values in (expected, [1.0], LAST)])
            are_sharded = [backend.is_sharded(each) for each in several(module)]
            trace.expect_value("sharded after forward", [True] * 3, are_sharded)
            expected = add_up_parts(backend, module, expected)
        backend.forward(module, rows(backend))
        trace.expect(*[("in forward", "a part")] * 3)


@rule(
    "fsdp.fully-shard.backward",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(4, 5, 8)],
    needs=NEEDS,
    mutants=[
        "fully-shard-gathers-zeros-in-backward",
        "fully-shard-never-reshards-after-backward",
        "fully-shard-without-reshard-stays-whole",
        "fully-shard-gathers-two-parameters-in-backward",
        "fully-shard-gathers-zeros-in-backward-from-a-container",
    ],
    processes=RANKS,
)
def test_backward(backend: Backend, trace: Trace) -> None:
    """Backward through a fully sharded module computes with its whole parameters, and leaves them sharded.

    It does so whatever forward left: only that depends on reshard_after_forward. The output may be in a container.
    """
    forwards = ((product, lambda x: x), (lambda *given: {"outputs": [product(*given)]}, lambda x: x["outputs"][0]))
    modules = [
        (with_several(backend, forward, reshard_after_forward=reshard), output_of)
        for forward, output_of in forwards
        for reshard in (True, False)
    ]
    for module, output_of in modules * 3:
        x = backend.tensor([number(backend)] * len(VALUES), requires_grad=True)
        backend.backward(backend.sum(output_of(backend.call(module, x))))
        expected = [value * last for value, last in zip(VALUES, LAST, strict=True)]
        trace.expect_value("x.grad", expected, backend.grad_of(x))
        are_sharded = [backend.is_sharded(each) for each in several(module)]
        trace.expect_value("sharded after backward", [True] * 3, are_sharded)


@rule(
    "fsdp.fully-shard.gradients",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(5, 8), docstring("torch.Tensor.backward").sentence(5)],
    needs=[*NEEDS, Capability.GRAD_MODE],
    mutants=[
        "fully-shard-reduces-nothing",
        "fully-shard-does-nothing",
        "fully-shard-reduces-one-parameter",
        "fully-shard-keeps-the-last-gradient",
        "fully-shard-reduces-two-parameters",
        "fully-shard-reduces-nothing-after-no-grad",
    ],
    processes=RANKS,
)
def test_gradients(backend: Backend, trace: Trace) -> None:
    """After a backward with gradient sync on, a fully sharded parameter has its part of the gradient, reduced over all.

    Passes accumulate, as in any leaf, and an evaluation in no_grad before makes no difference. Whether the sum is
    divided is not said, so both are accepted.
    """
    size = backend.get_world_size()
    total = size * (size + 1) / 2
    for _ in range(2):
        module, first = with_several(backend), {}
        for passes, evaluations in ((1, 0), (2, 1), (3, 0)):
            with backend.no_grad():
                for _ in range(evaluations):
                    backend.call(module, rows(backend))
            run(backend, module)
            for name, of_one in GRADIENTS.items():
                grad = backend.grad_of(getattr(module, name))
                trace.expect_value(f"{name}.grad is sharded", True, backend.is_sharded(grad))  # noqa: FBT003
                seen = backend.tolist(whole(backend, grad))
                either = [[factor * value for value in of_one] for factor in (total, total / size)]
                once = first.setdefault(name, seen)
                trace.expect_value(f"{name}.grad is the sum or the mean at first", True, once in either)  # noqa: FBT003
                trace.expect_value(f"{name}.grad", [passes * value for value in once], seen)


@rule(
    "fsdp.fully-shard.gradients-averaged",
    level=Level.SHOULD,
    sources=[observed("the sum over the ranks is divided by their number")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=["fully-shard-reduces-nothing", "fully-shard-sums"],
    processes=RANKS,
)
def test_gradients_averaged(backend: Backend, trace: Trace) -> None:
    """The gradient of a fully sharded parameter is the mean over the ranks."""
    for _ in range(2):
        module = with_several(backend)
        for passes in (1, 2, 3):
            run(backend, module)
            for name, of_one in GRADIENTS.items():
                expected = [passes * 1.5 * value for value in of_one]
                grad = whole(backend, backend.grad_of(getattr(module, name)))
                trace.expect_value(f"{name}.grad", expected, grad)


@rule(
    "fsdp.fully-shard.reshard-after-forward.false",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(30, 37)],
    needs=NEEDS,
    mutants=["fully-shard-always-reshards", "fully-shard-without-reshard-keeps-one-parameter"],
    processes=RANKS,
)
def test_no_reshard(backend: Backend, trace: Trace) -> None:
    """With reshard_after_forward=False the parameters of a fully sharded module are whole after forward."""
    for _ in range(2):
        module = with_several(backend, reshard_after_forward=False)
        for with_backward in (False, True, True):
            outputs = backend.call(module, rows(backend))
            for name, values in WHOLE.items():
                parameter = getattr(module, name)
                trace.expect_value(f"{name} is sharded after forward", False, backend.is_sharded(parameter))  # noqa: FBT003
                trace.expect_value(f"{name} after forward", values, backend.detach(parameter))
            if with_backward:
                backend.backward(backend.sum(outputs))


@rule(
    "fsdp.fully-shard.groups",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(10)],
    needs=[*NEEDS, Capability.MODULE_PARTS],
    mutants=[
        "fully-shard-gathers-all-groups",
        "fully-shard-never-reshards",
        "fully-shard-leaves-submodules",
        "fully-shard-leaves-deeper-submodules",
        "fully-shard-gathers-all-groups-but-the-first",
        "fully-shard-gathers-shared-parameters-in-one-place",
    ],
    processes=RANKS,
)
def test_groups(backend: Backend, trace: Trace) -> None:
    """Parameters of a submodule that was sharded before are a group of their own; forward has them whole only there.

    Those of a submodule that was not are in the module's group; one that is there twice is whole in both places.
    """

    def state(name, module) -> None:
        trace.log(name, backend.is_sharded(module.weight) or backend.detach(module.weight))

    def inner(name) -> Any:
        def forward(module, x):
            state(f"{name} in its forward", module)
            return x * module.weight

        return sharded(backend, forward, reshard_after_forward=True)

    def forward(module, x):
        state("own", module)
        state("plain", module.plain)
        state("below", module.plain.below)
        state("shared", module.plain.below.shared)
        state("first", module.first)
        state("second", module.second)
        between = module.first(x * module.weight)
        state("first afterwards", module.first)
        result = module.second(between)
        state("second afterwards", module.second)
        return result

    for _ in range(2):
        module = backend.module({"weight": backend.tensor(VALUES)}, forward)
        plain, below, shared = (backend.module({"weight": backend.tensor(VALUES)}, lambda _, x: x) for _ in range(3))
        shared.weight = module.weight
        backend.add_module(below, "shared", shared)
        backend.add_module(plain, "below", below)
        for name in ("first", "second"):
            backend.add_module(module, name, inner(name))
        backend.add_module(module, "plain", plain)
        backend.fully_shard(module)
        for each in (plain, below, shared):
            trace.expect_value("plain submodule's weight is sharded", True, backend.is_sharded(each.weight))  # noqa: FBT003
        for _ in range(3):
            backend.call(module, rows(backend))
            trace.expect(
                *[(name, VALUES) for name in ("own", "plain", "below", "shared")],
                *[(name, True) for name in ("first", "second")],
                ("first in its forward", VALUES),
                ("first afterwards", True),
                ("second in its forward", VALUES),
                ("second afterwards", True),
            )


@rule(
    "fsdp.fully-shard.ignored-params",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(51, 52)],
    needs=NEEDS,
    mutants=[
        "fully-shard-ignores-nothing",
        "fully-shard-ignores-one-parameter",
        "fully-shard-ignores-no-parameter-of-submodules",
    ],
    processes=RANKS,
)
def test_ignored_params(backend: Backend, trace: Trace) -> None:
    """A parameter in ignored_params is not sharded, and its gradient is that of the rank alone."""
    for _ in range(2):
        inner = backend.module({"scale": backend.tensor([1.0])}, lambda module, x: x * module.scale)
        weights = {"weight": backend.tensor(VALUES), "scale": backend.tensor([1.0])}
        module = backend.module(weights, lambda module, x: module.inner(x) * module.weight * module.scale)
        module.inner = inner
        ignored = {module.scale, inner.scale}
        backend.fully_shard(module, ignored_params=ignored)
        are_sharded = [backend.is_sharded(each) for each in (module.scale, inner.scale, module.weight)]
        trace.expect_value("sharded", [False, False, True], are_sharded)

        for passes in (1, 2, 3):
            run(backend, module)
            expected = [passes * 40 * number(backend)]
            trace.expect_value("scale.grad", expected, backend.grad_of(module.scale))
            trace.expect_value("inner scale.grad", expected, backend.grad_of(inner.scale))


@rule(
    "fsdp.unshard-reshard",
    level=Level.MUST,
    sources=[
        docstring(f"{MODULE_METHODS}.unshard").sentence(1),
        docstring(f"{MODULE_METHODS}.reshard").sentence(1),
    ],
    needs=NEEDS,
    mutants=["unshard-does-nothing", "reshard-does-nothing", "unshard-does-nothing-once-forward-ran"],
    processes=RANKS,
)
def test_unshard_reshard(backend: Backend, trace: Trace) -> None:
    """The parameters of a fully sharded module are whole after unshard, with all values, and parts after reshard."""
    for _ in range(2):
        module, expected = with_several(backend, lambda _, x: x), VALUES
        for _ in range(3):
            backend.unshard(module)
            for name, values in {**WHOLE, "weight": expected}.items():
                parameter = getattr(module, name)
                trace.expect_value(f"{name} is sharded after unshard", False, backend.is_sharded(parameter))  # noqa: FBT003
                trace.expect_value(name, values, backend.detach(parameter))

            backend.reshard(module)
            are_sharded = [backend.is_sharded(each) for each in several(module)]
            trace.expect_value("sharded after reshard", [True] * 3, are_sharded)
            trace.expect_value("the rank's part of weight", own_part(backend, expected), part(backend, module.weight))
            expected = add_up_parts(backend, module, expected)

            backend.call(module, rows(backend))
            backend.reshard(module)
            are_sharded = [backend.is_sharded(each) for each in several(module)]
            trace.expect_value("sharded after forward and reshard", [True] * 3, are_sharded)


@rule(
    "fsdp.no-gradient-sync",
    level=Level.MUST,
    sources=[docstring(f"{MODULE_METHODS}.set_requires_gradient_sync").sentence(1, 2, 6)],
    needs=[*NEEDS, Capability.MODULE_PARTS],
    mutants=[
        "gradient-sync-always",
        "gradient-sync-never-again",
        "gradient-sync-set-for-the-outermost-alone",
        "gradient-sync-set-for-the-first-submodule-alone",
        "gradient-sync-set-for-the-last-submodule-alone",
        "gradient-sync-set-for-children-alone",
        "gradient-sync-lasts-for-one-pass",
        "gradient-sync-reduces-what-accumulated-a-pass-late",
    ],
    processes=RANKS,
)
def test_no_gradient_sync(backend: Backend, trace: Trace) -> None:
    """Passes without gradient sync reduce nothing; the first pass with it reduces what has accumulated since.

    It is set for all fully sharded submodules too: that is the default of `recurse`.
    """

    def nested() -> list[Any]:
        weight = backend.tensor(VALUES)
        outer = backend.module({"weight": weight}, lambda module, x: module.second(module.first(x)) * module.weight)
        backend.add_module(outer, "first", sharded(backend))
        second = backend.module({"weight": backend.tensor(VALUES)}, lambda module, x: module.third(x) + module.weight)
        backend.add_module(second, "third", sharded(backend, lambda module, x: x + module.weight))
        backend.add_module(outer, "second", backend.fully_shard(second))
        backend.fully_shard(outer)
        return [outer, outer.first, second, second.third]

    others = nested()
    run(backend, others[0])
    once = [gradient(backend, each) for each in others]
    for modules in (nested(), nested()):
        for round_ in ((False, False, True), (False, True, True)):
            for each in modules:
                backend.set_grad(each.weight, None)
            for passes, requires_sync in enumerate(round_, 1):
                backend.set_requires_gradient_sync(modules[0], requires_gradient_sync=requires_sync)
                run(backend, modules[0])
                reduced = [is_reduced(backend, each) for each in modules]
                trace.expect_value(f"reduced with requires_gradient_sync={requires_sync}", [requires_sync] * 4, reduced)
                expected = [[passes * value for value in each] for each in once]
                seen = [gradient(backend, each) for each in modules] if requires_sync else expected
                trace.expect_value("weight.grad", expected, seen)
                for each in others:
                    backend.set_grad(each.weight, None)
                run(backend, others[0])
                trace.expect_value("other modules", once, [gradient(backend, each) for each in others])

            run(backend, modules[0])
            expected = [[4 * value for value in each] for each in once]
            trace.expect_value("weight.grad", expected, [gradient(backend, each) for each in modules])


@rule(
    "fsdp.all-reduce-hook",
    level=Level.MUST,
    sources=[docstring(f"{MODULE_METHODS}.set_all_reduce_hook").sentence(1)],
    needs=[*NEEDS, Capability.IN_PLACE],
    mutants=[
        "all-reduce-hook-ignored",
        "all-reduce-hook-before-reduction",
        "all-reduce-hook-on-a-copy",
    ],
    except_under=PARTS,
    processes=RANKS,
)
def test_all_reduce_hook(backend: Backend, trace: Trace) -> None:
    """In each pass the all-reduce hook is called with the reduced gradient of the rank's part, which it may change.

    The hook stands for an all-reduce, and returns None, so what it does to its argument is what it does.
    A division after the hook is left open, so the hook may see a multiple of the gradient, the same in all ranks.
    """
    module, again, other = (sharded(backend) for _ in range(3))
    run(backend, other)
    own = backend.tolist(part(backend, backend.grad_of(other.weight)))
    multiples: list[Any] = []

    def hook(reduced):
        seen = backend.tolist(reduced)
        multiples.append(seen[0] / own[0])
        trace.log("hook", [value / multiples[-1] for value in seen])
        backend.mul_(reduced, 10.0)

    for each in (module, again):
        backend.set_all_reduce_hook(each, hook)
        for _ in range(3):
            backend.set_grad(each.weight, None)
            run(backend, each)
            trace.expect(("hook", own))
            changed = [10 * value for value in own]
            trace.expect_value("the part", changed, part(backend, backend.grad_of(each.weight)))
    of_all = backend.tensor(multiples)
    backend.all_reduce(of_all)
    trace.expect_value("the sum of the multiples of all ranks", [RANKS * each for each in multiples], of_all)


@rule(
    "fsdp.all-reduce-hook.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the hook runs in backward, whose caller gets its error")],
    needs=[*NEEDS, Capability.IN_PLACE],
    mutants=["all-reduce-hook-error-swallowed"],
    except_under=PARTS,
    processes=RANKS,
)
def test_all_reduce_hook_exception(backend: Backend, trace: Trace) -> None:
    """An error of an all-reduce hook reaches the caller of backward, and the hook of another module still works."""

    def fail(_reduced):
        raise AllReduceHookError("from the hook")

    def hook(reduced):
        trace.log("hook")
        backend.mul_(reduced, 10.0)

    module, plain = sharded(backend), sharded(backend)
    run(backend, plain)
    backend.set_all_reduce_hook(module, hook)
    for _ in range(2):
        failing = sharded(backend)
        backend.set_all_reduce_hook(failing, fail)
        with trace.raises_type(AllReduceHookError, "from the hook"):
            run(backend, failing)

        backend.set_grad(module.weight, None)
        run(backend, module)
        trace.expect("hook")
        expected = [10 * value for value in gradient(backend, plain)]
        trace.expect_value("weight.grad of another module", expected, gradient(backend, module))


@rule(
    "fsdp.fully-shard.module-hooks",
    level=Level.MUST,
    sources=[
        docstring(f"{MODULE}.register_forward_pre_hook").sentence(2, 5),
        docstring(f"{MODULE}.register_forward_hook").sentence(2, 5),
        docstring(f"{MODULE}.register_full_backward_hook").sentence(2, 8),
    ],
    needs=[*NEEDS, Capability.MODULE_BACKWARD_HOOKS],
    mutants=[
        "fully-shard-drops-module-hooks",
        "fully-shard-ignores-later-module-hooks",
        "fully-shard-keeps-one-module-hook-of-each-kind",
        "fully-shard-ignores-what-module-hooks-return",
    ],
    processes=RANKS,
)
def test_module_hooks(backend: Backend, trace: Trace) -> None:
    """The forward pre-hooks, forward hooks and full backward hooks of a fully sharded module run once in each pass.

    What they return is used. It makes no difference whether they are registered before or after the module is sharded.
    """

    def register(module, when):
        def hook(label, *doubled: Any):
            trace.log(f"{label}, {when}")
            return tuple(each * 2 for each in doubled) if when in ("before", "after") else None

        backend.register_forward_pre_hook(module, lambda _, inputs: hook("forward pre-hook", *inputs))
        backend.register_forward_hook(module, lambda *given: (hook("forward hook", given[2]) or [None])[0])
        backend.register_full_backward_hook(module, lambda _, grads, __: hook("full backward hook", *grads))

    times = ("before", "before too", "after", "after too")
    for _ in range(2):
        module = backend.module({"weight": backend.tensor(VALUES)}, lambda module, x: x * module.weight)
        for when in times[:2]:
            register(module, when)
        backend.fully_shard(module)
        for when in times[2:]:
            register(module, when)
        for _ in range(3):
            x = backend.tensor([number(backend)] * len(VALUES), requires_grad=True)
            backend.backward(backend.sum(backend.call(module, x)))
            hooks = ("forward pre-hook", "forward hook", "full backward hook")
            trace.expect_in_any_order(*[f"{hook}, {when}" for hook in hooks for when in times])
            trace.expect_value("x.grad", [64 * value for value in VALUES], backend.grad_of(x))


@rule(
    "fsdp.fully-shard.post-accumulate-hooks",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(2), FULLY_SHARD.sentence(5)],
    needs=[*NEEDS, Capability.POST_ACCUMULATE],
    mutants=["fully-shard-drops-post-accumulate-hooks"],
    processes=RANKS,
)
def test_post_accumulate_hooks(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook on a fully sharded parameter runs once in each pass, and .grad is reduced then.

    It runs after .grad has been updated, and .grad of a sharded parameter is updated with the reduced gradient.
    """
    for _ in range(2):
        module = with_several(backend)
        seen: dict[str, list[Any]] = {name: [] for name in WHOLE}
        for name in [*WHOLE] * 2:

            def hook(parameter, seen=seen[name]):
                seen.append(whole(backend, backend.grad_of(parameter)))

            backend.register_post_accumulate_grad_hook(getattr(module, name), hook)
        for _ in range(3):
            for name in WHOLE:
                backend.set_grad(getattr(module, name), None)
                seen[name].clear()
            run(backend, module)
            for name in WHOLE:
                grad = backend.tolist(whole(backend, backend.grad_of(getattr(module, name))))
                trace.expect_value(f"what two hooks of {name} saw", [grad] * 2, seen[name])


@rule(
    "fsdp.fully-shard.tensor-hooks",
    level=Level.MAY,
    sources=[observed("autograd computes the gradient of the whole parameter, which is another tensor")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_tensor_hooks(backend: Backend, trace: Trace) -> None:
    """A tensor hook on a fully sharded parameter does not run in a backward through its module."""
    module = sharded(backend)
    backend.register_hook(module.weight, lambda _: trace.log("hook"))
    for _ in range(2):
        run(backend, module)
        trace.expect()


@rule(
    "fsdp.fully-shard.multi-grad-hook",
    level=Level.MAY,
    sources=[observed("no gradient of the sharded parameter is computed, and nothing is said")],
    needs=[*NEEDS, Capability.MULTI_GRAD],
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_multi_grad_hooks(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook on fully sharded parameters does not run in a backward through their module."""
    module = sharded(backend)
    backend.register_multi_grad_hook([module.weight], lambda _: trace.log("hook"))
    for _ in range(2):
        run(backend, module)
        trace.expect()
