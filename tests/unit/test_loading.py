"""Loading a backend by name, and the one-sentence errors of names and objects that are not backends."""

import re
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from toy import Toy

from hooklaw.backend import loading
from hooklaw.backend.protocol import CORE_VERBS, Capability, ErrorKind
from hooklaw.errors import BackendContractError, BackendImportError, NotRunError, UnknownBackendError

FRAMEWORKS = ("torch", "paddle", "autograd", "tinygrad", "mindspore", "tensorplay")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes an importable module `mine`, which can use the toy backend."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)

    def write(text):
        (tmp_path / "mine.py").write_text(f"from toy import Toy, backend\n{text}")

    yield write
    sys.modules.pop("mine", None)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("torch-eager", ("hooklaw_backends.torch_eager:backend", "")),
        ("torch-eager:cuda:1", ("hooklaw_backends.torch_eager:backend", "cuda:1")),
        ("torch-compile:aot_eager", ("hooklaw_backends.torch_compile:backend", "aot_eager")),
        ("mine:backend", ("mine:backend", "")),
        ("my.package:Mine", ("my.package:Mine", "")),
        ("mine:backend:cuda:1", ("mine:backend", "cuda:1")),
    ],
)
def test_resolve(spec, found):
    """A name resolves to its factory, module:attribute to itself, and the rest is the argument."""
    assert found == loading.resolve(spec)


def test_resolve_takes_entry_points(monkeypatch):
    """An installed package can name its backends."""
    point = EntryPoint("acme-grad", "acme.autograd:backend", loading.GROUP)
    monkeypatch.setattr(loading, "entry_points", lambda group: [point] if group == point.group else [])

    assert loading.resolve("acme-grad:npu:0") == ("acme.autograd:backend", "npu:0")


def test_entry_points_hide_no_shipped_backend(monkeypatch):
    """An installed package cannot replace a built-in name."""
    monkeypatch.setattr(loading, "entry_points", lambda group: [EntryPoint("paddle", "acme:backend", group)])

    assert loading.BUILTIN["paddle"] == loading.resolve("paddle")[0]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("torch-eagr", "no backend has the name 'torch-eagr': did you mean torch-eager"),
        ("xyzzy", f"no backend has the name 'xyzzy': known are {', '.join(sorted(loading.BUILTIN))}"),
        ("", "no backend has the name ''"),
        (":", "no backend has the name ':'"),
        ("mine:", "no backend has the name 'mine:'"),
        (":backend", "no backend has the name ':backend'"),
        ("my-module:backend", "no backend has the name 'my-module:backend'"),
        ("mine:not-a-name", "no backend has the name 'mine:not-a-name'"),
        ("a..b:backend", "no backend has the name 'a..b:backend'"),
    ],
)
def test_unknown(spec, said):
    """For an unknown name, the message lists known names."""
    with pytest.raises(UnknownBackendError) as caught:
        loading.resolve(spec)

    assert str(caught.value).startswith(said)


def test_factory_gets_the_argument(module):
    """The factory gets the text after the name unchanged."""
    module("class Mine(Toy):\n    def __init__(self, argument):\n        self.name = argument")

    assert loading.load("mine:Mine:cuda:1").name == "cuda:1"


def test_an_object_is_a_backend_too(module):
    """An attribute that cannot be called is the backend itself."""
    module("made = Toy()")

    assert loading.load("mine:made").name == "toy"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_the_kind", "ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError: invalid syntax (mine.py, line 2)"),
        ("raise SystemExit(5)", "SystemExit: 5"),
        ("raise OSError('one\\ntwo')", "OSError: one"),
    ],
)
def test_module_does_not_import(module, text, said):
    """The module that cannot be imported is named, with the first line of the error."""
    module(text)

    with pytest.raises(BackendImportError) as caught:
        loading.load("mine:backend")

    assert f"backend 'mine:backend': cannot import module mine: {said}" == str(caught.value)


def test_no_such_module():
    """A module that does not exist cannot be imported."""
    with pytest.raises(BackendImportError, match="cannot import module nowhere: ModuleNotFoundError"):
        loading.load("nowhere:backend")


def test_no_such_attribute(module):
    """A missing attribute is named with its module."""
    module("")

    with pytest.raises(BackendImportError, match="^backend 'mine:other': module mine has no attribute 'other'$"):
        loading.load("mine:other")


@pytest.mark.parametrize("error", ["ValueError('no such device')", "SystemExit('no such device')"])
def test_factory_raises(module, error):
    """The error of a factory is quoted."""
    module(f"def make(argument):\n    raise {error}")

    with pytest.raises(BackendImportError, match="^backend 'mine:make:x': its factory raised .*: no such device$"):
        loading.load("mine:make:x")


def test_this_machine_lacks_it(module):
    """A factory's NotRunError is not an error of the user: it passes through with its reason."""
    with pytest.raises(NotRunError, match="^no toy box on this machine$"):
        loading.load("toy:backend:absent")


def test_this_machine_lacks_the_package(module):
    """The module itself may raise NotRunError too."""
    module("from hooklaw.errors import NotRunError\nraise NotRunError('acme is not installed')")

    with pytest.raises(NotRunError, match="^acme is not installed$"):
        loading.load("mine:backend")


@pytest.mark.parametrize("name", sorted(loading.BUILTIN.keys() - {"reference"}))
def test_without_its_framework(name, environment):
    """A shipped backend says in a sentence that its framework is not installed."""
    absent = f"import sys; sys.modules |= dict.fromkeys({FRAMEWORKS})"
    program = f"{absent}; from hooklaw.backend.loading import load; load({name!r})"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)

    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"hooklaw.errors.NotRunError: (\w+ is not installed|no MindSpore .*): .*pip install .*", last)


@pytest.mark.parametrize("verb", CORE_VERBS)
def test_missing_core_verb(module, verb):
    """Core verbs are required whatever the backend declares."""
    module(f"class Mine(Toy):\n    {verb} = None\nmade = Mine()")

    with pytest.raises(BackendContractError, match=f"lacks the verb '{verb}', which every backend needs"):
        loading.load("mine:made")


@pytest.mark.parametrize("capability", [one for one in Capability if one.verbs and one != "tensor-hooks"])
def test_missing_verb_of_a_capability(module, capability):
    """The verbs of a declared capability are required."""
    module(f"class Mine(Toy):\n    capabilities = frozenset(['{capability}'])\nmade = Mine()")
    said = f"lacks the verb '{capability.verbs[0]}', which its capability '{capability}' needs"

    with pytest.raises(BackendContractError, match=said):
        loading.load("mine:made")


@pytest.mark.parametrize("attribute", ["name", "capabilities", "lacks", "errors", "versions", "notes", "expectations"])
def test_missing_attribute(module, attribute):
    """Seven attributes are required."""
    module(
        f"class Mine(Toy):\n    def __getattribute__(self, name):\n        if name == '{attribute}':\n"
        "            raise AttributeError\n        return super().__getattribute__(name)\nmade = Mine()"
    )

    said = f"^backend 'mine:made' has no attribute '{attribute}': `hooklaw docs add-a-backend`"
    with pytest.raises(BackendContractError, match=said):
        loading.load("mine:made")


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("capabilities", "{'telepathy'}", "declares the unknown capability 'telepathy': choose from accelerator, "),
        ("lacks", "{'telepathy': 'no'}", "declares the unknown capability 'telepathy'"),
        ("errors", "{'bad-mood': ()}", "declares the unknown error kind 'bad-mood': choose from checkpoint-kind, "),
        ("capabilities", "None", "its capabilities are not a set"),
        ("capabilities", "'tensor-hooks'", "its capabilities are not a set"),
        ("versions", "None", "its versions are not a mapping"),
        ("lacks", "['nodes']", "its lacks are not a mapping"),
        ("not_under", "{'float61': 'no'}", "its not_under names no condition: .*'float61': did you mean float64"),
    ],
)
def test_malformed_attribute(module, attribute, value, said):
    """Attributes of the wrong type and unknown names are refused."""
    module(f"class Mine(Toy):\n    {attribute} = {value}\nmade = Mine()")

    with pytest.raises(BackendContractError, match=said):
        loading.load("mine:made")


def test_import_module(module):
    """`import_module` imports a module for its side effects."""
    module("")
    loading.import_module("mine")

    assert "mine" in sys.modules


def test_import_module_fails():
    """A module of --import that cannot be imported is named."""
    with pytest.raises(BackendImportError, match="^--import nowhere: cannot import the module: ModuleNotFound"):
        loading.import_module("nowhere")


def test_the_toy_is_a_backend():
    """The toy backend of these tests meets the contract."""
    assert isinstance(loading.load("toy:backend"), Toy)


def test_error_kinds_have_no_duplicates():
    """Each kind of error has a name of its own."""
    assert len(set(ErrorKind)) == len(ErrorKind.__members__)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("hooklaw_backend.paddle:backend", "No module named 'hooklaw_backend' (did you mean hooklaw_backends?)"),
        ("hooklaw.model.adaptor:backend", "No module named 'hooklaw.model.adaptor' (did you mean adapter?)"),
        ("hooklaw.model.adapter:backed", "has no attribute 'backed' (did you mean backend?)"),
    ],
)
def test_mistyped_module_or_attribute(spec, said):
    """A mistyped module or attribute is answered with those that exist."""
    with pytest.raises(BackendImportError) as caught:
        loading.load(spec)

    assert said in str(caught.value)


def test_import_that_a_module_lacks(module):
    """A module that lacks a package of its own is not taken for a mistyped name."""
    module("import torhc")

    with pytest.raises(BackendImportError, match="No module named 'torhc'$"):
        loading.load("mine:backend")
