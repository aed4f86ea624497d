"""Every benchmark, one after another."""

from benchmarks import affinity, hub, reading, similarity

for module in (reading, hub, affinity, similarity):
    print(f"\n== {module.__name__.removeprefix('benchmarks.')} ==")
    module.main()
