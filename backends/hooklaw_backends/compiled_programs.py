"""Random programs with a compiled forward, a compiled backward (compiled autograd), or both."""

from collections.abc import Callable, Sequence
from typing import Any

from hooklaw.fuzz.emit.compiled import Parted, compiled, parted
from hooklaw.fuzz.emit.run_script import events_of
from hooklaw.fuzz.judge.compare import same, streams
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import Event, NotReplayedError, Replayed, replay
from hooklaw_backends.torch_eager import TorchEager, torch


class NotCompiledError(NotReplayedError):
    """The compiler refuses the program; that is not a divergence."""


def replay_compiled(
    program: Sequence[Instruction],
    compiler: str,
    *,
    forward: bool = True,
    compiled_autograd: bool = False,
) -> Replayed:
    """Return a program in an order that can be compiled, and what torch shows of it when compiled.

    A run in eager mode finds out which part can be compiled. Raises NotCompiledError.
    """
    backend = TorchEager()
    parts = order_compiled(program, backend)
    if forward and not parts.forward:
        raise NotCompiledError("the program has no forward before its first backward, or the forward fails")
    eager = replay(parts.program, backend)

    def shown(*compiles: str) -> list[Event]:
        text = compiled(parts, eager, compiler, ["log", *compiles])
        try:
            return events_of(text, parts.program, backend, _kept_out)
        except Exception as error:
            raise NotCompiledError(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}") from error

    if not same(sorted(streams(eager).items()), sorted(streams(shown()).items())):
        raise NotCompiledError("the emitted code shows something other than the program, even without a compiler")
    torch.compiler.reset()
    return Replayed(parts.program, shown(*["forward"] * forward, *["backward"] * compiled_autograd))


def code_compiled(
    program: Sequence[Instruction], compiler: str, *, forward: bool = True, compiled_autograd: bool = False
) -> str:
    """Return plain torch code that compiles a program and runs it."""
    backend = TorchEager()
    parts = order_compiled(program, backend)
    compiles = ["forward"] * forward + ["backward"] * compiled_autograd
    return compiled(parts, replay(parts.program, backend), compiler, compiles)


def order_compiled(program: Sequence[Instruction], backend: Any) -> Parted:
    """Return a program as set-up, forward and rest, such that the forward does not fail in eager mode."""
    failed = {event[1] for event in replay(program, backend) if event[0] == "error"}
    return parted(program, failed)


def _kept_out(saw: Callable[..., object]) -> Callable[..., object]:
    """Let Dynamo break its graph at each logged event instead of tracing the logging."""
    return torch.compiler.disable(saw)
