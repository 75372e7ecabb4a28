// Runs the program, so that the page stays responsive.
import { run } from './wasi.js';

onmessage = async ({ data: { module, model, text, steps } }) => {
  try {
    const args = ['finetune', 'base.bowline', 'text.txt', 'tuned.bowline', String(steps)];
    const files = { 'base.bowline': model, 'text.txt': text };
    const { code, files: after } = await run(module, args, files, (part) => postMessage({ part }));
    const tuned = after['tuned.bowline'];
    postMessage({ code, tuned }, tuned ? [tuned.buffer] : []);
  } catch (error) {
    postMessage({ part: `${error}\n`, code: 1 });
  }
};
