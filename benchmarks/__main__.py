"""Every benchmark, one after another."""

from benchmarks import reading

for module in (reading,):
    print(f"\n== {module.__name__.removeprefix('benchmarks.')} ==")
    module.main()
