"""Record files are read whole or not at all: a truncated, foreign or inconsistent file is refused."""

import json
import os

import msgspec
import pytest

import made_records as made
from hooklaw.errors import OutputError, RecordConflictError, RecordFileError
from hooklaw.results import records
from hooklaw.results.records import SCHEMA, Footer, Writer, read, read_all, rules_of, schema
from hooklaw.results.verdict import Outcome, Verdict


@pytest.fixture
def file(tmp_path):
    """Return a file of one run: header, four results, footer."""
    return made.write(tmp_path / "run.jsonl", made.three()[1])


def change(file, number, old, new):
    """Replace something in a line, counted from 1."""
    lines = file.read_text().splitlines(keepends=True)
    if old not in lines[number - 1]:
        raise AssertionError(f"line {number} has no {old}")
    lines[number - 1] = lines[number - 1].replace(old, new, 1)
    file.write_text("".join(lines))


def drop(file, number):
    """Remove a line, counted from 1, or from the end if negative."""
    lines = file.read_text().splitlines(keepends=True)
    del lines[number - 1 if number > 0 else number]
    file.write_text("".join(lines))


def refusal(*files, **how):
    """Return the message with which files are refused."""
    with pytest.raises((RecordFileError, RecordConflictError)) as caught:
        read_all(files, **how)
    return str(caught.value)


def test_round_trip(file):
    """A written run is read back."""
    wrote = made.three()[1]
    (run,) = read(file)
    results = {rule: msgspec.structs.replace(one, run="") for rule, one in run.results.items()}

    assert (wrote.header, wrote.results, wrote.footer) == (run.header, results, run.footer)


def test_a_run_knows_its_verdicts(file):
    """Outcomes, verdicts and counts come from the record alone."""
    (run,) = read(file)
    verdicts = {rule.id: run.verdict(rule) for rule in run.header.rules}

    assert run.count() == (0, 4)
    assert {"order.second", "unpack.third"} == {rule for rule, one in verdicts.items() if one is Verdict.REGRESSION}


def test_a_rule_without_result_was_not_run(file):
    """A missing result never counts as a pass."""
    drop(file, 2)
    (run,) = read(file, incomplete=True)

    assert (run.outcome("order.first"), run.complete) == (Outcome.NOT_RUN, False)


def test_joined_files(tmp_path):
    """Files can be concatenated."""
    files = [made.write(tmp_path / f"{number}.jsonl", run) for number, run in enumerate(made.three()[:3])]
    joined = tmp_path / "joined.jsonl"
    joined.write_bytes(b"".join(one.read_bytes() for one in files))

    assert [one.header for one in read_all(files)] == [one.header for one in read(joined)]


def test_rules_of_several_runs():
    """`rules_of` has each rule of all runs once, in the order of the first run that has it."""
    first, second = made.rule("a.first"), made.rule("a.second")
    runs = [made.run("one", [second], []), made.run("two", [first, second], [])]

    assert [rule.id for rule in rules_of(runs)] == ["a.second", "a.first"]


def test_schema_is_generated():
    """The schema file is what the types generate; `python -m hooklaw.results.records` renews it."""
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(schema()))


def test_schema_names_what_is_written(file):
    """Every key of every line is in the schema."""
    defined = schema()["$defs"]
    for line in map(json.loads, file.read_text().splitlines()):
        known = set(defined[line["kind"].capitalize()]["properties"])

        assert set() == set(line) - known


def test_schema_is_written(tmp_path):
    """The schema can be written anywhere."""
    records.write_schema(tmp_path / "schema.json")

    assert SCHEMA.read_text() == (tmp_path / "schema.json").read_text()


def test_absent(tmp_path):
    """A missing file is named."""
    assert refusal(tmp_path / "no.jsonl") == f"cannot read {tmp_path / 'no.jsonl'}: No such file or directory"


@pytest.mark.parametrize("text", ["", "\n\n", "  "])
def test_empty(file, text):
    """An empty file is refused as that of a run that never started."""
    file.write_text(text)

    assert "is empty: its run never started; run it again" in refusal(file)


@pytest.mark.parametrize("text", [b"<html>\n", b'{"a": 1}\n', b"[1]\n", b"3\n", b'"kind"\n', b"\xff\xfe\x00", b"{"])
def test_foreign(file, text):
    """A foreign file is refused, with the line."""
    file.write_bytes(text)

    assert "run.jsonl:1: not a hooklaw record: name a file that" in refusal(file)


def test_newer_format(file):
    """For a file of a newer hooklaw, the message asks for an update."""
    change(file, 1, '"hooklaw":2', '"hooklaw":3')

    assert refusal(file).endswith("run.jsonl has format 3, this hooklaw reads up to 2: update hooklaw")


@pytest.mark.parametrize(
    ("named", "title"),
    [
        ("paddle", "paddle"),
        ("packer:m:A", "packer:m:A"),
        ("packer:m:A:cuda", "packer:m:A:cuda"),
        ("bench:cuda", "bench:cuda"),
    ],
)
def test_older_format(file, named, title):
    """A file of format 1, which named the kind of run by a prefix, is read as what it is."""
    change(file, 1, '"hooklaw":2', '"hooklaw":1')
    change(file, 1, '"backend":"torch-compile:aot_eager"', f'"backend":"{named}"')

    assert read(file)[0].header.title == title


def test_newer_format_of_another_shape(file):
    """This holds even if the newer format has another shape."""
    change(file, 1, '"hooklaw":2', '"hooklaw":3,"backend":{}')

    assert "has format 3, this hooklaw reads up to 2" in refusal(file)


def test_newer_kind_of_line(file):
    """For an unknown kind of line, the message mentions a newer hooklaw."""
    change(file, 2, '"kind":"result"', '"kind":"remark"')

    assert "run.jsonl:2: this hooklaw cannot read the line (Invalid value 'remark'" in refusal(file)


def test_truncated(file):
    """A file that ends in the middle of a line is reported as such."""
    file.write_bytes(file.read_bytes()[:-3])

    assert refusal(file).endswith(
        "run.jsonl:6: the file ends in the middle of a line: the run did not end; run it again"
    )


def test_truncated_anywhere(file):
    """A file truncated at any byte is refused; only the last newline may be missing."""
    whole = file.read_bytes()
    for length in range(0, len(whole) - 1, 37):
        file.write_bytes(whole[:length])

        assert refusal(file)


def test_truncated_is_read_for_what_it_has(file):
    """With `incomplete`, `read` returns what was recorded before the truncation."""
    file.write_bytes(file.read_bytes()[:-200])
    (run,) = read(file, incomplete=True)

    assert (run.footer, run.complete) == (None, False)
    assert {"order.first", "order.second"} <= set(run.results)


def test_no_footer(file):
    """A run without a footer did not end, even if every rule has a result."""
    drop(file, -1)

    assert refusal(file).endswith("'torch-compile:aot_eager' did not end, 4 of 4 rules have a result: run it again")


def test_fewer_results_than_rules(file):
    """A run with a missing result is refused."""
    drop(file, 3)

    assert "is incomplete, 3 of 4 rules have a result: run it again" in refusal(file)


def test_interrupted_after_its_last_rule(file):
    """An interrupted run did not end, even if every rule has a result."""
    change(file, 6, '"interrupted":false', '"interrupted":true')

    assert "was interrupted, 4 of 4 rules have a result: run it again" in refusal(file)


def test_interrupted(file):
    """The refusal of an interrupted run says that it was interrupted."""
    drop(file, 5)
    change(file, 5, '"interrupted":false', '"interrupted":true')

    assert "was interrupted, 3 of 4 rules have a result: run it again" in refusal(file)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"outcome":"crash"', '"outcome":"perhaps"', "Invalid enum value 'perhaps' - at `$.outcome`"),
        ('"outcome":"crash"', '"x":1', "Object missing required field `outcome`"),
        ('"observed":[]', '"observed":5', "Expected `array`, got `int` - at `$.observed`"),
    ],
)
def test_damaged_line(file, old, new, why):
    """A JSON line of the wrong shape is refused with the reason."""
    change(file, 4, old, new)

    assert f"run.jsonl:4: this hooklaw cannot read the line ({why})" in refusal(file)


def test_line_that_is_no_json(file):
    """A line in the middle that is not JSON is called damaged."""
    change(file, 4, "{", "{{")

    assert refusal(file).endswith("run.jsonl:4: the line is damaged: run it again")


def test_a_damaged_line_is_not_skipped(file):
    """`incomplete` accepts a truncated end, but no damage in the middle."""
    change(file, 4, "{", "{{")

    assert "the line is damaged" in refusal(file, incomplete=True)


def test_no_header(file):
    """Results without a header are refused."""
    drop(file, 1)

    assert "run.jsonl:1: a result of run run-of-torch-compile:aot_eager, which has no header" in refusal(file)


def test_joined_to_itself(file):
    """The same run twice in one file is refused."""
    file.write_bytes(file.read_bytes() * 2)

    assert "run.jsonl:7: run run-of-torch-compile:aot_eager has two headers" in refusal(file)


def test_given_twice(file):
    """The same run in two files is refused."""
    assert "'torch-compile:aot_eager' is given twice: name each file once" in refusal(file, file)


def test_two_results_of_one_rule(file):
    """Two results of one rule in a run are refused."""
    change(file, 3, "order.second", "order.first")

    assert "run.jsonl:3: rule 'order.first' has two results" in refusal(file)


def test_result_of_no_rule(file):
    """A result of a rule that is not in the header is refused."""
    change(file, 3, "order.second", "order.stranger")

    assert "rule 'order.stranger' has a result, but is not in the header of its run" in refusal(file)


def test_one_backend_by_different_rules(tmp_path, file):
    """Two runs of one backend by different rules are refused, and both files are named."""
    rules = [made.rule("other.rule")]
    other = made.run("torch-compile:aot_eager", rules, [made.passed("other.rule")])
    other.header = msgspec.structs.replace(other.header, run="another")
    other.footer = Footer(run="another", results=1, seconds=0.1)
    second = made.write(tmp_path / "second.jsonl", other)

    assert f"{file} and {second} both judge 'torch-compile:aot_eager', but by different rules" in refusal(file, second)


def test_writer_keeps_the_old_file_until_its_first_line(file):
    """A run that never starts leaves an old file unchanged."""
    before = file.read_bytes()
    Writer(file).close()

    assert before == file.read_bytes()


def test_writer_replaces_the_old_file(file):
    """The first line replaces the old file."""
    with Writer(file) as writer:
        writer.write(made.three()[0].header)

    assert len(file.read_text().splitlines()) == 1


def test_writer_takes_an_unused_file_away(tmp_path):
    """A run that never starts leaves no new file."""
    Writer(tmp_path / "new.jsonl").close()

    assert list(tmp_path.iterdir()) == []


def test_writer_appends(tmp_path, file):
    """A writer with `append` keeps the old lines."""
    run = made.three()[0]
    with Writer(file, append=True) as writer:
        writer.write(run.header)

    assert len(file.read_text().splitlines()) == 7


def test_writer_flushes_each_line(tmp_path):
    """A line is in the file as soon as it is written."""
    file = tmp_path / "run.jsonl"
    writer = Writer(file)
    writer.write(made.three()[0].header)
    before = file.read_bytes()
    writer.close()
    writer.close()

    assert before == file.read_bytes()


def test_writer_makes_the_folder(tmp_path):
    """A missing folder is created."""
    with Writer(tmp_path / "a" / "b" / "run.jsonl") as writer:
        writer.write(made.three()[0].header)

    assert (tmp_path / "a" / "b" / "run.jsonl").exists()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("file/run.jsonl", "Not a directory"),
        ("file/folder/run.jsonl", "Not a directory"),
        ("folder", "Is a directory"),
        ("pipe", "Not a regular file"),
    ],
)
def test_writer_cannot_write(tmp_path, path, why):
    """A path that cannot be a regular file is refused at once; a pipe or device is neither truncated nor removed."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OutputError, match=f"cannot write the results to .*{path}: {why}; name another file"):
        Writer(tmp_path / path)

    assert {"file", "folder", "pipe"} == {one.name for one in tmp_path.iterdir()}
