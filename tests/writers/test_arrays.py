"""h5py and numpy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.writers.place import Place

pytestmark = pytest.mark.fuse


def test_np_save(place: Place) -> None:
    import numpy as np

    array = np.random.default_rng(1).normal(size=(700, 333))
    place.both(lambda at: np.save(at / "array.npy", array))
    assert np.array_equal(np.load(place.path / "array.npy"), array)
    assert np.array_equal(np.load(place.path / "array.npy", mmap_mode="r"), array)
    place.check()


def test_np_savez_seeks_back_and_rewrites_a_header(place: Place) -> None:
    import numpy as np

    arrays = {f"a{i}": np.arange(10_000 * i, dtype="i4") for i in range(1, 5)}

    def write(at: Path) -> None:
        np.savez(at / "arrays.npz", **arrays)
        np.savez_compressed(at / "small.npz", **arrays)

    place.both(write)
    with np.load(place.path / "arrays.npz") as loaded:
        assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())
    place.check()


def test_np_memmap_new_and_existing(place: Place) -> None:
    import numpy as np

    def write(at: Path) -> None:
        made = np.memmap(at / "map", dtype="f4", mode="w+", shape=(1000, 1000))
        made[:] = np.arange(1000, dtype="f4")
        made.flush()
        del made
        again = np.memmap(at / "map", dtype="f4", mode="r+", shape=(1000, 1000))
        again[500] = -1
        again.flush()
        del again

    place.both(write)
    place.check()


def test_np_memmap_changed_long_after_it_became_durable(place: Place) -> None:
    import numpy as np

    (place.path / "map").write_bytes(bytes(1 << 20))
    place.a.wait("durable", place.name)
    mapped = np.memmap(place.path / "map", dtype="u1", mode="r+")
    mapped[::4096] = 7
    mapped.flush()
    del mapped
    place.check()
    assert (place.a.source / place.name / "map").read_bytes()[::4096] == b"\7" * 256


def test_h5py_write_append_flush_reopen(place: Place) -> None:
    import h5py
    import numpy as np

    def write(at: Path) -> None:
        with h5py.File(at / "file.h5", "w") as file:
            data = file.create_dataset("loss", (1000,), maxshape=(None,), chunks=(256,), dtype="f8")
            data[:] = np.arange(1000)
            file.flush()
            data.resize((5000,))
            data[1000:] = 1.5
            file.attrs["step"] = 3
        with h5py.File(at / "file.h5", "r+") as file:
            file["loss"][10] = -1.0
            file.create_dataset("more", data=np.ones((64, 64)))
        with h5py.File(at / "file.h5", "a") as file:
            del file["more"]

    place.both(write)
    with h5py.File(place.path / "file.h5", "r") as file:
        assert file["loss"][10] == -1.0 and file["loss"][4999] == 1.5 and "more" not in file
    place.check()


def test_h5py_is_locked_while_it_is_open(place: Place) -> None:
    import h5py

    with h5py.File(place.path / "file.h5", "w") as file:
        file["x"] = 1
        with pytest.raises(OSError):
            h5py.File(place.path / "file.h5", "r+", locking=True)
    place.check()
