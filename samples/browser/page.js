// Starts the worker, and shows the losses as they come.
const get = (id) => document.getElementById(id);
const losses = [];
let rest = '';

async function bytes_of(input, fallback) {
  const file = get(input).files[0];
  const source = file ?? await fetch(fallback);
  if (!file && !source.ok) {
    throw new Error(`${fallback} is not here (${source.status}). Choose a file.`);
  }
  return new Uint8Array(await source.arrayBuffer());
}

function show(part) {
  get('log').textContent += part;
  const lines = (rest + part).split('\n');
  rest = lines.pop();
  for (const line of lines) {
    const found = line.match(/^step (\d+) loss (\S+)/);
    if (found) {
      losses.push(Number(found[2]));
      get('state').textContent = `Step ${found[1]}, loss ${found[2]}`;
    }
  }
  const most = Math.max(...losses, 1e-9);
  get('curve').setAttribute('points', losses.map((loss, i) =>
    `${100 * i / Math.max(losses.length - 1, 1)},${100 - 95 * loss / most}`).join(' '));
}

// Returns { code, losses, bytes }: the exit code of the program, the loss of each step, and the
// size of the saved model.
export async function finetune(steps) {
  losses.length = 0;
  rest = get('log').textContent = '';
  get('start').disabled = true;
  try {
    const [module, model, text] = await Promise.all([
      WebAssembly.compileStreaming(fetch('finetune.wasm')),
      bytes_of('model', 'base.bowline'),
      bytes_of('text', 'text.txt'),
    ]);
    const worker = new Worker('worker.js', { type: 'module' });
    const end = await new Promise((done, fail) => {
      worker.onerror = fail;
      worker.onmessage = ({ data }) => {
        if (data.part) {
          show(data.part);
        }
        if (data.code !== undefined) {
          done(data);
        }
      };
      worker.postMessage({ module, model, text, steps });
    });
    worker.terminate();
    if (end.tuned) {
      get('save').href = URL.createObjectURL(new Blob([end.tuned]));
      get('save').hidden = false;
    }
    return { code: end.code, losses: [...losses], bytes: end.tuned?.length ?? 0, tuned: end.tuned };
  } finally {
    get('start').disabled = false;
  }
}

get('start').onclick = () => finetune(Number(get('steps').value)).catch((error) => {
  get('state').textContent = error.message;
});
window.finetune = finetune;
