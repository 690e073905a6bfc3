"""An environment whose hardware or framework is absent is a SKIP, decided before anything is downloaded for it."""

import shutil
import subprocess
import sys

from tox.plugin import impl
from tox.tox_env.api import ToxEnv
from tox.tox_env.errors import Skip


def _why_no_cuda() -> str:
    program = shutil.which("nvidia-smi")
    if not program:
        return "no NVIDIA driver here (nvidia-smi not found)"
    listed = subprocess.run([program, "-L"], capture_output=True, text=True, check=False)  # noqa: S603 - which found it
    return "" if listed.returncode == 0 and "GPU" in listed.stdout else "nvidia-smi lists no GPU"


def _why_no_tensorplay() -> str:
    return "" if sys.version_info < (3, 14) else "TensorPlay has no package for Python 3.14"


NEEDS = {"cuda": _why_no_cuda, "tensorplay": _why_no_tensorplay}


@impl
def tox_on_install(tox_env: ToxEnv, arguments: object, section: str, of_type: str) -> None:  # noqa: ARG001 - tox's own
    """Skip before the first package is installed."""
    for factor in tox_env.conf.name.split("-"):
        if factor in NEEDS and (why := NEEDS[factor]()):
            raise Skip(why)
