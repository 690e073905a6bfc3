"""torch with the forward part of every rule compiled: ``torch-compile:aot_eager``, ``:eager``, ``:inductor``."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hooklaw.errors import NotRunError
from hooklaw_backends.torch_eager import Hook, TorchEager, torch

DEFAULT = "aot_eager"
CALL = (
    "torch.compile(fn, backend={!r}) with torch's defaults: graph breaks allowed, at most 8 recompilations a function."
)


def backend(argument: str = "") -> "TorchCompile":
    """Return the backend for one of torch.compile's own backends, by default ``aot_eager``.

    Raises ValueError where torch.compile knows no such backend, NotRunError where it cannot be used on this machine.
    """
    compiler = argument or DEFAULT
    _check_name(compiler)
    _check_use(compiler)
    return TorchCompile(compiler)


def _check_name(compiler: str) -> None:
    known = torch.compiler.list_backends(exclude_tags=())
    if compiler not in known:
        near = get_close_matches(compiler, known, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "use aot_eager, eager or inductor"
        raise ValueError(f"torch.compile has no backend {compiler!r}: {hint}")


def _check_use(compiler: str) -> None:
    """Compile something once, so that a missing package or C++ compiler is known before the run."""
    try:
        torch.compile(lambda x: x + 1, backend=compiler)(torch.ones(1))
    except Exception as error:
        said = next((line for line in str(error).splitlines()[1:] if line.strip()), str(error))
        raise NotRunError(f"torch {torch.__version__} cannot compile with {compiler!r} here: {said}") from error


class TorchCompile(TorchEager):
    """The verbs of eager torch, on the CPU, but `call` compiles."""

    examples = 5  # each example of a property is compiled anew, which takes about a second

    def __init__(self, compiler: str = DEFAULT) -> None:
        super().__init__(name=f"torch-compile:{compiler}")
        self._compiler = compiler
        self.expectations = _expectations(compiler)
        self.notes["call"] = CALL.format(compiler)

    def reset(self) -> None:
        """Also forget what was compiled, so that every rule starts from nothing."""
        super().reset()
        torch.compiler.reset()

    def call(self, fn: Hook, *tensors: Any) -> Any:
        return torch.compile(fn, backend=self._compiler)(*tensors)


def _expectations(compiler: str) -> Path | None:
    path = Path(__file__).with_name("expectations") / f"torch-compile-{compiler}.toml"
    return path if path.exists() else None
