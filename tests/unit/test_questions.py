"""The question pages: `hooklaw explain` finds each by the words that a user has, and each names rules that exist."""

import pytest

from hooklaw.cli.questions import find_pages, pages
from hooklaw.cli.topic import find_topic
from hooklaw.errors import UnknownRuleError
from hooklaw.law.collection import load_rules

QUESTIONS = {
    "in which order do my hooks fire": "order",
    "which hook runs first": "order",
    "hook order": "order",
    "why does my hook on a view not fire": "views",
    "my hook is never called": "views",
    "w[0].register_hook": "views",
    "do hooks work in DataParallel": "data-parallel",
    "hooks on several GPUs": "data-parallel",
    "why does backward fail the second time": "backward-twice",
    "Trying to backward through the graph a second time": "backward-twice",
    "is my offloader safe": "offloader",
    "is save_on_cpu safe?": "offloader",
}


@pytest.mark.parametrize(("question", "page"), QUESTIONS.items())
def test_question_finds_its_page(question, page):
    """The words of a question find its page, in one text or in several."""
    assert [found.name for found in find_pages([question])] == [page]
    assert [found.name for found in find_topic(question.split()).pages] == [page]


@pytest.mark.parametrize("question", ["why", "my hooks do not work", "what does retains_grad say of a leaf"])
def test_no_page_for_anything(question):
    """Words that no page is about find none."""
    assert find_pages(question.split()) == []


def test_question_without_a_page():
    """A question that no page answers finds the rules that have most of its words, and a mistyped word is named."""
    found = [rule.id for rule in find_topic(["what", "does", "retains_grad", "say", "of", "a", "leaf"]).rules]

    assert "retain-grad.flag" in found
    with pytest.raises(UnknownRuleError, match="no rule matches 'oder': did you mean order"):
        find_topic(["oder", "view"])


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_page(page):
    """Each page has an answer above everything else, and rules or properties to look up."""
    known = load_rules()

    assert page.question.endswith("?")
    assert len(page.answer.split()) > 20
    assert "Also asked" not in page.answer
    assert len(page.rules) >= 5
    assert [rule for rule in page.rules if rule not in known and not rule.startswith("packer.")] == []


def test_there_are_five():
    """The five questions that users came with have a page each."""
    assert {page.name for page in pages()} >= set(QUESTIONS.values())
