"""The best predictor that ignores all context, which the plateau before the transition is held against.

Copies have the law of what they copy, so every position of a training sequence is distributed as one background token.
The best context-free prediction is that law p itself: its loss is the entropy of p in distribution, and the
cross-entropy of the OOD law q under p out of it. No context-free predictor does better than the entropy of q there.
"""

from __future__ import annotations

from headspan.errors import HeadspanError
from headspan.lab.task import Task, token_probabilities


def marginal_losses(task: Task) -> dict[str, float]:
    """Losses of context-free predictors in nats.

    Returns
    -------
    dict
        `id`: entropy of the training law. `ood`: cross-entropy of the OOD law under the training law. `ood_best`:
        entropy of the OOD law. log(vocabulary) each where all tokens are alike.
    """
    if task.kind != "copying":
        raise HeadspanError(f"the marginal law of the task {task.kind!r} is not known in closed form; it is of copying")
    p = token_probabilities(task.distribution, task.vocabulary)
    q = token_probabilities(task.ood_distribution, task.vocabulary)
    return {
        "id": float(-(p * p.log()).sum()),
        "ood": float(-(q * p.log()).sum()),
        "ood_best": float(-(q * q.log()).sum()),
    }


def marginal_accuracy(task: Task) -> dict[str, float]:
    """Accuracy of always guessing the most likely training token, ID and OOD."""
    p = token_probabilities(task.distribution, task.vocabulary)
    q = token_probabilities(task.ood_distribution, task.vocabulary)
    guess = int(p.argmax())
    return {"id": float(p[guess]), "ood": float(q[guess])}
