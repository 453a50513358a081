from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import specstudy
from specstudy.analysis.declarations import declarations
from specstudy.report.chapters.references import references

ROOT = Path(__file__).resolve().parents[1]
CITED = re.compile(r"\b(?:[A-Z][a-z]+(?: et al\.| and [A-Z][a-z]+)?|mayankpallai) (?:19|20)\d\d\b|OpenReview \w+")


def test_every_claim_cites_references_that_are_listed() -> None:
    for declared in declarations():
        cited = CITED.findall(declared.source)
        assert cited or declared.source.startswith("this study"), declared.id
        assert set(cited) <= references().keys(), declared.id


def test_what_the_method_cites_is_listed_there_and_on_the_page() -> None:
    text, listed = (ROOT / "docs/method.md").read_text().split("\n## References\n")
    assert [line.removeprefix("- ") for line in listed.split("\n") if line] == list(references().values())
    assert set(CITED.findall(text)) <= references().keys()


def test_the_citation_file_has_the_version_and_license_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == specstudy.__version__
    assert citation["license"] == project["license"]
