"""Mutants of the engine that are made as those of the tables, but whose situation never is, or whose fault is none."""

from hooklaw_backends.mutants import handles_in_situations as handles
from hooklaw_backends.mutants import kinds_of_values, options_of_verbs, origins_of_tensors, results_of_verbs
from hooklaw_backends.mutants import modes_in_situations as modes
from hooklaw_backends.mutants import verbs_in_situations as verbs
from hooklaw_backends.mutants.contexts_in_situations import TABLE
from hooklaw_backends.mutants.in_situations import FAULTS, KINDS, OF_PAIRS, _made, _reversed
from hooklaw_backends.mutants.over_reference import OverReference
from hooklaw_backends.mutants.several_values import SEVERAL
from hooklaw_backends.mutants.situations import Situation

STACKS = 8
"""The mutants of a stack are far apart in the tables, since neighbours share verbs."""
NEVER = Situation("never", "never", lambda *_: False)


def mutants(of):
    """Return one of each kind, one that reverses the order of each kind that has one, and those of contexts.

    And one for each verb, context and handle of a kind, for each sequence, option and result of a verb, for each
    place of values, and of tensors of an origin. About forty stand on each other, in a mutant that has all
    their names.
    """
    _, lose = FAULTS["lost"]
    made = {kind: _made(how, NEVER, lose) for kind, how in KINDS.items()}
    made |= {kind: make(NEVER, lose) for kind, _, _, _, make in OF_PAIRS}
    made |= {f"order-of-{kind}": _reversed(how, NEVER) for kind, how in KINDS.items() if not how.unordered}
    made |= {name: make(NEVER) for name, (_, _, make, _) in TABLE.items()}
    made |= {verb.name: verbs.made(verb, NEVER, verbs.FAULTS["lost"][1]) for verb in verbs.VERBS}
    made["freed"] = verbs.refusing(verbs.VERBS[0], NEVER, verbs.VERBS[0].refusals[0])
    made |= {context.name: modes.made(context, modes.FAULTS["lasts"], NEVER) for context in modes.CONTEXTS}
    made |= {f"handle-of-{kind}": handles.made(how, NEVER, lambda _: None) for kind, how in KINDS.items()}
    made |= {f"several-{name}": row.make(range) for name, row in SEVERAL.items()}
    made |= {f"option-{name}": options_of_verbs.made(row, lambda call: call.given) for name, row in _options()}
    made |= {f"result-{name}": results_of_verbs.made(row, lambda _, value: value) for name, row in _results()}
    made |= {f"value-{name}": place.make(lambda _, value: value) for name, place in kinds_of_values.PLACES.items()}
    made |= {
        f"origin-{of}": origins_of_tensors.made(each[1], "never") for of, each in origins_of_tensors.PLACES.items()
    }
    made |= {f"kept-{name}": results_of_verbs.stale(row, -1) for name, row in _results() if row.is_kept}
    several = [[*made][place::STACKS] for place in range(STACKS)]
    return {
        " ".join(names): type(of, (*(made[name] for name in names), OverReference), {"__doc__": "Nothing."})
        for names in several
    }


def _options():
    return options_of_verbs.OPTIONS.items()


def _results():
    return results_of_verbs.RESULTS.items()
