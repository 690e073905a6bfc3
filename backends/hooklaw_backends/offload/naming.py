"""Names of strategies: shipped names, parts joined by +, or module:attribute."""

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any, cast

import torch

from hooklaw.errors import StrategyError
from hooklaw.offload.steps import Strategy
from hooklaw_backends.offload.asynchronous import Async
from hooklaw_backends.offload.choices import Both, Fraction, SelectedModules, Sizes
from hooklaw_backends.offload.disk import DiskRaw, DiskSave
from hooklaw_backends.offload.lossy import Bf16, Int8
from hooklaw_backends.offload.on_cpu import CheckedCopy, TorchPinned
from hooklaw_backends.offload.packer import Choice
from hooklaw_backends.offload.plain import HookOnly, KeepAll
from hooklaw_backends.offload.recompute import Checkpointed
from hooklaw_backends.offload.strategy import Assembled

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass
class StrategyParts:
    """The strategy that the parts of a name describe so far."""

    name: str
    choice: Choice | None = None
    codec: type[Bf16] | None = None
    make: Callable[[], Any] | None = None
    changes: list[Callable[..., Any]] = field(default_factory=list)
    pattern: str = ""


def find(spec: str) -> Strategy:
    """Return a new strategy; StrategyError says what is wrong with the name.

    >>> find("checkpoint:4+fraction:0.3+disk-raw").name
    'checkpoint:4+fraction:0.3+disk-raw'
    """
    parts = StrategyParts(spec)
    for part in spec.split("+"):
        name, _, argument = part.partition(":")
        if name in PARTS:
            PARTS[name](parts, argument)
        elif argument.isidentifier() and all(word.isidentifier() for word in name.split(".")):
            _medium(parts, partial(_users, name, argument))
        else:
            raise StrategyError(_unknown(part))
    return _assemble(parts)


def _assemble(parts: StrategyParts) -> Strategy:
    packer = _packer(parts)
    if _is_strategy(packer):
        if parts.changes or parts.pattern:
            raise StrategyError(f"{parts.name}: a whole strategy takes no other parts; name a packer instead")
        return cast("Strategy", packer)
    if parts.pattern and packer is None:
        raise StrategyError(f"{parts.name}: modules selects for a packer; add one, as in {parts.name}+disk-raw")
    inside = partial(_only_inside, parts.pattern) if parts.pattern else None
    return Assembled(parts.name, packer, changes=tuple(parts.changes), only_inside=inside)


def _packer(parts: StrategyParts) -> Any:
    if parts.codec is None and parts.choice is None:
        return parts.make() if parts.make else None
    if parts.make is None and parts.codec:
        return parts.codec(choice=parts.choice)
    if not isinstance(parts.make, partial) or parts.make.func not in (DiskRaw, DiskSave, Async):
        raise StrategyError(
            f"{parts.name}: fractions, sizes and codecs are for disk-raw, disk-save and async; add one of them"
        )
    return parts.make(codec=parts.codec.codec if parts.codec else None, choice=parts.choice)


# the parts
def _medium(parts: StrategyParts, make: Callable[[], Any]) -> None:
    if parts.make:
        raise StrategyError(f"{parts.name}: saved tensors go to one place; name one packer")
    parts.make = make


def _disk(family: type[DiskRaw], parts: StrategyParts, argument: str) -> None:
    _medium(parts, partial(family, argument or None))


def _async(parts: StrategyParts, argument: str) -> None:
    names = {"cap": "cap", "window": "window", "min": "min_bytes"}
    options: dict[str, int] = {}
    for option in filter(None, argument.split(",")):
        key, _, value = option.partition("=")
        if key not in names:
            raise StrategyError(f"async has no option {key!r}: it has cap, window and min, as in async:cap=512MiB")
        options[names[key]] = _bytes(value, parts.name)
    _medium(parts, partial(Async, **options))


def _simple(family: Callable[[], Any], parts: StrategyParts, argument: str) -> None:
    if argument:
        raise StrategyError(f"{parts.name}: {argument!r} is too much: this part takes nothing after the colon")
    _medium(parts, family)


def _nothing() -> None:
    return None


def _codec(family: type[Bf16], parts: StrategyParts, argument: str) -> None:
    if argument or parts.codec:
        raise StrategyError(f"{parts.name}: one codec, and nothing after a colon")
    parts.codec = family


def _choose(parts: StrategyParts, choice: Choice) -> None:
    parts.choice = Both(parts.choice, choice) if parts.choice else choice


def _fraction(parts: StrategyParts, argument: str) -> None:
    try:
        share = float(argument)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise StrategyError(f"{parts.name}: a fraction is between 0 and 1, as in fraction:0.3")
    _choose(parts, Fraction(share))


def _sizes(parts: StrategyParts, argument: str) -> None:
    least, dots, most = argument.partition("..")
    _choose(parts, Sizes(_bytes(least or "0", parts.name), _bytes(most, parts.name) if dots and most else float("inf")))


def _modules(parts: StrategyParts, argument: str) -> None:
    if not argument or parts.pattern:
        raise StrategyError(f"{parts.name}: modules takes one pattern, as in modules:layer3.*")
    parts.pattern = argument


def _only_inside(pattern: str, model: Any, packer: AbstractContextManager[Any]) -> SelectedModules:
    return SelectedModules(model, pattern, packer)


def _checkpoint(parts: StrategyParts, argument: str) -> None:
    words = argument.split(",") if argument else []
    if not all(word.isdecimal() and int(word) for word in words) or parts.changes:
        raise StrategyError(
            f"{parts.name}: checkpoint takes a number of segments, as in checkpoint:4, or the length of each, "
            "as in checkpoint:2,3,3"
        )
    counts = [int(word) for word in words]
    segments = (counts[0] if len(counts) == 1 else counts) if counts else None
    parts.changes.append(lambda model: Checkpointed(model, segments))


PARTS: dict[str, Callable[[StrategyParts, str], None]] = {
    "none": partial(_simple, _nothing),
    "hook-only": partial(_simple, HookOnly),
    "keep-all": partial(_simple, KeepAll),
    "save-on-cpu": partial(_simple, torch.autograd.graph.save_on_cpu),
    "save-on-cpu-pinned": partial(_simple, TorchPinned),
    "checked-copy": partial(_simple, CheckedCopy),
    "disk-raw": partial(_disk, DiskRaw),
    "disk-save": partial(_disk, DiskSave),
    "async": _async,
    "bf16": partial(_codec, Bf16),
    "int8": partial(_codec, Int8),
    "fraction": _fraction,
    "sizes": _sizes,
    "modules": _modules,
    "checkpoint": _checkpoint,
}


def _bytes(text: str, spec: str) -> int:
    number, unit = (text[:-3], UNITS[text[-3:]]) if text[-3:] in UNITS else (text, 1)
    if not number.isdecimal():
        raise StrategyError(f"{spec}: {text!r} is not a size; write 65536, 64KiB, 1MiB or 2GiB")
    return int(number) * unit


def _unknown(part: str) -> str:
    near = get_close_matches(part.partition(":")[0], PARTS, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(PARTS)}"
    return f"no strategy is called {part!r}: {hint} (your own strategy is named module:attribute)"


# a user's own
def _users(module: str, attribute: str) -> Any:
    """Return a user's strategy, a context manager to enter again and again, or a function that makes a new one."""
    found = _imported(module, attribute)
    if not callable(found) or hasattr(type(found), "__enter__"):
        return _checked(found, f"{module}:{attribute}")
    made = _checked(_called(found, f"{module}:{attribute}"), f"{module}:{attribute}")
    return found if hasattr(made, "gen") else made  # contextlib's own kind is good for one step only


def _imported(module: str, attribute: str) -> Any:
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        raise StrategyError(f"strategy {module}:{attribute}: module {module} has no attribute {attribute!r}") from error
    except (Exception, SystemExit) as error:
        raise StrategyError(f"strategy {module}:{attribute}: {module} does not import: {_said(error)}") from error


def _called(found: Callable[[], Any], spec: str) -> Any:
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise StrategyError(f"strategy {spec}: calling it without arguments raised {_said(error)}") from error


def _checked(made: Any, spec: str) -> Any:
    if not _is_strategy(made) and not hasattr(type(made), "__enter__"):
        raise StrategyError(
            f"strategy {spec}: called without arguments it must give a context manager, not {made!r:.60}"
        )
    return made


def _is_strategy(thing: object) -> bool:
    return isinstance(thing, Strategy) and not hasattr(type(thing), "__enter__")


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
