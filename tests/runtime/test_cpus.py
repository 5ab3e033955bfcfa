"""How many threads run by default: affinity, quotas of control groups, variables of OpenMP."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stridewise as sw
from stridewise.errors import InputError
from stridewise.runtime.machine import cpus
from stridewise.runtime.machine.cpus import (
    CpuLimit,
    CpuLimits,
    available_cpus,
    cpu_limits,
    usable_cpus,
)
from stridewise.runtime.machine.machine import this_machine

CPUS = 64


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let quotas decide, however few CPUs there are."""
    monkeypatch.setattr(cpus, "_affinity", lambda: CpuLimit(CPUS, "CPU affinity"))


def limits(folder: Path, own: str, files: dict[str, str], **environment: str) -> CpuLimits:
    """Return the limits under files of control groups."""
    (folder / "own").write_text(own)
    for name, text in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return cpu_limits(environment, folder / "groups", folder / "own")


V1 = "5:memory:/other\n4:cpu,cpuacct:/a/b\n1:name=systemd:/\n"


def v1(folder: str, quota: str, period: str = "100000") -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": period}


QUOTAS = {
    "v2: rounded down": ("0::/a/b", {"a/b/cpu.max": "350000 100000\n"}, 3, "v2 /a/b"),
    "v2: at least one": ("0::/a", {"a/cpu.max": "5000 100000"}, 1, "v2 /a"),
    "v2: a parent has less": (
        "0::/a/b/c",
        {"a/b/c/cpu.max": "800000 50000", "a/b/cpu.max": "max 9", "a/cpu.max": "200000 100000"},
        2,
        "v2 /a",
    ),
    "v2: the root is the group of a container": ("0::/", {"cpu.max": "400000 100000"}, 4, "v2 /"),
    "v2: the path is that of the host": (
        "0::/docker/1f2e", {"cpu.max": "400000 100000"}, 4, "v2 /"
    ),
    "v2: the group is outside of the namespace": (
        "0::/../x", {"cpu.max": "400000 100000", "x/cpu.max": "100000 100000"}, 4, "v2 /"
    ),
    "v1": (V1, v1("cpu,cpuacct/a/b", "250000"), 2, "v1 /a/b"),
    "v1: under the short name": (V1, v1("cpu/a/b", "250000", "50000"), 5, "v1 /a/b"),
    "v1: a parent has less": (
        V1, v1("cpu/a/b", "900000") | v1("cpu/a", "700000") | v1("cpu", "-1"), 7, "v1 /a"
    ),
    "v1: the root is the group of a container": (V1, v1("cpu", "300000"), 3, "v1 /"),
    "hybrid: version 1 has the quota": (
        f"{V1}0::/s", v1("cpu/a/b", "200000") | {"unified/s/cpu.max": "max 100000"}, 2, "v1 /a/b"
    ),
    "hybrid: version 2 has less": (
        f"{V1}0::/s", v1("cpu", "900000") | {"unified/s/cpu.max": "300000 100000"}, 3, "v2 /s"
    ),
    "a colon in the path": ("0::/a:b", {"a:b/cpu.max": "200000 100000"}, 2, "v2 /a:b"),
}  # fmt: skip


@pytest.mark.parametrize("case", QUOTAS)
def test_a_quota_bounds_the_threads(tmp_path: Path, case: str) -> None:
    own, files, threads, group = QUOTAS[case]
    found = limits(tmp_path, own, files)
    assert found.decisive == CpuLimit(threads, f"CPU quota of cgroup {group}")
    assert found.found == (CpuLimit(CPUS, "CPU affinity"), found.decisive)


UNBOUNDED = {
    "v2: max": ("0::/a", {"a/cpu.max": "max 100000"}),
    "v1: minus one": (V1, v1("cpu/a/b", "-1")),
    "v1: another controller": ("4:cpuset:/a\n3:name=cpu:/a", v1("cpuset/a", "100000")),
    "v1: no period": (V1, {"cpu/cpu.cfs_quota_us": "100000"}),
    "no group": ("", {"cpu.max": "100000 100000"}),
    "no quota": ("0::/a/b", {}),
    "a folder in the place of the file": ("0::/a", {"a/cpu.max/x": ""}),
    "no numbers": ("0::/a", {"a/cpu.max": "two of three\0\xff"}),
    "a period of zero": ("0::/a", {"a/cpu.max": "100000 0"}),
    "a negative quota": ("0::/a", {"a/cpu.max": "-5 100000"}),
    "many digits": ("0::/a", {"a/cpu.max": "9" * 5000 + " 1"}),
    "three numbers": ("0::/a", {"a/cpu.max": "100000 100000 100000"}),
    "groups that make no sense": ("::::\n\n0\n0::\n0::/\0\n" + "0::/" + "x" * 9000, {}),
}


@pytest.mark.parametrize("case", UNBOUNDED)
def test_what_makes_no_sense_bounds_nothing(tmp_path: Path, case: str) -> None:
    found = limits(tmp_path, *UNBOUNDED[case])
    assert found == CpuLimits((CpuLimit(CPUS, "CPU affinity"),), ())


def test_no_file_has_to_be_there(tmp_path: Path) -> None:
    assert cpu_limits({}, tmp_path / "none", tmp_path / "nothing").decisive.threads == CPUS


@pytest.mark.parametrize(
    ("name", "value", "threads"),
    [
        ("OMP_NUM_THREADS", "4", 4),
        ("OMP_NUM_THREADS", " 4, 2 ", 4),
        ("OMP_NUM_THREADS", "+04", 4),
        ("OMP_THREAD_LIMIT", " 3", 3),
        *(("OMP_NUM_THREADS", value, None) for value in ("", "0", "-1", "4,", "4,x", "x", "1.5")),
        *(("OMP_NUM_THREADS", value, None) for value in ("9" * 5000, "٣")),
        *(("OMP_THREAD_LIMIT", value, None) for value in ("4,2", "0", "all")),
    ],
)
def test_variables_count_as_openmp_reads_them(
    tmp_path: Path, name: str, value: str, threads: int | None
) -> None:
    found = limits(tmp_path, "", {}, **{name: value})
    if threads is None:
        assert found.decisive == CpuLimit(CPUS, "CPU affinity")
        assert found.ignored == (f"{name}={value!r}",)
    else:
        assert (found.decisive, found.ignored) == (CpuLimit(threads, name), ())


def test_the_least_of_all_decides_and_the_first_of_equals(tmp_path: Path) -> None:
    files = {"a/cpu.max": "400000 100000"}
    found = limits(tmp_path, "0::/a", files, OMP_NUM_THREADS="4,2", OMP_THREAD_LIMIT="8")
    assert [limit.threads for limit in found.found] == [CPUS, 4, 4, 8]
    assert found.decisive.source == "CPU quota of cgroup v2 /a"


def test_more_threads_than_openmp_runs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_THREAD_LIMIT", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert this_machine().threads == 1
    assert this_machine(2).threads == 2, "an argument goes before OMP_NUM_THREADS"
    message = (
        "threads: expected at most 2, the value of OMP_THREAD_LIMIT, found 3; "
        "give threads=2 or fewer, or start the process with a higher limit"
    )
    with pytest.raises(InputError) as caught:
        this_machine(3)
    assert str(caught.value) == message
    desc = sw.TensorDesc((1, 8, 4, 4), "float32", origin="NCHW", storage="NCHW")
    with pytest.raises(InputError) as caught:
        sw.Reorder(desc, desc, threads=3)
    assert str(caught.value) == message


def test_the_default_of_a_process_follows_its_environment() -> None:
    code = (
        "from stridewise.runtime.machine.machine import this_machine; print(this_machine().threads)"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1,8"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


def test_the_default_of_openmp_does_not_say_what_can_run_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_THREAD_LIMIT", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    count = available_cpus()
    assert usable_cpus() == count
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert (available_cpus(), usable_cpus()) == (1, count)
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    assert usable_cpus() == 1
