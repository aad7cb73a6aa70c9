"""What a server would answer."""

from typing import Any

AT = "2030-01-01T00:00:00Z"
LATER = "2030-01-01T00:00:01.500000Z"


def allocation(name: str = "train-1", state: str = "active", **more: Any) -> dict[str, Any]:
    return {
        "id": "al-aaaaaaaaaaaaaaaa",
        "org_id": "og-aaaaaaaaaaaaaaaa",
        "project_id": "pj-aaaaaaaaaaaaaaaa",
        "name": name,
        "state": state,
        "offer": "h100-1",
        "owner_id": "us-aaaaaaaaaaaaaaaa",
        "realisation": "gpu_slice",
        "endpoint": {"host": "127.0.0.1", "port": 20000, "user": "gpu"},
        "host_key": "ssh-ed25519 AAAA",
        "failure": None,
        "allowed_actions": ["restart", "release"],
        "created_at": AT,
        "active_at": AT,
        "released_at": None,
        "lease": None,
        "preemptible": False,
        "preempted_at": None,
        "drained_at": None,
        **more,
    }


def phase(name: str, state: str) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "started_at": AT if state != "pending" else None,
        "finished_at": LATER if state in ("done", "failed") else None,
        "progress_at": None,
        "message": "",
        "percent": None,
        "log": "",
    }


def operation(state: str = "running", kind: str = "launch", **more: Any) -> dict[str, Any]:
    over = state != "running"
    return {
        "id": "op-aaaaaaaaaaaaaaaa",
        "kind": kind,
        "state": state,
        "org_id": "og-aaaaaaaaaaaaaaaa",
        "project_id": "pj-aaaaaaaaaaaaaaaa",
        "allocation_id": "al-aaaaaaaaaaaaaaaa",
        "phases": [phase("place", "done"), phase("ready", "done" if over else "running")],
        "failure": {"code": "no_disk", "message": "The node's disk is full."} if state == "failed" else None,
        "created_by": "us-aaaaaaaaaaaaaaaa",
        "created_at": AT,
        "finished_at": LATER if over else None,
        "correlation_id": "cr-7",
        **more,
    }


def event(seq: int, **more: Any) -> dict[str, Any]:
    return {
        "seq": seq,
        "type": "allocation.active",
        "at": AT,
        "org_id": "og-aaaaaaaaaaaaaaaa",
        "project_id": "pj-aaaaaaaaaaaaaaaa",
        "object_kind": "allocation",
        "object_id": "al-aaaaaaaaaaaaaaaa",
        "actor": "us-aaaaaaaaaaaaaaaa",
        "data": {"name": "train-1"},
        "correlation_id": None,
        "app_instance_id": None,
        "operating_mode": None,
        "control_plane_scope": None,
        "runtime_backend": None,
        "tenant_boundary_mode": None,
        **more,
    }


def key(name: str = "laptop") -> dict[str, Any]:
    return {
        "id": "ky-aaaaaaaaaaaaaaaa",
        "name": name,
        "type": "ssh-ed25519",
        "public_key": "ssh-ed25519 AAAA",
        "fingerprint": "SHA256:abc",
        "created_at": AT,
    }


def machine_key(name: str) -> dict[str, Any]:
    who = {"user_id": "us-aaaaaaaaaaaaaaaa", "user": "ada@example.org"}
    return {"id": f"sk-{name}", "name": name, "type": "ssh-ed25519", "fingerprint": f"SHA256:{name}", **who}


def session(name: str, **more: Any) -> dict[str, Any]:
    return {
        "session": name,
        "user_id": "us-aaaaaaaaaaaaaaaa",
        "user": "ada@example.org",
        "fingerprint": "SHA256:laptop",
        "source": "192.0.2.7",
        "opened_at": AT,
        "closed_at": None,
        "close_reason": None,
        **more,
    }


def project(slug: str = "default") -> dict[str, Any]:
    return {
        "id": "pj-aaaaaaaaaaaaaaaa",
        "org_id": "og-aaaaaaaaaaaaaaaa",
        "slug": slug,
        "name": "Default",
        "role": "admin",
        "open_network": False,
        "created_at": AT,
    }


def user() -> dict[str, Any]:
    return {
        "id": "us-aaaaaaaaaaaaaaaa",
        "email": "ada@example.org",
        "name": "Ada",
        "platform_role": None,
        "created_at": AT,
        "disabled_at": None,
    }


def whoami(*projects: dict[str, Any]) -> dict[str, Any]:
    return {
        "user": user(),
        "token_id": "tk-aaaaaaaaaaaaaaaa",
        "scopes": ["*"],
        "orgs": [],
        "projects": list(projects) or [project()],
    }


def issued(secret: str) -> dict[str, Any]:
    token = {"id": "tk-aaaaaaaaaaaaaaaa", "name": "login", "scopes": ["*"], "created_at": AT, "expires_at": AT}
    return {"token": {**token, "last_used_at": None}, "secret": secret}


def use(**more: Any) -> dict[str, Any]:
    gpu = {"gpu": "GPU-1", "busy_percent": 96.4, "memory_used_mib": 40960, "memory_mib": 81920}
    return {
        "at": AT,
        "cpus_used": 2.0,
        "cpu_percent": 12.5,
        "memory_bytes": 3 * 2**30,
        "memory_limit_bytes": 128 * 2**30,
        "processes": 7,
        "sessions": 2,
        "oom_kills": 0,
        "disk_read_bytes_per_second": None,
        "disk_written_bytes_per_second": None,
        "disk_used_bytes": None,
        "disk_limit_bytes": None,
        "network_received_bytes_per_second": 300_000.0,
        "network_sent_bytes_per_second": 0.0,
        "gpus": [{**gpu, "temperature_celsius": 61.0, "power_watts": 500.0, "trouble": ""}],
        **more,
    }


def health(name: str = "train-1", status: str = "healthy", **more: Any) -> dict[str, Any]:
    return {
        "allocation_id": "al-aaaaaaaaaaaaaaaa",
        "name": name,
        "project_id": "pj-aaaaaaaaaaaaaaaa",
        "state": "active",
        "status": status,
        "findings": [],
        "use": use(),
        **more,
    }


def page(*items: Any, next_cursor: str | None = None) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": next_cursor}


def runtime_bundle(slug: str = "pytorch", version: str = "2.13.0-cpu", **more: Any) -> dict[str, Any]:
    wants = {"architectures": ["amd64"], "gpu_family": "any", "min_driver": "", "cuda": "", "rocm": ""}
    return {
        "id": "rb-aaaaaaaaaaaaaaaa",
        "slug": slug,
        "version": version,
        "name": f"{slug}:{version}",
        "product": slug.title(),
        "description": "",
        "family": "any",
        "support": "supported",
        "default": True,
        "scope": "platform",
        "project_id": None,
        "architecture": "amd64",
        "digest": "0" * 64,
        "size_bytes": 2**28,
        "received_bytes": 2**28,
        "requirements": {**wants, "min_memory_bytes": 0, "recommended_memory_bytes": 16 << 30},
        "root": f"/opt/gpuaas/runtimes/{slug}/{version}",
        "state": "published",
        "allowed_actions": ["deprecate"],
        "created_at": AT,
        "published_at": AT,
        "deprecated_at": None,
        "manifest": None,
        **more,
    }
