"""Every open question, "future work" and "to do" of the documents, in our own words, with what speaks to it.

A question with an exhibit is tried on every model at hand, or on every training run where it is about learning; its
state follows from the verdicts (`state`). One without has a note with what is there and what is missing, and the note's
own state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headspan.ledger.reproduction import Shown
from headspan.ledger.reproduction.exhibit import UNTESTED

ANSWERED, EVIDENCE, LEAD, OPEN = "answered", "evidence so far", "a lead", "open"
ENOUGH = 3
"""Models on which a verdict must be the same for a question to count as answered."""


@dataclass(frozen=True)
class Question:
    """A question of a document; `exhibit` is the name of the exhibit that speaks to it."""

    document: str
    text: str
    exhibit: str = ""
    note: str = ""
    told: str = OPEN
    """What the note makes of it."""
    of: str = ""
    """The document that the exhibit belongs to, if it is another one."""

    @property
    def shown_in(self) -> str:
        """The document of the exhibit."""
        return self.of or self.document


QUESTIONS = (
    Question(
        "000",
        "How should query and key space be joined into one space of a head?",
        "Question: joining query and key space",
    ),
    Question("000", "Do distances between heads predict differences of their attention on text?", "Last paragraph"),
    Question("001", "Is L4H7 alone, or are identity heads hubs as a class?", "Question: identity heads as hubs"),
    Question(
        "001",
        "Does the kernel work on models with RMSNorm and rotary positions, and can the weights be their own baseline?",
        "Question: larger models, and a baseline from the weights",
    ),
    Question("001", "Is the kernel robust against folding in other architectures?", "Folding"),
    Question("001", "Do prompts made for a purpose tell more than text?", "Question: prompts made for a purpose"),
    Question("001", "Do results depend on the weights that are paired?", "Random baseline"),
    Question(
        "001",
        "Do results depend on how bases are made?",
        note="They cannot: the kernel does not see the basis inside a space (a property test holds it to 1e-9). Rank "
        "decisions can matter; `headspan ranks MODEL` shows them.",
        told=ANSWERED,
    ),
    Question(
        "001",
        "Do relations between heads appear gradually or abruptly in training?",
        "Question: how do the subspaces evolve?",
        of="004",
    ),
    Question("002", "What is the small mass at low token indices?", "Capture of token directions"),
    Question("002", "Why are position directions sparse?", "Question: why sparse?"),
    Question(
        "002",
        "Why does a model prefer disjoint coordinates over orthogonal subspaces?",
        note="On a task that needs positions alone (AdamW and SGD, norms with and without gains, four seeds) "
        "the leading position directions live on 9.9 to 11.2 of 32 coordinates, rotated ones on 11.9. Gains "
        "make -0.6 (95 % interval -2.0 to 0.8), AdamW instead of SGD -0.2 (-1.0 to 0.6). Neither makes them sparse "
        "by itself; what does so in GPT-2 is not known. `headspan train copying -o RUN --study sparsity`; the page "
        "on the lab has the table.",
        told=EVIDENCE,
    ),
    Question("002", "Is the output matrix aligned with the positions, or with the tokens?", "Eight panels"),
    Question(
        "003",
        "How do statistics of the bilinear form act on log-normal attention?",
        note="`headspan gaussian MODEL` predicts spreads of logits and entropies of attention from moments and "
        "measures both; see the page on Gaussian predictions. No verdict over several models was made.",
    ),
    Question("003", "How do other measures than KL follow the geometry of softmax?", "Figure 5.1"),
    Question("003", "What becomes of information between tokens in an attention pass?", "Hypothesis of 7.2.3"),
    Question("003", "Does attention mix tokens into uniformity?", "Hypothesis of 7.2.3"),
    Question("003", "Why do maps go from diagonal to spread and back?", "Figures 8.4, 8.5 and A.1 to A.8"),
    Question("003", "Does attention keep to the shots of a prompt?", "Shots in the maps"),
    Question("003", "Does attention use the angles of embeddings?", "Figure 8.6"),
    Question("003", "Do learned spectra become sparse?", "Figures A.19 to A.21"),
    Question("003", "Are query and key bases aligned like random ones?", "Figure A.22"),
    Question(
        "003",
        "Can distributions of singular values be classified by a geometric meaning?",
        note="`headspan spectra` compares them with the law of random matrices; no classification was tried.",
    ),
    Question("003", "Does conditioning on the token before (4.2.3) fit real text?", "Section 4.2.3"),
    Question("004", "How do the subspaces evolve, and when?", "Question: how do the subspaces evolve?"),
    Question("004", "What has the rise in sharpness to do with the geometry?", "Question: sharpness"),
    Question("004", "Saddle or minimum: what holds a model before the transition?", "Question: saddle or minimum?"),
    Question("004", "Is there one description of composition?", "Question: one description of composition"),
    Question("004", "Are the two subspaces functionally distinct?", "Two functions"),
    Question(
        "004",
        "Arithmetic, position schemes, length generalization, chain of thought?",
        note="Four seeds each. Sums modulo 31 are learned in one transition too, but the embedding's spectrum gets "
        "no gap, and layer 1 reads layer 0 through its queries (kernel .39, expected .16) instead of its keys (.17). "
        "At twice the length copying keeps an accuracy of .75 with rotary, .63 with relative and .17 with sinusoidal "
        "positions (.97, .93 and .84 as trained; guessing .03). Without positions it is not learned. In sums of three "
        "digits with a scratchpad the carry is read from the token that was written (moving it there moves the result "
        "in 84 % of sums, random moves 11 %) and carries through every digit are right. Without one it is made along "
        "the depth (moved after the last layer: 37 %, random 3 %) and 42 to 73 % are right. `headspan train copying "
        "--preset smoke --seeds 0..3 -o RUNS --study lengths`, `headspan train addition --preset scratchpad --seeds "
        "0..3 -o RUNS --study carry`; the page on the lab has the tables.",
        told=EVIDENCE,
    ),
)


def state(verdicts: Sequence[Shown]) -> str:
    """Answered by three models or more that agree; evidence by several, a lead by one; open without any."""
    tested = [one.outcome for one in verdicts if one.outcome != UNTESTED]
    if not tested:
        return OPEN
    if len(tested) == 1:
        return LEAD
    return ANSWERED if len(tested) >= ENOUGH and len(set(tested)) == 1 else EVIDENCE
