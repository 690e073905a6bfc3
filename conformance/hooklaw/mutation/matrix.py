"""The matrix of mutants and rules: two supervised workers share the mutants of each backend, side by side.

A rule kills a mutant if the original passes it and the mutant does not, or if the mutant ends its worker in it.
An error of the mutant's own code, or of the rule's, proves nothing: it is kept apart.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import NamedTuple, TypeVar

import msgspec

from hooklaw.backend.protocol import VERBS
from hooklaw.errors import (
    BackendImportError,
    HooklawError,
    NotRunError,
    RuleDefinitionError,
    UnknownMutantError,
    WorkerError,
    did_you_mean,
)
from hooklaw.law.rule import Rule
from hooklaw.law.selection import Catalogue, Kind
from hooklaw.mutation._service import Alterations, Attempt, LoadedMutants, MutantSettings, TryMutant
from hooklaw.results.recorder import DIED
from hooklaw.results.verdict import JUDGED, Outcome
from hooklaw.workers.supervisor import Supervisor, WorkerDiedError
from hooklaw.workers.watchdog import LOADING_LIMIT, MUTANT_LIMIT

WORKERS = 2
ORIGINALS = ("torch-eager", "reference")
"""The backends that mutants are made of."""
MUTANTS = Kind("mutant", "`hooklaw mutants` shows them all", UnknownMutantError)
KILLS = JUDGED - {Outcome.PASS, Outcome.ERROR}

Choose = Callable[[Sequence[str]], Sequence[str]]
Worker = Supervisor[LoadedMutants, Attempt | set[str] | None]
Ending = Mapping[str, Outcome]
"""The rules that are known to end the original's process, and how."""
Item = TypeVar("Item")
Made = TypeVar("Made")


class Matrix(msgspec.Struct):
    """The outcomes of the rules on the mutants of a backend, passes left out."""

    of: str
    """The original backend."""
    rules: list[Rule]
    vices: dict[str, str]
    """The faults of all mutants, chosen or not."""
    original: dict[str, Outcome]
    """The outcomes of the rules that were tried on the original: of a selection of mutants not always all."""
    results: dict[str, dict[str, Outcome]]
    """For each chosen mutant the rules that were tried and kill it."""
    errors: dict[str, list[str]] = {}
    """For each chosen mutant the rules that end in an error, which is no proof."""
    under: dict[str, str] = {}
    """For mutants that no rule need name, the conditions under which they are tried, if any."""
    first: dict[str, list[str]] = {}
    """How the ids of the rules begin that are tried first on some mutants."""
    ends: dict[str, list[str]] = {}
    """How, among these, the ids of the rules end that come before the others."""
    why_not: dict[str, str] = {}
    """Why some of the chosen mutants do not apply to the backend; empty for those that they are written for."""
    every_rule: bool = False
    """Whether rules that do not name a mutant are tried on it even if one that names it kills it."""


class _Notes(msgspec.Struct):
    """Why a mutant does not apply, and the rules that end in an error on it."""

    said: list[str] = []
    errors: list[str] = []


class _Lead:
    """What the mutants of the first backend die by: on those of the same names of other backends it is tried first."""

    def __init__(self, matrix: Matrix) -> None:
        self._of = matrix.of
        self._found = {mutant: Future[Collection[str]]() for mutant in matrix.results}

    def killers(self, matrix: Matrix, mutant: str) -> Collection[str]:
        """Return the rules that kill the mutant of the first backend, once it has been judged."""
        return () if matrix.of == self._of or mutant not in self._found else self._found[mutant].result()

    def tell(self, matrix: Matrix, mutant: str) -> None:
        """Note what a mutant of the first backend dies by; of others nothing need be known."""
        if matrix.of == self._of and not self._found[mutant].done():
            self._found[mutant].set_result(matrix.results[mutant].keys())

    def end(self, matrix: Matrix) -> None:
        """Let nobody wait for a mutant that was not judged, as it does not apply or an error ended the work."""
        for mutant in matrix.results:
            self.tell(matrix, mutant)


class _Given(NamedTuple):
    """What each attempt on the mutants of a backend is given."""

    original: Mapping[str, Attempt]
    """What the backend itself does with the rules."""
    limit: float
    """Seconds that an attempt may take."""
    lead: _Lead


class Matrices(msgspec.Struct):
    """A matrix for each backend, and the reason for each backend that has none."""

    found: list[Matrix]
    absent: dict[str, str]
    not_built: dict[str, str] = {}
    """Mutants that rules name and that cannot be built, with the reason."""


def run(  # noqa: PLR0913 - the verb's own options
    module: str,
    of: Sequence[str],
    choose: Choose,
    limit: float = MUTANT_LIMIT,
    imports: Sequence[str] = (),
    *,
    every_rule: bool = False,
) -> Matrices:
    """Run the chosen mutants of a module: those of some backends, or of all of `ORIGINALS` that are installed.

    `imports` are modules to import before a backend that is not one of `ORIGINALS`. Rules that do not name a mutant are
    tried on it if none that names it kills it; with `every_rule` they always are.

    Raises BackendImportError if the module or a backend cannot be used, RuleDefinitionError if a rule names a mutant
    that does not exist, UnknownMutantError if none of the chosen applies to a backend, and what `choose` raises.
    """
    with ExitStack() as stack:
        workers = {name: stack.enter_context(_worker(module, name, imports)) for name in of or ORIGINALS}
        loaded, absent = _loaded(workers)
        if absent and (of or not loaded):
            raise BackendImportError("; ".join(f"no mutants of {name}: {why}" for name, why in absent.items()))
        if not of and not absent:
            _refuse_unknown([*loaded.values()])
        chosen = set(choose(list(dict.fromkeys(mutant for each in loaded.values() for mutant in each.vices))))
        found = [_matrix(name, each, chosen) for name, each in loaded.items() if each.vices]
        rules = [_rules_at_first(matrix, every_rule=every_rule) for matrix in found]
        originals = _in_threads(
            lambda each: _original(workers[each[0].of], loaded[each[0].of].ending, each[1], limit),
            list(zip(found, rules, strict=True)),
        )
        crews = [[workers[each.of], *(_worker(module, each.of, imports) for _ in range(1, WORKERS))] for each in found]
        for worker in (worker for crew in crews for worker in crew):
            stack.callback(worker.close)  # its thread may not live to do so

        lead = _Lead(found[0])

        def fill(matrix: Matrix, original: Mapping[str, Attempt], crew: Sequence[Worker]) -> None:
            matrix.every_rule = every_rule
            crew = crew[: len(matrix.results)]
            try:
                _fill(matrix, crew, [*matrix.results], _Given(original, limit, lead))
            finally:
                lead.end(matrix)
            _fill_rest(matrix, crew, loaded[matrix.of].ending, _Given(original, limit, lead))

        _in_threads(lambda each: fill(*each), list(zip(found, originals, crews, strict=True)))
    return Matrices(found, absent, next(iter(loaded.values())).not_built or {})


def _refuse_unknown(loaded: Sequence[LoadedMutants]) -> None:
    """Refuse a rule that names a mutant that does not exist, if the module says which ones it does not build."""
    known = {name for each in loaded for name in each.vices}
    for each in loaded:
        if each.not_built is None:
            return
        known |= each.not_built.keys()
    for rule in loaded[0].rules:
        for name in rule.mutants:
            if name not in known:
                hint = did_you_mean(name, known, "write it, or declare it in NOT_BUILT with the reason")
                raise RuleDefinitionError(f"rule {rule.id!r} names the mutant {name!r}, which does not exist: {hint}")


def choose_by(parts: Sequence[str]) -> Choose:
    """Return a function that chooses the names that one of these expressions matches, or all if there are none."""

    def choose(names: Sequence[str]) -> Sequence[str]:
        found = Catalogue(names, lambda name: [[name]], MUTANTS).select(*parts)
        if not found:
            raise UnknownMutantError(f"{' or '.join(parts)!r} matches no mutant: {MUTANTS.listed_by}")
        return found

    return choose


def _worker(module: str, original: str, imports: Sequence[str]) -> Worker:
    settings = MutantSettings(module, original)
    if original not in ORIGINALS:
        settings = MutantSettings(module, original, of_any=True, imports=[*imports])
    return Supervisor(
        "hooklaw.mutation._service:MutantService",
        settings,
        name=f"the module {module!r} with mutants of {original}",
        hello=LoadedMutants,
        answer=Attempt | set[str] | None,
        environment={"OMP_NUM_THREADS": "1"},  # the workers share the cores
    )


def _loaded(workers: Mapping[str, Worker]) -> tuple[dict[str, LoadedMutants], dict[str, str]]:
    loaded: dict[str, LoadedMutants] = {}
    absent: dict[str, str] = {}
    for name, worker in workers.items():
        try:
            loaded[name] = worker.hello()
        except NotRunError as error:
            absent[name] = str(error)
    return loaded, absent


def _rules_at_first(matrix: Matrix, *, every_rule: bool) -> list[Rule]:
    """Return the rules that are likely to kill what was chosen of our own mutants, or else all."""
    if every_rule or matrix.of not in ORIGINALS or len(matrix.results) == len(matrix.vices):
        return matrix.rules
    likely = tuple({start for mutant in matrix.results for start in matrix.first.get(mutant, ())})
    return [
        rule
        for rule in matrix.rules
        if rule.id.startswith(likely) or not matrix.results.keys().isdisjoint(rule.mutants)
    ]


def _original(worker: Worker, ending: Ending, rules: Iterable[Rule], limit: float) -> dict[str, Attempt]:
    """Try rules on the original, but for those that are known to end its process."""
    return {
        rule.id: Attempt(ending[rule.id]) if rule.id in ending else _try(worker, TryMutant(rule.id), limit)
        for rule in rules
    }


def _matrix(name: str, loaded: LoadedMutants, chosen: AbstractSet[str]) -> Matrix:
    return Matrix(
        of=name,
        rules=loaded.rules,
        vices=loaded.vices,
        under=loaded.under,
        first=loaded.first,
        ends=loaded.ends,
        why_not={mutant: why for mutant, why in loaded.why_not.items() if mutant in chosen},
        original={},
        results={mutant: {} for mutant in loaded.vices if mutant in chosen},
    )


def _fill_rest(matrix: Matrix, workers: Sequence[Worker], ending: Ending, given: _Given) -> None:
    """Try the mutants that live on the rules that were not tried yet, in workers that no mutant has been in."""
    rest = [rule for rule in matrix.rules if rule.id not in given.original]
    alive = [mutant for mutant, found in matrix.results.items() if not found]
    if rest and alive:
        errors = dict(matrix.errors)
        original = _original(workers[0], ending, rest, given.limit)
        _fill(matrix, workers, alive, _Given(original, given.limit, given.lead))
        for mutant in alive:
            matrix.errors[mutant] = [*errors[mutant], *matrix.errors[mutant]]


def _fill(matrix: Matrix, workers: Sequence[Worker], mutants: Sequence[str], given: _Given) -> None:
    """Fill the matrix for some mutants; each worker takes the next one that waits."""
    original, limit = given.original, given.limit
    matrix.original |= {rule: attempt.outcome for rule, attempt in original.items()}
    sound = [rule for rule in matrix.rules if rule.id in original and original[rule.id].outcome is Outcome.PASS]
    slow = [rule for rule in sound if original[rule.id].slow]
    waiting = iter(mutants)

    def serve(worker: Worker) -> None:
        warm = worker is workers[0]  # the original has run in it
        with worker:
            for mutant in waiting:
                if mutant in matrix.why_not:
                    continue
                if not warm:  # what is imported at first use must not count against a mutant
                    _broken(worker, slow, LOADING_LIMIT)
                warm = _judge(matrix, mutant, worker, given)
                given.lead.tell(matrix, mutant)
            if warm and (left := _broken(worker, sound, limit)):
                _void(matrix, left)

    _in_threads(serve, workers)


def _judge(matrix: Matrix, mutant: str, worker: Worker, given: _Given) -> bool:
    """Try a mutant, and return whether its worker may try another."""
    different = _alterations(worker, mutant, given.limit)
    tried = _tried(matrix, mutant, given.original, different, given.lead.killers(matrix, mutant))
    notes = _Notes()
    attempts = (_try(worker, TryMutant(rule.id, mutant), given.limit) for rule in tried)
    found = matrix.results[mutant] = dict(_killers(matrix, mutant, tried, attempts, notes))
    matrix.errors[mutant] = notes.errors
    if matrix.of in ORIGINALS:
        return DIED.isdisjoint(found.values())
    if not found:
        matrix.why_not |= _why_not(matrix, mutant, different, tried, notes.said)
    elif _broken(worker, [rule for rule in tried if rule.id in found], given.limit):
        worker.retire()  # a wrong call may leave something in a framework that no reset reaches
        return False
    return DIED.isdisjoint(found.values())


def _void(matrix: Matrix, left: Sequence[str]) -> None:
    """Count no kill by rules that the original does not keep any more; of our own backends, void the run."""
    if matrix.of in ORIGINALS:
        raise HooklawError(f"a mutant left something behind in its process that breaks {', '.join(left)}")
    for mutant, found in matrix.results.items():
        steady = {rule: outcome for rule, outcome in found.items() if rule not in left}
        if found and not steady:
            matrix.why_not[mutant] = f"{matrix.of} itself does not always keep the rules that kill it"
        matrix.results[mutant] = steady


def _broken(worker: Worker, rules: Iterable[Rule], limit: float) -> list[str]:
    """Return the rules that the original does not keep."""
    return [rule.id for rule in rules if _try(worker, TryMutant(rule.id), limit).outcome is not Outcome.PASS]


def _alterations(worker: Worker, mutant: str, limit: float) -> set[str] | None:
    try:
        found = worker.ask(Alterations(mutant), limit)
    except WorkerDiedError as died:
        raise WorkerError(f"the mutant {mutant!r} ended its worker before a rule was tried: {died}") from died
    assert not isinstance(found, Attempt)  # noqa: S101 - the answer to this request
    return found


def _tried(
    matrix: Matrix,
    mutant: str,
    original: Mapping[str, Attempt],
    different: set[str] | None,
    killers: Collection[str] = (),
) -> list[Rule]:
    """Return the rules to try on a mutant, those that name it first: any other may end the worker.

    Of the others, those that kill its namesake come first, then those of its chapters, and the quick before the dear.
    """
    likely, ends = tuple(matrix.first.get(mutant, ())), tuple(matrix.ends.get(mutant, ()))
    known = [rule for rule in matrix.rules if rule.id in original]
    matter = [rule for rule in known if _matters(rule, mutant, likely, original[rule.id], different)]
    return sorted(
        matter,
        key=lambda rule: (
            mutant not in rule.mutants,
            rule.id not in killers,
            not rule.id.startswith(likely),
            not rule.id.endswith(ends),
            original[rule.id].seconds,
        ),
    )


def _matters(rule: Rule, mutant: str, likely: tuple[str, ...], original: Attempt, different: set[str] | None) -> bool:
    """Whether to try a rule that the original keeps: it uses what is different, and is not slow or names the mutant.

    A rule of several processes is tried on the mutants that it names, and on those of a table that are to be tried
    first on rules of its kind: each has ranks of its own to fork, and what a rule uses in them is not known here.
    """
    if original.outcome is not Outcome.PASS:
        return False
    if mutant in rule.mutants:
        return bool(rule.processes) or original.slow or different is None or bool(original.used & different)
    if rule.processes:
        return rule.id.startswith(likely)
    return not original.slow and (different is None or bool(original.used & different))


def _why_not(
    matrix: Matrix, mutant: str, different: set[str] | None, tried: Sequence[Rule], said: Sequence[str]
) -> dict[str, str]:
    """Return why a mutant that no rule kills does not apply to the backend, or nothing: it survives."""
    if said:
        return {mutant: said[0]}
    if not tried:
        verbs = sorted(set(VERBS) & (different or set()))
        return {mutant: f"no rule that it keeps uses {' or '.join(verbs)}"}
    naming = [rule.id for rule in matrix.rules if mutant in rule.mutants]
    if not naming and mutant in matrix.first:
        return {mutant: "no rule that it keeps kills it, and none names it: it is a cell of a table"}
    if naming and not set(naming) & {rule.id for rule in tried}:
        lost = sorted({matrix.original[rule] for rule in naming})
        return {mutant: f"the rules that name it are not kept: {' or '.join(lost)}"}
    return {}


def _killers(
    matrix: Matrix, mutant: str, rules: Iterable[Rule], attempts: Iterator[Attempt], notes: _Notes
) -> Iterator[tuple[str, Outcome]]:
    """Yield the rules that kill a mutant: all that name it, then others, as far as they are to be known.

    One that ends its worker is the last. What else is to be known of the mutant is added to the notes.
    """
    is_dead = False
    for rule in rules:
        if is_dead and not matrix.every_rule and mutant not in rule.mutants:
            return
        attempt = next(attempts)
        outcome = attempt.outcome
        if attempt.why:
            notes.said.append(attempt.why)
        if outcome in KILLS:
            is_dead = True
            yield rule.id, outcome
        if outcome is Outcome.ERROR:
            notes.errors.append(rule.id)
        if outcome in DIED:
            return


def _try(worker: Worker, request: TryMutant, limit: float) -> Attempt:
    try:
        attempt = worker.ask(request, limit)
    except WorkerDiedError as died:
        return Attempt(died.death.outcome)
    assert isinstance(attempt, Attempt)  # noqa: S101 - the answer to this request
    return attempt


def _in_threads(function: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """Return the function's results, each made in a thread that an interrupted program does not wait for."""

    def work(item: Item, future: "Future[Made]") -> None:
        try:
            future.set_result(function(item))
        except BaseException as error:  # noqa: BLE001 - it is raised below
            future.set_exception(error)

    futures: list[Future[Made]] = []
    for item in items:
        futures.append(Future())
        threading.Thread(target=work, args=(item, futures[-1]), daemon=True).start()
    wait(futures)
    return [future.result() for future in futures]
