"use strict";
/* What is shown, as `explorer/payload.py` declares it; a payload of another version is refused. */
headspan.record = headspan.home.record();
if (headspan.record.schema !== "headspan.explorer/1") throw new Error(`payload ${headspan.record.schema} is not known here`);
await headspan.store.open("core");
