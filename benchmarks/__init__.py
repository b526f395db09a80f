"""What is fast and what keeps its level, measured; run with ``python -m m2st_core bench NAME``."""
