"""The draft of a program: what its instructions have made so far, and the choices that it is drawn by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.operations import OPERATIONS


class Choices(Protocol):
    """Where choices come from: a random generator, or Hypothesis."""

    def below(self, bound: int) -> int:
        """Return a number of at least 0 and less than the bound."""
        ...


class RandomChoices:
    """Choices of a seeded random generator."""

    def __init__(self, *seed: int) -> None:
        self._draw = Random(":".join(map(str, seed))).random  # noqa: S311 - it is not a secret

    def below(self, bound: int) -> int:
        """Return a number of at least 0 and less than the bound."""
        return int(self._draw() * bound)


class TensorKind(NamedTuple):
    """What is known of a tensor before the program runs."""

    shape: tuple[int, ...]
    dtype: str
    leaf: bool = False
    grad: bool = True
    """Whether it requires grad, as far as is known."""
    view: bool = False
    behind: frozenset[str] = frozenset()
    """The tensors that it was computed from."""


SHAPES = ((2,), (2, 2), (), (2, 1), (4,))
EMPTY = (0,)
FLOAT = "float64"


@dataclass
class ProgramDraft:
    """A program that is being drawn, and what it has made so far."""

    choices: Choices
    done: list[Instruction] = field(default_factory=list[Instruction])
    tensors: dict[str, TensorKind] = field(default_factory=dict[str, TensorKind])
    hooks: list[str] = field(default_factory=list[str])
    modules: dict[str, str] = field(default_factory=dict[str, str])
    contexts: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """The contexts that are open in each thread."""
    nodes: list[str] = field(default_factory=list[str])
    """Tensors whose nodes have saved tensors."""
    family: dict[str, str] = field(default_factory=dict[str, str])
    """The base of each view."""
    stale: set[str] = field(default_factory=set[str])
    """Tensors that were changed through another view: a hook on such a tensor crashes torch 2.13."""
    threads: int = 1
    thread: int = 0
    edges: dict[str, str] = field(default_factory=dict[str, str])
    """Gradient edges, by their tensors."""
    states: dict[str, str] = field(default_factory=dict[str, str])
    """The module or optimizer of each state."""
    optimizers: list[str] = field(default_factory=list[str])
    names: int = 0

    def below(self, bound: int) -> int:
        """Draw a number."""
        return self.choices.below(bound)

    def one_of(self, options: Any) -> Any:
        """Draw one of several options."""
        return options[self.choices.below(len(options))]

    def name(self, letter: str) -> str:
        """Return a new name."""
        self.names += 1
        return f"{letter}{self.names}"

    def hooked(self) -> str | None:
        """Draw a tensor for a hook: mostly one that requires grad and was not changed through another view."""
        if self.below(30) == 0:
            return self.tensor()
        names = [name for name, kind in self.tensors.items() if kind.grad and name not in self.stale]
        return self.latest(names)

    def touch(self, name: str) -> None:
        """Note that a tensor is changed in place, which makes other views of its base stale until they are used."""
        base = self.family.get(name, name)
        self.stale |= {other for other in self.tensors if other != name and self.family.get(other, other) == base}

    def tensor(self, fits: Callable[[TensorKind], bool] = lambda _: True) -> str | None:
        """Draw a tensor, more likely a late one."""
        return self.latest([name for name, kind in self.tensors.items() if fits(kind)])

    def latest(self, names: Sequence[str]) -> str | None:
        """Draw a name, more likely a late one."""
        if not names:
            return None
        back = min(self.below(len(names)), self.below(len(names)))
        return names[-1 - back]

    def alike(self, kind: TensorKind) -> str | None:
        """Draw a tensor of the same shape and dtype."""
        return self.tensor(lambda other: other.shape == kind.shape and other.dtype == kind.dtype)

    def add(self, op: str, made: tuple[str, ...] = (), used: tuple[str, ...] = (), how: tuple[Any, ...] = ()) -> None:
        """Add an instruction."""
        self.done.append(Instruction(op, made, used, how, self.thread))
        if made:
            self.stale -= {*used}

    def hook(self, op: str, used: tuple[str, ...], *how: Any, name: str = "") -> None:
        """Add an instruction that registers a hook."""
        name = name or self.name("h")
        self.add(op, (name,), used, how)
        self.hooks.append(name)

    def leaf(self, shape: tuple[int, ...], dtype: str = FLOAT, *, grad: bool = True) -> str:
        """Add a leaf, and return its name."""
        name = self.name("x")
        self.add("leaf", (name,), (), (shape, dtype, grad))
        self.tensors[name] = TensorKind(shape, dtype, leaf=grad, grad=grad)
        return name

    def pair(self, op: str, x: str, kind: TensorKind, *how: Any) -> tuple[str, str]:
        """Add an instruction that makes two tensors of one."""
        made = (self.name("v"), self.name("v"))
        self.add(op, made, (x,), how)
        self.tensors.update(dict.fromkeys(made, self.computed(kind, x)))
        return made

    @property
    def open(self) -> list[str]:
        """The contexts that are open in this thread."""
        return self.contexts.setdefault(self.thread, [])

    def enter(self, op: str, made: tuple[str, ...] = (), how: tuple[Any, ...] = ()) -> None:
        """Add an instruction that enters a context."""
        self.add(op, made, (), how)
        self.open.append(op)

    def new(self, op: str, used: tuple[str, ...], kind: TensorKind, *how: Any) -> str:
        """Add an instruction that makes a tensor."""
        made, traits = self.name("v"), OPERATIONS[op].traits
        self.add(op, (made,), used, how)
        self.tensors[made] = self.computed(kind, *used)._replace(view=traits.view and op != "expand")
        if traits.view:
            self.family[made] = self.family.get(used[0], used[0])
        if op == "detach":
            self.tensors[made] = kind._replace(leaf=False, grad=False, behind=frozenset())
        return made

    def computed(self, kind: TensorKind, *used: str) -> TensorKind:
        """Return the kind of a tensor that is computed from others."""
        grad = self.is_recording() and any(self.tensors[name].grad for name in used)
        behind = frozenset(used).union(*(self.tensors[name].behind for name in used)) if grad else frozenset[str]()
        return kind._replace(leaf=False, grad=grad, behind=behind, view=False)

    def is_recording(self) -> bool:
        """Whether operations are recorded now."""
        modes = [op for op in self.contexts.get(self.thread, ()) if op in ("no_grad", "enable_grad", "inference_mode")]
        return not modes or modes[-1] == "enable_grad"
