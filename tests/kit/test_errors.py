from gpuaas.kit.errors import HostError, Problem, conflict, invalid, not_found


def test_what_the_user_reads_never_contains_the_detail() -> None:
    problem = Problem("broken", 500, "It broke.", "Try again.", detail="password=hunter2")
    assert str(problem) == problem.message == "It broke."
    assert "hunter2" not in str(problem) + problem.hint + repr(problem)


def test_the_short_forms_carry_status_code_and_extra() -> None:
    assert (not_found("node", "n1").status, not_found("node", "n1").code) == (404, "not_found")
    assert "'n1'" in not_found("node", "n1").message
    taken = conflict("name_taken", "Taken.", "Choose another.", name="a")
    assert (taken.status, taken.code, taken.hint, taken.extra) == (409, "name_taken", "Choose another.", {"name": "a"})
    bad = invalid("Too big.", field="count")
    assert (bad.status, bad.code, bad.extra) == (422, "invalid_request", {"field": "count"})


def test_a_host_error_names_action_target_and_cause() -> None:
    error = HostError("mount", "/dev/x", "no such device", transient=False)
    assert str(error) == "mount /dev/x: no such device"
    assert not error.transient
    assert HostError("mount", "/dev/x", "busy").transient
