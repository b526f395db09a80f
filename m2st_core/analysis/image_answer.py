"""The answer to a comparison of images: in words, as contact sheets, and as a report."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from html import escape
from typing import Any

import numpy as np
from PIL import Image

from m2st_core.analysis.answer import p_short
from m2st_core.analysis.report import POLICY, STYLE, versions
from m2st_core.figures.samples import image_grid
from m2st_core.numbers import count_of
from m2st_core.types import TestResult

TYPICAL, SHOWN, COLUMNS = 16, 32, 8
TILE = 64  # pixels of an image's side in a contact sheet
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>{style}</style></head>
<body>
<p class="small">{groups}</p>
<div class="answer"><h1>{title}</h1><p>{basis}</p><p><b>What this does not mean.</b> {not_meant}</p></div>
{sheets}
<section><h2>How the images were prepared</h2><ul>{notes}</ul></section>
<section><h2>Details</h2><table>{facts}</table></section>
</body></html>
"""


@dataclass(frozen=True)
class ImageComparison:
    """The result of a test of images, and what it rests on.

    ``baseline`` is the result of the test without related tasks, if the test that decides learned from ``n_tasks``. It
    is shown beside the answer and decides nothing. ``typical`` are the positions of the images most typical of x and of
    y in the test that decides, the clearest first. ``files`` are the names of all files of x and of y. Samples that
    came as features have no images.
    """

    names: tuple[str, str]
    result: TestResult
    baseline: TestResult | None
    n_tasks: int
    features: str
    samples: tuple[np.ndarray | None, np.ndarray | None] = field(repr=False)
    typical: tuple[np.ndarray, np.ndarray] = field(repr=False)
    notes: tuple[str, ...] = ()
    files: tuple[tuple[str, ...], tuple[str, ...]] = field(default=((), ()), repr=False)

    @property
    def p_value(self) -> float:
        """The p-value of the test that decides."""
        return self.result.p_value

    @property
    def rejected(self) -> bool:
        """Whether this test rejects at its level."""
        return self.result.rejected

    @property
    def verdict(self) -> str:
        """The decision in one sentence."""
        (x, y), (n, m), p = self.names, self.result.n_test, p_short(self.result)
        if self.rejected:
            return f"Evidence that the images of “{y}” differ from those of “{x}” ({p})"
        return f"No evidence of a difference between {n} and {m} images at α={self.result.alpha:g} ({p})"

    @property
    def basis(self) -> str:
        """What the verdict rests on."""
        first, without = self.result, self.baseline
        taught = f", taught by {count_of(self.n_tasks, 'related task')}," if self.n_tasks else ""
        said = f"{first.label}{taught} compared {first.n_test[0]} and {first.n_test[1]} images by {self.features}"
        if any(first.n_train):
            said += f", after learning on {first.n_train[0]} and {first.n_train[1]} others"
        if without is None:
            return f"{said}. It was declared before its result was known."
        found = "evidence" if without.rejected else "no evidence"
        return (
            f"{said}. It was declared before its result was known, and it alone decides. Without the related tasks, "
            f"{without.label} finds {found} ({p_short(without)})."
        )

    @property
    def not_meant(self) -> str:
        """What the verdict does not mean."""
        if self.rejected:
            return (
                "That they differ does not say why. Another camera, compression or light is a difference too, "
                "and images of one scene or person are not independent."
            )
        return "That nothing was found does not show that the images are alike: more images may show a difference."

    def pictures(self, count: int = TYPICAL) -> dict[str, np.ndarray]:
        """Contact sheets (H, W, 4): first images of both samples, then those most typical of each."""
        sheets: dict[str, np.ndarray] = {}
        for name, images, order in zip(self.names, self.samples, self.typical, strict=True):
            if images is not None:
                sheets[f"The first images of “{name}”"] = contact_sheet(images[:SHOWN])
                luck = "" if self.rejected else ", perhaps by chance"
                sheets[f"Most typical of “{name}”{luck}, the clearest first"] = contact_sheet(images[order[:count]])
        return sheets

    def html(self, made: date | None = None) -> str:
        """The report: one self-contained HTML file."""
        when = made or date.today()
        facts: dict[str, object] = {"features": self.features, "related tasks": self.n_tasks}
        for result in filter(None, (self.result, self.baseline)):
            n, m = result.n_test
            facts[result.label] = (
                f"p = {result.p_value:.4g}, {result.error_words}; statistic {result.statistic:.4g}; {n} + {m} images, "
                f"and {sum(result.n_train)} to learn from; {result.n_permutations:,} permutations; seed {result.seed}"
            )
        for name, files, order in zip(self.names, self.files, self.typical, strict=True):
            if files:
                facts[f"most typical of “{name}”"] = ", ".join(files[place] for place in order[:TYPICAL])
        facts |= versions()
        return PAGE.format(
            policy=POLICY,
            style=STYLE,
            title=escape(self.verdict),
            groups=escape(f"“{self.names[0]}” against “{self.names[1]}” · {when.day} {when:%B %Y}"),
            basis=escape(self.basis),
            not_meant=escape(self.not_meant),
            sheets="\n".join(_sheet(title, sheet) for title, sheet in self.pictures().items()),
            notes="".join(f"<li>{escape(note)}</li>" for note in self.notes),
            facts="".join(_row(pair) for pair in facts.items()),
        )


def _row(cells: Iterable[Any]) -> str:
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"


def _sheet(title: str, picture: np.ndarray) -> str:
    """A contact sheet as HTML, with the picture inside."""
    data = base64.b64encode(as_png(picture)).decode()
    image = f'<img alt="{escape(title)}" style="max-width:100%" src="data:image/png;base64,{data}">'
    return f'<section class="figure"><h2>{escape(title)}</h2>{image}</section>'


def contact_sheet(images: np.ndarray) -> np.ndarray:
    """Images (n, H, W, 1 or 3), made smaller where they are large, as one picture (H, W, 4), eight in a line."""
    step = max(1, images.shape[1] // TILE)
    n, height, width, channels = images.shape
    parts = images[:, : height - height % step, : width - width % step]
    tiles = parts.reshape(n, height // step, step, width // step, step, channels).mean(axis=(2, 4))
    return image_grid(tiles.transpose(0, 3, 1, 2) / 255, COLUMNS)


def as_png(picture: np.ndarray) -> bytes:
    """A picture (H, W, 4) of bytes as PNG."""
    target = io.BytesIO()
    Image.fromarray(picture).save(target, "PNG")
    return target.getvalue()
