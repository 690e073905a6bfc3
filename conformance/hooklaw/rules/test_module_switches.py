"""Switches of a module: evaluation mode, requires_grad_ and zero_grad, which reach its submodules."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule

EVALUATION = notes("autograd", "evaluation-mode-nn-module-eval")
INFERENCE = docstring("torch.autograd.grad_mode.inference_mode")
REQUIRES_GRAD = docstring("torch.nn.Module.requires_grad_")
ZERO_GRAD = docstring("torch.nn.Module.zero_grad")
REGISTER_HOOK = docstring("torch.Tensor.register_hook")
POST_ACCUMULATE = docstring("torch.Tensor.register_post_accumulate_grad_hook")
NEEDS = [Capability.MODULES, Capability.MODULE_SWITCHES]


def nested(backend: Backend) -> list[Any]:
    """Return a module, its submodule and the submodule of this; each scales what the next returns by two parameters."""
    modules: list[Any] = []
    for number in (7.0, 3.0, 5.0):
        parameters = {"weight": backend.tensor([number]), "unit": backend.tensor([1.0])}
        outer = backend.module(
            parameters,
            lambda module, x: (module.inner(x) if hasattr(module, "inner") else x) * module.weight * module.unit,
        )
        if modules:
            backend.add_module(outer, "inner", modules[0])
        modules.insert(0, outer)
    return modules


def parameters_of(modules: list[Any]) -> list[Any]:
    """Return the parameters of modules."""
    return [parameter for module in modules for parameter in (module.weight, module.unit)]


FIRST_CHILD = (1, 4, 5, 6)
"""Where the first child of a tree is among its modules, and the children of this one."""


def tree(backend: Backend) -> list[Any]:
    """Return a module, its three children, and the three children of each of these; each has one parameter."""
    outer, *inside = (backend.module({"weight": backend.tensor([3.0])}, lambda _module, x: x) for _ in range(13))
    for nr, module in enumerate(inside):
        backend.add_module(outer if nr < 3 else inside[nr // 3 - 1], f"child_{nr}", module)
    return [outer, *inside]


@rule(
    "module.evaluation-mode.records",
    level=Level.MUST,
    sources=[EVALUATION.sentence(1)],
    needs=NEEDS,
    mutants=["evaluation-mode-turns-grad-mode-off"],
)
def test_evaluation(backend: Backend, trace: Trace) -> None:
    """Evaluation mode turns no gradients off: what a module computes in it is recorded, and backward reaches it."""
    outer, *_ = modules = nested(backend)
    backend.train(outer, mode=False)
    x = backend.tensor([2.0], requires_grad=True)
    backend.backward(backend.call(lambda x: backend.sum(outer(x)), x))

    trace.expect_value("x.grad", [105.0], backend.grad_of(x))
    found = [backend.grad_of(module.weight) for module in modules]
    trace.expect_value("gradients of the parameters", [[42.0], [70.0], [30.0]], found)


@rule(
    "module.evaluation-mode.no-grad",
    level=Level.MUST,
    sources=[EVALUATION.sentence(3), INFERENCE.sentence(12)],
    needs=[*NEEDS, Capability.GRAD_MODE, Capability.INFERENCE_MODE],
    mutants=[
        "evaluation-mode-turns-grad-mode-on",
        "grad-modes-are-evaluation-modes",
        "switches-stop-at-a-module",
        "leaving-no-grad-restores-the-training-mode",
        "leaving-inference-mode-restores-the-training-mode",
        "training-mode-changed-in-no-grad-leaves-it-on",
    ],
)
def test_orthogonal(backend: Backend, trace: Trace) -> None:
    """Neither no_grad nor inference_mode changes a module's training mode, and neither training mode changes them."""
    outer, *_ = modules = nested(backend)
    for name in ("first", "second", "third"):
        modules.append(backend.module({}, lambda _module, x: x))
        backend.add_module(outer, name, modules[-1])
    x = backend.tensor([2.0], requires_grad=True)
    for training, how in ((False, {"mode": False}), (True, {})):
        for context in (backend.no_grad, backend.inference_mode):
            backend.train(outer, **how)
            with context():
                inside = [backend.is_training(module) for module in modules]
                outputs = [backend.call(outer, x)]
                backend.train(outer, mode=not training)
                changed = [backend.is_training(module) for module in modules]
                outputs.append(backend.call(outer, x))
            changed += [backend.is_training(module) for module in modules]
            outputs.append(backend.call(outer, x))
            trace.expect_value("training, inside and after", [training] * 6 + [not training] * 12, [*inside, *changed])
            requires_grad = [backend.requires_grad(output) for output in outputs]
            trace.expect_value("requires grad, inside and after", [False, False, True], requires_grad)


@rule(
    "module.requires-grad",
    level=Level.MUST,
    sources=[REQUIRES_GRAD.sentence(1, 2, 5, 6, 7)],
    needs=NEEDS,
    mutants=[
        "switches-stop-at-a-module",
        "requires-grad-of-a-module-returns-nothing",
        "thawing-a-module-thaws-nothing",
        "requires-grad-of-a-module-reaches-the-first-parameter",
        "requires-grad-of-a-module-reaches-the-last-parameter",
        "requires-grad-of-a-module-reaches-those-around-it",
        "requires-grad-of-a-module-reaches-its-parent",
        "requires-grad-of-a-module-is-toggled",
    ],
)
def test_requires_grad(backend: Backend, trace: Trace) -> None:
    """requires_grad_ of a module sets requires_grad of all its parameters, those of submodules too, and returns it."""
    for _ in range(3):
        outer, *_ = modules = nested(backend)
        x = backend.tensor([2.0], requires_grad=True)
        returned = [backend.module_requires_grad_(outer, requires_grad=False) is outer]
        backend.backward(backend.call(lambda x, outer=outer: backend.sum(outer(x)), x))
        frozen = [backend.grad_of(parameter) for parameter in parameters_of(modules)]
        returned.append(backend.module_requires_grad_(outer) is outer)
        backend.backward(backend.call(lambda x, outer=outer: backend.sum(outer(x)), x))
        thawed = [backend.grad_of(parameter) for parameter in parameters_of(modules)]

        trace.expect_value("returns the module", [True, True], returned)
        trace.expect_value("gradients with requires_grad=False", [None] * 6, frozen)
        trace.expect_value("gradients by default", [[42.0], [210.0], [70.0], [210.0], [30.0], [210.0]], thawed)

    modules = tree(backend)
    for flag, options in ((False, {"requires_grad": False}), (True, {})):
        for _ in range(2):
            backend.module_requires_grad_(modules[0], **options)
            found = [backend.requires_grad(module.weight) for module in modules]
            trace.expect_value("of all children and their children", [flag] * 13, found)
    backend.module_requires_grad_(modules[1], requires_grad=False)
    inside = [nr in FIRST_CHILD for nr in range(13)]
    found = [not backend.requires_grad(module.weight) for module in modules]
    trace.expect_value("frozen with the first child", inside, found)


@rule(
    "module.requires-grad.in-place",
    level=Level.MUST,
    sources=[REQUIRES_GRAD.sentence(2)],
    needs=NEEDS,
    mutants=["freezing-a-module-makes-new-parameters", "thawing-a-module-makes-new-parameters"],
)
def test_in_place(backend: Backend, trace: Trace) -> None:
    """requires_grad_ of a module changes the parameters themselves, and puts no others in their place."""
    modules = nested(backend)
    before = parameters_of(modules)
    for flag in (False, True, False):
        backend.module_requires_grad_(modules[0], requires_grad=flag)

        same = [now is then for now, then in zip(parameters_of(modules), before, strict=True)]
        trace.expect_value("the same parameters", [True] * 6, same)
        trace.expect_value("require grad", [flag] * 6, [backend.requires_grad(parameter) for parameter in before])


@rule(
    "module.zero-grad",
    level=Level.MUST,
    sources=[ZERO_GRAD.sentence(1, 3)],
    needs=NEEDS,
    mutants=[
        "zero-grad-stops-at-a-module",
        "module-zero-grad-set-to-none-set-always",
        "module-zero-grad-set-to-none-set-by-its-absence",
        "zero-grad-of-a-module-skips-frozen-parameters",
        "zero-grad-of-a-module-reaches-the-first-parameter",
        "zero-grad-of-a-module-reaches-the-last-parameter",
        "zero-grad-of-a-module-reaches-those-around-it",
        "zero-grad-of-a-module-fails-at-a-missing-gradient",
        "zero-grad-of-a-module-stops-at-a-missing-gradient",
    ],
)
def test_zero_grad(backend: Backend, trace: Trace) -> None:
    """zero_grad of a module sets the gradients of all its parameters to None, and to zeros with set_to_none=False.

    So it does if other parameters have no gradient.
    """
    zeros = ({"set_to_none": False}, [0.0])
    for options, left in (zeros, ({"set_to_none": True}, None), ({}, None), zeros, ({}, None), zeros):
        modules = nested(backend)
        for parameter in parameters_of(modules):
            backend.set_grad(parameter, backend.tensor([1.0]))
        backend.module_requires_grad_(modules[1], requires_grad=False)
        backend.module_zero_grad(modules[0], **options)

        trace.expect_value(f"with {options}", [left] * 6, list(map(backend.grad_of, parameters_of(modules))))

    for options, left in (zeros, ({}, None)):
        modules = tree(backend)
        for module in modules:
            backend.set_grad(module.weight, backend.tensor([1.0]))
        backend.module_zero_grad(modules[1], **options)
        found = [backend.grad_of(module.weight) for module in modules]
        expected = [left if nr in FIRST_CHILD else [1.0] for nr in range(13)]
        trace.expect_value("after zero_grad of the first child", expected, found)

        backend.module_zero_grad(modules[0], **options)
        found = [backend.grad_of(module.weight) for module in modules]
        trace.expect_value("of all children and their children", [left] * 13, found)

    for options, left in (zeros, ({}, None)):
        modules = nested(backend)
        for module in modules:
            backend.set_grad(module.unit, backend.tensor([1.0]))
        backend.module_zero_grad(modules[0], **options)
        found = [backend.grad_of(module.unit) for module in modules]
        trace.expect_value("beside parameters without a gradient", [left] * 3, found)


def hooked_parameter(backend: Backend, trace: Trace) -> Any:
    """Return a module whose parameter has hooks, two of each kind."""
    module = backend.module({"weight": backend.tensor([3.0])}, lambda module, x: x * module.weight)
    for _ in range(2):
        backend.register_hook(module.weight, trace.saw("tensor hook"))
        backend.register_post_accumulate_grad_hook(module.weight, lambda _: trace.log("post-accumulate-grad hook"))
    return module


@rule(
    "module.requires-grad.hooks",
    level=Level.MUST,
    sources=[REQUIRES_GRAD.sentence(1), REGISTER_HOOK.sentence(2), POST_ACCUMULATE.sentence(2)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS, Capability.POST_ACCUMULATE],
    mutants=[
        "freezing-a-module-drops-hooks",
        "freezing-a-module-drops-hooks-of-later-parameters",
        "freezing-a-module-drops-hooks-of-submodules",
        "thawing-a-module-drops-hooks-of-submodules",
    ],
)
def test_hooks_of_a_thawed_module(backend: Backend, trace: Trace) -> None:
    """The hooks of a module's parameters run once requires_grad_ has frozen the module and thawed it again."""
    module = hooked_parameter(backend, trace)
    for _ in range(3):
        for flag in (False, True):
            backend.module_requires_grad_(module, requires_grad=flag)
        backend.backward(backend.call(lambda x: backend.sum(module(x)), backend.tensor([2.0])))
        trace.expect(*["tensor hook"] * 2, *["post-accumulate-grad hook"] * 2)

    outer, *_ = modules = nested(backend)
    for parameter in parameters_of(modules):
        backend.register_hook(parameter, trace.saw("tensor hook"))
        backend.register_post_accumulate_grad_hook(parameter, lambda _: trace.log("post-accumulate-grad hook"))
    for _ in range(2):
        for flag in (False, True):
            backend.module_requires_grad_(outer, requires_grad=flag)
        backend.backward(backend.call(lambda x: backend.sum(outer(x)), backend.tensor([2.0])))
        trace.expect_in_any_order(*["tensor hook"] * 6, *["post-accumulate-grad hook"] * 6)


@rule(
    "module.zero-grad.hooks",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("zero_grad of a module runs no hook")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS, Capability.POST_ACCUMULATE],
    mutants=["zero-grad-of-a-module-runs-tensor-hooks", "zero-grad-of-a-module-runs-post-accumulate-hooks"],
)
def test_zero_grad_runs_no_hooks(backend: Backend, trace: Trace) -> None:
    """zero_grad of a module may reset gradients without running any tensor hook or post-accumulate-grad hook."""
    module = hooked_parameter(backend, trace)
    for options in ({"set_to_none": False}, {}, {"set_to_none": True}):
        backend.set_grad(module.weight, backend.tensor([1.0]))

        backend.module_zero_grad(module, **options)

        trace.expect()
