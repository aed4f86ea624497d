"""Every benchmark, one after another."""

from benchmarks import affinity, hub, interventions, positions, reading, similarity, spectra

for module in (reading, hub, affinity, similarity, positions, spectra, interventions):
    print(f"\n== {module.__name__.removeprefix('benchmarks.')} ==")
    module.main()
