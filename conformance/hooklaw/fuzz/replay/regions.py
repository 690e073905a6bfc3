"""The instruction that runs a checkpointed region, and what regions do: each run of one notes its beginning and end."""

from collections.abc import Callable
from typing import Any

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.passes import pair_of
from hooklaw.fuzz.replay.run import PlannedError, Run, operation

MODULE, OUTSIDE = "module", "outside"
"""Regions that call a module, which is named before their input, or use a tensor, named behind it, that is no input."""


class Region:
    """A region of a program: what it may use, and how often it has begun."""

    def __init__(self, run: Run, one: Instruction) -> None:
        self.run, self.backend, self.name = run, run.backend, one.made[0]
        self.kind, *how = one.how
        self.how = {
            key: value for key, value in zip(("use_reentrant", "early_stop"), how, strict=True) if value is not None
        }
        self.outside = _outside_of(run, one)
        self.runs = 0

    def see(self, what: str, *values: Any) -> None:
        """Note what happens in it."""
        self.run.log((f"{self.name}.{what}", *map(self.run.seen, values), self.backend.is_grad_enabled()))

    def __call__(self, *inputs: Any) -> Any:
        """Run it."""
        self.runs += 1
        self.see("run", *inputs)
        result = REGIONS[self.kind](self, *inputs)
        self.see("end")
        return result


def _outside_of(run: Run, one: Instruction) -> Any:
    """Return what a region uses that is no input: a module, or a tensor."""
    if one.how[0] == MODULE:
        return run.modules[one.used[0]]
    return run.tensors[one.used[-1]] if one.how[0] == OUTSIDE else None


def inputs_of(one: Instruction) -> tuple[str, ...]:
    """Return the names of the inputs: the others that are used are known to the region otherwise."""
    kind = one.how[0]
    return one.used[1:] if kind == MODULE else one.used[:1] if kind == OUTSIDE else one.used


def nests(one: Instruction) -> bool:
    """Tell whether an instruction runs a region in which there is a backward of its own."""
    return one.op == "checkpoint" and (one.how[1] is not False or one.how[0] in ("gradient", "nested-reentrant"))


@operation
def checkpoint(run: Run, one: Instruction) -> None:
    """Run a checkpointed region: what it does, which kind of checkpoint it is, and whether it may stop early."""
    region = Region(run, one)
    inputs = [run.tensors[name] for name in inputs_of(one)]
    run.nests |= nests(one)
    results = run.backend.checkpoint(region, *inputs, **region.how)
    made = zip(one.made, results if isinstance(results, tuple) else (results,), strict=False)
    run.tensors.update((name, tensor) for name, tensor in made if run.backend.is_tensor(tensor))
    if region.kind == MODULE:
        run.handed.update(one.made)
    if region.kind in SAVES_LAST and all(map(run.backend.requires_grad, inputs)):
        run.savers.add(region.name)


def _chain(at: Region, x: Any) -> Any:
    return at.backend.exp(at.backend.sin(x))


def _product(at: Region, a: Any, b: Any) -> Any:
    return at.backend.sin(a * b) * 2


def _nothing(_: Region, x: Any) -> Any:
    return x + 1


def _two(at: Region, x: Any) -> Any:
    return at.backend.sin(x), x * 3


def _outside(at: Region, x: Any) -> Any:
    return at.backend.sin(x) * at.outside


def _constant(at: Region, x: Any) -> Any:
    return at.backend.sin(at.backend.detach(x))


def _unrecorded(at: Region, x: Any) -> Any:
    with at.backend.no_grad():
        y = at.backend.sin(x)
    return y * x


def _hooks(at: Region, x: Any) -> Any:
    y, word = at.backend.sin(x), f"hook{at.runs}"
    if at.backend.requires_grad(y):
        at.backend.register_hook(y, lambda grad: at.see(word, grad))
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
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx: Any, grad: Any) -> Any:
        at.run.log((f"{at.name}.backward", at.run.seen((grad,)), at.backend.is_grad_enabled()))
        return grad * ctx.saved_tensors[0] * 2

    return at.backend.custom_function(forward, backward)(at.backend.sin(x))


def _nested(at: Region, x: Any, *, use_reentrant: bool = False) -> Any:
    def inner(x: Any) -> Any:
        at.see("inner", x)
        return at.backend.sin(x)

    return at.backend.exp(at.backend.checkpoint(inner, at.backend.sin(x), use_reentrant=use_reentrant))


def _nested_reentrant(at: Region, x: Any) -> Any:
    return _nested(at, x, use_reentrant=True)


def _pair(at: Region, x: Any, kind: str = "detach") -> Any:
    with at.backend.saved_tensors_hooks(*pair_of(at.run, at.name, kind)):
        y = at.backend.sin(x)
    return y * x


def _boxed(at: Region, x: Any) -> Any:
    return _pair(at, x, "boxed")


def _gradient(at: Region, x: Any) -> Any:
    y = at.backend.sin(x)
    if at.backend.requires_grad(y):
        (grad,) = at.backend.grad(at.backend.sum(y), [x])
        at.see("gradient", grad)
    return at.backend.cos(x)


def _module(at: Region, x: Any) -> Any:
    y = at.outside(x)
    if not at.backend.is_tensor(y):
        raise PlannedError  # whether a region may return something else is not said
    return y


REGIONS: dict[str, Callable[..., Any]] = {
    "chain": _chain,
    "product": _product,
    "nothing": _nothing,
    "two": _two,
    OUTSIDE: _outside,
    "constant": _constant,
    "unrecorded": _unrecorded,
    "hooks": _hooks,
    "raises": _raises,
    "raises-again": _raises_again,
    "other-shape": _other_shape,
    "fewer": _fewer,
    "more": _more,
    "changes": _changes,
    "custom": _custom,
    "nested": _nested,
    "nested-reentrant": _nested_reentrant,
    "pair": _pair,
    "boxed": _boxed,
    "gradient": _gradient,
    MODULE: _module,
}
"""What regions do."""
SAVES_LAST = frozenset({"chain", "hooks", "pair", "boxed", "gradient", "nested", "other-shape", "custom"})
"""Those whose result is made by a Node that has saved something."""
