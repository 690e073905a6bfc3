"""A torch that is not imported: its docstrings are read from the Python files, as an import would have them."""

import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import pytest

from hooklaw.errors import DocumentationError
from hooklaw.law.rule import docstring, notes
from hooklaw.sources import fingerprints, load_table
from hooklaw.sources.installed import docstrings
from hooklaw.sources.libraries import read_folder, read_library
from hooklaw.sources.quoting import quoted
from hooklaw.sources.readings import load_readings

FILES = {
    "__init__.py": """
        from torch import nn as nn
        from torch._made import Tensor, given, starred
        from torch._C import compiled
        __all__ = ["nn", "Tensor", "given"]
        __all__ += ["compiled"]
    """,
    "version.py": "__version__ = '9.9.0+cpu'\n",
    "_made.py": '''
        import torch
        from torch.nn.hooks import _text
        class _Base:
            def inherited(self):
                """An inherited hook."""
        class Tensor(_Base, torch._C.TensorBase):
            """A tensor."""
            def register_hook(self):
                """Registers a hook."""
            @property
            def shape(self):
                """Its shape."""
            added = torch._C._add_docstr(torch._C.TensorBase.added, r"""A hook that is added.""")
            same = given
        def given():
            """Old."""
        given.__doc__ = f"""It is given {_text}.""" + " Twice."
    ''',
    "_tensor_docs.py": '''
        from torch._torch_docs import common
        add_docstr_all("retain_grad", r"""
        retain_grad()

        Takes {hook}.
        """.format(**common))
    ''',
    "_torch_docs.py": '''
        common = parse_kwargs("""
            hook (Callable): a hook
            other (int): another
        """)
        add_docstr(torch.made, """Has a hook.""")
    ''',
    "nn/__init__.py": "from .hooks import *\nfrom . import hooks\n",
    "nn/hooks.py": '''
        __all__ = ["Hook"]
        _text = "a hook"
        if True:
            class Hook:
                """A hook."""
                class Inner:
                    """Another hook."""
                def _private(self):
                    """A private hook."""
        def unlisted():
            """An unlisted hook."""
    ''',
    "plain.py": 'def speaks_of_nothing():\n    """Nothing."""\n',
    "fx/__init__.py": 'def passes():\n    """A hook of a pass."""\n',
}


@pytest.fixture
def site(tmp_path):
    """Write the files of a made torch, and return the folder that holds it."""
    for name, text in FILES.items():
        path = tmp_path / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return tmp_path


def wheel(site):
    """Put the files of a folder into a wheel."""
    path = site / "torch-9.9.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for each in site.rglob("*.py"):
            file.write(each, each.relative_to(site))
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch.Tensor", "A tensor."),
        ("torch.Tensor.register_hook", "Registers a hook."),
        ("torch.Tensor.shape", "Its shape."),
        ("torch.Tensor.inherited", "An inherited hook."),
        ("torch.Tensor.added", "A hook that is added."),
        ("torch.Tensor.same", "It is given a hook. Twice."),
        ("torch.Tensor.retain_grad", "retain_grad()\n\nTakes hook (Callable): a hook."),
        ("torch.made", "Has a hook."),
        ("torch.given", "It is given a hook. Twice."),
        ("torch.nn.Hook", "A hook."),
        ("torch.nn.Hook.Inner", "Another hook."),
        ("torch.nn.hooks.unlisted", "An unlisted hook."),
        ("torch.plain.speaks_of_nothing", "Nothing."),
        ("torch.compiled", None),
        ("torch.compiled.method", None),
        ("torch.nn", ""),
        ("torch.nothing", ""),
        ("torch.nn.Hook.nothing", ""),
    ],
)
def test_docstring(site, name, expected):
    """A name is followed to its definition, and to what is set as its docstring; what is compiled is not known."""
    assert read_library(site).whole.docstring(name) == expected


@pytest.mark.parametrize("shape", [lambda site: site, wheel])
def test_counted(site, shape):
    """The public objects whose docstrings mention a subject are counted by their best names, and those rules name."""
    library = read_library(shape(site))
    found = library.counted({"torch.Tensor.shape"}, load_readings())

    assert library.version == "9.9.0"
    assert sorted(found) == [
        "torch.Tensor.added",
        "torch.Tensor.inherited",
        "torch.Tensor.register_hook",
        "torch.Tensor.retain_grad",
        "torch.Tensor.shape",
        "torch.given",
        "torch.made",
        "torch.nn.Hook",
        "torch.nn.Hook.Inner",
    ]


def test_not_a_torch(tmp_path):
    """What is neither a wheel of torch nor a folder with one is one sentence."""
    (tmp_path / "empty.whl").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as file:
        file.writestr("other.py", "")

    for path in (tmp_path, tmp_path / "empty.whl", tmp_path / "other.whl", tmp_path / "absent.whl"):
        with pytest.raises(DocumentationError, match="is not a wheel of torch, nor a folder with one: "):
            read_library(path)


@pytest.fixture
def installed():
    """Return the folder of the installed torch, which must be the one of the kept table."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if version("torch").partition("+")[0] != load_table().torch:
        pytest.skip(f"the table was made from torch {load_table().torch}")
    return Path(torch.__file__).parent


def test_files_say_what_an_import_says(installed):
    """The files of torch have each counted docstring as an import has it, but for those that are compiled."""
    found = {name: read_folder(installed).docstring(name) for name in load_table().docstring}
    other = [
        name for name, text in found.items() if text is not None and fingerprints(text) != load_table().docstring[name]
    ]

    assert other == []
    assert [name for name, text in found.items() if text is None and not name.startswith("torch.distributed.")] == []


def test_an_object_has_its_best_name(installed):
    """Of several names of an object the preferred one counts, else the shortest."""
    assert "torch.autograd.grad_mode.no_grad" in docstrings({"torch.autograd.grad_mode.no_grad"})
    assert "torch.autograd.grad_mode.no_grad" not in docstrings()
    assert "torch.no_grad" in docstrings()


def test_quoted(installed):
    """The words of a sentence are those of the installed docstring, if it is the kept one; pages have none."""
    source = docstring("torch.Tensor.retain_grad")

    assert list(quoted(source.sentence(2, 9))) == [2]
    assert quoted(source) == quoted(notes("autograd", "how").sentence(1)) == {}


def test_quoted_without_torch(monkeypatch):
    """Without torch nothing is quoted."""
    monkeypatch.setitem(sys.modules, "torch", None)

    assert quoted(docstring("torch.Tensor.retain_grad").sentence(1)) == {}
