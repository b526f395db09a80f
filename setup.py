"""The package m2st_core, and beside it the dashboard's scripts as m2st_app, where ``m2st app`` finds them."""

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py


class WithoutSetup(build_py):
    """Copies the modules of a package, but not this file, which lies beside the dashboard's scripts."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """The modules of a package."""
        return [found for found in super().find_package_modules(package, package_dir) if found[1] != "setup"]


setup(
    packages=[*find_namespace_packages(include=["m2st_core*"]), "m2st_app", "m2st_app.pages"],
    package_dir={"m2st_app": ".", "m2st_app.pages": "pages"},
    py_modules=[],
    cmdclass={"build_py": WithoutSetup},
)
