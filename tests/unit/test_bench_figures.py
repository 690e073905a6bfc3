"""What the figures of the benchmark come to: the frontier, the tables, two runs side by side. Nothing is measured."""

import pytest

from helpers import complaint
from hooklaw.errors import BenchError, RecordFileError
from hooklaw.offload import comparing, packer_verdicts
from hooklaw.offload.frontier import frontier, groups, least_memory, sentences, within
from hooklaw.offload.wording import far, markdown, text
from hooklaw.results.records import read, schema
from hooklaw.results.verdict import Outcome
from made_records import cell, failed, measured, packer, passed, rule, run, write

# what it comes to
MADE = [
    cell("none", 48.0, 0.98),
    cell("disk-raw", 7.0, 4.0),
    cell("checkpoint", 14.0, 1.4),
    cell("slow", 15.0, 1.45),
    cell("int8", 12.0, 1.3, lossless=False, error=0.05),
    cell("unlawful", 1.0, 1.0, lawful=False),
    cell("wrong", 2.0, 1.0, outcome=Outcome.FAIL, detail="wrong gradients"),
    cell("dead", 0, 0, outcome=Outcome.CRASH, rounds=0, detail="died"),
]


def test_the_frontier_is_what_nothing_beats():
    """Marked and unlawful cells are not recommended; lossy ones can be left out."""
    assert [one.strategy for one in frontier(MADE)] == ["none", "int8", "disk-raw"]
    assert [one.strategy for one in frontier(MADE, lossless=True)] == ["none", "checkpoint", "disk-raw"]
    assert least_memory(MADE, 1.5).strategy == "checkpoint"
    assert least_memory(MADE, 0.5) is None
    assert frontier([]) == []


def test_nothing_beats_the_plain_step_by_chance():
    """What is faster than the plain step within its quartiles only is not faster; beyond them it is."""
    plain, hooks = cell("none", 48.0, 1.02), cell("hook-only", 48.0, 0.99)

    assert frontier([hooks, plain]) == [plain]
    assert [one.strategy for one in frontier([cell("faster", 48.0, 0.9), plain])] == ["faster"]


@pytest.mark.parametrize(
    ("gigabytes", "expected"), [(50, "none"), (47, "checkpoint"), (13, "disk-raw"), (6, "unlawful"), (0.5, None)]
)
def test_a_budget_calls_for_the_plain_step_then_for_what_is_safe(gigabytes, expected):
    """A lossless lawful cell comes before a faster one that is not, and an unlawful one where nothing else fits."""
    found = within(MADE, int(gigabytes * 1e9))

    assert (found and found.strategy) == expected


def test_the_answer_in_words():
    """Which strategy fits in how much, and the least memory at a bearable price, with and without losses."""
    assert sentences(MADE) == [
        "To fit in 48.0 GB: none (1.00 x); in 14.0 GB: checkpoint (1.40 x); in 7.00 GB: disk-raw (4.00 x).",
        "The least memory at up to 1.5 x the plain step: checkpoint, 14.0 GB, 29% of the plain step's, at 1.40 x.",
        "With gradients off by 0.05: int8, 12.0 GB, 25% of the plain step's, at 1.30 x.",
    ]
    assert sentences(MADE[-1:]) == ["No strategy passed, so none can be recommended."]


def test_groups_keep_settings_apart():
    """Cells of another device or precision are not held against each other."""
    found = groups([cell("none"), cell("none", setting="amp"), cell("async")])

    assert [[one.strategy for one in cells] for cells in found.values()] == [["none", "async"], ["none"]]


def test_tables_show_marks():
    """A marked cell says why, in text and in markdown, and has no figures where nothing was measured."""
    said = text(measured(*MADE))

    assert "crash: died" in said
    assert "breaks the law of packers" in said
    assert "| int8 | 260.0 | 1.30 [1.26-1.34] | 12.0 GB |" in markdown(measured(*MADE))
    assert (far(0.0), far(1e300), far(0.0123)) == ("0", "not finite", "0.01")


# the law
def test_verdicts_of_the_law_come_from_a_results_file(tmp_path):
    """A packer is lawful where every run on it holds; a device at the end of its name makes no other packer."""
    one, other = rule("packer.one"), rule("packer.other")
    runs = [
        packer("m:A", [one], [passed("packer.one")]),
        packer("m:B", [one], [passed("packer.one")]),
        packer("m:B", [one, other], [passed("packer.one"), failed("packer.other")], device="cuda"),
    ]

    assert packer_verdicts.verdicts({}, str(write(tmp_path / "p.jsonl", *runs)), print) == {"m:A": True, "m:B": False}
    with pytest.raises(BenchError, match="judges no packer"):
        packer_verdicts.verdicts({}, str(write(tmp_path / "b.jsonl", measured(cell()))), print)


# comparing
def compared(old, new, **how):
    """Compare two runs, and return what is said of each cell."""
    found = comparing.compare(comparing.Measured(old, {}), comparing.Measured(new, {}), **how)
    return {pair.strategy: (pair.change, pair.worse) for pair in found.pairs}


def test_only_changes_beyond_the_quartiles_count():
    """A slower cell is worse only beyond the quartiles and beyond the tolerance."""
    old = [cell("a", 10, 1.0), cell("b", 10, 1.0), cell("c", 10, 1.0), cell("d", 10, 1.0)]
    wide = {"ratio_q1": 1.0, "ratio_q3": 3.0}
    new = [cell("a", 10, 1.5), cell("b", 10, 1.5, **wide), cell("c", 10, 1.08), cell("d", 10, 0.5)]

    assert compared(old, new) == {
        "a": ("time +50 % WORSE", True),
        "b": ("", False),
        "c": ("time +8 %", False),
        "d": ("time -50 %", False),
    }


def test_memory_marks_and_lost_cells_count_too():
    """More memory, a mark and a missing cell are worse; a cell that is new or passes now is not."""
    mark = {"outcome": Outcome.TIMEOUT, "detail": "did not end"}
    old = [cell("a", 10, 1.0), cell("b", 10, 1.0), cell("c", 10, 1.0), cell("d", 10, 1.0, **mark)]
    new = [cell("a", 12, 1.0), cell("b", 0, 0, **mark), cell("d", 10, 1.0), cell("e", 10, 1.0)]

    assert compared(old, new) == {
        "a": ("memory +20 % WORSE", True),
        "b": ("was pass, is timeout: did not end", True),
        "c": ("lost", True),
        "d": ("was timeout, is pass", False),
        "e": ("new", False),
    }
    assert compared(old[:1], new[:1], tolerance=0.3) == {"a": ("memory +20 %", False)}


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_compare_exits_with_1_where_a_cell_got_worse(verb, tmp_path, form):
    """Both files are records; another machine is said, and is no reason to fail."""
    here, there = {"cpu": "this one"}, {"cpu": "that one"}
    old = write(tmp_path / "old", measured(cell("a", 10, 1.0), cell("b", 10, 1.0), versions=here))
    new = write(tmp_path / "new", measured(cell("a", 10, 1.5), cell("b", 10, 1.0), versions=there))
    same, worse = (verb("bench", "compare", old, other, "--format", form) for other in (old, new))

    assert (same.returncode, same.stderr) == (0, "")
    assert worse.returncode == 1
    assert "different machines or software (cpu this one and that one)" in complaint(worse)
    assert "time +50 % WORSE" in worse.stdout
    assert verb("bench", "compare", old, new, "--tolerance", "60%").returncode == 0


def test_compare_refuses_what_holds_no_cells(tmp_path):
    """A record of rules, another's benchmark, and two runs without a common cell cannot be compared."""
    rules = write(tmp_path / "rules", run("torch-eager", [rule()], [passed()]))
    (tmp_path / "foreign").write_text('{"benchmarks": []}')

    for path, said in ((rules, "holds no cells"), (tmp_path / "foreign", "without figures of hooklaw")):
        with pytest.raises(RecordFileError, match=said):
            comparing.load(path)
    with pytest.raises(BenchError, match="no cell in common"):
        compared([cell("a")], [cell("b")])


# the records
def test_a_cell_stands_once_in_a_run(tmp_path):
    """A run with a cell twice is refused, one with too few cells is incomplete, and the schema knows cells."""
    twice = write(tmp_path / "twice", measured(cell("a"), cell("a")))
    few = write(tmp_path / "few", measured(cell("a"), collected=2))

    with pytest.raises(RecordFileError, match="cell 'conv NVIDIA H200 a' occurs twice"):
        read(twice)
    with pytest.raises(RecordFileError, match="is incomplete, 1 of 2 cells are measured"):
        read(few)
    assert "Cell" in schema()["$defs"]
