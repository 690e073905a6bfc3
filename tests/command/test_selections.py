"""-k as the verbs take it."""

import json

import pytest


def ids_of(done):
    """Return the ids of the rules that `hooklaw list --format json` printed."""
    assert done.returncode == 0, done.stderr
    return {rule["id"] for rule in json.loads(done.stdout)}


@pytest.mark.parametrize("given", [["mark-dirty", "retain-grad"], ["", "mark-dirty", "retain-grad and not view"]])
def test_several_selections(verb, given):
    """-k given twice selects what either does; an empty one selects nothing more."""
    options = [word for each in given for word in ("-k", each)]
    apart = [ids_of(verb("list", "--format", "json", "-k", each)) for each in given if each]

    assert all(apart)
    assert ids_of(verb("list", "--format", "json", *options)) == set.union(*apart)
