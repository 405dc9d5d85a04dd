"""The classifiers set beside CARD: laws of their noise and divergences, draws, scikit-learn's manners."""

import itertools
import json

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Generator, distributions
from torch.nn import functional
from typer.testing import CliRunner

from card import confidence
from card.baselines import METHODS
from card.baselines.bayes import BayesByBackpropClassifier, GaussianLinear
from card.baselines.class_dropout import (
    ConcreteDropoutClassifier,
    GaussianDropoutClassifier,
    MAPClassifier,
    MCDropoutClassifier,
)
from card.baselines.contextual import (
    ContextualDropoutClassifier,
    ContextualGatingClassifier,
    ContextualGatingDropoutClassifier,
    GaussianContextualDropoutClassifier,
)
from card.baselines.contextual_mlp import BernoulliContextMLP, ContextGate, GaussianContextMLP
from card.baselines.noisy_mlp import BernoulliGate, ConcreteGate, Gate, GaussianGate, NoisyMLP
from card.bench import class_score
from card.bench.cli import app
from card.bench.errors import BenchError
from card.bench.experiments import build
from card.bench.kinds import KINDS, Data
from card.bench.methods import find_method
from card.datasets import Images
from card.nn import Linear

CLASSES = {
    "map": MAPClassifier,
    "mc-dropout": MCDropoutClassifier,
    "gaussian-dropout": GaussianDropoutClassifier,
    "concrete-dropout": ConcreteDropoutClassifier,
    "bayes-by-backprop": BayesByBackpropClassifier,
    "contextual-dropout": ContextualDropoutClassifier,
    "contextual-dropout-gaussian": GaussianContextualDropoutClassifier,
    "contextual-gating": ContextualGatingClassifier,
    "contextual-gating-dropout": ContextualGatingDropoutClassifier,
}
WITHOUT_CHANCE = {"map", "contextual-gating"}
FIELDS = {"accuracy", "nll", "pavpu", "ece", "piw_correct", "piw_incorrect", "narrowest_piw_accuracy", "aurc"}
FIELDS |= {"f_accuracy", "f_nll", "f_ece", "f_aurc"}
FIELDS |= {"rejected_accuracy", "not_rejected_accuracy", "not_rejected_count"}
QUICK = {"hidden": (16,), "epochs": 15, "batch_size": 32, "lr": 0.03, "n_draws": 10, "random_state": 0}


def quick(name, **settings):
    """A method that learns from a hundred rows or two; the prior of Gaussian weights is for many more."""
    own = {"prior_scale": 5.0, "start": 0.02} if name == "bayes-by-backprop" else {}
    return CLASSES[name](**{**QUICK, **own, **settings})


def rngs(*seeds):
    return [Generator().manual_seed(seed) for seed in seeds or (0,)]


def rings(n=200, seed=0):
    """Three classes, by the distance from the middle: no straight line tells them apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = 0.2 + y + 0.1 * rng.standard_normal(n)
    X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return X, np.array(["in", "mid", "out"])[y]


def bars(n=90, seed=0):
    """Images of 6 x 6 with a bright bar of two columns in one of three places."""
    y = np.random.default_rng(seed).integers(3, size=n)
    lit = np.arange(6)[None, None, None] // 2 == y[:, None, None, None]
    return np.broadcast_to(250 * lit, (n, 1, 6, 6)).astype(np.uint8), y


@pytest.fixture(scope="module", params=CLASSES)
def learned(request):
    """A method's name and what it has learned of three rings."""
    return request.param, quick(request.param, epochs=30, lr=0.05).fit(*rings())


# ------------------------------------------------------------------------------------ noise and its laws


@pytest.mark.parametrize("gate", [BernoulliGate(0.3), GaussianGate(0.3)])
def test_dropout_keeps_the_mean_and_adds_the_variance_of_its_rate(gate):
    out = gate(torch.ones(1, 200_000, 1), rngs(), common=False)
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)
    assert out.var().item() == pytest.approx(0.3 / 0.7, rel=0.02)


def test_units_are_dropped_for_all_rows_or_for_each_anew():
    x = torch.ones(1, 50, 200)
    common = BernoulliGate(0.5)(x, rngs(), common=True)
    own = BernoulliGate(0.5)(x, rngs(), common=False)
    assert set(common.unique().tolist()) == {0.0, 2.0}
    assert (common == common[:, :1]).all()
    assert not (own == own[:, :1]).all()


@pytest.mark.parametrize("name", ["mc-dropout", "gaussian-dropout"])
def test_dropout_at_rate_zero_is_the_network_alone(name):
    X, y = rings(60)
    wanted = quick("map").fit(X, y).predict_proba(X)
    np.testing.assert_allclose(quick(name, dropout=0.0).fit(X, y).predict_proba(X), wanted, rtol=1e-12)


def test_a_relaxed_gate_decides_as_the_hard_one_does():
    gate, x = ConcreteGate(0.3, 0.1, n_members=1), torch.ones(1, 5000, 1)
    relaxed = gate.train()(x, rngs(), common=False) * 0.7
    hard = gate.eval()(x, rngs(), common=False) * 0.7
    assert (relaxed.round() == hard.round()).all()
    assert hard.mean().item() == pytest.approx(0.7, abs=0.02)
    assert ((relaxed - hard).abs() < 0.05).float().mean() > 0.85, "few are in between"


def test_the_divergence_of_concrete_dropout_is_the_size_kept_less_the_entropy_of_the_gates():
    layer, gate = Linear(4, 3, rngs()), ConcreteGate(0.3, length_scale=0.5, n_members=1)
    gates = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)))
    law = distributions.Bernoulli(0.7)
    sizes = (gates[:, :, None] * layer.weight[0]).square().sum(dim=(1, 2))
    kept = (law.log_prob(gates).sum(1).exp() * sizes).sum()
    wanted = 0.5 * 0.5**2 * kept - 4 * law.entropy()
    assert gate.divergence(layer).item() == pytest.approx(wanted.item(), rel=1e-5)


def test_concrete_dropout_learns_to_keep_a_unit_that_tells_all():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    model = quick("concrete-dropout", dropout=0.4, lr=0.05, epochs=40).fit((2.0 * y - 1)[:, None], y)
    assert model.rates_[0] < 0.1


def test_the_divergence_of_gaussian_weights_is_that_of_torch():
    layer = GaussianLinear(4, 3, prior_scale=0.6, start=0.1, rngs=rngs(0, 1))
    with torch.no_grad():
        for rho in layer.rho:
            rho += torch.randn(rho.shape, generator=rngs(5)[0])
    parts = []
    for mean, scale, wide in zip(layer.mean.parameters(), layer.scales(), [0.3, 0.6], strict=True):
        posterior, prior = distributions.Normal(mean, scale), distributions.Normal(0.0, wide)
        parts.append(distributions.kl_divergence(posterior, prior).flatten(1).sum(1))
    torch.testing.assert_close(layer.divergence(), sum(parts))


@pytest.mark.parametrize("common", [True, False])
def test_outputs_of_gaussian_weights_have_the_moments_of_their_law(common):
    """Weights drawn for all rows, and outputs drawn for each row: the same law."""
    layer, h = GaussianLinear(3, 2, 1.0, 0.4, rngs()), torch.tensor([1.0, -2.0, 0.5])
    with torch.no_grad():
        if common:
            chance = rngs(1)
            out = torch.stack([layer(h[None, None], chance, common=True)[0, 0] for _ in range(4000)])
        else:
            out = layer(h.expand(1, 4000, 3), rngs(1))[0]
        mean = layer.mean(h[None, None])[0, 0]
        variance = 0.4**2 * (h.square().sum() / 3 + 1)
    assert (out.mean(0) - mean).abs().max() < 4 * (variance / 4000) ** 0.5
    torch.testing.assert_close(out.var(0), variance.expand(2), rtol=0.1, atol=0)


# ------------------------------------------------------------------------------------ contexts


@pytest.mark.parametrize(
    ("make", "law"),
    [
        (BernoulliContextMLP, lambda a: distributions.Bernoulli(logits=a)),
        (GaussianContextMLP, lambda a: distributions.Normal(1.0, (-0.5 * a).exp())),
    ],
)
def test_the_divergence_of_contextual_gates_is_that_of_torch(make, law):
    a, eta = torch.linspace(-3, 4, 8), torch.tensor(0.7)
    network = make((2, 3), 0.2, rngs())
    torch.testing.assert_close(
        network.gate_divergence(a, eta), distributions.kl_divergence(law(a), law(eta)), atol=1e-6, rtol=1e-5
    )


def scaled(network, factor):
    """The layers of a contextual network behind plain dropout, weights multiplied by a factor."""
    state = {name: value for name, value in network.state_dict().items() if name.startswith("layers")}
    return {name: value * (factor if "weight" in name else 1) for name, value in state.items()}


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize(
    ("make", "plain", "factor"),
    [(BernoulliContextMLP, BernoulliGate, 0.8), (GaussianContextMLP, GaussianGate, 1)],
)
def test_contextual_gates_that_ignore_the_row_are_plain_dropout(make, plain, factor, common):
    """As they begin: all at one rate. Bernoulli gates do not make up for what they drop, weights do."""
    sizes, x = (5, 4, 3), torch.randn(1, 20, 5, generator=rngs(9)[0])
    network = make(sizes, 0.2, rngs())
    dropout = NoisyMLP(sizes, lambda n_in: plain(0.2), rngs())
    dropout.load_state_dict(scaled(network, factor))
    torch.testing.assert_close(network(x, rngs(3), common), dropout(x, rngs(3), common))


def test_gates_without_chance_that_ignore_the_row_only_scale_it():
    x = torch.randn(1, 7, 5, generator=rngs(9)[0])
    torch.testing.assert_close(ContextGate(5, 0.0, rngs())(x, rngs(), common=True), 0.8 * x)


def test_gates_that_read_the_row_treat_rows_differently():
    model = quick("contextual-dropout").fit(*rings())
    with torch.no_grad():
        a = model.network_.contexts[0](torch.tensor([[[0.1, 0.0], [2.0, 1.0]]]).double())
    assert (a[0, 0] - a[0, 1]).abs().max() > 0.1


def expected_loss(network, x, y):
    """Of a row x (1, 1, I), over all states of the gates of two layers."""
    first = network.contexts[0](x)
    total = network.gate_divergence(first, network.prior[:, 0, None, None]).mean()
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=2)))
    for z in states:
        h = functional.relu(network.layers[0](x * z))
        second = network.contexts[1](h.detach())
        chance = distributions.Bernoulli(logits=first).log_prob(z).sum().exp()
        inner = network.gate_divergence(second, network.prior[:, 1, None, None]).mean()
        for w in states:
            loss = functional.cross_entropy(network.layers[1](h * w)[0], y[0])
            inner = inner + distributions.Bernoulli(logits=second).log_prob(w).sum().exp() * loss
        total = total + chance * inner
    return total


def test_the_mirrored_gates_give_the_gradient_of_the_expected_loss():
    network = BernoulliContextMLP((2, 2, 2), 0.3, rngs(4))
    with torch.no_grad():
        for context in network.contexts:
            context.widen.weight += torch.randn(context.widen.weight.shape, generator=rngs(5)[0])
        for layer in network.layers:
            layer.weight *= 3
    x, y = torch.tensor([[[1.0, -0.5]]]), torch.tensor([[1]])
    parameters = dict(network.named_parameters())
    wanted = torch.autograd.grad(expected_loss(network, x, y), list(parameters.values()))
    n = 40_000
    value = network.loss(x.expand(1, n, 2), y.expand(1, n), rngs(6))
    found = torch.autograd.grad(value.sum(), list(parameters.values()))
    assert value.item() == pytest.approx(expected_loss(network, x, y).item(), rel=0.02)
    for name, a, b in zip(parameters, found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=0.02, rtol=0.05, msg=lambda text, name=name: f"{name}: {text}")
    assert max(float(g.abs().max()) for g in wanted) > 0.1


# ------------------------------------------------------------------------------------ what all of them do


def test_a_problem_without_straight_lines_is_learned(learned):
    _, model = learned
    X, y = rings(150, seed=1)
    assert (model.predict(X) == y).mean() > 0.9


def test_draws_average_to_the_probabilities(learned):
    _, model = learned
    X, _ = rings(30, seed=2)
    draws, proba = model.sample_proba(X), model.predict_proba(X)
    np.testing.assert_allclose(draws.mean(axis=0), proba, atol=1e-12)
    np.testing.assert_allclose(draws.sum(axis=2), 1)
    assert (model.classes_[proba.argmax(axis=1)] == model.predict(X)).all()


@pytest.mark.parametrize("name", CLASSES)
def test_draws_differ_where_there_is_chance(name):
    X, y = rings(60)
    draws = quick(name, epochs=1).fit(X, y).sample_proba(X, n_draws=5)
    assert draws.shape == (5, 60, 3)
    assert (np.ptp(draws, axis=0).max() == 0) == (name in WITHOUT_CHANCE)


@pytest.mark.parametrize("name", CLASSES)
def test_a_row_is_certain_where_the_paired_test_of_its_leading_classes_rejects(name):
    X, y = rings(60)
    model = quick(name, epochs=1).fit(X, y)
    table = model.assess(X, n_draws=12, alpha=0.01)
    if name in WITHOUT_CHANCE:
        assert list(table) == ["label", "vote", "vote_share", "probability"], "nothing to test"
        return
    draws = model.sample_proba(X, n_draws=12)
    lead = confidence.weigh_probabilities(draws)
    a, b = (np.take_along_axis(draws, lead.leading[None, :, [i]], axis=2)[..., 0] for i in (0, 1))
    np.testing.assert_allclose(table["p_value"], stats.ttest_rel(a, b).pvalue, atol=1e-9)
    assert (table["certain"] == (table["p_value"] < 0.01)).all()


def test_rows_do_not_depend_on_their_company(learned, monkeypatch):
    _, model = learned
    X, _ = rings(40, seed=4)
    whole = model.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X[::-1])[::-1], whole, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X[7:8]), whole[7:8], atol=1e-9)
    monkeypatch.setattr("card.baselines.class_base.ROWS", 7)
    np.testing.assert_allclose(model.predict_proba(X), whole, atol=1e-9)
    assert len(model.assess(X)) == 40


def test_a_seed_fixes_the_result_and_another_changes_it(learned):
    name, _ = learned
    X, y = rings(60)
    before = torch.random.get_rng_state()
    a, b, c = (quick(name, epochs=2, random_state=s).fit(X, y).predict_proba(X) for s in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, c)
    assert torch.equal(torch.random.get_rng_state(), before), "nobody else's chance is touched"


def test_settings_are_those_of_the_constructor(learned):
    name, _ = learned
    model = clone(quick(name, noise=0.5))
    assert model.get_params()["noise"] == 0.5
    assert set(model.get_params()) >= {"hidden", "epochs", "batch_size", "lr", "n_draws", "random_state"}
    assert repr(model).startswith(CLASSES[name].__name__)


@parametrize_with_checks([quick(name, hidden=(8,), epochs=8, lr=0.1) for name in ("map", "mc-dropout")])
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_images_are_read_by_their_pixels(learned):
    name, _ = learned
    X, y = bars()
    model = quick(name).fit(X, y)
    assert (model.predict(X) == y).all()
    np.testing.assert_allclose(model.predict_proba(X / np.float32(255)), model.predict_proba(X), atol=1e-6)


def test_every_look_at_a_training_row_has_noise_of_its_own(monkeypatch):
    seen = []

    def look(self, network, x, y, rngs, n_rows):
        seen.append(x)
        return network(x, rngs).square().mean(dim=(1, 2))

    monkeypatch.setattr(MAPClassifier, "_loss", look)
    X = np.zeros((64, 1, 6, 6), np.uint8)
    model = quick("map", noise=0.5, epochs=3).fit(X, np.arange(64) % 2)
    noise = torch.stack(seen)
    assert noise.std().item() == pytest.approx(0.5, rel=0.05)
    assert len(noise.unique()) > 0.99 * noise.numel()
    assert np.ptp(model.predict_proba(X), axis=0).max() == 0, "but none at prediction"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("map", {"epochs": 0}, "epochs must be above 0, got 0"),
        ("map", {"hidden": (5, 0)}, r"hidden must be above 0, got \(5, 0\)"),
        ("map", {"noise": -1.0}, "noise must be 0 or above, got -1.0"),
        ("map", {"n_draws": 1}, "n_draws"),
        ("mc-dropout", {"dropout": 1.0}, "dropout must be a rate of 0 or more and below 1, got 1.0"),
        ("gaussian-dropout", {"dropout": -0.1}, "dropout must be a rate"),
        ("contextual-gating-dropout", {"dropout": 1.5}, "dropout must be a rate"),
        ("concrete-dropout", {"dropout": 0.0}, "dropout must lie strictly between 0 and 1, got 0.0"),
        ("concrete-dropout", {"length_scale": 0.0}, "length_scale must be above 0"),
        ("contextual-dropout", {"dropout": 0.0}, "dropout must lie strictly between 0 and 1"),
        ("bayes-by-backprop", {"prior_scale": 0.0}, "prior_scale must be above 0"),
        ("bayes-by-backprop", {"kl_weight": -1.0}, "kl_weight must be 0 or above"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        quick(name, **settings).fit(*rings(20))


def test_rows_that_are_not_those_of_the_fit_are_refused():
    X, y = bars(20)
    with pytest.raises(NotFittedError):
        quick("map").predict_proba(X)
    model = quick("map", epochs=1).fit(X, y)
    with pytest.raises(ValueError, match=r"images of shape \(1, 6, 6\) .* were wanted"):
        model.predict_proba(X[:, :, :5])
    with pytest.raises(ValueError, match="one class only"):
        quick("map").fit(X, np.zeros(20))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        quick("map").fit(X, y[:5])


def test_votes_and_tests_of_probabilities_are_those_of_prototypes():
    draws = np.random.default_rng(0).normal(0.3, 0.4, (30, 25, 4))
    evidence = confidence.weigh(draws, tau=0.5)
    lead = confidence.weigh_probabilities(confidence.probabilities(draws, tau=0.5))
    for name in ("proba", "votes", "leading", "p_value"):
        np.testing.assert_allclose(getattr(lead, name), getattr(evidence, name), atol=1e-12)
    assert "piw_a" not in confidence.assess(lead, list("abcd"))


# ------------------------------------------------------------------------------------ in the benchmark


@pytest.mark.parametrize("name", CLASSES)
def test_the_benchmark_builds_every_method(name):
    method = find_method(name)
    method.check("default", "classification", {"epochs": 3})
    model = method.build["classification"]("default", {"epochs": 3}, 7)
    assert isinstance(model, CLASSES[name])
    assert (model.epochs, model.random_state) == (3, 7)
    assert METHODS[name] is method
    with pytest.raises(BenchError, match="epochs must be above 0, got 0"):
        method.check("default", "classification", {"epochs": 0})


def test_one_name_serves_both_tasks():
    method = find_method("mc-dropout")
    assert set(method.build) == {"regression", "classification"}
    assert "n_passes" in method.parameters("regression")
    assert "noise" in method.parameters("classification")


def test_networks_without_gates_are_plain_ones():
    x = torch.randn(2, 7, 5, generator=rngs(9)[0])
    network = NoisyMLP((5, 4, 3), lambda n_in: Gate(), rngs(0, 1))
    hidden = functional.relu(network.layers[0](x))
    torch.testing.assert_close(network(x, rngs(0, 1)), network.layers[1](hidden))
    assert (network.divergence() == 0).all()


@pytest.fixture
def small_images(monkeypatch):
    """In the place of every image set: three kinds of bars, the test images noisy."""

    def load(name):
        (X, y), (X_test, y_test) = bars(120), bars(60, seed=1)
        noisy = X_test / 255 + 0.5 * np.random.default_rng(2).normal(size=X_test.shape)
        return Images(name, X, y, noisy.astype(np.float32), y_test, ("a", "b", "c"))

    monkeypatch.setattr("card.datasets.load_image", load)


def bench(*words):
    said = CliRunner().invoke(app, [word for text in words for word in text.split()])
    assert said.exit_code == 0, said.output
    return said.output


def test_lines_have_the_fields_of_cards_and_stand_in_the_table_beside_the_paper(tmp_path, small_images):
    settings = "--set epochs=20 --set hidden=[16] --set lr=0.01 --set noise=0.5 --set batch_size=30"
    names = "map,mc-dropout,bayes-by-backprop"
    where = f"--results {tmp_path}"
    bench(f"run classification --datasets noisy_mnist --seeds 0-1 --methods {names} {settings} {where}")
    lines = [json.loads(line) for line in (tmp_path / "classification.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines] == [0, 1] * 3
    assert [line["method"] for line in lines[::2]] == names.split(",")
    for line in lines:
        assert "variant" not in line, "variants are CARD's"
        assert set(line["metrics"]) >= FIELDS
        assert line["metrics"]["accuracy"] > 80
        assert line["n_draws"] == (None if line["method"] == "map" else 100)
        assert (line["metrics"]["pavpu"] is None) == (line["method"] == "map")
        assert line["metrics"]["piw_correct"] is line["metrics"]["f_accuracy"] is None
        assert [entry["class"] for entry in line["by_class"]] == ["0", "1", "2"]
    text = bench(f"table classification {where}")
    rows = [line.split("  ")[0] for line in text.splitlines()]
    assert rows.index("MC - Bernoulli (paper)") == rows.index("mc-dropout") + 1
    assert rows.index("Bayes by Backprop (paper)") == rows.index("bayes-by-backprop") + 1
    assert "CM-MF-VI (paper)" in rows
    assert "inf" not in text
    assert "mc-dropout" not in bench(f"table classification --methods map {where}")


def test_a_classifier_with_probabilities_alone_is_scored_by_them(small_images):
    data = KINDS["image"].load("noisy_mnist", 0, "default")
    model = LogisticRegression().fit(data.X_train.reshape(120, -1) / 255, data.y_train)
    flat = Data(None, data.y_train, data.X_test.reshape(60, -1), data.y_test)
    part, _ = class_score.assessed(model, flat, "noisy_mnist")
    assert part["metrics"]["accuracy"] > 80
    assert part["metrics"]["aurc"] < 0.2
    missing = {name for name, value in part["metrics"].items() if value is None}
    assert missing >= {"pavpu", "piw_correct", "f_nll", "vote_accuracy", "not_rejected_count"}


def test_variants_are_of_the_methods_named_and_the_others_run_once():
    raw = {
        "kind": "image",
        "datasets": ["noisy_mnist"],
        "seeds": "0",
        "methods": ["card", "map"],
        "variants": [{"name": "a", "set": {"tau": 1.0}}, {"name": "b", "set": {"tau": 2.0}}],
    }
    units = build("x", {**raw, "variants_of": ["card"]}).units()
    assert [(u.method, u.variant) for u in units] == [("card", "a"), ("map", ""), ("card", "b")]
    with pytest.raises(BenchError, match="parameter of map 'tau'"):
        build("x", raw)
    with pytest.raises(BenchError, match="unknown method 'cart'"):
        build("x", {**raw, "variants_of": "cart"})
