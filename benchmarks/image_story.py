"""Compute the example that the page Images opens with, and write it into the package."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch

from m2st_core.studies.image_story import FILE, make_story, story_finding


def main(arguments: Sequence[str] = ()) -> None:
    """Write the story and print its powers."""
    argparse.ArgumentParser(prog="m2st_core bench image_story", description=__doc__).parse_args(arguments)
    torch.set_num_threads(1)
    began = time.process_time()
    story = make_story()
    story.save()
    print(f"{FILE.name}: {FILE.stat().st_size / 1e3:.0f} kB in {time.process_time() - began:.0f} s of processor time\n")
    print(story.result.power.pivot(index="method", columns="m_te", values="rate").round(3).to_string())
    print("\n" + story_finding(story.result.power))


if __name__ == "__main__":
    main()
