"""Instructions that make and call modules, and put hooks on them."""

from collections.abc import Callable
from typing import Any

from hooklaw.fuzz.hooks import Hooks
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay import PlannedError, Run, UnknownNameError, operation


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


FORWARDS: dict[str, Callable[..., Any]] = {
    "weighted": _weighted,
    "two": _two,
    "joined": _joined,
    "scaled": _scaled,
    "unweighted": _unweighted,
    "raises": _raise,
}
"""What modules compute."""
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


@operation
def call(run: Run, one: Instruction) -> None:
    """Call a module, with a keyword argument if the program says so."""
    module = run.modules[one.used[0]]
    named = {"factor": one.how[0]} if one.how else {}
    _note_results(run, one, module(*[run.tensors[name] for name in one.used[1:]], **named))


@operation
def forward(run: Run, one: Instruction) -> None:
    """Call the forward of a module past its hooks."""
    module, *inputs = one.used
    _note_results(run, one, run.backend.forward(run.modules[module], *[run.tensors[name] for name in inputs]))


def _note_results(run: Run, one: Instruction, results: Any) -> None:
    made = zip(one.made, results if isinstance(results, tuple) else (results,), strict=False)
    run.tensors.update((name, tensor) for name, tensor in made if run.backend.is_tensor(tensor))
    run.handed.update(one.made)


def _adapted(kind: str, options: tuple[str, ...], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a module's hook: what may be replaced is the first thing that the program's hook is given."""
    if kind == "forward":
        return lambda _, *given: function(given[-1], *given[:-1])
    if kind == "forward_pre" and "with_kwargs" in options:
        return lambda _, args, kwargs: _with(function(args, kwargs), kwargs)
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
    Hooks(run).put(one.made[0], action, lambda function: register(module, _adapted(kind, options, function), **named))


@operation
def global_hook(run: Run, one: Instruction) -> None:
    """Put a hook on all modules."""
    kind, action, options = one.how
    register = getattr(run.backend, f"register_module_{kind}_hook")
    named = dict.fromkeys(options, True)

    def add(function: Callable[..., Any]) -> Any:
        handle = register(_adapted(kind, options, function), **named)
        run.everywhere.append(handle)
        return handle

    Hooks(run).put(one.made[0], action, add)
