"""Room 8: the only package that imports streamlit."""
