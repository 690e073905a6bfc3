"""Programs in processes of their own, each forked off one that has imported torch already."""

import multiprocessing
import os
import sys
import warnings

from helpers import ran

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "torch._dynamo"])
LIMIT = 120


def run(program, folder):
    """Run a program in a folder, and return its exit code, its output and its errors."""
    process = FORKS.Process(target=_execute, args=(program, folder))
    process.start()
    process.join(LIMIT)
    process.kill()
    process.join()
    return process.exitcode, *((folder / name).read_text() for name in ("stdout", "stderr"))


def hooklaw(*words, folder):
    """Run the command in a folder, and return what it did in the shape of a finished process."""
    return ran(*run(f"from hooklaw.cli import main\nraise SystemExit(main({[*map(str, words)]}))", folder))


def _execute(program, folder):
    os.chdir(folder)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    warnings.simplefilter("ignore")
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the documentation's own
    sys.stdout.flush()
