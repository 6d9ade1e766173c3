"""Which packages a wheel has, and where they lie here; all else is in pyproject.toml.

`api` and `targets` are names that users have for packages of their own. So a wheel holds the service as
`quant_planner_service`, and the target files and the page's example as data of `planner`. An editable install
is the checkout itself, where folders keep their names; `planner.installation` tells the two apart.
"""

import sys

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PACKAGES = find_packages(include=["planner", "planner.*"])
SERVICE = find_packages(include=["api", "api.*"])

EXAMPLE = "planner.shipped_example"


class Build(build_py):
    """The example is data alone: the script that trained it stays in the checkout."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """List the modules of a package."""
        return [] if package == EXAMPLE else super().find_package_modules(package, package_dir)


if {"editable_wheel", "develop"} & set(sys.argv):
    setup(packages=PACKAGES + SERVICE)
else:
    setup(
        packages=[
            *PACKAGES,
            *(name.replace("api", "quant_planner_service", 1) for name in SERVICE),
            "planner.shipped_targets",
            EXAMPLE,
        ],
        package_dir={
            "quant_planner_service": "api",
            "planner.shipped_targets": "targets",
            EXAMPLE: "examples/digits",
        },
        cmdclass={"build_py": Build},
    )
