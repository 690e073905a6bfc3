"""The service that checks properties of one packer, in a worker that may die of them."""

import gc
from collections.abc import Callable

import msgspec

from hooklaw.backend.loading import import_module
from hooklaw.errors import PackerError
from hooklaw.law.hypothesis_settings import EXAMPLES
from hooklaw.law.rule import Rule
from hooklaw.packing import _law
from hooklaw.packing._check import Checker, clean
from hooklaw.packing._packer import CheckedPacker, examine, lines_of, resolve
from hooklaw.results.records import Execution
from hooklaw.workers.watchdog import PROPERTY_LIMIT


class PackerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which packer is judged, and how."""

    packer: str
    device: str
    imports: list[str] = []
    """Modules that are imported first, e.g. a package that registers the device."""
    parts: list[str] = []
    """Only properties with one of these texts in their id; all if there is none."""
    examples: int = EXAMPLES
    limit: float = PROPERTY_LIMIT
    expectations: str = ""


class LoadedPacker(msgspec.Struct, frozen=True):
    """The properties, and what the packer declares."""

    rules: list[Rule]
    further_devices: list[str]
    """Devices of this machine besides the CPU."""
    versions: dict[str, str]
    notes: dict[str, str]


class PackerService:
    """Checks properties of one packer; a request is the id of a property."""

    Settings = PackerOptions
    Request = str

    def __init__(self, settings: PackerOptions) -> None:
        for module in settings.imports:
            import_module(module)
        self._packer, self._examples = load(settings.packer, settings.device), settings.examples
        self._properties = _law.properties()
        gc.collect()
        gc.freeze()  # a property that collects garbage need not look at a whole framework

    def hello(self) -> LoadedPacker:
        """Return what must be known before a property is checked."""
        import torch  # noqa: PLC0415 - its absence is a sentence

        packer = self._packer
        declared = {"tolerance": f"{packer.tolerance:g}" if packer.tolerance else "", "medium": packer.medium}
        return LoadedPacker(
            [each.rule for each in self._properties.values()],
            ["cuda"] if torch.cuda.is_available() else [],
            {"torch": str(torch.__version__), **packer.versions},
            {name: value for name, value in declared.items() if value},
        )

    def answer(self, request: str, note: Callable[[object], None]) -> tuple[Execution, bool]:
        """Check a property, noting each program before it runs; return whether another may follow in this process."""
        execution = Checker(self._packer, self._examples, note=note).check(self._properties[request])
        return execution, clean()


def load(spec: str, device: str) -> CheckedPacker:
    """Return the packer; PackerError if it cannot be judged, or torch is missing."""
    try:
        import torch  # noqa: PLC0415 - its absence is a sentence
    except ImportError as error:
        raise PackerError(f"packers are judged with torch, which does not import: {error}") from error
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise PackerError(f"--device {device}: {str(error).splitlines()[0]}") from error
    torch.set_num_threads(1)  # the tensors are small
    return examine(resolve(spec), lines_of(spec), device, spec)
