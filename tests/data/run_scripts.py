"""Executes each script of a JSON object, in a fork of its own, and prints how it ended and what it raised.

Each line of its input is such an object, and each line of its output the answer to one.
An ending is pass, fail, error or crash.

The arguments are modules to import before the forks.
"""

import gc
import json
import os
import signal
import sys
from tempfile import TemporaryFile
from traceback import walk_tb
from types import ModuleType
from typing import NoReturn, TextIO

LIMIT = 60
ENDINGS = ("pass", "fail", "error")
OF_THE_SCRIPT = (NameError, AttributeError, ImportError, SyntaxError)
"""What is raised where the script itself is wrong."""
NAMES = ("<script>", __file__)
"""Where that is raised."""


def ending_of(script: str) -> tuple[str, str]:
    """Return how a script ends, and the text of what it raised."""
    with TemporaryFile("w+", errors="replace") as said:
        child = os.fork()
        if not child:
            execute(script, said)
        status = os.waitpid(child, 0)[1]
        said.seek(0)
        ending = "crash" if os.WIFSIGNALED(status) else ENDINGS[os.waitstatus_to_exitcode(status)]
        return ending, said.read()


def execute(script: str, said: TextIO) -> NoReturn:
    """Execute a script in a fork, write what it raises, and end."""
    status = 0
    signal.alarm(LIMIT)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    try:
        made = sys.modules["__main__"] = ModuleType("__main__")  # where a compiler looks its globals up
        exec(compile(script, "<script>", "exec"), vars(made))  # noqa: S102 - that is what it is for
    except BaseException as error:  # noqa: BLE001 - a fork must not return
        said.write(str(error))
        said.flush()
        status = 2 if isinstance(error, OF_THE_SCRIPT) and raised_in(error) in NAMES else 1
    os._exit(status)


def raised_in(error: BaseException) -> str:
    """Return the file whose code raised an exception."""
    return [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)][-1]


if __name__ == "__main__":
    for module in sys.argv[1:]:
        __import__(module)
    gc.freeze()  # a collection in a fork would copy a whole framework
    for line in sys.stdin:
        print(json.dumps({name: ending_of(script) for name, script in json.loads(line).items()}), flush=True)  # noqa: T201
