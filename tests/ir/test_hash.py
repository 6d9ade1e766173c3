"""Types as keys: equal types hash alike, in this process and after a journey through another."""

import pickle

from planner.ir.types.qtypes import storage, uniform


def test_a_type_travels_between_processes():
    kind, other = (uniform(storage("i8"), [0.5, 0.25], axis=1) for _ in range(2))
    hash(kind)
    again = pickle.loads(pickle.dumps(kind))  # noqa: S301 - our own bytes
    assert (again, hash(again)) == (other, hash(other))
    assert pickle.dumps(other) == pickle.dumps(kind)
