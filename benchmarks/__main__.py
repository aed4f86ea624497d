"""Every benchmark, one after another."""

from benchmarks import affinity, reading, similarity

for module in (reading, affinity, similarity):
    print(f"\n== {module.__name__.removeprefix('benchmarks.')} ==")
    module.main()
