"""Floor 5: the service from Python, over httpx alone; needs the extra `[service]`."""

from planner.client.client import Client, ServiceError

__all__ = ["Client", "ServiceError"]
