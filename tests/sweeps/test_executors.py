"""What workers are given."""

import multiprocessing
import os
import queue
import threading

import torch

from m2st_core.sweeps import executors as pool


def test_gpus_are_dealt_out_in_turn(monkeypatch):
    """Five workers on two GPUs; without one, every worker computes on the CPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    turn, dealt = multiprocessing.get_context("spawn").Value("i", 0), []
    threads = torch.get_num_threads()
    try:
        for device in ("cuda",) * 5 + ("cpu",):
            worker = {}
            monkeypatch.setattr(pool, "_worker", worker)
            pool._start_worker(queue.SimpleQueue(), threading.Event(), turn, device, 1, os.getppid())
            dealt.append(worker["device"])
    finally:
        torch.set_num_threads(threads)
    assert dealt == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0", "cpu"]
