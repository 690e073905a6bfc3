"""Names of strategies: shipped names, parts joined by +, or module:attribute."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from hooklaw.errors import StrategyError, did_you_mean, misspelt
from hooklaw.offload.steps import Strategy
from hooklaw_backends.offload.asynchronous import Async
from hooklaw_backends.offload.choices import Both, Fraction, Sizes
from hooklaw_backends.offload.disk import DiskRaw, DiskSave
from hooklaw_backends.offload.lossy import Bf16, Int8
from hooklaw_backends.offload.on_cpu import CheckedCopy, TorchPinned
from hooklaw_backends.offload.packer import Choice
from hooklaw_backends.offload.plain import HookOnly, KeepAll
from hooklaw_backends.offload.recompute import Checkpointed
from hooklaw_backends.offload.strategy import Assembled

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


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
            parts.goes_to(partial(_users, name, argument))
        else:
            raise StrategyError(_unknown(part))
    return parts.assembled()


@dataclass
class StrategyParts:
    """The strategy that the parts of a name describe so far."""

    name: str
    choice: Choice | None = None
    codec: type[Bf16] | None = None
    make: Callable[..., Any] | None = None
    cuts: Callable[[Any], Checkpointed] | None = None
    pattern: str = ""

    def assembled(self) -> Strategy:
        """Return the strategy."""
        packer = self._packer()
        if _is_strategy(packer):
            if self.cuts or self.pattern:
                raise self._wrong("a whole strategy takes no other parts; name a packer instead")
            return cast("Strategy", packer)
        if self.pattern and packer is None:
            raise self._wrong(f"modules selects for a packer; add one, as in {self.name}+disk-raw")
        return Assembled(self.name, packer, cuts=self.cuts, pattern=self.pattern)

    def _packer(self) -> Any:
        make = self.make
        if self.codec is None and self.choice is None:
            return make() if make else None
        if make is None and self.codec:
            return self.codec(choice=self.choice)
        if not isinstance(make, partial) or make.func not in (DiskRaw, DiskSave, Async):
            raise self._wrong("fractions, sizes and codecs are for disk-raw, disk-save and async; add one of them")
        return make(codec=self.codec.codec if self.codec else None, choice=self.choice)

    # the parts
    def goes_to(self, make: Callable[..., Any]) -> None:
        """Take what makes the packer."""
        if self.make:
            raise self._wrong("saved tensors go to one place; name one packer")
        self.make = make

    def simple(self, argument: str, family: Callable[[], Any]) -> None:
        if argument:
            raise self._wrong(f"{argument!r} is too much: this part takes nothing after the colon")
        self.goes_to(family)

    def on_disk(self, argument: str, family: type[DiskRaw]) -> None:
        self.goes_to(partial(family, argument or None))

    def asynchronous(self, argument: str) -> None:
        names = {"cap": "cap", "window": "window", "min": "min_bytes"}
        options: dict[str, int] = {}
        for option in filter(None, argument.split(",")):
            key, _, value = option.partition("=")
            if key not in names:
                raise StrategyError(f"async has no option {key!r}: it has cap, window and min, as in async:cap=512MiB")
            options[names[key]] = self._bytes(value)
        self.goes_to(partial(Async, **options))

    def coded(self, argument: str, family: type[Bf16]) -> None:
        if argument or self.codec:
            raise self._wrong("one codec, and nothing after a colon")
        self.codec = family

    def fraction(self, argument: str) -> None:
        try:
            share = float(argument)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise self._wrong("a fraction is between 0 and 1, as in fraction:0.3")
        self._choose(Fraction(share))

    def sizes(self, argument: str) -> None:
        least, _, most = argument.partition("..")
        self._choose(Sizes(self._bytes(least or "0"), self._bytes(most) if most else float("inf")))

    def modules(self, argument: str) -> None:
        if not argument or self.pattern:
            raise self._wrong("modules takes one pattern, as in modules:layer3.*")
        self.pattern = argument

    def checkpoint(self, argument: str) -> None:
        words = argument.split(",") if argument else []
        if not all(word.isdecimal() and int(word) for word in words) or self.cuts:
            raise self._wrong(
                "checkpoint takes a number of segments, as in checkpoint:4, or the length of each, as in "
                "checkpoint:2,3,3"
            )
        counts = [int(word) for word in words]
        self.cuts = partial(Checkpointed, segments=counts[0] if len(counts) == 1 else counts or None)

    def _choose(self, choice: Choice) -> None:
        self.choice = Both(self.choice, choice) if self.choice else choice

    def _bytes(self, text: str) -> int:
        number, unit = (text[:-3], UNITS[text[-3:]]) if text[-3:] in UNITS else (text, 1)
        if not number.isdecimal():
            raise self._wrong(f"{text!r} is not a size; write 65536, 64KiB, 1MiB or 2GiB")
        return int(number) * unit

    def _wrong(self, said: str) -> StrategyError:
        return StrategyError(f"{self.name}: {said}")


def _nothing() -> None:
    return None


PARTS: dict[str, Callable[[StrategyParts, str], None]] = {
    "none": partial(StrategyParts.simple, family=_nothing),
    "hook-only": partial(StrategyParts.simple, family=HookOnly),
    "keep-all": partial(StrategyParts.simple, family=KeepAll),
    "save-on-cpu": partial(StrategyParts.simple, family=torch.autograd.graph.save_on_cpu),
    "save-on-cpu-pinned": partial(StrategyParts.simple, family=TorchPinned),
    "checked-copy": partial(StrategyParts.simple, family=CheckedCopy),
    "disk-raw": partial(StrategyParts.on_disk, family=DiskRaw),
    "disk-save": partial(StrategyParts.on_disk, family=DiskSave),
    "async": StrategyParts.asynchronous,
    "bf16": partial(StrategyParts.coded, family=Bf16),
    "int8": partial(StrategyParts.coded, family=Int8),
    "fraction": StrategyParts.fraction,
    "sizes": StrategyParts.sizes,
    "modules": StrategyParts.modules,
    "checkpoint": StrategyParts.checkpoint,
}


def _unknown(part: str) -> str:
    hint = did_you_mean(part.partition(":")[0], PARTS, f"known are {', '.join(PARTS)}")
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
        said = f"module {module} has no attribute {attribute!r}{misspelt(attribute, error)}"
        raise StrategyError(f"strategy {module}:{attribute}: {said}") from error
    except (Exception, SystemExit) as error:
        said = f"{module} does not import: {_said(error)}{misspelt(module, error)}"
        raise StrategyError(f"strategy {module}:{attribute}: {said}") from error


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
