"""AdapterReport: the faults of an adapter, in words."""

import msgspec

from hooklaw.backend.check._fault import Fault

GAP = 10


class AdapterReport(msgspec.Struct, kw_only=True):
    """What a check of an adapter found."""

    backend: str
    versions: dict[str, str]
    faults: list[Fault]
    probes: int
    """How many probes were run."""
    not_applicable: int
    """How many probes need a capability that the backend does not declare."""
    left: list[str] = []
    """What the backend left behind in its process when it was loaded."""

    @property
    def ok(self) -> bool:
        """Whether there are no faults."""
        return not self.faults

    def __str__(self) -> str:
        version = " ".join(next(iter(self.versions.items()), ("", "")))
        lines = [f"{self.backend} ({version}): {self._verdict()}"]
        for fault in self.faults:
            parts = {"given": fault.given, "expected": fault.expected, "came": fault.got, "mend": fault.mend}
            lines.append(f"  FAULT    {fault.what}")
            lines += [f"           {name:{GAP}}{text}" for name, text in parts.items()]
        return "\n".join([*lines, *(f"  LEFT     {what}" for what in self.left)])

    def _verdict(self) -> str:
        further = f", {self.not_applicable} need capabilities that it does not declare" if self.not_applicable else ""
        if not self.faults:
            return f"no fault in the adapter: {self.probes} probes{further}"
        many = f"{len(self.faults)} faults" if len(self.faults) > 1 else "1 fault"
        if not self.probes:
            return f"{many} in what the adapter declares; no verb was called"
        return f"{many} in the adapter: {self.probes} probes{further}"
