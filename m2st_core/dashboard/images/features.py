"""The choice of what describes an image: its pixels, or features of a pretrained network where one is installed."""

from __future__ import annotations

import streamlit as st

from m2st_core.dashboard.widgets.controls import Control
from m2st_core.data.images.efficientnet import missing_weights
from m2st_core.data.images.features import PRETRAINED
from m2st_core.data.images.tasks import PIXELS


def ask_features(prefix: str, default: str, pixels: str = "Pixels") -> str:
    """Ask what describes an image; say what is missing for pretrained features."""
    missing = missing_weights()
    words = {PRETRAINED: "Pretrained features (EfficientNet-Lite0)", PIXELS: pixels}
    chosen = Control(
        "features",
        "Compare the images by",
        PIXELS if missing else default,
        "A network pretrained on photographs describes what an image shows. Pixels say only where it is dark.",
        (PIXELS,) if missing else (PRETRAINED, PIXELS),
        shown=words.__getitem__,
        prefix=prefix,
    ).draw()
    if missing:
        st.caption(missing)
    return str(chosen)
