/** `make repeat FILE=… [TIMES=20] [BUSY=3] [NAME=…]`: how often a test fails. */
import { type ChildProcess, spawn } from 'node:child_process';
import { parseArgs } from 'node:util';
import { runAva } from './run-ava.ts';

const { values, positionals: files } = parseArgs({
  options: {
    times: { type: 'string', default: '20' },
    busy: { type: 'string', default: '0' },
    name: { type: 'string', default: '' },
  },
  allowPositionals: true,
});
const times = Number(values.times);
const busy = Number(values.busy);
if (files.length === 0 || !(times > 0) || !(busy >= 0)) {
  console.error('repeat: needs test files, --times above 0 and --busy of 0 or more');
  process.exit(64);
}

/** Ends with this process, because its stdin closes. */
const BUSY_LOOP = `
  new (require('node:worker_threads').Worker)('for (;;);', { eval: true });
  process.stdin.on('end', () => process.kill(process.pid, 'SIGKILL')).resume();
`;

const loops: ChildProcess[] = Array.from({ length: busy }, () =>
  spawn(process.execPath, ['-e', BUSY_LOOP], { stdio: ['pipe', 'ignore', 'inherit'] }),
);

const TIMEOUT_MS = 600_000;

/** Undefined: it passed. */
async function runOnce(): Promise<string | undefined> {
  const match = values.name === '' ? {} : { match: `*${values.name}*` };
  const run = { files, concurrency: 1, timeoutMs: TIMEOUT_MS, isQuiet: true, ...match };
  const { passed, failed, output } = await runAva(run);
  return failed === 0 && passed > 0 ? undefined : output;
}

let failures = 0;
const startedMs = performance.now();
for (let time = 1; time <= times; time += 1) {
  const beganMs = performance.now();
  const said = await runOnce();
  const took = `${((performance.now() - beganMs) / 1000).toFixed(1)} s`;
  if (said === undefined) {
    console.log(`run ${time} of ${times}: ${took}`);
    continue;
  }
  failures += 1;
  console.log(`run ${time} of ${times} FAILED: ${took}\n${said}`);
}
for (const loop of loops) loop.kill('SIGKILL');
const seconds = Math.round((performance.now() - startedMs) / 1000);
console.log(`${failures} of ${times} runs failed, beside ${busy} busy loops, in ${seconds} s`);
process.exitCode = failures === 0 ? 0 : 1;
