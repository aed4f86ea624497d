"""Every benchmark, one after another."""

from benchmarks import affinity, hub, positions, reading, runtime, similarity, spectra

for module in (reading, hub, affinity, similarity, positions, spectra, runtime):
    print(f"\n== {module.__name__.removeprefix('benchmarks.')} ==")
    module.main()
