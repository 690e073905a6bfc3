"""Judge a packer of saved tensors: whether it is safe to train under, and if not, which program shows it.

PACKER is module:attribute; the attribute is called without arguments and returns a context manager under which saved
tensors are packed, e.g. torch.autograd.graph:save_on_cpu. Exit code 1: a MUST is broken; a SHOULD is listed.

Examples:
    hooklaw packer hooklaw.packing.control:Right -k identity.value
    hooklaw packer --list -k "identity or layout"
"""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from hooklaw.cli import complain, say
from hooklaw.cli.options import add_imports, add_limit, add_parts, examples
from hooklaw.cli.progress import StatusLine
from hooklaw.errors import HooklawError, PackerError
from hooklaw.law.hypothesis_settings import EXAMPLES
from hooklaw.packing import report
from hooklaw.packing.judge import Judged, PackerOptions, choose, judge, laws
from hooklaw.results.records import Writer
from hooklaw.results.summary import exit_of_run
from hooklaw.results.text import printable
from hooklaw.results.verdict import Exit, Outcome, worst
from hooklaw.workers.watchdog import PROPERTY_LIMIT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("packer", nargs="?", default="", metavar="PACKER", help="module:attribute")
    parser.add_argument("--list", action="store_true", help="list the properties and judge nothing")
    parser.add_argument(
        "--device", action="append", metavar="DEVICE", help="repeatable; default: the CPU, and CUDA if there is a GPU"
    )
    add_imports(parser)
    add_parts(parser, "only properties with these words in their id, or else in their statement")
    parser.add_argument(
        "--examples", type=examples, default=EXAMPLES, metavar="N", help="examples that a property tries"
    )
    add_limit(parser, PROPERTY_LIMIT, "time limit of one property")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the records there (JSON lines)")
    parser.add_argument("--expectations", default="", metavar="FILE", help="file of known failures")
    parser.add_argument("--format", choices=report.FORMATS, default="text")


def main(args: argparse.Namespace) -> int:
    """Judge on every device, print the verdicts, and return the exit code."""
    if args.list:
        say("".join(f"{rule.level:6} {rule.id:36} {rule.statement}\n" for rule in choose(laws(), args.parts)))
        return Exit.OK.code
    if not args.packer:
        raise PackerError("no packer is named: write module:attribute, e.g. torch.autograd.graph:save_on_cpu")
    devices: list[str] = args.device or ["cpu"]
    if len(set(devices)) < len(devices):
        raise HooklawError("a device is named twice: name each once")
    judged: list[Judged] = []
    with Writer(args.results) if args.results else nullcontext() as writer:
        for device in devices:
            judged.append(_judge(device, args, writer))
            devices += judged[0].further_devices if devices == ["cpu"] and not args.device else []
    verdicts = [report.of_run(each.run) for each in judged]
    say(report.render(verdicts, args.format))
    stale = {entry for each in judged for entry in each.run.stale}
    for entry in sorted(stale, key=lambda entry: (entry.file, entry.line)):
        said = f"{entry.file}:{entry.line}: stale: the entry for {entry.rule!r} {entry.why}"
        sys.stderr.write(f"{printable(said)}\n")
    broken = [row for found in verdicts for row in found.rows if row.outcome == Outcome.ERROR]
    for row in broken[:1]:
        complain(f"{len(broken)} could not be judged, {row.property_id} first: {row.detail}")
    return worst([exit_of_run(each.run) for each in judged] or [Exit.BROKEN]).code


def _judge(device: str, args: argparse.Namespace, writer: Writer | None) -> Judged:
    options = PackerOptions(
        packer=args.packer,
        device=device,
        imports=args.imports,
        parts=args.parts,
        examples=args.examples,
        limit=args.limit,
        expectations=args.expectations,
    )
    line = StatusLine()
    try:
        return judge(options, writer, on_result=line.update)
    finally:
        line.end()
