"""Images: base networks, encoders, modules of the user's, noise and shifts."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from card import CARDClassifier, load, networks
from card.class_networks import teach
from card.class_together import fit_around_one
from card.views import noisy, shift

QUICK = {"epochs": 6, "mean_epochs": 4, "cv": 2, "n_draws": 20, "batch_size": 32, "random_state": 0}
RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=240)
X = (
    RNG.integers(0, 90, size=(240, 1, 12, 12)) + 160 * (np.arange(12) // 4 == Y[:, None, None, None])
).astype(np.uint8)


def accuracy(clf: CARDClassifier) -> float:
    return float((clf.predict(X) == Y).mean())


def flat_module(n_out: int, width: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(144, width), nn.ReLU(), nn.Linear(width, n_out))


CASES = {
    "a network for each fold": {},
    "mlp": {"mean": "mlp-bn", "mean_hidden": (16,)},
    "one network, rows held out": {"cv": [(np.arange(200), np.arange(200, 240))]},
    "one network, own encoder": {"cv": [(np.arange(200), np.arange(200, 240))], "encoder": "linear"},
    "an encoder for each fold": {"mean": "mlp", "encoder": "lenet", "width": 16},
    "scikit-learn on flattened images": {"mean": LogisticRegression()},
    "the user's module": {"mean": flat_module(3)},
    "the user's encoder": {"mean": "mlp", "encoder": flat_module(8)},
    "frozen features": {"mean": "mlp", "encoder": flat_module(8).requires_grad_(False)},
    "shifted while learning": {"augment": "flip-shift", "mean": "mlp-bn"},
}


@pytest.mark.parametrize("case", CASES)
def test_images_are_classified(case):
    clf = CARDClassifier(**QUICK | CASES[case]).fit(X, Y)
    assert accuracy(clf) > 0.9
    assert clf.assess(X[:5], n_draws=10).shape == (5, 9)
    np.testing.assert_allclose(clf.predict_proba(X[:7]), clf.predict_proba(X)[:7], atol=1e-5)


PAPER = {"epochs": 80, "n_steps": 10, "beta_T": 0.6, "mean_epochs": 3, "width": 16, "ema": 0.9, "lr": 5e-3}
PAPER |= {"n_draws": 10, "batch_size": 40, "random_state": 0}


@pytest.mark.parametrize(
    ("encoder", "prior", "mean_input"),
    [("linear", "mean", True), ("lenet", "zero", False), (flat_module(16), "mean", False)],
)
def test_the_papers_network_reads_images(encoder, prior, mean_input):
    settings = PAPER | {"encoder": encoder, "prior": prior, "mean_input": mean_input}
    assert accuracy(CARDClassifier.from_recipe("paper", **settings).fit(X[:120], Y[:120])) > 0.6


def test_a_frozen_module_is_taken_as_it_is_and_left_alone():
    module = flat_module(3).requires_grad_(False)
    before = [p.clone() for p in module.parameters()]
    clf = CARDClassifier(**QUICK, mean=module).fit(X, Y)
    wanted = torch.softmax(module(torch.from_numpy(X / np.float32(255))), dim=1).numpy()
    np.testing.assert_allclose(clf.predict_mean_model(X), wanted, atol=2e-3)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_a_fitted_classifier_reads_flattened_pixels_as_it_learned_them():
    f = LogisticRegression(max_iter=200).fit(X.reshape(240, -1), Y)
    clf = CARDClassifier(**QUICK, mean=f).fit(X, Y)
    np.testing.assert_allclose(clf.predict_mean_model(X), f.predict_proba(X.reshape(240, -1)), atol=2e-3)


def test_the_papers_network_reads_frozen_features_and_is_stored(tmp_path):
    frozen = flat_module(8).requires_grad_(False)
    clf = CARDClassifier.from_recipe("paper", **PAPER, encoder=frozen).fit(X[:120], Y[:120])
    assert clf.predict_proba(X[:5]).sum(1) == pytest.approx(1.0)
    clf.save(tmp_path / "m.card")
    again = load(tmp_path / "m.card", modules={"encoder": frozen})
    assert np.array_equal(again.predict_proba(X[:5]), clf.predict_proba(X[:5]))


def test_frozen_modules_are_stored_with_how_they_read_pixels(tmp_path):
    module = flat_module(3).requires_grad_(False)
    clf = CARDClassifier(**QUICK, mean=module).fit(X, Y)
    clf.save(tmp_path / "m.card")
    again = load(tmp_path / "m.card", modules={"mean": module})
    assert np.array_equal(again.predict_mean_model(X), clf.predict_mean_model(X))


class Awkward(nn.Module):
    """A frozen body, a head to train, a part that is never used, tied weights, a passing buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(144, 16).requires_grad_(False)
        self.first, self.again = nn.Linear(16, 16), nn.Linear(16, 16)
        self.again.weight = self.first.weight
        self.unused, self.head = nn.Linear(16, 2), nn.Linear(16, 3)
        self.register_buffer("gain", torch.full((1,), 2.0), persistent=False)

    def forward(self, x):
        h = torch.relu(self.body(x.flatten(1)))
        return self.head(self.gain * torch.relu(self.again(torch.relu(self.first(h)))))


def test_a_frozen_body_is_kept_while_the_rest_of_the_module_learns():
    module = networks.seeded(0, Awkward)
    clf = CARDClassifier(**QUICK | {"mean_epochs": 20}, mean=module).fit(X, Y)
    learned = clf.model_.reader.mean.stacked.member(0)
    assert torch.equal(learned.body.weight, module.body.weight)
    assert not torch.equal(learned.head.weight, module.head.weight)
    assert accuracy(clf) > 0.8


@pytest.mark.parametrize("dtype", [np.int64, np.uint16])
def test_whole_numbers_of_a_byte_are_pixels_however_they_are_stored(dtype):
    clf = CARDClassifier(**QUICK, mean="mlp").fit(X.astype(dtype), Y)
    assert np.array_equal(clf.predict_proba(X), clf.predict_proba(X.astype(dtype)))
    assert accuracy(clf) > 0.9


def test_a_module_that_is_trained_is_a_copy():
    module = flat_module(3)
    before = [p.detach().clone() for p in module.parameters()]
    CARDClassifier(**QUICK, mean=module).fit(X, Y)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_the_encoder_runs_once_a_row_whatever_the_draws():
    class Counting(nn.Module):
        rows = 0

        def __init__(self):
            super().__init__()
            self.inner = flat_module(16)

        def forward(self, x):
            Counting.rows += len(x)
            return self.inner(x)

    for settings in (QUICK | {"mean": "mlp"}, PAPER | {"denoiser": "table", "cv": None, "mean": "mlp"}):
        clf = CARDClassifier(**settings | {"encoder": Counting(), "width": 16}).fit(X, Y)
        Counting.rows = 0
        clf.sample(X[:32], n_draws=50, random_state=0)
        assert Counting.rows == 32 * clf.model_.n_members


class Witness(nn.Module):
    """A network that keeps what it reads: while it learns, and while it is only asked."""

    def __init__(self, n_out: int) -> None:
        super().__init__()
        self.layers = flat_module(n_out)
        self.learned, self.asked = [], []

    def __deepcopy__(self, memo):
        return self  # the very one that the test holds

    def forward(self, x):
        (self.learned if self.training else self.asked).append(x.detach().numpy().copy())
        return self.layers(x)


def test_the_papers_network_meets_noise_drawn_anew_at_every_look_and_f_reads_the_same():
    f, encoder = Witness(3), Witness(16)
    settings = PAPER | {"denoiser": "table", "cv": None, "epochs": 4, "noise": 0.5, "copies": 3}
    CARDClassifier(**settings, mean=f, encoder=encoder).fit(X, Y)
    met = np.concatenate([batch for batch in encoder.learned if len(batch) > 2])
    assert len(met) == 4 * len(X)  # an epoch is every row once
    assert len(np.unique(met[:, 0, 0, 0])) == len(met)
    asked = {image.tobytes() for batch in f.asked for image in batch}
    assert all(image.tobytes() in asked for image in met)


def test_noise_is_fresh_in_every_copy_and_of_the_asked_size():
    copies = noisy(np.zeros((50, 1, 8, 8), np.uint8), 2.0, 3, np.random.default_rng(0))
    assert copies.shape == (150, 1, 8, 8)
    assert copies.std() == pytest.approx(2.0, rel=0.05)
    assert not np.array_equal(copies[:50], copies[50:100])
    assert noisy(X, 0.0, 3, np.random.default_rng(0)) is X


def test_rows_that_are_noisy_at_predict_are_learned_from_noisy_ones():
    clf = CARDClassifier(**QUICK | {"mean": "mlp-bn", "noise": 0.3, "copies": 2}).fit(X, Y)
    test = noisy(X, 0.3, 1, np.random.default_rng(1))
    assert (clf.predict(test) == Y).mean() > 0.9


def test_a_shift_moves_the_whole_image_and_a_mirror_keeps_its_pixels():
    x = torch.zeros(40, 1, 9, 9)
    x[:, :, 4, 4] = 1.0
    moved = shift(x, torch.Generator().manual_seed(0), reach=2, flip=True)
    assert torch.equal(moved.sum(dim=(1, 2, 3)), torch.ones(40))
    at = moved.flatten(1).argmax(1)
    assert len(set(at.tolist())) > 10
    assert set((at // 9).tolist()) <= {2, 3, 4, 5, 6}


def test_grey_images_need_no_channel_axis():
    clf = CARDClassifier(**QUICK, mean="mlp").fit(X[:, 0], Y)
    np.testing.assert_allclose(clf.predict_proba(X), clf.predict_proba(X[:, 0]))


def test_images_of_another_size_or_kind_are_refused():
    clf = CARDClassifier(**QUICK, mean="mlp").fit(X, Y)
    with pytest.raises(ValueError, match=r"images of shape \(1, 12, 12\).*got \(1, 10, 12\)"):
        clf.predict(X[:, :, :10])
    with pytest.raises(ValueError, match="images of shape"):
        clf.predict(X.reshape(240, -1))
    with pytest.raises(ValueError, match="NaN or infinite"):
        clf.predict(np.full((2, 1, 12, 12), np.nan))
    table = CARDClassifier(**QUICK, mean=LogisticRegression()).fit(X.reshape(240, -1), Y)
    with pytest.raises(ValueError, match="dim 4"):
        table.predict(X)


def test_modules_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"logits of shape \(rows, 3\)"):
        CARDClassifier(**QUICK, mean=flat_module(4)).fit(X, Y)
    with pytest.raises(ValueError, match="encoder does not read rows"):
        CARDClassifier(**QUICK, mean="mlp", encoder=nn.Linear(5, 3)).fit(X, Y)
    with pytest.raises(ValueError, match="at least 12 pixels"):
        CARDClassifier(**QUICK, mean="lenet5").fit(X[:, :, :8, :8], Y)


VARIANTS = [{"prior": prior, "mean_input": reads} for prior in ("mean", "zero") for reads in (True, False)]


@pytest.mark.parametrize("encoder", ["auto", "linear"])
def test_classifiers_around_one_f_are_what_they_are_alone(encoder, monkeypatch):
    taught = []
    for module in ("card.base", "card.class_fit"):
        monkeypatch.setattr(f"{module}.teach", lambda *words: taught.append(1) or teach(*words))
    settings = QUICK | {"mean": "mlp-bn", "encoder": encoder}
    together = [CARDClassifier(**settings | variant) for variant in VARIANTS]
    fit_around_one(together, X, Y)
    assert len(taught) == (2 if encoder == "auto" else 4), "for each fold, whatever the number of variants"
    for clf, variant in zip(together, VARIANTS, strict=True):
        alone = CARDClassifier(**settings | variant).fit(X, Y)
        np.testing.assert_array_equal(clf.predict_mean_model(X[:20]), alone.predict_mean_model(X[:20]))
        np.testing.assert_array_equal(clf.predict_proba(X[:20]), alone.predict_proba(X[:20]))
        np.testing.assert_array_equal(clf.assess(X[:20], 10), alone.assess(X[:20], 10))


def test_classifiers_around_one_f_must_agree_in_it():
    with pytest.raises(ValueError, match="must agree in mean_epochs"):
        fit_around_one([CARDClassifier(mean_epochs=2), CARDClassifier(mean_epochs=3, lr=0.1)], X, Y)


def test_a_killed_fit_around_one_f_does_not_fit_f_again(tmp_path, monkeypatch):
    settings = QUICK | {"mean": "mlp-bn", "checkpoint_path": str(tmp_path / "kept")}
    whole = [CARDClassifier(**QUICK | {"mean": "mlp-bn"} | variant) for variant in VARIANTS[:2]]
    fit_around_one(whole, X, Y)
    killed = [CARDClassifier(**settings | variant) for variant in VARIANTS[:2]]
    with monkeypatch.context() as patch:
        patch.setattr("card.class_fit.judge", _killed)
        with pytest.raises(KeyboardInterrupt):
            fit_around_one(killed, X, Y)
    monkeypatch.setattr("card.class_networks.functional", None)  # what f would learn by
    fit_around_one(killed, X, Y)
    for one, other in zip(killed, whole, strict=True):
        np.testing.assert_array_equal(one.predict_proba(X[:20]), other.predict_proba(X[:20]))
    assert not (tmp_path / "kept").exists()


def _killed(*words):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("role", "module", "message"),
    [
        ("mean", flat_module(4), r"one for each class; this one gives \('rows', 4\)"),
        ("mean", nn.Linear(7, 3), "does not read rows of shape"),
        ("encoder", nn.Conv2d(1, 2, 3), "must give"),
    ],
)
def test_a_frozen_module_of_another_shape_is_refused(role, module, message):
    with pytest.raises(ValueError, match=message):
        CARDClassifier(**QUICK | {role: module.requires_grad_(False)}).fit(X, Y)
