"""Executes each script of a JSON object, in a fork of its own, and prints how it ended: pass, fail, error or crash.

The arguments are modules to import before the forks.
"""

import gc
import json
import os
import signal
import sys

LIMIT = 60
ENDINGS = ("pass", "fail", "error")


def ending_of(script: str) -> str:
    """Return how a script ends."""
    child = os.fork()
    if not child:
        signal.alarm(LIMIT)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        try:
            exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})  # noqa: S102 - that is what it is for
        except (NameError, AttributeError, ImportError, SyntaxError):
            os._exit(2)  # the script itself is wrong
        except BaseException:  # noqa: BLE001 - a fork must not return
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return "crash" if os.WIFSIGNALED(status) else ENDINGS[os.waitstatus_to_exitcode(status)]


if __name__ == "__main__":
    for module in sys.argv[1:]:
        __import__(module)
    gc.freeze()  # a collection in a fork would copy a whole framework
    print(json.dumps({name: ending_of(script) for name, script in json.load(sys.stdin).items()}))  # noqa: T201
