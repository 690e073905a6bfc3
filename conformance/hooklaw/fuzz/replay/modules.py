"""Operations that make and call modules, and register hooks on them."""

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, cast

from hooklaw.backend.capabilities import ONLY_WITH, Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.hooks import Hook, Register, put, put_everywhere
from hooklaw.fuzz.replay.operations import operation
from hooklaw.fuzz.replay.run import PlannedError, Replay, skip_if


def _raise(_module: Any, _x: Any, **_: Any) -> Any:
    raise PlannedError


class Outputs(NamedTuple):
    """An output that is a named tuple."""

    first: Any
    second: Any


FORWARDS: dict[str, Callable[..., Any]] = {
    "weighted": lambda self, x, **_: x * self.weight,
    "two": lambda self, x, y, **_: (x * self.weight, x + y),
    "joined": lambda self, x, y, **_: x * self.weight + y,
    "scaled": lambda self, x, *, factor=1.0: x * self.weight * factor,
    "unweighted": lambda _, x, **__: x * 2,
    "raises": _raise,
    "named": lambda self, x, **_: Outputs(x * self.weight, x * 3),
    "listed": lambda self, x, **_: [x * self.weight],
    "keyed": lambda self, x, **_: {"y": x * self.weight},
}
"""What modules compute, by name."""
CONTAINERS = ("named", "listed", "keyed")
"""Modules whose output is neither a tensor nor a plain tuple."""
ALONE = ("weighted", "joined", "unweighted", "raises")
"""Modules that return a tensor and take positional arguments only."""
OUTER = "outer"
"""The kind of module that calls another."""


def _around(inner: Callable[..., Any]) -> Callable[..., Any]:
    def forward(module: Any, x: Any, **_: Any) -> Any:
        return inner(x) * module.weight

    return forward


@operation(needs=(Capability.MODULES,), safe=True, sets_up=True)
def module(run: Replay, instruction: Instruction) -> None:
    """Make a module; its parameter, a copy of a leaf, is a tensor of the program too. An outer module calls another."""
    (name, parameter), (kind,) = instruction.made, instruction.how
    skip_if(instruction.used[0] in run.inferred)
    weight = run.backend.detach(run.input(instruction))
    forward = _around(run.modules[instruction.used[1]]) if kind == OUTER else FORWARDS[kind]
    _note_module(run, name, parameter, run.backend.module({"weight": weight}, forward), kind)


@operation(needs=(Capability.MODULES,), safe=True, sets_up=True)
def copy(run: Replay, instruction: Instruction) -> None:
    """Copy a module deeply, with its hooks and a parameter of its own."""
    (name, parameter), (original,) = instruction.made, instruction.used
    _note_module(run, name, parameter, deepcopy(run.modules[original]), run.functions[original])
    run.hooked.update([name] if original in run.hooked else [])


def _note_module(run: Replay, name: str, parameter: str, made: Any, kind: str) -> None:
    run.modules[name] = made
    run.tensors[parameter] = made.weight
    run.parameters.add(parameter)
    run.functions[name] = kind


@operation(simplifies_to="scale")
def call(run: Replay, instruction: Instruction) -> None:
    """Call a module, with a keyword argument where the program gives one; log whether that warns."""
    module, inputs = _call(run, instruction)
    named = {"factor": instruction.how[0]} if instruction.how else {}
    with _watched(run, instruction.made[0]):
        results = run.backend.call(lambda *given: module(*given, **named), *inputs)
    _note_results(run, instruction, results)


def _call(run: Replay, instruction: Instruction) -> tuple[Any, list[Any]]:
    """Return the module that an instruction calls, and its inputs."""
    name, *inputs = instruction.used
    return run.modules[name], [run.tensors[tensor] for tensor in inputs]


@contextmanager
def _watched(run: Replay, name: str) -> Generator[None]:
    """Log whether anything warns the user; warnings about a framework's future are left out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            if caught:
                run.log(("warned", name))


@operation(needs=(Capability.MODULES, Capability.MODULE_FORWARD), ends_forward=True)
def forward(run: Replay, instruction: Instruction) -> None:
    """Call the forward of a module, without its hooks."""
    module, inputs = _call(run, instruction)
    _note_results(run, instruction, run.backend.forward(module, *inputs))


@operation(needs=(Capability.MODULES, Capability.DATA_PARALLEL), ends_forward=True)
def parallel(run: Replay, instruction: Instruction) -> None:
    """Call a module in replicas; skipped with hooks, whose order between the replicas' threads is unspecified."""
    name = instruction.used[0]
    module, inputs = _call(run, instruction)
    skip_if(run.functions[name] not in ALONE or name in run.hooked or run.everywhere)
    run.replicated = True
    _note_results(run, instruction, run.backend.call(run.backend.data_parallel(module), *inputs))


def _note_results(run: Replay, instruction: Instruction, results: Any) -> None:
    if run.functions[instruction.used[0]] in CONTAINERS:
        run.log((f"{instruction.made[0]}.type", type(results).__name__))
    made = zip(instruction.made, _flat(results), strict=False)
    run.tensors.update((name, tensor) for name, tensor in made if run.backend.is_tensor(tensor))
    run.handed.update(instruction.made)


def _flat(results: Any) -> Sequence[Any]:
    if isinstance(results, dict):
        return [*cast("dict[str, Any]", results).values()]
    return cast("Sequence[Any]", results) if isinstance(results, tuple | list) else (results,)


def pairs(how: tuple[Any, ...]) -> bool:
    """Whether a module hook returns a pair of its result and the keyword arguments that it was given."""
    kind, action, options = how
    return kind == "forward_pre" and "with_kwargs" in options and action[0] != "wrong"


def _adapted(how: tuple[Any, ...], function: Hook) -> Hook:
    """Return a module's hook, which gives the program's hook first what its result replaces."""
    if how[0] == "forward":
        return lambda _, *given: function(given[-1], *given[:-1])
    if pairs(how):
        return lambda _, args, kwargs: _with(function(args, kwargs), kwargs)
    if how[0] == "forward_pre" and "with_kwargs" in how[2]:
        return lambda _, args, kwargs: function(args, kwargs)
    return lambda _, *given: function(*given)


def _with(result: Any, kwargs: Any) -> Any:
    return None if result is None else (result, kwargs)


HOOK_CAPABILITIES = {
    "full_backward": (Capability.MODULE_BACKWARD_HOOKS,),
    "backward": (Capability.LEGACY_MODULE_BACKWARD_HOOKS,),
    "full_backward_pre": (Capability.MODULE_BACKWARD_PRE_HOOKS,),
}


def _of_kind(instruction: Instruction) -> tuple[Capability, ...]:
    return HOOK_CAPABILITIES.get(instruction.how[0], ())


def _of_kind_and_options(instruction: Instruction) -> tuple[Capability, ...]:
    kind, _, options = instruction.how
    return (*_of_kind(instruction), *(ONLY_WITH[f"register_{kind}_hook", option] for option in options))


@operation(needs=(Capability.MODULES,), also_needs=_of_kind_and_options, hooks="module")
def module_hook(run: Replay, instruction: Instruction) -> None:
    """Register a hook on a module: its kind, its action, and options."""
    register = getattr(run.backend, f"register_{instruction.how[0]}_hook")
    module = run.modules[instruction.used[0]]
    run.hooked.add(instruction.used[0])
    put(run, instruction.made[0], instruction.how[1], _adapting(instruction, partial(register, module)))


@operation(
    needs=(Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS), also_needs=_of_kind, hooks="module", everywhere=True
)
def global_hook(run: Replay, instruction: Instruction) -> None:
    """Register a hook on all modules."""
    register = getattr(run.backend, f"register_module_{instruction.how[0]}_hook")
    put_everywhere(run, instruction.made[0], instruction.how[1], _adapting(instruction, register))


def _adapting(instruction: Instruction, register: Callable[..., Any]) -> Register:
    """Return what registers the program's hook with its options."""
    options = dict.fromkeys(instruction.how[2], True)
    return lambda hook: register(_adapted(instruction.how, hook), **options)
