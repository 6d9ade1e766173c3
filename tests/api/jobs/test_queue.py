"""The queue's contract, on SQLite and on PostgreSQL: a job is leased by one, ends once, and is never lost."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from api.jobs import queue
from api.problems import Refused

WORK = {"task": "none", "arguments": {"format": "onnx-qdq", "model": "large"}, "files": [], "origin": "o"}
LONG = 1000.0
OVER = -1.0
"""Of a lease that ran out before it began."""


def submit(engine, **more):
    return queue.submit(engine, "plan", WORK, **more)


def lease(engine, owner="one", limit=100, seconds=LONG):
    return queue.lease(engine, owner, limit, seconds=seconds)


def kinds(engine, job):
    return [event.kind for event in queue.events_after(engine, job.id)]


def test_a_job_from_beginning_to_end(engine):
    job = submit(engine, principal="who")
    assert (job.state, job.attempt, job.principal) == ("queued", 0, "who")
    (held,) = lease(engine)
    assert (held.id, held.state, held.attempt, held.owner) == (job.id, "running", 1, "one")
    assert queue.note_progress(engine, held, {"done": 1, "total": 2})
    assert queue.finish(engine, held, {"key": "x"})
    done = queue.get(engine, job.id)
    assert (done.state, done.result, done.problem) == ("done", {"key": "x"}, None)
    assert done.has_ended
    assert done.created <= done.started <= done.finished
    assert kinds(engine, job) == ["queued", "running", "progress", "done"]
    assert [event.number for event in queue.events_after(engine, job.id, 2)] == [3, 4]
    assert queue.events_after(engine, job.id)[2].data == {"done": 1, "total": 2}


@pytest.mark.parametrize(("task", "model"), [("plan", None), ("quantize", "sha256:1")])
def test_answers_are_told_a_little_and_whoever_runs_a_job_gets_its_work(engine, task, model):
    """A work may hold a model of megabytes, which each look at a job read and parsed."""
    origin = json.dumps({"request": [{"model": "sha256:1"}]})
    work = {**WORK, "task": task, "origin": origin, "asked": {"request_id": "r", "traceparent": "t"}}
    told = {"request_id": "r", "format": "onnx-qdq", "model": model}
    submitted = queue.submit(engine, "plan", work)
    queue._KNOWN.clear()  # as in another server
    assert [job.told for job in (submitted, queue.get(engine, submitted.id))] == [told, told]
    assert [(job.told, job.work) for job in queue.list_page(engine)] == [(told, {})]
    assert [(job.told, job.work) for job in lease(engine)] == [(told, work)]


def test_what_is_known_of_jobs_is_bounded(engine, monkeypatch):
    monkeypatch.setattr(queue, "MOST_KNOWN", 3)
    made = [submit(engine) for _ in range(10)]
    assert [queue.get(engine, job.id).told["format"] for job in made] == ["onnx-qdq"] * 10
    assert len(queue._KNOWN) <= 3


def test_a_job_ends_once(engine):
    submit(engine)
    (held,) = lease(engine)
    assert queue.finish(engine, held, {"first": True})
    assert not queue.finish(engine, held, {"first": False})
    assert not queue.fail(engine, held, {"name": "timeout", "detail": ""})
    assert not queue.retry(engine, held, "")
    assert not queue.note_progress(engine, held, {"done": 1})
    assert queue.get(engine, held.id).result == {"first": True}


def test_what_is_leased_is_nobody_elses(engine):
    for _ in range(3):
        submit(engine)
    first, second = lease(engine, "one", 2), lease(engine, "two")
    assert [len(first), len(second)] == [2, 1]
    assert {job.id for job in first}.isdisjoint(job.id for job in second)
    assert lease(engine, "three") == []


def test_the_oldest_is_taken_first(engine):
    jobs = [submit(engine).id for _ in range(5)]
    assert [job.id for job in lease(engine, limit=2)] == jobs[:2]
    assert [job.id for job in lease(engine)] == jobs[2:]


def test_a_lease_that_ran_out_is_taken_over(engine):
    submit(engine)
    (old,) = lease(engine, "one")
    assert lease(engine, "two") == []
    (new,) = lease(engine, "two", seconds=OVER)
    assert (new.id, new.attempt, new.owner) == (old.id, 2, "two")
    assert queue.heartbeat(engine, [old]).lost == {old.id}
    assert not queue.finish(engine, old, {"by": "one"})
    assert queue.finish(engine, new, {"by": "two"})
    assert queue.get(engine, old.id).result == {"by": "two"}


def test_the_same_owner_does_not_write_for_an_earlier_lease(engine):
    submit(engine)
    (old,) = lease(engine)
    (new,) = lease(engine, seconds=OVER)
    assert not queue.finish(engine, old, {})
    assert queue.standing(engine, [old]).lost == {old.id}
    assert queue.standing(engine, [new]).lost == frozenset()


def test_a_heartbeat_prolongs_the_lease(engine):
    submit(engine)
    (held,) = lease(engine)
    before = queue.get(engine, held.id).heartbeat
    assert queue.heartbeat(engine, [held]) == queue.Standing(frozenset(), frozenset())
    assert queue.get(engine, held.id).heartbeat > before


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_strands_no_job(engine, monkeypatch, hours):
    """One is taken over even from an owner that lives, as after any silence; it ends once all the same."""
    submit(engine)
    (old,) = lease(engine, "one")
    waiting = submit(engine)
    now = queue.now
    monkeypatch.setattr(queue, "now", lambda connection: now(connection) + 3600 * hours)
    assert {job.id for job in lease(engine, "two")} == {old.id, waiting.id}
    assert not queue.finish(engine, old, {"by": "one"})
    assert lease(engine, "three") == []


def test_jobs_of_before_the_clock_was_set_back_are_the_oldest(engine, monkeypatch):
    """Else they would wait until it is that late again while others keep sending."""
    now, behind = queue.now, [0.0]
    monkeypatch.setattr(queue, "now", lambda connection: now(connection) - behind[0])
    before = [submit(engine).id, submit(engine).id]
    behind[0] = 3600.0
    after = [submit(engine).id, submit(engine).id]
    assert [job.id for _ in range(4) for job in lease(engine, limit=1)] == before + after


def test_events_are_dated_by_the_clock_of_rows(engine, monkeypatch):
    """On PostgreSQL that is the database's, whatever the clocks of servers say."""
    if engine.dialect.name != "sqlite":
        monkeypatch.setattr("api.storage.database.time.time", lambda: 0.0)
    job = submit(engine)
    (event,) = queue.events_after(engine, job.id)
    assert 0 <= event.at - job.created < 60


def test_a_job_that_is_put_back_waits_its_pause(engine):
    submit(engine)
    (held,) = lease(engine)
    assert queue.release(engine, held, seconds=LONG)
    assert lease(engine) == []


def test_lost_workers_are_replaced_three_times(engine):
    submit(engine)
    for attempt in range(queue.LOSSES - 1):
        (held,) = lease(engine)
        assert (held.lost, held.attempt) == (attempt, attempt + 1)
        assert queue.retry(engine, held, "killed")
    (held,) = lease(engine)
    assert queue.retry(engine, held, "killed")
    failed = queue.get(engine, held.id)
    assert (failed.state, failed.problem["name"]) == ("failed", "worker-lost")
    assert kinds(engine, failed).count("retried") == queue.LOSSES - 1


def test_a_job_that_brings_every_server_down_fails(engine):
    job = submit(engine)
    for _ in range(queue.TAKEOVERS):
        assert len(lease(engine, seconds=OVER)) == 1
    assert lease(engine, seconds=OVER) == []
    assert queue.get(engine, job.id).problem["name"] == "worker-lost"


def test_giving_back_does_not_count(engine):
    submit(engine)
    (held,) = lease(engine)
    assert queue.release(engine, held)
    (again,) = lease(engine, "two")
    assert (again.attempt, again.lost) == (1, 0)
    assert queue.release(engine, again, seconds=LONG)
    assert lease(engine) == []


def test_a_waiting_job_is_cancelled_at_once(engine):
    job = submit(engine)
    assert queue.cancel(engine, job.id).state == "cancelled"
    assert lease(engine) == []
    assert queue.cancel(engine, job.id).state == "cancelled"
    assert kinds(engine, job) == ["queued", "cancelled"]


def test_a_running_job_is_cancelled_by_its_owner(engine):
    submit(engine)
    (held,) = lease(engine)
    assert queue.cancel(engine, held.id).state == "running"
    assert queue.standing(engine, [held]).cancelling == {held.id}
    assert queue.give_up(engine, held)
    assert queue.get(engine, held.id).state == "cancelled"
    assert kinds(engine, held) == ["queued", "running", "cancelling", "cancelled"]


def test_a_cancelled_job_whose_owner_died_is_not_run_again(engine):
    submit(engine)
    (held,) = lease(engine)
    queue.cancel(engine, held.id)
    assert lease(engine, "two", seconds=OVER) == []
    assert queue.get(engine, held.id).state == "cancelled"


def test_a_job_given_up_that_nobody_cancelled_waits_again(engine):
    submit(engine)
    (held,) = lease(engine)
    assert queue.give_up(engine, held)
    assert queue.get(engine, held.id).state == "queued"


def test_the_same_key_is_the_same_job(engine):
    assert submit(engine, key="k").id == submit(engine, key="k").id
    assert submit(engine, key="k").id != submit(engine, key="l").id
    assert len({submit(engine).id for _ in range(3)}) == 3


@pytest.mark.parametrize(
    ("name", "is_new"),
    [("storage-full", True), ("worker-lost", True), ("corrupted", True), ("timeout", False)],
)
def test_a_key_is_free_again_after_a_failure_of_the_service(engine, name, is_new):
    first = submit(engine, key="mine")
    (held,) = lease(engine)
    assert submit(engine, key="mine").id == first.id
    queue.fail(engine, held, {"name": name, "detail": ""})
    second = submit(engine, key="mine")
    assert (second.id != first.id) is is_new
    assert submit(engine, key="mine").id == second.id
    assert queue.get(engine, first.id).state == "failed"


def test_too_many_jobs_are_refused(engine):
    for _ in range(2):
        submit(engine, most=2)
    with pytest.raises(Refused, match="queue-full"):
        submit(engine, most=2)
    lease(engine, limit=1)
    submit(engine, most=2)


def test_jobs_are_listed_in_pages_latest_first(engine):
    jobs = [submit(engine, principal=f"p{k % 2}").id for k in range(5)][::-1]
    first = queue.list_page(engine, limit=2)
    second = queue.list_page(engine, limit=10, after=(first[-1].created, first[-1].id))
    assert [job.id for job in (*first, *second)] == jobs
    lease(engine, limit=1)
    assert [job.id for job in queue.list_page(engine, state="running")] == jobs[-1:]
    assert [job.id for job in queue.list_page(engine, principal="p1")] == [jobs[1], jobs[3]]
    assert queue.list_page(engine, kind="export") == []
    assert queue.count(engine) == {"queued": 4, "running": 1}


def test_what_is_not_there_is_unknown(engine):
    for call in (queue.get, queue.cancel):
        with pytest.raises(Refused, match="unknown-name"):
            call(engine, "0" * 32)
    assert queue.events_after(engine, "0" * 32) == []


def test_ended_jobs_are_forgotten_with_their_events(engine):
    submit(engine)
    waiting = submit(engine)
    (held,) = lease(engine, limit=1)
    queue.finish(engine, held, {})
    assert queue.forget(engine, queue.get(engine, held.id).finished) == 0
    assert queue.forget(engine, queue.get(engine, held.id).finished + 1) == 1
    assert queue.events_after(engine, held.id) == []
    assert [job.id for job in queue.list_page(engine)] == [waiting.id]


def test_many_owners_at_once_share_without_doubles(engine):
    jobs = {submit(engine).id for _ in range(60)}

    def work(owner):
        ended = []
        while held := lease(engine, f"owner{owner}", 3):
            ended += [job.id for job in held if queue.finish(engine, job, {"by": owner})]
        return ended

    with ThreadPoolExecutor(6) as pool:
        ended = [job for found in pool.map(work, range(6)) for job in found]
    assert len(ended) == len(set(ended)) == 60
    assert set(ended) == jobs


def test_jobs_of_another_tenant_are_not_there(engine):
    own, other = submit(engine, tenant="one"), submit(engine)
    assert queue.get(engine, own.id, "one").tenant == "one"
    for call in (queue.get, queue.cancel):
        for tenant in ("default", "two"):
            with pytest.raises(Refused, match=own.id):
                call(engine, own.id, tenant)
    assert [job.id for job in queue.list_page(engine, tenant="one")] == [own.id]
    assert [job.id for job in queue.list_page(engine)] == [other.id]
    assert [job.tenant for job in lease(engine)] == ["one", "default"]


def test_principals_are_served_in_turn(engine):
    for principal, count in (("a", 5), ("b", 2), ("c", 1)):
        for _ in range(count):
            submit(engine, principal=principal)
    order = [lease(engine, limit=1)[0].principal for _ in range(8)]
    assert order == ["a", "b", "c", "a", "b", "a", "a", "a"]


def test_who_has_most_at_work_is_last(engine):
    for _ in range(3):
        submit(engine, principal="a")
    taken = lease(engine, "one", 2)
    submit(engine, principal="b")
    assert [job.principal for job in lease(engine, "two", 1)] == ["b"]
    for job in taken:
        queue.finish(engine, job, {})
    assert [job.principal for job in lease(engine, "two", 1)] == ["a"]


@pytest.mark.parametrize(("slots", "share", "taken"), [(2, 50, 1), (4, 50, 2), (4, 100, 4), (1, 50, 1)])
def test_a_principal_has_its_share_of_the_slots(engine, slots, share, taken):
    for _ in range(6):
        submit(engine, principal="a")
    own = queue.lease(engine, "one", slots, seconds=LONG, share=share)
    assert len(own) == taken
    assert queue.lease(engine, "one", slots - taken, seconds=LONG, share=share) == []
    submit(engine, principal="b")
    other = queue.lease(engine, "one", slots - taken, seconds=LONG, share=share)
    assert [job.principal for job in other] == (["b"] if taken < slots else [])


def test_a_principal_has_its_share_of_the_places_to_wait(engine):
    for _ in range(2):
        submit(engine, principal="a", most=4, share=50)
    with pytest.raises(Refused, match="2 jobs of yours wait") as caught:
        submit(engine, principal="a", most=4, share=50)
    assert caught.value.problem.name == "share-taken"
    for _ in range(2):
        submit(engine, principal="b", most=4, share=50)
    with pytest.raises(Refused, match="4 jobs wait already"):
        submit(engine, principal="b", most=4, share=50)


def test_of_whom_no_job_waits_one_may_though_the_queue_is_full(engine):
    for principal in ("a/one", "a/one", "a/two", "a/two"):
        submit(engine, principal=principal, tenant="a", most=4, share=50)
    assert submit(engine, principal="b/one", tenant="b", most=4, share=50).state == "queued"
    with pytest.raises(Refused, match="5 jobs wait already") as caught:
        submit(engine, principal="b/one", tenant="b", most=4, share=50)
    assert caught.value.problem.name == "queue-full"


def test_the_tokens_of_a_tenant_have_a_share_of_the_queue_together(engine):
    for principal in ("a/one", "a/two"):
        submit(engine, principal=principal, tenant="a", most=4, share=50, tenant_share=50)
    with pytest.raises(Refused, match="2 jobs of your tenant wait") as caught:
        submit(engine, principal="a/one", tenant="a", most=4, share=50, tenant_share=50)
    assert caught.value.problem.name == "share-taken"


def test_the_tokens_of_a_tenant_have_a_share_of_the_slots_together(engine):
    for principal in ("a/one", "a/two", "b/one"):
        submit(engine, principal=principal, tenant=principal[0])
    taken = queue.lease(engine, "one", 2, seconds=LONG, share=50, tenant_share=50)
    assert [job.principal for job in taken] == ["a/one", "b/one"]
    assert queue.lease(engine, "one", 0, seconds=LONG, share=50, tenant_share=50) == []


def test_who_waits(engine):
    assert queue.who_waits(engine) == {}
    for name in ("one", "one", "two", "gone"):
        submit(engine, principal=name)
    held = {job.principal: job for job in lease(engine, limit=3)}
    queue.finish(engine, held["gone"], {})
    assert queue.who_waits(engine) == {"one": True, "two": False}
