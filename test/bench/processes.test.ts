import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import { CHILD_PROGRAMS, timesOf } from '../../bench/processes.ts';

const test = ava.serial;

const BUSY_MS = 200;
const BUSY = `
  while (process.cpuUsage().user < ${1000 * BUSY_MS});
  setInterval(() => {}, 1000);
`;

test('children of a node are told apart by files that there are', t => {
  for (const file of Object.values(CHILD_PROGRAMS)) {
    t.truthy(existsSync(path.join(import.meta.dirname, '../../inference-node/src', file)), file);
  }
});

test('an engine below another process has its role and its time', async t => {
  // Words of its own command line would make the shell an engine too.
  const env = { ...process.env, NODE: process.execPath, BUSY, FILE: CHILD_PROGRAMS.engines };
  const shell = spawn('sh', ['-c', '"$NODE" -e "$BUSY" "$FILE"; exit'], {
    ...{ env, detached: true },
  });
  const gone = once(shell, 'exit');
  const times = () => [...timesOf(process.pid, process.pid).entries()];
  const engine = () => times().find(([, { role }]) => role === 'engines')?.[1];
  try {
    while ((engine()?.cpuMs ?? 0) < BUSY_MS) await delay(10);
    const { cpuMs = 0, mainCpuMs = 0 } = engine() ?? {};
    t.true(mainCpuMs > 0 && mainCpuMs <= cpuMs, `${mainCpuMs} of ${cpuMs} ms`);
    t.is(new Map(times()).get(shell.pid ?? 0)?.role, 'node');
  } finally {
    // Its group: the engine too.
    process.kill(-(shell.pid ?? 0), 'SIGKILL');
    await gone;
  }
});
