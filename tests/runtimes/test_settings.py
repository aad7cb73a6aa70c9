"""Where packages come from: the file, then the environment."""

from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.settings import Index, Settings, load


def test_the_public_registries_unless_told_otherwise() -> None:
    assert Settings().pypi_index == "https://pypi.org/simple"
    assert Settings().npm_registry == "https://registry.npmjs.org"


def test_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "runtimes.yml"
    file.write_text(
        "pypi_index: https://a/simple\nfind_links: [/srv/w, https://b/]\nindexes: {nvidia: https://c/debian}\n"
    )
    found = load({"GPUAAS_RUNTIME_SETTINGS": str(file)})
    assert (found.pypi_index, found.find_links) == ("https://a/simple", ("/srv/w", "https://b/"))
    assert (found.index("nvidia"), found.index("other")) == (Index("nvidia", "https://c/debian"), None)
    found = load({"GPUAAS_RUNTIME_SETTINGS": str(file), "UV_FIND_LINKS": "/x,/y", "GPUAAS_NPM_REGISTRY": "https://d"})
    assert (found.find_links, found.npm_registry, found.pypi_index) == (("/x", "/y"), "https://d", "https://a/simple")


def test_what_pip_was_told_counts_where_nobody_says_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "s.yml"
    said = {"GPUAAS_RUNTIME_SETTINGS": str(file), "PIP_FIND_LINKS": "/srv/pip ./here https://e/"}
    file.write_text("npm_registry: https://d\n")
    assert load(said).find_links == ("/srv/pip", "https://e/")
    assert load({**said, "UV_FIND_LINKS": "/srv/uv"}).find_links == ("/srv/uv",)
    file.write_text("find_links: [/srv/w]\n")
    assert load(said).find_links == ("/srv/w",)


def test_a_mirror_with_a_key_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "s.yml"
    file.write_text("indexes:\n  amd: {url: https://a, keyring: /etc/k.gpg, suite: /, components: main extra}\n")
    wanted = Index("amd", "https://a", "/etc/k.gpg", "/", "main extra")
    assert load({"GPUAAS_RUNTIME_SETTINGS": str(file)}).index("amd") == wanted
    file.write_text("indexes:\n  amd: {keyring: /etc/k.gpg}\n")
    with pytest.raises(Problem, match="'url' is missing"):
        load({"GPUAAS_RUNTIME_SETTINGS": str(file)})


@pytest.mark.parametrize(
    ("text", "said"),
    [("pypi: x", ":1: pypi: is no field"), ("\npypi_index: ftp://x", ":2: pypi_index: 'ftp://x' is not an address")],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "s.yml").write_text(text)
    with pytest.raises(Problem) as refused:
        load({"GPUAAS_RUNTIME_SETTINGS": str(tmp_path / "s.yml")})
    assert said in refused.value.message


def test_a_missing_file_and_a_wrong_variable(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="No such file"):
        load({"GPUAAS_RUNTIME_SETTINGS": str(tmp_path / "no.yml")})
    with pytest.raises(Problem, match="is not an address"):
        load({"GPUAAS_PYPI_INDEX": "pypi.org"})
