"""Quoting: the words of a sentence that a rule names, from the installed torch, of which no text is kept."""

from importlib.util import find_spec
from pathlib import Path

from hooklaw.law.rule import Source
from hooklaw.sources.coverage import read_text
from hooklaw.sources.libraries import read_folder
from hooklaw.sources.table import load_table


def quoted(source: Source) -> dict[int, str]:
    """Return the words of the sentences that a source names, as far as the installed torch has the same docstring.

    torch is not imported, so a docstring that is compiled is not found; neither is a page, which is no part of torch.
    """
    if source.kind != "docstring" or not source.sentences or not (folder := _torch()):
        return {}
    found = read_text(read_folder(folder).docstring(source.name) or "")
    kept = load_table().find(source)
    pairs = {at: found[at - 1] for at in source.sentences if at <= min(len(found), len(kept))}
    return {at: each.text for at, each in pairs.items() if each.mark == kept[at - 1]}


def _torch() -> Path | None:
    spec = find_spec("torch")
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
