"""A program in the making: what it has made so far, and the choices that it is made of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

from hooklaw.fuzz.program import Instruction


class Source(Protocol):
    """Where choices come from: a random generator, or Hypothesis."""

    def below(self, bound: int) -> int:
        """Return a number from 0 on, less than the bound."""
        ...


class RandomSource:
    """Choices of a seeded random generator."""

    def __init__(self, *seed: int) -> None:
        self._draw = Random(":".join(map(str, seed))).random  # noqa: S311 - it is no secret

    def below(self, bound: int) -> int:
        """Return a number from 0 on, less than the bound."""
        return int(self._draw() * bound)


class Kind(NamedTuple):
    """What a generator knows of a tensor."""

    shape: tuple[int, ...]
    dtype: str
    leaf: bool = False
    grad: bool = True
    """Whether it requires grad, as far as the generator can tell."""
    view: bool = False


SHAPES = ((2,), (2, 2), (), (2, 1), (4,))
FLOAT = "float64"


@dataclass
class Draft:
    """A program in the making, and what it has made so far."""

    source: Source
    done: list[Instruction] = field(default_factory=list[Instruction])
    tensors: dict[str, Kind] = field(default_factory=dict[str, Kind])
    hooks: list[str] = field(default_factory=list[str])
    modules: dict[str, str] = field(default_factory=dict[str, str])
    contexts: dict[int, int] = field(default_factory=dict[int, int])
    nodes: list[str] = field(default_factory=list[str])
    """Tensors that a Node made, which has saved something."""
    threads: int = 1
    thread: int = 0
    names: int = 0

    def below(self, bound: int) -> int:
        """Draw a number."""
        return self.source.below(bound)

    def one_of(self, choices: Any) -> Any:
        """Draw one of several."""
        return choices[self.source.below(len(choices))]

    def name(self, letter: str) -> str:
        """Return a new name."""
        self.names += 1
        return f"{letter}{self.names}"

    def hooked(self) -> str | None:
        """Draw a tensor to put a hook on: mostly one that has a gradient."""
        return self.tensor(lambda kind: kind.grad) if self.below(30) else self.tensor()

    def tensor(self, fits: Callable[[Kind], bool] = lambda _: True) -> str | None:
        """Draw a tensor, the latest with preference."""
        names = [name for name, kind in self.tensors.items() if fits(kind)]
        if not names:
            return None
        back = min(self.below(len(names)), self.below(len(names)))
        return names[-1 - back]

    def alike(self, kind: Kind) -> str | None:
        """Draw a tensor of the same shape and dtype."""
        return self.tensor(lambda other: other.shape == kind.shape and other.dtype == kind.dtype)

    def add(self, op: str, made: tuple[str, ...] = (), used: tuple[str, ...] = (), how: tuple[Any, ...] = ()) -> None:
        """Add an instruction."""
        self.done.append(Instruction(op, made, used, how, self.thread))

    def new(self, op: str, used: tuple[str, ...], kind: Kind, *how: Any) -> str:
        """Add an instruction that makes a tensor."""
        made = self.name("v")
        self.add(op, (made,), used, how)
        grad = op != "detach" and any(self.tensors[name].grad for name in used)
        self.tensors[made] = kind._replace(leaf=False, grad=grad, view=op in ("view", "transpose"))
        return made
