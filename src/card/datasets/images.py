"""Images with labels, read from their official files.

MNIST and FashionMNIST (idx.gz), CIFAR-10 and CIFAR-100 (binary version) are looked for under the folder named
by CARD_DATA, then in the cache, then at their sources, and checked by sha256. Pixels are uint8 from 0 to 255,
shape (n, channels, height, width), as torch's convolutions want them.

Noisy MNIST is MNIST with N(0, 1) noise added to every pixel, pixels scaled to [0, 1] before. Its test images
are noisy once and for all, by a seed; the training images are given clean, for `add_noise` to make noisy anew
in every epoch.
"""

import gzip
import math
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from card.datasets._names import choose
from card.datasets.fetch import cache_folder, download, locate, verify

NOISE_SEED = 0  # of the test images of noisy MNIST


@dataclass(frozen=True)
class Images:
    """Training and test images, uint8 (n, channels, height, width), with the number of their class.

    Only the test images of noisy MNIST are float32, pixels / 255 plus noise.
    """

    name: str
    X_train: NDArray
    y_train: NDArray[np.int64]
    X_test: NDArray
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class _Idx:
    folders: tuple[str, ...]
    url: str
    classes: tuple[str, ...]
    sha256: dict[str, str]


@dataclass(frozen=True)
class _Cifar:
    folder: str
    url: str
    archive_sha256: str
    n_labels: int  # bytes before the pixels; the last is the class
    n_classes: int
    train: dict[str, str | None]  # file: sha256
    test: dict[str, str | None]
    n_rows: tuple[int, int] = (50_000, 10_000)  # train, test


MNIST = _Idx(
    ("mnist", "MNIST/raw"),
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    tuple("0123456789"),
    {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)
FASHION_MNIST = _Idx(
    ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw"),
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
)
CIFAR10 = _Cifar(
    "cifar-10-batches-bin",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    1,
    10,
    {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    },
    {"test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
)
CIFAR100 = _Cifar(
    "cifar-100-binary",
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    2,
    100,
    {"train.bin": None},  # of these only the archive's checksum is known; their form is checked
    {"test.bin": None},
)
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SOURCES: dict[str, _Idx | _Cifar] = {
    "mnist": MNIST,
    "noisy_mnist": MNIST,
    "fashion_mnist": FASHION_MNIST,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
}
IMAGE_NAMES = tuple(SOURCES)


def load_image(name: str) -> Images:
    """Images of mnist, noisy_mnist, fashion_mnist, cifar10 or cifar100, ready to train and test on.

    Files are read from the folder named by the environment variable CARD_DATA (mnist/, fashion-mnist/,
    cifar-10-batches-bin/, cifar-100-binary/), else from the cache, else downloaded; see docs/data.md.

    Returns
    -------
    Images : `X_train`, `X_test` uint8 (n, channels, height, width); `y_train`, `y_test` the number of the
        class, of which `classes` has the names. `X_test` of noisy_mnist is float32 with its noise, see
        `add_noise`.
    """
    name, source = choose("image set", name, SOURCES)
    images = _load_idx(name, source) if isinstance(source, _Idx) else _load_cifar(name, source)
    if name != "noisy_mnist":
        return images
    noisy = add_noise(images.X_test, NOISE_SEED)
    return Images(name, images.X_train, images.y_train, noisy, images.y_test, images.classes)


def add_noise(
    X: NDArray[np.uint8], random_state: int | np.random.Generator | None = None
) -> NDArray[np.float32]:
    """Noisy MNIST's images: pixels / 255 + N(0, 1), float32; with a generator, fresh noise at every call.

    >>> add_noise(np.full((1, 1, 2, 2), 255, dtype=np.uint8), random_state=0).round(2)
    array([[[[ 2.12, -0.39],
             [ 0.57,  0.2 ]]]], dtype=float32)
    """
    noise = np.random.default_rng(random_state).standard_normal(X.shape, dtype=np.float32)
    noise += X.astype(np.float32) / np.float32(255)
    return noise


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of an idx.gz file of bytes: magic 0 0 8 d, then d big-endian sizes, then the bytes."""
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}") from None
    header = 4 + 4 * data[3] if len(data) > 3 else 4
    if len(data) < header or data[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not an idx file of bytes")
    shape = tuple(np.frombuffer(data[4:header], ">u4").tolist())
    if len(data) != header + math.prod(shape):
        raise ValueError(f"{path} announces an array of shape {shape}, but holds {len(data) - header} bytes")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy()


def read_cifar(path: Path, n_labels: int, n_classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 3, 32, 32) and classes of a CIFAR binary file: records of n_labels bytes and 3072 pixels."""
    data, record = np.fromfile(path, np.uint8), n_labels + 3072
    if data.size == 0 or data.size % record:
        raise ValueError(f"{path} should hold records of {record} bytes; it has {data.size} bytes")
    rows = data.reshape(-1, record)
    labels = rows[:, n_labels - 1].astype(np.int64)
    if labels.max() >= n_classes:
        raise ValueError(f"{path} holds class {labels.max()}; classes go from 0 to {n_classes - 1}")
    return rows[:, n_labels:].reshape(-1, 3, 32, 32).copy(), labels


def _load_idx(name: str, source: _Idx) -> Images:
    def part(file: str) -> NDArray[np.uint8]:
        path = locate([f"{folder}/{file}" for folder in source.folders])
        path = path or download(f"{source.url}/{file}", f"{source.folders[0]}/{file}", source.sha256[file])
        return read_idx(verify(path, source.sha256[file]))

    def both(prefix: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        images, labels = part(f"{prefix}-images-idx3-ubyte.gz"), part(f"{prefix}-labels-idx1-ubyte.gz")
        return images[:, None], labels.astype(np.int64)

    return Images(name, *both("train"), *both("t10k"), source.classes)


def _load_cifar(name: str, source: _Cifar) -> Images:
    folder = locate([source.folder, f"{name}/{source.folder}"]) or _unpack(source)

    def both(files: dict[str, str | None], n_rows: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        parts = []
        for file, sha256 in files.items():
            path = folder / file
            if not path.is_file():
                raise FileNotFoundError(f"{folder} lacks {file}; unpack {source.url} there again")
            parts.append(
                read_cifar(verify(path, sha256) if sha256 else path, source.n_labels, source.n_classes)
            )
        x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        if len(y) != n_rows:
            raise ValueError(f"{', '.join(files)} in {folder} should hold {n_rows} images; found {len(y)}")
        return x, y

    train, test = both(source.train, source.n_rows[0]), both(source.test, source.n_rows[1])
    return Images(name, *train, *test, _class_names(source, folder))


def _class_names(source: _Cifar, folder: Path) -> tuple[str, ...]:
    if source.n_classes == 10:
        return CIFAR10_CLASSES
    listed = folder / "fine_label_names.txt"
    return tuple(listed.read_text().split()) if listed.is_file() else tuple(map(str, range(source.n_classes)))


def _unpack(source: _Cifar) -> Path:
    archive = download(source.url, source.url.rsplit("/", 1)[1], source.archive_sha256)
    target = cache_folder() / source.folder
    with tempfile.TemporaryDirectory(
        dir=cache_folder()
    ) as scratch:  # an interrupted unpacking leaves nothing
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        (Path(scratch) / source.folder).rename(target)
    return target
