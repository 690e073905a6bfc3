"""Where an entry of an expectation file applies: ``torch>=2.13,<2.14 and python>=3.12 and os==linux and device==cuda``.

A clause is a version range of a package that the backend names, or of ``python``; or it names the operating system or
the type of the device, with ``==`` or ``!=``. All clauses of an entry must hold.
"""

import re
from collections.abc import Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

AND = re.compile(r"\s+and\s+")
NAMED = re.compile(r"(os|device)\s*(==|!=)\s*([\w-]+)")
CPU = "cpu"
Facts = Mapping[str, str]
"""Versions by package, and what ``facts`` adds."""


class UnknownFactError(Exception):
    """A clause names what the run has no fact of; its text is that name."""


def facts(versions: Facts, device: str) -> dict[str, str]:
    """Return what a clause may ask: the versions, the operating system's name and the device's type, as one writes."""
    system = versions.get("os", "").partition(" ")[0].lower()
    return {**versions, "os": system, "device": device}


def is_valid(when: str) -> bool:
    """Whether every clause can be read."""
    return not when or all(NAMED.fullmatch(clause) or _range(clause) for clause in AND.split(when))


def applies(when: str, known: Facts) -> bool:
    """Whether all clauses hold; UnknownFactError if one names what is not known."""
    return all(_holds(clause, known) for clause in AND.split(when) if clause)


def without(when: str, known: Facts) -> str:
    """Return the clauses without what `known` is, or "" if nothing else is left.

    On a device that is not the CPU, a text that names no device loses this device; else its first range of versions
    loses the current minor version.
    """
    clauses, device = [clause for clause in AND.split(when) if clause], known.get("device", "")
    if device not in {"", CPU} and not any(clause.startswith("device") for clause in clauses):
        return " and ".join([*clauses, f"device!={device}"])
    place = next((place for place, clause in enumerate(clauses) if not NAMED.fullmatch(clause)), None)
    if place is None:
        return ""
    clauses[place] = _without_minor(clauses[place], known)
    return " and ".join(clauses) if clauses[place] else ""


def exactly(known: Facts) -> str:
    """Return the text that is true here: of the first version, and of a device that is not the CPU."""
    name, version = next(iter(known.items()))
    clause, device = f"{name}=={version.partition('+')[0]}", known.get("device", "")
    clauses = [clause if _range(clause) else "", f"device=={device}" if device not in {"", CPU} else ""]
    return " and ".join(filter(None, clauses))


def _range(clause: str) -> Requirement | None:
    try:
        wanted = Requirement(clause)
    except InvalidRequirement:
        return None
    return None if wanted.url or wanted.marker or wanted.extras or wanted.name in {"os", "device"} else wanted


def _holds(clause: str, known: Facts) -> bool:
    if named := NAMED.fullmatch(clause):
        name, sign, word = named.groups()
        return (known.get(name, "") == word.lower()) is (sign == "==")
    wanted = Requirement(clause)
    if wanted.name not in known:
        raise UnknownFactError(wanted.name)
    try:
        return wanted.specifier.contains(known[wanted.name], prereleases=True)
    except InvalidVersion:  # older releases of packaging raise for a version such as a GPU's name
        return False


def _without_minor(clause: str, known: Facts) -> str:
    wanted = Requirement(clause)
    major, minor = (*Version(known[wanted.name]).release, 0)[:2]
    before = f"{major}.{minor - 1}" if minor else f"{max(major - 1, 0)}.99"
    if not any(wanted.specifier.contains(version) for version in (before, f"{major}.{minor + 1}", f"{major + 1}")):
        return ""
    return f"{clause},!={major}.{minor}.*"
