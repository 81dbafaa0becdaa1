/** The node that gets a job which names a model. */
import assert from 'node:assert/strict';
import { type NodeSnapshot, NodeView } from '@matting/nodes/node-view.ts';
import {
  ABILITIES,
  modelsSeen,
  REPORT,
  saidModel,
  saidPlan,
  snapshotWith,
} from '@matting/nodes/test/nodes-seen.ts';
import ava from 'ava';
import type { JobNeeds } from './job-needs.ts';
import { pickNode } from './pick-node.ts';

const test = ava;

const PLAIN: JobNeeds = { inputFormat: 'jpeg', pixels: 1e6, outputFormat: 'png' };
const HEAVY: JobNeeds = { ...PLAIN, model: 'heavy' };
const OWN: JobNeeds = { ...PLAIN, model: 'standard' };

const models = modelsSeen(saidPlan('standard'), saidModel('heavy'), saidModel('light'));
const node = (nodeId: string, changes: Partial<NodeSnapshot> = {}) =>
  snapshotWith({ nodeId, bootId: nodeId, models, ...changes });
/** @param engines 0: it is loading */
const having = (engines: number, estimatedWaitMs: number) =>
  new Map([['heavy', { enginesReady: engines, estimatedWaitMs, inferMs: 4000 }]]);

type Fleet = readonly NodeSnapshot[];
const busy = { imagesFree: 2, imagesInFlight: 2 };
const full = { imagesFree: 0, imagesInFlight: 4 };
const loaded = (waitMs = 0, changes: Partial<NodeSnapshot> = {}) =>
  node('loaded', { ...busy, loads: having(1, waitMs), ...changes });

/** expected: the node, and the longest wait there; or why none, and in how many ms perhaps one. */
const CASES: readonly [why: string, JobNeeds, Fleet, waitedMs: number, expected: unknown][] = [
  [
    'no node has it',
    HEAVY,
    [node('a', { models: modelsSeen(saidPlan('standard')) })],
    0,
    ['incapable'],
  ],
  ['a node that says nothing has it not', HEAVY, [snapshotWith({})], 0, ['incapable']],
  ['where it is loaded before an idle one', HEAVY, [node('idle'), loaded()], 0, ['loaded', 50]],
  ['where none has it loaded, it is loaded', HEAVY, [node('idle', full), node('b')], 0, ['b', 0]],
  ['a queue that is shorter than a load', HEAVY, [node('idle'), loaded(3000)], 0, ['busy', 2950]],
  ['a queue that is longer than a load', HEAVY, [node('idle'), loaded(6000)], 0, ['idle', 0]],
  ['it waited less than a load', HEAVY, [node('idle'), loaded(0, full)], 4000, ['busy', 1000]],
  ['it waited longer than a load', HEAVY, [node('idle'), loaded(0, full)], 5001, ['idle', 0]],
  ['it waited long, and there is room', HEAVY, [node('idle'), loaded()], 9000, ['loaded', 950]],
  [
    'it is loading elsewhere',
    HEAVY,
    [node('idle'), loaded(0, { loads: having(0, 2000) })],
    0,
    ['busy', 1950],
  ],
  [
    'ours loads it, unreported',
    HEAVY,
    [node('idle'), node('b', { unreportedImages: 1, unreportedOthers: ['heavy'] })],
    0,
    ['busy', 4950],
  ],
  [
    'ours loads another',
    HEAVY,
    [node('idle', full), node('b', { unreportedImages: 1, unreportedOthers: ['light'] })],
    0,
    ['b', 0],
  ],
  ['others hold their half', HEAVY, [loaded(0, { ownOthers: 2 })], 0, ['busy', undefined]],
  [
    'which leaves room for those that name none',
    PLAIN,
    [loaded(0, { ownOthers: 2 })],
    0,
    ['loaded', 50],
  ],
  ['and for those that name the own plan', OWN, [loaded(0, { ownOthers: 2 })], 0, ['loaded', 50]],
  ['one of a node with a single place', HEAVY, [node('a', { imagesFree: 1 })], 0, ['a', 0]],
  ['the own plan is loaded', OWN, [node('a')], 0, ['a', 50]],
  ['its wait is the own plan\u2019s', OWN, [loaded(0, { estimatedWaitMs: 400 })], 0, ['busy', 350]],
  ['a queue of its own', HEAVY, [loaded(0, { estimatedWaitMs: 400 })], 0, ['loaded', 50]],
  [
    'engines that images of others do not hold',
    PLAIN,
    [loaded(0, { imagesInFlight: 1, ownOthers: 1 }), node('slow', { inferMs: 9000 })],
    0,
    ['loaded', 50],
  ],
  ['a model\u2019s queue is nobody else\u2019s', PLAIN, [loaded(9000)], 0, ['loaded', 50]],
];

for (const [why, needs, fleet, waitedMs, expected] of CASES) {
  test(`a job that names a model › ${why}`, t => {
    const choice = pickNode(fleet, needs, { nowMs: 0, waitedMs, random: () => 0 });
    const told =
      choice.kind === 'picked'
        ? [choice.node.nodeId, choice.waitMsMax]
        : [choice.kind, ...('retryInMs' in choice ? [choice.retryInMs] : [])];
    t.deepEqual(told, expected);
  });
}

test('a job that names a model › counts among the others of its node, and no report of the own plan shows it', t => {
  const view = new NodeView({ ...ABILITIES, models });
  view.take(REPORT, 0);
  const held = [view.reserve(1, 'heavy'), view.reserve(1, 'standard'), view.reserve(1)];
  const seen = view.snapshot();
  assert.ok(seen);
  t.deepEqual([seen.ownImages, seen.ownOthers, seen.unreportedOthers], [3, 1, ['heavy']]);
  for (const one of held) view.end(one, undefined);
  t.is(view.snapshot()?.ownOthers, 0);
});

test('a job that names a model › that is refused keeps its model away until the next report, and nothing else', t => {
  for (const full of ['for-all', 'for-its-size'] as const) {
    const view = new NodeView({ ...ABILITIES, models });
    const all = { ...REPORT, enginesReady: 1 };
    view.take(all, 0);
    for (let done = 0; done < 5; done += 1) view.judge('well', 0);
    view.end(view.reserve(1, 'heavy'), full);
    const goes = (needs: JobNeeds) => {
      const fleet = [view.snapshot()].filter(seen => seen !== undefined);
      return pickNode(fleet, needs, { nowMs: 0, waitedMs: 0, random: () => 0 }).kind;
    };
    const light = { ...PLAIN, model: 'light' };
    t.deepEqual([HEAVY, light, PLAIN, OWN].map(goes), ['busy', 'picked', 'picked', 'picked']);
    view.take(all, 1);
    t.is(goes(HEAVY), 'picked');
  }
});
