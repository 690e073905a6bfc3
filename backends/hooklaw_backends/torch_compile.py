"""torch with the forward part of every rule compiled: ``torch-compile:aot_eager``, ``:eager``, ``:inductor``.

``torch-compile:eager+compiled-autograd`` compiles each backward instead, and
``torch-compile:eager+compiled-autograd+forward`` both; other compilers take these suffixes too. A device may follow, as
in ``torch-compile:inductor:cuda``.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from hooklaw import NotRunError
from hooklaw.errors import did_you_mean
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import Replayed
from hooklaw_backends.compiled_programs import code_compiled, replay_compiled
from hooklaw_backends.torch_eager import Hook, TorchEager, check_device, torch

DEFAULT = "aot_eager"
CALL = (
    "torch.compile(fn, backend={!r}) with torch's defaults: graph breaks allowed, at most 8 recompilations a function."
)
BACKWARD = "each backward runs under compiled autograd, torch.compile(backend={!r}); the forward is {}compiled."
COMPILED_AUTOGRAD, BOTH = "compiled-autograd", "compiled-autograd+forward"
NO_SUBCLASS = (
    "any operation on a tensor of a plain subclass is an error (https://github.com/pytorch/pytorch/issues/193932)"
)
NO_NESTING = "compiled autograd refuses to run inside another compiled backward"


def backend(argument: str = "") -> "TorchCompile":
    """Return the backend for a compiler of torch.compile, by default ``aot_eager``, on a device, by default the CPU.

    Raises ValueError if torch.compile does not know the compiler, NotRunError if this machine cannot use it.
    """
    compiler_and_mode, _, device = argument.partition(":")
    compiler, plus, mode = compiler_and_mode.partition("+")
    compiler, device = compiler or DEFAULT, device or "cpu"
    _check_name(compiler)
    if plus and mode not in (COMPILED_AUTOGRAD, BOTH):
        raise ValueError(f"unknown mode {mode!r} after the +: use {COMPILED_AUTOGRAD} or {BOTH}")
    check_device(device)
    _time_no_guards()
    _check_use(compiler, device)
    return CompiledAutograd(compiler, mode, device) if plus else TorchCompile(compiler, device=device)


def _check_name(compiler: str) -> None:
    known = torch.compiler.list_backends(exclude_tags=())
    if compiler not in known:
        hint = did_you_mean(compiler, known, "use aot_eager, eager or inductor")
        raise ValueError(f"torch.compile has no backend {compiler!r}: {hint}")


def _check_use(compiler: str, device: str) -> None:
    """Compile a small function, so that a missing package or C++ compiler is found before the run."""
    try:
        torch.compile(lambda x: x + 1, backend=compiler)(torch.ones(1, device=device))
    except Exception as error:
        said = next((line for line in str(error).splitlines()[1:] if line.strip()), str(error))
        raise NotRunError(f"torch {torch.__version__} cannot compile with {compiler!r} here: {said}") from error


def _time_no_guards() -> None:
    """Leave out what the compiler measures for a debug log alone, 40 ms for each region: a quarter of a run."""
    guards: Any = import_module("torch._dynamo.guards")
    if hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = lambda *_: 0.0


class TorchCompile(TorchEager):
    """The verbs of eager torch, except that `call` compiles."""

    examples = 5  # each example of a property is compiled, which takes about a second
    compiled_autograd = False
    forward_compiled = True
    alone = "each rank would compile every function of its own, which takes minutes"

    def __init__(self, compiler: str = DEFAULT, mode: str = "", device: str = "cpu") -> None:
        mode = f"{compiler}+{mode}" if mode else compiler
        super().__init__(device, f"torch-compile:{mode}" + (f":{device}" if device != "cpu" else ""))
        self._compiler = compiler
        own = _file_of("expectations", f"{mode}-{self._device.type}")
        self.expectations = own or _file_of("expectations", mode)
        self.findings = _file_of("findings", mode)
        self.notes["call"] = CALL.format(compiler)
        self.not_under = {} if compiler == "eager" else {"subclass": NO_SUBCLASS}

    @property
    def has_frames(self) -> bool:
        """Whether a script keeps each verb a function, since the compiler may skip its caller and compile it alone."""
        return self.forward_compiled

    def reset(self) -> None:
        """Also drop all compiled code, so that every rule starts from nothing."""
        super().reset()
        torch.compiler.reset()

    def call(self, fn: Hook, *tensors: Any) -> Any:
        return torch.compile(fn, backend=self._compiler)(*tensors)

    def replay_program(self, program: Sequence[Instruction]) -> Replayed:
        parts = {"forward": self.forward_compiled, "compiled_autograd": self.compiled_autograd}
        return replay_compiled(program, self._compiler, **parts)

    def code_of_program(self, program: Sequence[Instruction]) -> str:
        parts = {"forward": self.forward_compiled, "compiled_autograd": self.compiled_autograd}
        return code_compiled(program, self._compiler, **parts)


class CompiledAutograd(TorchCompile):
    """The verbs of eager torch, except that each backward is compiled, and perhaps the forward too."""

    examples = 2
    compiled_autograd = True

    def __init__(self, compiler: str = DEFAULT, mode: str = COMPILED_AUTOGRAD, device: str = "cpu") -> None:
        super().__init__(compiler, mode, device)
        self.forward_compiled = mode == BOTH
        self.not_under = {**self.not_under, "inside-pass": NO_NESTING}
        self.notes["call"] = BACKWARD.format(compiler, "" if self.forward_compiled else "not ")

    def call(self, fn: Hook, *tensors: Any) -> Any:
        return super().call(fn, *tensors) if self.forward_compiled else fn(*tensors)

    def backward(self, root: Any, gradient: Any = None, *, inputs: Sequence[Any] | None = None, **how: Any) -> None:
        with self._compiling():
            super().backward(root, gradient, inputs=inputs, **how)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        with self._compiling():
            return super().grad(outputs, inputs, grad_outputs, **how)

    def _compiling(self) -> AbstractContextManager[Any]:
        enable = import_module("torch._dynamo.compiled_autograd")._enable  # noqa: SLF001 - the public API is a global switch
        return enable(torch.compile(backend=self._compiler))


def _file_of(folder: str, mode: str) -> Path | None:
    path = Path(__file__).with_name(folder) / f"torch-compile-{mode}.toml"
    return path if path.exists() else None
