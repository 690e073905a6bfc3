"""A program in the making: what it has made so far, and the choices that it is made of."""

from collections.abc import Callable, Sequence
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
    behind: frozenset[str] = frozenset()
    """The tensors that it was computed from."""


SHAPES = ((2,), (2, 2), (), (2, 1), (4,))
EMPTY = (0,)
FLOAT = "float64"


@dataclass
class Draft:
    """A program in the making, and what it has made so far."""

    source: Source
    done: list[Instruction] = field(default_factory=list[Instruction])
    tensors: dict[str, Kind] = field(default_factory=dict[str, Kind])
    hooks: list[str] = field(default_factory=list[str])
    modules: dict[str, str] = field(default_factory=dict[str, str])
    contexts: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """What is entered in each thread."""
    nodes: list[str] = field(default_factory=list[str])
    """Tensors that a Node made, which has saved something."""
    family: dict[str, str] = field(default_factory=dict[str, str])
    """Of views: the tensor at the bottom."""
    stale: set[str] = field(default_factory=set[str])
    """Tensors whose numbers were changed through another view: a hook on one ends the process of torch 2.13."""
    threads: int = 1
    thread: int = 0
    edges: dict[str, str] = field(default_factory=dict[str, str])
    """Gradient edges, by the tensors that they were taken of."""
    states: dict[str, str] = field(default_factory=dict[str, str])
    """States of modules and optimizers, by what they were taken of."""
    optimizers: list[str] = field(default_factory=list[str])
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
        """Draw a tensor to put a hook on: mostly one that has a gradient, and whose history is known to it."""
        if self.below(30) == 0:
            return self.tensor()
        names = [name for name, kind in self.tensors.items() if kind.grad and name not in self.stale]
        return self.latest(names)

    def touch(self, name: str) -> None:
        """Note that a tensor is changed in place, of which other views then learn when they are used."""
        base = self.family.get(name, name)
        self.stale |= {one for one in self.tensors if one != name and self.family.get(one, one) == base}

    def tensor(self, fits: Callable[[Kind], bool] = lambda _: True) -> str | None:
        """Draw a tensor, the latest with preference."""
        return self.latest([name for name, kind in self.tensors.items() if fits(kind)])

    def latest(self, names: Sequence[str]) -> str | None:
        """Draw one of some names, the latest with preference."""
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
        if made:
            self.stale -= {*used}

    def new(self, op: str, used: tuple[str, ...], kind: Kind, *how: Any) -> str:
        """Add an instruction that makes a tensor."""
        made = self.name("v")
        self.add(op, (made,), used, how)
        self.tensors[made] = self.computed(kind, *used)._replace(view=op in ("view", "transpose"))
        if op in ("view", "transpose", "expand"):
            self.family[made] = self.family.get(used[0], used[0])
        if op == "detach":
            self.tensors[made] = kind._replace(leaf=False, grad=False, behind=frozenset())
        return made

    def computed(self, kind: Kind, *used: str) -> Kind:
        """Return the kind of what is computed from some tensors."""
        grad = self.is_recording() and any(self.tensors[name].grad for name in used)
        behind = frozenset(used).union(*(self.tensors[name].behind for name in used)) if grad else frozenset[str]()
        return kind._replace(leaf=False, grad=grad, behind=behind, view=False)

    def is_recording(self) -> bool:
        """Tell whether operations are recorded now."""
        modes = [op for op in self.contexts.get(self.thread, ()) if op in ("no_grad", "enable_grad", "inference_mode")]
        return not modes or modes[-1] == "enable_grad"
