"""What the pages say of the code is so: the tree, links, words, module names, and every command that is shown."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataset_controller.cli import PACKAGES, make_parser
from tests.architecture import cases, code


def tracked() -> list[str]:
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files"], cwd=code.ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


PAGES = sorted(name for name in tracked() if name.endswith(".md"))


def text(name: str) -> str:
    return (code.ROOT / name).read_text()


def section(page: str, title: str) -> str:
    """From one heading to the next of its depth."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text(page), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title!r}"
    return found[1]


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, content) of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def anchors(name: str) -> set[str]:
    """As GitHub makes them: lower case, no punctuation, blanks as dashes."""
    headings = re.findall(r"^#+ (.+)$", text(name), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tree_of_the_readme_is_every_folder_and_nothing_else() -> None:
    ((_, tree),) = blocks(section("README.md", "The tree"))
    named = [line.split()[0].rstrip("/") for line in tree.splitlines()]
    folders = {name.split("/")[0] for name in tracked() if "/" in name}
    assert sorted(named) == sorted(folders)
    assert set(code.PACKAGES) <= set(named)
    assert all(len(line.split(maxsplit=1)) == 2 for line in tree.splitlines()), "each with its purpose"


def test_what_is_not_built_is_called_so() -> None:
    """A folder is marked as not built exactly while it holds one sentence."""
    ((_, tree),) = blocks(section("README.md", "The tree"))
    marked = {line.split("/")[0] for line in tree.splitlines() if "(not built yet)" in line}
    assert marked == {name for name in code.PACKAGES if len(list((code.ROOT / name).rglob("*.py"))) == 1}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    outside_code = re.sub(r"^```.*?^```$", "", text(page), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)", outside_code):
        path = (code.ROOT / page).parent / target if target else code.ROOT / page
        assert path.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(str(path.resolve().relative_to(code.ROOT))), f"{page}: {target}#{anchor}"


def test_modules_that_the_architecture_names_exist() -> None:
    files = {path.name for path in code.modules()}
    folders = {parent.name for path in code.modules() for parent in path.parents}
    page = text("ARCHITECTURE.md")
    named = re.findall(r"`([\w/]+\.py)`", page)
    assert named and [name for name in named if Path(name).name not in files] == []
    for name in re.findall(r"`([\w/]+)/`", page):
        assert (code.ROOT / name).is_dir() or Path(name).name in folders, name


def test_words_of_the_architecture_are_words_of_the_code() -> None:
    rows = re.findall(r"^\| ([A-Z][\w, ]*) \|", section("ARCHITECTURE.md", "The words"), re.MULTILINE)
    words = {word for row in rows for word in row.split(", ")}
    assert len(words) > 15
    defined = {name for path in code.modules() for name in top_names(path)}
    parts = {part.lower() for name in defined for part in re.findall(r"[A-Z][a-z]+|[A-Z]+", name)} | defined
    assert {word for word in words if word.lower() not in parts and word not in defined} == set()


def top_names(path: Path) -> Iterator[str]:
    """Classes and values of a module."""
    for node in code.tree(path).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def test_the_floors_are_those_that_are_checked() -> None:
    floors = re.search(r"^layers = \[(.*)\]$", text("pyproject.toml"), re.MULTILINE)
    assert floors
    checked = [sorted(floor.split(" | ")) for floor in re.findall(r'"([^"]+)"', floors[1])]
    _, drawn = blocks(section("ARCHITECTURE.md", "The building"))[0]
    assert [sorted(re.split(r"\s\|\s", re.split(r"\s{2,}", line)[0])) for line in drawn.splitlines()] == checked


def commands(page: str) -> list[str]:
    """Every line of a block that runs `forebay`, without what a shell adds."""
    lines = [line for language, body in blocks(text(page)) if not language for line in body.splitlines()]
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?forebay ", line)]


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_commands_that_are_shown_can_be_typed(page: str) -> None:
    parser = make_parser(PACKAGES)
    shown = commands(page)
    assert shown or page != "README.md"
    for line in shown:
        parser.parse_args(shlex.split(line, comments=True)[1:])
    inline = re.findall(r"`forebay (\w+)", text(page))
    assert [verb for verb in inline if verb not in parser.verbs] == []


def test_targets_of_make_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"(?:^|`)make ([a-z]+)", text(page), re.MULTILINE)
        assert [name for name in named if name not in targets] == [], page


def test_yaml_of_the_readme_can_be_applied() -> None:
    import yaml

    from dataset_controller.resources import read_dataset

    bodies = [yaml.safe_load(body) for language, body in blocks(text("README.md")) if language == "yaml"]
    assert len(bodies) == 2
    head = {name: value for name, value in bodies[0].items() if name != "spec"}
    for body in bodies:
        read_dataset(head | body)


def test_ids_of_cases_are_ids_of_cases() -> None:
    """A typing error in a mark would be a case that nobody answers."""
    for family, numbers in cases.FINISHED.items():
        known = {family + number for number in numbers.split()}
        assert {name for name in cases.marked() if name.startswith(family)} == known
    assert set(cases.LATER) <= cases.marked()


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    version = re.search(r'^version = "(.*)"$', text("pyproject.toml"), re.MULTILINE)
    first = re.search(r"^## \[(.*?)\]", text("CHANGELOG.md"), re.MULTILINE)
    assert version and first and version[1] == first[1]
