"""The instructions of a program that are executed, as a run on the engine shows them."""

from collections.abc import Sequence
from typing import NamedTuple

from hooklaw.fuzz.judge.judge import engine
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import Event, Replay
from hooklaw.model.flags import TORCH


class MadeTensor(NamedTuple):
    """A tensor as it was made."""

    leaf: bool
    shape: tuple[int, ...]


class Carried(Replay):
    """A run on the engine that plays torch, where the same steps are skipped as on torch."""

    def __init__(self, program: Sequence[Instruction]) -> None:
        backend = engine(TORCH)
        backend.reset()
        super().__init__(backend, self._note)
        self.left_out: set[int] = set()
        """Instructions that are skipped though all the names that they use exist."""
        self.kinds: dict[str, MadeTensor] = {}
        """The tensors that instructions made."""
        self.lays_out: set[int] = set()
        """The instructions after which layouts are shown."""
        self.counts: set[int] = set()
        """The instructions after which packed objects are counted."""
        self.owned_since: dict[str, int] = {}
        """The instructions from which on the layouts of gradients are shown, by their leaves."""
        self.failed: set[Instruction] = set()
        """The instructions that raised an error."""
        self.events: list[Event] = []
        self._program = program
        self.all(program)

    def step(self, number: int, instruction: Instruction) -> None:
        """Replay an instruction and note its outcome; only new tensors are read, since reading may change a tensor."""
        there = {*self.tensors, *self.handles, *self.modules, *self.states, *self.optimizers}
        super().step(number, instruction)
        if number in self.skipped and there.issuperset(instruction.used):
            self.left_out.add(number)
        self.owned_since = dict.fromkeys(self.owned, number) | self.owned_since
        self.lays_out.update([] if self.created else [number])
        self.counts.update([] if self.created or self.nests else [number])
        for name in self.tensors.keys() & {*instruction.made}:
            tensor = self.tensors[name]
            self.kinds[name] = MadeTensor(self.backend.is_leaf(tensor), tuple(self.backend.shape(tensor)))

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor if it was made."""
        return self.kinds[name].shape if name in self.kinds else None

    def _note(self, event: Event) -> None:
        self.events.append(event)
        if event[0] == "error" and isinstance(event[1], int):
            self.failed.add(self._program[event[1]])
