import assert from 'node:assert/strict';
import { test } from 'node:test';
import { spentBy } from '../../../bench/card/service-load.ts';
import { type Loads, limitOf } from '../../../bench/card/stage-limit.ts';
import type { ProcessTimes } from '../../../bench/processes.ts';

const IDLE: Loads = {
  ...{ cores: 16, gpuBusy: 0.5, machineCores: 4, clientBusy: 0.2 },
  coresOf: { 'control plane': 0.5, node: 0.4, 'picture workers': 2, engines: 0.6 },
  ...{ controlPlaneBusy: 0.5, nodeBusy: 0.4, enginesBusy: 0.6, workerWaitShare: 0.02 },
};

test('what is full first, from the GPU to the places for images, is the limit', () => {
  const full: [Partial<Loads>, string][] = [
    [{}, 'nothing is full'],
    [{ workerWaitShare: 0.3 }, 'picture workers: more of them'],
    [{ enginesBusy: 0.95 }, 'engines: more of them, or several images at once'],
    [{ nodeBusy: 0.97 }, 'node, one thread'],
    [{ controlPlaneBusy: 0.92 }, 'control plane, one thread'],
    [{ machineCores: 15 }, 'cores, most in picture workers'],
    [{ clientBusy: 0.95 }, 'the client: not a figure of the service'],
    [{ gpuBusy: 0.98 }, 'GPU'],
  ];
  let loads = IDLE;
  for (const [more, limit] of full) {
    loads = { ...loads, ...more };
    assert.equal(limitOf(loads), limit);
  }
  assert.equal(limitOf({ ...IDLE, gpuBusy: undefined }), 'nothing is full');
});

test('processor time is of processes that live at the end, new ones whole', () => {
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
    [5, times('picture workers', 60, 50)],
  ]);
  const { cpuMs, mainMs } = spentBy(before, after);
  assert.deepEqual(cpuMs, { 'control plane': 0, node: 50, 'picture workers': 60, engines: 230 });
  assert.deepEqual(mainMs, { 'control plane': 0, node: 30, 'picture workers': 50, engines: 120 });
});
