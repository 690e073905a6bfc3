"""Scripts of rules: each verb is written as what the adapter does for it."""

import ast
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from listed import Listed

from hooklaw.errors import ScriptError
from hooklaw.law.collection import find_rule
from hooklaw.law.rule import Registered
from hooklaw.repro import script_of
from hooklaw.rules.lifetimes import holding


def body_of(rule: str, backend=None) -> str:
    """Return what stands behind the last definition of a script."""
    return script_of(find_rule(rule), backend or Listed()).rpartition("\n\n\n")[2]


def written(law) -> str:
    """Return the script of a function of this module, as if it were a rule."""
    return script_of(
        Registered(SimpleNamespace(id="toy.law", statement="", processes=0), law, "test_repro.py"), Listed()
    )


def expands(backend, x):
    """Hand several arguments on, as they are and as one tuple."""
    backend.expand(backend.view(x, 2, 3), 3)
    backend.expand(x)
    backend.grad(x, inputs=[x])


def _nothing(x):
    """Have the name of a function of another module."""
    return x


def clashes(backend, trace, x):
    """Use it, and a function that uses the other."""
    backend.expand(_nothing(x), 3)
    backend.register_hook(x, holding(trace, "held"))


class Pair(NamedTuple):
    """Two fields."""

    left: Any
    """The first."""
    is_whole: bool = False


def pairs(backend, x):
    """Make one."""
    backend.expand(Pair(x), 3)


def compares(backend, x, y):
    """Use the result of a verb in operations and of its attributes, and alone."""
    seen = [backend.grad_fn(x), y or (lambda: x)]
    assert backend.grad_fn(x) == seen
    assert not backend.grad_fn(x).name
    assert seen or backend.grad_fn(y)


def shapes(backend, x):
    """Use what an adapter imports by a function."""
    backend.shape(x)


def tensors(backend):
    """Make tensors of floats and of integers."""
    backend.tensor([1.0])
    backend.tensor([1])


def leaf(backend):
    """Return what the next function also calls its parameters."""
    return backend.tensor([1.0])


def shadows(backend, x):
    """Bind the name of a function of this module, in functions of the rule alone."""

    def summed(leaf):
        return backend.sum(leaf)

    backend.register_hook(leaf(backend), lambda leaf: [leaf.copy(), summed(leaf)])
    backend.register_hook(x, [leaf + 1 for leaf in x])
    summed(leaf(backend))


doubled = "a function"


def constants(backend, xs):
    """Bind the name of a constant of this module, and use the constant."""
    backend.sum([doubled or 0 for doubled in xs])
    return backend.tensor(doubled)


def noted(backend, trace, log, spread):
    """Note an argument that has the name of what notes it, and use one that has the name of an adapter's function."""
    trace.log("noted", log)
    backend.expand(log, spread)


def notes(backend, trace, x):
    """Use the function above."""
    noted(backend, trace, x, 3)


def counts(backend, xs):
    """Call a builtin, and hand on the verb that has its name."""
    return sum(map(backend.sum, xs))


def again(backend):
    """Call itself."""
    again(backend)


again.hooklaw_rule = True


def test_verbs_are_written_as_the_adapter_carries_them_out():
    """A verb of one expression stands in place, without what is not given; a longer one is called by its name."""
    body = body_of("tensor-hook.fire.every-graph")

    assert body == (
        "x = Tensor([1.0, 2.0], grad=True)\n"
        "before = (x * 2).sum()\n"
        'register_hook(x, saw("hook"))\n'
        "after = (x * 3).sum()\n"
        "\n"
        "after.backward()\n"
        "before.backward()\n"
        "\n"
        'expect(("hook", [3.0, 3.0]), ("hook", [2.0, 2.0]))\n'
    )


def test_it_includes_what_it_uses():
    """Functions and classes that it needs stand before it, each once and without annotations; nothing is of hooklaw."""
    script = script_of(find_rule("tensor-hook.fire.every-graph"), Listed())

    assert script.startswith("# A leaf's hook fires in the backward of every graph")
    assert script.count("def register_hook(tensor, hook):\n    handle = tensor.hooks\n") == 1
    assert script.count("def saw(label, action=None):") == 1
    assert "class Tensor(list):" in script
    assert "hooklaw" not in script


def test_functions_of_one_name():
    """Of two functions of one name from two modules, each is included, and called where it was."""
    script = written(clashes)

    assert "def _nothing(x):\n    return x" in script
    assert "return lambda *_: _nothing_(held)" in script
    assert "spread(_nothing(x), (3,))" in script


def test_fields_of_a_class():
    """A named tuple keeps its fields and their defaults, without the strings that document them."""
    wanted = "class Pair(NamedTuple):\n    left: object\n    is_whole: object = False\n\n\n"

    assert wanted in written(pairs)


def test_arguments_of_a_star():
    """A parameter with a star stands for a tuple, one with two stars for a dictionary; handed on, for its arguments."""
    assert written(expands).rpartition("\n\n\n")[2] == (
        'spread(x.view(2, 3), (3,))\nspread(x, ())\nx.grad(dict(inputs=[x]).get("inputs"), inputs=[x])\n'
    )


def test_what_an_operator_binds():
    """The expression that a verb is stands in parentheses where an operator, an attribute or a call would part it."""
    assert written(compares).rpartition("\n\n\n")[2] == (
        "seen = [None if x.hooks else x.node, y or (lambda: x)]\n"
        "assert (None if x.hooks else x.node) == seen\n"
        "assert not (None if x.hooks else x.node).name\n"
        "assert seen or (None if y.hooks else y.node)\n"
    )


def test_a_name_that_a_function_binds():
    """What a parameter or a comprehension binds is so called there alone: elsewhere its name is that of the module."""
    script = written(shadows)

    assert "def leaf_():\n    return Tensor([1.0])\n" in script
    assert script.rpartition("\n\n\n")[2] == (
        "def summed(leaf):\n"
        "    return leaf.sum()\n"
        "\n"
        "register_hook(leaf_(), lambda leaf: [leaf.copy(), summed(leaf)])\n"
        "register_hook(x, [leaf + 1 for leaf in x])\n"
        "summed(leaf_())\n"
    )


def test_a_constant_whose_name_a_comprehension_binds():
    """A constant is defined by the name that the rest of the script has for it."""
    script = written(constants)

    assert '\ndoubled_ = "a function"\n' in script
    assert script.endswith('[doubled or 0 for doubled in xs].sum()\nreturn Tensor(doubled_, kind="float32")\n')


def test_a_name_that_is_bound_where_a_function_is_called():
    """A function of the script has another name where its own is that of an argument."""
    script = written(notes)

    assert 'def noted(log, spread):\n    log_("noted", log)\n    spread_(log, (spread,))\n' in script
    assert "def log_(label, value=None):" in script
    assert "def spread_(tensor, shape):" in script


def test_a_verb_that_has_the_name_of_a_builtin():
    """A function of the script leaves the builtins of Python their names."""
    assert written(counts).endswith(
        "def torch_sum(tensor):\n    return tensor.sum()\n\n\nreturn sum(map(torch_sum, xs))\n"
    )


class Below(Listed):
    """A backend with a verb of several lines."""

    def grad(self, x):
        """Be that verb."""
        if x:
            x.check()
        return x.own


class Above(Below):
    """A backend whose verb uses that of the class above."""

    is_plain = False

    def grad(self, x):
        """Use it."""
        found = super().grad(x)
        return [found]

    def view(self, x):
        """Choose by a setting."""
        return [x] if self.is_plain else (x,)


def asks(backend, x):
    """Bind the name of the verb that it calls."""
    grad = backend.grad(x)
    return grad, backend.view(x)


def test_a_verb_that_uses_that_of_the_class_above():
    """It does not call itself, though a rule takes its name."""
    law = Registered(SimpleNamespace(id="toy.law", statement="", processes=0), asks, "test_repro.py")
    functions = {
        part.name: ast.unparse(part) for part in ast.parse(script_of(law, Above())).body if hasattr(part, "name")
    }

    assert "torch_grad_(x" in functions["torch_grad"]
    assert "torch_grad" not in functions["torch_grad_"].partition(":")[2]


def test_a_choice_by_a_setting_of_the_adapter():
    """A script shows what is chosen alone."""
    law = Registered(SimpleNamespace(id="toy.law", statement="", processes=0), asks, "test_repro.py")

    assert "return grad, (x,)\n" in script_of(law, Above())


def test_modules_that_a_function_imports():
    """A module that an adapter imports by a function is imported by a statement, under the adapter's name for it."""
    imports, body = written(shapes).split("\n\n\n")

    assert imports.splitlines()[2:] == ["import json", "import json.decoder as decoder", "import json.encoder"]
    assert body == "json.loads(decoder.scanstring(json.encoder.encode(x)))\n"


def test_a_verb_that_is_not_written_down():
    """A verb that no class defines is named in the refusal."""
    with pytest.raises(ScriptError, match="listed has no verb grad_of"):
        body_of("leaf.only-leaf-grad")


def test_a_rule_that_calls_itself():
    """A rule is more than its function, so no script calls one."""
    with pytest.raises(ScriptError, match=r"toy\.law calls the rule again"):
        written(again)


@pytest.mark.parametrize(
    ("default", "floats"), [("float32", "Tensor([1.0])"), ("float64", 'Tensor([1.0], kind="float32")')]
)
def test_a_dtype_goes_without_saying(default, floats):
    """It does for floats alone, and only if it is the backend's default dtype."""
    backend = Listed()
    backend.default_dtype = default
    law = Registered(SimpleNamespace(id="toy.law", statement="", processes=0), tensors, "test_repro.py")

    script = script_of(law, backend)

    assert script.splitlines()[-2:] == [floats, 'Tensor([1], kind="float32")']
