"""Layer 5: the service from Python, over httpx alone; needs the extra `[service]`."""

from planner.client.client import AsyncClient, Client
from planner.client.failures import ServiceError

__all__ = ["AsyncClient", "Client", "ServiceError"]
