"""Data sets: the paper's toys, its UCI tables with their splits, and images."""

from card.datasets.folder import ImageFolder, load_image_folder
from card.datasets.images import IMAGE_NAMES, Images, add_noise, load_image
from card.datasets.toys import TOY_NAMES, Toy, make_toy
from card.datasets.uci import UCI_NAMES, Dataset, load_uci

__all__ = [
    "IMAGE_NAMES",
    "TOY_NAMES",
    "UCI_NAMES",
    "Dataset",
    "ImageFolder",
    "Images",
    "Toy",
    "add_noise",
    "load_image",
    "load_image_folder",
    "load_uci",
    "make_toy",
]
