"""Hooks around an optimizer's step, a state dict and a registration: each time, in any thread, and their errors."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import UserError, weighted
from hooklaw.rules.passes import THRICE, elsewhere
from hooklaw.rules.steps import sgd

STEP_PRE = docstring("torch.optim.Optimizer.register_step_pre_hook")
STEP_POST = docstring("torch.optim.Optimizer.register_step_post_hook")
STEP_PRE_OF_ALL = docstring("torch.optim.optimizer.register_optimizer_step_pre_hook")
STEP_POST_OF_ALL = docstring("torch.optim.optimizer.register_optimizer_step_post_hook")
STATE_PRE = docstring("torch.nn.Module.register_state_dict_pre_hook")
STATE_POST = docstring("torch.nn.Module.register_state_dict_post_hook")
LOAD_PRE = docstring("torch.nn.Module.register_load_state_dict_pre_hook")
LOAD_POST = docstring("torch.nn.Module.register_load_state_dict_post_hook")
SAVE_PRE = docstring("torch.optim.Optimizer.register_state_dict_pre_hook")
SAVE_POST = docstring("torch.optim.Optimizer.register_state_dict_post_hook")
LOADING_PRE = docstring("torch.optim.Optimizer.register_load_state_dict_pre_hook")
LOADING_POST = docstring("torch.optim.Optimizer.register_load_state_dict_post_hook")
PARAMETER = docstring("torch.nn.modules.module.register_module_parameter_registration_hook")
BUFFER = docstring("torch.nn.modules.module.register_module_buffer_registration_hook")
CHILD = docstring("torch.nn.modules.module.register_module_module_registration_hook")
REACHES = observed("the error of a hook reaches the caller as it is, and the next time is like any other")
Hook = Callable[..., Any]


class Kind(NamedTuple):
    """A kind of hook: how it is registered, what it runs around, and what it gets."""

    register: Callable[[Hook], Any]
    act: Callable[[], Any]
    is_given: Callable[..., bool]
    """Whether the arguments of a call are right."""


def steps(backend: Backend) -> dict[str, Kind]:
    """Return the kinds of hooks around an optimizer's step."""
    x = backend.tensor([5.0], requires_grad=True)
    backend.set_grad(x, backend.tensor([1.0]))
    optimizer = backend.sgd([x], lr=1.0)

    def step() -> None:
        backend.step(optimizer)

    def is_given(given: Any, *_: Any) -> bool:
        return given is optimizer

    return {
        "step pre-hook": Kind(partial(backend.register_step_pre_hook, optimizer), step, is_given),
        "step post-hook": Kind(partial(backend.register_step_post_hook, optimizer), step, is_given),
        "step pre-hook on all optimizers": Kind(backend.register_optimizer_step_pre_hook, step, is_given),
        "step post-hook on all optimizers": Kind(backend.register_optimizer_step_post_hook, step, is_given),
    }


def states(backend: Backend, owner: Any) -> dict[str, Kind]:
    """Return the kinds of hooks around the state dict of a module or an optimizer."""
    state = backend.state_dict(owner)

    def save() -> None:
        backend.state_dict(owner)

    def load() -> None:
        backend.load_state_dict(owner, state)

    def is_given(given: Any, *_: Any) -> bool:
        return given is owner

    registers = {
        "state-dict pre-hook": (backend.register_state_dict_pre_hook, save),
        "state-dict post-hook": (backend.register_state_dict_post_hook, save),
        "load-state-dict pre-hook": (backend.register_load_state_dict_pre_hook, load),
        "load-state-dict post-hook": (backend.register_load_state_dict_post_hook, load),
    }
    return {label: Kind(partial(register, owner), act, is_given) for label, (register, act) in registers.items()}


def registrations(backend: Backend) -> dict[str, Kind]:
    """Return the kinds of hooks that run when a module gets a parameter, a buffer or a child."""

    def get_buffer() -> None:
        backend.register_buffer(module, "value", backend.tensor([3.0]))

    def get_child() -> None:
        backend.add_module(outer, "inner", module)

    def is_weight(_: Any, name: str, value: Any) -> bool:
        return (name, backend.tolist(value)) == ("weight", [3.0, 5.0])

    def is_buffer(given: Any, name: str, value: Any) -> bool:
        return given is module and (name, backend.tolist(value)) == ("value", [3.0])

    def is_child(given: Any, name: str, child: Any) -> bool:
        return given is outer and name == "inner" and child is module

    module, outer = weighted(backend), weighted(backend)
    return {
        "parameter": Kind(backend.register_module_parameter_registration_hook, lambda: weighted(backend), is_weight),
        "buffer": Kind(backend.register_module_buffer_registration_hook, get_buffer, is_buffer),
        "child": Kind(backend.register_module_module_registration_hook, get_child, is_child),
    }


def nothing(*_: Any, **__: Any) -> None:
    """Be a hook that does nothing."""


def logging(trace: Trace, label: str, kind: Kind) -> Hook:
    """Return a hook that logs whether it gets what it is to get."""
    return lambda *given, **_: trace.log(label, kind.is_given(*given))


def runs_each_time(trace: Trace, kinds: dict[str, Kind]) -> None:
    """Expect a hook of each kind, alone or after others, to run once each time, in another thread too."""
    for label, kind in kinds.items():
        for others in ((), (nothing, nothing)):
            handles = [kind.register(hook) for hook in (*others, logging(trace, label, kind))]
            for act in (*[kind.act] * THRICE, lambda kind=kind: elsewhere(kind.act)):
                act()
                trace.expect((label, True))
            for handle in handles:
                handle.remove()


def fails_each_time(trace: Trace, kinds: dict[str, Kind]) -> None:
    """Expect the error of a hook, the third in its third call too, to come out, and the next time to be right."""

    def failing(label: str, kind: Kind, before: int, calls: list[None]) -> Hook:
        right = logging(trace, label, kind)

        def hook(*given: Any, **named: Any) -> None:
            calls.append(None)
            if len(calls) == before + 1:
                raise UserError("from the hook")
            right(*given, **named)

        return hook

    for label, kind in kinds.items():
        for before, others in ((0, ()), (THRICE - 1, (nothing, nothing))):
            for run in (kind.act, lambda kind=kind: elsewhere(kind.act)):
                handles = [kind.register(hook) for hook in (*others, failing(label, kind, before, []))]
                for _ in range(before):
                    run()
                with trace.raises_type(UserError, "from the hook"):
                    run()
                run()
                for handle in handles:
                    handle.remove()
                trace.expect(*[(label, True)] * (before + 1))


def may_remove_itself(trace: Trace, kinds: dict[str, Kind]) -> None:
    """Expect a hook of each kind that removes itself to run until then, and those around it each time.

    It removes itself in its first call or in its third; it is the only hook, the first, the last or in between.
    """
    for (label, kind), older, newer, calls in product(kinds.items(), (0, 1), (0, 1), (1, THRICE)):
        with ExitStack() as handles:

            def register(hook: Hook, kind: Kind = kind, handles: ExitStack = handles) -> Any:
                handle = kind.register(hook)
                handles.callback(handle.remove)
                return handle

            def leaving(*_: Any, left: list[None], own: list[Any], **__: Any) -> None:
                trace.log("leaving")
                left.pop()
                if not left:
                    own[0].remove()

            own = list[Any]()
            for _ in range(older):
                register(trace.saw("older"))
            own.append(register(partial(leaving, left=[None] * calls, own=own)))
            for _ in range(newer):
                register(trace.saw("newer"))
            for _ in range(calls + 2):
                kind.act()
            trace.log(label)
            before, after = ["older"] * older, ["newer"] * newer
            trace.expect(*[*before, "leaving", *after] * calls, *[*before, *after] * 2, label)


@rule(
    "optim.step-hooks.every-time",
    level=Level.MUST,
    sources=[
        STEP_PRE.sentence(1, 3),
        STEP_POST.sentence(1, 3),
        STEP_PRE_OF_ALL.sentence(1, 2),
        STEP_POST_OF_ALL.sentence(1, 2),
    ],
    needs=[Capability.OPTIMIZERS, Capability.STATE_DICT, Capability.THREADS],
    mutants=[
        "step-pre-hook-lost-another-thread",
        "global-step-post-hook-lost-another-thread",
        "step-hooks-lost-once-the-state-is-loaded",
    ],
)
def test_steps(backend: Backend, trace: Trace) -> None:
    """Step hooks of an optimizer, and those of all optimizers, run once in each step, in any thread.

    The first, second and third step; of one hook, and of a third hook of its kind. It gets the optimizer. A state that
    is loaded in between changes nothing of this.
    """
    runs_each_time(trace, steps(backend))

    optimizer = sgd(backend)
    backend.register_step_pre_hook(optimizer, lambda *_: trace.log("step pre-hook"))
    backend.register_step_post_hook(optimizer, lambda *_: trace.log("step post-hook"))
    backend.load_state_dict(optimizer, backend.state_dict(optimizer))
    backend.step(optimizer)
    trace.expect("step pre-hook", "step post-hook")


@rule(
    "optim.step-hooks.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.OPTIMIZERS, Capability.THREADS],
    mutants=["step-pre-hook-swallowed-third-call", "global-step-post-hook-twice-after-a-failure"],
)
def test_errors_of_steps(backend: Backend, trace: Trace) -> None:
    """An error of a step hook reaches the caller of step, and the hooks run in the next step.

    Also in another thread, and of the third hook in its third call.
    """
    fails_each_time(trace, steps(backend))


@rule(
    "optim.step-hooks.remove-itself",
    level=Level.MUST,
    sources=[STEP_PRE.sentence(6), STEP_POST.sentence(5), STEP_PRE_OF_ALL.sentence(4), STEP_POST_OF_ALL.sentence(4)],
    needs=[Capability.OPTIMIZERS],
    mutants=[
        "step-pre-hook-handle-removes-nothing",
        "step-post-hook-handle-removes-nothing",
        "global-step-pre-hook-handle-removes-nothing",
        "global-step-post-hook-handle-removes-nothing",
        "lone-hooks-around-a-step-or-state-cannot-remove-themselves",
        "last-hooks-around-a-step-or-state-cannot-remove-themselves",
        "hooks-around-a-step-or-state-cannot-remove-themselves-later",
        "global-step-hook-that-removes-itself-stays-for-other-optimizers",
    ],
)
def test_step_hooks_remove_themselves(backend: Backend, trace: Trace) -> None:
    """A step hook that removes itself while it runs is called in no later step, and all other hooks still are.

    The docstrings say that the handle's remove removes the hook, and except no moment.
    """
    may_remove_itself(trace, steps(backend))

    for register in (backend.register_optimizer_step_pre_hook, backend.register_optimizer_step_post_hook):
        optimizers, own = [sgd(backend), sgd(backend)], list[Any]()

        def leaving(*_: Any, own: list[Any] = own) -> None:
            trace.log("leaving")
            own[0].remove()

        own.append(register(leaving))
        for optimizer in (*optimizers, *optimizers):
            backend.step(optimizer)
        own[0].remove()
        trace.expect("leaving")


@rule(
    "state-dict.hooks.every-time",
    level=Level.MUST,
    sources=[STATE_PRE.sentence(1, 2), STATE_POST.sentence(1, 2), LOAD_PRE.sentence(1, 2), LOAD_POST.sentence(1, 3)],
    needs=[Capability.MODULES, Capability.STATE_DICT, Capability.THREADS],
    mutants=["state-dict-pre-hook-lost-another-thread", "load-post-hook-lost-another-thread"],
)
def test_states(backend: Backend, trace: Trace) -> None:
    """State-dict hooks of a module run once each time its state is saved or loaded, in any thread.

    The first, second and third time; of one hook, and of a third hook of its kind. It gets the module.
    """
    runs_each_time(trace, states(backend, weighted(backend)))


@rule(
    "state-dict.hooks.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.STATE_DICT, Capability.THREADS],
    mutants=["state-dict-pre-hook-swallowed-third-call", "load-post-hook-twice-after-a-failure"],
)
def test_errors_of_states(backend: Backend, trace: Trace) -> None:
    """An error of a state-dict hook reaches the caller of state_dict or load_state_dict; the hooks run again.

    Also in another thread, and of the third hook in its third call.
    """
    fails_each_time(trace, states(backend, weighted(backend)))


@rule(
    "state-dict.hooks.remove-itself",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[
        observed("these registrations return a handle; only the docstring of the load_state_dict post-hook names it")
    ],
    needs=[Capability.MODULES, Capability.STATE_DICT],
    mutants=[
        "state-dict-pre-hook-handle-removes-nothing",
        "state-dict-post-hook-handle-removes-nothing",
        "load-pre-hook-handle-removes-nothing",
        "load-post-hook-handle-removes-nothing",
        "lone-hooks-around-a-step-or-state-cannot-remove-themselves",
        "last-hooks-around-a-step-or-state-cannot-remove-themselves",
        "hooks-around-a-step-or-state-cannot-remove-themselves-later",
    ],
)
def test_state_hooks_remove_themselves(backend: Backend, trace: Trace) -> None:
    """A state-dict hook that removes itself while it runs is not called again, and all other hooks still are."""
    may_remove_itself(trace, states(backend, weighted(backend)))


@rule(
    "optim.state-dict-hooks.every-time",
    level=Level.MUST,
    sources=[SAVE_PRE.sentence(1), SAVE_POST.sentence(1), LOADING_PRE.sentence(1), LOADING_POST.sentence(1)],
    needs=[Capability.OPTIMIZERS, Capability.STATE_DICT, Capability.THREADS],
    mutants=[
        "state-dict-pre-hook-lost-another-thread",
        "state-dict-post-hook-lost-another-thread",
        "load-pre-hook-lost-another-thread",
        "load-post-hook-lost-another-thread",
    ],
)
def test_states_of_optimizers(backend: Backend, trace: Trace) -> None:
    """State-dict hooks of an optimizer run once each time its state is saved or loaded, in any thread.

    The first, second and third time; of one hook, and of a third hook of its kind.
    """
    runs_each_time(trace, states(backend, sgd(backend)))


@rule(
    "optim.state-dict-hooks.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.OPTIMIZERS, Capability.STATE_DICT, Capability.THREADS],
    mutants=[
        "state-dict-pre-hook-swallowed",
        "state-dict-post-hook-swallowed",
        "load-pre-hook-swallowed",
        "load-post-hook-swallowed",
    ],
)
def test_errors_of_states_of_optimizers(backend: Backend, trace: Trace) -> None:
    """An error of a state-dict hook of an optimizer reaches the caller; the hooks run the next time.

    Also in another thread, and of the third hook in its third call.
    """
    fails_each_time(trace, states(backend, sgd(backend)))


@rule(
    "registration-hook.every-time",
    level=Level.MUST,
    sources=[PARAMETER.sentence(3, 4), BUFFER.sentence(3, 4), CHILD.sentence(3, 4)],
    needs=[Capability.MODULES, Capability.REGISTRATION_HOOKS, Capability.THREADS],
    mutants=["parameter-registration-hook-lost-another-thread", "module-registration-hook-lost-another-thread"],
)
def test_registrations(backend: Backend, trace: Trace) -> None:
    """A registration hook runs once each time a module gets a parameter, a buffer or a child, in any thread.

    The first, second and third time; of one hook, and of a third hook of its kind. It gets the name and what has it.
    """
    runs_each_time(trace, registrations(backend))


@rule(
    "registration-hook.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.REGISTRATION_HOOKS, Capability.THREADS],
    mutants=["buffer-registration-hook-swallowed-third-call", "module-registration-hook-twice-after-a-failure"],
)
def test_errors_of_registrations(backend: Backend, trace: Trace) -> None:
    """An error of a registration hook reaches the caller of the registration, and the hooks run at the next one.

    Also in another thread, and of the third hook in its third call.
    """
    fails_each_time(trace, registrations(backend))


@rule(
    "registration-hook.remove-itself",
    level=Level.MUST,
    sources=[PARAMETER.sentence(6), BUFFER.sentence(6), CHILD.sentence(6)],
    needs=[Capability.MODULES, Capability.REGISTRATION_HOOKS],
    mutants=[
        "parameter-registration-hook-handle-removes-nothing",
        "buffer-registration-hook-handle-removes-nothing",
        "module-registration-hook-handle-removes-nothing",
    ],
)
def test_registration_hooks_remove_themselves(backend: Backend, trace: Trace) -> None:
    """A registration hook that removes itself while it runs is not called again, and all other hooks still are.

    The docstrings say that the handle's remove removes the hook, and except no moment.
    """
    may_remove_itself(trace, registrations(backend))
