"""Tables of the live benchmarks, from the figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from argosy.report.stats import paired_ratio
from benchmarks.harness import Json, Row
from benchmarks.live_yard import typical

HEAD = ("what", "measured", "target", "met", "load average")


def target_table(figures: Json) -> Sequence[Row]:
    """Every target of the design that has been measured."""
    rows: list[Row] = [HEAD]
    for part, make in (
        ("resize", _resize),
        ("kill", _kill),
        ("suspend", _suspend),
        ("exact", _exact),
        ("daemon", _daemon),
        ("answers", _answers),
        ("shadow", _shadow),
        ("restart", _restart),
        ("soak", _soak),
    ):
        if part in figures:
            made = figures[part]["made"]
            load = f"{made['load_average_before']:.1f} … {made['load_average_after']:.1f}"
            rows += [(*row, load) for row in make(figures[part])]
    return rows


def resize_table(figures: Json) -> Sequence[Row]:
    """Each kind of resize."""
    rows: list[Row] = [("workers", "times", "request → next step", "training gap", "longest gap", "a normal step")]
    cases = figures["resize"]["cases"]
    for kind in dict.fromkeys((case["from"], case["to"]) for case in cases):
        some = [case for case in cases if (case["from"], case["to"]) == kind]
        gaps = [case["gap_s"] for case in some]
        rows.append(
            (
                f"{kind[0]} → {kind[1]}",
                str(len(some)),
                _s(typical([c["request_s"] for c in some])),
                _s(typical(gaps)),
                _s(max(gaps)),
                _s(typical([c["step_s"] for c in some])),
            )
        )
    return rows


def reliability_table(figures: Json) -> Sequence[Row]:
    """What was done to it, and whether it held."""
    rows: list[Row] = [("what happens", "what must hold", "held", "how often")]
    parts = [figures[part] for part in ("fuzz", "kills", "reliability") if part in figures]
    for case in (case for part in parts for case in part["cases"]):
        held = case["tests"] > 0 and case["passed"] == case["tests"]
        told = [f"{value} {name}" for name, value in case["figures"].items()]
        tests = "" if case["tests"] == 1 else f"{case['tests']} tests"
        rows.append((case["what"], case["held"], _yes(held), ", ".join(filter(None, [*told, tests]))))
    return rows


def drift_table(figures: Json) -> Sequence[Row]:
    """Pairs of runs: the median of each column, and the largest."""
    rows: list[Row] = [("two runs", "pairs", "difference of weights (relative)", "difference of losses", "mean losses")]
    names = {
        "exact": "exact mode, undisturbed and disturbed",
        "default": "default mode, undisturbed and disturbed",
        "seeds": "default mode, two seeds, both undisturbed",
        "no-norm": "default mode without batch norm, undisturbed and disturbed",
        "no-norm seeds": "default mode without batch norm, two seeds, both undisturbed",
    }
    for kind, name in names.items():
        found = figures["exact"]["drift"][kind]
        apart = "none: the same bits" if all(one["same_bits"] for one in found) else _spread(found, "weights", ".2g")
        means = (sum(losses) / len(found) for losses in zip(*(one["losses"] for one in found)))
        row = (name, str(len(found)), apart, _spread(found, "loss", ".4f"), " and ".join(f"{m:.4f}" for m in means))
        rows.append((*row[:4], "") if kind.endswith("seeds") else row)
    return rows


def _spread(found: Sequence[Json], what: str, form: str) -> str:
    values = [one[what] for one in found]
    shown, longest = format(typical(values), form), format(max(values), form)
    return shown if len(values) == 1 else f"{shown}, up to {longest}"


def _resize(part: Json) -> Iterator[tuple[str, str, str, str]]:
    cases = part["cases"]
    gaps = [case["gap_s"] - case["step_s"] for case in cases]
    requests = [case["request_s"] for case in cases]
    shown = f"median {_s(typical(gaps))}, longest {_s(max(gaps))}"
    yield f"hot resize, {len(cases)} times: training gap beyond one step", shown, "≤ 0.5 s", _share(gaps, 0.5)
    shown = f"median {_s(typical(requests))}, longest {_s(max(requests))}"
    yield "hot resize: request → next step", shown, "≤ 1 s", _share(requests, 1.0)
    for name in ("worker", "supervisor"):
        before, after = part["before"][name], part["after"][name]
        grown = {key: after[key] - before[key] for key in ("descriptors", "threads", "rss_mib")}
        clean = grown["descriptors"] <= 0 and grown["threads"] <= 0 and grown["rss_mib"] < 20
        shown = f"{grown['descriptors']:+d} descriptors, {grown['threads']:+d} threads, {grown['rss_mib']:+.1f} MiB"
        yield f"growth of the {name} that stays, resizes 5 to {len(cases)}", shown, "none", _yes(clean)
    yield (
        "steps lost or done twice in these resizes",
        "none" if part["steps_in_order"] else "some",
        "none",
        _yes(part["steps_in_order"]),
    )


def _kill(part: Json) -> Iterator[tuple[str, str, str, str]]:
    times = [case["next_step_s"] for case in part["cases"]]
    shown = f"median {_s(typical(times))}, longest {_s(max(times))}"
    yield f"`kill -9` of a worker of three, {len(times)} times: next step", shown, "≤ 1 s", _share(times, 1.0)
    in_order = part["steps_in_order"]
    yield "completed steps lost by the kill", "none" if in_order else "some", "none", _yes(in_order)


def _suspend(part: Json) -> Iterator[tuple[str, str, str, str]]:
    for case in part["cases"]:
        beyond = case["suspend_s"] - (case["checkpoint_s"] or 0.0)
        yield "suspend, beyond the checkpoint", _s(beyond), "≤ 1 s", _yes(beyond <= 1.0)
        resume_s = case["resume_s"]
        goal = ("", "") if case["cold"] else ("≤ 2 s", _yes(resume_s <= 2.0))
        yield f"resume in a {'cold' if case['cold'] else 'warm'} worker, to the first step", _s(resume_s), *goal
        yield "steps lost by both", str(case["lost_steps"]), "0", _yes(case["lost_steps"] == 0)


def _exact(part: Json) -> Iterator[tuple[str, str, str, str]]:
    same = all(one["same_bits"] for one in part["drift"]["exact"])
    told = f"{part['steps']} steps; resizes 1→2→4→3→1, a kill, a suspension"
    yield f"exact mode ({told})", "the same bits" if same else "different bits", "the same bits", _yes(same)
    for case in part["overhead"]:
        cpu = case["cpu_s"]
        shown = f"{case['overhead']:+.0%} ({cpu['default'] * 1e3:.0f} → {cpu['exact'] * 1e3:.0f} ms of CPU a step;"
        shown += f" four passes without exact mode: {case['overhead_of_parts']:+.0%})"
        yield f"exact mode's cost: {case['network']}", shown, "≤ 10 %", _yes(case["overhead"] <= 0.10)
    kinds = (("default", "seeds", "default mode"), ("no-norm", "no-norm seeds", "the same, no batch norm"))
    for kind, others, what in kinds:
        drift, seeds = ([one["loss"] for one in part["drift"][name]] for name in (kind, others))
        shown = f"median {typical(drift):.4f}, largest {max(drift):.4f}"
        noise = f"two seeds: {typical(seeds):.4f}, {max(seeds):.4f}"
        met = typical(drift) <= typical(seeds) and max(drift) <= max(seeds)
        yield (
            f"{what}: difference of final losses, disturbed or not, {len(drift)} seeds",
            f"{shown} ({noise})",
            "within seed noise",
            _yes(met),
        )


def _daemon(part: Json) -> Iterator[tuple[str, str, str, str]]:
    batch, single = part["batch_submissions_per_s"], part["single_submissions_per_s"]
    yield "submissions in batches of 1,000", f"{batch:,.0f}/s", "≥ 1,000/s", _yes(batch >= 1000)
    yield f"submissions one by one, {part['clients']} clients", f"{single:,.0f}/s", "≥ 1,000/s", _yes(single >= 1000)
    if "array_turn_s" in part:
        turn = part["array_turn_s"]
        shown = f"{turn * 1e3:.0f} ms of CPU"
        yield (
            "longest iteration of the event loop while an array of 20,000 is accepted",
            shown,
            "≤ 50 ms",
            _yes(turn <= 0.05),
        )
    yield "jobs lost", str(part["lost"]), "0", _yes(part["lost"] == 0)
    queue = part["queue_s"]
    shown = f"median {queue['median'] * 1e3:.0f} ms, 99 % {queue['p99'] * 1e3:.0f} ms"
    yield f"a page of the queue, {part['queued']:,} waiting", shown, "≤ 100 ms", _yes(queue["p99"] <= 0.1)
    for name, when in (("pass_s", "none waiting"), ("pass_with_queue_s", f"{part['queued']:,} waiting")):
        found = part[name]
        shown = f"mean {found['mean'] * 1e3:.1f} ms, {found['within_20ms']:.0%} within 20 ms"
        yield (
            f"a pass without the policy, {part['running']:,} running, {when}",
            shown,
            "≤ 20 ms",
            _yes(found["mean"] <= 0.02),
        )


def _answers(part: Json) -> Iterator[tuple[str, str, str, str]]:
    for name in ("eta", "explain"):
        found = part[f"{name}_s"]
        shown = f"median {found['median'] * 1e3:.0f} ms, 99 % {found['p99'] * 1e3:.0f} ms"
        what = f"`argosy {name}`'s answer for one job, {part['queued']:,} waiting"
        yield what, shown, "≤ 200 ms", _yes(found["p99"] <= 0.2)


def _shadow(part: Json) -> Iterator[tuple[str, str, str, str]]:
    more, rate = part["more_of_a_cpu"], part["with"]["decisions_per_s"]
    shown = f"{more:+.1%} of a CPU ({part['without']['of_a_cpu']:.1%} → {part['with']['of_a_cpu']:.1%})"
    what = f"what a shadow ({part['shadow']}) adds to the daemon's CPU time, {rate:.1f} decisions a second"
    yield what, shown, "≤ 5 %", _yes(more <= 0.05)


def _restart(part: Json) -> Iterator[tuple[str, str, str, str]]:
    ended, empty = part["ended"]["starts"], part["empty"]["starts"]
    times = [start["answered_s"] for start in ended]
    shown = f"median {_s(typical(times))}, longest {_s(max(times))}"
    cpu, of_empty = (_s(typical([start["cpu_s"] for start in starts])) for starts in (ended, empty))
    usual = _s(typical([start["answered_s"] for start in empty]))
    shown += f" ({cpu} of CPU; in an empty home: {usual}, {of_empty} of CPU)"
    what = f"`argosy serve` with {part['ended']['jobs']:,} ended jobs, {len(times)} times: first answer"
    yield what, shown, "≤ 3 s", _share(times, 3.0)
    passes = [start["pass_s"] for start in ended]
    yield (
        "the same: first pass over all jobs",
        f"median {_s(typical(passes))}, longest {_s(max(passes))}",
        "≤ 3 s",
        (_share(passes, 3.0)),
    )


def _soak(part: Json) -> Iterator[tuple[str, str, str, str]]:
    grows = [name for name, found in part["trends"].items() if not found["flat"]]
    memory = part["trends"]["daemon_rss_mib"]
    shown = f"{len(part['trends']) - len(grows)} of {len(part['trends'])} quantities flat"
    shown += f"; {', '.join(grows)} grow" if grows else ""
    shown += f"; the daemon's memory {memory['growth']:+.1f} MiB of {memory['median']:.0f}"
    what = f"{part['minutes']:g} minutes of {sum(part['jobs'].values()):,} mixed real jobs: quantities that grow"
    yield what, shown, "nothing", _yes(not grows)


def soak_table(figures: Json) -> Sequence[Row]:
    """Every quantity of the soak: how much there usually is, and how much it has grown."""
    rows: list[Row] = [("what", "median", "growth", "95 % interval", "flat")]
    for name, found in figures.get("soak", {"trends": {}})["trends"].items():
        unit = " MiB" if name.endswith("_mib") else ""
        what = name.removesuffix("_mib").replace("_", " ").replace("rss", "memory")
        rows.append(
            (
                what,
                f"{found['median']:.1f}{unit}",
                f"{found['growth']:+.1f}{unit}",
                f"{found['low']:+.1f} … {found['high']:+.1f}",
                _yes(found["flat"]),
            )
        )
    return rows


def policies_table(figures: Json) -> Sequence[Row]:
    """Each policy that drove the daemon: completion times, also over the first policy's, and how often jobs changed."""
    runs: dict[str, list[Json]] = {}
    for run in figures.get("policies", {"runs": ()})["runs"]:
        runs.setdefault(run["policy"], []).append(run)
    times = {name: [run["mean_jct_s"] for run in some] for name, some in runs.items()}
    first = next(iter(runs), "")
    counted = ("resizes", "preemptions", "moves")
    rows: list[Row] = [
        (
            "policy",
            "mean JCT, by repetition",
            "mean",
            f"over {first}'s",
            "95 %",
            "90th percentile",
            "last job done after",
            *(f"{what} a job" for what in counted),
            "load average",
        )
    ]
    for name, some in runs.items():
        ratio, low, high, _ = paired_ratio(times[name], times[first])
        loads = [run[f"load_average_{when}"] for run in some for when in ("before", "after")]
        rows.append(
            (
                f"`{name}`",
                ", ".join(f"{seconds:.1f}" for seconds in times[name]) + " s",
                f"{fmean(times[name]):.1f} s",
                f"{ratio:.2f}",
                f"{low:.2f} … {high:.2f}" if low < high else "",  # none for the first itself
                f"{fmean(run['p90_jct_s'] for run in some):.1f} s",
                f"{fmean(run['makespan_s'] for run in some):.0f} s",
                *(f"{fmean(run[f'{what}_a_job'] for run in some):.2f}" for what in counted),
                f"{min(loads):.1f} … {max(loads):.1f}",
            )
        )
    return rows


def _s(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _yes(met: bool) -> str:
    return "yes" if met else "**no**"


def _share(values: Sequence[float], limit: float) -> str:
    met = sum(value <= limit for value in values)
    return "yes" if met == len(values) else f"{met} of {len(values)}"
