"""Plan cache: the last few that were edited, in memory with all they were made from."""

from collections import OrderedDict
from threading import Lock
from typing import Final

from planner.plans.plan import Plan

MOST: Final = 16


class Live:
    """Plans by key; those asked for last stay."""

    def __init__(self) -> None:
        self.plans: OrderedDict[str, Plan] = OrderedDict()
        self.lock = Lock()

    def get(self, key: str) -> Plan | None:
        """A plan, if it is there still."""
        with self.lock:
            if key in self.plans:
                self.plans.move_to_end(key)
            return self.plans.get(key)

    def put(self, plan: Plan) -> None:
        """Keep a plan for a while."""
        with self.lock:
            self.plans[plan.key] = plan
            self.plans.move_to_end(plan.key)
            while len(self.plans) > MOST:
                self.plans.popitem(last=False)
