"""The importers and exporters by name."""

from collections.abc import Callable, Mapping
from typing import Final

from planner.target.records import Target
from planner.target_exchange.aimet import import_aimet
from planner.target_exchange.aimet_export import Exported, export_aimet
from planner.target_exchange.draft import Imported
from planner.target_exchange.nncf import import_nncf
from planner.target_exchange.pt2e import import_pt2e
from planner.target_exchange.qnn import import_qnn

IMPORTERS: Final[Mapping[str, Callable[[str, str, str], Imported]]] = {
    "aimet": import_aimet,
    "nncf": import_nncf,
    "pt2e": import_pt2e,
    "qnn": import_qnn,
}
"""A file's text, its name for messages, and an id ("" for one made of the file) to a target."""

EXPORTERS: Final[Mapping[str, Callable[[Target], Exported]]] = {"aimet": export_aimet}
