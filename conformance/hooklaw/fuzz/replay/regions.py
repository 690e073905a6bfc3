"""The operation that runs a checkpointed region, and what regions do; each run of a region logs its begin and end."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.functions import PLAIN, apply_of
from hooklaw.fuzz.replay.operations import operation
from hooklaw.fuzz.replay.passes import pair_of
from hooklaw.fuzz.replay.run import PlannedError, Replay
from hooklaw.fuzz.replay.values import must_be_small

MODULE, OUTSIDE = "module", "outside"
"""Regions that use what is not an input: a module, named before the input, or a tensor, named behind it."""


class Region:
    """A region of a program: what it may use, and how often it has begun."""

    def __init__(self, run: Replay, instruction: Instruction) -> None:
        self.run, self.backend, self.name = run, run.backend, instruction.made[0]
        self.kind, *how = instruction.how
        options = zip(("use_reentrant", "early_stop"), how, strict=True)
        self.options = {key: value for key, value in options if value is not None}
        self.outside: Any = None
        """A module or a tensor that the region uses and that is not an input."""
        if self.kind == MODULE:
            self.outside = run.modules[instruction.used[0]]
        elif self.kind == OUTSIDE:
            self.outside = run.tensors[instruction.used[-1]]
        self.runs = 0
        self.pair = partial(pair_of, run, self.name)

    def squared(self, tensor: Any) -> Any:
        """Return the square that a custom Function gives."""
        return apply_of(self.run, self.name, PLAIN["square"])(tensor)

    def see(self, what: str, *values: Any) -> None:
        """Log what happens in the region."""
        self.run.log((f"{self.name}.{what}", *map(self.run.seen, values), self.backend.is_grad_enabled()))

    def __call__(self, *inputs: Any) -> Any:
        """Run the region."""
        self.runs += 1
        self.see("run", *inputs)
        result = REGIONS[self.kind](self, *inputs)
        self.see("end")
        return result


def inputs_of(instruction: Instruction) -> tuple[str, ...]:
    """Return the names of the inputs; the region has the other names that the instruction uses in another way."""
    kind, used = instruction.how[0], instruction.used
    return used[1:] if kind == MODULE else used[:1] if kind == OUTSIDE else used


def nests(instruction: Instruction) -> bool:
    """Whether an instruction runs a region that runs a backward of its own."""
    if instruction.op != "checkpoint":
        return False
    return instruction.how[1] is not False or instruction.how[0] in ("gradient", "nested-reentrant")


def _of_region(instruction: Instruction) -> tuple[Capability, ...]:
    kind, _, early_stop = instruction.how
    options = () if early_stop is None else (Capability.CHECKPOINT_OPTIONS,)
    return NEEDED_BY_REGIONS.get(kind, ()) + options


@operation(
    needs=(Capability.CHECKPOINT, Capability.SIN_COS),
    also_needs=_of_region,
    simplifies_to="scale",
    ends_forward=True,
)
def checkpoint(run: Replay, instruction: Instruction) -> None:
    """Run a checkpointed region: what it does, use_reentrant, and early_stop."""
    region = Region(run, instruction)
    inputs = [run.tensors[name] for name in inputs_of(instruction)]
    run.nests |= nests(instruction)
    for tensor in inputs:
        must_be_small(run, tensor, power=2)  # a region takes the sine of an input, of its double or of a product
    results = run.backend.checkpoint(region, *inputs, **region.options)
    made = zip(instruction.made, results if isinstance(results, tuple) else (results,), strict=False)
    run.tensors.update((name, tensor) for name, tensor in made if run.backend.is_tensor(tensor))
    if region.kind == MODULE:
        run.handed.update(instruction.made)
    if region.kind in SAVES_LAST and all(map(run.backend.requires_grad, inputs)):
        run.savers.add(region.name)


def _unrecorded(at: Region, x: Any) -> Any:
    with at.backend.no_grad():
        y = at.backend.sin(x)
    return y * x


def _hooks(at: Region, x: Any) -> Any:
    y = at.backend.sin(x)
    if at.backend.requires_grad(y):
        at.backend.register_hook(y, lambda grad, run=at.runs: at.see(f"hook{run}", grad))
    return y * x


def _raises(_: Region, _x: Any) -> Any:
    raise PlannedError


def _raises_again(at: Region, x: Any) -> Any:
    if at.runs > 1:
        raise PlannedError
    return at.backend.sin(x)


def _other_shape(at: Region, x: Any) -> Any:
    return at.backend.exp(x * x if at.runs == 1 else at.backend.sum(x) * at.backend.sum(x))


def _fewer(at: Region, x: Any) -> Any:
    y = at.backend.sin(x)
    return at.backend.sin(y) if at.runs == 1 else y


def _more(at: Region, x: Any) -> Any:
    y = at.backend.sin(x)
    return at.backend.sin(y) * 2 if at.runs > 1 else y * 2


def _changes(at: Region, x: Any) -> Any:
    y = x * 2
    z = at.backend.sin(y)
    return z + at.backend.exp(at.backend.mul_(y, 3))


def _custom(at: Region, x: Any) -> Any:
    return at.squared(at.backend.sin(x))


def _nested(at: Region, x: Any, *, use_reentrant: bool) -> Any:
    def inner(x: Any) -> Any:
        at.see("inner", x)
        return at.backend.sin(x)

    return at.backend.exp(at.backend.checkpoint(inner, at.backend.sin(x), use_reentrant=use_reentrant))


def _pair(at: Region, x: Any, *, kind: str) -> Any:
    with at.backend.saved_tensors_hooks(*at.pair(kind)):
        y = at.backend.sin(x)
    return y * x


def _gradient(at: Region, x: Any) -> Any:
    y = at.backend.sin(x)
    if at.backend.requires_grad(y):
        at.see("gradient", at.backend.grad(at.backend.sum(y), [x])[0])
    return at.backend.cos(x)


def _module(at: Region, x: Any) -> Any:
    y = at.outside(x)
    if not at.backend.is_tensor(y):
        raise PlannedError  # whether a region may return another type is unspecified
    return y


REGIONS: dict[str, Callable[..., Any]] = {
    "chain": lambda at, x: at.backend.exp(at.backend.sin(x)),
    "product": lambda at, a, b: at.backend.sin(a * b) * 2,
    "nothing": lambda _, x: x + 1,
    "two": lambda at, x: (at.backend.sin(x), x * 3),
    OUTSIDE: lambda at, x: at.backend.sin(x) * at.outside,
    "constant": lambda at, x: at.backend.sin(at.backend.detach(x)),
    "unrecorded": _unrecorded,
    "hooks": _hooks,
    "raises": _raises,
    "raises-again": _raises_again,
    "other-shape": _other_shape,
    "fewer": _fewer,
    "more": _more,
    "changes": _changes,
    "custom": _custom,
    "nested": partial(_nested, use_reentrant=False),
    "nested-reentrant": partial(_nested, use_reentrant=True),
    "pair": partial(_pair, kind="detach"),
    "boxed": partial(_pair, kind="boxed"),
    "gradient": _gradient,
    MODULE: _module,
}
"""What regions do, by name."""
SAVES_LAST = frozenset({"chain", "hooks", "pair", "boxed", "gradient", "nested", "other-shape", "custom"})
"""Regions whose result is made by a node that has saved tensors."""
NEEDED_BY_REGIONS = {
    "hooks": (Capability.TENSOR_HOOKS,),
    "changes": (Capability.IN_PLACE,),
    "custom": (Capability.CUSTOM_FUNCTION,),
    "pair": (Capability.SAVED_TENSOR_HOOKS,),
    "boxed": (Capability.SAVED_TENSOR_HOOKS,),
    "gradient": (Capability.AUTOGRAD_GRAD,),
    MODULE: (Capability.MODULES,),
}
"""Capabilities that regions need."""
