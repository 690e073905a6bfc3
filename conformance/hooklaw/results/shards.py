"""Shards: a run in parts that machines execute side by side. The id of a rule decides to which part it belongs."""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from hooklaw.errors import RecordConflictError, ShardError
from hooklaw.law.rule import Rule, digest
from hooklaw.results.records import Footer, Header, Run, Shard
from hooklaw.results.seen import seen
from hooklaw.results.text import name
from hooklaw.results.verdict import Outcome


class Part(msgspec.Struct, frozen=True):
    """A part of a run that was asked for: the number of the shard, from 1 on, and how many there are."""

    number: int = 1
    count: int = 1

    def takes(self, rule_id: str) -> bool:
        """Whether a rule belongs to this part; that other rules come or go does not move it."""
        return int(sha256(rule_id.encode()).hexdigest(), 16) % self.count == self.number - 1

    def shard_of(self, rules: Sequence[Rule]) -> Shard | None:
        """Return which shard of these rules this part is, or None if it is the whole."""
        if self.count == 1:
            return None
        places = [place for place, rule in enumerate(rules) if self.takes(rule.id)]
        return Shard(self.number, self.count, digest(rules), places)


def part(text: str) -> Part:
    """Read a part such as ``2/5``; ShardError if it is none."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    number, count = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= count:
        raise ShardError(f"--shard {text}: write the number of the shard and how many there are, e.g. 2/5")
    return Part(number, count)


def joined(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with each set of shards joined, where its first shard stood.

    Raises RecordConflictError if shards are missing, or two of the same number disagree.
    """
    sets: dict[object, list[Run]] = {}
    for run in runs:
        sets.setdefault(_key(run) if run.header.shard else id(run), []).append(run)
    return [_join(shards, runs) if shards[0].header.shard else shards[0] for shards in sets.values()]


def disagreement(one: Run, other: Run) -> str:
    """Return in words the rules on which two runs disagree, or an empty string."""
    common = [rule_id for rule_id in one.results if rule_id in other.results]
    apart = [rule_id for rule_id in common if seen(one.results[rule_id]) != seen(other.results[rule_id])]
    if not apart:
        return ""
    first = apart[0]
    ways = " and ".join(_way(run.results[first].outcome, run.results[first].detail) for run in (one, other))
    return f"{len(apart)} of {len(common)} rules, {name(first)} first: {ways}"


def _way(outcome: Outcome, detail: str) -> str:
    return f"{outcome} ({name(detail)})" if detail else str(outcome)


def _key(run: Run) -> object:
    """Return what the shards of a run have in common; the machines may be different ones of the same system."""
    header = run.header
    system = header.versions.get("os", "").split(" ")[0]
    software = tuple((name, version) for name, version in header.versions.items() if name not in {"os", "cpu"})
    return header.title, software, system, header.shard and (header.shard.count, header.shard.digest)


def _join(shards: Sequence[Run], runs: Iterable[Run]) -> Run:
    by_number: dict[int, tuple[Run, Shard]] = {}
    for run in shards:
        assert run.header.shard is not None  # noqa: S101 - only shards are joined
        first, _ = by_number.setdefault(run.header.shard.number, (run, run.header.shard))
        if first is not run and (why := disagreement(first, run)):
            raise RecordConflictError(
                f"{first.file} and {run.file} both hold shard {run.header.shard} of {name(run.header.title)!r} "
                f"and disagree about {why}; leave one of them out"
            )
    _refuse_missing(shards[0], by_number, runs)
    placed = [
        (place, rule)
        for run, shard in by_number.values()
        for place, rule in zip(shard.places, run.header.rules, strict=False)
    ]
    rules = [rule for _, rule in sorted(placed, key=lambda pair: pair[0])]
    return _whole([run for run, _ in by_number.values()], rules)


def _refuse_missing(first: Run, by_number: dict[int, tuple[Run, Shard]], runs: Iterable[Run]) -> None:
    shard = by_number[min(by_number)][1]
    missing = [number for number in range(1, shard.count + 1) if number not in by_number]
    if not missing:
        return
    said = f"{'shard' if len(missing) == 1 else 'shards'} {_numbers(missing)} of {shard.count}"
    raise RecordConflictError(
        f"{said} of the run of {name(first.header.title)!r} on {name(first.header.version)} "
        f"{'is' if len(missing) == 1 else 'are'} missing; found: {_numbers(sorted(by_number))}"
        f"{_elsewhere(first, missing, runs)}: run with --shard {missing[0]}/{shard.count}, or name its file"
    )


def _elsewhere(first: Run, missing: Sequence[int], runs: Iterable[Run]) -> str:
    """Return why a shard that is there does not belong to the others."""
    for run in runs:
        shard, own = run.header.shard, first.header.shard
        if not (shard and own) or shard.number not in missing or run.header.title != first.header.title:
            continue
        if shard.count != own.count:
            return f"; {run.file} is shard {shard} of other shards"
        if shard.digest != own.digest:
            return f"; shard {shard} in {run.file} was made by other rules, or by another selection"
        return f"; shard {shard} in {run.file} was made on {name(_software(run))}, not on {name(_software(first))}"
    return ""


def _software(run: Run) -> str:
    return ", ".join(f"{name} {version}" for name, version in run.header.versions.items() if name != "cpu")


def _numbers(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[:10]]
    return ", ".join(shown) + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")  # noqa: PLR2004 - enough to see which


def _whole(shards: Sequence[Run], rules: list[Rule]) -> Run:
    first, shard = shards[0].header, shards[0].header.shard
    if shard and digest(rules) != shard.digest:
        raise RecordConflictError(
            f"the shards of {name(first.title)!r} do not make up the run that they are of: "
            f"{shards[0].file} and the others hold other rules than the whole; run them again"
        )
    run_id = sha256("".join(sorted(run.header.run for run in shards)).encode()).hexdigest()[:12]
    header = msgspec.structs.replace(
        first,
        run=run_id,
        digest=digest(rules),
        collected=sum(run.header.collected for run in shards),
        rules=rules,
        versions=_versions(shards),
        command=re.sub(r" --shard[= ]\S+", "", first.command),
        started=min(run.header.started for run in shards),
        shard=None,
    )
    found = {rule_id: result for run in shards for rule_id, result in run.results.items()}
    results = {rule.id: msgspec.structs.replace(found[rule.id], run=run_id) for rule in rules if rule.id in found}
    return Run(header, results, _footer(header, shards), shards[0].file)


def _versions(shards: Sequence[Run]) -> dict[str, str]:
    known = shards[0].header.versions
    return {key: " / ".join(dict.fromkeys(run.header.versions.get(key, "") for run in shards)) for key in known}


def _footer(header: Header, shards: Sequence[Run]) -> Footer:
    stale = list(dict.fromkeys(entry for run in shards for entry in run.stale))
    seconds = sum(run.footer.seconds for run in shards if run.footer)
    return Footer(run=header.run, results=header.collected, seconds=round(seconds, 3), stale=stale)
