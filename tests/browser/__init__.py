"""Walks through the dashboard in a real browser."""
