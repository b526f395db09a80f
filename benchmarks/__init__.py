"""Studies of speed, level and power; run with ``python -m m2st_core bench NAME``."""
