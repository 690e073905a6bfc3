"""An environment of its own, in which a test installs hooklaw as its user does."""

import os
import subprocess
import sys
import venv
from importlib.util import find_spec


def shell_in(folder):
    """Make an environment in a folder, and return its shell: a function of some lines of bash and of their folder.

    What these tests have is there too, but no clone: a hooklaw that is installed there is the only one.
    """
    venv.create(folder, with_pip=not find_spec("pip"))
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "tests.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    build = {"PIP_NO_BUILD_ISOLATION": "0"} if find_spec("hatchling") else {}  # 0 means none: what is here builds
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | build
    variables |= {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(lines, cwd=folder, **more):
        command = ["bash", "-ec", lines]
        return subprocess.run(
            command, cwd=cwd, env=variables | more, capture_output=True, text=True, check=False, timeout=300
        )

    return run
