"""Join the records of shards, backends, conditions, versions and machines in one file for `report` and `diff`.

The shards of a run (`run --shard 2/5`) become the run that they are of; other runs stand side by side as they are.
What does not belong together is refused: a missing shard, an incomplete run, another law, results that disagree.

Example:
    hooklaw run --backend reference -k order --shard 1/2 --results=one.jsonl
    hooklaw run --backend reference -k order --shard 2/2 --results=two.jsonl
    hooklaw merge one.jsonl two.jsonl -o both.jsonl
"""

import argparse
from pathlib import Path

from hooklaw.cli import outputs, say
from hooklaw.errors import OutputError
from hooklaw.results.merge import lines, merged
from hooklaw.results.naming import names
from hooklaw.results.output import output_errors, replace_file
from hooklaw.results.records import encode, read_parts
from hooklaw.results.summary import sentence
from hooklaw.results.text import printable
from hooklaw.results.verdict import Exit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file from `hooklaw run --results=FILE`")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MERGED", help="the file to write")
    outputs.add_outputs(parser)


def main(args: argparse.Namespace) -> int:
    """Write one file of all runs and print what each came to; what it holds does not change the exit code."""
    if args.output.resolve() in {path.resolve() for path in args.files}:
        raise OutputError(f"{args.output} is one of the files to merge: name another file with -o")
    outputs.refuse_mistakes(
        {"merged records": args.output} | {str(path): path for path in args.files}, outputs.files(args)
    )
    runs = merged(read_parts(args.files))
    text = "".join(encode(line).decode() for line in lines(runs))
    with output_errors(f"write the records to {args.output}", "; name another file with -o"):
        replace_file(args.output, text)
    for run, name in zip(runs, names(runs), strict=True):
        say(printable(f"{args.output}: {name}: {sentence(run)}") + "\n")
    outputs.write(args, runs)
    return Exit.OK.code
