/* A notebook as the home of the component, through anywidget: the payload and its archive come from Python, which also
   answers questions; selections go back. */
async function unpackedBytes(packed) {
  const view = packed.buffer ? new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength) : new Uint8Array(packed);
  return new Uint8Array(await new Response(new Blob([view]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

function render({model, el}) {
  const waiting = new Map();
  let number = 0, fragment = "";
  const extra = [];
  const onMessage = (message, buffers) => {
    if (message?.number === undefined) return;
    waiting.get(message.number)?.({...message.answer, packed: buffers?.[0]});
    waiting.delete(message.number);
  };
  model.on("msg:custom", onMessage);

  async function mount() {
    const root = document.createElement("div");
    root.className = "headspan explorer notebook";
    el.replaceChildren(root);
    let component = null;
    const home = {
      keys: root, room: 460, plotly: () => null, record: () => JSON.parse(model.get("payload")),
      archive: async (name) => (name === "core" ? {index: JSON.parse(model.get("index")), bytes: await unpackedBytes(model.get("archive"))}
        : extra.find((each) => each.name === name) ?? null),
      fragment: () => fragment, go: (next) => { fragment = next; },
      selected: (view) => {
        model.set("selected", view.head ?? "");
        model.set("selected_pair", view.head && view.with ? [view.with, view.head] : []);
        model.save_changes();
      },
      ask: (question) => new Promise((done) => {
        waiting.set(++number, async (answer) => {
          if (answer.packed) {
            const name = `answer-${number}-${extra.length}`;
            extra.push({name, index: answer.index, bytes: await unpackedBytes(answer.packed)});
            await component.store.open(name);
          }
          done(answer);
        });
        model.send({number, question});
      }),
      receive: () => {},
    };
    component = await headspanComponent(root, home);
  }
  model.on("change:payload", mount);
  const ready = mount();
  ready.catch((problem) => { el.textContent = String(problem); });
  return () => model.off("msg:custom", onMessage);
}

export default {render};
