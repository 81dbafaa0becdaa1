import test from 'ava';
import { parseSample, percentile } from '../../bench/card/card.ts';
import { type Loads, limitOf, spentBy, sumOf } from '../../bench/card/service-load.ts';
import type { ProcessTimes } from '../../bench/processes.ts';

const IDLE: Loads = {
  ...{ cores: 16, gpuBusy: 0.5, machineCores: 4, clientBusy: 0.2 },
  cpuMs: { 'control plane': 5, node: 4, 'picture workers': 20, engines: 6 },
  ...{ controlPlaneBusy: 0.5, nodeBusy: 0.4, enginesBusy: 0.6, workerWaitShare: 0.02 },
};

test('what is full first, from the GPU to the places for images, is the limit', t => {
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
