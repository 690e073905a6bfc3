"""Optimizer hooks: around the step, and around saving and loading the state."""

from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule

PRE = docstring("torch.optim.Optimizer.register_step_pre_hook")
POST = docstring("torch.optim.Optimizer.register_step_post_hook")
STATE = docstring("torch.optim.Optimizer.register_state_dict_pre_hook")
STATE_POST = docstring("torch.optim.Optimizer.register_state_dict_post_hook")
LOAD_PRE = docstring("torch.optim.Optimizer.register_load_state_dict_pre_hook")
LOAD_POST = docstring("torch.optim.Optimizer.register_load_state_dict_post_hook")
NEEDS = [Capability.OPTIMIZERS]


def prepared(backend: Backend) -> tuple[Any, Any]:
    """Make a parameter with a gradient of ones, and an optimizer that subtracts the gradient."""
    x = backend.tensor([5.0], requires_grad=True)
    backend.set_grad(x, backend.tensor([1.0]))
    return x, backend.sgd([x], lr=1.0)


@rule(
    "optim.step-pre.before",
    level=Level.MUST,
    sources=[PRE],
    needs=NEEDS,
    mutants=["step-hooks-change-places"],
)
def test_before(backend: Backend, trace: Trace) -> None:
    """A step pre-hook runs before the optimizer's step, with the optimizer and the arguments of the step."""
    x, optimizer = prepared(backend)

    def hook(given, args, kwargs):
        trace.log("hook", [given is optimizer, isinstance(args, tuple), kwargs == {}, x])

    backend.register_step_pre_hook(optimizer, hook)
    backend.step(optimizer)

    trace.expect(("hook", [True, True, True, [5.0]]))
    trace.expect_value("parameter", [4.0], x)


@rule(
    "optim.step-post.after",
    level=Level.MUST,
    sources=[POST],
    needs=NEEDS,
    mutants=["step-hooks-change-places"],
)
def test_after(backend: Backend, trace: Trace) -> None:
    """A step post-hook runs after the optimizer's step, with the optimizer and the arguments of the step."""
    x, optimizer = prepared(backend)
    backend.register_step_post_hook(optimizer, lambda given, *_: trace.log("hook", [given is optimizer, x]))

    backend.step(optimizer)

    trace.expect(("hook", [True, [4.0]]))


@rule(
    "optim.step-pre.modify",
    level=Level.MUST,
    sources=[PRE],
    needs=NEEDS,
    mutants=["return-of-a-step-hook-ignored"],
)
def test_changes_arguments(backend: Backend, trace: Trace) -> None:
    """A step pre-hook may return new arguments for the optimizer's step."""
    _, optimizer = prepared(backend)

    def closure():
        trace.log("closure of the hook")
        return backend.tensor(0.0)

    backend.register_step_pre_hook(optimizer, lambda _, args, kwargs: (args, {**kwargs, "closure": closure}))
    backend.step(optimizer)

    trace.expect("closure of the hook")


@rule(
    "optim.step-pre.modify.wrong-return",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that such a hook returns None or both kinds of arguments")],
    needs=NEEDS,
    mutants=["return-of-a-step-hook-ignored"],
)
def test_wrong_return(backend: Backend, trace: Trace) -> None:
    """A step pre-hook that returns anything but None or (args, kwargs) is an error."""
    _, optimizer = prepared(backend)
    backend.register_step_pre_hook(optimizer, lambda *_: 1)

    with trace.raises(ErrorKind.STEP_HOOK_RETURN):
        backend.step(optimizer)


@rule(
    "optim.step-pre.args-self",
    level=Level.MAY,
    sources=[PRE],
    needs=NEEDS,
)
def test_first_argument(backend: Backend, trace: Trace) -> None:
    """The args that a step pre-hook gets may begin with the optimizer itself."""
    _, optimizer = prepared(backend)
    backend.register_step_pre_hook(
        optimizer, lambda _, args, _kwargs: trace.log("is the optimizer", args[:1] == (optimizer,))
    )

    backend.step(optimizer)

    trace.expect(("is the optimizer", True))


@rule(
    "optim.global-hooks",
    level=Level.MUST,
    sources=[
        docstring("torch.optim.optimizer.register_optimizer_step_pre_hook"),
        docstring("torch.optim.optimizer.register_optimizer_step_post_hook"),
    ],
    needs=NEEDS,
    mutants=["global-step-hooks-never-run"],
)
def test_all_optimizers(backend: Backend, trace: Trace) -> None:
    """A global step hook runs for every optimizer, a pre-hook before the step and a post-hook after it."""
    pairs = [prepared(backend) for _ in range(2)]
    before = backend.register_optimizer_step_pre_hook(
        lambda given, *_: trace.log("before", [given is optimizer for _, optimizer in pairs])
    )
    after = backend.register_optimizer_step_post_hook(
        lambda given, *_: trace.log("after", [given is optimizer for _, optimizer in pairs])
    )

    for _, optimizer in pairs:
        backend.step(optimizer)
    before.remove()
    after.remove()
    backend.step(pairs[0][1])

    trace.expect(
        ("before", [True, False]), ("after", [True, False]), ("before", [False, True]), ("after", [False, True])
    )


@rule(
    "optim.step-hooks.order-remove",
    level=Level.MUST,
    sources=[PRE, POST],
    needs=NEEDS,
    mutants=["step-hook-stays", "step-hooks-in-reverse"],
)
def test_order_and_handles(backend: Backend, trace: Trace) -> None:
    """Step hooks run in order of registration, and a handle removes its hook."""
    _, optimizer = prepared(backend)
    handles = [backend.register_step_pre_hook(optimizer, lambda *_, nr=nr: trace.log("hook", nr)) for nr in range(3)]

    backend.step(optimizer)
    handles[1].remove()
    backend.step(optimizer)

    trace.expect(*(("hook", nr) for nr in (0, 1, 2, 0, 2)))


@rule(
    "optim.state-dict-hooks",
    level=Level.MUST,
    sources=[STATE, STATE_POST, LOAD_PRE, LOAD_POST],
    needs=[*NEEDS, Capability.STATE_DICT],
    mutants=["returned-state-ignored"],
)
def test_state(backend: Backend, trace: Trace) -> None:
    """An optimizer's state dict hooks run before and after saving and loading; a dict that a hook returns is used."""
    _, optimizer = prepared(backend)
    backend.register_state_dict_pre_hook(optimizer, lambda given: trace.log("before saving", given is optimizer))
    backend.register_state_dict_post_hook(optimizer, lambda _, state: {**state, "more": 7})
    state = backend.state_dict(optimizer)
    trace.expect(("before saving", True))
    trace.expect_value("what the hook added", 7, state.get("more"))

    def with_rate(_optimizer, state):
        groups = [{**group, "lr": 3.0} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    backend.register_load_state_dict_pre_hook(optimizer, with_rate)
    backend.register_load_state_dict_post_hook(optimizer, lambda given: trace.log("after loading", given is optimizer))
    backend.load_state_dict(optimizer, state)

    trace.expect(("after loading", True))
    trace.expect_value("rate", 3.0, backend.state_dict(optimizer)["param_groups"][0]["lr"])


@rule(
    "optim.state-dict-hooks.prepend",
    level=Level.MUST,
    sources=[STATE],
    needs=[*NEEDS, Capability.STATE_DICT],
    mutants=["prepending-a-state-hook-ignored"],
)
def test_prepend(backend: Backend, trace: Trace) -> None:
    """A state dict hook of an optimizer registered with prepend=True runs before those registered earlier."""
    _, optimizer = prepared(backend)
    backend.register_state_dict_pre_hook(optimizer, lambda _: trace.log("first"))
    backend.register_state_dict_pre_hook(optimizer, lambda _: trace.log("second, prepended"), prepend=True)

    backend.state_dict(optimizer)

    trace.expect("second, prepended", "first")


@rule(
    "optim.load-pre.shallow-copy",
    level=Level.MUST,
    sources=[LOAD_PRE],
    needs=[*NEEDS, Capability.STATE_DICT],
    mutants=["load-hook-given-the-callers-dict"],
)
def test_shallow_copy(backend: Backend, trace: Trace) -> None:
    """An optimizer's load_state_dict pre-hook gets a copy of the caller's dict: the caller does not see added keys."""
    _, optimizer = prepared(backend)
    state = backend.state_dict(optimizer)
    backend.register_load_state_dict_pre_hook(optimizer, lambda _, given: given.update(more=7))

    backend.load_state_dict(optimizer, state)

    trace.expect_value("keys", ["param_groups", "state"], sorted(state))


@rule(
    "zero-grad.set-to-none-default",
    level=Level.MUST,
    sources=[docstring("torch.optim.Optimizer.zero_grad")],
    needs=NEEDS,
    mutants=["zero-grad-writes-zeros"],
)
def test_none(backend: Backend, trace: Trace) -> None:
    """An optimizer's zero_grad sets gradients to None by default, and to zeros with set_to_none=False."""
    x, optimizer = prepared(backend)

    backend.zero_grad(optimizer, set_to_none=False)
    trace.expect_value("with zeros", [0.0], backend.grad_of(x))
    backend.zero_grad(optimizer)
    trace.expect_value("by default", None, backend.grad_of(x))


@rule(
    "zero-grad.step-skip",
    level=Level.MUST,
    sources=[docstring("torch.optim.Optimizer.zero_grad")],
    needs=NEEDS,
    mutants=["step-takes-none-for-zero"],
)
def test_skipped(backend: Backend, trace: Trace) -> None:
    """An optimizer's step skips a parameter whose gradient is None, but not a parameter whose gradient is zero."""
    x = backend.tensor([5.0], requires_grad=True)
    optimizer = backend.sgd([x], lr=1.0, weight_decay=1.0)

    backend.step(optimizer)
    trace.expect_value("after a step with None", [5.0], x)
    backend.set_grad(x, backend.tensor([0.0]))
    backend.step(optimizer)

    trace.expect_value("after a step with zero", [0.0], x)


@rule(
    "zero-grad.hooks",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("zero_grad runs no hook")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
)
def test_no_hooks(backend: Backend, trace: Trace) -> None:
    """An optimizer's zero_grad may reset gradients without running any hook."""
    x, optimizer = prepared(backend)
    backend.register_hook(x, trace.saw("hook"))

    backend.zero_grad(optimizer, set_to_none=False)

    trace.expect()
