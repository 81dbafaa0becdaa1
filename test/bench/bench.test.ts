import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import test from 'ava';
import { parseSample, percentile } from '../../bench/card/card.ts';
import { type Loads, limitOf, spentBy, sumOf } from '../../bench/card/service-load.ts';
import { CHILD_PROGRAMS, type ProcessTimes, timesOf } from '../../bench/processes.ts';
import { openReplay } from '../../bench/quality/plan-runner.ts';
import type { PlanEntry } from '../../inference-node/serving/models/plan.ts';
import { PLAN_RULES } from '../../inference-node/serving/picture/infer-plan.ts';
import type { RunInput } from '../../inference-node/serving/picture/run-input.ts';

const IDLE: Loads = {
  ...{ cores: 16, gpuBusy: 0.5, machineCores: 4, clientBusy: 0.2 },
  cpuMs: { 'control plane': 5, node: 4, 'picture workers': 20, engines: 6 },
  ...{ controlPlaneBusy: 0.5, nodeBusy: 0.4, enginesBusy: 0.6, workerWaitShare: 0.02 },
};

test('the limit is the first part that is full, from the GPU to the slots for images', t => {
  const full: [Partial<Loads>, string][] = [
    [{}, 'nothing is full'],
    [{ workerWaitShare: 0.3 }, 'picture workers: more of them'],
    [{ enginesBusy: 0.95 }, 'engines: more of them'],
    [{ nodeBusy: 0.97 }, 'node, one thread'],
    [{ controlPlaneBusy: 0.92 }, 'control plane, one thread'],
    [{ machineCores: 15 }, 'cores, most in picture workers'],
    [{ clientBusy: 0.95 }, 'the client: not a figure of the service'],
    [{ gpuBusy: 0.98 }, 'GPU'],
  ];
  let loads = IDLE;
  for (const [more, limit] of full) {
    loads = { ...loads, ...more };
    t.is(limitOf(loads), limit);
  }
});

test('processor time is of processes that live at the end, new ones whole', t => {
  const times = (role: ProcessTimes['role'], cpuMs: number, mainCpuMs: number) => {
    return { role, cpuMs, mainCpuMs };
  };
  const before = new Map([
    [1, times('node', 100, 90)],
    [2, times('engines', 500, 400)],
    [3, times('engines', 900, 900)],
  ]);
  const after = new Map([
    [1, times('node', 150, 120)],
    [2, times('engines', 700, 500)],
    [4, times('engines', 30, 20)],
  ]);
  const { cpuMs, mainMs } = spentBy(before, after);
  t.deepEqual(cpuMs, { 'control plane': 0, node: 50, 'picture workers': 0, engines: 230 });
  t.deepEqual(mainMs, { 'control plane': 0, node: 30, 'picture workers': 0, engines: 120 });
});

test('figures of nvidia-smi and of a page of metrics, as far as they are there', t => {
  t.deepEqual(parseSample('97, 5312\n', 1), { atMs: 1, busy: 0.97, memoryMib: 5312 });
  const unknown = { atMs: 3, busy: undefined, memoryMib: undefined };
  t.deepEqual(parseSample('[N/A], [Not Supported]', 3), unknown);
  for (const line of ['', 'GPU is lost, reboot', '1, 2, 3', '97 %, 5 MiB']) {
    t.is(parseSample(line, 4), undefined, line);
  }
  const page = '# HELP a b\na{stage="run"} 2\na{stage="decode",x="1"} 3\nab 9\na_b 7\n';
  t.deepEqual([sumOf(page, 'a'), sumOf(page, 'a', 'stage="run"'), sumOf(page, 'z')], [5, 2, 0]);
  t.deepEqual([percentile([3, 1, 2], 0.5), percentile([3, 1, 2], 1)], [2, 3]);
});

const BUSY_MS = 200;
const BUSY = `
  while (process.cpuUsage().user < ${1000 * BUSY_MS});
  setInterval(() => {}, 1000);
`;

test('children of a node are told apart by files that there are', t => {
  for (const file of Object.values(CHILD_PROGRAMS)) {
    t.truthy(
      existsSync(path.join(import.meta.dirname, '../../inference-node/serving', file)),
      file,
    );
  }
});

test('an engine below another process has its role and its time', async t => {
  // Through the environment: in its command line they would make the shell an engine too.
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
    process.kill(-(shell.pid ?? 0), 'SIGKILL');
    await gone;
  }
});

test('a replay decides by the rules that it is given, and takes each look once', async t => {
  const entries: readonly PlanEntry[] = [
    { model: 'a', role: 'subject' },
    { model: 'b', role: 'opinion' },
    { model: 'a', inputSize: 64, role: 'secondLook' },
  ];
  const runs: string[] = [];
  const side = 96;
  const run = async ({ model, role }: PlanEntry, _picture: unknown, input?: RunInput) => {
    runs.push(`${model} ${role} ${input?.kind}`);
    // A tenth is uncertain, in the middle of the picture.
    const alpha = Uint8Array.from({ length: side * side }, (_none, i) => {
      const [x, y] = [i % side, Math.floor(i / side)];
      if (Math.min(x, y) < 16 || Math.max(x, y) >= side - 16) return 0;
      return y < 23 ? 128 : 255;
    });
    return { alpha, width: side, height: side, role };
  };
  const models = { run, close: async () => undefined };
  const picture = { rgba: new Uint32Array(1), width: 1, height: 1, translucent: false };
  const replay = openReplay(entries, models, picture);
  const takenBy = async (secondLook: number, unsureShareMin: number) => {
    const { mattes, taken } = await replay({
      ...PLAN_RULES,
      unsureShareMin: { ...PLAN_RULES.unsureShareMin, opinion: 0.05, secondLook },
      framed: { ...PLAN_RULES.framed, unsureShareMin },
    });
    return {
      taken: taken.map(({ entry, input }) => `${entry.role} ${input?.kind}`),
      mattes: mattes.length,
    };
  };
  const two = ['subject undefined', 'opinion undefined'];
  t.deepEqual(await takenBy(0.5, 0.5), { taken: two, mattes: 2 });
  t.deepEqual(await takenBy(0.05, 0.5), { taken: [...two, 'secondLook undefined'], mattes: 3 });
  const { taken } = await takenBy(0.05, 0.05);
  t.deepEqual(taken.slice(0, 3), [...two, 'secondLook framed']);
  t.is(new Set(runs).size, runs.length);
});
