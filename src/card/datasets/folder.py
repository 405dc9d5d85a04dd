"""A folder of images, one subfolder for each class: the user's own pictures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}


@dataclass(frozen=True)
class ImageFolder:
    """Images uint8 (n, channels, height, width), the number of their class, and where they came from."""

    X: NDArray[np.uint8]
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    paths: tuple[Path, ...]


def load_image_folder(
    path: str | Path, size: tuple[int, int] | None = None, mode: str = "RGB"
) -> ImageFolder:
    """Read all images of a folder that has one subfolder for each class. Needs pillow.

    Parameters
    ----------
    path : the folder; classes are its subfolders by name, images the files in them by name
    size : (height, width) to bring every image to; without it all must have one size already
    mode : "RGB" for three channels, "L" for one (grey)
    """
    reader = _pillow()
    if size is not None and np.shape(size) != (2,):
        raise ValueError(f"size must be (height, width), got {size!r}")
    classes, files = _listing(Path(path))
    images = [_read(reader, file, size, mode) for file in files]
    shapes = sorted({image.shape for image in images})
    if len(shapes) > 1:
        raise ValueError(
            f"the images of {path} have {len(shapes)} different sizes, among them {shapes[0][1:]} and "
            f"{shapes[-1][1:]}; give size=(height, width) to bring them to one"
        )
    number = {name: i for i, name in enumerate(classes)}
    y = np.array([number[file.parent.name] for file in files], dtype=np.int64)
    return ImageFolder(np.stack(images), y, classes, tuple(files))


def _listing(root: Path) -> tuple[tuple[str, ...], list[Path]]:
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a folder; wanted is one with a subfolder for each class")
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not folders:
        raise ValueError(f"{root} has no subfolders; put the images of each class into a folder of its name")
    files = {folder: sorted(p for p in folder.iterdir() if _is_image(p)) for folder in folders}
    empty = [folder.name for folder, found in files.items() if not found]
    if empty:
        raise ValueError(f"no images in the class folders {', '.join(empty)} of {root}")
    return tuple(folder.name for folder in folders), [file for found in files.values() for file in found]


def _is_image(path: Path) -> bool:
    """By its name; hidden files are an operating system's, not the user's."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _read(reader: Any, file: Path, size: tuple[int, int] | None, mode: str) -> NDArray[np.uint8]:
    try:
        with reader.open(file) as opened:
            image = _of_bytes(reader, opened).convert(mode)
    except (OSError, SyntaxError) as error:
        raise ValueError(f"{file} cannot be read as an image: {error}") from None
    if size is not None:
        image = image.resize((size[1], size[0]), reader.Resampling.BILINEAR)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def _of_bytes(reader: Any, image: Any) -> Any:
    """A grey image of two bytes a pixel as one of one byte; pillow would cut what is bright."""
    if not image.mode.startswith("I;16"):
        return image
    return reader.fromarray((np.asarray(image) // 257).astype(np.uint8))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError('reading image files needs pillow: pip install "card-diffusion[images]"') from None
    return Image
