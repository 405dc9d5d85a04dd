"""Image sets: official formats, checksums, noise, and folders of pictures."""

import gzip
import hashlib
import io
import os
import struct
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_source import no_data_fixture, source_fixture  # noqa: F401
from PIL import Image

from card.datasets import IMAGE_NAMES, add_noise, images, load_image, load_image_folder

FILES = {
    "train-images-idx3-ubyte.gz": (6, 28, 28),
    "train-labels-idx1-ubyte.gz": (6,),
    "t10k-images-idx3-ubyte.gz": (3, 28, 28),
    "t10k-labels-idx1-ubyte.gz": (3,),
}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def idx(array):
    """The idx.gz file of an array of bytes."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes(), mtime=0)


def records(x, y, coarse=False):
    """CIFAR's binary form of images and classes."""
    labels = np.column_stack([y * 0 + 1, y] if coarse else [y]).astype(np.uint8)
    return np.hstack([labels, x.reshape(len(x), -1)]).tobytes()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def little_mnist(monkeypatch, rng):
    """MNIST of six training and three test images: its arrays, and its files as bytes."""
    arrays = {file: rng.integers(10, size=shape, dtype=np.uint8) for file, shape in FILES.items()}
    content = {file: idx(array) for file, array in arrays.items()}
    little = replace(images.MNIST, sha256={file: sha256(data) for file, data in content.items()})
    monkeypatch.setitem(images.SOURCES, "mnist", little)
    monkeypatch.setitem(images.SOURCES, "noisy_mnist", little)
    return arrays, content


@pytest.fixture
def mnist_folder(little_mnist, no_data, monkeypatch, tmp_path):
    """CARD_DATA with the little MNIST in it."""
    (tmp_path / "mnist").mkdir()
    for file, data in little_mnist[1].items():
        (tmp_path / "mnist" / file).write_bytes(data)
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    return tmp_path / "mnist"


@pytest.fixture
def little_cifar(monkeypatch, rng):
    """CIFAR-10 and CIFAR-100 of a few images: what their folders hold, and the arrays."""
    x, y = rng.integers(256, size=(9, 3, 32, 32), dtype=np.uint8), np.arange(9)
    ten = {f"data_batch_{i + 1}.bin": records(x[i : i + 1], y[i : i + 1]) for i in range(5)}
    ten["test_batch.bin"] = records(x[5:], y[5:])
    hundred = {
        "train.bin": records(x[:5], 11 * y[:5], coarse=True),
        "test.bin": records(x[5:], y[5:], coarse=True),
    }
    hundred["fine_label_names.txt"] = "\n".join(f"name{i}" for i in range(100)).encode()
    monkeypatch.setitem(
        images.SOURCES,
        "cifar10",
        replace(
            images.CIFAR10,
            n_rows=(5, 4),
            train={file: sha256(data) for file, data in ten.items() if "data" in file},
            test={"test_batch.bin": sha256(ten["test_batch.bin"])},
        ),
    )
    monkeypatch.setitem(images.SOURCES, "cifar100", replace(images.CIFAR100, n_rows=(5, 4)))
    return {"cifar10": ten, "cifar100": hundred, "x": x, "y": y}


def put(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def test_idx_files_are_read_from_the_folder(mnist_folder, little_mnist):
    arrays, data = little_mnist[0], load_image("MNIST")
    np.testing.assert_array_equal(data.X_train[:, 0], arrays["train-images-idx3-ubyte.gz"])
    np.testing.assert_array_equal(data.y_train, arrays["train-labels-idx1-ubyte.gz"])
    np.testing.assert_array_equal(data.X_test[:, 0], arrays["t10k-images-idx3-ubyte.gz"])
    np.testing.assert_array_equal(data.y_test, arrays["t10k-labels-idx1-ubyte.gz"])
    assert (data.X_train.shape, data.X_train.dtype, data.y_train.dtype) == (
        (6, 1, 28, 28),
        np.uint8,
        np.int64,
    )
    assert data.X_train.flags.writeable  # else torch warns
    assert len(data.classes) == 10


def test_idx_files_not_at_hand_are_downloaded_checked_and_kept(source, little_mnist, monkeypatch):
    arrays, content = little_mnist
    little = replace(images.SOURCES["mnist"], url=source.url)
    monkeypatch.setitem(images.SOURCES, "mnist", little)
    for file, data in content.items():
        source.put(file, data)
    np.testing.assert_array_equal(load_image("mnist").X_test[:, 0], arrays["t10k-images-idx3-ubyte.gz"])
    source.stop()
    np.testing.assert_array_equal(load_image("mnist").X_test[:, 0], arrays["t10k-images-idx3-ubyte.gz"])


def test_a_download_with_another_checksum_is_refused_and_not_kept(source, little_mnist, monkeypatch):
    monkeypatch.setitem(images.SOURCES, "mnist", replace(images.SOURCES["mnist"], url=source.url))
    for file in FILES:
        source.put(file, idx(np.zeros(3, np.uint8)))
    with pytest.raises(ValueError, match=r"what http.*train-images.* sent is not the file wanted"):
        load_image("mnist")
    assert not list(source.cache.rglob("*.gz"))


def test_without_folder_and_network_the_error_says_what_to_do(no_data, little_mnist, monkeypatch):
    monkeypatch.setitem(images.SOURCES, "mnist", replace(images.SOURCES["mnist"], url="http://127.0.0.1:9"))
    with pytest.raises(
        FileNotFoundError, match=r"train-images.* failed .*set CARD_DATA to a folder that holds it"
    ):
        load_image("mnist")


def test_a_file_with_another_checksum_is_refused(mnist_folder):
    file = mnist_folder / "t10k-labels-idx1-ubyte.gz"
    file.write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(
        ValueError, match=r"t10k-labels.*gz is damaged or is another file: its sha256 is .* Remove it"
    ):
        load_image("mnist")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "is not a whole gzip file"),
        (idx(np.zeros((5, 4, 4), np.uint8))[:-20], "is not a whole gzip file"),
        (gzip.compress(b"\1\2\3\4", mtime=0), "is not an idx file of bytes"),
        (
            gzip.compress(b"\0\0\x08\1" + struct.pack(">I", 9) + b"12", mtime=0),
            r"announces an array of shape \(9,\), but holds 2 bytes",
        ),
        (gzip.compress(b"\0\0\x08\3\0", mtime=0), "is not an idx file of bytes"),
    ],
    ids=["foreign", "cut short", "other magic", "too few bytes", "no sizes"],
)
def test_a_damaged_idx_file_is_refused(tmp_path, content, message):
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        images.read_idx(path)


def test_noisy_mnist_has_fixed_noise_in_the_test_images_and_clean_training_images(mnist_folder, little_mnist):
    one, two, clean = load_image("noisy mnist"), load_image("noisy_mnist"), load_image("mnist")
    np.testing.assert_array_equal(one.X_test, two.X_test)
    np.testing.assert_array_equal(one.X_train, clean.X_train)
    noise = one.X_test - clean.X_test / np.float32(255)
    assert one.X_test.dtype == np.float32
    assert (noise.mean(), noise.std()) == (pytest.approx(0, abs=0.08), pytest.approx(1, abs=0.06))


def test_noise_is_fresh_at_every_call_of_a_generator_and_standard_normal(rng):
    x = np.full((50, 1, 28, 28), 51, np.uint8)
    one, two = add_noise(x, rng), add_noise(x, rng)
    assert (one != two).mean() > 0.99
    assert (one.mean(), one.std()) == pytest.approx((0.2, 1.0), abs=0.02)


@pytest.mark.parametrize("folder", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"])
def test_cifar10_is_read_in_its_binary_layout(no_data, little_cifar, monkeypatch, tmp_path, folder):
    put(tmp_path / folder, little_cifar["cifar10"])
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    data = load_image("CIFAR-10")
    np.testing.assert_array_equal(np.concatenate([data.X_train, data.X_test]), little_cifar["x"])
    np.testing.assert_array_equal(np.concatenate([data.y_train, data.y_test]), little_cifar["y"])
    assert data.classes[0] == "airplane"


def test_cifar100_gives_the_fine_classes_with_their_names(no_data, little_cifar, monkeypatch, tmp_path):
    put(tmp_path / "cifar-100-binary", little_cifar["cifar100"])
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    data = load_image("cifar100")
    np.testing.assert_array_equal(np.concatenate([data.X_train, data.X_test]), little_cifar["x"])
    assert data.y_train.tolist() == [0, 11, 22, 33, 44]
    assert data.classes[44] == "name44"
    (tmp_path / "cifar-100-binary" / "fine_label_names.txt").unlink()
    assert load_image("cifar100").classes[44] == "44"


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_is_downloaded_as_an_archive_and_unpacked(source, little_cifar, monkeypatch, name):
    buffer, official = io.BytesIO(), images.SOURCES[name]
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for file, content in little_cifar[name].items():
            info = tarfile.TarInfo(f"{official.folder}/{file}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    source.put("cifar.tar.gz", buffer.getvalue())
    little = replace(official, url=f"{source.url}/cifar.tar.gz", archive_sha256=sha256(buffer.getvalue()))
    monkeypatch.setitem(images.SOURCES, name, little)
    np.testing.assert_array_equal(load_image(name).X_test, little_cifar["x"][5:])
    source.stop()
    np.testing.assert_array_equal(load_image(name).X_test, little_cifar["x"][5:])


def damage_one_pixel(folder):
    path = folder / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\7")


def lose_a_file(folder):
    (folder / "data_batch_3.bin").unlink()


@pytest.mark.parametrize(
    ("harm", "error", "message"),
    [
        (damage_one_pixel, ValueError, r"test_batch\.bin is damaged"),
        (lose_a_file, FileNotFoundError, r"lacks data_batch_3\.bin; unpack"),
    ],
)
def test_a_damaged_cifar10_is_refused(no_data, little_cifar, monkeypatch, tmp_path, harm, error, message):
    folder = tmp_path / "cifar-10-batches-bin"
    put(folder, little_cifar["cifar10"])
    harm(folder)
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    with pytest.raises(error, match=message):
        load_image("cifar10")


def test_a_cifar100_with_rows_missing_is_refused(no_data, little_cifar, monkeypatch, tmp_path):
    files = little_cifar["cifar100"]
    put(tmp_path / "cifar-100-binary", files | {"train.bin": files["train.bin"][: 2 * 3074]})
    monkeypatch.setenv("CARD_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"train\.bin in .* should hold 5 images; found 2"):
        load_image("cifar100")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "should hold records of 3073 bytes; it has 0 bytes"),
        (b"\0" * 3072, "should hold records of 3073 bytes; it has 3072 bytes"),
        (b"\x0a" + b"\0" * 3072, "holds class 10; classes go from 0 to 9"),
    ],
)
def test_a_cifar_file_of_another_form_is_refused(tmp_path, content, message):
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        images.read_cifar(path, n_labels=1, n_classes=10)


@pytest.mark.skipif("CARD_DATA" not in os.environ, reason="needs the folder CARD_DATA")
@pytest.mark.parametrize(
    ("name", "mean"), [("mnist", 0.1307), ("fashion_mnist", 0.2860), ("cifar10", 0.4734)]
)
def test_the_original_files_have_their_well_known_sizes_and_means(name, mean):
    folder = images.SOURCES[name].folder if name == "cifar10" else images.SOURCES[name].folders[0]
    if not any((Path(os.environ["CARD_DATA"]) / p).exists() for p in (folder, f"{name}/{folder}")):
        pytest.skip(f"CARD_DATA has no {folder}")
    data = load_image(name)
    assert (len(data.X_train), len(data.X_test)) == (50_000 if name == "cifar10" else 60_000, 10_000)
    assert data.X_train.mean() / 255 == pytest.approx(mean, abs=2e-4)
    assert np.bincount(data.y_test).tolist() == [1000] * 10 or name == "mnist"


def test_an_unknown_image_set_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"no image set named 'fashion'\. Did you mean 'fashion_mnist'\?"):
        load_image("fashion")
    assert len(IMAGE_NAMES) == 5


@pytest.fixture
def pictures(tmp_path, rng):
    """Two cats and one dog, 6 high and 8 wide."""
    arrays = {}
    for name in ("cat/a.png", "cat/b.PNG", "dog/c.png"):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays[name] = rng.integers(256, size=(6, 8, 3), dtype=np.uint8)
        Image.fromarray(arrays[name]).save(path)
    (tmp_path / "pets" / ".hidden").mkdir()
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("not a picture")
    return tmp_path / "pets", arrays


def test_a_folder_of_pictures_has_a_class_for_each_subfolder(pictures):
    path, arrays = pictures
    data = load_image_folder(path)
    assert (data.classes, data.y.tolist()) == (("cat", "dog"), [0, 0, 1])
    assert [p.name for p in data.paths] == ["a.png", "b.PNG", "c.png"]
    np.testing.assert_array_equal(data.X, np.stack([a.transpose(2, 0, 1) for a in arrays.values()]))


def test_pictures_can_be_made_grey_and_brought_to_one_size(pictures):
    path, _ = pictures
    Image.new("RGB", (30, 20), "white").save(path / "dog" / "d.jpg")
    assert load_image_folder(path, size=(5, 4), mode="L").X.shape == (4, 1, 5, 4)
    with pytest.raises(
        ValueError, match=r"2 different sizes, among them \(6, 8\) and \(20, 30\); give size="
    ):
        load_image_folder(path)


def test_hidden_files_are_left_alone_and_two_bytes_a_pixel_become_one(tmp_path):
    (tmp_path / "a").mkdir()
    deep = np.array([[0, 257], [25_700, 65_535]], dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "a" / "deep.png")
    (tmp_path / "a" / "._deep.png").write_bytes(b"not a picture")
    assert load_image_folder(tmp_path, mode="L").X.tolist() == [[[[0, 1], [100, 255]]]]
    with pytest.raises(ValueError, match="size must be"):
        load_image_folder(tmp_path, size=24)


def test_a_bad_folder_of_pictures_is_refused_in_plain_words(pictures, tmp_path):
    path, _ = pictures
    with pytest.raises(NotADirectoryError, match="nowhere is not a folder; wanted is one with a subfolder"):
        load_image_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="dog has no subfolders"):
        load_image_folder(path / "dog")
    (path / "cat" / "broken.png").write_bytes(b"not a png")
    with pytest.raises(ValueError, match=r"broken\.png cannot be read as an image"):
        load_image_folder(path)
    (path / "emu").mkdir()
    with pytest.raises(ValueError, match="no images in the class folders emu"):
        load_image_folder(path)


def test_without_pillow_the_error_names_the_extra(pictures, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"needs pillow: pip install \"card-diffusion\[images\]\""):
        load_image_folder(pictures[0])
