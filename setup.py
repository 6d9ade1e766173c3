"""Which packages a wheel has, and where they lie here; all else is in pyproject.toml.

`api` and `targets` are names that users have for packages of their own. So a wheel holds the service as
`quant_planner_service`, and the target files as data of `planner`. An editable install is the checkout
itself, where folders keep their names; `planner.installation` tells the two apart.
"""

import sys

from setuptools import find_packages, setup

PACKAGES = find_packages(include=["planner", "planner.*"])
SERVICE = find_packages(include=["api", "api.*"])

if {"editable_wheel", "develop"} & set(sys.argv):
    setup(packages=PACKAGES + SERVICE)
else:
    setup(
        packages=[
            *PACKAGES,
            *(name.replace("api", "quant_planner_service", 1) for name in SERVICE),
            "planner.shipped_targets",
        ],
        package_dir={"quant_planner_service": "api", "planner.shipped_targets": "targets"},
    )
