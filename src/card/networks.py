"""Networks for classes and images: the base classifiers f, and the encoders of x that the denoiser reads.

Plain PyTorch modules without a member axis, rows (B, *shape) in. Each is a `Network`: features, then a head.
A classifier's head gives logits (B, n_classes), the softmax of which is f(x); an encoder's gives (B, width),
normalised over the batch. The features of a trained classifier may serve the denoiser as well: `embed`.

    classifiers   mlp             300-100, ReLU; the paper's on Noisy MNIST
                  lenet5          with BatchNorm, ReLU and average pooling; on FashionMNIST
                  resnet18        3x3 stem, no max-pool; on CIFAR
                  resnet9         eight convolutions of 32 to 128 channels, 0.6 M parameters: CIFAR on a CPU
    encoders      linear_encoder  three affine layers on the pixels; the paper's on CIFAR and Noisy MNIST
                  lenet_encoder   the paper's on FashionMNIST
                  conv_encoder    resnet9's features

PyTorch draws initial weights from its global generator; `seeded` keeps that to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


class Network(nn.Module):
    """Features and a head: (B, *shape) -> (B, n_out).

    Parameters
    ----------
    shape : of one row, without the batch axis: (n_features,), or (channels, height, width)
    features : (B, *shape) -> (B, n_features)
    head : (B, n_features) -> (B, n_out)
    """

    def __init__(self, shape: Shape, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.features = features
        self.head = head

    def embed(self, x: Tensor) -> Tensor:
        """The features that the head reads (B, n_features)."""
        if tuple(x.shape[1:]) != self.shape:
            raise ValueError(
                f"this network reads rows of shape {self.shape}; got {tuple(x.shape[1:])}. "
                "Bring images to the size and channels it was made for"
            )
        return self.features(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))


def seeded(seed: int, build: Callable[[], nn.Module]) -> nn.Module:
    """A network with initial weights of its own seed; the global generator is left as it was.

    >>> net = seeded(0, lambda: mlp((4,), n_classes=3))
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def mlp(
    shape: Shape, n_classes: int, hidden: Sequence[int] = (300, 100), batch_norm: bool = False
) -> Network:
    """Affine layers with ReLU between them, on the flattened row; with BatchNorm as in the authors' code.

    >>> mlp((1, 28, 28), n_classes=10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for n_in, n_out in pairwise([prod(shape), *hidden]):
        norm = [nn.BatchNorm1d(n_out)] if batch_norm else []
        layers += [nn.Linear(n_in, n_out), *norm, nn.ReLU()]
    return Network(shape, nn.Sequential(*layers), nn.Linear([prod(shape), *hidden][-1], n_classes))


def lenet5(shape: Shape = (1, 28, 28), n_classes: int = 10) -> Network:
    """LeNet-5 (LeCun et al. 1998) with BatchNorm, ReLU and average pooling; 62,158 parameters for 28 x 28."""
    return Network(shape, _lenet_features(shape), nn.Linear(84, n_classes))


def resnet18(shape: Shape = (3, 32, 32), n_classes: int = 10) -> Network:
    """ResNet-18 (He et al. 2016) for small images: 3x3 stem of stride 1, no max-pool; 11.2 M parameters."""
    channels, *_ = _image(shape, at_least=8)
    blocks = [
        Residual(n_in, n_out, stride)
        for n_in, n_out, stride in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        for n_in, stride in [(n_in, stride), (n_out, 1)]
    ]
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return Network(shape, nn.Sequential(_conv(channels, 64), *blocks, *pool), nn.Linear(512, n_classes))


def resnet9(shape: Shape = (3, 32, 32), n_classes: int = 10, width: int = 32) -> Network:
    """Eight convolutions, two skips, max-pooling; 0.6 M parameters at width 32, for training on a CPU."""
    return Network(shape, _resnet9_features(shape, width), nn.Linear(4 * width, n_classes))


def linear_encoder(shape: Shape, width: int) -> Network:
    """Three affine layers of the flattened row, BatchNorm after each, Softplus between: the paper's encoder.

    Its width is 4096 for CIFAR-10, 6144 for CIFAR-100, 128 for Noisy MNIST.
    """
    first = [nn.Flatten(), nn.Linear(prod(shape), width), nn.BatchNorm1d(width), nn.Softplus()]
    second = [nn.Linear(width, width), nn.BatchNorm1d(width), nn.Softplus()]
    return Network(shape, nn.Sequential(*first, *second), _projection(width, width))


def lenet_encoder(shape: Shape = (1, 28, 28), width: int = 2048) -> Network:
    """LeNet-5 with `width` outputs and a last BatchNorm: the paper's encoder of FashionMNIST."""
    return Network(shape, _lenet_features(shape), _projection(84, width))


def conv_encoder(shape: Shape = (3, 32, 32), width: int = 256, channels: int = 32) -> Network:
    """The features of `resnet9`, brought to `width` outputs and normalised."""
    return Network(shape, _resnet9_features(shape, channels), _projection(4 * channels, width))


class Residual(nn.Module):
    """relu(x + g(x)), g two 3x3 convolutions; where the size changes, x passes a 1x1 convolution."""

    def __init__(self, n_in: int, n_out: int, stride: int = 1) -> None:
        super().__init__()
        self.inner = nn.Sequential(_conv(n_in, n_out, stride), _conv(n_out, n_out)[:2])
        same = stride == 1 and n_in == n_out
        self.skip = nn.Identity() if same else _conv(n_in, n_out, stride, size=1)[:2]

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.skip(x) + self.inner(x))


class Skip(nn.Module):
    """x + g(x), where g ends in a ReLU of its own."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def _conv(n_in: int, n_out: int, stride: int = 1, size: int = 3) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU; the norm's shift makes a bias needless."""
    conv = nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(n_out), nn.ReLU())


def _projection(n_in: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(n_in, width), nn.BatchNorm1d(width))


def _lenet_features(shape: Shape) -> nn.Sequential:
    channels, height, width = _image(shape, at_least=12)
    flat = 16 * prod((side // 2 - 4) // 2 for side in (height, width))

    def stage(n_in: int, n_out: int, padding: int) -> list[nn.Module]:
        conv = nn.Conv2d(n_in, n_out, 5, padding=padding)
        return [conv, nn.BatchNorm2d(n_out), nn.ReLU(), nn.AvgPool2d(2)]

    layers = [*stage(channels, 6, padding=2), *stage(6, 16, padding=0), nn.Flatten()]
    for n_in, n_out in [(flat, 120), (120, 84)]:
        layers += [nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU()]
    return nn.Sequential(*layers)


def _resnet9_features(shape: Shape, width: int) -> nn.Sequential:
    channels, *_ = _image(shape, at_least=8)

    def halved(n_in: int, n_out: int) -> list[nn.Module]:
        return [_conv(n_in, n_out), nn.MaxPool2d(2)]

    def skip(n: int) -> Skip:
        return Skip(nn.Sequential(_conv(n, n), _conv(n, n)))

    w, w2, w4 = width, 2 * width, 4 * width
    stages = [_conv(channels, w), *halved(w, w2), skip(w2), *halved(w2, w4), *halved(w4, w4), skip(w4)]
    return nn.Sequential(*stages, nn.AdaptiveMaxPool2d(1), nn.Flatten())


def _image(shape: Shape, at_least: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape) < 1 or min(shape[1:]) < at_least:
        raise ValueError(
            f"this network reads images of shape (channels, height, width), at least {at_least} pixels each "
            f"way; got {tuple(shape)}. For smaller images or tables take `mlp` or `linear_encoder`"
        )
    channels, height, width = shape
    return channels, height, width
