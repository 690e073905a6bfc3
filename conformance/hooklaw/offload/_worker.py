"""The service that measures cells: a `hooklaw.workers` service with one strategy open at a time.

`Open`, `Take` and `Close` are its requests. torch is imported when the service starts, not with this module.
"""

import errno
import gc
import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from hooklaw.backend.loading import import_module
from hooklaw.errors import BenchError, misspelt
from hooklaw.offload._sampling import Times
from hooklaw.offload.plan import CellPlan
from hooklaw.results.verdict import Outcome


class CellSettings(msgspec.Struct, frozen=True):
    """The strategies to load, and the device to measure them on."""

    module: str
    strategies: tuple[str, ...]
    device: str
    imports: tuple[str, ...] = ()


class Inventory(msgspec.Struct, frozen=True):
    """What a worker found."""

    strategies: dict[str, str]
    """A sentence about each shipped strategy."""
    versions: dict[str, str]
    device: str
    packers: dict[str, str]
    """The packer of each strategy as module:attribute, or nothing."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """Make the strategy of a cell and check its gradients."""

    cell: CellPlan


class Take(msgspec.Struct, frozen=True, tag=True):
    """Take a step, the plain one or the strategy's own."""

    plain: bool


class Close(msgspec.Struct, frozen=True, tag=True):
    """Check the gradients again, account for memory and bytes if asked to, and end the strategy."""

    account: bool


class Closed(msgspec.Struct, frozen=True, tag=True):
    """What a visit found besides times."""

    outcome: Outcome
    detail: str
    figures: dict[str, Any]
    """Values of a Cell by name."""
    ceiling: tuple[float, float] | None = None
    """Bytes a second that the medium takes, and gives back."""


class Broke(msgspec.Struct, frozen=True, tag=True):
    """A strategy raised."""

    detail: str


Reply = Times | Closed | Broke | None


class CellService:
    """Measures one cell after the other."""

    Settings = CellSettings
    Request = Open | Take | Close

    def __init__(self, settings: CellSettings) -> None:
        self._settings = settings
        self._baselines: Any = None
        self._visit: Any = None

    def hello(self) -> Inventory:
        """Look at what there is; BenchError says what is missing."""
        try:
            import torch  # noqa: PLC0415 - its absence is a sentence
        except ImportError as error:
            raise BenchError(f"strategies are measured with torch, which does not import: {error}") from error
        for module in self._settings.imports:
            import_module(module)
        torch.set_num_threads(1)
        device = self._settings.device
        try:
            torch.zeros(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise BenchError(f"--device {device}: {str(error).splitlines()[0]}") from error
        from hooklaw.offload._visit import Baselines  # noqa: PLC0415 - it needs torch

        module = _imported(self._settings.module)
        self._baselines = Baselines(module.find)
        known = {name: shipped.text for name, shipped in module.STRATEGIES.items()}
        packers = {spec: _packer(module.find(spec)) for spec in self._settings.strategies or known}
        name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
        return Inventory(known, {"torch": str(torch.__version__)}, name, packers)

    def answer(self, request: Open | Take | Close, note: Callable[[object], None]) -> Reply:
        """Do as asked."""
        del note  # a cell that ends its worker needs no more words
        try:
            return self._answer(request)
        except BaseException as error:  # noqa: BLE001 - what a strategy raises marks its own cell
            return Broke(_said(error))

    def _answer(self, request: Open | Take | Close) -> Reply:
        if isinstance(request, Open):
            from hooklaw.offload._visit import Visit  # noqa: PLC0415 - it needs torch

            self._visit = None
            gc.collect()
            gc.freeze()  # collecting a cell's garbage need not look at a whole framework
            self._visit = Visit(self._baselines, request.cell)
            return None
        return self._visit.take(request.plain) if isinstance(request, Take) else self._visit.close(request)


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BenchError(
            f"the strategies' module {module} does not import: {error}{misspelt(module, error)}"
        ) from error


def _packer(strategy: Any) -> str:
    """Return the class that a strategy enters, where the law of packers can judge it."""
    import torch  # noqa: PLC0415 - the caller has imported it

    context = strategy.context()
    strategy.close()
    kind = type(context)
    is_packer = hasattr(kind, "pack") or isinstance(context, torch.autograd.graph.saved_tensors_hooks)
    return f"{kind.__module__}:{kind.__qualname__}" if is_packer else ""


def _said(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0]
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk is full: {text}"
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
        return f"out of memory: {text or type(error).__name__}"
    return f"{type(error).__name__}: {text}"
