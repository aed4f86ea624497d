"""Every benchmark, one after another; or those named: `python -m benchmarks spectra positions`."""

import sys

from benchmarks import (
    affinity,
    callbacks,
    channels,
    distributions,
    drift,
    end_to_end,
    explorer,
    gguf_files,
    hub,
    interventions,
    lab,
    lens_memory,
    packed,
    positions,
    reading,
    report,
    runtime,
    scale,
    similarity,
    spectra,
    sweep,
    vocabulary,
    wiring,
)

BENCHMARKS = {
    module.__name__.removeprefix("benchmarks."): module
    for module in (
        reading,
        end_to_end,
        gguf_files,
        packed,
        hub,
        affinity,
        wiring,
        channels,
        similarity,
        drift,
        positions,
        spectra,
        vocabulary,
        distributions,
        runtime,
        interventions,
        lab,
        sweep,
        callbacks,
        scale,
        lens_memory,
        report,
        explorer,
    )
}

unknown = sorted(set(sys.argv[1:]) - set(BENCHMARKS))
if unknown:
    sys.exit(f"there is no benchmark {', '.join(unknown)}; benchmarks are {', '.join(BENCHMARKS)}")
for name in sys.argv[1:] or BENCHMARKS:
    print(f"\n== {name} ==")
    BENCHMARKS[name].main()
