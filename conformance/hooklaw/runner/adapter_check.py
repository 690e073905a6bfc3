"""The check of an adapter in a worker: each probe is a request, so a probe that ends the process is named."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from hooklaw.backend import loading
from hooklaw.backend.check import DECLARATIONS, AdapterReport, Fault, named_probes, report_of, run_probe
from hooklaw.runner.left_behind import Surroundings, grad_mode_left
from hooklaw.workers.supervisor import Supervisor, WorkerDiedError


class CheckSettings(msgspec.Struct, frozen=True):
    """Which adapter is checked."""

    backend: str
    imports: list[str] = []


class Loaded(msgspec.Struct, frozen=True):
    """The versions of a loaded backend, its probes, and what it left behind."""

    versions: dict[str, str]
    probes: list[str]
    left: list[str]


class TryProbe(msgspec.Struct, frozen=True):
    """A request: run one probe."""

    name: str


class CheckService:
    """Runs probes on one backend."""

    Settings = CheckSettings
    Request = TryProbe

    def __init__(self, settings: CheckSettings) -> None:
        before = Surroundings()
        self._backend: Any = loading.make(settings.backend, settings.imports)
        self._left = before.left()
        self._declared = run_probe(self._backend, DECLARATIONS)
        if not self._declared:
            self._left += grad_mode_left(self._backend, settings.backend)

    def hello(self) -> Loaded:
        """Return what there is to try."""
        versions = getattr(self._backend, "versions", None)
        texts = {str(name): str(value) for name, value in versions.items()} if isinstance(versions, Mapping) else {}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return Loaded(texts, [] if self._declared else named_probes(self._backend), self._left)

    def answer(self, request: TryProbe, note: Callable[[object], None]) -> list[Fault]:
        """Return the faults that a probe finds."""
        del note  # a probe has nothing to say before it ends
        return self._declared if request.name == DECLARATIONS else run_probe(self._backend, request.name)


def check(spec: str, imports: Sequence[str], limit: float) -> AdapterReport:
    """Check the adapter of a backend; `limit` is what a probe may take.

    Raises what loading the backend raises.
    """
    worker: Supervisor[Loaded, list[Fault]] = Supervisor(
        "hooklaw.runner.adapter_check:CheckService",
        CheckSettings(spec, [*imports]),
        name=f"backend {spec!r}",
        hello=Loaded,
        answer=list[Fault],
    )

    def run(name: str) -> list[Fault]:
        try:
            return worker.ask(TryProbe(name), limit)
        except WorkerDiedError as died:
            given, mend = f"the probe {name!r}", "run its verbs alone, and mend what ends the process"
            return [Fault(name, given, "an answer", f"{died.death.detail} {died.death.where}".strip(), mend)]

    with worker:
        loaded = worker.hello()
        report = report_of(spec, loaded.versions, loaded.probes, run)
    report.left = loaded.left
    return report
