"""Mutants of ranks that are made from tables: they are wrong in one situation, and nowhere else."""

import pytest

pytest.importorskip("torch", reason="mutants of torch need torch, which is not installed")

from helpers import shipped_rules
from hooklaw_backends.mutants.over_torch import OverTorch
from hooklaw_backends.mutants.torch_only import parallel_in_situations, ranks_in_situations, sharded_in_situations
from hooklaw_backends.mutants.torch_only.ranks_in_situations import SITUATIONS, hooked, lost, uncalled

TABLES = (parallel_in_situations, sharded_in_situations)


def made(make, situation, rank=0):
    """Return a mutant that is wrong in a situation, in some rank."""
    mutant = type("Made", (make(SITUATIONS[situation][1]), OverTorch), {"get_rank": lambda _: rank})()
    mutant.reset()
    return mutant


def run(mutant, x):
    """Run backward from a tensor."""
    mutant.backward(mutant.sum(x * 2))


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        ("everywhere", []),
        ("later", ["first hook of x", "second hook of x", "first hook of y", "second hook of y"]),
        ("third-call", 2 * ["first hook of x", "second hook of x", "first hook of y", "second hook of y"]),
        ("another", 3 * ["first hook of x", "second hook of x"]),
        ("second", 3 * ["first hook of x", "first hook of y"]),
        ("rank-1", 3 * ["first hook of x", "second hook of x", "first hook of y", "second hook of y"]),
        ("after-an-error", 3 * ["first hook of x", "second hook of x", "first hook of y", "second hook of y"]),
    ],
)
def test_lost_there_alone(situation, expected):
    """A hook is lost in the situation, and runs elsewhere."""
    mutant, calls = made(hooked(uncalled, "register_hook"), situation), []
    for name in ("x", "y"):
        x = mutant.tensor([1.0], requires_grad=True)
        for label in ("first", "second"):
            mutant.register_hook(x, lambda _, said=f"{label} hook of {name}": calls.append(said))
        for _ in range(3):
            run(mutant, x)

    assert sorted(calls) == sorted(expected)


def test_after_an_error():
    """Once a hook has raised none is called."""
    mutant, calls = made(hooked(uncalled, "register_hook"), "after-an-error"), []
    x, y = (mutant.tensor([1.0], requires_grad=True) for _ in range(2))
    mutant.register_hook(x, lambda grad: calls.append(grad) or 1 / 0)
    mutant.register_hook(y, calls.append)
    run(mutant, y)
    with pytest.raises(ZeroDivisionError):
        run(mutant, x)
    run(mutant, y)

    assert len(calls) == 2


@pytest.mark.parametrize(("rank", "expected"), [(0, 1), (1, 0)])
def test_in_one_rank(rank, expected):
    """A hook is lost in rank 1."""
    mutant, calls = made(hooked(uncalled, "register_hook"), "rank-1", rank), []
    x = mutant.tensor([1.0], requires_grad=True)
    mutant.register_hook(x, calls.append)
    run(mutant, x)

    assert len(calls) == expected


def test_a_verb_returns_its_first_argument():
    """From its second call for an object on the verb does nothing; a reset forgets the calls."""
    mutant = made(lost("detach"), "later")
    x = mutant.tensor([1.0], requires_grad=True)
    found = [mutant.detach(x) is x for _ in range(2)]
    mutant.reset()

    assert [*found, mutant.detach(x) is x] == [False, True, False]


def test_each_row_has_rules():
    """Each beginning of an id in a table is that of a rule of several processes."""
    ids = [found.rule.id for found in shipped_rules().values() if found.rule.processes]
    beginnings = {each for table in TABLES for row in table.ROWS.values() for each in row.chapters}

    assert [each for each in beginnings if not any(rule.startswith(each) for rule in ids)] == []


def test_each_rule_has_a_row():
    """Each MUST or SHOULD rule of sharded modules and distributed tensors is tried on some row."""
    beginnings = tuple(each for table in TABLES for row in table.ROWS.values() for each in row.chapters)
    rules = [found.rule for found in shipped_rules().values() if found.rule.level != "MAY"]
    ids = [rule.id for rule in rules if rule.id.startswith(("fsdp.", "dtensor.", "tensor-parallel."))]

    assert [rule for rule in ids if not rule.startswith(beginnings)] == []


def test_what_the_tables_share_is_no_mutant():
    """The base of these mutants is not among those of torch."""
    from hooklaw_backends.mutants import SHARED

    assert ranks_in_situations.__name__.rpartition(".")[2] in SHARED
