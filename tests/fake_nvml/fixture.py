"""The fixture `fake_nvml`; world.py says what can be done with it, and how a test asks for it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fake_nvml.world import VARIABLE, FakeNvml

SOURCE = Path(__file__).with_name("nvml.c")
SONAME = "libnvidia-ml.so.1"


@pytest.fixture(scope="session")
def fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built once. Skips where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the fake NVML needs a C compiler (cc or gcc)")
    library = tmp_path_factory.mktemp("fake_nvml") / SONAME
    options = ["-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-Wl,-soname,{SONAME}"]
    subprocess.run([compiler, *options, "-o", str(library), str(SOURCE)], check=True, timeout=60)
    return library


@pytest.fixture
def fake_nvml(fake_nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A machine with two empty GPUs, for this process and for those started from it."""
    pytest.importorskip("pynvml")
    fake = FakeNvml(tmp_path, fake_nvml_library)
    fake.has(2)
    monkeypatch.setenv(VARIABLE, str(fake.file))
    # Whoever asks for a library of this name afterwards gets the one that is loaded (dlopen(3)).
    ctypes.CDLL(str(fake_nvml_library))
    return fake
