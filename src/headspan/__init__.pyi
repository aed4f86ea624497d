"""Made by docs/make_stub.py from the verbs and the lenses; do not edit."""

from headspan.checkpoint import Checkpoint as Checkpoint
from headspan.checkpoint.families import Layout as Layout
from headspan.checkpoint.families import register as register_family
from headspan.checkpoint.synthetic import synthetic as synthetic
from headspan.errors import HeadspanError as HeadspanError
from headspan.explorer.reports import report as report
from headspan.explorer.widget import explore as explore
from headspan.heads import Heads as Heads
from headspan.lenses.affinity import affinity as affinity
from headspan.lenses.attention import attention as attention
from headspan.lenses.channels import channels as channels
from headspan.lenses.compare import compare as compare
from headspan.lenses.detect import detect as detect
from headspan.lenses.drift import drift as drift
from headspan.lenses.files import load as load
from headspan.lenses.gaussian import gaussian as gaussian
from headspan.lenses.intervene import intervene as intervene
from headspan.lenses.mixing import mixing as mixing
from headspan.lenses.model import Model as Model
from headspan.lenses.model import open_model as open
from headspan.lenses.overview import table as table
from headspan.lenses.positions import positions as positions
from headspan.lenses.ranks import ranks as ranks
from headspan.lenses.similarity import similarity as similarity
from headspan.lenses.spectra import spectra as spectra
from headspan.lenses.validate import validate as validate
from headspan.lenses.vocabulary import vocabulary as vocabulary
from headspan.lenses.wiring import wiring as wiring
from headspan.result import Result as Result
from headspan.sweeps import sweep as sweep

VERBS: dict[str, str]
__version__: str
