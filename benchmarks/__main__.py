"""Every benchmark, one after another."""

from benchmarks import affinity, hub, interventions, positions, reading, runtime, similarity, spectra

for module in (reading, hub, affinity, similarity, positions, spectra, runtime, interventions):
    print(f"\n== {module.__name__.removeprefix('benchmarks.')} ==")
    module.main()
