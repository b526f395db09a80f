import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from m2st_core import device
from m2st_core.device import (
    device_words,
    map_threads,
    one_core,
    one_thread_per_operation,
    resolve_device,
    short_memory_in_words,
)


def test_auto_is_a_device_that_exists():
    assert torch.zeros(1, device=resolve_device("auto")).sum() == 0


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", 7.5])
def test_bad_devices_are_named(device):
    with pytest.raises(ValueError, match="[Dd]evice"):
        resolve_device(device)


def test_a_gpu_is_named_with_its_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_words() == "the CPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    about = SimpleNamespace(name="NVIDIA A10", total_memory=23_609_475_072)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    assert device_words() == "the GPU NVIDIA A10 (22 GB of memory)"


def test_an_operation_that_does_not_fit_is_a_sentence():
    with pytest.raises(ValueError, match=r"^This does not fit into the memory of the GPU: .*\(device='cpu'\)\.$"):
        with short_memory_in_words():
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def test_the_thread_setting_survives_overlapping_users():
    for _ in range(300):  # jobs that pages of earlier tests left behind end first
        if not device._inside:
            break
        time.sleep(0.1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        inside, leave, seen = threading.Event(), threading.Event(), []

        def other():
            with one_thread_per_operation():
                inside.set()
                leave.wait(5)
                seen.append(torch.get_num_threads())
            seen.append(torch.get_num_threads())

        thread = threading.Thread(target=other)
        with one_thread_per_operation():
            thread.start()
            assert inside.wait(5)
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        leave.set()
        thread.join()
        assert seen == [1, 2]
        with one_thread_per_operation():
            with one_thread_per_operation():
                list(map_threads(lambda item: item, range(4)))
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_map_threads_keeps_the_order():
    assert list(map_threads(lambda item: item**2, range(20))) == [item**2 for item in range(20)]
    with one_thread_per_operation():
        assert list(map_threads(lambda item: item**2, range(20))) == [item**2 for item in range(20)]


def test_short_steps_stay_in_their_thread():
    with one_thread_per_operation(), one_core():
        assert set(map_threads(lambda _: threading.get_ident(), range(8))) == {threading.get_ident()}


def test_a_thread_that_is_given_work_hands_none_on():
    """More items than threads at both levels: waiting for each other would never end."""

    def inner(item):
        return sum(map_threads(lambda other: item * other, range(8)))

    with one_thread_per_operation():
        assert list(map_threads(inner, range(8))) == [28 * item for item in range(8)]


def test_an_error_in_one_item_reaches_the_caller_and_the_threads_go_on():
    with one_thread_per_operation():
        with pytest.raises(ZeroDivisionError):
            list(map_threads(lambda item: 1 / item, [1, 0, 2, 4]))
        assert list(map_threads(lambda item: 1 / item, [1, 2, 4])) == [1.0, 0.5, 0.25]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_threads_of_its_own():
    script = """
import os, signal
from m2st_core.device import map_threads, one_thread_per_operation
with one_thread_per_operation():
    list(map_threads(abs, range(8)))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if list(map_threads(abs, range(8))) == list(range(8)) else 1)
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
