"""Room 6: many tests, as a grid of cells that stream, resume and scale out."""
