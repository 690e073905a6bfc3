"""The links of rules lead to pages and anchors that PyTorch's reference has."""

import tomllib
from itertools import chain

import pytest

from helpers import DATA
from hooklaw.law._links import DOCS, docstring_url
from hooklaw.law.collection import load_rules

PAGES = tomllib.loads((DATA / "reference_pages.toml").read_text(encoding="utf-8"))
TUTORIALS = "https://docs.pytorch.org/tutorials/"
SOURCES = sorted({source for found in load_rules().values() for source in found.rule.sources}, key=str)


def addresses() -> set[str]:
    """Return each address that the kept list allows."""
    generated = (f"{DOCS}generated/{name}.html" for name in PAGES["generated"])
    tutorials = (f"{TUTORIALS}{name}.html" for name in PAGES["tutorials"])
    members = (
        f"{DOCS}generated/{owner}.html#{owner}.{name}" for owner, names in PAGES["members"].items() for name in names
    )
    anchors = (f"{DOCS}{page}.html#{name}" for page, names in PAGES["anchors"].items() for name in names)
    pages = (f"{DOCS}{page}.html" for page in PAGES["anchors"])
    return set(chain(generated, tutorials, members, anchors, pages))


@pytest.mark.parametrize("source", [source for source in SOURCES if source.url], ids=str)
def test_link_leads_to_a_page(source):
    """The link of each source of a rule is on the list."""
    assert source.url in addresses()


def test_sources_without_a_link():
    """A source has no link only if it was observed, or if the reference does not list it."""
    without = {source.name for source in SOURCES if not source.url and source.kind != "observed"}

    assert without <= {*PAGES["absent"]}


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("torch.Tensor.backward", "generated/torch.Tensor.backward.html"),
        ("torch.autograd.Function", "autograd.html#torch.autograd.Function"),
        ("torch.autograd.Function.backward", "generated/torch.autograd.Function.backward.html"),
        ("torch.autograd.graph.Node.name", "generated/torch.autograd.graph.Node.name.html"),
        ("torch.nn.Module", "generated/torch.nn.Module.html"),
        ("torch.nn.Module.forward", "generated/torch.nn.Module.html#torch.nn.Module.forward"),
    ],
)
def test_address_of_a_docstring(name, address):
    """A docstring has a page of its own, or an anchor of the page that includes it."""
    assert docstring_url(name) == f"{DOCS}{address}"


@pytest.mark.parametrize("name", PAGES["absent"])
def test_absent(name):
    """What the reference does not list has no link."""
    assert not docstring_url(name)
