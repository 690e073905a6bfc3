"""What is published of real packers: the page says of each what its record says."""

import re
from pathlib import Path

import pytest

from hooklaw.law.rule import Level
from hooklaw.results import records
from hooklaw.results.verdict import JUDGED, Outcome
from hooklaw_reports import published

PAGE = (Path(__file__).parents[2] / "docs" / "check-a-packer.md").read_text()
RECORDS = {path.stem.split("-", 3)[3]: path for path in published.FOLDER.glob("*-packer-*.jsonl")}
ROWS = {
    name: (holds, verdict)
    for holds, verdict, names in re.findall(r"^\|[^|]+\| ([\d of]+|all) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    for name in re.findall(r"`([\w-]+)`", names)
}


def test_every_record_has_a_row():
    """The table of real packers and the published records are the same packers."""
    assert len(RECORDS) >= 9
    assert sorted(ROWS) == sorted(RECORDS)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_row_says_what_the_record_says(name):
    """A row's figures and its verdict are those of the record, on the version that the page names."""
    (run,) = records.read(RECORDS[name])
    holds, verdict = ROWS[name]
    outcomes = [one.outcome for one in run.results.values()]
    kept, judged = outcomes.count(Outcome.PASS), sum(one in JUDGED for one in outcomes)
    broken = {rule.level for rule in run.header.rules if run.outcome(rule.id) is Outcome.FAIL}

    assert holds == (f"{kept} of {judged}" if kept < judged else "all")
    assert verdict.startswith("unsafe" if Level.MUST in broken else "safe except" if broken else "safe")
    assert f"torch {run.header.versions['torch'].partition('+')[0]}" in PAGE


def test_versions_are_recorded():
    """The record of an offloader of another package says of which version it is."""
    versions = {name: records.read(path)[0].header.versions for name, path in RECORDS.items()}

    assert versions["packer-trl"]["trl"] == versions["packer-NoOpManager"]["trl"] == "1.16.0"
    assert versions["packer-torchtune"]["torchtune"] == "0.6.1"


def test_the_file_of_the_page_is_python():
    """The file that the page has its reader write makes each packer that the page names from it."""
    (text,) = re.findall(r"in a file `offloaders\.py`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    named = set(re.findall(r"hooklaw packer offloaders:(\w+)", PAGE))

    assert named == set(re.findall(r"^(\w+) = partial\(made, ", text, re.MULTILINE)) != set()
    assert named == {name.removeprefix("packer-") for name in RECORDS if re.search("(trl|torchtune)(?!.*cuda)", name)}
    compile(text, "offloaders.py", "exec")
