"""README.md names everything that there is, and links of all pages lead somewhere."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]
#: Where pages link what the installed collection does not have.
REPOSITORY = "https://github.com/hpcai/gpu_cluster/"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    page.relative_to(ROOT)
    for page in sorted(
        [
            *ROOT.glob("*.md"),
            *ROOT.glob("docs/*.md"),
            *ROOT.glob("roles/*/README.md"),
            *ROOT.glob("inventories/*/README.md"),
        ]
    )
]


def names(pattern: str) -> list[str]:
    return sorted(path.stem for path in ROOT.glob(pattern))


@pytest.mark.parametrize("module", names("plugins/modules/*.py"))
def test_the_readme_names_every_module(module: str) -> None:
    assert f"`{module}`" in README


@pytest.mark.parametrize("playbook", names("playbooks/*.yml"))
def test_the_readme_names_every_playbook(playbook: str) -> None:
    assert f"`hpcai.gpu_cluster.{playbook}`" in README


@pytest.mark.parametrize("role", names("roles/*"))
def test_the_readme_links_every_role(role: str) -> None:
    assert f"(roles/{role}/README.md)" in README


@pytest.mark.parametrize(
    "benchmark", sorted(path.relative_to(ROOT) for path in ROOT.glob("benchmarks/*/[!_]*.py")), ids=str
)
def test_the_readme_lists_every_benchmark(benchmark: pathlib.Path) -> None:
    assert f"`python {benchmark}`" in README


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif target.startswith(REPOSITORY):
            assert (ROOT / target[len(REPOSITORY) :].partition("/main/")[2]).exists(), target
        elif not target.startswith("https://"):
            assert (ROOT / page.parent / target).exists(), target
