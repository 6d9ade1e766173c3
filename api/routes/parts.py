"""What routes share: the running service as a parameter, and digests in paths."""

from typing import Annotated, TypeAlias

from fastapi import Depends, Path, Request

from api.examples import BLOB, NO_DIGEST
from api.service import Service


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf: TypeAlias = Annotated[Service, Depends(_service)]
BlobDigest: TypeAlias = Annotated[str, Path(description="sha256: of the bytes", examples=[BLOB])]
PlanKey: TypeAlias = Annotated[str, Path(description="key of a plan", examples=[NO_DIGEST])]
