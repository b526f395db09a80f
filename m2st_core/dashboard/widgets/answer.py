"""The card of an answer: the verdict first, what it rests on, and what it does not mean."""

from __future__ import annotations

import streamlit as st

from m2st_core.analysis.words import Answer, unbroken
from m2st_core.data.tables.limits import plain
from m2st_core.figures.theme import WITH_RELATED, WITHOUT_RELATED

LONGEST_SENTENCE = 1200


def as_text(sentence: str) -> str:
    """A sentence that may quote a file, escaped so that it is shown literally."""
    return plain(sentence, LONGEST_SENTENCE)


def show_answer(answer: Answer) -> None:
    """Show the sentences of an answer."""
    st.header(unbroken(as_text(answer.verdict)), anchor=False)
    for sentence in (answer.basis, *answer.caveats):
        st.markdown(as_text(sentence))
    if answer.both is not None:
        colours = zip(st.columns(2), (WITH_RELATED, WITHOUT_RELATED), answer.both, strict=True)
        for column, colour, sentence in colours:
            mark = f'<span style="color: {colour}">■</span>'
            column.markdown(f"{mark} {as_text(sentence)}.", unsafe_allow_html=True)
    if answer.differs:
        st.markdown(as_text(answer.differs))
    st.markdown(f"**What this does not mean.** {as_text(answer.not_meant)}")
