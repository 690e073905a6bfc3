"""The registry accepts rules with a statement, a source and a mutant, and refuses others."""

import pytest

from hooklaw.errors import RuleDefinitionError, UnknownRuleError
from hooklaw.law import collection
from hooklaw.law import rule as registry
from hooklaw.law.rule import Basis, Level, Rule, digest, docstring, notes, observed, page, rule, tutorial


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registry", {})
    monkeypatch.setattr(collection, "load_rules", lambda: dict(registry._registry))


def law(backend, trace):
    """Hooks run in order.

    This paragraph is no law.
    """


def register(rule_id="family.what", function=law, **parts):
    """Register a rule that is well-formed except for the given parts."""
    whole = {"level": Level.MUST, "sources": [docstring("torch.Tensor.register_hook")], "mutants": ["drops-hooks"]}
    rule(rule_id, **(whole | parts))(function)
    return next(registry.registered()).rule


def test_first_paragraph_is_the_law():
    """The docstring's first paragraph, in one line, is the rule's statement."""
    made = register()

    assert made.statement == "Hooks run in order."


def test_chapter_is_the_module():
    """A rule has the chapter of its module's name, and its pytest node id."""
    register()
    (found,) = registry.registered()

    assert (found.rule.chapter, found.node) == ("rule", "test_rule.py::law")


def test_function_carries_its_rule():
    """The plugin finds a rule on its function."""
    made = register()

    assert made is law.hooklaw_rule


def test_duplicate_id():
    """A taken id is refused, and the message names the rule that has it."""
    register()

    with pytest.raises(RuleDefinitionError, match=r"'family.what' is registered twice, first by test_rule.py::law"):
        register()


@pytest.mark.parametrize("rule_id", ["", "family", "Family.what", "family.", ".what", "family.what aspect", "a.b--c"])
def test_malformed_id(rule_id):
    """An id has a family, a dot, and words in lower case."""
    with pytest.raises(RuleDefinitionError, match="is malformed: write family.what.aspect"):
        register(rule_id)


@pytest.mark.parametrize("rule_id", ["a.b", "tensor-hook.order.two-hooks", "data-parallel.replicas.grad_fn"])
def test_wellformed_id(rule_id):
    """Words are joined by hyphens; PyTorch's own names keep their underscores."""
    assert rule_id == register(rule_id).id


def test_except_under():
    """A rule keeps the conditions that change its law, with the reasons."""
    assert register(except_under={"retained": "it is about freeing"}).except_under == {
        "retained": "it is about freeing"
    }


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("retain", "it frees", "no condition has the name 'retain': did you mean retained"),
        ("retained", " ", "under retained without a reason: say why"),
    ],
)
def test_except_under_is_checked(name, reason, said):
    """A condition that does not exist, and an exception without a reason, are refused."""
    with pytest.raises(RuleDefinitionError, match=said):
        register(except_under={name: reason})


def test_no_docstring():
    """A rule without a docstring is refused."""
    with pytest.raises(RuleDefinitionError, match="'family.what' has no docstring"):
        register(function=lambda backend, trace: None)


def test_no_source():
    """A rule without a source is refused."""
    with pytest.raises(RuleDefinitionError, match="'family.what' names no source"):
        register(sources=[])


def test_must_without_mutant():
    """A MUST rule without a mutant is refused."""
    with pytest.raises(RuleDefinitionError, match="MUST rule 'family.what' names no mutant"):
        register(mutants=[])


@pytest.mark.parametrize("level", [Level.SHOULD, Level.MAY])
def test_other_levels_need_no_mutant(level):
    """Only a MUST rule must name a mutant."""
    assert register(level=level, mutants=[]).mutants == []


def test_observed_must():
    """A MUST rule that is only observed is refused."""
    with pytest.raises(RuleDefinitionError, match="'family.what' is only observed"):
        register(basis=Basis.OBSERVED)


def test_a_refused_rule_is_not_registered():
    """A refused rule is not registered."""
    with pytest.raises(RuleDefinitionError):
        register(sources=[])

    assert list(registry.registered()) == []


def test_find_rule():
    """A rule is found by its id."""
    assert register() is collection.find_rule("family.what").rule


def test_unknown_rule_names_the_nearest():
    """For a wrong id, the message suggests similar ids."""
    register()

    with pytest.raises(UnknownRuleError, match=r"'family.wat': did you mean family.what\?"):
        collection.find_rule("family.wat")


def test_unknown_rule_like_no_other():
    """For an id without similar ids, the message names `hooklaw list`."""
    register()

    with pytest.raises(UnknownRuleError, match="'xyzzy': `hooklaw list` shows all ids"):
        collection.find_rule("xyzzy")


@pytest.mark.parametrize(
    ("source", "url"),
    [
        (docstring("torch.Tensor.grad"), "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.grad.html"),
        (
            docstring("torch.optim.optimizer.f"),
            "https://docs.pytorch.org/docs/stable/optim.html#torch.optim.optimizer.f",
        ),
        (notes("autograd", "x"), "https://docs.pytorch.org/docs/stable/notes/autograd.html#x"),
        (notes("autograd"), "https://docs.pytorch.org/docs/stable/notes/autograd.html"),
        (page("autograd", "x"), "https://docs.pytorch.org/docs/stable/autograd.html#x"),
        (tutorial("a/b"), "https://docs.pytorch.org/tutorials/a/b.html"),
        (observed("torch 2.13"), ""),
    ],
)
def test_source_url(source, url):
    """Every documented source has the address of a page."""
    assert url == source.url


def made(**parts):
    """Make a rule as data."""
    whole = {"chapter": "c", "basis": Basis.DOCUMENTED, "sources": [docstring("x")], "mutants": ["m"]}
    law = {"id": "a.b", "statement": "It holds.", "level": Level.MUST, "needs": ["x", "y"]}
    return Rule(**(whole | law | parts))


@pytest.mark.parametrize(
    "change", [{"id": "a.c"}, {"statement": "It does not."}, {"level": Level.MAY}, {"needs": ["x"]}]
)
def test_digest_changes_with_the_law(change):
    """The digest changes with id, statement, level and needs."""
    assert digest([made()]) != digest([made(**change)])


@pytest.mark.parametrize("change", [{"chapter": "d"}, {"mutants": []}, {"needs": ["y", "x"]}])
def test_digest_ignores_the_rest(change):
    """The digest does not depend on the chapter."""
    assert digest([made()]) == digest([made(**change)])


def test_digest_ignores_order():
    """The digest does not depend on the order of rules."""
    one, other = made(), made(id="a.c")

    assert digest([one, other]) == digest([other, one])
