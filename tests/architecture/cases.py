"""Which of the reported faults of neighbouring tools have a test here. `python -m tests.architecture.cases` lists gaps.

A test answers a case by its mark, `@pytest.mark.case("A01")`. A family is finished when each of its ids has one.
"""

from __future__ import annotations

import re
import sys

from tests.architecture import code

FINISHED = {
    "A": "01 02 03 05 07 10 12 14 15 16 19 20 21 24 28 30 31 33 34 36 37",
}
"""Family -> the numbers of its cases; a family enters here when its part of the product is done."""
LATER = {"A33": "its mount half comes with the mount", "A37": "its mount half comes with the mount"}
"""Cases that are answered in part so far."""


def marked() -> set[str]:
    """Ids that some test is marked with."""
    pattern = re.compile(r"mark\.case\(([^)]*)\)")
    text = "\n".join(path.read_text() for path in (code.ROOT / "tests").rglob("test_*.py"))
    return {name for args in pattern.findall(text) for name in re.findall(r"[A-F]\d\d", args)}


def gaps() -> list[str]:
    """Ids of finished families that no test is marked with."""
    wanted = {family + number for family, numbers in FINISHED.items() for number in numbers.split()}
    return sorted(wanted - marked())


if __name__ == "__main__":
    if missing := gaps():
        sys.exit(f"cases without a test: {' '.join(missing)}")
    print(f"every case of the finished families ({', '.join(FINISHED)}) has a test; {len(marked())} ids in all")
