"""What a run leaves: a JSON file, to which a later run adds."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Measured:
    """A case. Times are seconds, one of each round; of the kinds `KINDS` in `drive`."""

    name: str
    family: str
    block_tokens: int
    blocks: int
    scattered: bool
    num_bytes: int
    ranges: int
    times: dict[str, list[float]] = field(default_factory=dict)
    posts: dict[str, list[float]] = field(default_factory=dict)
    descriptors: dict[str, int] = field(default_factory=dict)
    wrong_bytes: dict[str, int] = field(default_factory=dict)
    raw_form: str = ""

    def ratio(self, over: str, under: str) -> tuple[float, float, float]:
        """Median, least and greatest of the rounds' ratios of two kinds' times."""
        ratios = [one / other for one, other in zip(self.times[over], self.times[under])]
        return statistics.median(ratios), min(ratios), max(ratios)

    def time(self, kind: str) -> float:
        """The median of the rounds."""
        return statistics.median(self.times[kind])


@dataclass
class Results:
    """All cases, and what they were measured with."""

    conditions: dict[str, Any] = field(default_factory=dict)
    setups: dict[str, dict[str, float]] = field(default_factory=dict)
    cases: dict[str, Measured] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Results:
        """From a file, if it is there."""
        if not path.exists():
            return cls()
        read = json.loads(path.read_text())
        cases = {each["name"]: Measured(**each) for each in read["cases"]}
        return cls(read["conditions"], read["setups"], cases)

    def save(self, path: Path) -> None:
        """To a file."""
        cases = [_rounded(asdict(each)) for each in self.cases.values()]
        whole = {"conditions": self.conditions, "setups": _rounded(self.setups), "cases": cases}
        path.write_text(json.dumps(whole, indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 7)
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
