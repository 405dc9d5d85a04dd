import pytest
import torch

from card.noise import Schedule, cosine, even_log_snr, from_betas, linear


@pytest.mark.parametrize(
    "schedule", [linear(), linear(50, 1e-3, 0.35), cosine(200), even_log_snr(12, 0.01, 30)]
)
def test_variance_is_preserved_and_node_zero_is_clean(schedule: Schedule):
    assert torch.allclose(schedule.alpha**2 + schedule.sigma**2, torch.ones_like(schedule.alpha), atol=1e-15)
    assert schedule.alpha[0] == 1
    assert schedule.sigma[0] == 0


@pytest.mark.parametrize("schedule", [linear(), cosine(200), even_log_snr(12, 0.01, 30)])
def test_log_snr_falls_along_the_nodes(schedule: Schedule):
    assert (torch.diff(schedule.log_snr) < 0).all()


def test_closed_form_equals_the_composition_of_one_step_transitions():
    beta = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
    mean, variance = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    schedule = from_betas(beta)
    for k, b in enumerate(beta, start=1):
        mean, variance = (1 - b).sqrt() * mean, (1 - b) * variance + b
        assert torch.allclose(schedule.alpha[k], mean, rtol=1e-12)
        assert torch.allclose(schedule.sigma[k] ** 2, variance, rtol=1e-11)


def test_linear_schedule_of_the_paper_ends_near_pure_noise():
    assert float(linear().alpha[-1] ** 2) == pytest.approx(4.04e-5, rel=1e-2)


def test_even_log_snr_has_equal_steps_between_the_given_ratios():
    schedule = even_log_snr(9, 0.02, 50.0)
    ratio = schedule.sigma[1:] / schedule.alpha[1:]
    assert ratio[0] == pytest.approx(0.02)
    assert ratio[-1] == pytest.approx(50.0)
    assert torch.allclose(
        torch.diff(schedule.log_snr[1:]), torch.diff(schedule.log_snr[1:])[0].expand(8), atol=1e-9
    )


def test_diffuse_mixes_signal_and_noise_by_the_node_of_each_row():
    schedule = linear(10, 0.1, 0.5)
    r, eps = torch.full((2, 3, 1), 2.0), torch.full((2, 3, 1), -1.0)
    k = torch.tensor([[0, 1, 10], [3, 3, 3]])
    out = schedule.diffuse(r, eps, k)
    assert torch.allclose(out[..., 0].double(), 2 * schedule.alpha[k] - schedule.sigma[k], atol=1e-6)


def test_impossible_schedules_are_refused_in_plain_words():
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        linear(10, 0.1, 1.0)
    with pytest.raises(ValueError, match="0 < noise_min < noise_max"):
        even_log_snr(5, 1.0, 0.5)
