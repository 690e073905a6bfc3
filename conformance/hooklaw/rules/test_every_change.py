"""What hooks around an optimizer's step, a state dict and a registration change: it counts each time, in any thread."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import fail_once, nothing, weighted
from hooklaw.rules.passes import THRICE, elsewhere
from hooklaw.rules.steps import sgd

STEP_PRE = docstring("torch.optim.Optimizer.register_step_pre_hook")
STEP_PRE_OF_ALL = docstring("torch.optim.optimizer.register_optimizer_step_pre_hook")
STATE_POST = docstring("torch.nn.Module.register_state_dict_post_hook")
LOAD_POST = docstring("torch.nn.Module.register_load_state_dict_post_hook")
SAVE_POST = docstring("torch.optim.Optimizer.register_state_dict_post_hook")
LOADING_PRE = docstring("torch.optim.Optimizer.register_load_state_dict_pre_hook")
PARAMETER = docstring("torch.nn.modules.module.register_module_parameter_registration_hook")
BUFFER = docstring("torch.nn.modules.module.register_module_buffer_registration_hook")
CHILD = docstring("torch.nn.modules.module.register_module_module_registration_hook")
Hook = Callable[..., Any]


class Effect(NamedTuple):
    """A hook that changes something: how it is registered, and what shows whether its change counted."""

    register: Callable[[Hook], Any]
    hook: Hook
    act: Callable[[], Any]
    expected: Any


def counts_each_time(trace: Trace, effects: Callable[[], dict[str, Effect]]) -> None:
    """Expect what a hook changes, alone or after others, to count each time, in another thread and after an error."""

    def expect(effect: Effect, label: str, others: int, *acts: Callable[[], Any]) -> None:
        handles = [effect.register(hook) for hook in (*[nothing] * others, effect.hook)]
        for act in acts:
            trace.expect_value(f"{label} after {others} others", effect.expected, act())
        for handle in handles:
            handle.remove()

    for others in (1, 0, THRICE - 1):  # a second hook of all optimizers is tried while it is their second
        for label, effect in effects().items():
            expect(effect, label, others, *[effect.act] * THRICE, partial(elsewhere, effect.act))
            fail_once(trace, effect.register, effect.act)
            expect(effect, label, others, effect.act)


@rule(
    "optim.step-pre.modify.every-time",
    level=Level.MUST,
    sources=[STEP_PRE.sentence(2, 4), STEP_PRE_OF_ALL.sentence(2)],
    needs=[Capability.OPTIMIZERS, Capability.THREADS],
    mutants=["step-pre-hook-ignored-another-thread", "global-step-pre-hook-ignored-second-call-alone"],
)
def test_step_arguments(backend: Backend, trace: Trace) -> None:
    """New arguments that a step pre-hook returns, of one optimizer or of all, are those of each step, in any thread.

    The first, second and third step; of one hook, a second and a third of its kind; also after an error of a hook.
    """

    def effects() -> dict[str, Effect]:
        optimizer, ran = sgd(backend), list[str]()

        def closure() -> Any:
            ran.append("closure of the hook")
            return backend.tensor(0.0)

        def hook(_: Any, args: Any, kwargs: Any) -> Any:
            return args, {**kwargs, "closure": closure}

        def step() -> list[str]:
            ran.clear()
            backend.step(optimizer)
            return [*ran]

        registers = partial(backend.register_step_pre_hook, optimizer), backend.register_optimizer_step_pre_hook
        labels = "step of one optimizer", "step of any optimizer"
        return {
            label: Effect(register, hook, step, ["closure of the hook"])
            for label, register in zip(labels, registers, strict=True)
        }

    counts_each_time(trace, effects)


@rule(
    "optim.state-dict-hooks.modify.every-time",
    level=Level.MUST,
    sources=[SAVE_POST.sentence(4), LOADING_PRE.sentence(4, 5)],
    needs=[Capability.OPTIMIZERS, Capability.STATE_DICT, Capability.THREADS],
    mutants=["state-dict-post-hook-ignored-another-thread", "load-pre-hook-given-a-copy-after-a-failure"],
)
def test_changed_states_of_optimizers(backend: Backend, trace: Trace) -> None:
    """The state that an optimizer's state_dict post-hook or load_state_dict pre-hook changes or returns counts.

    Each time, in any thread: the first, second and third; of one hook, a second and a third; after an error of a hook.
    """

    def effects() -> dict[str, Effect]:
        optimizer = sgd(backend)
        state = backend.state_dict(optimizer)

        def rate() -> float:
            return backend.state_dict(optimizer)["param_groups"][0]["lr"]

        def loaded_rate() -> float:
            backend.load_state_dict(optimizer, state)
            return rate()

        def faster(_: Any, given: Any) -> Any:
            return {**given, "param_groups": [{**group, "lr": 2.0} for group in given["param_groups"]]}

        def made_faster(_: Any, given: Any) -> None:
            given.update(faster(_, given))

        registers = {
            "saved": (partial(backend.register_state_dict_post_hook, optimizer), rate),
            "loaded": (partial(backend.register_load_state_dict_pre_hook, optimizer), loaded_rate),
        }
        return {
            f"{label}, {way}": Effect(register, hook, act, 2.0)
            for label, (register, act) in registers.items()
            for way, hook in (("returned", faster), ("in place", made_faster))
        }

    counts_each_time(trace, effects)


@rule(
    "state-dict.hooks.modify.every-time",
    level=Level.MUST,
    sources=[STATE_POST.sentence(3), LOAD_POST.sentence(5, 6, 7)],
    needs=[Capability.MODULES, Capability.STATE_DICT, Capability.THREADS],
    mutants=["state-dict-post-hook-given-a-copy-another-thread", "load-post-hook-given-a-copy-after-a-failure"],
)
def test_changed_states(backend: Backend, trace: Trace) -> None:
    """What a state_dict post-hook of a module changes in the dict, or a load_state_dict post-hook in the keys, counts.

    Each time, in any thread: the first, second and third; of one hook, a second and a third; after an error of a hook.
    """

    def effects() -> dict[str, Effect]:
        module = weighted(backend)

        def saved() -> Any:
            return backend.state_dict(module).get("more")

        def loads() -> bool:
            backend.load_state_dict(module, {"more": backend.tensor([7.0])})
            return True

        def add(_module: Any, state: Any, *_: Any) -> None:
            state.update(more=7)

        def forgive(_: Any, keys: Any) -> None:
            keys.missing_keys.clear()
            keys.unexpected_keys.clear()

        return {
            "saved": Effect(partial(backend.register_state_dict_post_hook, module), add, saved, 7),
            "loads": Effect(partial(backend.register_load_state_dict_post_hook, module), forgive, loads, expected=True),
        }

    counts_each_time(trace, effects)


@rule(
    "state-dict.hooks.return.every-time",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that such hooks are not to return anything, each time")],
    needs=[Capability.MODULES, Capability.STATE_DICT, Capability.THREADS],
    mutants=["load-post-hook-ignored-another-thread", "load-post-hook-ignored-third"],
)
def test_returned_states(backend: Backend, trace: Trace) -> None:
    """A state_dict or load_state_dict post-hook of a module that returns anything but None is an error each time.

    The first, second and third time, in any thread; of one hook, a second and a third; also after an error of a hook.
    """

    def effects() -> dict[str, Effect]:
        module = weighted(backend)
        state = backend.state_dict(module)

        def is_refused(kind: ErrorKind, act: Callable[[], Any]) -> bool:
            with trace.raises(kind):
                act()
            return True

        save = partial(is_refused, ErrorKind.STATE_HOOK_RETURN, lambda: backend.state_dict(module))
        load = partial(is_refused, ErrorKind.LOAD_HOOK_RETURN, lambda: backend.load_state_dict(module, state))
        registers = {
            "saving": (partial(backend.register_state_dict_post_hook, module), save),
            "loading": (partial(backend.register_load_state_dict_post_hook, module), load),
        }
        return {
            label: Effect(register, lambda _module, given, *_: given, act, expected=True)
            for label, (register, act) in registers.items()
        }

    counts_each_time(trace, effects)


@rule(
    "registration-hook.modify.every-time",
    level=Level.MUST,
    sources=[PARAMETER.sentence(4, 5), BUFFER.sentence(4, 5), CHILD.sentence(4, 5)],
    needs=[Capability.MODULES, Capability.REGISTRATION_HOOKS, Capability.THREADS],
    mutants=["parameter-registration-hook-ignored-another-thread", "module-registration-hook-ignored-third-call"],
)
def test_replaced_registrations(backend: Backend, trace: Trace) -> None:
    """The parameter, buffer or child that a registration hook returns is registered each time, in any thread.

    The first, second and third time; of one hook, a second and a third of its kind; also after an error of a hook.
    """

    def effects() -> dict[str, Effect]:
        owner, other, mean = weighted(backend), weighted(backend), backend.tensor([7.0])
        weight = other.weight

        def gets_mean() -> bool:
            backend.register_buffer(owner, "mean", backend.tensor([3.0]))
            return owner.mean is mean

        def gets_other() -> bool:
            backend.add_module(owner, "inner", weighted(backend))
            return owner.inner is other

        parameters = backend.register_module_parameter_registration_hook
        return {
            "parameter": Effect(
                parameters, lambda *_: weight, lambda: weighted(backend).weight is weight, expected=True
            ),
            "buffer": Effect(
                backend.register_module_buffer_registration_hook, lambda *_: mean, gets_mean, expected=True
            ),
            "child": Effect(
                backend.register_module_module_registration_hook, lambda *_: other, gets_other, expected=True
            ),
        }

    counts_each_time(trace, effects)
