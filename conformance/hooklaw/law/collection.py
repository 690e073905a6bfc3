"""Collecting rules from a package, a folder or a file."""

import importlib
import inspect
import sys
from collections.abc import Sequence
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from hooklaw.errors import RuleDefinitionError, UnknownRuleError, is_users_interrupt
from hooklaw.law.rule import RULES_PACKAGE, Registered, registered
from hooklaw.law.selection import Catalogue, Places, places


def collect(where: str = RULES_PACKAGE) -> list[Registered]:
    """Import what holds the rules, and return those of it, in the order of chapter and definition.

    Raises UnknownRuleError where there is nothing of that name, RuleDefinitionError where a chapter does not import.
    """
    found = {str(file): file for file in files(where)}
    known = {file_of(rule) for rule in registered()}
    for name, file in found.items():
        if name not in known:
            _import(file)
    return [rule for rule in registered() if file_of(rule) in found]


def load_rules() -> dict[str, Registered]:
    """Import every chapter and return all rules by id, sorted by chapter, then in order of definition."""
    collect()
    return {found.rule.id: found for found in registered()}


def search_rules(words: Sequence[str]) -> list[Registered]:
    """Return the rule with this id, or all rules that have these words; UnknownRuleError suggests what was meant."""
    known = load_rules()
    each = " ".join(words).split()
    return [known[each[0]]] if len(each) == 1 and each[0] in known else catalogue().search(each)


def catalogue() -> Catalogue[Registered]:
    """Return all rules, to be searched."""
    return Catalogue(load_rules().values(), rule_places)


def rule_places(found: Registered) -> Places:
    """Return where a word is looked for in a rule, the same as where a run looks."""
    return places(found.rule, found.function.__name__, found.function.__module__)


def find_rule(*words: str) -> Registered:
    """Return the rule with this id, or the only rule that has these words; UnknownRuleError if there are several."""
    found = search_rules(words)
    if len(found) > 1:
        asked, first = " ".join(words), ", ".join(each.rule.id for each in found[:3])
        raise UnknownRuleError(
            f"{len(found)} rules have {asked!r}: name one, as {first}; `hooklaw list {asked}` shows all"
        )
    return found[0]


def file_of(rule: Registered) -> str:
    """Return the file that a rule stands in."""
    return inspect.unwrap(rule.function).__code__.co_filename


def files(where: str) -> list[Path]:
    """Return the files of a package or a folder that may hold rules; UnknownRuleError where there is neither."""
    path = Path(where).absolute()
    if path.is_file():
        return [path]
    folders = [path] if path.is_dir() else _folders_of_package(where)
    return sorted(file for folder in folders for file in folder.rglob("test_*.py"))


def _folders_of_package(name: str) -> list[Path]:
    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        found = None
    if not found:
        raise UnknownRuleError(f"no rules are at {name!r}: name a folder or a package that holds test_*.py")
    return [Path(folder) for folder in found.submodule_search_locations or ()]


def _import(file: Path) -> None:
    try:
        _module(file)
    except RuleDefinitionError:
        raise
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        said = f"{type(error).__name__}: {error}"
        raise RuleDefinitionError(f"the chapter {file.name} does not import: {said}") from error


def _module(file: Path) -> ModuleType:
    """Import a file under the name that it has in its package, or under its own."""
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(parts)
    spec = find_spec(name) if len(parts) > 1 and find_spec(parts[0]) else None
    if spec and spec.origin == str(file):
        return importlib.import_module(name)
    spec = spec_from_file_location(name, file)
    assert spec is not None  # noqa: S101 - a file that ends in .py has a loader
    assert spec.loader is not None  # noqa: S101 - idem
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
