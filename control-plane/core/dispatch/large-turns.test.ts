import { snapshotWith } from '@matting/nodes/test/nodes-seen.ts';
import test from 'ava';
import { LargeTurns } from './large-turns.ts';

const TURN_PAUSE_MS = 10_000;
const TURN_MS_MAX = 30_000;
const TURN_AFTER_MS = 10_000;

function waiting(jobId: string, megapixels: number, waitedMs = TURN_AFTER_MS) {
  const pixels = megapixels * 1e6;
  const needs = { inputFormat: 'png', pixels, outputFormat: 'png' } as const;
  return { jobId, waitedMs, needs, excludedBoots: undefined };
}

const SMALL = waiting('small', 1, 0);
const LARGE = waiting('large', 12);
/** A small machine that works on a small image. */
const BUSY = snapshotWith({ imagesInFlight: 1, imagesFree: 2, megapixelsFree: 11 });
const IDLE = snapshotWith({ nodeId: 'other', megapixelsFree: 12 });

function open(turns: LargeTurns, jobId: string, ...nodes: (typeof BUSY)[]): string[] {
  return turns.openTo(jobId, nodes).map(({ nodeId }) => nodeId);
}

test('an image that has waited for memory has the node for itself, until it begins', t => {
  const turns = new LargeTurns();
  turns.chooseNext([waiting('large', 12, TURN_AFTER_MS - 1), SMALL], [BUSY], 0);
  t.deepEqual(open(turns, 'small', BUSY), ['node'], 'it has not waited for long');
  turns.chooseNext([SMALL, LARGE], [BUSY], 1);
  t.deepEqual(open(turns, 'small', BUSY, IDLE), ['other']);
  t.deepEqual(open(turns, 'large', BUSY, IDLE), ['node', 'other']);
  turns.began('small', 2);
  t.deepEqual(open(turns, 'small', BUSY), []);
  turns.began('large', 2);
  t.deepEqual(open(turns, 'small', BUSY), ['node']);
  // Others get the node before the next large image.
  turns.chooseNext([SMALL, LARGE], [BUSY], 1 + TURN_PAUSE_MS);
  t.deepEqual(open(turns, 'small', BUSY), ['node']);
  turns.chooseNext([SMALL, LARGE], [BUSY], 2 + TURN_PAUSE_MS);
  t.deepEqual(open(turns, 'small', BUSY), []);
});

test('a turn ends with its job, and with its time', t => {
  for (const [jobs, atMs] of [
    [[SMALL], 1],
    [[SMALL, LARGE], TURN_MS_MAX],
  ] as const) {
    const turns = new LargeTurns();
    turns.chooseNext([SMALL, LARGE], [BUSY], 0);
    turns.chooseNext([SMALL, LARGE], [BUSY], TURN_MS_MAX - 1);
    t.deepEqual(open(turns, 'small', BUSY), []);
    turns.chooseNext(jobs, [BUSY], Math.max(atMs, TURN_MS_MAX - 1));
    t.deepEqual(open(turns, 'small', BUSY), ['node']);
  }
});

test('no node is reserved in vain', t => {
  for (const [why, jobs, nodes] of [
    ['another node has room', [SMALL, LARGE], [BUSY, IDLE]],
    [
      'no node could ever have it',
      [SMALL, waiting('huge', 12)],
      [{ ...BUSY, megapixelsAloneMax: 9 }],
    ],
    ['its engines are gone', [SMALL, LARGE], [{ ...BUSY, enginesReady: 0 }]],
    ['nobody would come before it', [LARGE], [BUSY]],
    [
      'only jobs of another model wait beside it',
      [{ ...SMALL, needs: { ...SMALL.needs, model: 'heavy' } }, LARGE],
      [BUSY],
    ],
    ['places are what it lacks', [SMALL, LARGE], [{ ...BUSY, imagesFree: 0, megapixelsFree: 12 }]],
  ] as const) {
    const turns = new LargeTurns();
    turns.chooseNext(jobs, nodes, 0);
    t.is(turns.openTo('small', nodes).length, nodes.length, why);
  }
});

test('every replica keeps the same node', t => {
  const nodes = ['c', 'a', 'b'].map(nodeId => ({ ...BUSY, nodeId }));
  for (const seen of [nodes, nodes.toReversed()]) {
    const turns = new LargeTurns();
    turns.chooseNext([SMALL, LARGE], seen, 0);
    t.deepEqual(open(turns, 'small', ...seen).toSorted(), ['b', 'c']);
  }
});
