"use strict";
/* The drawing library, read in parts. As one script it is a task of half a second: its text is read, all its modules run,
   and then those of forty kinds of traces, of which a page uses three.
   1. The bundle is one function that ends by calling its last module. Its text is read without that call.
   2. The core runs.
   3. The kinds of traces, which the last module registers as a list, run one at a time until those in use are known.
   4. A small figure is drawn out of sight: functions are compiled when they first run, which the first figure would wait for.
   Between the steps the browser may do something else. A bundle of another shape is run as it is. */
async function headspanLibrary(source, kinds) {
  const pause = () => new Promise((done) => { setTimeout(done); });
  const run = (text) => {
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
  };

  /* The bundle as an expression whose value is its last module, in which a list of functions stands for the list that it
     registers; null where the bundle looks otherwise. */
  function parts() {
    const start = source.indexOf("(()=>{", source.indexOf("var Plotly=")), before = Math.max(0, source.length - 20000);
    const end = /([\w$]+)\.register\(\[([\w$(),]+)\]\)(.*?)return ([\w$]+)\(\);\}\)\(\);/s.exec(source.slice(before));
    if (start < 0 || !end) return null;
    const [, core, list, between, last] = end, kinds_ = list.split(",").map((each) => `()=>${each}`);
    return `${source.slice(start, before + end.index)}${core}.kinds=[${kinds_}]${between}return ${last};})()`;
  }

  const text = parts();
  if (text === null) {
    run(source);
    return globalThis.Plotly;
  }
  await pause();
  run(`globalThis.headspanBundle=${text}`);
  await pause();
  const Plotly = globalThis.headspanBundle(), missing = new Set(kinds);
  missing.delete("scatter");
  for (const kind of Plotly.kinds) {
    if (!missing.size) break;
    await pause();
    const module = kind();
    Plotly.register(module);
    for (const each of [module].flat()) missing.delete(each.name);
  }
  await pause();
  await warmUp(Plotly);
  globalThis.Plotly = Plotly;
  return Plotly;
}

async function warmUp(Plotly) {
  const place = document.createElement("div");
  place.style.cssText = "position: absolute; visibility: hidden; width: 300px; height: 200px";
  document.body.append(place);
  await Plotly.newPlot(place, [{x: [1, 2], y: [1, 2], mode: "markers+lines"}, {type: "heatmap", z: [[1, 2], [3, 4]]}],
    {width: 300, height: 200, xaxis: {type: "log"}, annotations: [{text: "x", x: 0, y: 1}]});
  Plotly.purge(place);
  place.remove();
}
