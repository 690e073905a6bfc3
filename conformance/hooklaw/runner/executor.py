"""Executors of rules: in a worker that may die of them, or in this process."""

import gc
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from hooklaw.errors import HooklawError, WorkerError, broken
from hooklaw.results.recorder import Subject
from hooklaw.results.records import Execution
from hooklaw.results.verdict import FAILS_AS_DENIED, Exit, Outcome
from hooklaw.runner.worker import Collect, Collected, Listed, RuleService, RuleSettings, Script, Try
from hooklaw.workers.supervisor import Supervisor, WorkerDiedError
from hooklaw.workers.watchdog import LOADING_LIMIT


class Executor(Protocol):
    """Executes rules on one backend."""

    @property
    def error(self) -> BaseException | None:
        """Return what the last rule raised, if it was raised in this process."""
        ...

    def start(self) -> None:
        """Begin to load the backend, if that can be done beside other work."""
        ...

    def collect(self, where: Sequence[str]) -> tuple[Subject, list[Listed]]:
        """Return what is judged, and the rules of some packages, folders or files."""
        ...

    def execute(self, listed: Listed, condition: str = "") -> Execution:
        """Execute a rule, perhaps under a condition."""
        ...

    def interrupt(self) -> None:
        """Have a thread that waits for an execution hear that its worker died."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


def executor(settings: RuleSettings, limit: float) -> Executor:
    """Return what executes rules with these settings; `limit` is what a rule may take where it is contained."""
    return Contained(settings, limit) if settings.contained else Direct(settings)


class Contained:
    """Rules executed in a worker."""

    error: BaseException | None = None

    def __init__(self, settings: RuleSettings, limit: float) -> None:
        self._limit = limit
        self._subject = Subject(settings.backend)
        self._worker: Supervisor[Subject, Collected | Execution | str] = Supervisor(
            "hooklaw.runner.worker:RuleService",
            settings,
            name=f"backend {settings.backend!r}",
            hello=Subject,
            answer=Collected | Execution | str,
        )
        self.start, self.close, self.interrupt = self._worker.start, self._worker.close, self._worker.interrupt

    def collect(self, where: Sequence[str]) -> tuple[Subject, list[Listed]]:
        """Return what is judged, and the rules; WorkerError where no worker survives loading them."""
        try:
            found = self._worker.ask(Collect([*where]), LOADING_LIMIT)
        except WorkerDiedError as died:
            said = f"while the rules were collected, {died.death.detail}"
            raise WorkerError(f"backend {self._subject.spec!r} cannot be judged: {said}") from died
        assert isinstance(found, Collected)  # noqa: S101 - the answer to this request
        self._subject = found.subject
        return found.subject, found.rules

    def execute(self, listed: Listed, condition: str = "") -> Execution:
        """Execute a rule; if the worker dies of it, its death is what came of it."""
        ends = self._subject.ends_process(listed.rule.id)
        scripts: list[str] = []
        try:
            done = self._worker.ask(
                Try(listed.rule.id, listed.file, condition, ends=ends),
                self._limit,
                lambda said: scripts.append(msgspec.json.decode(said, type=str)),
            )
        except WorkerDiedError as died:
            death = died.death
            if listed.lacking:
                said = FAILS_AS_DENIED + listed.lacking
                return Execution(rule=listed.rule.id, outcome=Outcome.UNSUPPORTED, detail=said, stderr=death.stderr)
            return Execution(
                rule=listed.rule.id,
                outcome=death.outcome,
                detail=death.detail,
                where=death.where or listed.place,
                program="".join(scripts) if ends or condition else self._script(listed),
                stderr=death.stderr,
            )
        assert isinstance(done, Execution)  # noqa: S101 - the answer to this request
        return done

    def _script(self, listed: Listed) -> str:
        """Have the next worker write the script of a rule that ended the last, or return an empty text."""
        with suppress(WorkerDiedError, WorkerError):
            return str(self._worker.ask(Script(listed.rule.id, listed.file), self._limit))
        return ""


class Direct:
    """Rules executed in this process, but for those that are known to end it."""

    def __init__(self, settings: RuleSettings) -> None:
        self._settings = settings
        self._service: RuleService | None = None
        self._subject = Subject(settings.backend)

    @property
    def error(self) -> BaseException | None:
        """Return what the last rule raised."""
        return self._service and self._service.error

    def start(self) -> None:
        """Do nothing: loading would hold up the work beside it."""

    def collect(self, where: Sequence[str]) -> tuple[Subject, list[Listed]]:
        """Return what is judged, and the rules."""
        with _in_a_sentence(), _leaving_breaks(f"while backend {self._settings.backend!r} was loaded"):
            self._service = self._service or RuleService(self._settings)
            found = self._service.collect([*where])
        self._subject = found.subject
        return found.subject, found.rules

    def execute(self, listed: Listed, condition: str = "") -> Execution:
        """Execute a rule, unless it is known to end the process."""
        assert self._service is not None  # noqa: S101 - rules are collected first
        if self._subject.under(condition).ends_process(listed.rule.id):
            why = "known to end the process, and nothing contains it here (--in-process)"
            return Execution(rule=listed.rule.id, outcome=Outcome.NOT_RUN, detail=why)
        with _in_a_sentence(), _leaving_breaks(f"by rule {listed.rule.id} on backend {self._settings.backend!r}"):
            return self._service.execute(Try(listed.rule.id, listed.file, condition))

    def interrupt(self) -> None:
        """Do nothing: it runs in no thread of its own."""

    def close(self) -> None:
        """Leave it at that: the interpreter's last collection need not look at a whole framework."""
        gc.freeze()


@contextmanager
def _in_a_sentence() -> Generator[None]:
    """Raise WorkerError for what nobody foresaw, as a worker does."""
    try:
        yield
    except (HooklawError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise WorkerError(broken(error)) from error


@contextmanager
def _leaving_breaks(when: str) -> Generator[None]:
    """End with a sentence and the exit code of a breakdown where os._exit is called here: 0 would be a run that passed.

    A process that is forked meanwhile ends as it says.
    """
    here, leave = os.getpid(), os._exit

    def broken_off(status: int) -> NoReturn:
        if os.getpid() != here:
            leave(status)
        sys.stderr.write(
            f"hooklaw: os._exit({status}) was called {when}, and nothing contains it here (--in-process)\n"
        )
        sys.stderr.flush()
        leave(Exit.BROKEN.code)

    os._exit = broken_off
    try:
        yield
    finally:
        os._exit = leave


def keep_threads_from_spinning() -> None:
    """Have threads of OpenMP sleep while they wait: on the small tensors of rules they do little else."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def keep_hypothesis_out_of_here() -> None:
    """Have Hypothesis keep its files in the temporary folder, not in the folder that happens to be the current one."""
    user = getattr(os, "getuid", lambda: "user")()
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(tempfile.gettempdir(), f"hooklaw-{user}")))
