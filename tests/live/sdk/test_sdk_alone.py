"""The same script without any supervisor: plain python, and torchrun's variables."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
import sdk_crew
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy
from argosy.sdk.group.membership import Leave


def parts(samples: int = 32) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[tuple[torch.Tensor, ...]]]:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    loader = DataLoader(TensorDataset(torch.randn(samples, 4)), batch_size=8, shuffle=True)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), loader


def train(folder: Path | None, epochs: int, stop_at: int | None = None) -> tuple[nn.Module, int]:
    model, optimizer, loader = parts()
    with argosy.job(checkpoints=folder) as job:
        model, optimizer = job.setup(model, optimizer)
        for (values,) in job.batches(loader, epochs=epochs):
            optimizer.zero_grad()
            model(values).square().mean().backward()
            optimizer.step()
            job.report(loss=float("nan"))
            if job.step == stop_at:
                os.kill(os.getpid(), signal.SIGTERM)
        return model, job.step


def test_it_trains_and_leaves_no_trace() -> None:
    before = signal.getsignal(signal.SIGTERM)
    _, steps = train(None, epochs=3)
    assert steps == 12
    assert signal.getsignal(signal.SIGTERM) is before


def test_interrupted_and_started_again_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole, _ = train(None, epochs=3)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Leave) as left:
            train(tmp_path, epochs=3, stop_at=5)
        assert left.value.code == 0
    finally:
        signal.signal(signal.SIGTERM, before)  # one that leaves keeps its handler to the end
    assert [path.name for path in tmp_path.iterdir()] == ["step-5"]
    resumed, steps = train(tmp_path, epochs=3)
    assert steps == 12
    for mine, theirs in zip(whole.parameters(), resumed.parameters()):
        assert torch.equal(mine, theirs)


def test_without_a_place_to_save_a_signal_ends_it_as_usual() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Leave) as left:
            train(None, epochs=3, stop_at=5)
        assert left.value.code == 143
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_loop_over_epochs_with_a_scheduler(tmp_path: Path) -> None:
    def run(stop_at: int | None) -> list[float]:
        model, optimizer, loader = parts()
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        rates = []
        with argosy.job(checkpoints=tmp_path) as job:
            job.setup(model, optimizer, scheduler=scheduler)
            for epoch in job.epochs(4):
                for (values,) in job.batches(loader):
                    optimizer.zero_grad()
                    model(values).square().mean().backward()
                    optimizer.step()
                    if job.step == stop_at:
                        os.kill(os.getpid(), signal.SIGTERM)
                rates.append((epoch, optimizer.param_groups[0]["lr"]))
                scheduler.step()
        return rates

    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Leave):
            run(stop_at=8)  # the last step of an epoch: the script's end of epoch comes before it leaves
    finally:
        signal.signal(signal.SIGTERM, before)
    assert run(None) == [(2, 0.0025), (3, 0.00125)]


def test_schedulers_and_classes_stay_what_they_are() -> None:
    model, optimizer, loader = parts()
    early = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with argosy.job() as job:
        returned = job.setup(model, optimizer, early=early)
        late = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        assert returned == (model, optimizer)
        assert type(optimizer) is torch.optim.AdamW
        for (values,) in job.batches(loader, epochs=1):
            optimizer.zero_grad()
            model(values).mean().backward()
            optimizer.step()
            early.step()
            late.step()
    assert early.last_epoch == late.last_epoch == 4


def test_accumulated_gradients_make_one_step_of_several_batches(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with argosy.job(checkpoints=tmp_path) as job:
        job.setup(model, optimizer)
        for number, (values,) in enumerate(job.batches(loader, epochs=1)):
            with job.no_sync():
                model(values).mean().backward()
            assert job.step == number // 2 * 2
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
    assert optimizer.state[next(model.parameters())]["step"] == 2


def test_torchrun_makes_a_group_of_fixed_size(warm: sdk_crew.Warm, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("sdk_train.py")
    pids = [
        warm.start(
            f"{tmp_path}/{rank}",
            script,
            {
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "EPOCHS": "3",
                "OUT": str(tmp_path),
                "ARGOSY_WORKER": str(rank),
            },
            tmp_path / "log",
        )
        for rank in range(2)
    ]
    try:
        codes = [warm.code(pid) for pid in pids]
        assert codes == [0, 0], (tmp_path / "log").read_text()
    finally:
        for pid in pids:
            if pid not in warm.codes:
                os.kill(pid, signal.SIGKILL)
    ends = [torch.load(tmp_path / f"end-{rank}.pt") for rank in range(2)]
    assert ends[0]["step"] == 12
    assert torch.equal(ends[0]["weights"]["5.weight"], ends[1]["weights"]["5.weight"])


def test_saved_from_time_to_time_and_two_are_kept(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with argosy.job(checkpoints=tmp_path, every=1e-6) as job:
        job.setup(model, optimizer)
        for (values,) in job.batches(loader, epochs=2):
            optimizer.zero_grad()
            model(values).square().mean().backward()
            optimizer.step()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-6", "step-7"]


def test_saved_when_the_script_asks_for_it(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with argosy.job(checkpoints=tmp_path) as job:
        job.setup(model, optimizer)
        for (values,) in job.batches(loader, epochs=1):
            optimizer.zero_grad()
            model(values).square().mean().backward()
            optimizer.step()
            if job.step == 2:
                job.checkpoint()
        assert [path.name for path in tmp_path.iterdir()] == ["step-2"]
        job.checkpoint()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2", "step-4"]


def test_closures_and_scaled_gradients_work_as_ever() -> None:
    def weights(how: str) -> torch.Tensor:
        model, optimizer, loader = parts()
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        with argosy.job() as job:
            job.setup(model, optimizer, scaler=scaler)
            for (values,) in job.batches(loader, epochs=1):

                def closure(values: torch.Tensor = values) -> torch.Tensor:
                    optimizer.zero_grad()
                    loss = model(values).square().mean()
                    (scaler.scale(loss) if how == "scaler" else loss).backward()
                    return loss

                if how == "closure":
                    optimizer.step(closure)
                    continue
                closure()
                if how == "scaler":
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
            assert job.step == 4
        return torch.cat([parameter.flatten() for parameter in model.parameters()])

    torch.testing.assert_close(weights("closure"), weights("plain"), rtol=0, atol=0)
    torch.testing.assert_close(weights("scaler"), weights("plain"))


def test_two_setups_combine_once_for_each_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    from argosy.sdk.session import Session

    combined: list[int] = []
    inner = Session.combine
    monkeypatch.setattr(Session, "combine", lambda session: (combined.append(1), inner(session))[1])
    first, optimizer, loader = parts()
    second = nn.Linear(1, 1)
    with argosy.job() as job:
        job.setup(first, optimizer)
        job.setup(second)
        for (values,) in job.batches(loader, epochs=1):
            optimizer.zero_grad()
            with pytest.raises(RuntimeError):  # a pass that fails must not spoil the next
                torch.ones(3, requires_grad=True).backward()
            second(first(values)).mean().backward()
            optimizer.step()
    assert len(combined) == 4


def test_handed_over_in_two_parts_and_left_in_the_middle(tmp_path: Path) -> None:
    """The state is restored when all parts are registered; a loop that is left early has completed its last step."""

    def run(stop: int) -> list[float]:
        model, optimizer, loader = parts()
        last = nn.Linear(1, 1)
        with argosy.job(checkpoints=tmp_path) as job:
            job.setup(model, optimizer)
            job.setup(last)
            for (values,) in job.batches(loader, epochs=2):
                optimizer.zero_grad()
                last(model(values)).square().mean().backward()
                optimizer.step()
                if job.step == stop:
                    job.checkpoint()
                    break
            assert job.step == stop
        return [parameter.sum().item() for parameter in model.parameters()]

    run(3)
    assert [path.name for path in tmp_path.iterdir()] == ["step-3"]
    interrupted = run(6)
    for path in tmp_path.iterdir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    assert run(6) == interrupted
