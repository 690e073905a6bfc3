"""Instructions that make and call modules, and put hooks on them."""

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple, cast

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.hooks import Hooks
from hooklaw.fuzz.replay.run import PlannedError, Run, UnknownNameError, operation


def _weighted(module: Any, x: Any, **_: Any) -> Any:
    return x * module.weight


def _two(module: Any, x: Any, y: Any, **_: Any) -> Any:
    return x * module.weight, x + y


def _joined(module: Any, x: Any, y: Any, **_: Any) -> Any:
    return x * module.weight + y


def _scaled(module: Any, x: Any, *, factor: Any = 1.0) -> Any:
    return x * module.weight * factor


def _unweighted(_module: Any, x: Any, **_: Any) -> Any:
    return x * 2


def _raise(_module: Any, _x: Any, **_: Any) -> Any:
    raise PlannedError


class Outputs(NamedTuple):
    """An output of a type of its own."""

    first: Any
    second: Any


def _named(module: Any, x: Any, **_: Any) -> Any:
    return Outputs(x * module.weight, x * 3)


def _listed(module: Any, x: Any, **_: Any) -> Any:
    return [x * module.weight]


def _keyed(module: Any, x: Any, **_: Any) -> Any:
    return {"y": x * module.weight}


FORWARDS: dict[str, Callable[..., Any]] = {
    "weighted": _weighted,
    "two": _two,
    "joined": _joined,
    "scaled": _scaled,
    "unweighted": _unweighted,
    "raises": _raise,
    "named": _named,
    "listed": _listed,
    "keyed": _keyed,
}
"""What modules compute."""
CONTAINERS = ("named", "listed", "keyed")
"""Those whose output is neither a tensor nor a plain tuple."""
ALONE = ("weighted", "joined", "unweighted", "raises")
"""Those that return a tensor of positional arguments alone."""
OUTER = "outer"
"""The kind of module that calls another."""


def _around(inner: Callable[..., Any]) -> Callable[..., Any]:
    def forward(module: Any, x: Any, **_: Any) -> Any:
        return inner(x) * module.weight

    return forward


@operation
def module(run: Run, one: Instruction) -> None:
    """Make a module; its parameter, a copy of a leaf, is a tensor of the program too. An outer one calls another."""
    name, parameter = one.made
    if one.used[0] in run.inferred:
        raise UnknownNameError(one.used[0])
    weight = run.backend.detach(run.tensors[one.used[0]])
    forward = _around(run.modules[one.used[1]]) if one.how[0] == OUTER else FORWARDS[one.how[0]]
    made = run.modules[name] = run.backend.module({"weight": weight}, forward)
    run.tensors[parameter] = made.weight
    run.parameters.add(parameter)
    run.functions[name] = one.how[0]


@operation
def copy(run: Run, one: Instruction) -> None:
    """Copy a module deeply, with its hooks and a parameter of its own."""
    name, parameter = one.made
    made = run.modules[name] = deepcopy(run.modules[one.used[0]])
    run.tensors[parameter] = made.weight
    run.parameters.add(parameter)
    run.functions[name] = run.functions[one.used[0]]
    run.hooked.update([name] if one.used[0] in run.hooked else [])


@operation
def call(run: Run, one: Instruction) -> None:
    """Call a module, with a keyword argument if the program says so; note whether that warns."""
    module = run.modules[one.used[0]]
    named = {"factor": one.how[0]} if one.how else {}
    inputs = [run.tensors[name] for name in one.used[1:]]
    with _watched(run, one.made[0]):
        results = run.backend.call(lambda *given: module(*given, **named), *inputs)
    _note_results(run, one, results)


@contextmanager
def _watched(run: Run, name: str) -> Generator[None]:
    """Note whether anything warns the user; what warns of the future of a framework is left out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            if caught:
                run.log(("warned", name))


@operation
def forward(run: Run, one: Instruction) -> None:
    """Call the forward of a module past its hooks."""
    module, *inputs = one.used
    _note_results(run, one, run.backend.forward(run.modules[module], *[run.tensors[name] for name in inputs]))


@operation
def parallel(run: Run, one: Instruction) -> None:
    """Call a module in replicas; hooks of modules would run in their threads, in an order that is nobody's."""
    name, *inputs = one.used
    module = run.modules[name]
    if run.functions[name] not in ALONE or name in run.hooked or run.everywhere:
        raise UnknownNameError(name)
    run.replicated = True
    tensors = [run.tensors[used] for used in inputs]
    _note_results(run, one, run.backend.call(run.backend.data_parallel(module), *tensors))


def _note_results(run: Run, one: Instruction, results: Any) -> None:
    if run.functions[one.used[0]] in CONTAINERS:
        run.log((f"{one.made[0]}.type", type(results).__name__))
    made = zip(one.made, _flat(results), strict=False)
    run.tensors.update((name, tensor) for name, tensor in made if run.backend.is_tensor(tensor))
    run.handed.update(one.made)


def _flat(results: Any) -> Sequence[Any]:
    if isinstance(results, dict):
        return [*cast("dict[str, Any]", results).values()]
    return cast("Sequence[Any]", results) if isinstance(results, tuple | list) else (results,)


def pairs(how: tuple[Any, ...]) -> bool:
    """Tell whether what a module's hook returns goes into a pair, with the keyword arguments that it was given."""
    kind, action, options = how
    return kind == "forward_pre" and "with_kwargs" in options and action[0] != "wrong"


def _adapted(how: tuple[Any, ...], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a module's hook: what may be replaced is the first thing that the program's hook is given."""
    if how[0] == "forward":
        return lambda _, *given: function(given[-1], *given[:-1])
    if pairs(how):
        return lambda _, args, kwargs: _with(function(args, kwargs), kwargs)
    if how[0] == "forward_pre" and "with_kwargs" in how[2]:
        return lambda _, args, kwargs: function(args, kwargs)
    return lambda _, *given: function(*given)


def _with(result: Any, kwargs: Any) -> Any:
    return None if result is None else (result, kwargs)


@operation
def module_hook(run: Run, one: Instruction) -> None:
    """Put a hook on a module: its kind, what it does, and options."""
    kind, action, options = one.how
    register = getattr(run.backend, f"register_{kind}_hook")
    module = run.modules[one.used[0]]
    named = dict.fromkeys(options, True)
    run.hooked.add(one.used[0])
    Hooks(run).put(one.made[0], action, lambda function: register(module, _adapted(one.how, function), **named))


@operation
def global_hook(run: Run, one: Instruction) -> None:
    """Put a hook on all modules."""
    kind, action, options = one.how
    register = getattr(run.backend, f"register_module_{kind}_hook")
    named = dict.fromkeys(options, True)

    def add(function: Callable[..., Any]) -> Any:
        handle = register(_adapted(one.how, function), **named)
        run.everywhere.append(handle)
        return handle

    Hooks(run).put(one.made[0], action, add)
