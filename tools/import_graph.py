"""Print the rooms of the house and which one imports which: `python tools/import_graph.py [--write]`.

The drawing is a Mermaid graph; its arrows leave out what another arrow implies. `--write` puts it into docs/design.md.
The exit code is 1 if an arrow runs back up, that is, if rooms import each other in a circle.
"""

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

FOLDERS = ("hooklaw", "hooklaw_backends", "hooklaw_reports")
PAGE = Path(__file__).parents[1] / "docs" / "design.md"
BLOCK = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)

Rooms = dict[str, set[str]]


def room(module: str) -> str:
    """Return the room that a module belongs to: a package of hooklaw, a stage of the fuzzer, or another folder."""
    folder, *inside = module.split(".")
    if folder != "hooklaw" or not inside:
        return folder
    return "/".join(inside[: 2 if inside[0] == "fuzz" else 1])


def rooms(*folders: str) -> Rooms:
    """Return each room with the rooms that it imports."""
    graph = grimp.build_graph(*folders, cache_dir=None)
    found: Rooms = {room(module): set() for module in graph.modules}
    for module in graph.modules:
        found[room(module)] |= {room(other) for other in graph.find_modules_directly_imported_by(module)}
    return {name: others - {name} for name, others in found.items()}


def reachable(found: Rooms, start: str) -> set[str]:
    """Return the rooms that a room imports, directly or through others."""
    return found[start].union(*(reachable(found, other) for other in found[start]))


def drawing(found: Rooms) -> str:
    """Return the rooms as a Mermaid graph, top down; raise CycleError if rooms import each other in a circle."""
    TopologicalSorter(found).prepare()
    below = {name: reachable(found, name) for name in found}
    lines = ["graph TD"]
    for name in sorted(found, key=lambda name: (-len(below[name]), name)):
        implied: set[str] = set().union(*(below[other] for other in found[name]))
        lines += [f"  {name} --> {other}" for other in sorted(found[name] - implied)]
    return "\n".join(lines) + "\n"


def main(*arguments: str) -> int:
    """Print the drawing, or the circle."""
    try:
        drawn = drawing(rooms(*FOLDERS))
    except CycleError as error:
        sys.stdout.write(f"an arrow runs back up: {' --> '.join(reversed(error.args[1]))}\n")
        return 1
    sys.stdout.write(drawn)
    if "--write" in arguments:
        PAGE.write_text(BLOCK.sub(lambda _: f"```mermaid\n{drawn}```", PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
