"""Mutants of any backend: they call its own verbs, and say what they need of it in vain."""

import pytest
from toy import Toy

from hooklaw.backend.capabilities import Capability, capabilities_of, said_of, verbs_of
from hooklaw.backend.protocol import CORE_VERBS, VERBS
from hooklaw.law.rule import Level, Rule, docstring
from hooklaw.mutation import matrix
from hooklaw.mutation.matrix import Matrices, Matrix
from hooklaw.mutation.report import NOT_APPLICABLE, faults, report
from hooklaw.results.verdict import Exit, Outcome
from hooklaw_backends.mutants import over
from hooklaw_backends.mutants.over_any import LacksVerbError, kin_of


@pytest.fixture(scope="module")
def of_toy():
    """Return the toy as its mutants call it, and its mutants."""
    return over(Toy(), "toy:backend")


def test_original_is_the_backend(of_toy):
    """Without a fault each verb is the backend's own."""
    original, _ = of_toy
    x = original.tensor([2.0], requires_grad=True)
    original.register_hook(x, lambda grad: grad * 3.0)
    original.backward(original.sum(x * x))

    assert original.tolist(original.grad_of(x)) == [12.0]
    assert (original.name, original.missing) == ("toy", [])


def test_mutant_has_its_fault(of_toy):
    """A mutant of the backend has its fault on top of these verbs."""
    mutant = of_toy[1]["root-hook-skipped"]()
    x = mutant.tensor([2.0], requires_grad=True)
    loss = mutant.sum(x * x)
    seen = []
    mutant.register_hook(loss, seen.append)
    mutant.backward(loss)

    assert mutant.name == "mutant root-hook-skipped of toy:backend"
    assert seen == []


def test_verb_that_is_missing(of_toy):
    """A verb that the backend lacks is noted, with the backend's reason, and so is what no verb gives."""
    original, _ = of_toy
    with pytest.raises(LacksVerbError):
        original.grad_fn(original.tensor([1.0]))
    with pytest.raises(LacksVerbError):
        original.hooks_of(original.tensor([1.0]))

    assert original.missing == [
        "grad_fn, which belongs to nodes (a toy has none)",
        "what a framework keeps inside, hooks_of, which no verb gives",
    ]


def test_kin():
    """A backend derived from the engine has the engine's own mutants too, a foreign one has not."""
    from hooklaw.model.adapter import Reference

    class Derived(Reference):
        """Is the engine."""

    assert (kin_of(Toy()), kin_of(Derived())) == ([], ["reference"])
    assert len(over(Derived(), "derived")[1]) > len(over(Toy(), "toy:backend")[1])


def test_verbs_of_capabilities():
    """Each verb is a core verb, or belongs to a capability."""
    assert verbs_of(Capability) == set(VERBS)
    assert verbs_of([]) == set(CORE_VERBS)
    assert capabilities_of("add_module") == [
        Capability.MODULE_PARTS,
        Capability.MODULE_SWITCHES,
        Capability.REGISTRATION_HOOKS,
        Capability.STATE_DICT,
    ]
    assert said_of([Capability.NODES, Capability.ANOMALY], Toy.lacks) == "nodes (a toy has none) or detect-anomaly"


def made_rule(name, *mutants):
    """Return a MUST rule."""
    sources = [docstring("torch.Tensor.sum")]
    return Rule(name, "made-up", "It is so.", Level.MUST, "documented", sources, [], list(mutants))


def made(results, why_not, *, broken=()):
    """Return a matrix of two rules of a foreign backend: made.one names mutant a, made.two names mutant b."""
    rules = [made_rule("made.one", "a"), made_rule("made.two", "b")]
    original = {rule.id: Outcome.UNSUPPORTED if rule.id in broken else Outcome.PASS for rule in rules}
    failed = {name: dict.fromkeys(killers, Outcome.FAIL) for name, killers in results.items()}
    return Matrix("mine", rules, dict.fromkeys("ab", "A fault."), original, failed, why_not=why_not)


def test_not_applicable():
    """A mutant that does not apply is none that survives, and a rule that names no other is not judged."""
    found = report(Matrices([made({"a": ["made.one"], "b": []}, {"b": "it needs nodes"})], {}))

    assert [each.verdict for each in found.mutants] == ["killed", NOT_APPLICABLE]
    assert (found.exit, found.judged, found.kill_nothing) == (Exit.OK, 1, [])
    why, kept, counts = faults(found)[-3:]
    assert why == "not applicable: 1 mutant of mine: it needs nodes"
    assert kept.startswith("mine keeps 2 MUST rules of 2; 1 of them name a mutant that applies to it")
    assert counts.startswith("2 mutants of mine: 1 killed, 0 survived, 1 not applicable, 0 killed by undeclared rules")


def test_nothing_applies():
    """Where none of the chosen mutants applies nothing was shown, and that is no success."""
    assert report(Matrices([made({"a": [], "b": []}, {"a": "x", "b": "y"})], {})).exit is Exit.BROKEN


def test_survivor():
    """A mutant that a rule names and does not notice survives."""
    found = report(Matrices([made({"a": [], "b": ["made.two"]}, {})], {}))

    assert (found.exit, [each.verdict for each in found.mutants]) == (Exit.REGRESSION, ["survived", "killed"])


def test_reasons_of_a_mutant_that_no_rule_kills():
    """What it said itself comes first, then that no rule uses it, or none names it, or those that do are not kept."""
    found = made({"a": []}, {}, broken=["made.one"])
    one, two = found.rules

    assert matrix._why_not(found, "a", {"grad"}, [two], ["it needs nodes"]) == {"a": "it needs nodes"}
    assert matrix._why_not(found, "a", {"grad", "_own"}, [], []) == {"a": "no rule that it keeps uses grad"}
    assert matrix._why_not(found, "a", {"grad"}, [two], []) == {"a": "the rules that name it are not kept: unsupported"}
    assert matrix._why_not(found, "a", {"grad"}, [one, two], []) == {}
    assert matrix._why_not(found, "cell", {"grad"}, [one, two], []) == {}
    found.first["cell"] = ["made"]
    (said,) = matrix._why_not(found, "cell", {"grad"}, [one, two], []).values()
    assert said == "no rule that it keeps kills it, and none names it: it is a cell of a table"


def test_rules_that_do_not_hold_steadily():
    """A kill by a rule that the backend itself no longer keeps does not count; of our own backends the run is void."""
    found = made({"a": ["made.one", "made.two"], "b": ["made.two"]}, {})
    matrix._void(found, ["made.two"])

    assert found.results == {"a": {"made.one": Outcome.FAIL}, "b": {}}
    assert found.why_not == {"b": "mine itself does not always keep the rules that kill it"}
