"""Executing rules side by side: several executors of one backend, whose results come in the order of the rules."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress

from hooklaw.results.records import Execution
from hooklaw.runner.executor import Executor
from hooklaw.runner.worker import Listed

Execute = Callable[[Executor, Listed], Execution]


def executed(execute: Execute, rules: Sequence[Listed], executors: Sequence[Executor]) -> Iterator[Execution]:
    """Yield what came of each rule, in their order; each executor takes the next rule that waits.

    What `execute` raises is raised here. When this generator is closed, or interrupted, the workers are killed.
    """
    if len(executors) == 1:
        yield from (execute(executors[0], rule) for rule in rules)
        return
    futures: list[Future[Execution]] = [Future() for _ in rules]
    waiting = iter([*zip(rules, futures, strict=True)])

    def serve(executor: Executor) -> None:
        for rule, future in waiting:
            try:
                future.set_result(execute(executor, rule))
            except BaseException as error:  # noqa: BLE001 - it is raised below
                future.set_exception(error)

    threads = [threading.Thread(target=serve, args=(each,), daemon=True) for each in executors]
    for thread in threads:
        thread.start()
    try:
        for future in futures:
            yield future.result()
    finally:
        _end(waiting, threads, executors)


def _end(waiting: Iterator[object], threads: Sequence[threading.Thread], executors: Sequence[Executor]) -> None:
    """Let no thread take another rule, and none wait for an answer."""
    with suppress(StopIteration):
        while True:
            next(waiting)
    while any(thread.is_alive() for thread in threads):
        for executor in executors:
            executor.interrupt()
        for thread in threads:
            thread.join(0.02)
