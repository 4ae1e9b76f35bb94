"""Put the figures of benchmarks/results into the pages that quote them: `python -m benchmarks.render`.

A page has pairs of comments, `<!-- philly -->` and `<!-- end -->`; the text between them is replaced. So all measured
tables come from the JSON files, and one command refreshes them after `make bench` or `make faithfulness`. The line that
says how a table was measured follows the first table of each measurement on a page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from argosy.errors import InputError
from benchmarks import (
    advise,
    bounds,
    cluster_tables,
    decision,
    dual_agent,
    dual_agent_training,
    environments,
    eta,
    faithfulness,
    fidelity,
    gavel_peers,
    goodput,
    growth,
    growth_elsewhere,
    growth_left_out,
    growth_safety,
    growth_shrink,
    growth_spare,
    joint,
    joint_newest,
    joint_training,
    million,
    online,
    peers,
    philly,
    placement,
    rivals,
    scaling,
    schedulers,
    shadow,
    startup,
    windows,
)
from benchmarks import learning_more_tables as learning_more
from benchmarks import learning_tables as learning
from benchmarks import live_tables as live
from benchmarks.harness import RESULTS, ROOT, Json, Row

NAMES = (
    "performance",
    "faithfulness",
    "growth",
    "dl2",
    "live-figures",
    "learning",
    "joint-scheduling",
    "dual-agent",
    "online-learning",
    "learned-placement",
    "goodput",
    "from-one-machine-to-a-cluster",
    "operating",
)
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in NAMES)
TABLES: dict[str, tuple[str, Callable[[Json], Sequence[Row]]]] = {
    "philly": ("philly", philly.table),
    "profile": ("philly", philly.profile_table),
    "events": ("philly", philly.event_table),
    "floor": ("decision", decision.floor_table),
    "million": ("million", million.table),
    "growth": ("million", million.growth_table),
    "decision": ("decision", decision.table),
    "peers": ("peers", peers.table),
    "startup": ("startup", startup.table),
    "schedulers": ("schedulers", schedulers.table),
    "programs": ("schedulers", schedulers.program_table),
    "traces": ("schedulers", schedulers.trace_table),
    "environments": ("environments", environments.table),
    "scaling": ("scaling", scaling.table),
    "cluster": ("cluster", cluster_tables.table),
    "clusterdemo": ("cluster", cluster_tables.demo_table),
    "claims": ("faithfulness", faithfulness.table),
    "sweep": ("faithfulness", faithfulness.sweep_table),
    "dl2": ("faithfulness", faithfulness.dl2_table),
    "rivals": ("rivals", rivals.table),
    "rivalspeed": ("rivals", rivals.speed_table),
    "gavelpeers": ("gavel-peers", gavel_peers.table),
    "agreement": ("faithfulness", faithfulness.agreement_table),
    "goodput": ("goodput", goodput.table),
    "goodputclaims": ("goodput", goodput.claim_table),
    "goodputagreement": ("goodput", goodput.agreement_table),
    "growthtargets": ("growth", growth.target_table),
    "leftout": ("growth-left-out", growth_left_out.table),
    "leftalone": ("growth-left-out", growth_left_out.alone_table),
    "growthsafety": ("growth-safety", growth_safety.table),
    "elsewhere": ("growth-elsewhere", growth_elsewhere.table),
    "elsewheresaid": ("growth-elsewhere", growth_elsewhere.said_table),
    "elsewheretargets": ("growth-elsewhere", growth_elsewhere.target_table),
    "shrinkpairs": ("growth-shrink", growth_shrink.table),
    "spare": ("growth-spare", growth_spare.table),
    "sparetargets": ("growth-spare", growth_spare.target_table),
    "pays": ("growth", growth.pays_table),
    "search": ("growth", growth.search_table),
    "reference": ("growth", growth.reference_table),
    "transfers": ("growth", growth.transfer_table),
    "curricula": ("growth", growth.curriculum_table),
    "starts": ("growth", growth.starts_table),
    "shrinking": ("growth", growth.shrinking_table),
    "loops": ("growth", growth.speed_table),
    "learntargets": ("learning", learning.target_table),
    "learnbetter": ("learning", learning.better_table),
    "learnjct": ("learning", learning.jct_table("rough")),
    "learnjctmeasured": ("learning", learning.jct_table("measured")),
    "learngaps": ("learning", learning.gap_table("rough")),
    "learngapsmeasured": ("learning", learning.gap_table("measured")),
    "learntails": ("learning", learning.tail_table("rough")),
    "learntailsmeasured": ("learning", learning.tail_table("measured")),
    "learnresize": ("learning", learning.resize_table),
    "learnloads": ("learning", learning.load_table),
    "learnwarmup": ("learning", learning_more.warmup_table),
    "learnreinforced": ("learning", learning_more.reinforced_table),
    "learnshipped": ("learning", learning_more.shipped_table),
    "learnablations": ("learning", learning_more.ablation_table),
    "learnalgorithms": ("learning", learning_more.algorithm_table),
    "learnlatency": ("learning", learning_more.latency_table),
    "learnlevels": ("learning", learning_more.level_table),
    "learnlose": ("learning", learning_more.lose_table),
    "jointmixed": ("joint", joint.mixed_table),
    "jointleague": ("joint", joint.league_table),
    "jointloads": ("joint", joint.load_table),
    "jointnewest": ("joint", joint_newest.table),
    "jointrivals": ("joint", joint_newest.rival_table),
    "jointdeadlines": ("joint", joint_newest.deadline_table),
    "windows": ("windows", windows.table),
    "bounds": ("bounds", bounds.table),
    "jointdecision": ("joint", joint.decision_table),
    "jointtraining": ("joint-training", joint_training.table),
    "jointcurves": ("joint-training", joint_training.curve_table),
    "placementsearch": ("placement", placement.search_table),
    "placementgangs": ("placement", placement.gang_table),
    "placementtimes": ("placement", placement.time_table),
    "harmony": ("placement", placement.harmony_table),
    "dualagent": ("dual-agent", dual_agent.table),
    "dualtraining": ("dual-agent-training", dual_agent_training.table),
    "online": ("online", online.table),
    "livetargets": ("live", live.target_table),
    "liveresizes": ("live", live.resize_table),
    "livedrift": ("live", live.drift_table),
    "livereliability": ("live", live.reliability_table),
    "livesoak": ("live", live.soak_table),
    "livepolicies": ("live", live.policies_table),
    "advise": ("advise", advise.table),
    "estimates": ("eta", eta.replay_table),
    "rollouts": ("eta", eta.cost_table),
    "guard": ("shadow", shadow.table),
    "fidelity": ("fidelity", fidelity.table),
}
PICTURES = {  # file in docs/images, and what it shows
    "picturejct": ("learning-jct.png", "Mean JCT of every policy relative to DRF's, with 95 % intervals"),
    "pictureloads": ("learning-loads.png", "Mean JCT over the floor's on 5 to 500 nodes"),
    "picturereinforced": ("learning-reinforced.png", "Validation scores of dl2 on its way from DRF"),
    "picturealgorithms": ("learning-algorithms.png", "Validation scores over minutes of training, three algorithms"),
    "pictureablations": ("learning-ablations.png", "Validation scores over updates, DL2 with and without its parts"),
}
WHOLE_MACHINE = (
    "scaling",
    "live",
    "cluster",
    "joint",
    "joint-training",
    "advise",
    "fidelity",
)  # all other benchmarks use one core
# parts are measured at different times, and the tables have their loads
OWN_LOADS = ("scaling", "live", "cluster", "joint")
BLOCK = re.compile(r"<!-- (?P<name>[a-z0-9]+) -->\n.*?<!-- end -->", re.DOTALL)


def markdown(rows: Sequence[Row]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def block(name: str, results: Path = RESULTS) -> str:
    """Return one table with the line that says how it was measured, or a picture."""
    if name in PICTURES:
        return f"<!-- {name} -->\n{picture(*PICTURES[name])}\n<!-- end -->"
    if name not in TABLES:
        raise InputError(f"no table is named {name!r}", hint=f"there are {', '.join(TABLES)}")
    source, rows = TABLES[name]
    path = results / f"{source}.json"
    result: Json = json.loads(path.read_text("utf-8")) if path.exists() else {}
    made = rows(result["figures"]) if result else []
    if len(made) < 2:  # a heading at most
        return f"<!-- {name} -->\nNot measured yet: `python -m benchmarks {source}`.\n<!-- end -->"
    versions, machine = result["versions"], result["machine"]
    note = (
        f"`{result['command']}`, {'all' if source in WHOLE_MACHINE else 'one'} of {machine['cores']} cores"
        f" ({machine['cpu']}),"
        f" Python {versions['python']}, NumPy {versions['numpy']}, Numba {versions['numba']},"
        f" Polars {versions['polars']}"
    )
    if source not in OWN_LOADS:
        note += f"; load average before: {result['load_average_before']:.2f}"
    return f"<!-- {name} -->\n{markdown(made)}\n\n{note}\n<!-- end -->"


def picture(file: str, caption: str) -> str:
    if not (ROOT / "docs" / "images" / file).exists():
        return f"*{caption}: not drawn yet, `python -m benchmarks.learning_plots`.*"
    return f"![{caption}](images/{file})"


def render(page: str, results: Path = RESULTS) -> str:
    """Return the page with new tables; a line on how they were measured is not repeated."""
    notes: set[str] = set()

    def replaced(found: re.Match[str]) -> str:
        text = block(found["name"], results)
        table, separator, note = text.removesuffix("\n<!-- end -->").partition("\n\n")
        if not separator or note not in notes:
            notes.add(note)
            return text
        return f"{table}\n<!-- end -->"

    return BLOCK.sub(replaced, page)


def main() -> int:
    for page in PAGES:
        old = page.read_text("utf-8")
        new = render(old)
        page.write_text(new, "utf-8")
        print(f"{page.relative_to(ROOT)}: {'updated' if new != old else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
