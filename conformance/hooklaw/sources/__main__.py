"""Number the sentences of a source, compare what is installed with the kept table, or renew the table.

    python -m hooklaw.sources NAME ...
    python -m hooklaw.sources [--write]

NAME is a documented object, such as torch.Tensor.register_hook, which is imported; with `--pages DIR`, a page of the
documentation's sources with an anchor, such as notes/autograd#saved-tensors. DIR is laid out as docs/source of
pytorch/pytorch, with the tutorials in DIR/tutorials. Without `--pages` only docstrings are compared or renewed.
"""

import argparse
import sys
from pathlib import Path

from hooklaw.errors import DocumentationError, HooklawError
from hooklaw.sources._reading import read_docstring, read_page
from hooklaw.sources._writing import renewed, text
from hooklaw.sources.installed import import_torch
from hooklaw.sources.sentences import sentences
from hooklaw.sources.survey import all_rules
from hooklaw.sources.table import TABLE


def main() -> int:
    """Print the sentences of each name, or compare; return 1 if a rule's sentence has moved, changed or is gone."""
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m hooklaw.sources", description=__doc__, formatter_class=how)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="a folder with the sources of the documentation")
    parser.add_argument("--commit", action="append", default=[], metavar="PAGE=COMMIT", help="where a page was read")
    parser.add_argument("--write", action="store_true", help="renew the table of sentences, after --pages if given")
    args = parser.parse_args()
    try:
        for name in args.names:
            sys.stdout.write(_numbered(name, args.pages))
        return 0 if args.names else _compare(args.pages, dict(map(_pair, args.commit)), write=args.write)
    except HooklawError as error:
        sys.stderr.write(f"hooklaw: {error}\n")
        return 3


def _numbered(name: str, pages: Path | None) -> str:
    page, _, anchor = name.partition("#")
    found = read_page(pages, page) if pages else {"": read_docstring(name)}
    if anchor not in found:
        raise DocumentationError(f"{page} has no section {anchor!r}: it has {', '.join(filter(None, found))}")
    lines = (f"{ordinal:4} {sentence}" for ordinal, sentence in enumerate(sentences(found[anchor]), start=1))
    return "\n".join([name, *lines, ""])


def _pair(text: str) -> tuple[str, str]:
    page, _, commit = text.partition("=")
    if not commit:
        raise DocumentationError(f"--commit {text!r} names no commit: write PAGE=COMMIT")
    return page, commit


def _compare(pages: Path | None, commits: dict[str, str], *, write: bool) -> int:
    import_torch()  # first, since `python -OO` leaves out the law too
    rules = all_rules()
    table, shifted = renewed(rules, pages, commits)
    if write:
        Path(str(TABLE)).write_text(text(table), encoding="utf-8")
    named = sum(len(source.sentences) for rule in rules for source in rule.sources)
    sys.stdout.writelines(f"{line}\n" for line in shifted)
    sys.stdout.write(f"torch {table.torch}: {named - len(shifted)} of {named} sentences that rules name are in place\n")
    return 1 if shifted else 0


if __name__ == "__main__":
    raise SystemExit(main())
