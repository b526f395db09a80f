"""Widgets of a served instance: who you are, your run's name and link, an undo, and what an admin sees."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.dashboard.jobs.sweeps import server_queue, sweep_queue
from m2st_core.dashboard.serving.sessions import all_sessions, held_bytes, this_session
from m2st_core.dashboard.serving.settings import ServerLimits
from m2st_core.dashboard.serving.visitor import SHARE, can_log_in, visitor
from m2st_core.environment import is_served, must_log_in
from m2st_core.sweeps.store import LONGEST_NAME, Run

DELETED = "run_deleted"  # in the state of a session: the id and the name of the run that was deleted last


def admit() -> bool:
    """Whether this visitor may use the page; if not, say why and what to do."""
    if not is_served():
        return True
    if must_log_in() and not visitor().name:
        st.title("Please sign in", anchor=False)
        st.write("This server is for people with an account. Your runs and files will be yours alone.")
        _show_login("Sign in")
        return False
    session, most = this_session(), ServerLimits.from_environment().sessions
    if not session.admitted and sum(other.admitted and other.connected for other in all_sessions()) >= most:
        st.warning(f"All {most} places on this server are taken. Please reload this page in a few minutes.")
        return False
    session.admitted = True
    return True


def show_who() -> None:
    """Say whose runs these are and how long that is remembered, and offer to sign in or out."""
    if not is_served():
        return
    who = visitor()
    if who.name:
        st.caption(f"Signed in as {who.name}. Your runs are yours alone, unless you share them.")
        if can_log_in() and st.button("Sign out", key="sign_out", help="Leave; your runs stay."):
            st.logout()
    elif who.lasting:
        st.caption("Your runs are yours alone, unless you share them. This browser remembers that by a cookie.")
    else:
        st.caption("Your runs are yours alone until you close this tab, as your browser accepts no cookie.")
    if not who.name:
        _show_login("Sign in to find your runs from any browser")
    if who.admin:
        with st.expander("Usage of this server"):
            _show_usage()


def _show_login(label: str) -> None:
    """Offer the configured identity providers."""
    if not can_log_in():
        return
    auth = st.secrets["auth"]
    providers = [name for name, entry in auth.items() if hasattr(entry, "keys") and "client_id" in entry]
    for provider in providers or [None]:
        words = f"{label} with {provider}" if provider else label
        if st.button(words, key=f"sign_in_{provider}", help="You are sent to its page and back."):
            st.login(provider)


def _show_usage() -> None:
    """Show an admin how much is used and by how many, never what."""
    most, queue = ServerLimits.from_environment(), server_queue()
    (running, waiting), jobs = queue.counts(), job_manager().counts()
    sessions = all_sessions()
    lines = {
        "open tabs": f"{sum(session.connected for session in sessions)} of {most.sessions}",
        "sweeps": f"{running} running, {waiting} waiting",
        "computations of pages": f"{jobs[0]} running, {jobs[1]} waiting",
        "files in memory": f"{held_bytes() / 2**20:,.0f} of {most.upload_bytes / 2**20:,.0f} MB",
    }
    st.dataframe(pd.DataFrame(lines.items(), columns=["what", "now"]), hide_index=True, key="usage_now")
    people = [(person[:8], seconds / 60) for person, seconds in queue.store.usage()]
    st.dataframe(pd.DataFrame(people, columns=["person", "minutes today"]), hide_index=True, key="usage_people")


def show_run_tools(run: Run) -> None:
    """Rename a run; on a served instance also share it, or say that it is another's."""
    desk = sweep_queue()
    if not desk.owns(run.id):
        st.caption("Somebody shares this run with you. You can read it.")
        return
    with st.popover("Rename…", help="Give this run another name."):
        name = st.text_input("Name", run.name, max_chars=LONGEST_NAME, key=f"run_name_{run.id}")
        if st.button("Rename it", key=f"run_rename_{run.id}", help="Keep this name."):
            desk.store.rename_run(run.id, name)
            st.rerun()
    if not is_served():
        return
    with st.popover("Share…", help="Let others read this run by a link."):
        st.write("Whoever has the link can read this run and its progress. Only you can change it.")
        if st.button("Make a link", key=f"run_share_{run.id}", help="The link is long and random. You can end it."):
            st.code(f"history?run={run.id}&{SHARE}={desk.store.share_run(run.id)}", language=None)
        if st.button("End sharing", key=f"run_unshare_{run.id}", help="The link stops working."):
            desk.store.share_run(run.id, shared=False)
            st.write("The link no longer works.")


def offer_undo() -> None:
    """After a deletion, offer to undo it."""
    if DELETED not in st.session_state:
        return
    run, name = st.session_state[DELETED]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.write(f"Deleted: **{name}**. It can be restored for a week.")
        if st.button("Undo", key="run_undo", help="Restore the run with all its results."):
            del st.session_state[DELETED]
            sweep_queue().store.restore_run(run)
            st.rerun()
