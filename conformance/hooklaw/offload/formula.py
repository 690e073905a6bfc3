"""The floor of a step with offloading: the least time that its bytes, the link and the plain step allow."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """The plain step and the link: seconds of computation, and bytes a second each way."""

    forward: float
    backward: float
    out_rate: float
    back_rate: float

    def plain(self) -> float:
        """Return the seconds without offloading."""
        return self.forward + self.backward

    def synchronous(self, nbytes: float) -> float:
        """Return the seconds if the computation waits for every copy."""
        return self.plain() + nbytes / self.out_rate + nbytes / self.back_rate

    def floor(self, nbytes: float, resident: float = 0.0) -> float:
        """Return the seconds under perfect overlap; `resident` bytes may be on the device when forward ends.

        All other bytes are out by then. Bytes that the link had not yet taken by then need not come back.
        """
        out = max(self.forward, max(0.0, nbytes - resident) / self.out_rate)
        behind = min(resident, max(0.0, nbytes - self.forward * self.out_rate))
        return out + max(self.backward, (nbytes - behind) / self.back_rate)
