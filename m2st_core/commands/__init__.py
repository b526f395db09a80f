"""Room 10: the commands of ``python -m m2st_core``: read, compute, print."""
