"""The package m2st_core, and beside it the dashboard's scripts as m2st_app, where ``m2st app`` finds them."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["m2st_core*"]), "m2st_app", "m2st_app.pages"],
    package_dir={"m2st_app": ".", "m2st_app.pages": "pages"},
    py_modules=[],
)
