"""Facts about the host machine, for the header of a record."""

import platform
from pathlib import Path

FACTS = ("python", "os", "cpu")
"""The names of the facts."""


def versions() -> dict[str, str]:
    """Return the versions of Python and the operating system, and the processor's name."""
    return {
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        "cpu": _cpu(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
