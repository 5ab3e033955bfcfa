"""Finding libdnnl: what is used, and what is said where it cannot be."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stridewise.errors import LibraryError, StridewiseError
from stridewise.runtime.binding import library


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter: a process can load libdnnl only once."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def refusal(path: Path, **environment: str) -> str:
    """Return the message of the LibraryError that a path given by the user leads to."""
    done = run(
        """
        from stridewise.errors import LibraryError
        from stridewise.runtime.binding.library import load_core
        try:
            load_core()
        except LibraryError as error:
            print(error)
        """,
        STRIDEWISE_LIBDNNL=str(path),
        **environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def forget():
    """Let a test load again, and everything after it load as usual."""
    library._load.cache_clear()
    yield
    library._load.cache_clear()


def test_info_describes_the_library_in_use():
    info = library.library_info()
    assert info.path.name.startswith("libdnnl.so.3")
    assert info.version == library.load_core().version()
    assert info.version.startswith("3.")
    assert info.isa == info.isa.upper() != ""
    assert info.threading == "OpenMP"
    assert info.max_threads >= 1


def test_the_core_is_loaded_once():
    assert library.load_core() is library.load_core()


def test_import_alone_loads_no_native_code():
    done = run(
        """
        import sys
        import stridewise, stridewise.runtime.binding.library
        assert "stridewise._core" not in sys.modules
        assert "libdnnl" not in open("/proc/self/maps").read()
        """
    )
    assert done.returncode == 0, done.stderr


def test_path_from_the_environment_is_used(tmp_path: Path):
    link = tmp_path / "libdnnl.so.3"
    link.symlink_to(library.library_info().path)
    done = run(
        "from stridewise.runtime.binding.library import library_info; print(library_info().path)",
        STRIDEWISE_LIBDNNL=str(link),
    )
    assert done.stdout.strip() == str(link), done.stderr


def test_isa_limit_is_reported():
    done = run(
        "from stridewise.runtime.binding.library import library_info; print(library_info().isa)",
        ONEDNN_MAX_CPU_ISA="SSE41",
    )
    assert done.stdout.strip() == "SSE41", done.stderr


def test_missing_file(tmp_path: Path):
    message = refusal(tmp_path / "none.so")
    assert message == (
        f"STRIDEWISE_LIBDNNL: expected the path of a libdnnl.so.3, found no file at "
        f"{tmp_path / 'none.so'}; {library.FIX}"
    )


def test_directory_is_not_a_library(tmp_path: Path):
    assert f"found no file at {tmp_path}" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"MZ\x90", b"INPUT(libdnnl.so)\n"])
def test_not_an_elf_file(tmp_path: Path, content: bytes):
    path = tmp_path / "libdnnl.so.3"
    path.write_bytes(content)
    assert refusal(path) == (
        f"{path}: expected a shared library, found a file that is not in ELF format; {library.FIX}"
    )


@pytest.mark.parametrize("kept", [64, 100, 4096, 1_000_000])
def test_truncated_library(tmp_path: Path, kept: int):
    path = tmp_path / "libdnnl.so.3"
    with library.library_info().path.open("rb") as whole:
        path.write_bytes(whole.read(kept))
    message = refusal(path)
    assert message.startswith(f"{path}: expected a whole library, of ")
    assert message.endswith(f" bytes or more, found {kept} bytes; {library.FIX}")


def test_file_that_the_dynamic_linker_refuses():
    # A program in ELF format, whole, that is no shared library for this process to load.
    path = Path(sys.executable).resolve()
    message = refusal(path)
    assert message.startswith(f"{path}: expected a library that can be loaded, found ")
    assert message.endswith(library.FIX)


def test_library_of_another_name():
    import _ctypes

    path = Path(getattr(_ctypes, "__file__", "") or "")
    if not path.is_file():
        pytest.skip("this interpreter has its extension modules built in")
    assert refusal(path) == (
        f"{path}: expected a library whose SONAME is libdnnl.so.3, found another SONAME, or none; "
        f"{library.FIX}"
    )


def test_library_that_it_needs_is_missing(tmp_path: Path):
    path = tmp_path / "libdnnl.so.3"
    shutil.copy(library.library_info().path, path)
    content = path.read_bytes()
    if b"libgomp.so.1\0" not in content:
        pytest.skip("this libdnnl does not use libgomp")
    path.write_bytes(content.replace(b"libgomp.so.1\0", b"libgomp.so.0\0", 1))
    assert refusal(path) == (
        f"{path}: expected the library libgomp.so.0, which it needs, found that this system does "
        "not have it; install the package libgomp1 (Debian, Ubuntu) or libgomp (Fedora, RHEL)"
    )


def test_calls_of_openmp_that_the_core_does_not_serve(tmp_path: Path):
    """As in builds by other compilers than GCC, which call other functions."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    path, stub = tmp_path / "libdnnl.so.3", tmp_path / "stub.so"
    shutil.copy(library.library_info().path, path)
    content = path.read_bytes()
    if compiler is None or b"\0GOMP_barrier\0" not in content:
        pytest.skip("there is no C compiler, or this libdnnl has no barriers")
    path.write_bytes(content.replace(b"\0GOMP_barrier\0", b"\0GOMP_berrier\0", 1))
    source = tmp_path / "stub.c"
    source.write_text("void GOMP_berrier(void) {}")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", stub], check=True)
    preloaded = f"{stub} {os.environ.get('LD_PRELOAD', '')}".strip()
    assert refusal(path, LD_PRELOAD=preloaded) == (
        f"{path}: expected oneDNN that calls the functions of GNU OpenMP, found calls of "
        f"GOMP_berrier; {library.FIX}"
    )


def test_second_copy_in_one_process(tmp_path: Path):
    copy = tmp_path / "libdnnl.so.3"
    shutil.copy(library.library_info().path, copy)
    done = run(
        f"""
        import ctypes
        from stridewise.errors import LibraryError
        from stridewise.runtime.binding.library import load_core
        ctypes.CDLL({str(copy)!r})
        try:
            load_core()
        except LibraryError as error:
            print(error)
        """
    )
    assert "found that another package has loaded a different one; set STRIDEWISE_LIBDNNL" in (
        done.stdout
    ), done.stderr


@pytest.mark.usefixtures("forget")
def test_nothing_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(library.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(library, "DISTRIBUTION", "no-such-distribution")
    with pytest.raises(LibraryError, match="not installed; run `pip install onednn-cpu-"):
        library.load_core()


@pytest.mark.parametrize(
    ("major", "minor", "runtime", "found"),
    [
        (2, 7, 2, "expected oneDNN 3.x, found 2.7.0; "),
        (4, 0, 2, "expected oneDNN 3.x, found 4.0.0; "),
        (3, 9, 1, "found oneDNN 3.9.0 built for another CPU runtime (number 1); "),
        (3, 9, 4, "found oneDNN 3.9.0 built for another CPU runtime (number 4); "),
        (3, 9, 512, "found oneDNN 3.9.0 built for another CPU runtime (number 512); "),
    ],
)
def test_unsuitable_versions(major: int, minor: int, runtime: int, found: str):
    class Fake:
        @staticmethod
        def dnnl_version():
            class Pointer:
                contents = library._Version(major, minor, 0, b"", runtime, 0)

            return Pointer

    with pytest.raises(LibraryError) as caught:
        library._check(Fake, Path("libdnnl.so.3"))  # type: ignore[arg-type]
    assert found in str(caught.value)
    assert str(caught.value).endswith(library.FIX)


@pytest.mark.parametrize("minor", [2, 3, 11])
def test_later_releases_are_accepted(minor: int):
    class Fake:
        @staticmethod
        def dnnl_version():
            class Pointer:
                contents = library._Version(3, minor, 1, b"", 2, 0)

            return Pointer

    loaded = library._check(Fake, Path("x"))  # type: ignore[arg-type]
    assert (loaded.version, loaded.threading) == (f"3.{minor}.1", "OpenMP")


def test_library_without_a_version():
    with pytest.raises(LibraryError, match=r"found a library without dnnl_version\(\)"):
        library._check(object(), Path("libdnnl.so.3"))  # type: ignore[arg-type]


@pytest.mark.usefixtures("forget")
def test_core_that_is_not_built(monkeypatch: pytest.MonkeyPatch):
    def refuse(name: str):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(library.importlib, "import_module", refuse)
    with pytest.raises(LibraryError, match=r"expected the native core") as caught:
        library.load_core()
    assert isinstance(caught.value, StridewiseError)
    assert isinstance(caught.value, ImportError)
