"""Running the evidence of claims: their rules on a backend, and their programs."""

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec

import msgspec

from hooklaw.errors import HooklawError
from hooklaw.folklore._service import Nothing, Printed
from hooklaw.folklore.reading import TORCH, Claim, Ruling
from hooklaw.results.records import Run
from hooklaw.results.verdict import Outcome, Verdict
from hooklaw.runner.session import Wanted, judge
from hooklaw.workers.supervisor import Supervisor, WorkerDiedError

BACKEND = "torch-eager"
LIMIT = 120.0

Programs = Supervisor[str, Printed]


class Finding(msgspec.Struct, frozen=True):
    """What came of the evidence of one claim."""

    claim: Claim
    rules: dict[str, Outcome]
    faults: list[str]
    """Why the evidence does not bear the verdict out; empty if it does."""


def find(claims: Sequence[Claim], on_result: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """Run the evidence of some claims and return what came of each, in order.

    Raises HooklawError if the backend cannot be judged.
    """
    _require_torch()
    run = run_rules(claims, on_result)
    with programs() as worker:
        for claim in claims:
            outcomes = {rule: run.outcome(rule) for rule in claim.rules if run}
            faults = [fault for rule in claim.rules if run for fault in _rule_faults(claim, rule, run)]
            yield Finding(claim, outcomes, [*faults, *_program_faults(claim, worker)])
            on_result(claim.id)


def run_rules(claims: Sequence[Claim], on_result: Callable[[str], None]) -> Run | None:
    """Run the rules that these claims name on torch in eager mode; None if they name no rule."""
    wanted = dict.fromkeys(rule for claim in claims for rule in claim.rules)
    if not wanted:
        return None
    chosen = Wanted(backend=BACKEND, selection=" or ".join(wanted))
    (session,) = judge(chosen, on_result=lambda result: on_result(result.rule))
    if session.run is None or session.run.interrupted:
        raise KeyboardInterrupt
    if session.run.header.not_run:
        raise HooklawError(f"the evidence runs on {BACKEND}: {session.run.header.not_run}")
    return session.run


def _require_torch() -> None:
    if find_spec("torch") is None:
        raise HooklawError(f"the evidence runs on torch {TORCH}, which is not installed: pip install torch=={TORCH}")


def other_torch() -> str:
    """Return in a sentence that the verdicts are about another version of torch than this one, or an empty text."""
    here = version("torch").partition("+")[0]
    return "" if here == TORCH else f"the verdicts are about torch {TORCH}, the evidence ran on {here}"


def programs() -> Programs:
    """Return a worker that runs programs."""
    service = "hooklaw.folklore._service:ProgramService"
    return Supervisor(service, Nothing(), name="the worker of programs", hello=str, answer=Printed)


def run_program(claim: Claim, worker: Programs) -> Printed:
    """Return what the program of a claim prints; that the worker dies of it is an error of the program."""
    try:
        return worker.ask(claim.program, LIMIT)
    except WorkerDiedError as died:
        return Printed("", f"{died.death.outcome}: {died.death.detail}")


def _rule_faults(claim: Claim, rule_id: str, run: Run) -> Iterator[str]:
    result = run.results.get(rule_id)
    if result is None:
        yield f"{rule_id} was not run"
        return
    verdict = next(run.verdict(rule) for rule in run.header.rules if rule.id == rule_id)
    if verdict is not Verdict.AS_EXPECTED:
        yield f"{rule_id}: {verdict}"
    elif claim.verdict is Ruling.TRUE and result.outcome not in {Outcome.PASS, Outcome.UNSUPPORTED, Outcome.NOT_RUN}:
        yield f"{rule_id}: {result.outcome}, so the claim is not simply true"


def _program_faults(claim: Claim, worker: Programs) -> Iterator[str]:
    if not claim.program:
        return
    printed = run_program(claim, worker)
    if printed.error:
        yield f"the program fails: {printed.error}"
    elif printed.text != claim.prints:
        yield f"the program prints {printed.text!r} instead of {claim.prints!r}"
